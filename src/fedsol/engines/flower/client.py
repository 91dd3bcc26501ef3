"""The ClientApp: what a node does with the messages of the server."""

import logging
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.clientapp.typing import Mod

from fedsol.engines.flower import records
from fedsol.engines.flower.states import NodeStates
from fedsol.errors import FedsolError, InputError
from fedsol.experiment import Experiment, parse_toml
from fedsol.federation import Federation, build_federation, node_federation
from fedsol.messages import Job, Update
from fedsol.personalization.client import personalize_client
from fedsol.personalization.settings import check_settings
from fedsol.randomness import one_torch_thread
from fedsol.receipts import receipt_for, round_of

log = logging.getLogger(__name__)

FAILED = 100
"""Code of the error that a node answers with."""


def make_client_app(experiment: Experiment) -> ClientApp:
    """The app of every node; with clipping on the client, Flower's own."""
    mods: list[Mod] = [fixedclipping_mod] if experiment.privacy.clipping == "client" else []
    app = ClientApp()
    app.query("identity")(tell_client)
    app.train(mods=mods)(train)
    app.evaluate()(evaluate)
    app.query("personalize")(personalize)
    return app


def tell_client(message: Message, context: Context) -> Message:
    """Which client this node is: its `partition-id`."""
    return Message(RecordDict({records.METRICS: MetricRecord({"client": _client_of(context)})}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """Trains on the node's data; the answer is the update."""
    try:
        job = records.job_from(message.content)
        federation = _federation_for(message.content, context, job.client)
        update = _train(federation, job, message.content, context)
        return Message(records.update_records(update), reply_to=message)
    except (FedsolError, records.MalformedError) as error:
        return _failure(message, error)


def evaluate(message: Message, context: Context) -> Message:
    """Tests weights on what the node held out; the answer is a few totals."""
    try:
        client = int(message.content.config_records[records.CONFIG]["client"])  # type: ignore[arg-type]
        federation = _federation_for(message.content, context, client)
        weights = records.from_arrays(message.content.array_records[records.WEIGHTS])
        with one_torch_thread():
            tally = federation.evaluate_client(weights, client)
        return Message(records.tally_records(tally), reply_to=message)
    except (FedsolError, records.MalformedError) as error:
        return _failure(message, error)


def personalize(message: Message, context: Context) -> Message:
    """Makes and tests the node's own models, which stay on the node; the answer is a few numbers."""
    try:
        client, settings = records.personal_question(message.content)
        federation = _federation_for(message.content, context, client)
        check_settings(federation, settings)
        weights = records.from_arrays(message.content.array_records[records.WEIGHTS])
        with one_torch_thread():
            result = personalize_client(federation, weights, client, settings)
        return Message(records.personal_answer(result), reply_to=message)
    except (FedsolError, records.MalformedError) as error:
        return _failure(message, error)


def _train(federation: Federation, job: Job, content: RecordDict, context: Context) -> Update:
    kept = round_of(job.state)
    with one_torch_thread():
        if kept is None:
            return federation.train(job)
        folder = _state_folder(context) / records.setting(content, "run") / f"client-{job.client:06d}"
        return _train_with_own_state(federation, job, NodeStates(folder), kept)


def _train_with_own_state(federation: Federation, job: Job, states: NodeStates, kept: int) -> Update:
    """Trains from the state that the node has on its disk; the update carries a receipt of the new one."""
    state = states.load(kept) if kept else None
    restarted = bool(kept) and state is None
    if restarted:
        log.warning("the state of client %d after round %d is lost; it starts over", job.client, kept)
    update = federation.train(replace(job, state=federation.initial_state() if state is None else state))
    states.save(job.round, update.state)
    states.forget_before(kept)
    metrics = {**update.metrics, **({"restarted": 1.0} if restarted else {})}
    return replace(update, state=receipt_for(update.state, job.round), metrics=metrics)


def _federation_for(content: RecordDict, context: Context, client: int) -> Federation:
    if client != _client_of(context):
        raise InputError(f"client: {client} is asked for, but this node's partition-id is {_client_of(context)}")
    config = context.node_config
    return _federation(
        records.setting(content, "experiment"), client, _text(config, "data"), _text(config, "data-root")
    )


@lru_cache(maxsize=1)
def _federation(text: str, client: int, source: str | None, root: str | None) -> Federation:
    """The federation as this node sees it; kept, since in a simulation one process plays many clients in turn."""
    experiment = Experiment(**parse_toml(text, "experiment"))
    if source is not None:
        return node_federation(experiment, source, client)
    return _public_federation(text, root)


@lru_cache(maxsize=1)
def _public_federation(text: str, root: str | None) -> Federation:
    experiment = Experiment(**parse_toml(text, "experiment"))
    return build_federation(experiment.override({"data.root": root}) if root else experiment)


def _client_of(context: Context) -> int:
    client = context.node_config.get("partition-id")
    if not isinstance(client, int) or isinstance(client, bool) or client < 0:
        raise InputError(f"partition-id: {client!r} is not allowed in the node's configuration; allowed: 0, 1, 2 …")
    return client


def _state_folder(context: Context) -> Path:
    folder = _text(context.node_config, "state-dir")
    return Path(folder) if folder else Path.home() / ".fedsol" / "states"


def _text(config: Any, name: str) -> str | None:
    value = config.get(name)
    return None if value is None else str(value)


def _failure(message: Message, error: Exception) -> Message:
    """In a deployment the reason stays in the node's own log, since it may speak of its data."""
    log.error("%s", error)
    simulated = message.content.config_records[records.CONFIG].get("simulated")
    reason = str(error) if simulated else "the node could not do this; its own log says why"
    return Message(Error(code=FAILED, reason=reason), reply_to=message)
