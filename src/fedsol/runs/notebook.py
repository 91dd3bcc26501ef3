"""How a run looks in a notebook: a short table and its learning curve, as HTML that needs nothing else."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsol.runs.run import Run

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 220, 46, 30, 12
LINES = (0.0, 0.25, 0.5, 0.75, 1.0)


def run_html(run: "Run") -> str:
    """A table of what came of the run, and its test accuracy by round."""
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
    held_out = [(row["round"], share) for row in run.rows if (share := row.get("held_out_accuracy")) is not None]
    if held_out:
        facts["accuracy on what clients held out"] = _percent(held_out[-1][1])
    facts["directory"] = str(run.directory or "not saved")
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(key)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for key, value in facts.items()
    )
    curve = curve_svg(held_out, "held-out accuracy") if held_out and not run.accuracies else curve_svg(run.accuracies)
    return f"<div><table>{rows}</table>{curve}</div>"


def curve_svg(points: Sequence[tuple[int, float]], name: str = "test accuracy") -> str:
    """A line of shares by round, with its axes; the text takes the notebook's colour, light or dark."""
    if not points:
        return "<p>No round was evaluated yet.</p>"
    first, last = points[0][0], points[-1][0]
    span = max(last - first, 1)

    def x(round_number: float) -> float:
        return LEFT + (round_number - first) / span * (WIDTH - LEFT - 14)

    def y(share: float) -> float:
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)

    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="currentColor" '
        f'opacity="0.15"/><text x="{LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in LINES
    )
    ends = "".join(
        f'<text x="{x(number):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{number}</text>'
        for number in dict.fromkeys((first, last))
    )
    path = " ".join(f"{x(number):.1f},{y(share):.1f}" for number, share in points)
    dot = f'<circle cx="{x(last):.1f}" cy="{y(points[-1][1]):.1f}" r="3" fill="#2c8fcb"/>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{name.capitalize()} by round, {points[-1][1]:.1%} at the end" font-size="11" '
        f'font-family="sans-serif" fill="currentColor">{grid}{ends}'
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 2}" text-anchor="middle">round ({name})</text>'
        f'<polyline points="{path}" fill="none" stroke="#2c8fcb" stroke-width="2"/>{dot}</svg>'
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"
