"""A run in a notebook: a short table and its learning curve, as HTML that needs no other file."""

import base64
import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsol.runs.run import Run


def run_html(run: "Run") -> str:
    """Return a table of the settings and results of a run, and its accuracy by round."""
    experiment = run.experiment
    settings = ", ".join(f"{key} = {value}" for key, value in experiment.algorithm.items() if key != "name")
    facts = {
        "algorithm": experiment.algorithm["name"] + (f" ({settings})" if settings else ""),
        "data": f"{experiment.data.name}, {experiment.data.partition.kind}",
        "seed": str(experiment.seed),
        "rounds": f"{len(run.rows)} of {experiment.rounds}",
        "final accuracy": _percent(run.final_accuracy),
        "best accuracy": _percent(run.best_accuracy),
    }
    held_out = [share for row in run.rows if (share := row.get("held_out_accuracy")) is not None]
    if held_out:
        facts["accuracy on the clients' hold-out sets"] = _percent(held_out[-1])
    facts["directory"] = str(run.directory or "not saved")
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(key)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for key, value in facts.items()
    )
    last = run.final_accuracy if run.accuracies or not held_out else held_out[-1]
    curve = "<p>No round has been evaluated yet.</p>" if last is None else _curve(run, last)
    return f"<div><table>{rows}</table>{curve}</div>"


def _curve(run: "Run", last: float) -> str:
    from fedsol.plots.curves import accuracy_curves, curves_figure
    from fedsol.plots.style import fedsol_style, figure_bytes

    curves, shown = accuracy_curves([(run.experiment.algorithm["name"], [run.rows])])
    with fedsol_style():
        picture = base64.b64encode(figure_bytes(curves_figure(curves, ylabel=shown), "png")).decode()
    text = f"{shown.capitalize()} by round, {last:.1%} at the end"
    return f'<img width="540" alt="{text}" src="data:image/png;base64,{picture}">'


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"
