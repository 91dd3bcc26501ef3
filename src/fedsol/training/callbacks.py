"""Callback: follow a run; what it sees of a finished round, and how it ends a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedsol.core.messages import ServerState, Update
from fedsol.federation.evaluation import Tally
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row
from fedsol.runs.run import Run


@dataclass(frozen=True)
class RoundResult:
    """A finished round, as callbacks see it."""

    round: int
    before: ServerState
    """With the weights that the clients received."""
    after: ServerState
    updates: Sequence[Update]
    """The accepted updates, by client id; without tensors unless a callback needs them."""
    evaluation: Tally | None
    """On the global test set, if the round was evaluated."""
    held_out: Mapping[int, Tally]
    """On the clients' hold-out sets, by client."""
    row: Row


class StopTraining(Exception):  # noqa: N818 (as StopIteration: it is no error)
    """Raised by a callback: the run ends after this round, is saved, and is returned as any other."""


class Callback:
    """Follow a run: override what you need. A callback must not change the run; `StopTraining` ends it."""

    needs_updates: ClassVar[bool] = True
    """Whether `round_finished` reads the tensors of updates. If no callback does, a round may drop them earlier."""

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        """Handle the start of this process; `rows` are those of rounds finished earlier."""

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        """Handle the start of a round, when its clients are known."""

    def client_finished(self, update: Update) -> None:
        """Handle a client's update when it arrives."""

    def round_finished(self, result: RoundResult) -> None:
        """Handle a round that is finished and saved."""

    def finished(self, run: Run) -> None:
        """Handle the end of the run: complete, or interrupted after saving."""
