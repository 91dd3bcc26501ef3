"""PersonalSettings: how clients make models of their own, and how those are tested. Plain values, fit for JSON."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from fedsol.algorithms.knn_per import KNNPer
from fedsol.algorithms.local_only import LocalOnly
from fedsol.config.tables import Table, input_error
from fedsol.errors import InputError
from fedsol.federation.federation import Federation

Method = Literal["finetune", "knn-per", "local-only"]

METHODS: dict[str, dict[str, Any]] = {
    "finetune": {},
    "knn-per": KNNPer().personal_settings(),
    "local-only": LocalOnly().personal_settings(),
}
"""The ways to a personal model, with the settings that differ from the defaults below."""


class PersonalSettings(Table):
    """Everything that decides a client's personal model beside the federation and the global weights."""

    method: Annotated[Method, Field(description="fine-tune, also ask nearest neighbours, or train alone")] = "finetune"
    epochs: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(min_length=1, strict=False, description="numbers of epochs after which the model is tested"),
    ] = (1, 5)
    steps: Annotated[
        Literal["own", "plain"],
        Field(description="fine-tune by the steps of the run's method (only PerFedAvg has its own), or by plain ones"),
    ] = "own"
    lr: Annotated[
        float | None, Field(gt=0, description="learning rate (default: of the last round; local-only: of the first)")
    ] = None
    lr_decay: Annotated[float, Field(gt=0, le=1, description="factor on the learning rate after each epoch")] = 1.0
    test: Annotated[
        Literal["matched", "held-out"],
        Field(description="test images drawn like the client's labels, or what the client held out itself"),
    ] = "matched"
    test_size: Annotated[int, Field(ge=1, description="matched: images of a test set, if there are enough")] = 1000
    validation: Annotated[
        float | None,
        Field(
            ge=0, lt=1, description="held-out: share that is not tested on (default: 0.5 if mixing is chosen, else 0)"
        ),
    ] = None
    k: Annotated[int, Field(ge=1, description="knn-per: neighbours that are asked")] = KNNPer.k
    capacity: Annotated[int, Field(ge=1, description="knn-per: samples that a client remembers")] = KNNPer.capacity
    scale: Annotated[
        float, Field(gt=0, description="knn-per: a neighbour at distance d counts exp(-d^2 / (features x scale))")
    ] = KNNPer.scale
    mixing: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["chosen"],
        Field(description="knn-per: weight of the neighbours' answer, or chosen per client on what it held out"),
    ] = KNNPer.mixing
    after_round: Annotated[int, Field(ge=0, description="rounds that the global model has seen")] = 0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise input_error(error, "", {"": type(self).model_fields}) from error

    @property
    def chooses(self) -> bool:
        """Whether clients choose something on what they held out."""
        return self.method == "knn-per" and self.mixing == "chosen"

    @property
    def validation_share(self) -> float:
        """Share of what a client held out that is not for its tests."""
        return self.validation if self.validation is not None else 0.5 * self.chooses

    @property
    def tests(self) -> tuple[str, float]:
        """Equal for settings that test a client on the same samples."""
        return self.test, self.test_size if self.test == "matched" else self.validation_share


def resolve_settings(
    federation: Federation, rounds: int, method: str | None = None, changes: Mapping[str, Any] | None = None
) -> PersonalSettings:
    """The settings with nothing left open, checked against the federation; the algorithm brings a method of its own."""
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
    """Refuses tests for which there is no data."""
    check_held_out(federation.experiment.data.partition.held_out, settings)
    if settings.test == "matched" and not len(federation.dataset.test):
        raise InputError("test: 'matched' is not allowed: the data has no test set; allowed: 'held-out'")


def check_held_out(held_out: float, settings: PersonalSettings) -> None:
    """Refuses settings that need samples which clients of the run did not hold out."""
    if settings.test == "held-out" and not held_out:
        raise InputError(
            "test: 'held-out' is not allowed: clients of this run held nothing out; run it with "
            "--set data.partition.held_out=0.2, or use 'matched'"
        )
    if settings.chooses and settings.test == "held-out" and not settings.validation_share:
        raise InputError("validation: 0 is not allowed with mixing = 'chosen': nothing would be left to choose it on")
    if settings.chooses and not held_out:
        raise InputError(
            "mixing: 'chosen' is not allowed: clients of this run held nothing out to choose it on; run it with "
            "--set data.partition.held_out=0.2, or give a number between 0 and 1"
        )


def parse_epochs(text: str) -> Sequence[int]:
    """`1,5`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--epochs: {text!r} is not allowed: must be whole numbers such as 1,5")
    return [int(part) for part in parts]
