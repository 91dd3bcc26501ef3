"""Tasks and answers as Flower carries them: tensors as arrays, everything else as metrics and configuration."""

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from fedsol.core.messages import EPSILONS, Job, State, Update, referenced_round, state_reference
from fedsol.errors import InputError
from fedsol.federation.evaluation import Tally
from fedsol.federation.personal import PersonalResult, PersonalSettings
from fedsol.federation.sampling import OwnPart
from fedsol.federation.tasks import EngineTask, EvaluateClient, Personalize, Train

WEIGHTS = "arrays"
CONFIG = "config"
METRICS = "metrics"
PERSONAL = "personal"
PART = "part"
STATE_ROUND = "state-of-round"
RESTARTED = "restarted"
FROZEN = "frozen-sha256"

FAILED, ABSTAINED = 100, 101
"""Codes of the errors that a node answers with: it failed, or its privacy budget is too small."""

MOST = 10**9
"""More examples, steps or rounds than any client has; a client that claimed more would get the whole average."""


class MalformedError(ValueError):
    """A message that is not what its kind promises."""


def to_arrays(tensors: State) -> ArrayRecord:
    """Return named tensors as a record of arrays, in their order."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().cpu().numpy()) for name, tensor in tensors.items()})


def from_arrays(record: ArrayRecord) -> State:
    """Return the tensors of a record, each in its own memory; nothing is ever unpickled."""
    return {name: _tensor(array) for name, array in record.items()}


def _tensor(array: Array) -> Tensor:
    """Read an array in numpy's own format; its header must agree with the bytes that follow it."""
    try:
        stream = io.BytesIO(array.data)
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, dtype = read_header(stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(array.data) - stream.tell():
            raise MalformedError("has an array whose bytes are not what its header says")
        values = np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape, order="F" if by_column else "C")
        return torch.from_numpy(np.array(values, order="C"))
    except (TypeError, ValueError, OSError, OverflowError, EOFError) as error:
        raise MalformedError(f"has an array that cannot be read ({error})") from error


def task_records(task: EngineTask[Any], weights: ArrayRecord, config: Mapping[str, Any]) -> RecordDict:
    """Return a task for a client as a message, with the configuration that all messages have."""
    assert isinstance(task, Train | EvaluateClient | Personalize)
    values: dict[str, Any] = {**config, "client": task.client}
    reference, state = _state_parts(task.own_state())
    values |= reference
    parts = _filled({"state": state})
    if isinstance(task, Train):
        values |= {"round": task.job.round, "work": task.job.work}
        parts |= _filled({"broadcast": task.job.broadcast})
    if isinstance(task, EvaluateClient):
        values[PART] = task.part
    if isinstance(task, Personalize):
        values[PERSONAL] = task.settings.model_dump_json()
    return RecordDict({WEIGHTS: weights, **parts, CONFIG: ConfigRecord(values)})


def job_from(content: RecordDict) -> Job:
    """Return the job that a message carries."""
    config: Any = content.config_records[CONFIG]
    return Job(
        client=client_of(content),
        round=int(config["round"]),
        work=float(config["work"]),
        weights=_part(content, WEIGHTS),
        broadcast=_part(content, "broadcast"),
        state=state_from(content),
    )


def state_from(content: RecordDict) -> State:
    """Return the client's own state in a message, or the reference to it."""
    config: Any = content.config_records[CONFIG]
    state_round = config.get(STATE_ROUND)
    return _part(content, "state") if state_round is None else state_reference(int(state_round))


def update_records(update: Update) -> RecordDict:
    """Return an update as a message."""
    reference, state = _state_parts(update.state)
    values: dict[str, Any] = {"examples": update.examples, "steps": update.steps, **update.metrics, **reference}
    parts = _filled({WEIGHTS: update.weights, "payload": update.payload, "state": state})
    return RecordDict({**parts, METRICS: MetricRecord(values)})


def update_from(content: RecordDict, client: int, told: Sequence[str] = ("train_loss",)) -> Update:
    """Return the update of a client, with these metrics; raise `MalformedError` if it is not a valid one."""
    if unknown := sorted(content.keys() - {WEIGHTS, "payload", "state", METRICS}):
        raise MalformedError(f"has {len(unknown)} records that are unknown, such as {unknown[0][:80]!r}")
    values = _metrics(content, {"examples", "steps", STATE_ROUND, RESTARTED, *told})
    metrics = {name: _number(values, name) for name in told}
    if not all(metrics[name] >= 0 for name in EPSILONS if name in metrics):
        raise MalformedError("has an epsilon that is not 0 or more")
    if RESTARTED in values:
        metrics[RESTARTED] = _number(values, RESTARTED)
        if metrics[RESTARTED] not in (0, 1):
            raise MalformedError(f"has a metric {RESTARTED!r} that is neither 0 nor 1")
    return Update(
        client=client,
        weights=_part(content, WEIGHTS),
        examples=_count(values, "examples"),
        steps=_count(values, "steps"),
        state=state_reference(_count(values, STATE_ROUND)) if STATE_ROUND in values else _part(content, "state"),
        payload=_part(content, "payload"),
        metrics=metrics,
    )


