"""Question 1: how long is a local step of each method, in steps of FedAvg, and how many FLOPs does it take?"""

from collections.abc import Callable
from itertools import cycle, islice

import torch
from common import interleaved, save
from federations import paper_experiment

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.task import Task
from fedsol.analysis.cost import flops
from fedsol.core.randomness import generator_for
from fedsol.core.weights import add, clone, pick
from fedsol.data.batches import augment, batches
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.optimizer import make_optimizer

METHODS = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox"},
    "FedNova": {"name": "fednova"},
    "SCAFFOLD": {"name": "scaffold"},
    "FedNTD": {"name": "fedntd"},
    "FedSAM": {"name": "fedsam"},
    "FedASAM": {"name": "fedasam"},
    "FedDyn": {"name": "feddyn"},
    "MOON": {"name": "moon"},
    "FedSOL (head, KL)": {"name": "fedsol"},
    "FedSOL (head, KL), Lambda by tensor": {"name": "fedsol", "strength": "adaptive"},
    "FedSOL (head, L2)": {"name": "fedsol", "proximal": "l2"},
    "FedSOL (body, KL)": {"name": "fedsol", "perturb": "body"},
    "FedSOL (all, KL)": {"name": "fedsol", "perturb": "all"},
    "FedSOL (all, KL), Lambda by tensor": {"name": "fedsol", "perturb": "all", "strength": "adaptive"},
    "FedSOL (all, L2)": {"name": "fedsol", "perturb": "all", "proximal": "l2"},
}
REPETITIONS = 60


def step_of(federation: Federation, table: dict[str, object]) -> Callable[[], None]:
    """One optimizer step of a method, away from the anchor, on batches that are ready."""
    algorithm = make_algorithm(table)
    anchor = pick(federation.initial_weights(), federation.model.names)
    task = Task(federation.model, anchor, {}, {}, lr=0.01, momentum=0.9)
    local = add(anchor, clone(anchor), 0.01)
    previous = algorithm.init_client(add(anchor, anchor, -0.01), {})
    state = algorithm.begin(task, algorithm.init_server(anchor), previous)
    optimizer = make_optimizer(federation.experiment.client, local, 0.01)
    ready = cycle(list(islice(training_batches(federation), 8)))

    def step() -> None:
        gradient, _ = algorithm.gradient(task, local, next(ready), state)
        optimizer.step(gradient)

    return step


def training_batches(federation: Federation):
    """The batches of one client."""
    dataset = federation.dataset
    return batches(dataset, federation.partition[0], 50, 5, generator_for(0, "benchmark"))


def main() -> None:
    torch.set_num_threads(1)
    federation = build_federation(paper_experiment())
    federation.model.train(True)
    steps = {name: step_of(federation, table) for name, table in METHODS.items()}
    counted = {name: flops(step) for name, step in steps.items()}
    images, generator = federation.dataset.train.inputs[:50], generator_for(0, "augment")
    steps["augmentation"] = lambda: augment(images, federation.dataset, generator)
    seconds = interleaved(steps, REPETITIONS)
    fedavg = seconds["FedAvg"]
    save(
        "step_cost",
        {
            "repetitions": REPETITIONS,
            "seconds": seconds,
            "time_ratio": {name: seconds[name] / fedavg for name in METHODS},
            "flops_ratio": {name: counted[name] / counted["FedAvg"] for name in METHODS},
            "fedavg_gflops": counted["FedAvg"] / 1e9,
            "augmentation_share": seconds["augmentation"] / fedavg,
        },
    )


if __name__ == "__main__":
    main()
