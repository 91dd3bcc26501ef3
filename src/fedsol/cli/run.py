"""`fedsol run`: train one experiment."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsol.analysis import names_of
from fedsol.cli.compare import BEST_OF_ANY
from fedsol.cli.console import console, counted, resume_hint, say, show_warnings
from fedsol.cli.options import (
    ExperimentArgument,
    OutOption,
    RoundsOption,
    SetOption,
    new_directory,
    read_experiment,
    say_code,
    shortcuts,
)
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.config.experiment import Experiment
    from fedsol.reports.live import LiveView
    from fedsol.training.callbacks import Callback


def run(
    experiment: ExperimentArgument = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", "-a", help="Such as fedavg, or fedsol:rho=1.5.")
    ] = None,
    rounds: RoundsOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of all randomness.")] = None,
    changes: SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Serve the report on this machine while training.")] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port for --live (default: any free port).")] = None,
    track: Annotated[
        str, typer.Option("--track", metavar="NAMES", help="tensorboard, wandb, mlflow; comma-separated.")
    ] = "",
    analyze: Annotated[
        str,
        typer.Option(
            "--analyze",
            help=f"Analyses to record in every round, comma-separated: {', '.join(names_of(per_round=True))}.",
        ),
    ] = "",
) -> None:
    """Run one experiment (default: the quick start on embedded data). Given a run directory, resume that run."""
    from fedsol.config.overrides import parse_override, split_list
    from fedsol.runs.directory import RunDirectory
    from fedsol.runs.rows import privacy_text
    from fedsol.trackers import check_tracker, make_tracker
    from fedsol.training.loop import train
    from fedsol.training.progress import progress

    show_warnings()
    if port is not None and not live:
        raise InputError(f"--port: needs --live (got {port})")
    trackers = list(dict.fromkeys(split_list(track)))
    for name in trackers:
        check_tracker(name, "--track")
    named = shortcuts(algorithm, rounds, seed)
    if experiment is not None and RunDirectory(Path(experiment)).exists:
        if out is not None:
            raise InputError(f"--out: is not allowed: the run is resumed in {experiment} (got {out})")
        out, resume = Path(experiment), True
        saved = RunDirectory(out).read_experiment()
        say_code(out, saved.model_dump())
        settings = saved.override({**dict(map(parse_override, changes or ())), **named})
    else:
        settings = read_experiment(experiment, changes, named)
    if resume and out is None:
        raise InputError("--resume: needs --out, the directory of the run")
    label = settings.algorithm["name"].rpartition(":")[2]
    out = out or new_directory(f"{settings.data.short_name}-{label}-seed{settings.seed}")
    before = len(RunDirectory(out).read_lines()) if resume and RunDirectory(out).exists else 0
    with resume_hint(out, f"fedsol run {out}"), _live_report(out, port or 0) if live else nullcontext() as view:
        callbacks = [progress(console, label), *_recorders(split_list(analyze), out, settings)]
        callbacks += [make_tracker(name, out) for name in trackers]
        if view is not None:
            say(f"Live report, until the run ends: {view.address}")
            callbacks.append(view)  # last, so that it sees what the others write
        result = train(settings, callbacks, out, resume)
    if before and len(result.rows) == before:
        more = "" if result.stopped else f"; for more of them: fedsol run {out} --rounds {2 * before}"
        say(f"The run was already finished: {before} of {result.experiment.rounds} rounds{more}")
    from fedsol.plots.curves import has_values, result_curves  # late, as no round waits for matplotlib

    files = ["metrics.jsonl", "summary.json"]
    if any(map(has_values, result_curves([(label, [result.rows])], result.primary)[0])):
        files.insert(0, result.plot(out / "curve.png").name)
    if rejected := sum(row["rejected"] for row in result.rows):
        were = "was" if rejected == 1 else "were"
        say(f"{counted(rejected, 'update')} {were} rejected: see metrics.jsonl and the warnings above.")
    shown = result.primary
    how = f"of round {result.best_round}, chosen by validation" if result.selection.has_validation else BEST_OF_ANY
    best = f", best {shown.text(result.best_result)} ({how})" if result.results else ""
    say(f"{result.experiment.data.name}, {counted(len(result.rows), 'round')}: {result.final_words}{best}")
    if result.selection.has_validation:
        say(f"Best validation {shown.title}: {shown.text(result.best_validation)}, saved in checkpoints/best.")
    if words := privacy_text(result.rows):
        say(f"Privacy: {words}.")
    say(f"Results are in {out} ({', '.join(files)}).")


def _live_report(out: Path, port: int) -> "LiveView":
    from fedsol.reports.live import LiveView

    return LiveView(out, port)


def _recorders(names: Sequence[str], out: Path, experiment: "Experiment") -> "list[Callback]":
    """Return the callbacks of `--analyze`, now or when the run began; their modules import matplotlib."""
    if not names and not (out / "analysis").exists():
        return []
    from fedsol.analysis.rounds import callbacks_for

    return callbacks_for(names, out, experiment)
