"""Which round of a run is the best, and whether the run stopped before its last round: both follow from its rows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from fedsol.config.task import Measure, primary_of
from fedsol.runs.rows import Row


@dataclass(frozen=True)
class Stop:
    """The end of a run before its last round."""

    round: int
    reason: str


@dataclass(frozen=True)
class Selection:
    """What rounds are judged by, and when that ends the run."""

    measure: Measure
    on: Literal["validation", "test"] = "validation"
    patience: int | None = None
    stop_at: float | None = None
    budget: float | None = None
    """Epsilon that no round may exceed."""
    rounds: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the selection of an experiment, given with dotted keys and not necessarily valid.

        Rounds are judged by the primary metric on the validation set. Only without one does the test set decide.
        """
        on: Literal["validation", "test"] = "validation" if settings.get("data.validation") else "test"
        patience, stop_at = (settings.get(f"server.{key}") for key in ("patience", "stop_at"))
        return cls(
            primary_of(settings),
            on,
            patience if isinstance(patience, int) else None,
            stop_at if isinstance(stop_at, int | float) else None,
            settings.get("privacy.epsilon"),
            settings.get("rounds"),
        )

    @property
    def has_validation(self) -> bool:
        """Whether rounds are judged on a validation set, and not on the test set."""
        return self.on == "validation"

    @property
    def key(self) -> str:
        """The column of metrics.jsonl."""
        return f"{self.on}_{self.measure.key}"

    @property
    def name(self) -> str:
        """What rounds are judged by, in words."""
        return f"{self.on} {self.measure.title}"

    def results(self, rows: Sequence[Row]) -> list[tuple[int, float]]:
        """Return (round, value) of every evaluated round."""
        found = [(row["round"], row.get(self.key)) for row in rows]
        return [(number, value) for number, value in found if isinstance(value, int | float) and math.isfinite(value)]

    def best_round(self, rows: Sequence[Row]) -> int | None:
        """Return the round with the best value, of equals the first; None if no round was evaluated."""
        return Standing(self, rows).best_round

    def find_stop(self, rows: Sequence[Row]) -> Stop | None:
        """Return where a run with these rows stops; None if it does not."""
        return Standing(self, rows).stop if self.may_stop else None

    @property
    def may_stop(self) -> bool:
        """Whether there is a rule that may end a run before its last round."""
        return (self.budget, self.patience, self.stop_at) != (None, None, None)

    def rank(self, value: float) -> float:
        """Return a number that is higher for a better value."""
        return value if self.measure.higher_is_better else -value


class Standing:
    """What the rows so far say of a run, added one by one: its best round, and where it stops."""

    def __init__(self, selection: Selection, rows: Iterable[Row] = ()) -> None:
        self.best_round: int | None = None
        self.stop: Stop | None = None
        self._selection, self._best, self._waited = selection, -math.inf, 0
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add the next row."""
        self.stop = self.stop or self._spent(row)
        for number, value in self._selection.results([row]):
            self._waited += 1
            if self._selection.rank(value) > self._best:
                self.best_round, self._best, self._waited = number, self._selection.rank(value), 0
            self.stop = self.stop or self._judged(number, value)

    def _spent(self, row: Row) -> Stop | None:
        budget, spent, after = self._selection.budget, row.get("epsilon"), row.get("epsilon_next")
        is_last = row["round"] == self._selection.rounds
        if is_last or budget is None or spent is None or after is None or after <= budget:
            return None
        reason = f"one more round would make epsilon {after:.4g}, more than privacy.epsilon = {budget:g}"
        return Stop(row["round"], f"{reason} ({spent:.4g} is spent)")

    def _judged(self, number: int, value: float) -> Stop | None:
        rule, waited = self._selection, self._waited
        if rule.stop_at is not None and rule.rank(value) >= rule.rank(rule.stop_at):
            return Stop(number, f"{rule.name} {rule.measure.text(value)} has reached server.stop_at = {rule.stop_at:g}")
        if rule.patience is not None and waited >= rule.patience:
            rounds = f"{waited} evaluated round{'s' * (waited > 1)}"
            return Stop(number, f"no better {rule.name} than in round {self.best_round} for {rounds} (server.patience)")
        return None
