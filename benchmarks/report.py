"""Makes docs/performance.md out of the recorded results."""

import json
from pathlib import Path
from typing import Any

from common import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
NOTES = Path(__file__).parent / "notes.md"


def main() -> None:
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    sections = [section(results[name]) for name, section in SECTIONS.items() if name in results]
    text = "\n".join([INTRODUCTION, *sections, aims(results), NOTES.read_text(encoding="utf-8")])
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}")


INTRODUCTION = """# Performance

Made by `make bench` from [benchmarks/results](../benchmarks/results). What is compared takes
turns in one run, and medians are taken, because machines are noisy: trust ratios, not seconds.
"""


def made_on(result: dict[str, Any]) -> str:
    """The line with the machine under every table."""
    machine = result["machine"]
    return (
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, Python {machine['python']},\n"
        f"torch {machine['torch']}, fedsol {machine['fedsol']}; `benchmarks/{result['benchmark']}.py`.\n"
    )


def step_cost(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {ratio:.2f} | {result['flops_ratio'][name]:.2f} |" for name, ratio in result["time_ratio"].items()
    )
    return f"""## 1. A local step of each method, in steps of FedAvg

The paper's CNN, batches of 50 images of 32 x 32, one thread, median of {result["repetitions"]} interleaved
steps. FLOPs are those of torch's own counter ({result["fedavg_gflops"]:.2f} GFLOP for a step of FedAvg). FedSOL's
Lambda is by column, the default, where a row does not say otherwise.

| method | time / FedAvg | FLOPs / FedAvg |
|---|---|---|
{rows}

Augmentation (pad and crop, flip, cutout) takes {100 * result["augmentation_share"]:.1f} % of a step of FedAvg.

{made_on(result)}"""


def peak(result: dict[str, Any]) -> str:
    products = result["products_gflops_per_second"]
    return f"""## 2. Against the machine's own matrix multiplication

Local training reaches **{100 * result["share_of_peak"]:.0f} %** of the faster of two ways to multiply matrices.
Measured in processor time on {result["what"].replace(": ", ":" + chr(10))}.

| one thread, float32 | GFLOP/s |
|---|---|
| local training | {result["training_gflops_per_second"]:.0f} |
| `@` of two {result["matrix"]} x {result["matrix"]} matrices | {products["matmul"]:.0f} |
| the same product as a convolution of single pixels | {products["convolution"]:.0f} |

{made_on(result)}"""


def round_cost(result: dict[str, Any]) -> str:
    beside = f"{100 * result['share_beside_compute']:.1f} %"
    return f"""## 3. A round

Ten clients of 500 images, five epochs, and the evaluation on 10,000 images.

| | |
|---|---|
| two workers over one | **{result["speed_up"]:.2f} ×** |
| neither forward, backward nor optimizer (data path, aggregation, bookkeeping) | **{beside}** |

{made_on(result)}"""


def peers(result: dict[str, Any]) -> str:
    turns = ", ".join(
        f"{len(found['runs']['fedsol']['seconds_of_all_rounds'])} x {found['settings']['rounds'] - 1} of `{workload}`"
        for workload, found in result.items()
        if workload in ("cnn", "embedded", "many")
    )
    rows = "\n".join(
        f"| {workload} | {name} | {run['seconds_per_round']:.3f} | {ratio} |"
        for workload in ("cnn", "embedded", "many")
        if workload in result
        for name, run in result[workload]["runs"].items()
        for ratio in [_ratio(result[workload]["peer_seconds_over_fedsol_seconds"].get(name))]
    )
    return f"""## 4. The same work in other frameworks

Seconds of a round, without start-up and first round, and how many times fedsol's that is. Medians
of runs x rounds: {turns}.

Each framework runs in its own virtual environment, written as its documentation recommends
(`benchmarks/peers/`). All take the same local steps on the same data, without augmentation, and
evaluate the global model after every round.

- `cnn`: 100 clients of 500 images, 10 sampled, 5 epochs, batches of 50.
- `embedded`: digits, 20 clients, 4 sampled, 5 epochs, batches of 50.
- `many`: 1,000 clients of 50 images, 50 sampled, one epoch, batches of 10.
- `paper`: the CNN layer by layer as papers write it. `tuned`: the same network with fedsol's layout
  and order of layers. `2 x 1`: two processes of one thread.

| workload | framework | seconds | over fedsol |
|---|---|---|---|
{rows}

{made_on(result)}"""


def _ratio(value: float | None) -> str:
    return "1" if value is None else f"{value:.2f}"


