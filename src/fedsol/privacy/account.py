"""Accounts: how often a run, or a node, has released something. They only ever grow."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedsol.core.files import disk_errors_named, read_json_object, write_atomically
from fedsol.errors import RunError
from fedsol.privacy.accounting import Mechanism

ACCOUNT_FILE = "privacy.json"

ROUNDING = 1e-9
"""Of sums: ten runs of delta 1e-5 spend 1e-4, and no more."""


@dataclass
class Account:
    """In a simulation, a round that is repeated after a kill releases what it did before: it counts once."""

    mechanism: Mechanism
    delta: float
    budget: float | None = None
    releases: int = 0

    def begin(self) -> None:
        """Start the account of a new run."""

    def charge(self, round_number: int) -> None:
        """Record a release, before it is made."""
        self.releases = round_number

    def resume(self, rounds: int, found: int, recorded: int) -> None:
        """Continue after this many rounds; `found` have rows, which have recorded this many releases."""
        self.releases = rounds

    @property
    def epsilon(self) -> float:
        """What is spent."""
        return self.mechanism.epsilon(self.releases, self.delta)

    @property
    def next_epsilon(self) -> float:
        """What will be spent after one more release."""
        return self.mechanism.epsilon(self.releases + 1, self.delta)

    @property
    def is_spent(self) -> bool:
        """Whether one more release would exceed the budget."""
        return self.budget is not None and self.next_epsilon > self.budget


@dataclass
class DeployedAccount(Account):
    """In a deployment, the noise of a repeated round is new: every attempt counts, and is on disk before it is made."""

    folder: Path = Path()

    def begin(self) -> None:
        self._write()

    def charge(self, round_number: int) -> None:
        self.releases += 1
        self._write()

    def _write(self) -> None:
        with disk_errors_named(self.folder):
            write_atomically(self.folder / ACCOUNT_FILE, json.dumps({"releases": self.releases}) + "\n")

    def resume(self, rounds: int, found: int, recorded: int) -> None:
        path = self.folder / ACCOUNT_FILE
        if not path.is_file() and (recorded or not found):  # rounds without a record are of a version without accounts
            raise RunError(f"{path}: is missing: an account cannot be reset, so the run cannot be resumed")
        saved = read_json_object(path).get("releases") if path.is_file() else 0
        if not isinstance(saved, int) or saved < recorded:
            raise RunError(
                f"{path}: must count the {recorded} releases that metrics.jsonl has (got {saved}): an account cannot "
                "be reset, so the run cannot be resumed"
            )
        self.releases = max(saved, found)  # rounds of a version without accounts count once


class AbstainError(RunError):
    """Why a node does not take part in a round. It may leave the node: it follows from counts and settings alone."""


@dataclass(frozen=True)
class NodeLimit:
    """What a node's own configuration lets all of its runs spend together, whatever the server sends."""

    epsilon: float
    delta: float = 1e-4
    """Both add up. Without a limit of delta, a server's own of nearly 1 would make every epsilon small."""


@dataclass(frozen=True)
class NodeAccount:
    """What the runs of a node have spent of its samples: one file for each run, on the node's own disk.

    Every local step is counted before its noise is drawn, so a job that is repeated is paid for again. The file also
    has what a step releases and the budget, which cannot change during a run.
    """

    folder: Path
    """Of the client in the run; two above it is that of all runs of the node."""
    mechanism: Mechanism
    delta: float
    budget: float | None
    """Of the run."""
    limit: NodeLimit | None = None

    def charge(self, releases: int) -> tuple[float, float]:
        """Count so many releases; return epsilon after them, and after as many more. Refuse what exceeds a budget."""
        path = self.folder / ACCOUNT_FILE
        agreed = {"mechanism": asdict(self.mechanism), "delta": self.delta, "budget": self.budget}
        with disk_errors_named(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self._all_runs / f"{ACCOUNT_FILE}.lock"):
                saved: dict[str, Any] = {**agreed, "releases": 0} if not path.is_file() else read_json_object(path)
                if {**saved, **agreed} != saved:
                    raise AbstainError(
                        "its account of this run began with other settings of [privacy] or client.batch_size, or with "
                        "another number of samples"
                    )
                total = saved["releases"] + releases
                spent, after = (self.mechanism.epsilon(count, self.delta) for count in (total, total + releases))
                self._check(spent, path)
                write_atomically(path, json.dumps({**agreed, "releases": total}) + "\n")
        return spent, after

    @property
    def _all_runs(self) -> Path:
        return self.folder.parent.parent

    def _check(self, spent: float, path: Path) -> None:
        """Raise `AbstainError` if a budget is too small."""
        if self.budget is not None and spent > self.budget:
            raise AbstainError(f"it would spend epsilon = {spent:.4g}, more than privacy.epsilon = {self.budget:g}")
        if self.limit is None:
            return
        others = [_spent(other) for other in self._all_runs.glob(f"*/*/{ACCOUNT_FILE}") if other != path]
        epsilon, delta = (sum(column) for column in zip((spent, self.delta), *others, strict=True))
        for name, together, most in (("epsilon", epsilon, self.limit.epsilon), ("delta", delta, self.limit.delta)):
            if together > most * (1 + ROUNDING):
                raise AbstainError(
                    f"its runs would spend {name} = {together:.4g} together, more than max-{name} = {most:g} in the "
                    "node's configuration"
                )


def _spent(path: Path) -> tuple[float, float]:
    """Return epsilon and delta of a node's account."""
    saved: Any = read_json_object(path)
    return Mechanism(**saved["mechanism"]).epsilon(saved["releases"], saved["delta"]), saved["delta"]
