"""`fedsol personalize`: what it does, once its arguments are known."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from fedsol.algorithms import make_algorithm
from fedsol.cli.commands import console, say, show_warnings
from fedsol.config.overrides import KEYS_WITHOUT_EFFECT, parse_override
from fedsol.config.tables import suggestion, unknown_name
from fedsol.core.files import write_atomically
from fedsol.errors import InputError
from fedsol.federation.personal import METHODS, PersonalResult, PersonalSettings, check_held_out, parse_epochs
from fedsol.personalization.comparison import Entry, as_rows, check_baselines, federation_of, read_entries
from fedsol.personalization.loop import check_no_run, no_model, personalize
from fedsol.personalization.progress import clients_shown
from fedsol.personalization.results import PersonalDirectory
from fedsol.personalization.statistics import accuracies_after, epochs_of
from fedsol.plots.personal import Accuracies, draw_distribution, draw_sizes
from fedsol.runs.directory import RunDirectory

MOST_ROWS = 12
"""Rows of a picture; with more, only the last number of epochs of each method is drawn."""


@dataclass(frozen=True)
class Request:
    """What to do with every run."""

    method: str | None
    epochs: tuple[int, ...] | None
    changes: Mapping[str, Any]
    """Of the other `PersonalSettings`."""
    where: Mapping[str, Any]
    """Keys of the experiment that change no result."""

    def method_for(self, run: Path) -> str:
        """The method that is asked for, or the one that the run's algorithm brings."""
        if self.method is not None:
            return self.method
        algorithm = make_algorithm(RunDirectory(run).read_experiment().algorithm)
        return str(algorithm.personal_settings().get("method", "finetune"))

    def changes_for(self, run: Path) -> dict[str, Any]:
        """The settings for a run. `--epochs` are for fine-tuning: a run of Local-only has its own."""
        own = self.method is None and self.method_for(run) == "local-only"
        return {**self.changes} if self.epochs is None or own else {**self.changes, "epochs": self.epochs}


def personalize_runs(
    runs: Sequence[Path],
    request: Request,
    against: Sequence[Path],
    out: Path | None,
    resume: bool,
    new_directory: Callable[[str], Path],
) -> None:
    """Personalises each run (or reads results that are there already), then shows them side by side."""
    show_warnings()
    if len({path.resolve() for path in runs}) < len(runs):
        raise InputError("RUN: one is given twice")
    if out is not None:
        check_no_run(out)
    for path in runs:
        if not RunDirectory(path).exists and not PersonalDirectory(path).exists:
            raise InputError(f"{path}: there is neither a run here (no experiment.toml) nor results (no personal.json)")
    several = len(runs) > 1
    report = (out or new_directory("personal")) if several else out
    places = {path: _place(path, runs, request, report) for path in runs}
    waiting = {path: place for path, place in places.items() if place != path}
    if not resume and (taken := [place for place in waiting.values() if PersonalDirectory(place).exists]):
        raise InputError(f"{taken[0]}: holds results already; resume (--resume) or choose another directory (--out)")
    finished = read_entries([path for path in runs if path not in waiting])
    federations = {entry.federation for entry in finished} | {_check_run(path, request) for path in waiting}
    check_baselines(against, federations)
    for path, place in waiting.items():
        _personalize(path, place, request, resume)
    entries = read_entries(list(places.values()), against)
    for entry in entries:
        entry.directory.finish(entry.results, entry.alone)
    target = report or entries[0].directory.path
    _write_report(entries, target)
    console.print(personal_table(as_rows(entries)))
    for line in loser_lines(entries):
        say(line)
    say(f"Everything is in {target} (distribution.png, sizes.png, table.json; clients.csv and summary.json of each).")


def make_request(method: str | None, epochs: str | None, test: str | None, changes: Sequence[str]) -> Request:
    """The request that the options describe; a key with a dot belongs to the experiment."""
    if method is not None and method not in METHODS:
        raise unknown_name("--method", method, METHODS)
    own: dict[str, Any] = {}
    where: dict[str, Any] = {}
    if test is not None:
        own["test"] = test
    for key, value in map(parse_override, changes):
        if "." not in key:
            own[key] = value
        elif key in KEYS_WITHOUT_EFFECT:
            where[key] = value
        else:
            allowed = KEYS_WITHOUT_EFFECT | PersonalSettings.model_fields.keys()
            raise InputError(f"--set {key}: is the run's own and cannot be changed; {suggestion(key, allowed)}")
    if "after_round" in own or "method" in own:
        raise InputError("--set: 'after_round' and 'method' are not allowed: the run and --method say what they are")
    if "epochs" in own:
        raise InputError("--set epochs: is not allowed: use --epochs")
    PersonalSettings(**own)
    return Request(method, tuple(parse_epochs(epochs)) if epochs is not None else None, own, where)


def _place(path: Path, runs: Sequence[Path], request: Request, out: Path | None) -> Path:
    """Where the results of a run are kept; results that are there already stay where they are."""
    if PersonalDirectory(path).exists:
        return path
    if out is None:
        held_out = "-held-out" if request.changes.get("test") == "held-out" else ""
        return path / "personal" / f"{request.method_for(path)}{held_out}"
    return out / _short_name(path, runs) if len(runs) > 1 else out


