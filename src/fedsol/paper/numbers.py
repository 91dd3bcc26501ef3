"""The paper's published numbers, read from the data files in `numbers/`, one for each table."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

Key = tuple[str, str, str]
"""A cell's block, row and column, as the paper labels them."""


@dataclass(frozen=True)
class Number:
    """A published number; `failed` where the paper says that the method did."""

    mean: float
    std: float | None = None
    failed: bool = False

    def __str__(self) -> str:
        return self.shown(2)

    def shown(self, digits: int | None) -> str:
        """Return the number as the paper prints it, with `digits` decimal places."""
        return f"{in_digits(self.mean, digits)} (failed)" if self.failed else with_std(self.mean, self.std, digits)


def in_digits(value: float, digits: int | None, sign: str = "") -> str:
    """Return a number with `digits` decimal places; None: as short as possible, up to six digits."""
    return f"{value:{sign}g}" if digits is None else f"{value:{sign}.{digits}f}"


def with_std(mean: float, std: float | None, digits: int | None) -> str:
    """Return `59.80 ± 1.12`."""
    return in_digits(mean, digits) + (f" ± {in_digits(std, digits)}" if std is not None else "")


@dataclass(frozen=True)
class Heading:
    """What a table or figure is called; `label` is its LaTeX label, `digits` None for columns of different kinds."""

    name: str
    title: str
    label: str
    unit: str = "%"
    digits: int | None = 2
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper; `candidates` are the values that the table of hyperparameters says were tried."""

    heading: Heading
    numbers: dict[Key, Number]
    candidates: dict[str, dict[str, list[float]]]


def read_table(name: str) -> PaperTable:
    """Return the table of a data file, in the order of the paper without its empty cells."""
    content = _read(f"numbers/{name}.toml")
    texts = {
        (block["name"], row, column): text
        for block in content["block"]
        for row, cells in block["rows"].items()
        for column, text in zip(block["columns"], cells, strict=True)
        if text
    }
    digits = None if content.get("mixed") else max(len(text.split(" ")[0].partition(".")[2]) for text in texts.values())
    unit, notes = content.get("unit", "%"), content.get("notes", ())
    heading = Heading(name, content["title"], content["label"], unit, digits, notes)
    return PaperTable(heading, {key: parse_number(text) for key, text in texts.items()}, content.get("candidates", {}))


def figure_heading(name: str) -> Heading:
    """Return the heading of a figure."""
    return Heading(name, **_read("figures.toml")[name])


def _read(file: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("fedsol.paper").joinpath(file).read_text(encoding="utf-8"))


def parse_number(text: str) -> Number:
    """Parse `59.80`, `59.80 ± 1.12` or `10.00 ± failed`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?: ± (\d+\.\d+|failed))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a number of the paper")
    mean, std = found.groups()
    return Number(float(mean), None if std in (None, "failed") else float(std), std == "failed")
