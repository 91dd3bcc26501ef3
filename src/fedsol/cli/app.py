"""The command line. Everything heavy is imported inside the commands, so that `fedsol --help` is instant."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.estimate import estimate
from fedsol.cli.options import ExperimentArgument, OutOption, RootOption, SetOption, guarded, new_directory

app = typer.Typer(
    help="Federated learning for data that differs from client to client.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Download datasets, or check the files that are there.", no_args_is_help=True)
app.add_typer(data_app, name="data")
flower_app = typer.Typer(help="Federations of many machines, on Flower.", no_args_is_help=True)
app.add_typer(flower_app, name="flower")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Options that stand before a command."""
    if version:
        from importlib import metadata

        print(f"fedsol {metadata.version('fedsol')}")
        raise typer.Exit


@app.command()
@guarded
def run(
    experiment: ExperimentArgument = None,
    changes: SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Serve the report on this machine while training.")] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port of --live (default: any free one).")] = None,
    track: Annotated[
        str | None, typer.Option("--track", metavar="NAMES", help="tensorboard, wandb, mlflow; comma-separated.")
    ] = None,
    analyze: Annotated[
        str,
        typer.Option(
            "--analyze",
            help="Analyses written in every round, comma-separated: divergence, preservation, strength, orthogonality.",
        ),
    ] = "",
) -> None:
    """Run one experiment; with none given, the quick start on embedded data. A run's directory goes on with it."""
    from fedsol.cli.commands import run_experiment
    from fedsol.cli.watching import Watching

    watching = Watching(live, port, track, analyze)
    run_experiment(experiment, changes or [], out or None, resume, new_directory, watching)


@app.command()
@guarded
def compare(
    experiment: ExperimentArgument = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option("--algorithm", "-a", help="fedavg,fedsol or fedsol:rho=1.5,perturb=all; may be given often."),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Comma-separated.")] = "0,1,2",
    changes: SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the comparison in --out.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs at a time.")] = 1,
) -> None:
    """Compare algorithms over seeds on the same data: a table, and a picture of the learning curves."""
    from fedsol.cli.commands import compare_algorithms

    chosen = algorithms or ["fedavg", "fedsol"]
    compare_algorithms(experiment, chosen, seeds, changes or [], out or new_directory("compare"), resume, jobs)


@app.command()
@guarded
def sweep(
    experiment: ExperimentArgument = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2,…",
            help="A setting and its values; may be given often. With --search also KEY=LOW..HIGH or KEY=log:LOW..HIGH.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Comma-separated.")] = "0,1,2",
    changes: SetOption = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in --out.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Runs at a time (default: as many as there are cores).")
    ] = None,
    search: Annotated[
        int | None, typer.Option("--search", metavar="N", help="Let Optuna choose N settings (needs fedsol[search]).")
    ] = None,
) -> None:
    """Run a grid of settings over seeds, or search it: a table and a picture."""
    from fedsol.cli.sweep import sweep_settings

    sweep_settings(experiment, grid or [], seeds, changes or [], out or new_directory("sweep"), resume, jobs, search)


@app.command()
@guarded
def analyze(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Directories of runs, or of folders that hold some; see --what."),
    ] = None,
    what: Annotated[
        str,
        typer.Option(
            "--what",
            help="all, or some of curves, partition, orthogonality, divergence, preservation, strength, landscape, "
            "cost, toy. The last two need no run; cost also takes an experiment.",
        ),
    ] = "all",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory to write to (default: analysis in the run's).")
    ] = None,
    rho: Annotated[
        str | None, typer.Option("--rho", help="orthogonality: strengths to try, such as 0,0.5,1,2.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="Clients to train again (default: those the next round samples).")
    ] = None,
    where: Annotated[str, typer.Option("--where", help="orthogonality: angle over all, body or head.")] = "all",
    strength: Annotated[
        str | None,
        typer.Option("--strength", help="strength: adaptive-column, adaptive or fixed (default: that of the runs)."),
    ] = None,
    examples: Annotated[int, typer.Option("--examples", help="landscape: training examples.")] = 512,
    points: Annotated[int, typer.Option("--points", help="landscape: points along each axis.")] = 21,
    radius: Annotated[float, typer.Option("--radius", help="landscape: length of each axis from the model.")] = 1.0,
    repetitions: Annotated[int, typer.Option("--repetitions", help="cost: timed steps of each method.")] = 20,
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", "-a", help="cost: methods, as in `fedsol compare`.")
    ] = None,
    changes: SetOption = None,
) -> None:
    """Show why a method works: figures (PNG, PDF) and data from one run or several, compared."""
    from fedsol.cli.analyze import analyze_runs

    analyze_runs(
        runs or [],
        what,
        changes or [],
        out,
        new_directory,
        rho=rho,
        clients=clients,
        where=where,
        strength=strength,
        examples=examples,
        points=points,
        radius=radius,
        repetitions=repetitions,
        algorithms=tuple(algorithms or ()),
    )