def _short_name(path: Path, runs: Sequence[Path]) -> str:
    """The last parts of a run's path, as many as tell it from the others."""
    parts = path.absolute().parts
    for count in range(1, len(parts)):
        if sum(other.absolute().parts[-count:] == parts[-count:] for other in runs) == 1:
            return "-".join(parts[-count:])
    return "-".join(parts[1:])


def _check_run(path: Path, request: Request) -> tuple[Any, ...]:
    """Refuses a run for which the request makes no sense, as far as its small files tell; its clients and tests."""
    folder = RunDirectory(path)
    experiment = folder.read_experiment()
    settings = PersonalSettings(**{"method": request.method_for(path), **request.changes})
    held_out = experiment.data.partition.held_out
    check_held_out(held_out, settings)
    if not folder.checkpoints.exist():
        raise no_model(folder)
    return federation_of({**folder.read_hashes(), "held_out": held_out, "seed": experiment.seed}, settings)


def _personalize(path: Path, place: Path, request: Request, resume: bool) -> None:
    try:
        with clients_shown(console, path.name) as watch:
            personalize(path, request.method, request.changes_for(path), place, resume, request.where, watch)
    except KeyboardInterrupt:
        if PersonalDirectory(place).exists:
            say(f"\nSaved in {place}. Go on with the same command and --resume.")
        raise


def _write_report(entries: Sequence[Entry], target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be used as a directory: {error.strerror}") from error
    write_atomically(target / "table.json", json.dumps(as_rows(entries), indent=2) + "\n")
    series = pictured(entries)
    titles = {f"{entry.description['data']}: {entry.description['clients']} clients" for entry in entries}
    title = titles.pop() if len(titles) == 1 else None
    draw_distribution(series, target / "distribution.png", title)
    draw_sizes(series, target / "sizes.png", title)


def pictured(entries: Sequence[Entry]) -> list[Accuracies]:
    """What the pictures show: each method after each number of epochs; for a single run also where it began."""
    series = []
    if len(entries) == 1 and not entries[0].is_alone:
        (entry,) = entries
        series.append(_series(f"{entry.description['algorithm']['name']} as it came", entry.results, _before(entry)))
        if entry.alone is not None:
            series.insert(0, _series("local-only", entry.results, entry.alone))
    all_rows = sum(len(epochs_of(entry.results)) for entry in entries)
    for entry in entries:
        shown = epochs_of(entry.results)
        for epochs in shown if all_rows <= MOST_ROWS else shown[-1:]:
            label = entry.label if entry.is_alone else f"{entry.label}, {_epochs(epochs)}"
            series.append(_series(label, entry.results, accuracies_after(entry.results, epochs)))
    return series


def _epochs(number: int) -> str:
    return f"{number} epoch{'s' * (number != 1)}"


def _before(entry: Entry) -> dict[int, float | None]:
    return {result.client: result.before for result in entry.results}


def _series(label: str, results: Sequence[PersonalResult], accuracies: Mapping[int, float | None]) -> Accuracies:
    known = [(value, result.size) for result in results if (value := accuracies.get(result.client)) is not None]
    return Accuracies(label, [value for value, _ in known], [size for _, size in known])


def personal_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The table for people."""
    table = Table(caption="accuracy in %; lose: clients that do better alone", caption_justify="left")
    table.add_column("personal models", overflow="fold")
    for column in ("epochs", "before", "mean ± std", "worst 10 %", "best 10 %", "lose"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        lost = row.get("losers")
        table.add_row(
            escape(row["label"]),
            str(row["epochs"]),
            _points(row["before"]),
            f"{_points(row['mean'])} ± {_points(row['std'])}",
            _points(row["worst_decile"]),
            _points(row["best_decile"]),
            f"{len(lost['clients'])}/{lost['of']}" if lost else "–",
        )
    return table


def _points(share: float | None) -> str:
    """A share between 0 and 1 in percent, without the sign."""
    return "–" if share is None else f"{100 * share:.2f}"


def loser_lines(entries: Sequence[Entry]) -> list[str]:
    """Who loses by federating, in words; nothing where Local-only is not known."""
    lines = []
    for row in as_rows(entries):
        lost = row.get("losers")
        if not lost:
            continue
        what = f"{row['label']}, {_epochs(row['epochs'])}"
        if not lost["clients"]:
            lines.append(f"{what}: no client does better alone.")
            continue
        others = f", the others {lost['others_median_size']:g}" if lost["others_median_size"] is not None else ""
        lines.append(
            f"{what}: {len(lost['clients'])} of {lost['of']} clients do better alone, by {_points(lost['mean_loss'])} "
            f"points on average and {_points(lost['largest_loss'])} at most; they have {lost['median_size']:g} samples "
            f"(median){others}: clients {', '.join(map(str, lost['clients']))}."
        )
    return lines