def tally_records(tally: Tally) -> RecordDict:
    """Return the answer to an evaluation: totals only, since counts by class would reveal what data a client has."""
    total = tally.totals()
    values: dict[str, Any] = {"loss": total.losses[0], "correct": total.correct[0], "examples": total.examples[0]}
    if tally.primary is not None:
        values["primary"] = tally.primary
    return RecordDict({METRICS: MetricRecord(values)})


def tally_from(content: RecordDict) -> Tally:
    """Return the totals of a client's test; raise `MalformedError` if they are not valid."""
    values = _metrics(content, {"loss", "correct", "examples", "primary"})
    loss, correct, examples = _number(values, "loss"), _count(values, "correct"), _count(values, "examples")
    if correct > examples:
        raise MalformedError(f"has {correct} correct answers of {examples}")
    if not math.isfinite(loss) or loss < 0:
        raise MalformedError(f"has a loss of {loss}; must be finite and not negative")
    primary = _number(values, "primary") if "primary" in values else None
    if primary is not None and math.isinf(primary):
        raise MalformedError(f"has a primary metric of {primary}; must be finite")
    return Tally((loss,), (correct,), (examples,), primary=primary)


def evaluation_from(content: RecordDict) -> EvaluateClient:
    """Return the evaluation that a message asks for."""
    part = setting(content, PART)
    if part not in get_args(OwnPart):
        raise InputError(f"message: {PART!r} must be one of {get_args(OwnPart)} (got {part[:80]!r})")
    return EvaluateClient(_part(content, WEIGHTS), client_of(content), cast(OwnPart, part), _loader(content))


def personal_task(content: RecordDict) -> Personalize:
    """Return the personalization that a message asks for."""
    settings = PersonalSettings(**json.loads(setting(content, PERSONAL)))
    return Personalize(_part(content, WEIGHTS), client_of(content), settings, load_state=_loader(content))


def _loader(content: RecordDict) -> Callable[[int], State]:
    return lambda _client: state_from(content)


def personal_answer(result: PersonalResult) -> RecordDict:
    """Return the answer to a personalization."""
    return RecordDict({CONFIG: ConfigRecord({PERSONAL: json.dumps(asdict(result))})})


def personal_from(content: RecordDict, client: int, settings: PersonalSettings) -> PersonalResult:
    """Return the result of a client that was asked with these settings; raise `MalformedError` for anything else."""
    try:
        result = PersonalResult.from_values(json.loads(setting(content, PERSONAL)))
    except (InputError, KeyError, ValueError) as error:
        raise MalformedError(f"has no readable result ({error})") from error
    if result.client != client:
        raise MalformedError(f"speaks for client {result.client}")
    if (epochs := tuple(outcome.epochs for outcome in result.after)) != settings.epochs:
        raise MalformedError(f"has results after {epochs} epochs; must be {settings.epochs}")
    return result


def setting(content: RecordDict, name: str) -> str:
    """Return a text of the message's configuration."""
    value = content.config_records[CONFIG].get(name)
    if not isinstance(value, str):
        raise InputError(f"message: {name!r} is missing in its configuration")
    return value


def client_of(content: RecordDict) -> int:
    """Return the client that a message is for."""
    client: Any = content.config_records[CONFIG]["client"]
    return int(client)


def _state_parts(state: State) -> tuple[dict[str, int], State]:
    """Split a state into what travels as a value (a reference to a state that stays on its node) and as tensors."""
    state_round = referenced_round(state)
    return ({}, state) if state_round is None else ({STATE_ROUND: state_round}, {})


def _filled(parts: Mapping[str, State]) -> dict[str, ArrayRecord]:
    return {name: to_arrays(tensors) for name, tensors in parts.items() if tensors}


def _part(content: RecordDict, name: str) -> State:
    return from_arrays(content.array_records[name]) if name in content.array_records else {}


def _metrics(content: RecordDict, known: set[str]) -> dict[str, Any]:
    values = dict(content.metric_records.get(METRICS, {}))
    if unknown := sorted(values.keys() - known):
        raise MalformedError(f"has {len(unknown)} metrics that are unknown, such as {unknown[0][:80]!r}")
    return values


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MalformedError(f"has no metric {name!r} that is a number")
    return float(value)


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise MalformedError(f"has no metric {name!r} from 0 to {MOST}")
    return value
