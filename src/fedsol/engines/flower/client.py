"""The ClientApp: how a node answers the messages of the server, and where it stores its state."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM

from fedsol.config.experiment import Experiment, parse_toml
from fedsol.config.tables import PRIVATE
from fedsol.core.files import disk_errors_named, read_tensors, sha256, tensors_to_bytes, write_atomically
from fedsol.core.messages import EPSILONS, Job, State, Update, referenced_round, state_reference
from fedsol.core.randomness import one_torch_thread
from fedsol.engines.flower import records
from fedsol.errors import FedsolError, InputError, RunError
from fedsol.federation.federation import Federation, build_federation, node_federation
from fedsol.federation.personal import check_settings
from fedsol.federation.private_steps import secret_steps, step_mechanism
from fedsol.federation.tasks import EvaluateClient, Personalize
from fedsol.models.split import OtherFrozenError
from fedsol.privacy.account import AbstainError, NodeAccount, NodeLimit
from fedsol.runs.directory import RUN_ID

log = logging.getLogger(__name__)

Handler = Callable[[RecordDict, Context], RecordDict]
Reason = Callable[[Exception], str]
"""What a node tells the server about an error."""


class NodeStates:
    """The states of one client in one run, on its own disk: one file for each round that it took part in.

    States survive restarts and never leave the node. Each file has a checksum; a damaged file counts as lost.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, round_number: int) -> State | None:
        """Return the state after a round; None if it is lost."""
        path = self._path(round_number)
        try:
            return read_tensors(path, path.with_suffix(".sha256").read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError, RunError):
            return None

    def save(self, round_number: int, state: State) -> None:
        """Save the state after a round."""
        with disk_errors_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            content, path = tensors_to_bytes(state), self._path(round_number)
            write_atomically(path, content)
            write_atomically(path.with_suffix(".sha256"), sha256(content) + "\n")

    def forget_before(self, round_number: int) -> None:
        """Delete the states that a server will not ask for again if it returns to this round at most."""
        older = sorted(path for path in self._folder.glob("round-*.safetensors") if path <= self._path(round_number))
        for path in older[:-1]:
            for name in (path, path.with_suffix(".sha256")):
                with contextlib.suppress(OSError):  # a leftover file is harmless
                    name.unlink()

    def _path(self, round_number: int) -> Path:
        return self._folder / f"round-{round_number:06d}.safetensors"


def private_reason(error: Exception) -> str:
    """Return the reason given in a deployment: most errors may reveal data, so they stay in the node's log."""
    may_leave = isinstance(error, OtherFrozenError | AbstainError)
    return str(error) if may_leave else "the node failed; its own log says why"


def make_client_app() -> ClientApp:
    """Make the app that every node of a deployment runs."""
    own = _unless_private(evaluate), _unless_private(personalize)
    return _make_app(private_reason, train_on_own_machine, *own)


def make_simulated_app() -> ClientApp:
    """Make the app that every node of a simulation runs."""
    return _make_app(str, train, evaluate, personalize)


def _make_app(reason: Reason, train: Handler, evaluate: Handler, personalize: Handler) -> ClientApp:
    app = ClientApp()
    app.query("identity")(_answering(identify, reason))
    app.train(mods=[clip_if_asked])(_answering(train, reason))
    app.evaluate()(_answering(evaluate, reason))
    app.query("personalize")(_answering(personalize, reason))
    return app


def _unless_private(handler: Handler) -> Handler:
    """Make a handler refuse results on samples that are protected: no noise covers them."""

    def answer(content: RecordDict, context: Context) -> RecordDict:
        if Experiment(**parse_toml(records.setting(content, "experiment"), "experiment")).privacy.covers_samples:
            raise InputError("message: results on a node's samples are not allowed with privacy.level = 'example'")
        return handler(content, context)

    return answer


def _answering(handler: Handler, reason: Reason) -> ClientAppCallable:
    """Make a handler answer its failures too."""

    def answer(message: Message, context: Context) -> Message:
        try:
            with one_torch_thread():
                return Message(handler(message.content, context), reply_to=message)
        except Exception as error:  # whatever it is, its text must not leave the node
            log.error("%s", error, exc_info=not isinstance(error, FedsolError))
            code = records.ABSTAINED if isinstance(error, AbstainError) else records.FAILED
            return Message(Error(code=code, reason=reason(error)), reply_to=message)

    return answer


def clip_if_asked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Clip updates with Flower's clipping if the server's message asks for it."""
    asked = KEY_CLIPPING_NORM in message.content.config_records[records.CONFIG]
    return fixedclipping_mod(message, context, call_next) if asked else call_next(message, context)


def identify(_: RecordDict, context: Context) -> RecordDict:
    """Answer which client this node is: its `partition-id`."""
    return RecordDict({records.METRICS: MetricRecord({"client": _client_of(context)})})


def train(content: RecordDict, context: Context) -> RecordDict:
    """Train a simulated client; the answer is the update, with all of the client's state."""
    return records.update_records(_federation_for(content, context).train(records.job_from(content)))


def train_on_own_machine(content: RecordDict, context: Context) -> RecordDict:
    """Train on the node's data; the answer is the update. State, noise and account are the node's own."""
    federation, job = _federation_for(content, context), records.job_from(content)
    spent = _charge(federation, job, content, context)
    state_round = referenced_round(job.state)
    if state_round is None:
        update = federation.train(job, secret_steps)
    else:
        states = _states_of(records.setting(content, "run"), job.client, context)
        update = _train_with_own_state(federation, job, states, state_round)
        states.forget_before(int(content.config_records[records.CONFIG]["oldest"]))  # type: ignore[arg-type]
    if spent:
        update = replace(update, metrics=_without_loss(update.metrics) | dict(zip(EPSILONS, spent, strict=True)))
    return records.update_records(update)


