"""What the commands do, once their arguments are known."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from fedsol.cli.watching import Watching
from fedsol.config.experiment import Experiment, find_experiment
from fedsol.config.overrides import apply_overrides, parse_override
from fedsol.errors import InputError, RunError
from fedsol.runs.directory import RunDirectory
from fedsol.training.loop import train
from fedsol.training.progress import percent, progress

console = Console()


def read_experiment(name: str | None, changes: Sequence[str]) -> Experiment:
    """The experiment of a file or name (default: the quick start), with `--set` applied."""
    tables = find_experiment(name or "quickstart")
    return Experiment(**apply_overrides(tables, dict(parse_override(change) for change in changes)))


def run_experiment(
    name: str | None,
    changes: Sequence[str],
    out: Path | None,
    resume: bool,
    new_directory: Callable[[str], Path],
    watching: Watching | None = None,
) -> None:
    """`fedsol run`."""
    show_warnings()
    if name is not None and RunDirectory(Path(name)).exists:
        if out is not None:
            raise InputError(f"--out: {out} is not allowed: the run goes on in {name}")
        experiment = RunDirectory(Path(name)).read_experiment()
        experiment = experiment.override(dict(parse_override(change) for change in changes))
        out, resume = Path(name), True
    else:
        experiment = read_experiment(name, changes)
    if resume and out is None:
        raise InputError("--resume: needs --out, the directory of the run")
    label = experiment.algorithm["name"].rpartition(":")[2]
    out = out or new_directory(f"{Path(experiment.data.name).stem}-{label}-seed{experiment.seed}")
    try:
        with (watching or Watching()).callbacks(experiment, out, say) as watchers:
            run = train(experiment, [progress(console, label), *watchers], out, resume)
    except KeyboardInterrupt:
        if RunDirectory(out).exists:
            say(f"\nSaved in {out}. Go on with: fedsol run {out}")
        raise
    run.plot(out / "curve.png")
    if rejected := sum(row["rejected"] for row in run.rows):
        say(f"{rejected} updates were rejected: see metrics.jsonl and the warnings above.")
    say(
        f"{run.experiment.data.name}, {len(run.rows)} rounds: final accuracy {percent(run.final_accuracy)}, "
        f"best {percent(run.best_accuracy)}"
    )
    say(f"Everything is in {out} (curve.png, metrics.jsonl, summary.json).")


def compare_algorithms(
    name: str | None,
    algorithms: Sequence[str],
    seeds: str,
    changes: Sequence[str],
    out: Path,
    resume: bool,
    jobs: int = 1,
) -> None:
    """`fedsol compare`."""
    from fedsol.studies import compare as comparison
    from fedsol.studies.run_many import check_jobs
    from fedsol.studies.variants import parse_seeds, parse_variants

    show_warnings()
    check_jobs(jobs)
    variants = parse_variants(algorithms, read_experiment(name, changes))
    seed_list = parse_seeds(seeds)
    try:
        results = comparison.compare(
            variants, seed_list, out, lambda label: [progress(console, label, lines=2)], resume, jobs
        )
    except KeyboardInterrupt:
        if out.exists():
            say(f"\nSaved in {out}. Go on with the same command, --out {out} and --resume.")
        raise
    finished = [run for result in results for run in result.runs]
    if finished:
        resolved = finished[0].experiment
        title = f"{resolved.data.name}, {resolved.data.partition.kind}, {resolved.rounds} rounds"
        comparison.draw(results, out / "curves.png", title)
        say(f"{title}, seeds {seeds}: test accuracy, mean ± std over seeds")
        console.print(comparison_table(comparison.as_rows(results, seed_list)))
        say(f"Curves: {out / 'curves.png'}   Table: {out / 'comparison.json'}   Runs: {out}")
    if failures := [failure for result in results for failure in result.failures]:
        raise RunError("\n".join(failures))


def comparison_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The table of a comparison for people."""
    table = Table()
    table.add_column("algorithm", overflow="fold")
    for column in ("final", "best", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        failed = f" ({len(row['failures'])} failed)" if row["failures"] else ""
        spreads = [spread_text(row[key]) for key in ("final_accuracy", "best_accuracy")]
        table.add_row(escape(row["label"] + failed), *spreads, f"{row['seconds']:.1f}")
    return table


def show_partition(name: str | None, changes: Sequence[str], out: Path) -> None:
    """`fedsol partition`."""
    from fedsol.data.manifest import Manifest, label_counts, save_manifest
    from fedsol.data.summary import partition_summary
    from fedsol.federation.federation import fill_defaults, load_dataset, partition_of
    from fedsol.plots.partition import draw_partition

    experiment = read_experiment(name, changes)
    dataset = load_dataset(experiment.data)
    experiment = fill_defaults(experiment, dataset)
    clients = [indices.numpy() for indices in partition_of(experiment, dataset)]
    labels = dataset.train.labels.numpy()
    settings = experiment.data.partition
    if RunDirectory(out).exists:
        raise InputError(f"{out}: holds a run, whose partition.json is its own; choose another directory (--out)")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be used as a directory: {error.strerror}") from error
    manifest = Manifest(experiment.data.name, len(labels), settings.model_dump(), experiment.seed, clients)
    save_manifest(out / "partition.json", manifest, label_counts(labels, clients, dataset.classes))
    title = f"{experiment.data.name}, {settings.kind}, seed {experiment.seed}"
    draw_partition(labels, clients, out / "partition.png", dataset.classes, title=title)
    console.print(partition_table(labels, clients, dataset.classes, title))
    summary = partition_summary(labels, clients, dataset.classes)
    say(
        f"{summary.clients} clients, {summary.samples} samples: {summary.smallest} to {summary.largest} each "
        f"(median {summary.median_size:g}), {summary.fewest_classes} to {summary.most_classes} classes each "
        f"(median {summary.median_classes:g})"
    )
    say(
        f"labels of a client: {summary.mean_entropy:.2f} bits of entropy, total variation {summary.mean_distance:.2f} "
        "from the whole (means over clients)"
    )
    say(f"sha256 {manifest.sha256}")
    say(f"Picture: {out / 'partition.png'}   Manifest: {out / 'partition.json'}")


def partition_table(labels: Any, clients: Sequence[Any], classes: int, title: str) -> Table:
    """Counts of every class for the first clients."""
    import numpy as np

    shown = 20
    table = Table(title=f"{escape(title)}: samples by client and class", title_justify="left")
    table.add_column("client", justify="right")
    table.add_column("samples", justify="right")
    columns = min(classes, 20)
    for label in range(columns):
        table.add_column(str(label), justify="right")
    for number, indices in enumerate(clients[:shown]):
        counts = np.bincount(labels[indices], minlength=classes)[:columns]
        table.add_row(str(number), str(len(indices)), *(str(count) if count else "·" for count in counts))
    if len(clients) > shown:
        table.caption = f"the first {shown} of {len(clients)} clients"
    return table


def fetch_data(name: str, root: Path) -> None:
    """`fedsol data fetch`."""
    from fedsol.data.catalog import fetch

    results = fetch(_dataset_name(name), root)
    say(f"{name} is complete in {root / name}." if results else f"{name} comes with fedsol and needs no files.")


def verify_data(name: str, root: Path) -> None:
    """`fedsol data verify`."""
    from fedsol.data.catalog import SPECS, verify

    results = verify(_dataset_name(name), root)
    for result in results:
        say(f"{result.status:8} {result.path}  {result.detail}")
    if not results:
        say(f"{name} comes with fedsol and needs no files.")
    if any(result.status != "ok" for result in results):
        remedy = SPECS[name].by_hand or f"run: fedsol data fetch {name} --root {root}"
        raise InputError(f"{root / name}: not all files of {name} are there and right; {remedy}")


def print_rows(what: str, rows: Sequence[dict[str, Any]]) -> None:
    """`fedsol list` for people."""
    if what == "algorithms":
        _print_algorithms(rows)
        return
    table = Table(title=what, title_justify="left")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _print_algorithms(rows: Sequence[dict[str, Any]]) -> None:
    """One line each, then the settings with their defaults; what several share is explained once."""
    seen: dict[str, str] = {}
    for row in rows:
        console.print(f"[bold]{escape(row['name'])}[/bold]  {escape(row['description'])}", highlight=False)
        settings = "  ".join(f"{item['name']} = {_toml(item['default'])}" for item in row["settings"])
        if settings:
            console.print(f"    {escape(settings)}", style="dim", highlight=False)
        for item in row["settings"]:
            seen.setdefault(f"{item['name']}: {item['help']}", f"{item['name']} ({item['allowed']}): {item['help']}")
    console.print("\nSettings", style="bold")
    for text in sorted(seen.values()):
        console.print(f"  {escape(text)}", highlight=False)
    console.print(
        "\nFedAvgM, FedAdam and FedYogi are server optimisers that combine with every one of them: "
        "--set server.optimizer=momentum, adam or yogi (in a comparison also: -a fedavgm,fedadam,fedyogi).\n"
        "Yours: --set algorithm.name=module:Class",
        highlight=False,
    )


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text}" for key, text in value.items())
    return "" if value is None else str(value)


def _dataset_name(name: str) -> str:
    from fedsol.config.tables import unknown_name
    from fedsol.data.catalog import SPECS

    if name not in SPECS:
        raise unknown_name("dataset", name, SPECS)
    return name


def spread_text(value: dict[str, float] | None) -> str:
    """`81.20 ± 0.45 %`, as tables show it."""
    return "failed" if value is None else f"{100 * value['mean']:.2f} ± {100 * value['std']:.2f} %"


def say(text: str) -> None:
    """Prints plain text."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def show_warnings() -> None:
    """Warnings of the library go to the terminal, above the progress bar."""
    logger = logging.getLogger("fedsol")
    if not logger.handlers:
        logger.addHandler(RichHandler(console=console, show_path=False, show_time=False))
