"""Which clients take part in a round, and which of its samples a client holds out."""

import torch
from torch import Tensor

from fedsol.algorithms import make_algorithm
from fedsol.config.experiment import Experiment
from fedsol.core.randomness import generator_for


def trains_alone(experiment: Experiment) -> bool:
    """Return whether clients train alone, by the algorithm's personal settings: then none takes part in rounds."""
    return bool(make_algorithm(experiment.algorithm).personal_settings().get("method") == "local-only")


def sample_size(experiment: Experiment, clients: int) -> int:
    """Return how many clients a round has: `fraction` of all, at least one."""
    assert experiment.server.fraction is not None
    return max(1, round(experiment.server.fraction * clients))


def sample_clients(experiment: Experiment, clients: int, round_number: int) -> list[int]:
    """Return the ids of the clients of a round, ascending; they depend only on the seed and the round."""
    order = torch.randperm(clients, generator=generator_for(experiment.seed, "sampling", round_number))
    return sorted(order[: sample_size(experiment, clients)].tolist())


def sample_testers(experiment: Experiment, clients: int, round_number: int) -> list[int]:
    """Return the ids of the clients that test the model of a round on their hold-out sets, ascending."""
    if not experiment.data.partition.held_out:
        return []
    order = torch.randperm(clients, generator=generator_for(experiment.seed, "testers", round_number))
    return sorted(order[: experiment.server.evaluate_clients].tolist())


def hold_out(indices: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Split a client's samples into those it trains on and a random share for tests.

    If the share is not 0 and there are two samples or more, both parts have at least one.
    """
    if not share or len(indices) < 2:
        return indices, indices[:0]
    size = min(max(1, round(share * len(indices))), len(indices) - 1)
    order = torch.randperm(len(indices), generator=generator)
    return indices[order[size:].sort().values], indices[order[:size].sort().values]
