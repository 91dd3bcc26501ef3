"""What people type in Python: experiments by name, settings as arguments, many runs, pictures and reports."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsol.algorithms.base import Algorithm
from fedsol.config.algorithm import name_of
from fedsol.config.experiment import SHORT, Experiment, find_experiment
from fedsol.config.overrides import apply_overrides, flatten
from fedsol.engines import make_engine
from fedsol.engines.base import Engine
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.runs.directory import RunDirectory
from fedsol.runs.find import find_runs, make_directory_for
from fedsol.runs.groups import group_runs
from fedsol.runs.run import Run
from fedsol.studies.compare import Result, Results
from fedsol.studies.compare import compare as run_comparison
from fedsol.studies.grid import Choice
from fedsol.studies.run_many import Study
from fedsol.studies.sweep import Sweep
from fedsol.studies.sweep import sweep as run_sweep
from fedsol.studies.variants import Variant, algorithm_changes, check_distinct
from fedsol.training.callbacks import Callback
from fedsol.training.loop import train as run_experiment
from fedsol.training.progress import interactive_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ExperimentLike = Experiment | Mapping[str, Any] | str | Path | None
"""An experiment, its tables, a file, or a name that `fedsol list experiments` shows; None is the quick start."""


def train(
    experiment: ExperimentLike = None,
    callbacks: Callback | Iterable[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    engine: Callable[[Federation], Engine] | str | Mapping[str, Any] | None = None,
    data: object = None,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Run an experiment and return the result: `fedsol.train("quickstart", algorithm="fedavg", rounds=30)`.

    `experiment` is an `Experiment`, a file, a name, or None for the quick start. `settings` replace some of it: a
    table's name (`algorithm="fedprox"`), some of its keys (`client={"lr": 0.1}`), or a dotted key
    (`**{"client.lr": 0.1}`). `data` is a dataset's name, a file, or the data itself: a DataFrame, a torch Dataset, a
    `fedsol.Dataset`, a dict of arrays, `(x, y)` or `(x_train, y_train, x_test, y_test)`.

    With `out` the run directory is written there. `resume` continues an existing run there, to bitwise the same end as
    if it had never stopped; `overwrite` removes it first. On Ctrl-C the last finished round is saved and
    `KeyboardInterrupt` raised; a callback that raises `StopTraining` ends the run, which is returned. `progress` shows
    a bar in a terminal or a notebook. `engine` is a kind of engine, its table, or a function that makes an engine.
    """
    make = engine if callable(engine) else make_engine
    if engine is not None and not callable(engine):
        settings["engine"] = engine
    found, values = experiment_of(experiment, data, settings)
    if overwrite:
        if resume:
            raise InputError("overwrite: is not allowed together with resume")
        if out is None:
            raise InputError("overwrite: requires the directory of the run (out)")
        RunDirectory(Path(out)).remove()
    shown = _progress(found.algorithm["name"]) if progress else []
    more = [callbacks] if isinstance(callbacks, Callback) else callbacks
    return run_experiment(found, [*shown, *more], out, resume, make, values)


@dataclass(frozen=True, repr=False)
class Comparison(Results):
    """Runs of several variants over seeds."""

    results: tuple[Result, ...]
    seeds: tuple[int, ...]
    directory: Path

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the learning curves, the mean over seeds with a band of one standard deviation."""
        return plot_labeled([(result.variant.label, result.runs) for result in self.results], axes)


Named = str | Algorithm | Experiment | Mapping[str, Any]
"""A variant: `fedavg`, `fedsol:rho=1`, an algorithm, an experiment, or settings that replace some of the base's."""


