"""The account of a run: how often it has released something. It only ever grows."""

import json
from dataclasses import dataclass
from pathlib import Path

from fedsol.core.files import disk_errors_named, read_json_object, write_atomically
from fedsol.errors import RunError
from fedsol.privacy.accounting import Mechanism

ACCOUNT_FILE = "privacy.json"


@dataclass
class Account:
    """In a simulation, a round that is repeated after a kill releases what it did before: it counts once."""

    mechanism: Mechanism
    delta: float
    budget: float | None = None
    releases: int = 0

    def charge(self, round_number: int) -> None:
        """Record a release, before it is made."""
        self.releases = round_number

    def resume(self, rounds: int, found: int, recorded: int) -> None:
        """Continue after so many rounds; `found` have rows, which have recorded so many releases."""
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

    def charge(self, round_number: int) -> None:
        self.releases += 1
        with disk_errors_named(self.folder):
            write_atomically(self.folder / ACCOUNT_FILE, json.dumps({"releases": self.releases}) + "\n")

    def resume(self, rounds: int, found: int, recorded: int) -> None:
        path = self.folder / ACCOUNT_FILE
        saved = read_json_object(path).get("releases") if path.is_file() else 0
        if not isinstance(saved, int) or saved < recorded:
            raise RunError(
                f"{path}: must count the {recorded} releases that metrics.jsonl has (got {saved}): an account cannot "
                "be reset, so the run cannot be resumed"
            )
        self.releases = max(saved, found)  # rounds of a version without accounts count once
