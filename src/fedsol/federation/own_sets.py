"""What a client's models are tested on: never a sample that any client trains on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsol.core.randomness import generator_for
from fedsol.data.types import Split
from fedsol.federation.federation import Federation
from fedsol.federation.personal_settings import PersonalSettings
from fedsol.federation.sampling import hold_out


@dataclass(frozen=True)
class Samples:
    """Some samples of a split."""

    split: Split
    indices: Tensor

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return self.split.labels[self.indices]


@dataclass(frozen=True)
class OwnSets:
    """A client's test set, and what it may choose settings on."""

    test: Samples
    validation: Samples


def own_sets(federation: Federation, client: int, settings: PersonalSettings) -> OwnSets:
    """As `settings.test` says. What was held out is divided by `validation_share` between tests and a choice."""
    held_out = federation.held_out_samples(client)
    train, seed = federation.dataset.train, federation.experiment.seed
    if settings.test == "matched":
        matched = matched_indices(federation, client, settings.test_size)
        return OwnSets(Samples(federation.dataset.test, matched), Samples(train, held_out))
    tested, chosen_on = hold_out(held_out, settings.validation_share, generator_for(seed, "validation", client))
    return OwnSets(Samples(train, tested), Samples(train, chosen_on))


def matched_indices(federation: Federation, client: int, size: int) -> Tensor:
    """Test images whose labels are distributed like the client's training data (FedSOL's appendix).

    Of each class `int(size x its share)`, at most as many as there are, without replacement.
    """
    dataset = federation.dataset
    labels = dataset.train.labels[federation.training_samples(client)]
    generator = generator_for(federation.experiment.seed, "client test set", client)
    parts = []
    for label, count in enumerate(torch.bincount(labels, minlength=dataset.classes).tolist()):
        pool = (dataset.test.labels == label).nonzero().flatten()
        order = torch.randperm(len(pool), generator=generator)
        parts.append(pool[order[: size * count // len(labels)]])
    return torch.cat(parts).sort().values