def compare(
    variants: str | Sequence[Named] | Mapping[str, Named] = ("fedavg", "fedsol"),
    experiment: ExperimentLike = None,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | Path | None = None,
    resume: bool = False,
    jobs: int = 1,
    data: object = None,
    **settings: Any,
) -> Comparison:
    """Run every variant with every seed on the same data: `fedsol.compare(["fedavg", "fedsol:rho=1"], rounds=30)`.

    A variant is an algorithm by name or itself, a whole `Experiment`, or a dict of settings; a dict of variants names
    them. Everything else is as in `fedsol.train`. Without `out` the runs are written below runs/. `jobs` is the number
    of runs at a time.
    """
    base, values = experiment_of(experiment, data, settings)
    variants = [variants] if isinstance(variants, str) else variants
    named = variants.items() if isinstance(variants, Mapping) else [(_label(one), one) for one in variants]
    found = [Variant(label, _variant(one, base)) for label, one in named]
    if not found:
        raise InputError("variants: must name at least one, such as ['fedavg', 'fedsol']")
    check_distinct("variants", found)
    study = _study(out, "compare", seeds, resume)
    results = run_comparison(found, replace(study, jobs=jobs, data=values))
    return Comparison(tuple(_without_failures(results)), tuple(study.seeds), study.out)


def sweep(
    grid: Mapping[str, Sequence[Any]],
    experiment: ExperimentLike = None,
    seeds: Sequence[int] = (0, 1, 2),
    out: str | Path | None = None,
    resume: bool = False,
    jobs: int = 1,
    data: object = None,
    **settings: Any,
) -> Sweep:
    """Run every point of a grid over seeds: `fedsol.sweep({"algorithm.rho": [0.5, 1, 2]}, rounds=30)`.

    Everything else is as in `fedsol.compare`.
    """
    base, values = experiment_of(experiment, data, settings)
    if not grid:
        raise InputError("grid: must have at least one key, such as {'algorithm.rho': [0.5, 1, 2]}")
    if "seed" in grid:
        raise InputError("grid: 'seed' is not allowed; use seeds=[0, 1, 2]")
    for key, points in grid.items():
        if isinstance(points, str) or not isinstance(points, Iterable):
            raise InputError(f"grid: {key!r} must be a list of values (got {points!r})")
    axes = [Choice(key, tuple(points)) for key, points in grid.items()]
    found = run_sweep(axes, base, replace(_study(out, "sweep", seeds, resume), jobs=jobs, data=values))
    _without_failures(found.results)
    return found


def load(path: str | Path) -> Run:
    """Return the run of a directory."""
    return Run.load(path)


def plot(runs: Run | str | Path | Sequence[Run | str | Path], axes: "Axes | None" = None) -> "Axes":
    """Draw the learning curves of runs and return the axes; runs that differ in the seed alone share a curve."""
    found = _runs(runs)
    groups = group_runs(found)
    return plot_labeled([(group.label, [found[number] for number in group.runs]) for group in groups], axes)


def report(runs: Run | str | Path | Sequence[Run | str | Path], out: str | Path = "report.html") -> Path:
    """Write one HTML page about runs, given as runs or as directories that contain some, and return its path."""
    from fedsol.reports.page import write_report

    write_report([run.path if isinstance(run, Run) else Path(run) for run in _listed(runs)], Path(out))
    return Path(out)


def plot_labeled(runs: Sequence[tuple[str, Sequence[Run]]], axes: "Axes | None" = None) -> "Axes":
    """Draw a curve for each label."""
    from fedsol.plots.curves import result_curves
    from fedsol.plots.interactive import draw_on

    every = [run for _, group in runs for run in group]
    if not every:
        raise InputError("runs: must have at least one run")
    curves, shown = result_curves([(label, [run.rows for run in group]) for label, group in runs], every[0].primary)
    return draw_on(axes, curves, shown, every[0].primary)


def experiment_of(
    experiment: ExperimentLike, data: object, settings: Mapping[str, Any]
) -> tuple[Experiment, object | None]:
    """Return the experiment with settings replaced, and the data itself if `data` is more than its name."""
    values, settings = data, dict(settings)
    if isinstance(data, str | Path) or (isinstance(data, Mapping) and _is_table(data)):
        settings["data"], values = data, None
    if isinstance(experiment, Experiment) and not settings:
        return experiment, _arrays(values)
    return Experiment(**apply_overrides(_tables(experiment, data), _changes(settings))), _arrays(values)


