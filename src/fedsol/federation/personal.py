"""personalize_client(): one client's own model from the global one, and how well it does; plain numbers come out."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.config.fields import Number, Share
from fedsol.config.tables import input_error
from fedsol.core.messages import Job
from fedsol.core.randomness import generator_for
from fedsol.core.weights import Weights, clone, on_device
from fedsol.data.batches import evaluation_batches
from fedsol.errors import InputError
from fedsol.federation.evaluation import evaluate
from fedsol.federation.federation import Federation
from fedsol.federation.local_training import ClientData, LocalTraining, train_client
from fedsol.federation.neighbors import Answers, Memory, choose_mixing
from fedsol.federation.own_sets import OwnSets, Samples, own_sets
from fedsol.federation.personal_settings import PersonalSettings

KNOWN_KEYS_ONLY = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Outcome:
    """A personal model after some epochs."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    epochs: Number
    correct: Number
    accuracy: Share | None
    """None if the client has nothing to test on."""
    mixing: Share | None = None
    """Weight of the neighbours' answer, where they were asked."""


@dataclass(frozen=True)
class PersonalResult:
    """What came of one client. Nothing of its data but counts."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_KEYS_ONLY

    client: Number
    size: Number
    """Samples it trains on."""
    classes: Number
    """Classes among them."""
    test_size: Number
    before: Share | None
    """Accuracy of the model it began with, on its own test set."""
    after: tuple[Outcome, ...]

    def as_values(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "PersonalResult":
        """The result that was written down or sent; raises `ValueError` if it is none."""
        try:
            return _checker().validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            raise ValueError(str(input_error(error, "", {})).replace("\n", "; ")) from error


@cache
def _checker() -> "TypeAdapter[PersonalResult]":
    """What checks results that come from elsewhere; making it takes longer than using it."""
    return TypeAdapter(PersonalResult)


def personalize_client(
    federation: Federation, weights: Weights, client: int, settings: PersonalSettings
) -> PersonalResult:
    """Makes a client's own models by resolved settings and tests them. Pure; `local-only` leaves the weights unused."""
    start = federation.initial_weights() if settings.method == "local-only" else weights
    sets = own_sets(federation, client, settings)
    labels = federation.dataset.train.labels[federation.training_samples(client)]
    return PersonalResult(
        client=client,
        size=len(labels),
        classes=int((torch.bincount(labels) > 0).sum()),
        test_size=len(sets.test.indices),
        before=_accuracy(_correct(federation, start, sets.test), sets),
        after=tuple(
            _outcome(federation, tuned, client, epochs, sets, settings)
            for epochs, tuned in sorted(fine_tuned(federation, start, client, settings).items())
        ),
    )


def fine_tuned(federation: Federation, weights: Weights, client: int, settings: PersonalSettings) -> dict[int, Weights]:
    """The client's weights after each asked number of epochs of the algorithm's fine-tuning; alone, of plain steps."""
    assert settings.lr is not None
    experiment, asked = federation.experiment, set(settings.epochs)
    found = {0: weights} if 0 in asked else {}
    if not max(asked):
        return found

    def keep(epoch: int, current: Weights) -> None:
        if epoch not in asked:
            return
        if not all(bool(torch.isfinite(tensor).all()) for tensor in current.values()):
            raise InputError(
                f"lr: {settings.lr:g} is too large: the weights of client {client} are not finite after {epoch} "
                f"epoch{'s' * (epoch != 1)}; give a smaller one (--set lr=…)"
            )
        found[epoch] = on_device(clone(current), torch.device("cpu"))

    training = LocalTraining(
        experiment.client.model_copy(update={"epochs": max(asked), "trains": "all"}),
        experiment.seed,
        settings.lr,
        federation.device,
        settings.lr_decay,
    )
    data = ClientData(federation.dataset, federation.training_samples(client))
    job = Job(client, settings.after_round + 1, weights)
    plain = settings.method == "local-only" or settings.steps == "plain"
    rule = Algorithm() if plain else federation.algorithm.fine_tuning()
    train_client(job, rule, federation.model, data, training, keep)
    return found


def _outcome(
    federation: Federation, weights: Weights, client: int, epochs: int, sets: OwnSets, settings: PersonalSettings
) -> Outcome:
    if settings.method != "knn-per":
        correct = _correct(federation, weights, sets.test)
        return Outcome(epochs, correct, _accuracy(correct, sets))
    memory = _remember(federation, weights, client, settings.capacity)
    if settings.mixing == "chosen":
        mixing = choose_mixing(_ask(federation, weights, memory, sets.validation, settings), sets.validation.labels)
    else:
        mixing = settings.mixing
    correct = _ask(federation, weights, memory, sets.test, settings).correct(sets.test.labels, mixing)
    return Outcome(epochs, correct, _accuracy(correct, sets), mixing)


def _correct(federation: Federation, weights: Weights, samples: Samples) -> int:
    batches = evaluation_batches(
        samples.split,
        federation.dataset,
        federation.experiment.server.evaluate_batch,
        federation.device,
        samples.indices,
    )
    tally = evaluate(federation.model, on_device(weights, federation.device), batches, federation.dataset.classes)
    return sum(tally.correct)


def _accuracy(correct: int, sets: OwnSets) -> float | None:
    return correct / len(sets.test.indices) if len(sets.test.indices) else None


def _remember(federation: Federation, weights: Weights, client: int, capacity: int) -> Memory:
    """The features of the client's training samples; of more than the capacity, a random choice."""
    indices = federation.training_samples(client)
    order = torch.randperm(len(indices), generator=generator_for(federation.experiment.seed, "memory", client))
    samples = Samples(federation.dataset.train, indices[order[:capacity].sort().values])
    return Memory(_outputs(federation, weights, samples)[0], samples.labels, federation.dataset.classes)


def _ask(
    federation: Federation, weights: Weights, memory: Memory, samples: Samples, settings: PersonalSettings
) -> Answers:
    if not len(samples.indices):
        nothing = torch.zeros(0, memory.classes)
        return Answers(nothing, nothing)
    features, logits = _outputs(federation, weights, samples)
    return Answers.of(logits, memory.probabilities(features, settings.k, settings.scale))


@torch.inference_mode()
def _outputs(federation: Federation, weights: Weights, samples: Samples) -> tuple[Tensor, Tensor]:
    """Features (flattened) and logits of samples, in evaluation mode, on the CPU."""
    model, dataset = federation.model, federation.dataset
    model.train(False)
    placed = on_device(weights, federation.device)
    size = federation.experiment.server.evaluate_batch
    features, logits = [], []
    for batch in evaluation_batches(samples.split, dataset, size, federation.device, samples.indices):
        found = model.outputs(placed, batch.inputs)
        features.append(found[0].flatten(1).float().cpu())
        logits.append(found[1].float().cpu())
    return torch.cat(features), torch.cat(logits)
