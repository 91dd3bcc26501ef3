"""Which round of a run is the best, and whether the run stopped before its last round: both follow from its rows."""

import math
from collections.abc import Mapping, Sequence
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
        results = self.results(rows)
        return max(results, key=lambda pair: self._rank(pair[1]))[0] if results else None

    def find_stop(self, rows: Sequence[Row]) -> Stop | None:
        """Return where a run with these rows stops; None if it does not."""
        return self._find_spent(rows) or self._find_result(rows)

    def _find_spent(self, rows: Sequence[Row]) -> Stop | None:
        if self.budget is None:
            return None
        for row in rows:
            spent, after = row.get("epsilon"), row.get("epsilon_next")
            if row["round"] != self.rounds and spent is not None and after is not None and after > self.budget:
                reason = f"one more round would make epsilon {after:.4g}, more than privacy.epsilon = {self.budget:g}"
                return Stop(row["round"], f"{reason} ({spent:.4g} is spent)")
        return None

    def _find_result(self, rows: Sequence[Row]) -> Stop | None:
        if self.patience is None and self.stop_at is None:
            return None
        best_round, best, waited = 0, -math.inf, 0
        for number, value in self.results(rows):
            waited += 1
            if self._rank(value) > best:
                best_round, best, waited = number, self._rank(value), 0
            if self.stop_at is not None and self._rank(value) >= self._rank(self.stop_at):
                return Stop(
                    number, f"{self.name} {self.measure.text(value)} has reached server.stop_at = {self.stop_at:g}"
                )
            if self.patience is not None and waited >= self.patience:
                rounds = f"{waited} evaluated round{'s' * (waited > 1)}"
                return Stop(number, f"no better {self.name} than in round {best_round} for {rounds} (server.patience)")
        return None

    def _rank(self, value: float) -> float:
        return value if self.measure.higher_is_better else -value
