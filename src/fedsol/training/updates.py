"""RoundUpdates: check the updates of one round, count what happened, and return those that are aggregated."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedsol.config.experiment import Experiment
from fedsol.config.tables import PRIVATE
from fedsol.core.messages import Missing, ServerState, State, Update
from fedsol.core.randomness import generator_for
from fedsol.core.statistics import limited_shares
from fedsol.core.weights import Weights, add, clip_change, norm, pick, size_in_bytes, subtract
from fedsol.federation.exchange import methods_own
from fedsol.federation.faults import COLLUSION, Fault, collude, corrupt
from fedsol.federation.federation import Federation
from fedsol.runs.client_states import ClientStates
from fedsol.training.folding import Folding, Order
from fedsol.training.guard import NO_LIMITS, Bound, Limits, Sizes, sizes_of

log = logging.getLogger(__name__)

PLAUSIBLE_LOSS = 1e6
"""A client whose mean training loss is beyond this has no model left to speak of."""

ABSURD = 1e6
"""An update that moves farther than this many norms of the global weights is a mistake, not a step."""


@dataclass
class Counts:
    """What happened in a round, apart from its results."""

    rejected: int = 0
    clipped: int = 0
    late: int = 0
    corrupted: int = 0
    missing: int = 0
    unreached: int = 0
    abstained: int = 0
    restarted: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass(frozen=True)
class Requirements:
    """What an update must be like."""

    payload: State
    """A payload and a state with the names, shapes and types that clients must send."""
    state: State
    limits: Limits = NO_LIMITS


@dataclass(frozen=True)
class _Arrival:
    """A valid update, and how old it is: 0, or 1 if it is late. A late one has its state with it."""

    update: Update
    age: int

    @property
    def order(self) -> Order:
        """By client; of two from one client, the older comes first."""
        return self.update.client, -self.age


@dataclass
class RoundUpdates:
    """Updates arrive in any order; the valid ones are returned by client id, with their shares.

    States go to the store on arrival, so that a round only holds its weights and payloads in memory. What depends on
    the other updates of the round is decided when all have arrived, in order of client id. With `fold` the weights are
    averaged as they arrive. That takes shares that are known before: if another update is rejected, or none comes from
    a client, the round `is_surprised`, and its clients have to train once more.
    """

    federation: Federation
    server: ServerState
    states: ClientStates
    round: int
    faults: Mapping[int, Fault]
    """By client, of all clients that were sampled."""
    required: Requirements
    counts: Counts = field(default_factory=Counts)
    late: list[Update] = field(default_factory=list)
    """Updates of this round that arrive in the next one."""
    recent_changes: tuple[Sizes, ...] = ()
    """What the server remembers after the round."""
    folding: Folding | None = None
    is_surprised: bool = False
    _arrivals: list[_Arrival] = field(default_factory=list)

    @property
    def experiment(self) -> Experiment:
        """The experiment that the round belongs to."""
        return self.federation.experiment

    def fold(self) -> None:
        """Average updates as they arrive, from the late ones on, which are already here."""
        late, self._arrivals = self._arrivals, []
        expected = [client for client in self.faults if self._is_expected(client)]
        examples = {
            **{arrival.order: arrival.update.examples for arrival in late},
            **{(client, 0): len(self.federation.training_samples(client)) for client in expected},
        }
        sizes = dict(zip(examples, self._sizes(examples.values()), strict=True))
        self.folding = Folding(sizes, self.required.limits.max_share)
        for arrival in late:
            self._keep(arrival)

    def _is_expected(self, client: int) -> bool:
        """Return whether a client's update should be aggregated in this round, as far as the faults say."""
        fault = self.faults[client]
        is_broken = fault.corrupted and self.experiment.faults.corruption == "nan"
        return not (fault.dropped or fault.late or is_broken)

    def _sizes(self, examples: Iterable[int]) -> list[int]:
        """Return the sizes that the shares of updates are made of."""
        return [1 if self.experiment.server.weighting == "uniform" else count for count in examples]

    def add(self, update: Update, reason: str | None = None) -> None:
        """Add an update of this round, to be rejected if there is a reason."""
        if self.is_surprised:
            return
        self.counts.bytes_up += size_in_bytes(update.weights) + size_in_bytes(update.payload)
        fault = self.faults[update.client]
        if fault.corrupted:
            self.counts.corrupted += 1
            generator = generator_for(self.experiment.seed, "corruption", self.round, update.client)
            update = corrupt(update, self.server.weights, self.experiment.faults, generator)
        reason = reason or self._reason(update) or self._false_number(update)
        if reason is None and fault.late:
            self.late.append(self._moved(update, -1.0))
        else:
            self._take(update, 0, reason)

    def add_missing(self, missing: Missing) -> None:
        """Record a client that was asked and sent no update."""
        if self.folding:
            self.is_surprised = True
        elif missing.malformed:
            self._reject(missing.client, missing.reason)
        else:
            self.counts.missing += 1
            self.counts.unreached += not missing.reached
            self.counts.abstained += missing.abstained
            log.warning("round %d: no update from client %d: %s", self.round, missing.client, missing.reason)

    def add_late(self, update: Update) -> None:
        """Add an update from the previous round."""
        self.counts.late += 1
        moved = self._moved(update, 1.0)
        self._take(moved, 1, self._reason(moved))

    def finish(self) -> list[Update]:
        """Decide when all have arrived; return the updates to aggregate, by client id: without tensors if folded."""
        updates = self.folding.updates if self.folding else self._with_shares()
        self.counts.restarted += sum(bool(update.metrics.get("restarted")) for update in updates)
        return updates

    def _with_shares(self) -> list[Update]:
        arrivals = self._with_collusion(sorted(self._arrivals, key=lambda arrival: arrival.order))
        arrivals = self._within_bound(arrivals)
        updates = [replace(arrival.update, weights=self._clipped(arrival.update), state={}) for arrival in arrivals]
        shares = limited_shares(self._sizes(update.examples for update in updates), self.required.limits.max_share)
        return [replace(update, share=share) for update, share in zip(updates, shares, strict=True)]

    def _moved(self, update: Update, sign: float) -> Update:
        """Return a late update plus (on arrival) or minus (while it waits) the server's weights."""
        parameters = pick(update.weights, self.server.parameters)
        return replace(update, weights={**update.weights, **add(parameters, self.server.weights, sign)})

    def _take(self, update: Update, age: int, reason: str | None) -> None:
        arrival = _Arrival(update if age else replace(update, state={}), age)
        if self.folding and self.folding.expects(arrival.order) != (reason is None):
            self.is_surprised = True
        elif reason is not None:
            self._reject(update.client, reason)
        else:
            self.states.stage(update.client, self.round, update.state)
            self._keep(arrival)

    def _keep(self, arrival: _Arrival) -> None:
        """Hold a valid update until the others have arrived, or add it to the mean."""
        if self.folding is None:
            self._arrivals.append(arrival)
        else:
            update = replace(arrival.update, weights=self._clipped(arrival.update), state={})
            self.folding.add(arrival.order, update)

    def _reason(self, update: Update) -> str | None:
        return reason_to_reject(update, self.server, self.required.payload, self.required.state)

    def _false_number(self, update: Update) -> str | None:
        """Return which number of an update contradicts what is known; None if none does.

        The number of examples is known unless the data is private; steps follow from examples, and some numbers of the
        payload (FedNova's steps, SCAFFOLD's factor) from steps.
        """
        if self.experiment.data.name != PRIVATE:
            examples = len(self.federation.training_samples(update.client))
            if update.examples != examples:
                return f"has {update.examples} examples; the client has {examples}"
        steps = self.federation.steps_of(update.examples, self.faults[update.client].work)
        if update.steps != steps:
            return f"has {update.steps} steps; {update.examples} examples make {steps}"
        numbers = [name for name in self.federation.algorithm.numbers_of_steps if name in self.required.payload]
        if numbers and self.required.limits.max_change:
            expected, _ = expected_answers(
                self.federation, self.server, self.federation.initial_state(), self.round, steps
            )
            for name in numbers:
                if not torch.isclose(update.payload[name], expected[name], rtol=1e-6):
                    return (
                        f"has {name} {float(update.payload[name]):.6g}; {steps} steps make {float(expected[name]):.6g}"
                    )
        return None

    def _with_collusion(self, arrivals: list[_Arrival]) -> list[_Arrival]:
        """Return the arrivals with what attackers make of all the others, if that is how updates are corrupted."""
        if self.experiment.faults.corruption != COLLUSION:
            return arrivals
        hostile = [not arrival.age and self.faults[arrival.update.client].corrupted for arrival in arrivals]
        honest = [one.update.weights for one, is_hostile in zip(arrivals, hostile, strict=True) if not is_hostile]
        if not honest or not any(hostile):
            return arrivals
        sent = collude(honest, self.experiment.faults.corruption_scale)
        return [
            replace(one, update=replace(one.update, weights=sent)) if is_hostile else one
            for one, is_hostile in zip(arrivals, hostile, strict=True)
        ]

    def _within_bound(self, arrivals: Sequence[_Arrival]) -> list[_Arrival]:
        """Return those that `server.max_change` allows; the states of the others are dropped."""
        self.recent_changes = self.server.recent_changes
        if not self.required.limits.max_change:
            return list(arrivals)
        bound = Bound(self.required.limits.max_change, self.server.recent_changes)
        sizes = [sizes_of(arrival.update, self.server, self.federation.algorithm) for arrival in arrivals]
        reasons = bound.reasons(sizes)
        for arrival, reason in zip(arrivals, reasons, strict=True):
            if reason is not None:
                self._reject(arrival.update.client, reason)
        self.recent_changes = bound.after(found for found, reason in zip(sizes, reasons, strict=True) if reason is None)
        accepted = [arrival for arrival, reason in zip(arrivals, reasons, strict=True) if reason is None]
        self._unstage(arrivals, accepted)
        return accepted

    def _unstage(self, arrivals: Sequence[_Arrival], accepted: Sequence[_Arrival]) -> None:
        """Leave each client the state of its newest accepted update."""
        newest = {arrival.update.client: arrival for arrival in arrivals}
        newest_accepted = {arrival.update.client: arrival for arrival in accepted}
        for client, arrival in newest.items():
            remaining = newest_accepted.get(client)
            if remaining is not arrival:
                self.states.unstage(client, self.round)
                self.states.stage(client, self.round, remaining.update.state if remaining else {})

    def _clipped(self, update: Update) -> Weights:
        longest = self.experiment.server.max_update_norm
        if longest is None:
            return update.weights
        weights = clip_change(update.weights, pick(self.server.weights, self.server.parameters), longest)
        self.counts.clipped += weights is not update.weights
        return weights

    def _reject(self, client: int, reason: str) -> None:
        self.counts.rejected += 1
        log.warning("round %d: the update of client %d is rejected: it %s", self.round, client, reason)


