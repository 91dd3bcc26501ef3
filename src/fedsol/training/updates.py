"""Inbox: takes in the updates of one round."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedsol.config.experiment import Experiment
from fedsol.core.messages import Missing, ServerState, State, Update, receipt
from fedsol.core.randomness import generator_for
from fedsol.core.weights import add, clip_change, pick, size_in_bytes
from fedsol.federation.federation import Federation
from fedsol.runs.client_states import ClientStates
from fedsol.training.checks import reason_to_reject
from fedsol.training.faults import Fault, corrupt

log = logging.getLogger(__name__)


@dataclass
class Counts:
    """What happened in a round, beside its results."""

    updates: int = 0
    rejected: int = 0
    clipped: int = 0
    late: int = 0
    corrupted: int = 0
    missing: int = 0
    unreached: int = 0
    restarted: int = 0
    bytes_up: int = 0


@dataclass
class Inbox:
    """Updates come in in any order; those that are fit are given out by client id, with their shares.

    States go to the store as they come, so that a round needs no more memory than its weights and payloads.
    """

    federation: Federation
    server: ServerState
    states: ClientStates
    round: int
    faults: Mapping[int, Fault]
    expected: tuple[State, State]
    """What payloads and states look like."""
    counts: Counts = field(default_factory=Counts)
    late: list[Update] = field(default_factory=list)
    """Updates of this round that arrive in the next one."""
    _fit: list[tuple[int, int, Update]] = field(default_factory=list)

    @property
    def experiment(self) -> Experiment:
        """The experiment that the round belongs to."""
        return self.federation.experiment

    def take(self, update: Update) -> None:
        """Takes in an update of this round."""
        self.counts.updates += 1
        self.counts.bytes_up += size_in_bytes(update.weights) + size_in_bytes(update.payload)
        fault = self.faults[update.client]
        if fault.corrupted:
            self.counts.corrupted += 1
            generator = generator_for(self.experiment.seed, "corruption", self.round, update.client)
            update = corrupt(update, self.server.weights, self.experiment.faults, generator)
        if fault.late and reason_to_reject(update, self.server, *self.expected) is None:
            self.late.append(self._moved(update, -1.0))
        else:
            self._check(update, age=0)

    def take_missing(self, missing: Missing) -> None:
        """Takes note of a client that was asked and sent no update."""
        if missing.malformed:
            self._reject(missing.client, missing.reason)
        else:
            self.counts.missing += 1
            self.counts.unreached += not missing.reached
            log.warning("round %d: no update of client %d: %s", self.round, missing.client, missing.reason)

    def take_late(self, update: Update) -> None:
        """Takes in an update of the round before."""
        self.counts.late += 1
        self._check(self._moved(update, 1.0), age=1)

    def accepted(self) -> list[Update]:
        """The updates that are fit to be aggregated. Of two of one client, the older comes first."""
        updates = [update for _, _, update in sorted(self._fit, key=lambda entry: entry[:2])]
        uniform = self.experiment.server.weighting == "uniform"
        sizes = [1 if uniform else update.examples for update in updates]
        return [replace(update, share=size / sum(sizes)) for update, size in zip(updates, sizes, strict=True)]

    def _moved(self, update: Update, sign: float) -> Update:
        """A late update waits as a change of the weights it was made from, and is applied to those it arrives at."""
        parameters = pick(update.weights, self.server.parameters)
        return replace(update, weights={**update.weights, **add(parameters, self.server.weights, sign)})

    def _check(self, update: Update, age: int) -> None:
        reason = reason_to_reject(update, self.server, *self.expected)
        if reason is not None:
            self._reject(update.client, reason)
            return
        longest = self.experiment.server.max_update_norm
        if longest is not None:
            weights = clip_change(update.weights, pick(self.server.weights, self.server.parameters), longest)
            self.counts.clipped += weights is not update.weights
            update = replace(update, weights=weights)
        self.states.stage(update.client, self.round, update.state)
        self.counts.restarted += bool(update.metrics.get("restarted"))
        self._fit.append((update.client, -age, replace(update, state={})))

    def _reject(self, client: int, reason: str) -> None:
        self.counts.rejected += 1
        log.warning("round %d: the update of client %d is rejected: it %s", self.round, client, reason)


def expected_answers(
    federation: Federation, server: ServerState, state: State, keeps_states: bool
) -> tuple[State, State]:
    """Payload and state as this algorithm's clients send them: what `finish` makes of a job that did nothing."""
    task = federation.task_for(server.weights)
    view = federation.algorithm.begin(task, federation.algorithm.broadcast(server), state)
    new_state, payload = federation.algorithm.finish(task, dict(task.anchor), 1, view)
    return payload, receipt(0) if keeps_states and new_state else new_state


def late_by_client(updates: Sequence[Update]) -> list[Update]:
    """Late updates in an order that does not depend on how they came in."""
    return sorted(updates, key=lambda update: update.client)
