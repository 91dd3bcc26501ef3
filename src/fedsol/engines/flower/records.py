"""Jobs and updates as Flower carries them: weights and states as arrays, all else as metrics and configuration."""

import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from fedsol.core.messages import Job, State, Update, referenced_round, state_reference
from fedsol.errors import InputError
from fedsol.federation.evaluation import Tally
from fedsol.federation.personal import PersonalResult, PersonalSettings
from fedsol.federation.tasks import EvaluateClient, Personalize

WEIGHTS = "arrays"
CONFIG = "config"
METRICS = "metrics"
PERSONAL = "personal"
RECEIPT = "state-of-round"


MOST = 10**9
"""More examples, steps or rounds than any client has: a claim beyond would give it the whole average."""


class MalformedError(ValueError):
    """A message that is not what its kind promises."""


def to_arrays(tensors: State) -> ArrayRecord:
    """Named tensors as a record of arrays, in their order."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().cpu().numpy()) for name, tensor in tensors.items()})


def from_arrays(record: ArrayRecord) -> State:
    """The tensors of a record, each in memory of its own; nothing is ever unpickled."""
    return {name: _tensor(array) for name, array in record.items()}


def _tensor(array: Array) -> Tensor:
    """An array in numpy's own format, whose header is believed only as far as the bytes that follow it."""
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


def job_records(job: Job, weights: ArrayRecord, config: Mapping[str, Any]) -> RecordDict:
    """A job with its weights and the configuration of every job of a round. Empty records are left out."""
    values: dict[str, Any] = {**config, "client": job.client, "round": job.round, "work": job.work}
    kept = referenced_round(job.state)
    if kept is not None:
        values[RECEIPT] = kept
    parts = {"broadcast": job.broadcast, "state": {} if kept is not None else job.state}
    return RecordDict({WEIGHTS: weights, **_filled(parts), CONFIG: ConfigRecord(values)})


def job_from(content: RecordDict) -> Job:
    """The job that a message carries; a state that stayed with its client comes as a receipt."""
    config = content.config_records[CONFIG]
    kept = config.get(RECEIPT)
    state = _part(content, "state") if kept is None else state_reference(int(kept))  # type: ignore[arg-type]
    return Job(
        client=int(config["client"]),  # type: ignore[arg-type]
        round=int(config["round"]),  # type: ignore[arg-type]
        work=float(config["work"]),  # type: ignore[arg-type]
        weights=_part(content, WEIGHTS),
        broadcast=_part(content, "broadcast"),
        state=state,
    )


def update_records(update: Update) -> RecordDict:
    """An update; of a state that stays with its client, a receipt."""
    values: dict[str, Any] = {"examples": update.examples, "steps": update.steps, **update.metrics}
    kept = referenced_round(update.state)
    if kept is not None:
        values[RECEIPT] = kept
    parts = {WEIGHTS: update.weights, "payload": update.payload, "state": {} if kept is not None else update.state}
    return RecordDict({**_filled(parts), METRICS: MetricRecord(values)})


def update_from(content: RecordDict, client: int) -> Update:
    """The update of a client; raises `MalformedError` for anything that no client of fedsol would send."""
    values = dict(content.metric_records.get(METRICS, {}))
    _number(values, "train_loss")
    state = _part(content, "state")
    if RECEIPT in values:
        state = state_reference(_count(values, RECEIPT))
    metrics = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    return Update(
        client=client,
        weights=_part(content, WEIGHTS),
        examples=_count(values, "examples"),
        steps=_count(values, "steps"),
        state=state,
        payload=_part(content, "payload"),
        metrics={name: metrics[name] for name in metrics.keys() - {"examples", "steps", RECEIPT}},
    )


def evaluation_records(weights: ArrayRecord, config: Mapping[str, Any], client: int) -> RecordDict:
    """Weights that a client is to test on what it held out."""
    return RecordDict({WEIGHTS: weights, CONFIG: ConfigRecord({**config, "client": client})})


def tally_records(tally: Tally) -> RecordDict:
    """What a client tells of its test: totals only, since counts by class would tell what data it has."""
    totals: dict[str, Any] = {"loss": sum(tally.losses), "correct": sum(tally.correct), "examples": sum(tally.examples)}
    return RecordDict({METRICS: MetricRecord(totals)})


def tally_from(content: RecordDict) -> Tally:
    """The totals of a client's test."""
    values = dict(content.metric_records.get(METRICS, {}))
    loss, correct, examples = _number(values, "loss"), _count(values, "correct"), _count(values, "examples")
    if correct > examples:
        raise MalformedError(f"has {correct} correct answers of {examples}")
    return Tally((loss,), (correct,), (examples,))


def evaluation_from(content: RecordDict) -> EvaluateClient:
    """The test that a message asks for."""
    return EvaluateClient(_part(content, WEIGHTS), int(content.config_records[CONFIG]["client"]))  # type: ignore[arg-type]


def personal_records(task: Personalize, weights: ArrayRecord, config: Mapping[str, Any]) -> RecordDict:
    """Weights that a client is to make its own, and how."""
    values = {**config, "client": task.client, PERSONAL: task.settings.model_dump_json()}
    return RecordDict({WEIGHTS: weights, CONFIG: ConfigRecord(values)})


def personal_task(content: RecordDict) -> Personalize:
    """The personal model that a message asks for."""
    client = int(content.config_records[CONFIG]["client"])  # type: ignore[arg-type]
    return Personalize(_part(content, WEIGHTS), client, PersonalSettings(**json.loads(setting(content, PERSONAL))))


def personal_answer(result: PersonalResult) -> RecordDict:
    """What a client tells of its own models."""
    return RecordDict({CONFIG: ConfigRecord({PERSONAL: json.dumps(result.as_values())})})


def personal_from(content: RecordDict, client: int, settings: PersonalSettings) -> PersonalResult:
    """The result of a client that was asked with these settings; raises `MalformedError` for anything else."""
    try:
        result = PersonalResult.from_values(json.loads(setting(content, PERSONAL)))
    except (InputError, KeyError, ValueError) as error:
        raise MalformedError(f"has no result that can be read ({error})") from error
    if result.client != client:
        raise MalformedError(f"speaks for client {result.client}")
    if (epochs := tuple(outcome.epochs for outcome in result.after)) != settings.epochs:
        raise MalformedError(f"has results after {epochs} epochs; asked were {settings.epochs}")
    return result


def setting(content: RecordDict, name: str) -> str:
    """A text of the message's configuration."""
    value = content.config_records[CONFIG].get(name)
    if not isinstance(value, str):
        raise InputError(f"message: has no {name!r} in its configuration")
    return value


def _filled(parts: Mapping[str, State]) -> dict[str, ArrayRecord]:
    return {name: to_arrays(tensors) for name, tensors in parts.items() if tensors}


def _part(content: RecordDict, name: str) -> State:
    return from_arrays(content.array_records[name]) if name in content.array_records else {}


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MalformedError(f"has no number {name!r} among its metrics")
    return float(value)


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise MalformedError(f"has no number from 0 to {MOST} as {name!r} among its metrics")
    return value
