"""personalize_client(): make one client's own model from the global one and test it; the result is plain numbers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import TypeAdapter, ValidationError, with_config
from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.fedprox import FedProx
from fedsol.algorithms.personal import Ditto, KNNPer, LocalOnly
from fedsol.config.fields import Count, Number, Share
from fedsol.config.tables import Settings, input_error, setting
from fedsol.core.files import disk_errors_named
from fedsol.core.messages import Job
from fedsol.core.randomness import generator_for
from fedsol.core.weights import Weights, clone, on_device
from fedsol.data.batches import evaluation_batches
from fedsol.data.description import describe_data
from fedsol.data.types import KNOWN_KEYS_ONLY, Split
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.federation.local_training import ClientData, LocalTraining, train_client
from fedsol.federation.neighbors import Answers, Memory, choose_mixing
from fedsol.federation.sampling import hold_out
from fedsol.federation.trained import TrainedModel

Method = Literal["finetune", "ditto", "knn-per", "local-only"]

METHODS: dict[str, dict[str, Any]] = {
    "finetune": {},
    "ditto": Ditto().personal_settings(),
    "knn-per": KNNPer().personal_settings(),
    "local-only": LocalOnly().personal_settings(),
}
"""The methods that make a personal model, each with the settings that differ from the defaults below."""


class PersonalSettings(Settings):
    """Everything that determines a client's personal model besides the federation and the global weights."""

    method: Method = setting(
        "finetune", "fine-tune, stay near the global model, also use nearest neighbors, or train alone"
    )
    epochs: tuple[Number, ...] = setting(
        (1, 5), "numbers of epochs after which the model is tested", min_length=1, strict=False
    )
    steps: Literal["own", "plain"] = setting(
        "own", "fine-tune by the steps of the run's method (only PerFedAvg has its own), or by plain ones"
    )
    lr: float | None = setting(None, "learning rate (default: of the last round; local-only: of the first)", gt=0)
    lr_decay: float = setting(1.0, "factor on the learning rate after each epoch", gt=0, le=1)
    test: Literal["matched", "held-out"] = setting(
        "matched", "test images drawn to match the client's labels, or the client's hold-out set"
    )
    test_size: Count = setting(1000, "matched: number of test images, if there are enough")
    validation: float | None = setting(
        None, "held-out: share not used for tests (default: 0.5 if mixing is chosen, otherwise 0)", ge=0, lt=1
    )
    lam: float = setting(Ditto.lam, "ditto: strength of the pull toward the global model", ge=0)
    k: Count = setting(KNNPer.k, "knn-per: number of neighbors")
    capacity: Count = setting(KNNPer.capacity, "knn-per: number of samples that a client remembers")
    scale: float = setting(
        KNNPer.scale, "knn-per: a neighbor at distance d counts exp(-d^2 / (features x scale))", gt=0
    )
    mixing: Share | Literal["chosen"] = setting(
        KNNPer.mixing, "knn-per: weight of the neighbors' answer, or chosen per client on its hold-out set"
    )
    save: bool = setting(False, "save every client's model after the most epochs, on the disk of its own machine")
    after_round: Number = setting(0, "rounds that the global model has seen")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise input_error(error, "", {"": type(self).model_fields}) from error

    @property
    def chooses(self) -> bool:
        """Whether clients choose a setting on their hold-out sets."""
        return self.method == "knn-per" and self.mixing == "chosen"

    @property
    def validation_share(self) -> float:
        """The share of a client's hold-out set that is not used for tests."""
        return self.validation if self.validation is not None else 0.5 * self.chooses

    @property
    def tests(self) -> tuple[str, float]:
        """Equal for settings that test a client on the same samples."""
        return self.test, self.test_size if self.test == "matched" else self.validation_share


def resolve_settings(
    federation: Federation, rounds: int, method: str | None = None, changes: Mapping[str, Any] | None = None
) -> PersonalSettings:
    """Return complete settings, checked against the federation; the algorithm may have its own method."""
    own = federation.algorithm.personal_settings()
    chosen = method or own.get("method", "finetune")
    base = own if chosen == own.get("method") else METHODS.get(chosen, {})
    settings = PersonalSettings(**{**base, "method": chosen, **(changes or {})})
    alone = settings.method == "local-only"
    after_round = 0 if alone else rounds
    lr = settings.lr or federation.experiment.learning_rate(max(after_round, 1))
    check_settings(federation, settings)
    return settings.model_copy(
        update={"epochs": tuple(sorted(set(settings.epochs))), "lr": lr, "after_round": after_round}
    )


