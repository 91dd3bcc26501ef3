"""The ClientApp: what a node does with the messages of the server."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM

from fedsol.config.experiment import Experiment, parse_toml
from fedsol.config.tables import PRIVATE
from fedsol.core.messages import Job, Update, referenced_round, state_reference
from fedsol.core.randomness import one_torch_thread
from fedsol.engines.flower import records
from fedsol.engines.flower.states import NodeStates
from fedsol.errors import FedsolError, InputError
from fedsol.federation.federation import Federation, build_federation, node_federation
from fedsol.federation.personal import check_settings
from fedsol.federation.tasks import Train
from fedsol.runs.directory import RUN_ID

log = logging.getLogger(__name__)

FAILED = 100
"""Code of the error that a node answers with."""


Handler = Callable[[RecordDict, Context], RecordDict]


def make_client_app(simulated: bool = False) -> ClientApp:
    """The app of every node."""
    app = ClientApp()
    app.query("identity")(answering(tell_client, simulated))
    app.train(mods=[clip_if_asked])(answering(train, simulated))
    app.evaluate()(answering(evaluate, simulated))
    app.query("personalize")(answering(personalize, simulated))
    return app


def answering(handler: Handler, simulated: bool) -> ClientAppCallable:
    """A handler whose failures are answered too.

    In a deployment the reason stays in the node's own log, since it may speak of its data.
    """

    def answer(message: Message, context: Context) -> Message:
        try:
            return Message(handler(message.content, context), reply_to=message)
        except Exception as error:  # whatever it is, its text must not leave the node
            log.error("%s", error, exc_info=not isinstance(error, FedsolError))
            reason = str(error) if simulated else "the node could not do this; its own log says why"
            return Message(Error(code=FAILED, reason=reason), reply_to=message)

    return answer


def clip_if_asked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Flower's clipping of updates, whenever the server asks for it with its message."""
    asked = KEY_CLIPPING_NORM in message.content.config_records[records.CONFIG]
    return fixedclipping_mod(message, context, call_next) if asked else call_next(message, context)


def tell_client(_: RecordDict, context: Context) -> RecordDict:
    """Which client this node is: its `partition-id`."""
    return RecordDict({records.METRICS: MetricRecord({"client": _client_of(context)})})


def train(content: RecordDict, context: Context) -> RecordDict:
    """Train on the node's data; the answer is the update."""
    job = records.job_from(content)
    federation = _federation_for(content, context, job.client)
    with one_torch_thread():
        return records.update_records(_train(federation, job, content, context))


def evaluate(content: RecordDict, context: Context) -> RecordDict:
    """Test weights on the node's hold-out set; the answer is a few totals."""
    task = records.evaluation_from(content)
    federation = _federation_for(content, context, task.client)
    with one_torch_thread():
        return records.tally_records(task.answer(federation))


def personalize(content: RecordDict, context: Context) -> RecordDict:
    """Make and test the node's own models, which stay on the node; the answer is a few numbers."""
    task = records.personal_task(content)
    federation = _federation_for(content, context, task.client)
    check_settings(federation, task.settings)
    with one_torch_thread():
        return records.personal_answer(task.answer(federation))


def _train(federation: Federation, job: Job, content: RecordDict, context: Context) -> Update:
    round_kept = referenced_round(job.state)
    if round_kept is None:
        return Train(job).answer(federation)
    run = records.setting(content, "run")
    if not RUN_ID.fullmatch(run):  # it becomes the name of a folder
        raise InputError(f"run: {run!r} is no id of a run")
    states = NodeStates(_state_folder(context) / run / f"client-{job.client:06d}")
    update = _train_with_own_state(federation, job, states, round_kept)
    states.forget_before(int(content.config_records[records.CONFIG]["oldest"]))  # type: ignore[arg-type]
    return update


def _train_with_own_state(federation: Federation, job: Job, states: NodeStates, kept: int) -> Update:
    """Trains from the state that the node has on its disk; the update carries a receipt of the new one."""
    state = states.load(kept) if kept else None
    restarted = bool(kept) and state is None
    if restarted:
        log.warning("the state of client %d after round %d is lost; it starts over", job.client, kept)
    complete = replace(job, state=federation.initial_state() if state is None else state)
    update = Train(complete).answer(federation)
    states.save(job.round, update.state)
    metrics = {**update.metrics, **({"restarted": 1.0} if restarted else {})}
    return replace(update, state=state_reference(job.round), metrics=metrics)


def _federation_for(content: RecordDict, context: Context, client: int) -> Federation:
    if client != _client_of(context):
        raise InputError(f"client: {client} is asked for, but this node's partition-id is {_client_of(context)}")
    text, config = records.setting(content, "experiment"), context.node_config
    source = _text(config, "data")
    return _own_federation(text, source, client) if source else _public_federation(text, _text(config, "data-root"))


@lru_cache(maxsize=1)
def _own_federation(text: str, source: str, client: int) -> Federation:
    return node_federation(Experiment(**parse_toml(text, "experiment")), source, client)


@lru_cache(maxsize=1)
def _public_federation(text: str, root: str | None) -> Federation:
    """Kept, since in a simulation one process plays many clients in turn."""
    experiment = Experiment(**parse_toml(text, "experiment"))
    if experiment.data.name == PRIVATE:
        raise InputError("data: is missing in the node's configuration: where its own data is")
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
