"""fedsol reproduce of figures that are drawn from runs."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from fedsol.analysis.base import Output
from fedsol.paper.numbers import Heading
from fedsol.paper.recipe import Cell, Figure, Folders, Ours, TrainedTable, titled
from fedsol.paper.store import smoothed
from fedsol.runs.run import Run
from fedsol.training.callbacks import Callback
from tests.support.small_recipe import fedsol, know, runs_in, small, small_cells

pytestmark = pytest.mark.usefixtures("small_recipe")


def test_a_figure_that_records_while_training_takes_one_job():
    done = fedsol("reproduce", "divergence", "--jobs", "2")
    assert done.exit_code == 2
    assert "--jobs: must be 1 for divergence" in done.output


def test_a_figure_that_measures_while_training_has_runs_of_its_own(monkeypatch):
    class Count(Callback):
        def __init__(self, place):
            self.place = place

        def round_finished(self, result):
            (self.place / "count.txt").write_text(str(result.round))

    def draw(table, ours, folders):
        path = folders.out / "figure.txt"
        path.write_text(" ".join((run.path / "count.txt").read_text() for run in ours[table.cells[0].key].runs))
        return Output([path], ["three rounds were seen"])

    table = TrainedTable(
        Heading("watched", "Watched", "fig:small"), small_cells(), callbacks=lambda _, path: [Count(path)]
    )
    know(monkeypatch, Figure(table, draw))
    assert fedsol("reproduce", "small", "--seeds", "0", "--only", "method=fedavg").exit_code == 0
    done = fedsol("reproduce", "watched", "--seeds", "0,1", "--only", "method=fedavg")
    assert done.exit_code == 0, done.output
    assert runs_in("runs/paper/watched") == [f"digits-dirichlet-0.1-small/fedavg/seed-{seed}" for seed in (0, 1)]
    assert Path("runs/paper/figure.txt").read_text() == "3 3"
    assert "runs/paper/figure.txt" in done.output
    assert "three rounds were seen" in done.output
    assert "- three rounds were seen\n" in Path("runs/paper/watched.md").read_text()


def test_a_figure_has_no_columns_for_numbers_of_the_paper(monkeypatch):
    def cells():
        return [Cell(cell.key, cell.facts, cell.experiment) for cell in small_cells()[:1]]

    know(monkeypatch, Figure(TrainedTable(Heading("drawn", "Drawn", "fig:small"), cells()), lambda *_: Output([], [])))
    done = fedsol("reproduce", "drawn", "--seeds", "0", "--rounds", "1")
    assert done.exit_code == 0, done.output
    assert "difference" not in Path("runs/paper/drawn.md").read_text()
    assert re.search(r"\| FedAvg \| [\d.]+ \[a\] \|\n", Path("runs/paper/drawn.md").read_text())


def test_learning_curves_are_smoothed_and_say_when_methods_are_as_good_as_fedavg(tmp_path):
    from fedsol.paper.figures import draw_learning_curves
    from fedsol.paper.recipe import Folders

    def run(first):
        rows = [{"round": number, "test_accuracy": (first + number) / 100} for number in range(1, 21)]
        return Run(small("fedavg"), rows, directory=tmp_path)

    assert smoothed(run(0))[:2] == [(1, pytest.approx(0.01)), (2, pytest.approx(0.015))]
    cells = [Cell(("", row, "MNIST"), {}, small("fedavg")) for row in ("FedAvg", "FedSOL", "FedProx")]
    ours = {cell.key: Ours(0.0, runs=(run(first),)) for cell, first in zip(cells, (0, 5, -5), strict=True)}
    table = TrainedTable(Heading("curves", "Curves", "fig:small"), cells)
    drawn = draw_learning_curves(table, ours, Folders(tmp_path, tmp_path))
    assert [path.name for path in drawn.files] == ["learning-curves-mnist.png", "learning-curves-mnist.pdf"]
    # FedAvg ends with the mean of 11 to 20; FedSOL, five rounds ahead of it, has that in round 15.
    assert drawn.lines == [
        "MNIST: FedAvg's mean of the last 10 rounds is 15.50 %; reached in round: FedSOL 15; FedProx –"
    ]


def test_titles_of_pictures_say_what_is_partial():
    one, two = (Cell(("", row, "accuracy"), {}) for row in ("one", "two"))
    assert titled("a", [one], {one.key: Ours(1.0)}) == "a"
    assert titled("a", [one, two], {one.key: Ours(1.0)}) == "a, PARTIAL"
    assert titled("a", [one], {one.key: Ours(2.0, None, ("1 of 3 seeds",))}) == "a, PARTIAL"


def test_pictures_of_factors(monkeypatch):
    from fedsol.paper.figures import draw_factors

    def cells():
        return [
            Cell(("", "FedSAM", f"{rho}"), {"rho": f"{rho}"}, small("fedsam").override({"algorithm.rho": rho}))
            for rho in (0.1, 0.5)
        ]

    draw = partial(draw_factors, "digits")
    know(monkeypatch, Figure(TrainedTable(Heading("factors", "Factors", "fig:small"), cells()), draw))
    done = fedsol("reproduce", "factors", "--seeds", "0", "--rounds", "1")
    assert done.exit_code == 0, done.output
    assert "runs/paper/factors.png" in done.output
    assert Path("runs/paper/factors.png").stat().st_size > 5000


def test_fedavg_is_a_level_over_every_rho(tmp_path, monkeypatch):
    from fedsol.paper.figures import draw_factors
    from fedsol.plots import sweep

    drawn = []
    monkeypatch.setattr(sweep, "draw_factors", lambda panels, *_: drawn.append(panels) or [])
    cells = [Cell(("", "FedSOL", f"{rho}"), {"rho": f"{rho}"}, small("fedsol")) for rho in (0.1, 0.5)]
    level = Cell(("sampling ratio", "FedAvg", "0.1"), {"factor": "sampling ratio", "value": "0.1"}, small("fedavg"))
    table = TrainedTable(Heading("factors", "Factors", "fig:small"), [*cells, level])
    ours = {cell.key: Ours(number) for cell, number in zip(table.cells, (60.0, 70.0, 50.0), strict=True)}
    draw_factors("digits", table, ours, Folders(tmp_path, tmp_path))
    assert drawn[0]["rho"] == {
        "FedAvg": [(0.1, 0.5, 0.0), (0.5, 0.5, 0.0)],
        "FedSOL": [(0.1, 0.6, 0.0), (0.5, 0.7, 0.0)],
    }


def test_analyzed_figures_keep_their_own_runs_and_rows(monkeypatch):
    from fedsol.paper import figures

    made = {}

    def smaller(dataset, level, algorithm):
        return made.setdefault(algorithm["name"], small(algorithm["name"]))

    monkeypatch.setattr(figures, "experiment", smaller)
    done = fedsol("reproduce", "preservation", "--seeds", "0", "--rounds", "2")
    assert done.exit_code == 0, done.output
    runs = runs_in("runs/paper/preservation")
    assert len(runs) == 2
    for run in runs:
        rows = Path("runs/paper/preservation", run, "analysis", "preservation.jsonl").read_text().splitlines()
        assert [json.loads(row)["round"] for row in rows] == [1, 2]
    for name in ("preservation.png", "forgetting.png", "preservation.json"):
        assert Path("runs/paper/analysis", name).is_file()
    assert json.loads(Path("runs/paper/preservation.json").read_text())["recipe"] == "preservation"
