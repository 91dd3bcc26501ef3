"""The same federated work in fedsol, in Flower's simulation and in Apple's pfl-research: seconds per round.

    .venv/bin/python benchmarks/peers.py [--workload cnn|embedded|many] [--rounds N] [--repetitions N]

Each framework runs in its own process and virtual environment (made when missing), one after the other and then all
again, so that a busy moment of the machine does not hit one alone. All have the same data, dealt out in the same
way, take the same number of local steps, and evaluate the global model on the test set after every round. A round's
time is the difference of two timestamps; the first round of a run, which warms caches up, is left out.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
import numpy as np

from fedsol.data.catalog import find_spec, load

HERE = Path(__file__).parent / "peers"
sys.path.insert(0, str(HERE))

from workload import Workload  # noqa: E402  (lies beside the scripts that other environments run)

CACHE = Path("~/.cache/fedsol-benchmarks").expanduser()
TORCH = "torch==2.13.0"
ROUNDS = {"cnn": 4, "embedded": 40, "many": 8}
FEDERATIONS = {"cnn": (100, 10, 5, 50), "embedded": (20, 4, 5, 50), "many": (1_000, 50, 1, 10)}
"""Clients, those of a round, local epochs, and the batch size; `many` is pfl's own benchmark."""
IMAGES = 50_000
TEST_SHARE = 5  # one test image for so many training images
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True)
class Variant:
    """One way to run the workload in a framework."""

    framework: str
    network: str
    processes: int = 1
    """Processes that pfl is started with; the others start their own."""
    threads: int = 1

    @property
    def name(self) -> str:
        """What the results call it."""
        if self.framework == "fedsol":
            return "fedsol"
        how = f", {self.processes} x {self.threads} threads" if self.framework == "pfl" else ""
        return f"{self.framework} ({self.network}{how})"


def variants_of(workload: str) -> list[Variant]:
    """What is compared. The peers' users write their own network; with `tuned` they write it as fedsol has it."""
    cores = os.cpu_count() or 1
    if workload == "cnn":
        return [
            Variant("fedsol", "tuned"),
            Variant("flower", "paper"),
            Variant("pfl", "paper", processes=cores),
            Variant("pfl", "paper", threads=cores),
            Variant("flower", "tuned"),
            Variant("pfl", "tuned", processes=cores),
        ]
    if workload == "many":
        return [Variant("fedsol", "tuned"), Variant("flower", "tuned"), Variant("pfl", "tuned", processes=cores)]
    return [
        Variant("fedsol", "small"),
        Variant("flower", "small"),
        Variant("pfl", "small", processes=cores),
        Variant("pfl", "small", threads=cores),
        Variant("pfl", "small"),
    ]


