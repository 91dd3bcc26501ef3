"""Runs in notebooks: a table of metrics and a picture."""

from pathlib import Path

import pandas

import fedsol
from fedsol.runs.run import Run


def test_metrics_are_a_table_indexed_by_round(tiny):
    run = fedsol.train(tiny.override({"rounds": 3, "server.evaluate_every": 2}))
    table = run.metrics
    assert isinstance(table, pandas.DataFrame)
    assert list(table.index) == list(table["round"]) == [1, 2, 3]
    assert list(table.columns) == list(run.rows[0])
    assert table["train_loss"].tolist() == [row["train_loss"] for row in run.rows]
    assert table["test_accuracy"].isna().tolist() == [True, False, False]
    assert table.loc[3, "test_accuracy"] == run.final_accuracy
    assert table.sort_values("round")["test_accuracy"].dtype == float


def test_a_run_without_rounds_has_an_empty_table_and_still_shows(tiny):
    run = Run(tiny, [])
    assert run.metrics.empty
    assert "No round has been evaluated yet" in run._repr_html_()


def test_a_run_shows_a_table_and_a_curve(tiny, tmp_path):
    shown = fedsol.train(tiny, out=tmp_path / "run")._repr_html_()
    for part in (
        "fedavg",
        "digits, dirichlet",
        "2 of 2",
        "final accuracy",
        "<img",
        "data:image/png;base64,",
        str(tmp_path / "run"),
    ):
        assert part in shown


def test_a_run_without_a_test_set_shows_what_clients_held_out(tiny, tmp_path):
    rows = [
        {"round": number, "test_accuracy": None, "held_out_accuracy": 0.25 * number, "train_loss": 1.0}
        for number in (1, 2)
    ]
    run = Run(tiny, rows)
    assert run.final_accuracy is None
    for part in (
        '<td style="text-align:left">50.00 %</td>',
        "Accuracy on the clients' hold-out sets by round, 50.00 % at the end",
    ):
        assert part in run._repr_html_()
    assert run.plot(tmp_path / "curve.png").stat().st_size > 1000


def test_what_a_run_is_called_is_only_text(tiny):
    hostile = "<img src=x onerror=alert(1)>"
    run = Run(tiny.override({"data.name": hostile}), [], directory=Path(hostile))
    assert "<img" not in run._repr_html_()
    assert "&lt;img" in run._repr_html_()
