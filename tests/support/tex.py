"""Reads the tables of the paper's LaTeX source: rows of plain cells, with the numbers as they are printed."""

import os
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = Path(os.environ.get("FEDSOL_PAPER", REPOSITORY.parent / "shared" / "paper" / "fedsol.tex"))


def paper_source() -> str:
    """The paper's source, or a skipped test where it is not at hand."""
    if not SOURCE.is_file():
        pytest.skip(f"{SOURCE} is not here (FEDSOL_PAPER names another place): nothing to check the numbers against")
    return SOURCE.read_text(encoding="utf-8")


def tabular(source: str, label: str) -> list[list[str]]:
    """The rows of the table with this label, each a list of cells without LaTeX."""
    tables = re.findall(r"\\begin{table\*?}.*?\\end{table\*?}", source, flags=re.DOTALL)
    (table,) = [table for table in tables if f"\\label{{{label}}}" in table]
    body = re.search(r"\\begin{tabular}\s*{[^}]*}(.*)\\end{tabular}", table, flags=re.DOTALL)
    assert body is not None
    return [[plain(cell) for cell in row.split("&")] for row in re.split(r"\\\\", body[1])]


def plain(cell: str) -> str:
    """A cell's text: `59.80 ± 1.12`, `10.00 ± failed`, `CIFAR-10`; gains in brackets and arrows are left out."""
    text = re.sub(r"\\multicolumn{\d+}{\w+}|\\multirow{\d+}{\*}", "", cell)
    text = re.sub(r"\\(toprule|bottomrule|hline|addlinespace(\[[^]]*\])?)", "", text)
    text = re.sub(r"\$\\(up|down)arrow\$|\\citep{\w+}", "", text)
    text = re.sub(r"\\textcolor{[^}]*}", "", text)
    text = re.sub(r"\\(textbf|textit|underline|boldsymbol|text|small|scriptsize|footnotesize|normalsize)\b", "", text)
    text = re.sub(r"\\[,;: ]|\$|[{}]|~", " ", text)
    text = text.replace("\\pm", "±").replace("_(Failed)", "± failed")
    text = re.sub(r"_\s*\(\s*([\d.]+|Failed)\s*\)", r"± \1", text).replace("Failed", "failed")
    text = re.sub(r"_\s*±", "±", text)
    text = re.sub(r"\(\s*[+-]\s*[\d.]+\s*\)", "", text)
    return " ".join(text.split())
