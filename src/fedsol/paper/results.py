"""What we have for the cells of a recipe, and in what it is not the paper's setting."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedsol.config.experiment import Experiment
from fedsol.paper.numbers import Key
from fedsol.paper.recipe import Cell, FinishedRun, Ours, Recipe
from fedsol.paper.setting import SEEDS
from fedsol.paper.store import differing, flat


def ours_of(cell: Cell, runs: Sequence[FinishedRun]) -> Ours | None:
    """The mean over seeds of the last test accuracy, in %; None without a run."""
    values = [100 * run.accuracy for run in runs if run.accuracy is not None]
    if not values or cell.experiment is None:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return Ours(statistics.fmean(values), std, tuple(differences(cell.experiment, runs)), tuple(runs))


def differences(paper: Experiment, runs: Sequence[FinishedRun]) -> list[str]:
    """In what the runs of a cell are not the paper's: fewer rounds, fewer seeds, part of the data, other settings."""
    said = []
    rounds = sorted({len(run.rows) for run in runs})
    if rounds != [paper.rounds]:
        said.append(f"{' to '.join(map(str, rounds))} of {paper.rounds} rounds")
    if len(runs) < len(SEEDS):
        said.append(f"{len(runs)} of {len(SEEDS)} seeds")
    keys = sorted({key for run in runs for key in differing(run.experiment, paper)} - {"rounds"})
    for key in keys:
        values = sorted({str(flat(run.experiment).get(key)) for run in runs})
        said.append(_describe(key, " or ".join(values), flat(paper).get(key)))
    if rejected := sum(row["rejected"] for run in runs for row in run.rows):
        said.append(f"{rejected} updates rejected as unfit")
    return said


def _describe(key: str, value: str, paper: Any) -> str:
    if key == "data.part":
        return f"{100 * float(value):g} % of every client's data and of the test set"
    return f"{key} {value} instead of {paper}"


def as_rows(recipe: Recipe, cells: Sequence[Cell], ours: Mapping[Key, Ours]) -> dict[str, Any]:
    """A filled table as plain values, for JSON."""
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "label": recipe.label,
        "unit": recipe.unit,
        "partial": is_partial(cells, ours),
        "cells": [_row(cell, ours.get(cell.key)) for cell in cells],
    }


def is_partial(cells: Sequence[Cell], ours: Mapping[Key, Ours]) -> bool:
    """Whether a cell of the paper is missing or filled by something less than the paper's runs."""
    return any(cell.key not in ours or bool(ours[cell.key].differs) for cell in cells if not cell.extra)


def titled(title: str, cells: Sequence[Cell], ours: Mapping[Key, Ours]) -> str:
    """A picture's title, which says if it shows less than the paper's runs (in what: the table beside it)."""
    return f"{title}, PARTIAL" if is_partial(cells, ours) else title


def _row(cell: Cell, found: Ours | None) -> dict[str, Any]:
    block, row, column = cell.key
    paper = cell.paper
    return {
        "block": block,
        "row": row,
        "column": column,
        "extra": cell.extra,
        "paper": None if paper is None else {"mean": paper.mean, "std": paper.std, "failed": paper.failed},
        "ours": None if found is None else {"mean": found.mean, "std": found.std},
        "difference": None if found is None or paper is None else found.mean - paper.mean,
        "differs": [] if found is None else list(found.differs),
        "runs": [] if found is None else [str(run.path) for run in found.runs],
    }
