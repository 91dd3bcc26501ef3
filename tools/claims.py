"""The paper's claims: tables from `results/claims.toml`, with numbers and verdicts from the runs.

`ours = ["group/name", "group/other"]` is a difference of two runs, of the same seeds and in rounds that both tested. It
is compared with the difference of the same rows of the paper; a single run with a single row. `*` in a group's name
stands for anything: the longest of such runs counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from scipy import stats

from fedsol.config.experiment import read_toml
from fedsol.errors import InputError
from fedsol.paper.numbers import Key, Number, read_table
from fedsol.paper.store import LAST, paper_setting
from fedsol.runs.run import Run
from tools.results import ComputedTable, Result

Seeds: TypeAlias = Mapping[int, Result]
"""The runs of one name by seed."""

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested"
LEVEL = 2.0
"""How many standard deviations a level may be off."""
CHANCE = 0.05
"""How likely chance alone may be to make a difference that counts."""

INTRODUCTION = f"""## The paper's claims

- **ours**: mean of the last {LAST} tested rounds in %, or the difference of two such means in points.
  Differences are of the same seeds. ± is the standard deviation over seeds.
- **apart**: ours less the paper's, in standard deviations of both together. Without a number of the
  paper: ours. An asterisk: one seed of ours, with the deviation of another method's seeds.
- **verdict**: only for runs with all rounds of the paper. A level **holds** within {LEVEL:g} deviations of
  the paper's. A difference **holds** if it is above 0 in a one-sided t-test over seeds ({100 * CHANCE:g} %), and
  **does not hold** if it is as clearly below 0. What the seeds do not decide counts as not tested.
- From three seeds a deviation is known only to within about half of it.
"""

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

    `rounds` are the first and last that count, else the last ten tested ones. `table` names a cell of a computed table,
    or two for their ratio, ours and the paper's. `verdict` is for claims that no training run decides.
    """

    claim: str
    says: str = ""
    verdict: str = UNTESTED
    ours: Sequence[str] = ()
    like: Sequence[str] = ()
    rounds: Sequence[int] = ()
    measure: str = "accuracy"
    paper: Sequence[Sequence[str]] = ()
    table: Sequence[Sequence[str]] = ()
    shown: str = ""
    published: str = ""


@dataclass(frozen=True)
class Value:
    """A level, or a difference with its sign, of so many seeds; `std` is None where nothing says what it is."""

    mean: float
    std: float | None
    sign: str = ""
    seeds: int = 1

    def __str__(self) -> str:
        return f"{self.mean:{self.sign}.1f}" + (f" ± {self.std:.1f}" if self.std is not None else "")


def claims(file: Path, results: Sequence[Result], tables: Mapping[str, ComputedTable]) -> list[str]:
    """Return a section of Markdown for every question; nothing without the file."""
    if not file.is_file():
        return []
    runs: dict[str, dict[int, Result]] = {}
    for result in results:
        runs.setdefault(result.called, {})[result.experiment.seed] = result
    sections = [INTRODUCTION]
    for question in read_toml(file)["question"]:
        lines = [_line(_read_claim(table), runs, tables) for table in question["claim"]]
        about = [question["about"].strip(), ""] if "about" in question else []
        sections.append("\n".join([f"### {question['title']}", "", *about, HEAD, *lines]) + "\n")
    return sections


def _read_claim(table: Mapping[str, Any]) -> Claim:
    """Return a claim with known keys, verdict and measure."""
    name = table.get("claim")
    if unknown := sorted(table.keys() - {field.name for field in fields(Claim)}):
        raise InputError(f"claim {name!r}: unknown key {unknown[0]!r}")
    if "ours" in table and "verdict" in table:
        raise InputError(f"claim {name!r}: verdict: is not allowed with ours, which decides it")
    claim = Claim(**table)
    verdicts = (HOLDS, FAILS, UNTESTED)
    for key, value, allowed in (("verdict", claim.verdict, verdicts), ("measure", claim.measure, MEASURES)):
        if value not in allowed:
            raise InputError(f"claim {name!r}: {key}: must be one of {', '.join(allowed)} (got {value!r})")
    return claim


