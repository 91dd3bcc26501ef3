"""The leaderboard: one HTML page of methods by setting, in the report's look."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsol.config.task import Measure
from fedsol.core.files import write_output
from fedsol.core.statistics import MeanStd
from fedsol.errors import InputError
from fedsol.reports.collect import short_names
from fedsol.reports.page import Frame, render_page
from fedsol.runs.find import find_runs
from fedsol.runs.run import Run
from fedsol.studies.estimate import show_bytes
from fedsol.studies.leaderboard import CONFIDENCE, Board, Gain, Rules, Standing, leaderboards

SCRIPTS = ("base.js", "theme.js", "table.js", "leaderboard.js")
NONE = "–"
Cell = dict[str, Any]


def write_leaderboard(places: Sequence[Path], out: Path, rules: Rules) -> list[Board]:
    """Write the page about all runs in and below `places`, and return its boards."""
    if out.is_dir():
        raise InputError(f"{out}: must be a file such as leaderboard.html (got a directory)")
    runs = find_runs(places)
    boards = leaderboards(runs, rules)
    frame = Frame(SCRIPTS, "fedsol leaderboard", "fedsol leaderboard", "overview")
    write_output(out, render_page(frame, leaderboard_data(boards, runs, rules)))
    return boards


def leaderboard_data(boards: Sequence[Board], runs: Sequence[Run], rules: Rules) -> dict[str, Any]:
    """Return everything the page shows: tables of cells, each a text with the value to sort by."""
    methods = list(dict.fromkeys(standing.method for board in boards for standing in board.standings))
    sizes = [
        f"{count} {word}{'s' * (count != 1)}"
        for count, word in ((len(runs), "run"), (len(methods), "method"), (len(boards), "setting"))
    ]
    names = {id(run): name for run, name in zip(runs, short_names(runs), strict=True)}
    return {
        "about": ", ".join(sizes),
        "tables": [
            _overview(boards, methods, rules),
            *(_table(number, board) for number, board in enumerate(boards, start=1)),
            _origins(boards, names),
        ],
    }


def _overview(boards: Sequence[Board], methods: Sequence[str], rules: Rules) -> dict[str, Any]:
    which = "after the last round" if rules.last == 1 else f"of the last {rules.last} evaluated rounds, their mean"
    rows = [[_cell(method), *(_best_of(board, method) for board in boards)] for method in methods]
    for column, board in enumerate(boards, start=1):
        _mark_best([row[column] for row in rows], board.measure)
    return {
        "id": "overview",
        "title": "Overview",
        "note": f"Test results {which}; mean ± sample standard deviation over seeds. A setting is data, partition, "
        "model, training and number of finished rounds; methods are comparable within one. Click a heading to sort.",
        "headings": [{"text": "method"}, *(_number(f"{board.setting}: {board.measure.title}") for board in boards)],
        "rows": rows,
    }


def _best_of(board: Board, method: str) -> Cell:
    """Return the result of a method in a setting: of several precisions that of the most seeds."""
    found = [standing for standing in board.standings if standing.method == method]
    most = max(found, key=lambda standing: len(standing.runs), default=None)
    return _cell(NONE) if most is None else _result(most, board.measure)


def _table(number: int, board: Board) -> dict[str, Any]:
    measure, low = board.measure, {"lowFirst": True}
    goal = "target" if board.target is None else measure.text(board.target)
    direction = {} if measure.higher_is_better else low
    rows = [_row(standing, measure) for standing in board.standings]
    _mark_best([row[3] for row in rows], measure)
    return {
        "id": f"setting-{number}",
        "title": board.setting,
        "note": f"Gain: over FedAvg with the same seeds and precision, positive if better, with the {CONFIDENCE:.0%} "
        "interval of a paired bootstrap over seeds. With two or three seeds that is only the range of their gains, "
        "which often misses the true one; with one there is none. Rounds and traffic until a test result first "
        "reached the target" + ("." if board.target is None else f", {goal}."),
        "headings": [
            {"text": "method"},
            {"text": "precision"},
            _number("seeds"),
            _number(measure.title, **direction),
            _number("gain"),
            {"text": f"{CONFIDENCE:.0%} interval"},
            _number(f"rounds to {goal}", **low),
            _number(f"traffic to {goal}", **low),
            _number("worst class"),
        ],
        "rows": rows,
        "start": [3, -1 if measure.higher_is_better else 1],
    }


def _row(standing: Standing, measure: Measure) -> list[Cell]:
    reached, runs = standing.reached, len(standing.runs)
    some = f"in {reached.runs} of {runs}" if reached and 0 < reached.runs < runs else None
    never = "never" if reached else NONE
    worst = standing.worst_class
    return [
        _cell(standing.method),
        _cell(standing.precision),
        _cell(str(runs), runs),
        _result(standing, measure),
        _cell(_difference(standing.gain.mean, measure), standing.gain.mean) if standing.gain else _cell(NONE),
        _cell(_interval(standing.gain, measure)),
        {**_counted(reached.rounds if reached else None, "{:.0f}".format, never), "note": some},
        {**_counted(reached.bytes if reached else None, show_bytes, never), "note": some},
        _cell(NONE if worst is None else f"{100 * worst:.1f} %", worst),
    ]


def _origins(boards: Sequence[Board], names: dict[int, str]) -> dict[str, Any]:
    rows = [
        [
            _cell(names[id(run)]),
            _cell(standing.method),
            _cell(board.setting),
            _cell(str(run.seed), run.seed),
            _cell(str(run.environment.get("commit", NONE))[:12]),
            _cell(
                str(run.environment.get("command") or shlex.join(["fedsol", "run", str(run.path / "experiment.toml")]))
            ),
        ]
        for board in boards
        for standing in board.standings
        for run in standing.runs
    ]
    return {
        "id": "origins",
        "title": "Where the numbers come from",
        "note": "Each run with its seed, commit and command.",
        "headings": [
            *({"text": text} for text in ("run", "method", "setting")),
            _number("seed", lowFirst=True),
            {"text": "commit"},
            {"text": "command", "long": True},
        ],
        "rows": rows,
        "fold": True,
    }


def _cell(text: str, value: float | None = None) -> Cell:
    return {"text": text, "value": None if text == NONE else text if value is None else value}


def _number(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "number": True, **more}


def _counted(value: float | None, show: Callable[[float], str], never: str) -> Cell:
    return {"text": never, "value": None} if value is None else _cell(show(value), value)


def _result(standing: Standing, measure: Measure) -> Cell:
    result = standing.result
    return _cell(NONE) if result is None else _cell(_spread(result, len(standing.runs), measure), result.mean)


def _spread(result: MeanStd, runs: int, measure: Measure) -> str:
    return measure.spread_text(*result) if runs > 1 else measure.text(result.mean)


def _difference(value: float, measure: Measure) -> str:
    return f"{100 * value:+.2f}" if measure.is_share else f"{value:+.4g}"


def _interval(gain: Gain | None, measure: Measure) -> str:
    if gain is None or gain.low is None or gain.high is None:
        return NONE
    return f"{_difference(gain.low, measure)} to {_difference(gain.high, measure)}"


def _mark_best(cells: Sequence[Cell], measure: Measure) -> None:
    values = [cell["value"] for cell in cells if cell["value"] is not None]
    for cell in cells:
        cell["best"] = len(values) > 1 and cell["value"] == measure.best(values)
