"""A round of fedsol in the form that Flower's strategies have, so that Flower's privacy wrappers fit around it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fedsol.engines.base import Aggregation
from fedsol.engines.flower import records
from fedsol.messages import Job, ServerState, Update
from fedsol.settings import PrivacySettings
from fedsol.weights import Weights


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
        """One message for each job whose client has a node."""
        return [
            Message(records.job_records(job, config), self.nodes[job.client], MessageType.TRAIN, ttl=self.timeout)
            for job in self.jobs
            if job.client in self.nodes
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
        weights = records.from_arrays(arrays)
        return [
            Message(records.evaluation_records(weights, config, client), node, MessageType.EVALUATE, ttl=self.timeout)
            for client, node in self.nodes.items()
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The round loop makes its own summary of the clients' tests."""
        return None

    def summary(self) -> None:
        """The experiment says everything."""


class PrivateRounds:
    """Rounds whose updates are clipped, and whose result is made noisy, by Flower's wrappers."""

    def __init__(self, settings: PrivacySettings, per_round: int) -> None:
        self.inner = RoundStrategy()
        self.outer: Any = self.inner
        if settings.clipping != "off":
            wrapper = (
                DifferentialPrivacyServerSideFixedClipping
                if settings.clipping == "server"
                else DifferentialPrivacyClientSideFixedClipping
            )
            self.outer = wrapper(self.inner, settings.noise_multiplier, settings.clip_norm, per_round)

    def messages(self, round_number: int, weights: Weights, config: Mapping[str, Any], grid: Grid) -> list[Message]:
        """The messages of a round."""
        return list(
            self.outer.configure_train(round_number, records.to_arrays(weights), ConfigRecord(dict(config)), grid)
        )

    def aggregate(
        self, round_number: int, before: ServerState, updates: Sequence[Update], rule: Aggregation
    ) -> ServerState:
        """The server after a round. The noise is measured to the number of updates that there are."""
        if self.outer is self.inner:
            return rule(before, updates)
        self.inner.before, self.inner.updates, self.inner.rule = before, updates, rule
        self.outer.num_sampled_clients = len(updates)
        replies = [
            Message(records.update_records(replace(update, state={})), 1, MessageType.TRAIN) for update in updates
        ]
        arrays, _ = self.outer.aggregate_train(round_number, replies)
        assert self.inner.after is not None
        noisy = records.from_arrays(arrays)
        return replace(self.inner.after, weights={name: noisy[name] for name in before.weights})
