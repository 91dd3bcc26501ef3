"""A saved run made ready for analysis: its newest global weights, and one round of local training done again."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedsol.algorithms.base import Algorithm
from fedsol.core.messages import Job, ServerState, Update
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import pick
from fedsol.errors import InputError
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.sampling import sample_clients
from fedsol.runs.client_states import ClientStates
from fedsol.runs.directory import RunDirectory
from fedsol.runs.rows import Row


@dataclass(frozen=True)
class SavedRun:
    """A run directory with everything that training would go on with."""

    federation: Federation
    rows: list[Row]
    server: ServerState
    """After the newest checkpoint."""
    finished: int
    """Rounds that it has behind it."""
    states: ClientStates = field(repr=False)
    directory: Path

    @property
    def next_round(self) -> int:
        """The round that is done again: the one after the newest checkpoint, if its learning rate is not 0."""
        following = self.finished + 1
        return following if self.federation.experiment.learning_rate(following) > 1e-12 else max(self.finished, 1)


@dataclass(frozen=True)
class LocalRound:
    """Local training of some clients, all from the same global weights; nothing is aggregated."""

    round: int
    before: ServerState
    updates: Sequence[Update]


def open_run(path: str | Path) -> SavedRun:
    """Reads a run directory: data, partition and model as when it ran, and the newest checkpoint that is whole."""
    directory = RunDirectory(Path(path))
    federation = build_federation(directory.read_experiment())
    directory.check_same_run(federation)
    rows = directory.read_rows()
    checkpoint = directory.checkpoints.newest()
    if checkpoint is None:
        raise InputError(f"{path}: has no checkpoint that could be analysed; let it finish a round first")
    initial = federation.initial_weights()
    parameters, buffers = pick(initial, federation.model.names), pick(initial, federation.model.buffers)
    states = ClientStates(
        lambda: federation.algorithm.init_client(parameters, buffers), directory.checkpoints.client_folder
    )
    states.restore(checkpoint.clients)
    return SavedRun(federation, rows, checkpoint.server, checkpoint.round, states, directory.path)


def local_round(
    saved: SavedRun, algorithm: Algorithm | None = None, clients: Sequence[int] | None = None
) -> LocalRound:
    """One round of local training from the newest global weights, as training itself would do it next.

    Another algorithm may stand in for the run's own (with the same states); `clients` are those sampled for the round
    if not given. The run directory is left as it is.
    """
    federation, number = saved.federation, saved.next_round
    if algorithm is not None:
        federation = replace(federation, algorithm=algorithm)
    broadcast = federation.algorithm.broadcast(saved.server)
    jobs = [
        Job(client, number, saved.server.weights, broadcast, saved.states.get(client))
        for client in chosen_clients(saved, clients)
    ]
    with one_torch_thread():
        return LocalRound(number, saved.server, [federation.train(job) for job in jobs])


def chosen_clients(saved: SavedRun, clients: Sequence[int] | None) -> list[int]:
    """The given clients, checked, or those that the next round samples."""
    federation = saved.federation
    if clients is None:
        return sample_clients(federation.experiment, federation.clients, saved.next_round)
    for client in clients:
        if not 0 <= client < federation.clients:
            raise InputError(f"--clients: {client} is not allowed; allowed: 0 to {federation.clients - 1}")
    return sorted(set(clients))