def growth(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {case['clients']} | {case['seconds_per_round']:.2f} | {case['peak_gib_main']:.2f} | "
        f"{case['peak_gib_worker']:.2f} |"
        for name, case in result["cases"].items()
    )
    counts = [f"{int(count):,} rounds" for count in result["rounds"]]
    rounds = "\n".join(
        f"| {name} | {' | '.join(f'{found[key]:.3f}' for found in result['rounds'].values())} |"
        for key, name in ROUND_COSTS.items()
    )
    return f"""## 5. Growth

One local epoch on MNIST-like data (60,000 images), unless a row says otherwise. Two workers, and
none where a round has one client. Updates are averaged as they arrive, so a round holds a few of
them. SCAFFOLD's server needs all updates of a round, and its clients have states.

| | clients in a round | seconds of a round | peak of the main process, GiB | of a worker, GiB |
|---|---|---|---|---|
{rows}

A run of the quick start's data with one local step, in a run directory, resumed for one more round:

| | {" | ".join(counts)} |
|---|{"---|" * len(counts)}
{rounds}

{made_on(result)}"""


ROUND_COSTS = {
    "seconds_first": "seconds of a round, first tenth",
    "seconds_last": "seconds of a round, last tenth",
    "gib_after_tenth": "memory after a tenth of the rounds, GiB",
    "gib_at_end": "memory at the end, GiB",
    "seconds_to_resume": "seconds to resume and train one round",
}


def precision(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {trial['device']} | {trial['precision']} | {_time(trial, 'fedavg')} | {_time(trial, 'fedsol')} |"
        for trial in result["trials"]
    )
    return f"""## 6. Precision

Milliseconds of a local step of the paper's CNN (50 images, one thread, processor time), as
`fedsol doctor` measures it.

| device | `engine.precision` | FedAvg | FedSOL |
|---|---|---|---|
{rows}

{". ".join(result["advice"])}.

{made_on(result)}"""


def _time(trial: dict[str, Any], method: str) -> str:
    return f"{trial['milliseconds'][method]:.1f}" if trial["milliseconds"] else str(trial["failure"])


def stacked(result: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {found['25']:.1f} | {found['50']:.1f} | {found['50'] / 2:.1f} |"
        for name, found in result["speed_up"].items()
    )
    return f"""## 7. Clients stacked along a leading axis

A prototype with `torch.func.vmap`: FedAvg, clients of 50 samples, one epoch in batches of 10, the
model `mlp`. How many times as fast the stacked steps are, in processor time of one thread
({result["repetitions"]} repetitions in turns). Two workers halve the time of one by one, so the last column is what
one stacked process gains over them.

| | 25 clients | 50 clients | 50 clients over two workers |
|---|---|---|---|
{rows}

{made_on(result)}"""


def aims(results: dict[str, dict[str, Any]]) -> str:
    """What was aimed at, and what the tables above say; of the ways in which a peer uses the cores, its fastest."""
    best = {workload: results["peers"][workload]["best_of_each_peer"] for workload in ("cnn", "embedded", "many")}
    at_least = [
        (f"`{workload}`: {name} over fedsol", aim, best[workload][name])
        for workload, name, aim in (
            ("cnn", "flower (tuned)", 1.0),
            ("cnn", "pfl (tuned)", 1.0),
            ("embedded", "flower (small)", 8.0),
            ("embedded", "pfl (small)", 1.5),
            ("many", "pfl (tuned)", 1.2),
        )
    ]
    crowd = [case for case in results["growth"]["cases"].values() if case["clients"] == 100]
    at_most = [
        ("FedSOL (head, KL), a step over FedAvg's", 1.35, results["step_cost"]["time_ratio"]["FedSOL (head, KL)"]),
        ("100 clients in a round: GiB of the main process", 0.7, max(case["peak_gib_main"] for case in crowd)),
    ]
    rows = [f"| {what} | at least {aim} | {found:.2f} | {_reached(found >= aim)} |" for what, aim, found in at_least]
    rows += [f"| {what} | at most {aim} | {found:.2f} | {_reached(found <= aim)} |" for what, aim, found in at_most]
    return f"""## 8. Aims

| | aim | measured | |
|---|---|---|---|
{chr(10).join(rows)}
"""


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "**not reached**"


SECTIONS = {
    "step_cost": step_cost,
    "peak": peak,
    "round_cost": round_cost,
    "peers": peers,
    "growth": growth,
    "precision": precision,
    "stacked": stacked,
}


if __name__ == "__main__":
    main()
