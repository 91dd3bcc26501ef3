"""Question 7: would clients stacked along a leading axis (torch.func.vmap) pay? A prototype: plain SGD and an MLP."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from common import interleaved, save
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedsol import Dataset, Experiment, Split
from fedsol.core.messages import Job
from fedsol.federation.federation import Federation, build_federation

SAMPLES, BATCH, REPETITIONS = 50, 10, 15
CASES = {"64 units": (64, 64), "200 units": (64, 200), "200 units, 784 inputs": (784, 200)}
"""Inputs and hidden units of the model `mlp`."""


def federation_of(inputs: int, hidden: int, clients: int) -> Federation:
    """Clients of 50 samples, one epoch in batches of 10."""
    generator = torch.Generator().manual_seed(0)
    count = clients * SAMPLES
    split = Split(torch.randn(count, inputs, generator=generator), torch.randint(10, (count,), generator=generator))
    experiment = Experiment(
        data={"partition": {"kind": "iid", "clients": clients}},
        model={"name": "mlp", "options": {"hidden": hidden}},
        algorithm={"name": "fedavg"},
        client={"epochs": 1, "batch_size": BATCH},
        engine={"kind": "local"},
    )
    return build_federation(experiment, Dataset("random", split, split, 10, (0.0,), (1.0,)))


def one_by_one(federation: Federation) -> None:
    """Train every client as fedsol does."""
    weights = federation.initial_weights()
    for client in range(federation.clients):
        federation.train(Job(client, 1, weights))


def stacked(federation: Federation) -> Callable[[], None]:
    """Return the same local steps of all clients at once: their weights have a leading axis."""
    network: nn.Module = federation.model._model
    split, settings = federation.dataset.train, federation.experiment.client
    assert isinstance(split.inputs, Tensor)
    samples = torch.stack([federation.training_samples(client) for client in range(federation.clients)])

    def loss(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(network, weights, (inputs,)), labels)

    gradient = vmap(grad(loss))

    def train() -> None:
        initial = federation.initial_weights()
        weights = {name: tensor.expand(len(samples), *tensor.shape).clone() for name, tensor in initial.items()}
        moments = [torch.zeros_like(tensor) for tensor in weights.values()]
        for chosen in samples.split(BATCH, dim=1):
            gradients = gradient(weights, split.inputs[chosen], split.labels[chosen])
            torch._fused_sgd_(
                list(weights.values()),
                [gradients[name].contiguous() for name in weights],
                moments,
                weight_decay=settings.weight_decay,
                momentum=settings.momentum,
                lr=settings.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )

    return train


def speed_up(inputs: int, hidden: int, clients: int) -> float:
    """How many times as fast stacked clients are, in processor time of one thread."""
    federation = federation_of(inputs, hidden, clients)
    actions = {"one by one": lambda: one_by_one(federation), "stacked": stacked(federation)}
    seconds = interleaved(actions, REPETITIONS, time.process_time)
    return seconds["one by one"] / seconds["stacked"]


def main() -> None:
    torch.set_num_threads(1)
    found = {name: {str(count): speed_up(*sizes, count) for count in (25, 50)} for name, sizes in CASES.items()}
    save("stacked", {"repetitions": REPETITIONS, "speed_up": found})


if __name__ == "__main__":
    main()
