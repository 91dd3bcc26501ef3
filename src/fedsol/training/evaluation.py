"""Test the global model after a round, on everything that there is to test it on."""

import functools
import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsol.core.messages import Missing
from fedsol.core.weights import Weights
from fedsol.engines.base import Engine
from fedsol.federation.evaluation import Tally, pooled_loss, summarize_hold_out
from fedsol.federation.federation import Federation
from fedsol.federation.sampling import OwnPart, own_parts, sample_testers
from fedsol.federation.tasks import EvaluateClient, EvaluateTest, test_set_tasks, validation_tasks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """The results of a global model; empty if the round was not evaluated."""

    test: Tally | None = None
    """On the global test set, if there is one."""
    held_out: Mapping[int, Tally] = field(default_factory=dict)
    """On the clients' hold-out sets, by client."""
    validation: Mapping[int, Tally] = field(default_factory=dict)
    """On the clients' validation sets, by client."""
    central_validation: Tally | None = None
    """On the server's validation set, if it has one."""

    @property
    def tests_by_clients(self) -> int:
        """How many sets were tested by clients."""
        return len(self.held_out) + len(self.validation)


def validation_columns(evaluation: Evaluation, federation: Federation, max_share: float) -> dict[str, Any]:
    """Return the columns of a row for the validation set: all metrics of the server's, the primary one of clients'."""
    data, objective = federation.experiment.data, federation.objective
    if not data.validation:
        return {}
    if data.validation_by == "client":
        tallies = evaluation.validation.values()
        summary = summarize_hold_out(tallies, max_share)
        loss, values = pooled_loss(tallies, max_share), {objective.primary.key: summary.mean}
        return {**_columns(loss, values), "validation_clients": summary.clients}
    tally = evaluation.central_validation
    if tally is None:
        return _columns(None, dict.fromkeys(measure.key for measure in objective.measures))
    return _columns(tally.loss, federation.metrics(tally))


def _columns(loss: float | None, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"validation_{key}": value for key, value in {"loss": loss, **values}.items()}


def evaluate_everywhere(engine: Engine, federation: Federation, weights: Weights, round_number: int) -> Evaluation:
    """Evaluate on the test and validation sets, if there are any, and on what the round's testers hold out."""
    testers = sample_testers(federation.experiment, federation.clients, round_number)
    own = {part: _evaluate_clients(engine, weights, testers, part) for part in own_parts(federation.experiment)}
    return Evaluation(
        evaluate_test(engine, federation, weights),
        own.get("held_out", {}),
        own.get("validation", {}),
        _evaluate_parts(engine, validation_tasks(federation, weights, engine.workers)),
    )


def evaluate_test(engine: Engine, federation: Federation, weights: Weights) -> Tally | None:
    """Evaluate global weights on the test set; None without one."""
    return _evaluate_parts(engine, test_set_tasks(federation, weights, engine.workers))


def _evaluate_parts(engine: Engine, tasks: Sequence[EvaluateTest]) -> Tally | None:
    """Evaluate a set in parts that suit the engine; the tally is the same for any number. None without a set."""
    answers = engine.run(tasks) if tasks else ()
    found = [
        (task.start, tally) for task, tally in answers if isinstance(task, EvaluateTest) and isinstance(tally, Tally)
    ]
    parts = [tally for _, tally in sorted(found, key=lambda part: part[0])]
    return functools.reduce(operator.add, parts) if parts else None


def _evaluate_clients(engine: Engine, weights: Weights, clients: Sequence[int], part: OwnPart) -> dict[int, Tally]:
    """Return the results of the clients that answer, by client."""
    found = {}
    for task, answer in engine.run([EvaluateClient(weights, client, part) for client in clients]):
        if isinstance(answer, Missing):
            log.warning("no test result from client %d: %s", answer.client, answer.reason)
        elif isinstance(task, EvaluateClient):
            found[task.client] = answer
    return dict(sorted(found.items()))