def check_settings(federation: Federation, settings: PersonalSettings) -> None:
    """Refuse other tasks, tests for which there is no data, and models that are more than weights."""
    if federation.objective.kind != "classification":
        kind = federation.objective.kind
        raise InputError(
            f"task.kind: personal models are for classification, whose accuracy is compared (got {kind!r})"
        )
    if settings.save and settings.method == "knn-per":
        raise InputError("save: is not allowed with 'knn-per', whose model is also what it remembers of its samples")
    check_held_out(federation.experiment.data.partition.held_out, settings)
    if settings.test == "matched" and not len(federation.dataset.test):
        raise InputError("test: must be 'held-out' for data without a test set (got 'matched')")
    if settings.test == "matched" and federation.experiment.data.shift != "none":
        raise InputError(
            "test: must be 'held-out' with data.shift, because the test set is not shifted (got "
            "'matched'); the run must have hold-out sets, such as by --set data.partition.held_out=0.2"
        )


def check_held_out(held_out: float, settings: PersonalSettings) -> None:
    """Refuse settings that require hold-out sets if the run's clients have none."""
    if settings.test == "held-out" and not held_out:
        raise InputError(
            "test: 'held-out' is not allowed: clients of this run have no hold-out set; run it with "
            "--set data.partition.held_out=0.2, or use 'matched'"
        )
    if settings.chooses and settings.test == "held-out" and not settings.validation_share:
        raise InputError("validation: 0 is not allowed with mixing = 'chosen': nothing would be left to choose it on")
    if settings.chooses and not held_out:
        raise InputError(
            "mixing: 'chosen' is not allowed: clients of this run have no hold-out set to choose it on; run it with "
            "--set data.partition.held_out=0.2, or set a number between 0 and 1"
        )


@dataclass(frozen=True)
class Subset:
    """Some samples of a split."""

    split: Split
    indices: Tensor

    @property
    def labels(self) -> Tensor:
        """Their labels."""
        return self.split.labels[self.indices]


@dataclass(frozen=True)
class OwnSets:
    """A client's test set, and the set on which it chooses settings."""

    test: Subset
    validation: Subset


def own_sets(federation: Federation, client: int, settings: PersonalSettings) -> OwnSets:
    """Return the sets that `settings.test` names; a hold-out set is split by `validation_share`."""
    held_out = federation.held_out_samples(client)
    train, seed = federation.dataset.train, federation.experiment.seed
    if settings.test == "matched":
        matched = matched_indices(federation, client, settings.test_size)
        return OwnSets(Subset(federation.dataset.test, matched), Subset(train, held_out))
    tested, chosen_on = hold_out(held_out, settings.validation_share, generator_for(seed, "validation", client))
    return OwnSets(Subset(train, tested), Subset(train, chosen_on))


def matched_indices(federation: Federation, client: int, size: int) -> Tensor:
    """Return test images whose labels are distributed like the client's training data (the rule of FedSOL's code).

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


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class EpochResult:
    """A personal model after some epochs."""

    epochs: Number
    correct: Number
    accuracy: Share | None
    """None if the client has nothing to test on."""
    mixing: Share | None = None
    """Weight of the neighbors' answer, if they were asked."""


@with_config(KNOWN_KEYS_ONLY)
@dataclass(frozen=True)
class PersonalResult:
    """The result of one client: counts and accuracies, and nothing else about its data."""

    client: Number
    size: Number
    """Samples it trains on."""
    classes: Number
    """Classes among them."""
    test_size: Number
    before: Share | None
    """Accuracy of the model it began with, on its own test set."""
    after: tuple[EpochResult, ...]

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "PersonalResult":
        """Return the result that was saved or sent; raise `ValueError` if it is not valid."""
        try:
            return _RESULTS.validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            raise ValueError(str(input_error(error, "", {})).replace("\n", "; ")) from error


_RESULTS = TypeAdapter(PersonalResult)


def personalize_client(
    federation: Federation, weights: Weights, client: int, settings: PersonalSettings, folder: Path | None = None
) -> PersonalResult:
    """Make a client's own models with resolved settings and test them; `local-only` ignores the weights.

    With `settings.save`, the model after the most epochs is saved in the folder.
    """
    start = federation.initial_weights() if settings.method == "local-only" else weights
    sets = own_sets(federation, client, settings)
    labels = federation.dataset.train.labels[federation.training_samples(client)]
    tuned = dict(sorted(fine_tuned(federation, start, client, settings).items()))
    result = PersonalResult(
        client=client,
        size=len(labels),
        classes=int((torch.bincount(labels) > 0).sum()),
        test_size=len(sets.test.indices),
        before=_accuracy(_correct(federation, start, sets.test), sets),
        after=tuple(_outcome(federation, own, client, epochs, sets, settings) for epochs, own in tuned.items()),
    )
    if settings.save and folder is not None:
        _save(federation, tuned[max(tuned)], result, settings, folder)
    return result


