"""Write docs/experiment.md, the reference of every key of an experiment file, and `listing.json`, from the code."""

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from fedsol.config.experiment import TABLES
from fedsol.config.reference import settings_in, toml_value
from fedsol.config.tables import Settings
from tools import listing

INTRODUCTION = """# The experiment file

Every key, its default and what is allowed.

- A file needs only the keys that differ from the defaults. `fedsol run` writes the complete file
  into the run directory.
- `--set table.key=value` replaces a key on the command line. The value is in TOML notation; a bare
  word is a string.
- An unknown key or a wrong value is an error that names it.
- Counts are at most 1,000,000,000. Models and batches that do not fit into this machine's memory
  are refused.

`make docs` makes this page from the code.
"""


def render() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for name, table in TABLES.items():
        heading = f"## `[{name}]`" if name else "## Top level"
        parts.append(f"{heading}\n\n{_table(table)}\n")
    parts.append("## `[algorithm]`\n\n`name` is one of these, or `module:Class` of your own.\n")
    for row in listing.algorithms():
        parts.append(f"### `{row['name']}`\n\n{wrapped(row['description'])}\n")
        if row["settings"]:
            lines = [_line(item) for item in row["settings"]]
            parts.append("\n".join([_HEADER, *lines]) + "\n")
    return "\n".join(parts)


_HEADER = "| key | default | allowed | meaning |\n|---|---|---|---|"


def _table(table: type[Settings]) -> str:
    return "\n".join([_HEADER, *map(_line, settings_in(table))])


def _line(row: dict[str, Any]) -> str:
    default = "" if row["default"] is None else f"`{toml_value(row['default'])}`"
    return f"| `{row['name']}` | {default} | {cell(row['allowed'])} | {cell(row['help'])} |"


def wrapped(text: str) -> str:
    """Return lines of at most 100 characters; code is not broken."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, 100, break_on_hyphens=False).replace("\0", " ")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
    listing.PLACE.write_text(listing.render(), encoding="utf-8")
