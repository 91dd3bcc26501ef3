"""Progress: a live bar in a terminal, plain lines anywhere else."""

import io

import pytest
from rich.console import Console

import fedsol
from fedsol.config.task import ACCURACY
from fedsol.training import progress


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)


def plain():
    return Console(file=io.StringIO(), width=160)


def test_a_terminal_shows_rounds_clients_and_the_latest_accuracy(tiny):
    console = terminal()
    run = fedsol.train(tiny, [progress.progress(console, "fedavg")])
    shown = console.file.getvalue()
    assert "fedavg" in shown
    assert "2/2" in shown
    assert f"accuracy {ACCURACY.text(run.rows[-1]['test_accuracy'])}" in shown


def test_elsewhere_there_is_a_line_per_round_or_as_many_as_asked_for(tiny):
    every, few = plain(), plain()
    longer = tiny.override({"rounds": 6})
    fedsol.train(longer, [progress.progress(every, "a"), progress.progress(few, "b", lines=2)])
    assert [line.split("  ")[0] for line in every.file.getvalue().splitlines()] == [
        f"a: round {n}/6" for n in range(1, 7)
    ]
    assert [line.split("  ")[0] for line in few.file.getvalue().splitlines()] == ["b: round 3/6", "b: round 6/6"]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"test_accuracy": 0.5, "test_loss": 1.25}, "accuracy 50.00 %  loss 1.250"),
        (
            {"test_accuracy": None, "held_out_accuracy": 0.5, "held_out_worst": None},
            "held-out accuracy 50.00 %, worst –",
        ),
        ({"test_accuracy": None, "held_out_accuracy": None}, ""),
        (
            {"test_accuracy": 0.5, "test_loss": 1.25, "validation_accuracy": 0.25},
            "accuracy 50.00 %  loss 1.250  validation 25.00 %",
        ),
        ({"test_accuracy": None, "validation_accuracy": 0.25}, "validation accuracy 25.00 %"),
        ({"test_accuracy": None, "validation_accuracy": None}, ""),
    ],
)
def test_what_a_round_was_tested_on(row, text):
    assert progress.test_text(row, ACCURACY) == text


def test_a_stopped_run_says_why(tiny):
    shown, lines = terminal(), plain()
    stopping = tiny.override({"rounds": 9, "data.validation": 0.2, "server.stop_at": 0.0})
    fedsol.train(stopping, [progress.progress(shown, "[b]a"), progress.progress(lines, "b")])
    assert "[b]a: stopped after round 1: validation accuracy " in shown.file.getvalue()
    assert lines.file.getvalue().splitlines()[-1].startswith("b: stopped after round 1: validation accuracy ")
    assert lines.file.getvalue().splitlines()[-1].endswith(" has reached server.stop_at = 0")


def test_clients_are_a_bar_in_a_terminal_and_a_line_per_tenth_elsewhere():
    shown, lines = terminal(), plain()
    for console in (shown, lines):
        with progress.clients_shown(console, "personal") as show:
            for done in range(5, 21):
                show(done, 20)
    assert "20/20" in shown.file.getvalue()
    tenths = [f"personal: {done}/20 clients" for done in range(6, 21, 2)]
    assert lines.file.getvalue().splitlines() == ["personal: 5 of 20 clients are already done", *tenths]


def test_nothing_is_shown_if_all_clients_were_done_before():
    for console in (terminal(), plain()):
        with progress.clients_shown(console, "personal") as show:
            show(20, 20)
        assert console.file.getvalue() == ""