def _charge(federation: Federation, job: Job, content: RecordDict, context: Context) -> tuple[float, float] | None:
    """Pay for a job, before it begins, if its steps are noised; return what is spent, and will be after one more."""
    experiment = federation.experiment
    if not experiment.privacy.covers_samples:
        return None
    samples = len(federation.training_samples(job.client))
    account = NodeAccount(
        _client_folder(records.setting(content, "run"), job.client, context),
        step_mechanism(experiment, samples),
        experiment.privacy.delta,
        experiment.privacy.epsilon,
        _limit_of(context),
    )
    return account.charge(federation.steps_of(samples, job.work))


def _limit_of(context: Context) -> NodeLimit | None:
    """Return `max-epsilon` of the node's configuration, if it is set, and `max-delta`."""
    epsilon, delta = (_own_number(context, name) for name in ("max-epsilon", "max-delta"))
    if epsilon is None:
        if delta is not None:
            raise InputError("max-epsilon: is missing in the node's configuration, which has max-delta")
        return None
    return NodeLimit(epsilon) if delta is None else NodeLimit(epsilon, delta)


def _own_number(context: Context, name: str) -> float | None:
    """Return a number of the node's configuration; None if it is not set."""
    value = context.node_config.get(name)
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not value > 0):
        raise InputError(f"{name}: must be greater than 0 in the node's configuration (got {value!r})")
    return None if value is None else float(value)


def _without_loss(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics without the training loss, which no noise covers."""
    return {name: value for name, value in metrics.items() if name != "train_loss"}


def evaluate(content: RecordDict, context: Context) -> RecordDict:
    """Test weights on the node's hold-out or validation set; the answer is a few totals."""
    federation, task = _federation_for(content, context), records.evaluation_from(content)
    return records.tally_records(_with_own_state(task, content, context).answer(federation))


def personalize(content: RecordDict, context: Context) -> RecordDict:
    """Make and test the node's own models, which stay on the node; the answer is a few numbers."""
    federation, task = _federation_for(content, context), records.personal_task(content)
    check_settings(federation, task.settings)
    task = _with_own_state(task, content, context)
    if task.settings.save:
        task = replace(task, folder=_own_folder(records.setting(content, "run"), context) / "models")
    return records.personal_answer(task.answer(federation))


def _states_of(run: str, client: int, context: Context) -> NodeStates:
    return NodeStates(_client_folder(run, client, context))


def _client_folder(run: str, client: int, context: Context) -> Path:
    return _own_folder(run, context) / f"client-{client:06d}"


T = TypeVar("T", EvaluateClient, Personalize)


def _with_own_state(task: T, content: RecordDict, context: Context) -> T:
    """Return the task with the state to which it refers; a client that never trained, or lost it, has the initial."""
    state_round = referenced_round(task.own_state())
    if not state_round:
        return replace(task, load_state=None) if state_round == 0 else task
    state = _states_of(records.setting(content, "run"), task.client, context).load(state_round)
    return replace(task, load_state=lambda _client: {} if state is None else state)


def _own_folder(run: str, context: Context) -> Path:
    """Return where the node stores what belongs to a run and never leaves it."""
    if not RUN_ID.fullmatch(run):  # it becomes the name of a folder
        raise InputError(f"run: must be the id of a run (got {run!r})")
    return Path(str(context.node_config.get("state-dir") or Path.home() / ".fedsol" / "states")) / run


def _train_with_own_state(federation: Federation, job: Job, states: NodeStates, state_round: int) -> Update:
    """Train from the state on the node's disk; the update carries a reference to the new one."""
    state = states.load(state_round) if state_round else federation.initial_state()
    metrics = {}
    if state is None:
        log.warning(
            "the state of client %d after round %d is lost; it starts from the initial one", job.client, state_round
        )
        state, metrics = federation.initial_state(), {records.RESTARTED: 1.0}
    update = federation.train(replace(job, state=state), secret_steps)
    states.save(job.round, update.state)
    return replace(update, state=state_reference(job.round), metrics={**update.metrics, **metrics})


def _federation_for(content: RecordDict, context: Context) -> Federation:
    client, own, config = records.client_of(content), _client_of(context), context.node_config
    if client != own:
        raise InputError(f"client: must be this node's partition-id, {own} (got {client})")
    text, source = records.setting(content, "experiment"), config.get("data")
    if source:
        federation = _own_federation(text, str(source), client)
    else:
        federation = _public_federation(text, str(config.get("data-root") or ""))
    frozen = content.config_records[records.CONFIG].get(records.FROZEN, "")
    federation.model.check_frozen(str(frozen), "of the server")
    if _limit_of(context) is not None and not federation.experiment.privacy.covers_samples:
        raise AbstainError("max-epsilon is set in its configuration, and the experiment has no privacy of samples")
    return federation


@lru_cache(maxsize=1)
def _own_federation(text: str, source: str, client: int) -> Federation:
    return node_federation(Experiment(**parse_toml(text, "experiment")), source, client)


@lru_cache(maxsize=1)
def _public_federation(text: str, root: str) -> Federation:
    """Return the federation; cached, since in a simulation one process plays many clients in turn."""
    experiment = Experiment(**parse_toml(text, "experiment"))
    if experiment.data.name == PRIVATE:
        raise InputError("data: missing in the node's configuration; must be the path of its own data")
    return build_federation(experiment.override({"data.root": root}) if root else experiment)


def _client_of(context: Context) -> int:
    client = context.node_config.get("partition-id")
    if not isinstance(client, int) or isinstance(client, bool) or client < 0:
        raise InputError(f"partition-id: must be 0, 1, 2 … in the node's configuration (got {client!r})")
    return client
