"""Personalize several runs, and compare the results: tables, pictures, and which clients do better alone."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsol.algorithms import make_algorithm
from fedsol.config.overrides import KEYS_WITHOUT_EFFECT, parse_numbers, parse_override
from fedsol.config.tables import suggestion, unknown_name
from fedsol.core.files import make_directory, write_atomically
from fedsol.errors import InputError
from fedsol.federation.personal import METHODS, PersonalSettings, check_held_out
from fedsol.personalization.comparison import Entry, as_rows, check_baselines, federation_of, read_entries
from fedsol.personalization.loop import Personalizer, check_directory, check_no_run
from fedsol.personalization.results import PersonalDirectory, parts_of
from fedsol.personalization.statistics import accuracies_after, epochs_of
from fedsol.plots.personal import Accuracies, draw_distribution, draw_sizes
from fedsol.runs.directory import RunDirectory
from fedsol.runs.find import find_runs
from fedsol.runs.run import Run

MOST_ROWS = 12
"""Rows of a picture; with more, only the last number of epochs of each method is drawn."""

ShowProgress = Callable[[Path, Path], AbstractContextManager[Callable[[int, int], None]]]
"""Shows the progress of the run in one directory, whose results go to another."""


@dataclass(frozen=True)
class Request:
    """What to do with every run."""

    method: str | None
    epochs: tuple[int, ...] | None
    changes: Mapping[str, Any]
    """Of the other `PersonalSettings`."""
    where: Mapping[str, Any]
    """Keys of the experiment that do not change results."""

    def method_for(self, run: Path) -> str:
        """Return the requested method, or else that of the run's algorithm."""
        if self.method is not None:
            return self.method
        algorithm = make_algorithm(RunDirectory(run).read_experiment().algorithm)
        return str(algorithm.personal_settings().get("method", "finetune"))

    def changes_for(self, run: Path) -> dict[str, Any]:
        """Return the settings for a run. `--epochs` is for fine-tuning: a run of Local-only has its own."""
        own = self.method is None and self.method_for(run) == "local-only"
        return {**self.changes} if self.epochs is None or own else {**self.changes, "epochs": self.epochs}


def runs_or_results(place: Path) -> list[Path]:
    """Return a directory of results itself, or the runs in and below a directory."""
    return [place] if PersonalDirectory(place).exists else [run.path for run in find_runs([place])]


def find_places(runs: Sequence[Path], request: Request, out: Path | None) -> dict[Path, Path]:
    """Return where the results of each run go; existing results stay where they are. Several need `out`."""
    if len({path.resolve() for path in runs}) < len(runs):
        raise InputError("RUN: each run must be given only once")
    if out is not None:
        check_no_run(out)
    return {path: _place(path, runs, request, out) for path in runs}


def personalize_runs(
    places: Mapping[Path, Path], request: Request, against: Sequence[Path], resume: bool, show_progress: ShowProgress
) -> list[Entry]:
    """Personalize the runs that have no results yet; return the results of all."""
    waiting = {run: place for run, place in places.items() if place != run}
    for place in waiting.values():
        check_directory(place, resume)
    finished = read_entries([path for path in places if path not in waiting])
    federations = {entry.federation for entry in finished} | {_check_run(path, request) for path in waiting}
    check_baselines(against, federations)
    for path, place in waiting.items():
        with show_progress(path, place) as progress:
            personalizer = Personalizer(request.where, progress)
            personalizer.run(path, request.method, request.changes_for(path), place, resume)
    entries = read_entries(list(places.values()), against)
    for entry in entries:
        entry.directory.finish(entry.results, entry.alone)
    return entries