def _line(claim: Claim, runs: Mapping[str, Seeds], tables: Mapping[str, ComputedTable]) -> str:
    """Return the row of a claim."""
    seeds, rounds, verdict, shown, published = "", "", claim.verdict, claim.shown, claim.published
    apart, note = "", ""
    if claim.ours:
        chosen = _chosen(claim, "ours", runs)
        ours = _measured(claim, chosen)
        paper = _published(claim.paper) if claim.paper else None
        if not (ours.sign or paper):
            raise InputError(f"claim {claim.claim!r}: paper: is missing; a run alone is compared with a row of it")
        first = next(iter(chosen[0].values()))
        whole = paper_setting(first.experiment).rounds
        common = _common_seeds(chosen)
        done = min(found[seed].rounds for found in chosen for seed in common)
        seeds = ", ".join(map(str, common))
        rounds = f"{'–'.join(map(str, claim.rounds)) or done} of {whole}"
        shown, published = str(ours), str(paper or claim.published)
        if done >= whole:
            like = _measured(claim, _chosen(claim, "like", runs)) if claim.like else None
            verdict, apart, note = _verdict(ours, paper, like if ours.std is None else ours)
    elif claim.table:
        shown, published = _computed(claim, tables)
    cells = [claim.claim, f"**{verdict}**", seeds, rounds, shown, published, apart]
    return f"| {' | '.join(cells)} | {' '.join(filter(None, (claim.says, note)))} |"


def _verdict(ours: Value, paper: Value | None, like: Value | None) -> tuple[str, str, str]:
    """Return the verdict on a value, how far it is from the paper's (or 0) in deviations, and why none is possible.

    `like` is the value whose deviation counts.
    """
    if like is None or like.std is None:
        return UNTESTED, "–", "One seed."
    error = hypot(like.std, (paper and paper.std) or 0) or 1e-9  # the same with every seed
    apart = (ours.mean - (paper.mean if paper else 0)) / error
    shown = f"{apart:+.1f}" + (" *" if ours.std is None else "")
    if not ours.sign:
        return (HOLDS if abs(apart) <= LEVEL else FAILS), shown, ""
    claimed = ours.mean if paper is None or paper.mean > 0 else -ours.mean
    least = stats.t.ppf(1 - CHANCE, like.seeds - 1) * like.std / sqrt(ours.seeds)
    if abs(claimed) <= least:
        return UNTESTED, shown, "Too close to tell."
    return (HOLDS if claimed > 0 else FAILS), shown, ""


def _chosen(claim: Claim, key: str, runs: Mapping[str, Seeds]) -> list[Seeds]:
    """Return the runs that a claim names, which have a seed in common."""
    chosen = [_named(claim, name, runs) for name in getattr(claim, key)]
    if not _common_seeds(chosen):
        raise InputError(f"claim {claim.claim!r}: {key}: the runs have no seed in common")
    return chosen


def _named(claim: Claim, name: str, runs: Mapping[str, Seeds]) -> Seeds:
    found = [seeds for called, seeds in runs.items() if fnmatchcase(called, name)]
    if not found:
        raise InputError(f"claim {claim.claim!r}: there is no run {name!r}")
    return max(found, key=lambda seeds: min(result.rounds for result in seeds.values()))


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
    std = stdev(values) if len(values) > 1 else None
    return Value(fmean(values), std, "+" if len(chosen) > 1 else "", len(values))


def _number(cell: Sequence[str]) -> Number:
    table, block, row, column = cell
    return read_table(table).numbers[block, row, column]


def _published(cells: Sequence[Sequence[str]]) -> Value:
    """Return the paper's number, or what its first is more than its second, taken as independent."""
    numbers = [_number(cell) for cell in cells]
    stds = [number.std for number in numbers]
    std = hypot(*(std for std in stds if std is not None)) if None not in stds else None
    means = [number.mean for number in numbers]
    return Value(means[0] - sum(means[1:]), std, "+" if len(cells) > 1 else "")


def _computed(claim: Claim, tables: Mapping[str, ComputedTable]) -> tuple[str, str]:
    """Return a number of a computed table, or the ratio of two, ours and the paper's."""
    ours = []
    for table, *key in claim.table:
        found = tables[table].numbers.get(_key(key)) if table in tables else None
        if found is None:
            raise InputError(f"claim {claim.claim!r}: table: there is no number of ours at {[table, *key]}")
        ours.append(found.mean)
    theirs = [_number(cell).mean for cell in claim.table]
    return _ratio(ours), _ratio(theirs)


def _key(texts: Sequence[str]) -> Key:
    block, row, column = texts
    return block, row, column


def _ratio(values: Sequence[float]) -> str:
    return f"{values[0] / values[1] if len(values) > 1 else values[0]:.2f}"