@app.command("list")
@guarded
def list_command(
    what: Annotated[str, typer.Argument(help="algorithms, datasets, models, partitions or experiments.")],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Show what there is to choose from."""
    from fedsol.cli.list import LISTS
    from fedsol.config.tables import unknown_name

    if what not in LISTS:
        raise unknown_name("list", what, LISTS)
    rows = LISTS[what]()
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        from fedsol.cli.commands import print_rows

        print_rows(what, rows)


@app.command()
@guarded
def partition(
    experiment: ExperimentArgument = None,
    changes: SetOption = None,
    out: OutOption = None,
) -> None:
    """Deal the data out, show the result as a table and a picture, and save it as a manifest with a hash."""
    from fedsol.cli.commands import show_partition

    show_partition(experiment, changes or [], out or new_directory("partition"))


@app.command()
@guarded
def personalize(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Directories of runs, or of results that are there already.")
    ],
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="finetune, knn-per or local-only (default: the run's own).")
    ] = None,
    epochs: Annotated[str | None, typer.Option("--epochs", help="Comma-separated (default: 1,5).")] = None,
    test: Annotated[
        str | None, typer.Option("--test", help="matched (to the client's labels) or held-out (its own samples).")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option("--against", help="Local-only results: who does better alone?")
    ] = None,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory (default: RUN/personal/METHOD).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with clients that are missing.")] = False,
) -> None:
    """Every client's own model from a run's final one: accuracies over clients, and who would do better alone."""
    from fedsol.cli.personalize import make_request, personalize_runs

    request = make_request(method, epochs, test, changes or [])
    personalize_runs(runs, request, against or [], out, resume, new_directory)


app.command()(guarded(estimate))


@app.command()
@guarded
def report(
    places: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or directories with runs below them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page about one run or many: table, curves, classes, partition, settings."""
    from fedsol.cli.report import make_report

    make_report(places, out)


@app.command()
@guarded
def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure of the paper, or `list` for all of them.")],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Some cells: 'dataset=cifar10,method=fedavg|fedsol'; may be given often."),
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Instead of the paper's.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Comma-separated.")] = "0,1,2",
    part: Annotated[
        float | None, typer.Option("--part", help="Share of every client's data and of the test set, e.g. 0.02.")
    ] = None,
    changes: SetOption = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs at a time, each in a process of its own.")] = 1,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say how long it takes here, and stop.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of runs and tables; finished runs in it are used again.")
    ] = Path("runs/paper"),
    data_root: Annotated[Path, typer.Option("--data-root", help="Folder that holds the datasets.")] = Path("data"),
) -> None:
    """Run a table or figure of the paper, cell by cell: the paper's number, ours and the difference side by side."""
    from fedsol.cli.commands import console, show_warnings
    from fedsol.paper import reproduce as paper
    from fedsol.studies.run_many import check_jobs
    from fedsol.studies.variants import parse_seeds

    if name == "list":
        paper.list_recipes(console)
        return
    show_warnings()
    check_jobs(jobs)
    options = paper.Options(out, data_root, parse_seeds(seeds), rounds, part, only or [], changes or [], jobs)
    (paper.estimate if estimate else paper.reproduce)(name, options, console)


@data_app.command("fetch")
@guarded
def data_fetch(name: Annotated[str, typer.Argument()], root: RootOption = Path("data")) -> None:
    """Download a dataset from its publisher and verify it."""
    from fedsol.cli.commands import fetch_data

    fetch_data(name, root)


@data_app.command("verify")
@guarded
def data_verify(name: Annotated[str, typer.Argument()], root: RootOption = Path("data")) -> None:
    """Check the files of a dataset against the publisher's checksums."""
    from fedsol.cli.commands import verify_data

    verify_data(name, root)


@flower_app.command("app")
@guarded
def flower_write_app(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder of the app.")],
    experiment: ExperimentArgument = None,
    changes: SetOption = None,
    run_directory: Annotated[Path, typer.Option("--run", help="Directory of the run, on the server's machine.")] = Path(
        "runs/flower"
    ),
    name: Annotated[str, typer.Option("--name", help="Name of the app.")] = "fedsol-app",
) -> None:
    """Write an experiment as a Flower app, ready for `flwr run`."""
    from fedsol.cli.flower import write_app_for

    write_app_for(experiment, changes or [], folder, run_directory, name)


@flower_app.command("run")
@guarded
def flower_run(
    folder: Annotated[Path, typer.Argument(help="The app's folder.")],
    link: Annotated[str, typer.Argument(help="A SuperLink named in Flower's configuration.")] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
    changes: SetOption = None,
    personalize: Annotated[
        str, typer.Option("--personalize", help="Then have nodes make their own models: 'finetune; test=held-out'.")
    ] = "",
) -> None:
    """Start an app on a SuperLink and show what it says."""
    from fedsol.cli.flower import run_app

    run_app(folder, link, resume, changes or [], personalize)


def main() -> None:
    """The `fedsol` command."""
    app()


if __name__ == "__main__":
    main()
