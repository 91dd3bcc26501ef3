"""Test the global model after a round, on everything that there is to test it on."""

import functools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsol.core.messages import Missing, State
from fedsol.core.weights import Weights
from fedsol.engines.base import Engine
from fedsol.errors import InputError
from fedsol.federation.evaluation import Tally, pooled_loss, summarize_hold_out
from fedsol.federation.federation import Federation
from fedsol.federation.sampling import own_parts, sample_testers
from fedsol.federation.tasks import EvaluateClient, EvaluateTest, test_set_tasks, validation_tasks
from fedsol.runs.selection import Selection

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


def check_tests(federation: Federation, selection: Selection) -> None:
    """Refuse a target that nothing could reach; warn if nobody tests a model."""
    kept, has_validation = federation.exchange.kept, selection.has_validation
    if kept and not has_validation and not federation.experiment.data.partition.held_out:
        names = f"{', '.join(kept[:3])}{' …' * (len(kept) > 3)}"
        log.warning(
            "each client keeps its own %s, so no model is tested: there is no global one; set data.partition.held_out "
            "(such as 0.2) to test every client's own model",
            names,
        )
    if selection.stop_at is None or has_validation or (len(federation.dataset.test) and not kept):
        return
    raise InputError(
        f"server.stop_at: {selection.stop_at:g} is not allowed without a validation set or a test set; set "
        "data.validation to a share of the training samples, such as 0.1"
    )


def evaluate_everywhere(
    engine: Engine,
    federation: Federation,
    weights: Weights,
    round_number: int,
    load_state: Callable[[int], State] | None = None,
) -> Evaluation:
    """Evaluate on the test and validation sets, if there are any, and on what the round's testers hold out.

    If clients keep weights, only they have complete models.
    """
    sent, load = federation.exchange.sent(weights), load_state if federation.exchange.kept else None
    own = {}
    for part in own_parts(federation.experiment):
        testers = sample_testers(federation.experiment, federation.clients, round_number)
        own[part] = _evaluate_clients(engine, [EvaluateClient(sent, client, part, load) for client in testers])
    return Evaluation(
        None if federation.exchange.kept else evaluate_test(engine, federation, weights),
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


def _evaluate_clients(engine: Engine, tasks: Sequence[EvaluateClient]) -> dict[int, Tally]:
    """Return the results of the clients that answer, by client."""
    found = {}
    for task, answer in engine.run(tasks):
        if isinstance(answer, Missing):
            log.warning("no test result from client %d: %s", answer.client, answer.reason)
        elif isinstance(task, EvaluateClient):
            found[task.client] = answer
    return dict(sorted(found.items()))