def python_of(framework: str, cache: Path) -> Path:
    """The interpreter of a framework's own environment, which is made if it is missing."""
    if framework == "fedsol":
        return Path(sys.executable)
    environment = cache / framework
    python, complete = environment / "bin" / "python", environment / "complete"
    requirements = HERE / f"requirements-{framework}.txt"
    if not complete.exists() or complete.read_text(encoding="utf-8") != requirements.read_text(encoding="utf-8"):
        print(f"making {environment}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        # Torch by itself and first: a plain requirement of a peer could bring a build for graphics cards.
        for wanted in ([TORCH], ["-r", str(requirements)]):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
        complete.write_text(requirements.read_text(encoding="utf-8"), encoding="utf-8")
    return python


def make_workload(name: str, cache: Path, rounds: int, images: int) -> Workload:
    """Writes the data and the partition, and says what is to be done with them."""
    folder = cache / "data" / (name if name == "embedded" else f"{name}-{images}")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = digits() if name == "embedded" else random_images(images)
    np.savez(folder / "data.npz", **arrays)
    clients, sampled, epochs, batch_size = FEDERATIONS[name]
    order = np.random.default_rng(0).permutation(len(arrays["y_train"]))
    partition = [sorted(part.tolist()) for part in np.array_split(order, clients)]
    (folder / "partition.json").write_text(json.dumps(partition), encoding="utf-8")
    if name == "embedded":
        mean, std = find_spec("digits").mean, find_spec("digits").std
    else:
        scaled = arrays["x_train"].transpose(1, 0, 2, 3).reshape(3, -1)
        mean, std = scaled.mean(axis=1) / 255, scaled.std(axis=1) / 255
    return Workload(
        data=str(folder / "data.npz"),
        partition=str(folder / "partition.json"),
        mean=[float(value) for value in mean],
        std=[float(value) for value in std],
        network="",
        clients=clients,
        sampled=sampled,
        epochs=epochs,
        batch_size=batch_size,
        lr=0.01,
        momentum=0.9,
        weight_decay=1e-5,
        # Of the peers: what is fastest for them. fedsol keeps its default, 50.
        evaluate_batch=512 if name == "embedded" else 50,
        rounds=rounds,
    )


def digits() -> dict[str, np.ndarray]:
    """scikit-learn's digits, split as fedsol splits them."""
    dataset = load("digits", CACHE)
    return {
        "x_train": dataset.train.inputs.numpy(),
        "y_train": dataset.train.labels.numpy(),
        "x_test": dataset.test.inputs.numpy(),
        "y_test": dataset.test.labels.numpy(),
    }


def random_images(images: int) -> dict[str, np.ndarray]:
    """Noise in the shape of CIFAR-10: time does not depend on what is in a picture."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", images), ("test", images // TEST_SHARE)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, count)
    return arrays


def run(variant: Variant, workload: Workload, cache: Path) -> dict[str, Any]:
    """Runs a variant once; returns its record with the seconds from its start to its end."""
    folder = cache / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    given, output, log = (folder / f"{variant.framework}{suffix}" for suffix in (".in.json", ".out.json", ".log"))
    output.unlink(missing_ok=True)
    replace(workload, network=variant.network, threads=variant.threads).write(given)
    command = [str(python_of(variant.framework, cache)), str(HERE / f"run_{variant.framework}.py"), given, output]
    ports = [free_port() for _ in range(variant.processes)]
    load, start = os.getloadavg()[0], time.time()
    with log.open("w") as file:
        processes = [
            subprocess.Popen(
                command, env=environment(cache, ports, rank), cwd=folder, stdout=file, stderr=subprocess.STDOUT
            )
            for rank in range(variant.processes)
        ]
        codes = [process.wait() for process in processes]
    if any(codes) or not output.exists():
        raise SystemExit(f"{variant.name}: exit codes {codes}; see {log}")
    record = json.loads(output.read_text(encoding="utf-8"))
    return {**record, "total": time.time() - start, "before_rounds": record["stamps"][0] - start, "load": load}


def environment(cache: Path, ports: list[int], rank: int) -> dict[str, str]:
    """Environment variables of a run; several processes of pfl find each other through theirs."""
    variables = {**os.environ, **QUIET, "FLWR_HOME": str(cache / "flower-home")}
    if len(ports) > 1:
        variables["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{port}" for port in ports)
        variables["PFL_WORKER_RANK"] = str(rank)
    return variables


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def check_steps(workload: Workload, name: str, record: Mapping[str, Any]) -> None:
    """All must have done the same work: clients are of one size, so every round has the same number of steps."""
    per_client = {-(-len(client) // workload.batch_size) for client in workload.indices()}
    assert len(per_client) == 1, "clients differ in their number of batches"
    expected = [workload.sampled * workload.epochs * per_client.pop()] * workload.rounds
    assert record["steps"] == expected, f"{name} took {record['steps']} local steps instead of {expected}"
    assert len(record["stamps"]) == workload.rounds + 1


def compare(workload: Workload, variants: list[Variant], repetitions: int, cache: Path) -> dict[str, Any]:
    """Runs all variants in turns; medians over the rounds of all turns, and how they compare with fedsol's."""
    runs: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in variants}
    for variant in variants:
        python_of(variant.framework, cache)
    for turn in range(repetitions):
        for variant in variants:
            record = run(variant, workload, cache)
            check_steps(workload, variant.name, record)
            runs[variant.name].append(record)
            print(f"turn {turn + 1}: {variant.name}: {np.diff(record['stamps']).round(3).tolist()}", file=sys.stderr)
    summaries = {name: summary(records) for name, records in runs.items()}
    reference = summaries["fedsol"]["seconds_per_round"]
    ratios = {
        variant: round(summaries[variant.name]["seconds_per_round"] / reference, 2)
        for variant in variants
        if variant.framework != "fedsol"
    }
    hidden = ("data", "partition", "network", "threads")
    return {
        "settings": {key: value for key, value in vars(workload).items() if key not in hidden},
        "local_steps_per_round": runs["fedsol"][0]["steps"][0],
        "evaluation": "the global model on all test images after every round, by the server",
        "peer_seconds_over_fedsol_seconds": {variant.name: ratio for variant, ratio in ratios.items()},
        "best_of_each_peer": best_of_each(ratios),
        "runs": summaries,
    }


def best_of_each(ratios: Mapping[Variant, float]) -> dict[str, float]:
    """The smallest ratio of each peer, by network: of the ways to use the cores, its fastest counts."""
    best: dict[str, float] = {}
    for variant, ratio in ratios.items():
        name = f"{variant.framework} ({variant.network})"
        best[name] = min(ratio, best.get(name, ratio))
    return best


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """A variant's medians, and what they were made from."""
    rounds = [np.diff(record["stamps"]).tolist() for record in records]
    counted = [seconds for one_run in rounds for seconds in one_run[1:]]
    return {
        "seconds_per_round": round(statistics.median(counted), 5),
        "seconds_of_whole_run": [round(record["total"], 2) for record in records],
        "seconds_before_first_round": [round(record["before_rounds"], 2) for record in records],
        "seconds_of_all_rounds": [[round(seconds, 5) for seconds in one_run] for one_run in rounds],
        "load_average_at_start": [round(record["load"], 2) for record in records],
        "final_accuracy": [round(record["accuracies"][-1], 4) for record in records],
        "versions": records[0]["versions"],
    }


def main() -> None:
    """Runs the comparison; the other workloads, if measured before on the same machine and day, is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(ROUNDS), help="default: all")
    parser.add_argument("--rounds", type=int, help=f"rounds of a run, at least 2 (default: {ROUNDS})")
    parser.add_argument("--repetitions", type=int, default=2, help="runs of each framework (default: 2)")
    parser.add_argument(
        "--images", type=int, default=IMAGES, help="training images of the CNN (fewer: a trial, not saved)"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"environments and data (default: {CACHE})")
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 2:
        parser.error("--rounds must be at least 2: the first one is not counted")
    cache = options.cache.resolve()
    results = {}
    for name in [options.workload] if options.workload else ["embedded", "cnn", "many"]:
        workload = make_workload(name, cache, options.rounds or ROUNDS[name], options.images)
        results[name] = compare(workload, variants_of(name), options.repetitions, cache)
    if options.images == IMAGES:
        common.save("peers", {**earlier(), **results})
    else:
        print(json.dumps(results, indent=2))


def earlier() -> dict[str, Any]:
    """The workloads that the results hold already, if they were made with what is here now."""
    path = common.RESULTS / "peers.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if content.get("machine") != common.machine():
        return {}
    return {name: content[name] for name in ROUNDS if name in content}


if __name__ == "__main__":
    main()
