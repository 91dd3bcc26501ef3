"""A run in a notebook: a short table and its learning curve, as HTML that needs no other file."""

import base64
import html
from typing import TYPE_CHECKING

from fedsol.runs.rows import privacy_text

if TYPE_CHECKING:
    from fedsol.runs.run import Run


def run_html(run: "Run") -> str:
    """Return a table of the settings and results of a run, and its primary metric by round."""
    experiment, shown = run.experiment, run.primary
    settings = ", ".join(f"{key} = {value}" for key, value in experiment.algorithm.items() if key != "name")
    facts = {
        "algorithm": experiment.algorithm["name"] + (f" ({settings})" if settings else ""),
        "data": f"{experiment.data.name}, {experiment.data.partition.kind}",
        "seed": str(experiment.seed),
        "rounds": f"{len(run.rows)} of {experiment.rounds}" + (f": {run.stopped.reason}" if run.stopped else ""),
        f"final {shown.title}": shown.text(run.final_result),
        f"best {shown.title}": shown.text(run.best_result),
    }
    if run.selection.has_validation:
        facts["best round"] = f"{run.best_round}: {run.selection.name} {shown.text(run.best_validation)}"
    if run.final_held_out is not None:
        facts[f"{shown.title} on the clients' hold-out sets"] = shown.text(run.final_held_out)
    if words := privacy_text(run.rows):
        facts["privacy"] = words
    facts["directory"] = str(run.directory or "not saved")
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(key)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for key, value in facts.items()
    )
    last = run.final_result if run.results else run.final_held_out
    curve = "<p>No round has been evaluated yet.</p>" if last is None else _curve(run, shown.text(last))
    return f"<div><table>{rows}</table>{curve}</div>"


def _curve(run: "Run", last: str) -> str:
    from fedsol.plots.curves import curves_figure, result_curves
    from fedsol.plots.style import fedsol_style, figure_bytes

    curves, shown = result_curves([(run.experiment.algorithm["name"], [run.rows])], run.primary)
    with fedsol_style():
        picture = base64.b64encode(figure_bytes(curves_figure(curves, None, shown, run.primary), "png")).decode()
    text = f"{shown.capitalize()} by round, {last} at the end"
    return f'<img width="540" alt="{text}" src="data:image/png;base64,{picture}">'
