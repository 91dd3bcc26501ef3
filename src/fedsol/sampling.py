"""Which clients take part in a round."""

import torch

from fedsol.experiment import Experiment
from fedsol.randomness import generator_for


def sample_size(experiment: Experiment, clients: int) -> int:
    """How many clients a round has: `fraction` of all, at least one."""
    assert experiment.server.fraction is not None
    return max(1, round(experiment.server.fraction * clients))


def sample_clients(experiment: Experiment, clients: int, round_number: int) -> list[int]:
    """Ids of the clients of a round, ascending; they depend on the seed and the round alone."""
    order = torch.randperm(clients, generator=generator_for(experiment.seed, "sampling", round_number))
    return sorted(order[: sample_size(experiment, clients)].tolist())
