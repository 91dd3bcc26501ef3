"""A round of fedsol in the form that Flower's strategies have, so that Flower's privacy wrappers fit around it."""

import math
from collections.abc import Iterable, Mapping, Sequence
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
from fedsol.core.messages import Job, ServerState, Update
from fedsol.core.weights import clip_change, pick
from fedsol.engines.base import Aggregation
from fedsol.engines.flower import records


class RoundStrategy(Strategy):
    """Sends the jobs of a round to the nodes of their clients; aggregates with the algorithm's own rule.

    Which clients a round has, and how their updates are checked, is the round loop's to say.
    """

    def __init__(self) -> None:
        self.jobs: Sequence[Job] = ()
        self.nodes: Mapping[int, int] = {}
        self.timeout = 0.0
        self.before: ServerState | None = None
        self.updates: Sequence[Update] = ()
        self.rule: Aggregation | None = None
        self.after: ServerState | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each job. All share the arrays of the weights."""
        return [
            Message(
                records.job_records(job, arrays, config), self.nodes[job.client], MessageType.TRAIN, ttl=self.timeout
            )
            for job in self.jobs
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """New global weights from the updates, whose weights are those of the replies."""
        assert self.before is not None
        assert self.rule is not None
        weights = [records.from_arrays(reply.content.array_records[records.WEIGHTS]) for reply in replies]
        updates = [replace(update, weights=new) for update, new in zip(self.updates, weights, strict=True)]
        self.after = self.rule(self.before, updates)
        return records.to_arrays(self.after.weights), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each client that is to test the weights on what it held out."""
        return [
            Message(records.evaluation_records(arrays, config, client), node, MessageType.EVALUATE, ttl=self.timeout)
            for client, node in self.nodes.items()
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The round loop makes its own summary of the clients' tests."""
        return None

    def summary(self) -> None:
        """The experiment says everything."""


class Rounds:
    """Rounds through a strategy; with `[privacy]`, Flower's wrapper around it clips updates and adds noise."""

    def __init__(self, settings: PrivacySettings, per_round: int) -> None:
        self.inner = RoundStrategy()
        self._settings = settings
        self._wrapper: Any = None
        if settings.clipping != "off":
            kind = (
                DifferentialPrivacyServerSideFixedClipping
                if settings.clipping == "server"
                else DifferentialPrivacyClientSideFixedClipping
            )
            self._wrapper = kind(self.inner, settings.noise_multiplier, settings.clip_norm, per_round)

    def train_messages(
        self, round_number: int, jobs: Sequence[Job], arrays: ArrayRecord, config: Mapping[str, Any], grid: Grid
    ) -> list[Message]:
        """The messages of a round, in the order of its jobs."""
        strategy: Strategy = self._wrapper or self.inner
        self.inner.jobs = jobs
        messages = list(strategy.configure_train(round_number, arrays, ConfigRecord(dict(config)), grid))
        self.inner.jobs = ()  # with the states they hold
        return messages

    def evaluation_messages(
        self, round_number: int, arrays: ArrayRecord, config: Mapping[str, Any], grid: Grid
    ) -> list[Message]:
        """The messages that ask clients to test the weights, in the order of their nodes."""
        return list(self.inner.configure_evaluate(round_number, arrays, ConfigRecord(dict(config)), grid))

    def aggregate(
        self, round_number: int, before: ServerState, updates: Sequence[Update], rule: Aggregation
    ) -> ServerState:
        """The server after a round. The noise is measured to the number of updates that there are."""
        if self._wrapper is None:
            return rule(before, updates)
        self.inner.before, self.inner.rule = before, rule
        self.inner.updates = [self._ready_for_noise(update, before) for update in updates]
        self._wrapper.num_sampled_clients = len(updates)
        self._wrapper.current_arrays = records.to_arrays(before.weights)
        replies = [Message(records.update_records(update), 1, MessageType.TRAIN) for update in self.inner.updates]
        arrays, _ = self._wrapper.aggregate_train(round_number, replies)
        assert self.inner.after is not None
        noisy = records.from_arrays(arrays)
        return replace(self.inner.after, weights={name: noisy[name] for name in before.weights})

    def _ready_for_noise(self, update: Update, before: ServerState) -> Update:
        """In the server's own order, and no longer than the noise is made for, whatever a node did or left undone.

        Flower's clipping pairs arrays by their order, and divides by the length of the change.
        """
        ordered = {name: update.weights[name] for name in before.weights}
        if all(torch.equal(ordered[name], tensor) for name, tensor in before.weights.items()):
            name, tensor = next(iter(ordered.items()))
            ordered[name] = torch.nextafter(tensor, torch.full_like(tensor, math.inf))
        anchor = pick(before.weights, before.parameters)
        return replace(update, weights=clip_change(ordered, anchor, self._settings.clip_norm))
