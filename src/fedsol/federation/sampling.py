"""Which clients take part in a round, and which of its samples a client trains on, validates with and holds out."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedsol.algorithms import make_algorithm
from fedsol.config.experiment import Experiment
from fedsol.core.randomness import generator_for


def trains_alone(experiment: Experiment) -> bool:
    """Return whether clients train alone, by the algorithm's personal settings: then none takes part in rounds."""
    return bool(make_algorithm(experiment.algorithm).personal_settings().get("method") == "local-only")


def sample_size(experiment: Experiment, clients: int) -> int:
    """Return how many clients a round has: `fraction` of those that take part, at least one."""
    assert experiment.server.fraction is not None
    return max(1, round(experiment.server.fraction * (clients - unseen_size(experiment, clients))))


def unseen_size(experiment: Experiment, clients: int) -> int:
    """Return how many clients never take part; at least one does."""
    return min(round(experiment.data.partition.unseen * clients), clients - 1)


def unseen_clients(experiment: Experiment, clients: int) -> frozenset[int]:
    """Return the ids of the clients that never take part; they depend only on the seed."""
    count = unseen_size(experiment, clients)
    order = torch.randperm(clients, generator=generator_for(experiment.seed, "unseen")) if count else torch.empty(0)
    return frozenset(order[:count].tolist())


def sample_clients(experiment: Experiment, clients: int, round_number: int) -> list[int]:
    """Return the ids of the clients of a round, ascending; they depend only on the seed and the round."""
    return _draw(experiment, clients, ("sampling", round_number), sample_size(experiment, clients))


def sample_testers(experiment: Experiment, clients: int, round_number: int) -> list[int]:
    """Return the ids of the clients that test the model of a round on sets of their own, ascending."""
    return _draw(experiment, clients, ("testers", round_number), experiment.server.evaluate_clients)


def _draw(experiment: Experiment, clients: int, purpose: tuple[str, int], count: int | None) -> list[int]:
    """Return the first of the clients that take part in a random order (None: all of them), ascending."""
    order = torch.randperm(clients, generator=generator_for(experiment.seed, *purpose))
    if unseen := unseen_clients(experiment, clients):
        order = order[~torch.isin(order, torch.tensor(sorted(unseen)))]
    chosen: list[int] = order[:count].sort().values.tolist()
    return chosen


def share_size(share: float, samples: int) -> int:
    """Return how many of a client's samples a share is: at least one, and not all, if that is possible."""
    return min(max(1, round(share * samples)), samples - 1) if share and samples > 1 else 0


def training_size(experiment: Experiment, samples: int) -> int:
    """Return how many of a client's samples it trains on; about as many if the server has the validation set."""
    rest = samples - share_size(experiment.data.partition.held_out, samples)
    return rest - share_size(experiment.data.validation, rest)


def hold_out(indices: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Split a client's samples into those it trains on and a random share for tests.

    If the share is not 0 and there are two samples or more, both parts have at least one.
    """
    size = share_size(share, len(indices))
    if not size:
        return indices, indices[:0]
    order = torch.randperm(len(indices), generator=generator)
    return indices[order[size:].sort().values], indices[order[:size].sort().values]


OwnPart = Literal["held_out", "validation"]
"""The parts of its samples that a client tests models on."""


def own_parts(experiment: Experiment) -> list[OwnPart]:
    """Return which of these parts clients have."""
    by_client = experiment.data.validation if experiment.data.validation_by == "client" else 0.0
    shares: dict[OwnPart, float] = {"held_out": experiment.data.partition.held_out, "validation": by_client}
    return [part for part, share in shares.items() if share]


class ClientSamples(NamedTuple):
    """The samples of a client, each of them in one part."""

    training: Tensor
    validation: Tensor
    held_out: Tensor


def split_samples(experiment: Experiment, indices: Tensor, client: int) -> ClientSamples:
    """Split a client's samples: first its hold-out set, so that it is the same with and without validation."""
    data, seed = experiment.data, experiment.seed
    share = data.validation if data.validation_by == "client" else 0.0
    if not share and not data.partition.held_out:
        return ClientSamples(indices, indices[:0], indices[:0])
    rest, held_out = hold_out(indices, data.partition.held_out, generator_for(seed, "held-out", client))
    training, validation = hold_out(rest, share, generator_for(seed, "validation set", client))
    return ClientSamples(training, validation, held_out)


def central_validation(experiment: Experiment, partition: Sequence[Tensor]) -> Tensor:
    """Return the server's validation set: a share of what all clients together do not hold out, ascending."""
    share = experiment.data.validation if experiment.data.validation_by == "central" else 0.0
    if not share:
        return torch.zeros(0, dtype=torch.int64)
    unseen = unseen_clients(experiment, len(partition))
    seen = [(client, indices) for client, indices in enumerate(partition) if client not in unseen]
    rest = [split_samples(experiment, indices, client).training for client, indices in seen]
    return hold_out(torch.cat(rest).sort().values, share, generator_for(experiment.seed, "validation set"))[1]


def validation_size(experiment: Experiment, partition: Sequence[Tensor]) -> int:
    """Return how many samples the validation sets of the server and of all clients have together."""
    own = sum(len(split_samples(experiment, indices, client).validation) for client, indices in enumerate(partition))
    return own + len(central_validation(experiment, partition))
