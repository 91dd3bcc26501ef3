"""Exchange: which weights travel, and which stay with each client, as a part of its own state."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedsol.core.messages import ServerState, State, Update
from fedsol.core.weights import Weights, pick, prefixed, without_prefix
from fedsol.errors import InputError
from fedsol.models.exchange import kept_names
from fedsol.models.split import SplitModel

if TYPE_CHECKING:
    from fedsol.federation.federation import Federation

log = logging.getLogger(__name__)

AT_HOME = "at-home"
"""The prefix, in a client's state, of the weights that it keeps."""


@dataclass(frozen=True)
class Exchange:
    """What is exchanged of a model's weights. If nothing is kept, no function changes anything."""

    names: tuple[str, ...]
    """Of all weights."""
    initial: Weights
    """What a client keeps, before its first job."""

    @classmethod
    def of(cls, model: SplitModel, rules: Mapping[str, str]) -> "Exchange":
        """Return what travels if every one of the rules, by their fields, lets it."""
        initial = model.initial_weights()
        kept = frozenset[str]().union(*(kept_names(model, rule, field) for field, rule in rules.items()))
        return cls(tuple(initial), {name: tensor for name, tensor in initial.items() if name in kept})

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the weights that stay with each client, in the model's order."""
        return tuple(self.initial)

    def sent(self, weights: Weights) -> Weights:
        """Return what is exchanged of complete weights."""
        if not self.initial:
            return weights
        return {name: tensor for name, tensor in weights.items() if name not in self.initial}

    def server(self, server: ServerState) -> ServerState:
        """Return the server without the weights that stay with clients, of which it has the initial ones."""
        parameters = tuple(name for name in server.parameters if name not in self.initial)
        return replace(server, weights=self.sent(server.weights), parameters=parameters)

    def complete(self, weights: Weights, state: State) -> Weights:
        """Return a client's complete weights: those exchanged, and what it keeps in its state (or has at first)."""
        if not self.initial:
            return weights
        own = without_prefix(AT_HOME, state) or self.initial
        return {name: own[name] if name in self.initial else weights[name] for name in self.names}

    def state(self, methods: State, weights: Weights) -> State:
        """Return a client's state: the method's own, and what the client keeps of complete weights."""
        return {**methods, **prefixed(AT_HOME, pick(weights, self.kept))}

    def update(self, complete: Update) -> Update:
        """Return an update with complete weights as it is sent: what the client keeps goes into its state."""
        if not self.initial:
            return complete
        state = self.state(complete.state, complete.weights)
        return replace(complete, weights=self.sent(complete.weights), state=state)


def methods_own(state: State) -> State:
    """Return a client's state without the weights that it keeps: what the method itself put there."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(f"{AT_HOME}/")}


def check_exchange(federation: "Federation") -> None:
    """Raise `InputError` where a method, or the server's validation, takes more of the model than is exchanged."""
    if not federation.exchange.kept:
        if "not-norms" in (federation.experiment.server.exchange, federation.algorithm.exchange):
            log.warning("the model has no normalization layers, so clients keep nothing and everything is averaged")
        return
    if federation.initial_server().state:
        raise InputError(
            f"server.exchange: {federation.experiment.algorithm['name']!r} is not allowed with weights that stay with "
            "the clients: its server side remembers changes of all weights; set server.exchange to 'all'"
        )
    if len(federation.central_validation):
        raise InputError(
            "data.validation_by: 'central' is not allowed with weights that stay with the clients, as the server has "
            "no complete model; allowed: 'client'"
        )
