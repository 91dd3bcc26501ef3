"""An analysis is one file and one row of the registry: the command line knows it then, and runs can record it."""

import json
from pathlib import Path

import pytest

from fedsol.analysis import ANALYSES, AnalysisSpec, make_analysis, names_of
from fedsol.analysis.base import Analysis
from fedsol.analysis.rounds import RoundAnalysis
from tests.support.cli import TINY, fedsol

FILE = '''
from dataclasses import dataclass

from fedsol.analysis.rounds import RoundAnalysis
from fedsol.plots.curves import curve_by_round, curve_panel
from fedsol.plots.style import new_figure


@dataclass(frozen=True)
class Steps:
    round: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class StepsAnalysis(RoundAnalysis[list, Steps]):
    """The local steps of a round's clients."""

    stem = "steps"
    row = Steps
    factor: int = 1

    def measure_round(self, federation, done):
        return Steps(done.round, tuple(self.factor * update.steps for update in done.updates))

    def draw(self, found, subject):
        figure = new_figure(5, 4, subject)
        tables = {item.label: [{row.round: sum(row.steps) for row in run} for run in item.runs] for item in found}
        curves = [curve_by_round(label, seeds) for label, seeds in tables.items()]
        curve_panel(figure.add_subplot(), curves, "steps", "round", "steps")
        return figure

    def say(self, found):
        return [f"{item.label}: {len(item.runs[0])} rounds" for item in found]
'''
ROW = AnalysisSpec("steps_analysis:StepsAnalysis", per_round=True)


def test_an_analysis_is_one_file_and_one_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("steps_analysis.py").write_text(FILE)
    monkeypatch.setitem(ANALYSES, "steps", ROW)

    done = fedsol("run", *TINY, "--out", "run", "--analyze", "steps")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in Path("run/analysis/steps.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    done = fedsol("analyze", "run", "--what", "steps,curves", "--out", "figures")
    assert done.exit_code == 0, done.output
    assert "fedsol: 2 rounds" in done.output
    assert json.loads(Path("figures/steps.json").read_text())[0]["runs"][0] == rows
    assert {"steps.png", "steps.pdf", "curves.png"} <= {path.name for path in Path("figures").iterdir()}
    for command in (["run", "--analyze", "stepps"], ["analyze", "run", "--what", "stepps"]):
        assert "did you mean 'steps'?" in fedsol(*command).output
    assert make_analysis("steps", {"factor": 2, "points": 3}).factor == 2


def test_help_lists_the_registry():
    run, analyze = (" ".join(fedsol(name, "--help").output.replace("│", " ").split()) for name in ("run", "analyze"))
    assert ", ".join(names_of(per_round=True)) in run
    assert ", ".join(ANALYSES) in analyze


@pytest.mark.parametrize("name", ANALYSES)
def test_a_row_says_what_its_class_is(name):
    analysis = make_analysis(name)
    assert isinstance(analysis, Analysis)
    assert isinstance(analysis, RoundAnalysis) == ANALYSES[name].per_round
    assert not ANALYSES[name].per_round or analysis.stem == name
