"""What became of the paper's claims: tables from `results/claims.toml`, with numbers of the runs beside it.

`ours = ["group/name", "group/other"]` is a difference of two runs, taken with the same seeds and in rounds that both
tested, and is held against the difference of the same rows of the paper; a single run is held against a single row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import hypot
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedsol.config.experiment import read_toml
from fedsol.errors import InputError
from fedsol.paper.numbers import read_table
from fedsol.paper.store import LAST, paper_setting
from fedsol.runs.run import Run
from tools.results import Result

Seeds = Mapping[int, Result]
"""The runs of one name by seed."""

VERDICTS = ("holds", "does not hold", "not tested")
HEAD = """| claim | verdict | seeds | rounds | ours | paper | apart | |
|---|---|---:|---:|---:|---:|---:|---|"""


def _accuracy(run: Run, rounds: Sequence[int]) -> float:
    """Return the mean test accuracy of these rounds in %."""
    return 100 * fmean(accuracy for number, accuracy in run.accuracies if number in rounds)


def _swing(run: Run, rounds: Sequence[int]) -> float:
    """Return how much a class's accuracy varies over these rounds: its standard deviation in %, mean over classes."""
    tested = [row["class_accuracy"] for row in run.rows if row["round"] in rounds]
    return 100 * fmean(map(stdev, zip(*(classes for classes in tested if classes), strict=True)))


MEASURES: dict[str, Callable[[Run, Sequence[int]], float]] = {"accuracy": _accuracy, "swing": _swing}


@dataclass(frozen=True)
class Claim:
    """A line of the file. `like` are runs of several seeds, whose deviation stands in for that of a single one.

    `rounds` are the first and last that count, else the last ten tested ones; `shown` and `published` are texts where
    a number of ours or the paper's is in no file of runs or tables.
    """

    claim: str
    verdict: str
    says: str
    ours: Sequence[str] = ()
    like: Sequence[str] = ()
    rounds: Sequence[int] = ()
    measure: str = "accuracy"
    paper: Sequence[Sequence[str]] = ()
    shown: str = ""
    published: str = ""


@dataclass(frozen=True)
class Value:
    """A level, or a difference with its sign; `std` is None where nothing says what it is."""

    mean: float
    std: float | None
    sign: str = ""

    def __str__(self) -> str:
        return f"{self.mean:{self.sign}.1f}" + (f" ± {self.std:.1f}" if self.std is not None else "")


def claims(file: Path, results: Sequence[Result]) -> list[str]:
    """Return a section of Markdown for every question; nothing without the file."""
    if not file.is_file():
        return []
    runs: dict[str, dict[int, Result]] = {}
    for result in results:
        runs.setdefault(result.called, {})[result.experiment.seed] = result
    sections = []
    for question in read_toml(file)["question"]:
        lines = [_line(_read_claim(table, runs), runs) for table in question["claim"]]
        about = [question["about"].strip(), ""] if "about" in question else []
        sections.append("\n".join([f"### {question['title']}", "", *about, HEAD, *lines]) + "\n")
    return sections


def _read_claim(table: Mapping[str, Any], runs: Mapping[str, Seeds]) -> Claim:
    """Return a claim whose verdict and runs are known."""
    name = table.get("claim")
    if unknown := sorted(table.keys() - {field.name for field in fields(Claim)}):
        raise InputError(f"claim {name!r}: unknown key {unknown[0]!r}")
    claim = Claim(**table)
    for key, value, allowed in (("verdict", claim.verdict, VERDICTS), ("measure", claim.measure, MEASURES)):
        if value not in allowed:
            raise InputError(f"claim {name!r}: {key}: must be one of {', '.join(allowed)} (got {value!r})")
    if missing := [run for run in (*claim.ours, *claim.like) if run not in runs]:
        raise InputError(f"claim {name!r}: there is no run {missing[0]!r}")
    for key, names in (("ours", claim.ours), ("like", claim.like)):
        if names and not _common_seeds([runs[run] for run in names]):
            raise InputError(f"claim {name!r}: {key}: the runs have no seed in common")
    return claim


def _line(claim: Claim, runs: Mapping[str, Seeds]) -> str:
    """Return the row of a claim; "apart" is what ours and the paper's (or 0) are apart, in standard deviations."""
    paper = _published(claim.paper) if claim.paper else None
    seeds, rounds, shown, apart = "", "", claim.shown, ""
    if claim.ours:
        chosen = [runs[name] for name in claim.ours]
        ours = _measured(claim, chosen)
        first = next(iter(chosen[0].values()))
        whole = paper_setting(first.experiment).rounds
        common = _common_seeds(chosen)
        done = min(found[seed].rounds for found in chosen for seed in common)
        seeds = ", ".join(map(str, common))
        rounds = f"{'–'.join(map(str, claim.rounds)) or done} of {whole}"
        shown = str(ours)
        if done == whole and (paper or ours.sign):
            apart = _apart(ours, paper, _measured(claim, [runs[name] for name in claim.like]) if claim.like else None)
    cells = [claim.claim, f"**{claim.verdict}**", seeds, rounds, shown, str(paper or claim.published), apart]
    return f"| {' | '.join(cells)} | {claim.says} |"


def _apart(ours: Value, paper: Value | None, like: Value | None) -> str:
    """Return the distance in standard deviations of the difference, marked if ours is that of other runs."""
    std = ours.std if ours.std is not None else like and like.std
    if not std or (paper and paper.std is None):
        return "–"
    error = hypot(std, paper.std or 0) if paper else std
    return f"{(ours.mean - (paper.mean if paper else 0)) / error:+.1f}" + (" *" if ours.std is None else "")


def _common_seeds(chosen: Sequence[Seeds]) -> list[int]:
    return sorted(set.intersection(*(set(results) for results in chosen)))


def _measured(claim: Claim, chosen: Sequence[Seeds]) -> Value:
    """Return mean and deviation over seeds of a run's measure, or of what the first has more than the second."""
    values = []
    for seed in _common_seeds(chosen):
        own = [results[seed].run for results in chosen]
        tested = sorted(set.intersection(*({number for number, _ in run.accuracies} for run in own)))
        first, last = claim.rounds or (tested[-LAST:][0], tested[-1])
        rounds = [number for number in tested if first <= number <= last]
        measures = [MEASURES[claim.measure](run, rounds) for run in own]
        values.append(measures[0] - sum(measures[1:]))
    return Value(fmean(values), stdev(values) if len(values) > 1 else None, "+" if len(chosen) > 1 else "")


def _published(cells: Sequence[Sequence[str]]) -> Value:
    """Return the paper's number, or what its first is more than its second, taken as independent."""
    numbers = [read_table(table).numbers[block, row, column] for table, block, row, column in cells]
    stds = [number.std for number in numbers]
    std = hypot(*(std for std in stds if std is not None)) if None not in stds else None
    means = [number.mean for number in numbers]
    return Value(means[0] - sum(means[1:]), std, "+" if len(cells) > 1 else "")