def parse_request(method: str | None, epochs: str | None, test: str | None, changes: Sequence[str]) -> Request:
    """Return the request that the options describe; a key with a dot belongs to the experiment."""
    if method is not None and method not in METHODS:
        raise unknown_name("--method", method, METHODS)
    if test not in (None, "matched", "held-out"):
        raise unknown_name("--test", str(test), ["matched", "held-out"])
    own: dict[str, Any] = {} if test is None else {"test": test}
    where: dict[str, Any] = {}
    for key, value in map(parse_override, changes):
        if "." not in key:
            own[key] = value
        elif key in KEYS_WITHOUT_EFFECT:
            where[key] = value
        else:
            allowed = KEYS_WITHOUT_EFFECT | PersonalSettings.model_fields.keys()
            raise InputError(f"--set {key}: cannot be changed after the run; {suggestion(key, allowed)}")
    if "after_round" in own or "method" in own:
        raise InputError("--set: 'after_round' and 'method' are not allowed: the run and --method set them")
    if "epochs" in own:
        raise InputError("--set epochs: is not allowed: use --epochs")
    PersonalSettings(**own)
    return Request(method, tuple(parse_numbers("--epochs", epochs, int)) if epochs is not None else None, own, where)


def _place(path: Path, runs: Sequence[Path], request: Request, out: Path | None) -> Path:
    """Return where the results of a run go; existing results stay where they are."""
    if PersonalDirectory(path).exists:
        return path
    if out is None:
        held_out = "-held-out" if request.changes.get("test") == "held-out" else ""
        return path / "personal" / f"{request.method_for(path)}{held_out}"
    return out / _short_name(path, runs) if len(runs) > 1 else out


def _short_name(path: Path, runs: Sequence[Path]) -> str:
    """Return the last parts of a run's path that distinguish it from the others."""
    parts = path.absolute().parts
    others = [run.absolute().parts for run in runs if run != path]
    enough = (count for count in range(1, len(parts)) if all(other[-count:] != parts[-count:] for other in others))
    return "-".join(parts[-next(enough, len(parts) - 1) :])


def _check_run(path: Path, request: Request) -> tuple[Any, ...]:
    """Check the request against the files of a run; return what identifies its clients and tests."""
    run = Run.load(path)
    experiment = run.experiment
    settings = PersonalSettings(**{"method": request.method_for(path), **request.changes})
    check_held_out(experiment.data.partition.held_out, settings)
    run.check_model()
    return federation_of({**run.files.read_hashes(), **parts_of(experiment), "seed": experiment.seed}, settings)


def write_report(entries: Sequence[Entry], target: Path) -> None:
    """Write the table and the pictures of all results."""
    make_directory(target)
    write_atomically(target / "table.json", json.dumps(as_rows(entries), indent=2) + "\n")
    series = picture_series(entries)
    titles = {f"{entry.description['data']}: {entry.description['clients']} clients" for entry in entries}
    title = titles.pop() if len(titles) == 1 else None
    draw_distribution(series, target / "distribution.png", title)
    draw_sizes(series, target / "sizes.png", title)


def picture_series(entries: Sequence[Entry]) -> list[Accuracies]:
    """Return what the pictures show: each method after each number of epochs; for a single run also its start."""
    series = []
    if len(entries) == 1 and not entries[0].is_alone:
        (entry,) = entries
        before = {result.client: result.before for result in entry.results}
        series.append(_series(f"{entry.description['algorithm']['name']} before", entry, before))
        if entry.alone is not None:
            series.insert(0, _series("local-only", entry, entry.alone))
    all_rows = sum(len(epochs_of(entry.results)) for entry in entries)
    for entry in entries:
        shown = epochs_of(entry.results)
        for epochs in shown if all_rows <= MOST_ROWS else shown[-1:]:
            label = entry.label if entry.is_alone else f"{entry.label}, {epochs_text(epochs)}"
            series.append(_series(label, entry, accuracies_after(entry.results, epochs)))
    return series


def epochs_text(number: int) -> str:
    """Return `1 epoch` or `5 epochs`."""
    return f"{number} epoch{'s' * (number != 1)}"


def _series(label: str, entry: Entry, accuracies: Mapping[int, float | None]) -> Accuracies:
    known = {result.client: value for result in entry.results if (value := accuracies.get(result.client)) is not None}
    sizes = [result.size for result in entry.results if result.client in known]
    names = [entry.client_names[client] for client in known] if entry.client_names else []
    return Accuracies(label, list(known.values()), sizes, names)
