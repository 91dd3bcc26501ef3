"""Question 6: several runs at a time, or one run after another with all cores for its clients?"""

import shutil
import tempfile
from pathlib import Path

import torch
from common import interleaved, save

from fedsol import Experiment
from fedsol.engines import available_cores
from fedsol.studies.grid import parse_grid
from fedsol.studies.run_many import Study
from fedsol.studies.sweep import sweep

ROUNDS = 10
REPETITIONS = 5
VALUES = "0.005,0.01,0.02,0.04"


def main() -> None:
    torch.set_num_threads(1)
    axes = parse_grid([f"client.lr={VALUES}"])
    base = Experiment(rounds=ROUNDS)

    def run(jobs: int) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fedsol-sweep-"))
        try:
            sweep(axes, base, Study(folder, [0], jobs=jobs))
        finally:
            shutil.rmtree(folder)

    cores = available_cores()
    seconds = interleaved({"side by side": lambda: run(cores), "one by one": lambda: run(1)}, REPETITIONS, warm_up=1)
    save(
        "sweep_jobs",
        {
            "repetitions": REPETITIONS,
            "what": f"{len(VALUES.split(','))} runs on digits, {ROUNDS} rounds each, seed 0",
            "jobs": cores,
            "seconds": seconds,
            "speed_up": seconds["one by one"] / seconds["side by side"],
        },
    )


if __name__ == "__main__":
    main()