def _tables(experiment: ExperimentLike, data: object) -> dict[str, Any]:
    if experiment is None:
        return {} if data is not None else find_experiment("quickstart")
    if isinstance(experiment, Experiment):
        return experiment.model_dump(exclude_unset=True)
    if isinstance(experiment, str | Path):
        return find_experiment(str(experiment))
    if not isinstance(experiment, Mapping):
        raise InputError(
            f"experiment: must be an Experiment, a file, a name or tables (got a {type(experiment).__name__})"
        )
    return {
        key: {SHORT[key]: value} if key in SHORT and isinstance(value, str) else value
        for key, value in experiment.items()
    }


def _changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as dotted keys: `algorithm="fedavg"` is `algorithm.name`, and tables are merged key by key."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key in SHORT and isinstance(value, str | Path):
            found[f"{key}.{SHORT[key]}"] = str(value)
        elif isinstance(value, Algorithm):
            found[key] = {"name": name_of(type(value)), **vars(value)}
        else:
            found |= flatten({key: value})
    return found


def _is_table(data: Mapping[str, Any]) -> bool:
    """Return whether a dict is the table `[data]`, and not arrays by name."""
    from fedsol.config.tables import DataSettings

    return (
        bool(data)
        and all(str(key).partition(".")[0] in DataSettings.model_fields for key in data)
        and not ({*data} <= {"train", "test"})
    )


def _arrays(data: object) -> object | None:
    """Return `(x, y)` and `(x_train, y_train, x_test, y_test)` as a dict of arrays, and any other data as it is."""
    if not isinstance(data, tuple):
        return data
    if len(data) not in (2, 4):
        raise InputError(f"data: a tuple must be (x, y) or (x_train, y_train, x_test, y_test) (got {len(data)} parts)")
    return dict(zip(("x_train", "y_train", "x_test", "y_test"), data, strict=False))


def _label(variant: Named) -> str:
    if isinstance(variant, str):
        return variant
    if isinstance(variant, Algorithm):
        return name_of(type(variant)).rpartition(":")[2]
    if isinstance(variant, Experiment):
        return str(variant.algorithm["name"])
    return ", ".join(f"{key}={value}" for key, value in flatten(variant).items())


def _variant(variant: Named, base: Experiment) -> Experiment:
    if isinstance(variant, Experiment):
        return variant
    if isinstance(variant, str):
        return base.override(algorithm_changes(variant, "variants"))
    return base.override(_changes({"algorithm": variant} if isinstance(variant, Algorithm) else variant))


def _study(out: str | Path | None, label: str, seeds: Sequence[int], resume: bool) -> Study:
    if resume and out is None:
        raise InputError("resume: requires the directory of the runs (out)")
    found = list(seeds) if isinstance(seeds, Iterable) else []
    if not found or len({*found}) < len(found) or not all(isinstance(seed, int) and seed >= 0 for seed in found):
        raise InputError(f"seeds: must be different whole numbers such as [0, 1, 2] (got {seeds!r})")
    place = make_directory_for(label) if out is None else Path(out)
    return Study(place, tuple(found), resume, callbacks=_progress)


def _progress(label: str) -> list[Callback]:
    shown = interactive_progress(label)
    return [] if shown is None else [shown]


def _without_failures(results: Sequence[Result]) -> Sequence[Result]:
    from fedsol.errors import RunError

    if failures := [failure for result in results for failure in result.failures]:
        raise RunError("\n".join(failures))
    return results


def _listed(runs: Run | str | Path | Sequence[Run | str | Path]) -> list[Run | str | Path]:
    return [runs] if isinstance(runs, Run | str | Path) else list(runs)


def _runs(runs: Run | str | Path | Sequence[Run | str | Path]) -> list[Run]:
    found: list[Run] = []
    for run in _listed(runs):
        found += [run] if isinstance(run, Run) else find_runs([Path(run)])
    if not found:
        raise InputError("runs: must have at least one run")
    return found
