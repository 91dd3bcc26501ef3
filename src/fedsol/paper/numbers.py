"""The paper's published numbers, read from the data files in `numbers/`, one for each table."""

import re
import tomllib
from dataclasses import dataclass, field
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
        """As the paper prints it, with its number of digits."""
        return f"{in_digits(self.mean, digits)} (failed)" if self.failed else with_std(self.mean, self.std, digits)


def in_digits(value: float, digits: int | None, sign: str = "") -> str:
    """A number with so many decimal places; None: as short as it goes, up to six digits."""
    return f"{value:{sign}g}" if digits is None else f"{value:{sign}.{digits}f}"


def with_std(mean: float, std: float | None, digits: int | None) -> str:
    """`59.80 ± 1.12`."""
    return in_digits(mean, digits) + (f" ± {in_digits(std, digits)}" if std is not None else "")


@dataclass(frozen=True)
class Block:
    """A part of a table with columns of its own; a cell that the paper leaves empty is None."""

    name: str
    columns: list[str]
    rows: dict[str, list[Number | None]]


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper; `label` is its LaTeX label."""

    name: str
    title: str
    label: str
    unit: str
    blocks: list[Block]
    digits: int | None
    """Decimal places in the paper; None for columns of different kinds."""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> dict[Key, Number | None]:
        """Every cell in the order of the paper."""
        return {
            (block.name, row, column): number
            for block in self.blocks
            for row, numbers in block.rows.items()
            for column, number in zip(block.columns, numbers, strict=True)
        }


def table_names() -> list[str]:
    """The tables whose numbers are stored."""
    files = resources.files("fedsol.paper").joinpath("numbers").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_table(name: str) -> PaperTable:
    """One of the data files."""
    file = resources.files("fedsol.paper").joinpath("numbers", f"{name}.toml")
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    texts = [text for block in content["block"] for row in block["rows"].values() for text in row]
    return PaperTable(
        name=name,
        title=content.pop("title"),
        label=content.pop("label"),
        unit=content.pop("unit", "%"),
        blocks=[_block(block) for block in content.pop("block")],
        digits=None if content.pop("mixed", False) else max(map(_decimals, texts)),
        more=content,
    )


def _decimals(text: str) -> int:
    return len(text.split(" ")[0].partition(".")[2])


def parse_number(text: str) -> Number | None:
    """`59.80`, `59.80 ± 1.12`, `10.00 ± failed`; nothing is None."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?: ± (\d+\.\d+|failed))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a number of the paper")
    mean, spread = found.groups()
    failed = spread == "failed"
    return Number(float(mean), None if spread is None or failed else float(spread), failed)


def _block(content: dict[str, Any]) -> Block:
    rows = {row: [parse_number(text) for text in texts] for row, texts in content["rows"].items()}
    return Block(content["name"], content["columns"], rows)
