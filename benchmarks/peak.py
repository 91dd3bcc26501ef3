"""Question 2: which share of the machine's matrix multiplication does local training reach?"""

import time

import torch
from common import interleaved, save
from federations import paper_experiment
from step_cost import METHODS, step_of

from fedsol.analysis.cost import flops
from fedsol.core.messages import Job
from fedsol.federation.federation import build_federation

SIZE = 1024
REPETITIONS = 12


def main() -> None:
    torch.set_num_threads(1)
    federation = build_federation(paper_experiment(client__epochs=1))
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    federation.model.train(True)
    per_step = flops(step_of(federation, METHODS["FedAvg"]))
    job = Job(0, 1, federation.initial_weights())
    steps = federation.train(job).steps

    def multiply() -> None:
        for _ in range(10):
            left @ right

    actions = {"matrix multiplication": multiply, "one client": lambda: federation.train(job)}
    start = time.perf_counter()
    seconds = interleaved(actions, REPETITIONS)
    peak = 10 * 2 * SIZE**3 / seconds["matrix multiplication"]
    achieved = steps * per_step / seconds["one client"]
    save(
        "peak",
        {
            "repetitions": REPETITIONS,
            "matrix": SIZE,
            "peak_gflops_per_second": peak / 1e9,
            "training_gflops_per_second": achieved / 1e9,
            "share_of_peak": achieved / peak,
            "what": "a client of 500 images, one epoch, one thread: data path, optimizer and bookkeeping included",
            "took_seconds": time.perf_counter() - start,
        },
    )


if __name__ == "__main__":
    main()
