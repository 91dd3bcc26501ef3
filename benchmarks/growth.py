"""Question 5: how do the time of a round and the memory grow with clients, model and sampled fraction?"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import save

HERE = Path(__file__).parent
MNIST = f"{HERE / 'data.py'}:like_mnist"
BASE = {"client.epochs": 1, "rounds": 3, "data.name": MNIST, "data.partition.kind": "iid", "data.channels": 3}
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
    "small model": {"data.partition.clients": 1_000, "server.fraction": 0.01, "model.name": "small"},
    "vgg11": {"data.partition.clients": 1_000, "server.fraction": 0.005, "model.name": "vgg11", "rounds": 2},
    "resnet18": {"data.partition.clients": 1_000, "server.fraction": 0.005, "model.name": "resnet18", "rounds": 2},
    "10 rounds": {"data.partition.clients": 1_000, "server.fraction": 0.01, "rounds": 10},
    "100 rounds": {"data.partition.clients": 1_000, "server.fraction": 0.01, "rounds": 100},
}  # fmt: skip


def measure(changes: dict[str, Any]) -> dict[str, float]:
    """Runs one case in a process of its own and reads its memory."""
    command = [sys.executable, __file__, json.dumps({**BASE, **changes})]
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


def main() -> None:
    if len(sys.argv) > 1:
        run_case(json.loads(sys.argv[1]))
    else:
        save("growth", {"cases": {name: measure(changes) for name, changes in CASES.items()}})


if __name__ == "__main__":
    main()
