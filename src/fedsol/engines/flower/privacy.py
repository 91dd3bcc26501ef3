"""A round in the form of a Flower strategy, so that Flower's privacy wrappers fit around it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fedsol.config.tables import PrivacySettings
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import clip_change, pick
from fedsol.engines.base import Aggregation
from fedsol.engines.flower import records

MessagesOf = Callable[[ArrayRecord, ConfigRecord], list[Message]]
"""Makes the messages of a round from its weights and their common configuration."""


UNUSED_ROUND = 0
"""Flower's wrappers use the number of a round for accounting alone, which is off."""


class RoundStrategy(Strategy):
    """One round as a Flower strategy. The round loop chooses the clients and checks their updates."""

    def __init__(self) -> None:
        self.messages_of: MessagesOf = lambda _arrays, _config: []
        self.before: ServerState | None = None
        self.updates: Sequence[Update] = ()
        self.rule: Aggregation | None = None
        self.after: ServerState | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.messages_of(arrays, config)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the updates with the weights of the replies."""
        assert self.before is not None
        assert self.rule is not None
        weights = [records.from_arrays(reply.content.array_records[records.WEIGHTS]) for reply in replies]
        updates = [replace(update, weights=new) for update, new in zip(self.updates, weights, strict=True)]
        self.after = self.rule(self.before, updates)
        return records.to_arrays(self.after.weights), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        return


class PrivateRounds:
    """Rounds inside Flower's privacy wrapper, which clips updates and adds noise; plain ones without `[privacy]`."""

    def __init__(self, settings: PrivacySettings, per_round: int) -> None:
        self._inner = RoundStrategy()
        self._settings = settings
        self._wrapper: Any = None
        if settings.clipping != "off":
            kind = (
                DifferentialPrivacyServerSideFixedClipping
                if settings.clipping == "server"
                else DifferentialPrivacyClientSideFixedClipping
            )
            self._wrapper = kind(self._inner, settings.noise_multiplier, settings.clip_norm, per_round)

    def train_messages(
        self, messages_of: MessagesOf, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round; the wrapper may ask clients to clip their updates."""
        if self._wrapper is None:
            return messages_of(arrays, config)
        self._inner.messages_of = messages_of
        return list(self._wrapper.configure_train(UNUSED_ROUND, arrays, config, grid))

    def aggregate(self, before: ServerState, updates: Sequence[Update], rule: Aggregation) -> ServerState:
        """Return the server after a round. The noise fits the number of updates."""
        if self._wrapper is None:
            return rule(before, updates)
        self._inner.before, self._inner.rule = before, rule
        self._inner.updates = [self._ready_for_noise(update, before) for update in updates]
        self._wrapper.num_sampled_clients = len(updates)
        self._wrapper.current_arrays = records.to_arrays(before.weights)
        replies = [Message(records.update_records(update), 1, MessageType.TRAIN) for update in self._inner.updates]
        arrays, _ = self._wrapper.aggregate_train(UNUSED_ROUND, replies)
        assert self._inner.after is not None
        noisy = records.from_arrays(arrays)
        return replace(self._inner.after, weights={name: noisy[name] for name in before.weights})

    def _ready_for_noise(self, update: Update, before: ServerState) -> Update:
        """Return an update in the server's own order, clipped to the norm that the noise is made for.

        A node may have done neither; Flower's clipping pairs arrays by their order and divides by the change's norm.
        """
        ordered = {name: update.weights[name] for name in before.weights}
        if all(torch.equal(ordered[name], tensor) for name, tensor in before.weights.items()):
            name, tensor = next(iter(ordered.items()))
            ordered[name] = torch.nextafter(tensor, torch.full_like(tensor, math.inf))
        anchor = pick(before.weights, before.parameters)
        return replace(update, weights=clip_change(ordered, anchor, self._settings.clip_norm))
