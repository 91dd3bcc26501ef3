"""What the commands do, once their arguments are known."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from fedsol import listing
from fedsol.errors import InputError
from fedsol.experiment import Experiment, apply_overrides, parse_override
from fedsol.progress import percent, progress
from fedsol.runs import RunDirectory
from fedsol.training import train

console = Console()


def read_experiment(name: str | None, changes: Sequence[str]) -> Experiment:
    """The experiment of a file or name (default: the quick start), with `--set` applied."""
    tables = listing.find_experiment(name or "quickstart")
    return Experiment(**apply_overrides(tables, dict(parse_override(change) for change in changes)))


def run_experiment(
    name: str | None,
    changes: Sequence[str],
    out: Path | None,
    resume: bool,
    new_directory: Callable[[str], Path],
) -> None:
    """`fedsol run`."""
    _show_warnings()
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
        run = train(experiment, [progress(console, label)], out, resume)
    except KeyboardInterrupt:
        if RunDirectory(out).exists:
            _say(f"\nSaved in {out}. Go on with: fedsol run {out}")
        raise
    run.plot(out / "curve.png")
    if rejected := sum(row["rejected"] for row in run.rows):
        _say(f"{rejected} updates were rejected: see metrics.jsonl and the warnings above.")
    _say(
        f"{run.experiment.data.name}, {len(run.rows)} rounds: final accuracy {percent(run.final_accuracy)}, "
        f"best {percent(run.best_accuracy)}"
    )
    _say(f"Everything is in {out} (curve.png, metrics.jsonl, summary.json).")


def compare_algorithms(
    name: str | None, algorithms: Sequence[str], seeds: str, changes: Sequence[str], out: Path, resume: bool
) -> None:
    """`fedsol compare`."""
    from fedsol import compare as comparison

    _show_warnings()
    experiment = read_experiment(name, changes)
    variants = comparison.parse_variants(algorithms, experiment.algorithm)
    seed_list = comparison.parse_seeds(seeds)
    try:
        results = comparison.compare(
            experiment, variants, seed_list, out, lambda label: [progress(console, label, lines=2)], resume
        )
    except KeyboardInterrupt:
        if out.exists():
            _say(f"\nSaved in {out}. Go on with the same command, --out {out} and --resume.")
        raise
    resolved = results[0].runs[0].experiment
    partition = resolved.data.partition
    title = f"{resolved.data.name}, {partition.kind}, {resolved.rounds} rounds"
    comparison.draw(results, out / "curves.png", title)
    _say(f"{title}, seeds {seeds}: test accuracy, mean ± std over seeds")
    table = Table()
    for column in ("algorithm", "final", "best", "seconds"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for row in comparison.as_rows(results, seed_list):
        final, best = row["final_accuracy"], row["best_accuracy"]
        table.add_row(escape(row["label"]), _spread(final), _spread(best), f"{row['seconds']:.1f}")
    console.print(table)
    _say(f"Curves: {out / 'curves.png'}   Table: {out / 'comparison.json'}   Runs: {out}")


def show_partition(name: str | None, changes: Sequence[str], out: Path) -> None:
    """`fedsol partition`."""
    from fedsol.data.manifest import save_manifest
    from fedsol.federation import fill_defaults, load_dataset, partition_of
    from fedsol.report.partition_figure import draw_partition, partition_summary

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
    manifest = save_manifest(
        out / "partition.json",
        clients,
        dataset=experiment.data.name,
        samples=len(labels),
        settings=settings.model_dump(),
        seed=experiment.seed,
    )
    title = f"{experiment.data.name}, {settings.kind}, seed {experiment.seed}"
    draw_partition(labels, clients, out / "partition.png", dataset.classes, title=title)
    console.print(partition_table(labels, clients, dataset.classes, title))
    summary = partition_summary(labels, clients, dataset.classes)
    _say(
        f"{summary.clients} clients, {summary.samples} samples: {summary.smallest} to {summary.largest} each "
        f"(median {summary.median_size:g}), {summary.fewest_classes} to {summary.most_classes} classes each "
        f"(median {summary.median_classes:g})"
    )
    _say(
        f"labels of a client: {summary.mean_entropy:.2f} bits of entropy, total variation {summary.mean_distance:.2f} "
        "from the whole (means over clients)"
    )
    _say(f"sha256 {manifest.sha256}")
    _say(f"Picture: {out / 'partition.png'}   Manifest: {out / 'partition.json'}")


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
    from fedsol.data.fetch import fetch

    results = fetch(_dataset_name(name), root)
    _say(f"{name} is complete in {root / name}." if results else f"{name} comes with fedsol and needs no files.")


def verify_data(name: str, root: Path) -> None:
    """`fedsol data verify`."""
    from fedsol.data.datasets import SPECS
    from fedsol.data.fetch import verify

    results = verify(_dataset_name(name), root)
    for result in results:
        _say(f"{result.status:8} {result.path}  {result.detail}")
    if not results:
        _say(f"{name} comes with fedsol and needs no files.")
    if any(result.status != "ok" for result in results):
        remedy = SPECS[name].by_hand or f"run: fedsol data fetch {name} --root {root}"
        raise InputError(f"{root / name}: not all files of {name} are there and right; {remedy}")


def print_rows(what: str, rows: Sequence[dict[str, Any]]) -> None:
    """`fedsol list` for people."""
    table = Table(title=what, title_justify="left", show_lines=what == "algorithms")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(f"{item['name']} = {item['default']} ({item['allowed']}): {item['help']}" for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text}" for key, text in value.items())
    return "" if value is None else str(value)


def _dataset_name(name: str) -> str:
    from fedsol.data.datasets import SPECS
    from fedsol.validation import unknown_name

    if name not in SPECS:
        raise unknown_name("dataset", name, SPECS)
    return name


def _spread(value: dict[str, float]) -> str:
    return f"{100 * value['mean']:.2f} ± {100 * value['std']:.2f} %"


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _show_warnings() -> None:
    """Warnings of the library go to the terminal, above the progress bar."""
    logger = logging.getLogger("fedsol")
    if not logger.handlers:
        logger.addHandler(RichHandler(console=console, show_path=False, show_time=False))
