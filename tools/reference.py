"""Write docs/experiment.md, the reference of every key of an experiment file, and `listing.json`, from the code."""

import sys
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedsol.config.experiment import TABLES
from fedsol.config.fields import describe_bounds, describe_type
from tools import listing

INTRODUCTION = """# The experiment file

Every key, its default and what is allowed. A file needs only the keys that differ from the defaults; `fedsol run`
writes the complete, resolved file into the run directory. `--set table.key=value` replaces a key on the command line
(the value in TOML notation; a bare word is a string). An unknown key or a wrong value is an error that names it.
Counts are at most 1,000,000,000. Models and batches that do not fit into this machine's memory are refused.

This page is made from the code by `make docs`.
"""


def render() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for name, table in TABLES.items():
        heading = f"## `[{name}]`" if name else "## Top level"
        parts.append(f"{heading}\n\n{_table(table)}\n")
    parts.append("## `[algorithm]`\n\n`name` is one of these, or `module:Class` for one of your own.\n")
    for row in listing.algorithms():
        parts.append(f"### `{row['name']}`\n\n{row['description']}\n")
        if row["settings"]:
            lines = [
                f"| `{item['name']}` | `{_toml(item['default'])}` | {_cell(item['allowed'])} | {_cell(item['help'])} |"
                for item in row["settings"]
            ]
            parts.append("\n".join([_HEADER, *lines]) + "\n")
    return "\n".join(parts)


_HEADER = "| key | default | allowed | meaning |\n|---|---|---|---|"


def _table(model: type[BaseModel]) -> str:
    lines = [_HEADER]
    for name, field in model.model_fields.items():
        if (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)) or name == "algorithm":
            continue
        default = field.get_default(call_default_factory=True)
        shown = "" if default is None else f"`{_toml(default)}`"
        lines.append(f"| `{name}` | {shown} | {_cell(_allowed(field))} | {_cell(field.description or '')} |")
    return "\n".join(lines)


def _allowed(field: FieldInfo) -> str:
    """Return the type of a field in words, without the None that stands for "not given"."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    is_optional = NoneType in get_args(field.annotation)
    if is_optional and len(kinds) > 1:
        return " | ".join(map(describe_type, kinds))
    hint = kinds[0] if is_optional else field.annotation
    if getattr(hint, "__origin__", None) is dict:
        return "table"
    return f"{describe_type(hint)} {describe_bounds(field.metadata)}".strip()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
    listing.PLACE.write_text(listing.render(), encoding="utf-8")
