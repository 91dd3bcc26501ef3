"""The report: one HTML page with its data, styles and scripts inside, which opens offline."""

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fedsol.config.overrides import as_text, flatten
from fedsol.config.task import ACCURACY, MEASURES, Measure
from fedsol.core.files import write_output
from fedsol.errors import InputError
from fedsol.reports.collect import analyses_of, clients_of, figures_of, partition_of, short_names
from fedsol.reports.columns import to_columns
from fedsol.reports.headline import headline
from fedsol.runs.find import find_runs
from fedsol.runs.groups import differences, group_runs
from fedsol.runs.rows import privacy_text
from fedsol.runs.run import Run

SCRIPTS = (
    *("base.js", "theme.js", "chart.js", "heat.js", "table.js", "curves.js", "sections.js", "clients.js"),
    "main.js",
)


@dataclass(frozen=True)
class Frame:
    """What a page is made of besides its data: its scripts, in order, its headings and its first section."""

    scripts: tuple[str, ...]
    heading: str
    title: str
    first: str


def write_report(places: Sequence[Path], out: Path) -> list[Run]:
    """Write the page about all runs in and below `places`, and return the runs."""
    if out.is_dir():
        raise InputError(f"{out}: must be a file such as report.html (got a directory)")
    runs = find_runs(places)
    write_output(out, render(report_data(runs, places=places)))
    return runs


def report_data(
    runs: Sequence[Run], live: bool = False, done: bool = True, places: Sequence[Path] = ()
) -> dict[str, Any]:
    """Return everything the page shows, as plain values; a `live` page asks for updates until it is `done`.

    Figures of `fedsol analyze` are those of the runs and of `places`.
    """
    groups = group_runs(runs)
    found = [partition_of(run) for run in runs]
    partitions = {one["sha256"]: one for one in found if one}
    numbers = {sha256: number for number, sha256 in enumerate(partitions)}
    return {
        "live": live,
        "done": done,
        "headline": headline(runs, groups),
        "figures": [asdict(figure) for figure in figures_of([*places, *(run.path for run in runs)])],
        "primary": _measure(runs[0].primary if runs else ACCURACY),
        "shares": [measure.key for measure in MEASURES.values() if measure.is_share],
        "groups": [{"label": group.label, "runs": group.runs} for group in groups],
        "differences": {
            key: [None if value is None else as_text(value) for value in column]
            for key, column in differences([group.configuration for group in groups]).items()
        },
        "partitions": list(partitions.values()),
        "runs": [
            {"name": name, "partition": numbers[one["sha256"]] if one else None, **_run_data(run, name)}
            for run, name, one in zip(runs, short_names(runs), found, strict=True)
        ],
    }


def render(data: dict[str, Any]) -> str:
    """Return the report."""
    datasets = ", ".join(sorted({str(run["dataset"]) for run in data["runs"]}))
    return render_page(Frame(SCRIPTS, "fedsol report", f"{datasets or 'starting'}: fedsol report", "summary"), data)


def render_page(frame: Frame, data: dict[str, Any]) -> str:
    """Return a page. Its policy allows its own script and style only; data is never markup."""
    web = resources.files("fedsol.reports") / "web"
    style = (web / "style.css").read_text(encoding="utf-8")
    script = "\n".join((web / name).read_text(encoding="utf-8") for name in frame.scripts)
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    policy = (
        f"default-src 'none'; script-src {_hash_source(script)}; style-src {_hash_source(style)}; "
        f"img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy),
        "title": html.escape(frame.title),
        "heading": html.escape(frame.heading),
        "first": html.escape(frame.first),
        "style": style,
        "script": script,
        "data": embedded_json(data),
    }
    page = (web / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)


def embedded_json(data: dict[str, Any]) -> str:
    """Return JSON without characters that could end a script element or open another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash_source(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _measure(measure: Measure) -> dict[str, Any]:
    """Return the metric that the page shows first: the primary one of the first run."""
    return {
        "key": measure.key,
        "title": measure.title,
        "higher": measure.higher_is_better,
        "share": measure.is_share,
    }


def _run_data(run: Run, name: str) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "dataset": run.settings.get("data.name", "?"),
        "planned": run.settings.get("rounds"),
        "stopped": run.stopped.reason if run.stopped else None,
        "privacy": privacy_text(run.rows) or None,
        "best": run.best_round if run.selection.has_validation else None,
        **dict(zip(("class_names", "client_names"), run.names, strict=True)),
        "metrics": to_columns(run.rows),
        "analyses": analyses_of(run),
        "clients": [asdict(one) for one in clients_of(run)],
        "environment": {key: str(value) for key, value in flatten(run.environment).items()},
        "toml": run.toml,
        "command": shlex.join(["fedsol", "run", str(run.path / "experiment.toml"), "--out", f"again/{name}"]),
    }