def model_path(folder: Path, client: int) -> Path:
    """Return the file of a client's model."""
    return folder / f"client-{client:06d}.safetensors"


def _save(
    federation: Federation, weights: Weights, result: PersonalResult, settings: PersonalSettings, folder: Path
) -> None:
    experiment, last = federation.experiment, result.after[-1]
    facts = {
        "rounds": settings.after_round,
        "client": result.client,
        "personal": f"{settings.method}, {last.epochs} epoch{'s' * (last.epochs != 1)}",
        "evaluated": f"on {result.test_size} samples of the client's own test set ({settings.test})",
        "metrics": {"accuracy before": result.before, "accuracy": last.accuracy},
    }
    data = describe_data(federation.dataset, experiment.data)
    with disk_errors_named(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        TrainedModel(experiment, weights, data, facts, federation.model.frozen_sha256).save(
            model_path(folder, result.client)
        )


def fine_tuned(federation: Federation, weights: Weights, client: int, settings: PersonalSettings) -> dict[int, Weights]:
    """Return the client's weights after each requested number of epochs, of fine-tuning or (alone) of plain steps."""
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
                f"epoch{'s' * (epoch != 1)}; set a smaller one (--set lr=…)"
            )
        found[epoch] = on_device(clone(current), torch.device("cpu"))

    training = LocalTraining(
        experiment.client.model_copy(update={"epochs": max(asked), "steps": None, "trains": "all"}),
        experiment.seed,
        settings.lr,
        federation.device,
        settings.lr_decay,
    )
    data = ClientData(federation.dataset, federation.training_samples(client), federation.objective)
    job = Job(client, settings.after_round + 1, weights)
    plain = settings.method == "local-only" or settings.steps == "plain"
    rule = Algorithm() if plain else federation.algorithm.fine_tuning()
    if settings.method == "ditto":
        rule = FedProx(mu=settings.lam)
    train_client(job, rule, federation.model, data, training, keep)
    return found


def _outcome(
    federation: Federation, weights: Weights, client: int, epochs: int, sets: OwnSets, settings: PersonalSettings
) -> EpochResult:
    if settings.method != "knn-per":
        correct = _correct(federation, weights, sets.test)
        return EpochResult(epochs, correct, _accuracy(correct, sets))
    memory = _remember(federation, weights, client, settings.capacity)
    if settings.mixing == "chosen":
        mixing = choose_mixing(_ask(federation, weights, memory, sets.validation, settings), sets.validation.labels)
    else:
        mixing = settings.mixing
    correct = _ask(federation, weights, memory, sets.test, settings).correct(sets.test.labels, mixing)
    return EpochResult(epochs, correct, _accuracy(correct, sets), mixing)


def _correct(federation: Federation, weights: Weights, samples: Subset) -> int:
    return sum(federation.evaluate_on(weights, samples.split, samples.indices).correct)


def _accuracy(correct: int, sets: OwnSets) -> float | None:
    return correct / len(sets.test.indices) if len(sets.test.indices) else None


def _remember(federation: Federation, weights: Weights, client: int, capacity: int) -> Memory:
    """Remember the features of the client's training samples; a random choice if they exceed the capacity."""
    indices = federation.training_samples(client)
    order = torch.randperm(len(indices), generator=generator_for(federation.experiment.seed, "memory", client))
    samples = Subset(federation.dataset.train, indices[order[:capacity].sort().values])
    return Memory(_outputs(federation, weights, samples)[0], samples.labels, federation.dataset.classes)


def _ask(
    federation: Federation, weights: Weights, memory: Memory, samples: Subset, settings: PersonalSettings
) -> Answers:
    if not len(samples.indices):
        nothing = torch.zeros(0, memory.classes)
        return Answers(nothing, nothing)
    features, logits = _outputs(federation, weights, samples)
    return Answers.of(logits, memory.probabilities(features, settings.k, settings.scale))


@torch.inference_mode()
def _outputs(federation: Federation, weights: Weights, samples: Subset) -> tuple[Tensor, Tensor]:
    """Return features (flattened) and logits of samples, in evaluation mode, on the CPU."""
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
