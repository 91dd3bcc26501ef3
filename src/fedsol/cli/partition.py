"""`fedsol partition`: split the data among clients, and show and save the result."""

from typing import TYPE_CHECKING, Any

from fedsol.cli.console import say, say_table
from fedsol.cli.options import ExperimentArgument, OutOption, SetOption, new_directory, read_experiment
from fedsol.errors import InputError

if TYPE_CHECKING:
    import numpy as np

MOST_CLIENTS, MOST_CLASSES = 20, 20
"""The most rows and columns that the table shows."""


def partition(experiment: ExperimentArgument = None, changes: SetOption = None, out: OutOption = None) -> None:
    """Split the data among clients; show a table and a picture, and save a manifest with a hash."""
    from fedsol.core.files import make_directory
    from fedsol.data.catalog import load_dataset
    from fedsol.data.manifest import Manifest, label_counts, save_manifest
    from fedsol.data.partition import partition_summary
    from fedsol.federation.federation import fill_defaults, partition_of
    from fedsol.plots.partition import draw_partition
    from fedsol.runs.directory import RunDirectory

    out = out or new_directory("partition")
    resolved = read_experiment(experiment, changes)
    dataset = load_dataset(resolved.data)
    resolved = fill_defaults(resolved, dataset)
    clients = [indices.numpy() for indices in partition_of(resolved, dataset)]
    labels = dataset.train.labels.numpy()
    settings = resolved.data.partition
    if RunDirectory(out).exists:
        raise InputError(f"{out}: holds a run with its own partition.json; choose another directory (--out)")
    make_directory(out)
    counts = label_counts(labels, clients, dataset.classes)
    manifest = Manifest(resolved.data.name, len(labels), settings.model_dump(), resolved.seed, clients)
    save_manifest(out / "partition.json", manifest, counts)
    title = f"{resolved.data.name}, {settings.kind}, seed {resolved.seed}"
    draw_partition(labels, clients, out / "partition.png", dataset.classes, title=title)
    _say_counts(counts, f"{title}: samples by client and class")
    summary = partition_summary(labels, clients, dataset.classes)
    say(
        f"{summary.clients} clients, {summary.samples} samples: {summary.smallest} to {summary.largest} each "
        f"(median {summary.median_size:g}), {summary.fewest_classes} to {summary.most_classes} classes each "
        f"(median {summary.median_classes:g})"
    )
    say(
        f"labels per client: {summary.mean_entropy:.2f} bits of entropy, total variation {summary.mean_distance:.2f} "
        "from all labels (means over clients)"
    )
    say(f"sha256 {manifest.sha256}")
    say(f"Picture: {out / 'partition.png'}   Manifest: {out / 'partition.json'}")


def _say_counts(counts: "np.ndarray[Any, Any]", title: str) -> None:
    """Print the samples per class, for the first clients and classes."""
    headings = ["client", "samples", *map(str, range(min(counts.shape[1], MOST_CLASSES)))]
    rows = [
        [str(client), str(row.sum()), *(str(count) if count else "·" for count in row[:MOST_CLASSES])]
        for client, row in enumerate(counts[:MOST_CLIENTS])
    ]
    caption = f"the first {MOST_CLIENTS} of {len(counts)} clients" if len(counts) > MOST_CLIENTS else None
    say_table(headings, rows, title, caption, text_columns=0)
