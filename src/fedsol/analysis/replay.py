"""Repeat one round of local training of a saved run, and observe its steps."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from fedsol.algorithms.base import Algorithm
from fedsol.algorithms.task import Task
from fedsol.core.messages import Job, ServerState, State, Update
from fedsol.core.randomness import one_torch_thread, random_state, set_random_state
from fedsol.core.weights import Weights, clone
from fedsol.data.batches import Batch
from fedsol.errors import InputError
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.sampling import sample_clients
from fedsol.runs.checkpoints import Checkpoint
from fedsol.runs.client_states import ClientStates
from fedsol.runs.run import Run


@dataclass(frozen=True)
class LocalRound:
    """Local training of some clients, all from the same global weights; nothing is aggregated."""

    round: int
    before: ServerState
    updates: Sequence[Update]


def check_complete(federation: Federation) -> None:
    """Raise `InputError` if clients keep weights: there is no global model to analyze."""
    if kept := federation.exchange.kept:
        raise InputError(f"analyze: is not possible: clients keep {', '.join(kept[:3])} …, so there is no global model")


class Replay:
    """Retrains clients from the newest checkpoint of a run, without changing its directory."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._rounds: dict[tuple[int, ...] | None, LocalRound] = {}

    @cached_property
    def federation(self) -> Federation:
        """Data, partition and model as when it ran."""
        federation = build_federation(self.run.experiment)
        check_complete(federation)
        self.run.files.check_same_run(federation)
        return federation

    @property
    def checkpoint(self) -> Checkpoint:
        """The newest valid checkpoint."""
        if self.run.checkpoint is None:
            raise InputError(f"{self.run.path}: has no checkpoint to analyze; let it finish a round first")
        return self.run.checkpoint

    @cached_property
    def server(self) -> ServerState:
        """The server of the checkpoint as it begins the next round, with the weights that it sends."""
        return self.federation.sending(self.checkpoint.server)

    @cached_property
    def _states(self) -> ClientStates:
        states = ClientStates(self.federation.initial_state, self.run.files.checkpoints.client_folder)
        states.restore(self.checkpoint.clients)
        return states

    @property
    def next_round(self) -> int:
        """The round to repeat: the one after the checkpoint, or the last one if the next learning rate is 0."""
        finished = self.checkpoint.round
        return finished + 1 if self.federation.experiment.learning_rate(finished + 1) > 1e-12 else max(finished, 1)

    def clients(self, chosen: Sequence[int] | None) -> list[int]:
        """Return the chosen clients, checked, or those sampled in the next round."""
        total = self.federation.clients
        if chosen is None:
            return sample_clients(self.federation.experiment, total, self.next_round)
        for client in chosen:
            if not 0 <= client < total:
                raise InputError(f"--clients: must be 0 to {total - 1} (got {client})")
        return sorted(set(chosen))

    def job(self, client: int) -> Job:
        """Return a client's job in the next round."""
        broadcast = self.federation.algorithm.broadcast(self.server)
        return Job(client, self.next_round, self.server.weights, broadcast, self._states.get(client))

    def local_round(self, clients: tuple[int, ...] | None = None) -> LocalRound:
        """Train clients as the next round of training would do; the same clients only once."""
        if clients not in self._rounds:
            with one_torch_thread():
                updates = [self.federation.train(self.job(client)) for client in self.clients(clients)]
            self._rounds[clients] = LocalRound(self.next_round, self.server, updates)
        return self._rounds[clients]


@dataclass(frozen=True)
class Step:
    """One local step as it is about to be taken."""

    task: Task
    """With its own running statistics: an observer's passes leave no trace."""
    weights: Weights
    batch: Batch
    update: Weights
    """`g_u`, the gradient that the optimizer gets."""
    loss: Tensor


def observed(algorithm: Algorithm, observe: Callable[[Step], None]) -> Algorithm:
    """Return the algorithm with every local step shown to an observer: it trains bitwise the same weights."""

    def step(task: Task, weights: Weights, batch: Batch, state: State) -> tuple[Weights, Tensor, State]:
        update, loss, after = algorithm.step(task, weights, batch, state)
        device = batch.labels.device
        draws = random_state(device)
        observe(Step(replace(task, buffers=clone(task.buffers)), weights, batch, update, loss))
        set_random_state(device, draws)
        return update, loss, after

    twin = copy.copy(algorithm)
    object.__setattr__(twin, "step", step)  # the value is frozen
    return twin
