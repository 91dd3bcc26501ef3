"""Analyses over rounds: callbacks that write one row per round into the run directory."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.base import Algorithm
from fedsol.analysis.divergence import Divergence, divergence
from fedsol.analysis.orthogonality import own_measure, record
from fedsol.analysis.preservation import Preservation, preservation
from fedsol.analysis.saving import as_plain
from fedsol.analysis.strength import LayerStrength, LayerStrengths, common_strength, strengths
from fedsol.config.experiment import Experiment
from fedsol.config.tables import unknown_name
from fedsol.core.files import disk_errors_named, read_json_lines, write_atomically
from fedsol.core.messages import Job
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row
from fedsol.training.faults import plan
from fedsol.training.loop import Callback, RoundResult

FOLDER = "analysis"


@dataclass(frozen=True)
class RoundOrthogonality:
    """The local training of one client of a round, done again with every step measured."""

    round: int
    client: int
    steps: int
    cosine: float | None
    """Mean of cos(g_u, g_p) over the steps."""
    proximal_loss: float
    """At the last step."""


Measure = Callable[[Federation, RoundResult], Any]


class RoundAnalysis(Callback):
    """Writes what `measure` makes of every round to `analysis/<name>.jsonl` in the run directory.

    The file is cut back to the rounds that a resumed run goes on from. It cannot change the run. A round in which no
    update was accepted has no row.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._measure = MEASURES[name]
        self._path = rows_path(directory, name)
        self._federation: Federation | None = None

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        self._federation = federation
        kept = [row for row in read_json_lines(self._path) if row["round"] <= len(rows)]
        with disk_errors_named(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, "".join(json.dumps(row) + "\n" for row in kept))

    def round_finished(self, result: RoundResult) -> None:
        assert self._federation is not None
        if not result.updates:
            return
        row = as_plain(self._measure(self._federation, result))
        with disk_errors_named(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")


def rows_path(directory: Path, name: str) -> Path:
    """Where an analysis of a run keeps its rows."""
    return directory / FOLDER / f"{name}.jsonl"


def callbacks_for(names: Iterable[str], directory: Path, experiment: Experiment) -> list[Callback]:
    """The callbacks of these analyses, and of those that the run directory has begun already."""
    begun = [name for name in MEASURES if rows_path(directory, name).is_file()]
    wanted = sorted({*names, *begun})
    for name in wanted:
        if name not in MEASURES:
            raise unknown_name("--analyze", name, MEASURES)
    if "orthogonality" in wanted and keeps_client_state(make_algorithm(experiment.algorithm)):
        raise InputError(
            f"--analyze: orthogonality is not allowed for {experiment.algorithm['name']}: training a client again "
            "needs the state it had; allowed: methods whose clients keep none, or `fedsol analyze RUN`"
        )
    return [RoundAnalysis(name, directory) for name in wanted]


def keeps_client_state(algorithm: Algorithm) -> bool:
    """Whether clients carry something from one round to the next."""
    return bool(algorithm.init_client({"weight": torch.zeros(1)}, {}))


def _divergence(federation: Federation, result: RoundResult) -> Divergence:
    return divergence(result.round, result.before.weights, result.updates, federation.model.names)


def _preservation(federation: Federation, result: RoundResult) -> Preservation:
    return preservation(federation, result.round, result.before.weights, result.updates)


def _strength(federation: Federation, result: RoundResult) -> LayerStrengths:
    strength = common_strength([federation.algorithm])
    return strengths(result.round, result.before.weights, result.updates, federation.model.names, strength)


def _orthogonality(federation: Federation, result: RoundResult) -> RoundOrthogonality:
    """Trains the round's first client again: its job is a function of the round, so these are its steps."""
    algorithm, experiment = federation.algorithm, federation.experiment
    client = result.updates[0].client
    work = plan(experiment.faults, experiment.seed, result.round, [client])[client].work
    job = Job(client, result.round, result.before.weights, algorithm.broadcast(result.before), work=work)
    steps, _ = record(
        algorithm,
        own_measure(algorithm),
        lambda recorder: replace(federation, algorithm=recorder).train(job),
        federation.frozen,
    )
    return RoundOrthogonality(result.round, steps.client, len(steps.cosine), steps.mean_cosine, steps.proximal_loss[-1])


MEASURES: dict[str, Measure] = {
    "divergence": _divergence,
    "preservation": _preservation,
    "strength": _strength,
    "orthogonality": _orthogonality,
}
"""What `fedsol run --analyze` can write."""


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def divergences(directory: Path) -> tuple[Divergence, ...]:
    """The rows that a run has written."""
    return tuple(Divergence(**_tuples(row)) for row in read_json_lines(rows_path(directory, "divergence")))


def preservations(directory: Path) -> tuple[Preservation, ...]:
    """The rows that a run has written."""
    return tuple(Preservation(**_tuples(row)) for row in read_json_lines(rows_path(directory, "preservation")))


def strength_rows(directory: Path) -> tuple[LayerStrengths, ...]:
    """The rows that a run has written."""
    return tuple(
        LayerStrengths(
            **{**_tuples(row), "layers": {name: LayerStrength(**layer) for name, layer in row["layers"].items()}}
        )
        for row in read_json_lines(rows_path(directory, "strength"))
    )


def round_orthogonalities(directory: Path) -> tuple[RoundOrthogonality, ...]:
    """The rows that a run has written."""
    return tuple(RoundOrthogonality(**row) for row in read_json_lines(rows_path(directory, "orthogonality")))