def expected_answers(
    federation: Federation, server: ServerState, state: State, round_number: int = 1, steps: int = 1
) -> tuple[State, State]:
    """Return payload and state as this algorithm's clients send them: what `finish` makes of such a job."""
    task = federation.task_for(federation.exchange.complete(server.weights, state), round_number)
    view = federation.algorithm.begin(task, federation.algorithm.broadcast(server), methods_own(state))
    new_state, payload = federation.algorithm.finish(task, dict(task.anchor), steps, view)
    return payload, {**new_state, **pick(state, state.keys() - methods_own(state).keys())}


def reason_to_reject(update: Update, server: ServerState, payload: State, state: State) -> str | None:
    """Return why an update must not be aggregated, or None.

    Names, shapes and types must be those of the global weights and of the expected payload and state; values must be
    finite, and the change of a plausible size.
    """
    for what, found, expected in (
        ("weights", update.weights, server.weights),
        ("payload", update.payload, payload),
        ("state", update.state, state),
    ):
        problem = _mismatch(found, expected) or not_finite(found)
        if problem:
            return f"has {what} {problem}"
    if update.examples < 1:
        return "was trained on no examples"
    loss = update.metrics.get("train_loss", 0.0)
    if not math.isfinite(loss):
        return "has a training loss that is not finite"
    if abs(loss) > PLAUSIBLE_LOSS:
        return f"has a training loss of {loss:.3g}, which is not plausible"
    anchor = pick(server.weights, server.parameters)
    distance = float(norm(subtract(anchor, update.weights)))
    if distance > ABSURD and distance > ABSURD * float(norm(anchor)):
        return "has weights implausibly far from the global ones"
    return None


def _mismatch(found: State, expected: State) -> str | None:
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or unknown:
        return f"with wrong names (missing {shortened(missing)}, unknown {shortened(unknown)})"
    for name, tensor in expected.items():
        other = found[name]
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            required = f"{tuple(tensor.shape)} {tensor.dtype}"
            return f"with {name} of {tuple(other.shape)} {other.dtype} where {required} is required"
    return None


def not_finite(tensors: State) -> str | None:
    """Name the first tensor with values that are not finite; None if all are finite."""
    for name, tensor in tensors.items():
        # A sum is finite only if all values are; it takes a fifth of the time of looking at each.
        if tensor.is_floating_point() and not (math.isfinite(tensor.sum()) or bool(torch.isfinite(tensor).all())):
            return f"that are not finite in {name}"
    return None


def shortened(names: Sequence[str]) -> str:
    """Return a list of names, of which a hostile client may send thousands, in a few words."""
    shown = [name[:80] for name in names[:3]]
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else str(shown)
