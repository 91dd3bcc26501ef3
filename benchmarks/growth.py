"""Question 5: how do the time of a round and the memory grow with clients, model and sampled fraction?"""

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, save

HERE = Path(__file__).parent
MNIST = f"{HERE / 'data.py'}:like_mnist"
BASE = {"client.epochs": 1, "rounds": 3, "data.name": MNIST, "data.partition.kind": "iid", "data.channels": 3}
TINY = {
    "data.name": f"{HERE / 'data.py'}:tiny_images", "data.channels": 1, "model.name": "small",
    "client.steps": 1, "client.batch_size": 2, "rounds": 20,
}  # fmt: skip
ROUNDS = (100, 2_000, 20_000)
"""Rounds of a run on embedded data that is resumed."""
CASES: dict[str, dict[str, Any]] = {
    "100 clients, 1 % sampled": {"data.partition.clients": 100, "server.fraction": 0.01},
    "1,000 clients, 1 % sampled": {"data.partition.clients": 1_000, "server.fraction": 0.01},
    "10,000 clients, 1 % sampled": {"data.partition.clients": 10_000, "server.fraction": 0.01},
    "100 clients, 10 sampled": {"data.partition.clients": 100, "server.fraction": 0.1},
    "1,000 clients, 10 sampled": {"data.partition.clients": 1_000, "server.fraction": 0.01},
    "10,000 clients, 10 sampled": {"data.partition.clients": 10_000, "server.fraction": 0.001},
    "10,000 clients of SCAFFOLD, 10 sampled": {
        "data.partition.clients": 10_000, "server.fraction": 0.001, "algorithm.name": "scaffold", "rounds": 60,
    },
    "100 clients, 50 sampled": {"data.partition.clients": 100, "server.fraction": 0.5},
    "1,000 clients, 100 sampled, one step of two tiny images": {
        **TINY, "data.partition.clients": 1_000, "server.fraction": 0.1,
    },
    "100,000 clients, 100 sampled, one step of two tiny images": {
        **TINY, "data.partition.clients": 100_000, "server.fraction": 0.001,
    },
    "small model": {"data.partition.clients": 1_000, "server.fraction": 0.01, "model.name": "small"},
    "vgg11": {"data.partition.clients": 1_000, "server.fraction": 0.005, "model.name": "vgg11", "rounds": 2},
    "resnet18": {"data.partition.clients": 1_000, "server.fraction": 0.005, "model.name": "resnet18", "rounds": 2},
    "10 rounds": {"data.partition.clients": 1_000, "server.fraction": 0.01, "rounds": 10},
    "100 rounds": {"data.partition.clients": 1_000, "server.fraction": 0.01, "rounds": 100},
}  # fmt: skip


def measure(changes: dict[str, Any]) -> dict[str, float]:
    """Runs one case in a process of its own and reads its memory."""
    command = [sys.executable, __file__, json.dumps(changes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_case(changes: dict[str, Any]) -> None:
    """The child's part: train, then report seconds of the last rounds and the peak of all processes together."""
    import statistics

    import fedsol

    experiment = fedsol.Experiment(algorithm={"name": "fedavg"}).override({**changes, "server.evaluate_every": 1000})
    run = fedsol.train(experiment)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = statistics.median(row["seconds"] for row in run.rows[:-1])
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    memory = {"peak_gib_main": own / 2**20, "peak_gib_worker": worker / 2**20}
    print(json.dumps({"seconds_per_round": seconds, **memory, "clients": run.rows[-1]["clients"]}))


def run_rounds(rounds: int) -> None:
    """The child's part: train in a run directory, then resume for one more round; how do time and memory grow?"""
    import statistics

    import fedsol

    class Meter(fedsol.Callback):
        needs_updates = False

        def __init__(self) -> None:
            self.ends: list[float] = []
            self.gib: list[float] = []

        def round_finished(self, result: fedsol.RoundResult) -> None:
            self.ends.append(time.perf_counter())
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.gib.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**30)

    def between(ends: list[float]) -> float:
        """Seconds from the end of a round to that of the next: checkpoints are part of it."""
        return statistics.median(later - earlier for earlier, later in itertools.pairwise(ends))

    settings = {"engine.kind": "local", "client.steps": 1, "server.evaluate_every": 100, "algorithm.name": "fedavg"}
    experiment = fedsol.Experiment(algorithm={"name": "fedavg"}).override({**settings, "rounds": rounds})
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter()
        fedsol.train(experiment, [meter], out=folder + "/run")
        start, resumed = time.perf_counter(), Meter()
        fedsol.train(experiment.override({"rounds": rounds + 1}), [resumed], out=folder + "/run", resume=True)
    tenth = rounds // 10
    found = {
        "seconds_first": between(meter.ends[:tenth]),
        "seconds_last": between(meter.ends[-tenth:]),
        "gib_after_tenth": meter.gib[tenth - 1],
        "gib_at_end": meter.gib[-1],
        "seconds_to_resume": resumed.ends[0] - start,
    }
    print(json.dumps(found))


def main() -> None:
    if sys.argv[1:] and sys.argv[1] != "rounds":
        given = json.loads(sys.argv[1])
        run_rounds(given["only_rounds"]) if "only_rounds" in given else run_case(given)
        return
    if sys.argv[1:]:  # `growth.py rounds` measures only the second table again
        cases = json.loads((RESULTS / "growth.json").read_text(encoding="utf-8"))["cases"]
    else:
        cases = {name: measure({**BASE, **changes}) for name, changes in CASES.items()}
    save("growth", {"cases": cases, "rounds": {str(count): measure({"only_rounds": count}) for count in ROUNDS}})


if __name__ == "__main__":
    main()
