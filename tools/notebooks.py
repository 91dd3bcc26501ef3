"""Make the notebooks of the tutorials: `python -m tools.notebooks` writes docs/tutorials/*.ipynb from the pages.

Prose becomes Markdown cells and Python becomes code. Shell commands run in Bash, so that a cell fails if one of them
does. A block with a title is a file, which its cell writes.
"""

import json
import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```\n", re.M | re.S)
LINK = re.compile(r"^\[Download this page as a notebook\]\([^)]*\)\.\n\n", re.M)


def notebook(page: Path) -> str:
    """Return the notebook of a page."""
    text = LINK.sub("", page.read_text(encoding="utf-8"))
    cells, prose, end = [], "", 0
    for block in BLOCK.finditer(text):
        language, file, code = block.groups()
        prose += text[end : block.start()]
        end = block.end()
        if file is None and language not in ("python", "sh"):
            prose += block[0]
            continue
        cells += [("markdown", prose), ("code", _command(language, file) + code)]
        prose = ""
    cells.append(("markdown", prose + text[end:]))
    shown = [(kind, source.strip("\n")) for kind, source in cells if source.strip()]
    content = {
        "cells": [_cell(kind, source, f"{page.stem}-{number}") for number, (kind, source) in enumerate(shown)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _command(language: str, file: str | None) -> str:
    """Return the first line of a cell that is more than Python."""
    if file is not None:
        return f"%%writefile {file}\n"
    return "%%bash -e\n" if language == "sh" else ""


def _cell(kind: str, source: str, name: str) -> dict[str, Any]:
    output = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": name, "metadata": {}, **output, "source": source.splitlines(keepends=True)}


def main() -> None:
    """Write the notebook of every page beside it."""
    for page in sorted(PAGES.glob("*.md")):
        page.with_suffix(".ipynb").write_text(notebook(page), encoding="utf-8")


if __name__ == "__main__":
    main()
