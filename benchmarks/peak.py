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
SIDE = 8
"""Pixels of an image's side: 16 images have SIZE of them."""
REPETITIONS = 12


def main() -> None:
    torch.set_num_threads(1)
    federation = build_federation(paper_experiment(client__epochs=1))
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    federation.model.train(True)
    per_step = flops(step_of(federation, METHODS["FedAvg"]))
    job = Job(0, 1, federation.initial_weights())
    steps = federation.train(job).steps

    # The same product as a convolution of single pixels: from 16 images on, torch leaves that to another library.
    images = left.reshape(16, SIZE, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
    kernels = right.reshape(SIZE, SIZE, 1, 1).contiguous(memory_format=torch.channels_last)

    def multiply() -> None:
        for _ in range(10):
            left @ right

    def convolve() -> None:
        with torch.inference_mode():
            for _ in range(10):
                torch.nn.functional.conv2d(images, kernels)

    actions = {"matmul": multiply, "convolution": convolve, "one client": lambda: federation.train(job)}
    start = time.perf_counter()
    seconds = interleaved(actions, REPETITIONS, time.process_time)  # of one thread, so that other programs do not count
    products = {name: 10 * 2 * SIZE**3 / seconds[name] for name in ("matmul", "convolution")}
    peak = max(products.values())
    achieved = steps * per_step / seconds["one client"]
    save(
        "peak",
        {
            "repetitions": REPETITIONS,
            "matrix": SIZE,
            "products_gflops_per_second": {name: speed / 1e9 for name, speed in products.items()},
            "peak_gflops_per_second": peak / 1e9,
            "training_gflops_per_second": achieved / 1e9,
            "share_of_peak": achieved / peak,
            "what": "a client of 500 images, one epoch, one thread: data path, optimizer and bookkeeping included",
            "took_seconds": time.perf_counter() - start,
        },
    )


if __name__ == "__main__":
    main()
