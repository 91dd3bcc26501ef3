"""`fedsol partition`: split the data among clients, and show and save the result."""

from typing import TYPE_CHECKING, Any

from fedsol.cli.console import say, say_table
from fedsol.cli.options import ExperimentArgument, OutOption, SetOption, new_directory, read_experiment
from fedsol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from torch import Tensor

    from fedsol.config.experiment import Experiment
    from fedsol.data.heterogeneity import Heterogeneity

MOST_CLIENTS, MOST_CLASSES = 20, 20
"""The most rows and columns that the table shows."""


def partition(experiment: ExperimentArgument = None, changes: SetOption = None, out: OutOption = None) -> None:
    """Split the data among clients; show a table and a picture, and save a manifest with a hash."""
    from fedsol.core.files import make_directory
    from fedsol.data.catalog import load_dataset
    from fedsol.data.description import client_names_of
    from fedsol.data.manifest import Manifest, label_counts, save_manifest
    from fedsol.data.summary import partition_summary
    from fedsol.federation.federation import fill_defaults, partition_of
    from fedsol.plots.partition import Names, draw_partition
    from fedsol.runs.directory import RunDirectory

    out = out or new_directory("partition")
    resolved = read_experiment(experiment, changes)
    dataset = load_dataset(resolved.data, resolved.task.kind)
    resolved = fill_defaults(resolved, dataset)
    partition = partition_of(resolved, dataset)
    clients = [indices.numpy() for indices in partition]
    labels = dataset.train.labels.numpy()
    settings = resolved.data.partition
    if RunDirectory(out).exists:
        raise InputError(f"{out}: holds a run with its own partition.json; choose another directory (--out)")
    make_directory(out)
    counts = label_counts(labels, clients, dataset.classes)
    manifest = Manifest(resolved.data.name, len(labels), settings.model_dump(), resolved.seed, clients)
    save_manifest(out / "partition.json", manifest, counts)
    title = f"{resolved.data.name}, {settings.kind}, seed {resolved.seed}"
    names = client_names_of(dataset, resolved.data)
    draw_partition(counts, out / "partition.png", title, Names(dataset.class_names, names))
    has_classes = resolved.task.kind == "classification"
    by = "samples by client and class" if has_classes else "samples by client"
    _say_counts(counts, names, dataset.class_names if has_classes else ("all",), f"{title}: {by}")
    summary = partition_summary(labels, clients, dataset.classes)
    sizes = f"{summary.clients} clients, {summary.samples} samples: {summary.smallest} to {summary.largest} each"
    say(f"{sizes} (median {summary.median_size:g})")
    if has_classes:
        say(
            f"classes per client: {summary.fewest_classes} to {summary.most_classes} (median "
            f"{summary.median_classes:g}); {summary.mean_entropy:.2f} bits of entropy, total variation "
            f"{summary.mean_distance:.2f} from all labels (means over clients)"
        )
    say(f"heterogeneity: {heterogeneity_text(summary.heterogeneity, has_classes)}")
    if set_aside := _parts_text(resolved, partition):
        say(set_aside)
    say(f"sha256 {manifest.sha256}")
    say(f"Picture: {out / 'partition.png'}   Manifest: {out / 'partition.json'}")


def heterogeneity_text(found: "Heterogeneity", has_classes: bool) -> str:
    """Return the numbers in words; only that of sizes where samples have no classes."""
    sizes = f"Gini coefficient of sizes {found.gini:.2f}"
    if not has_classes:
        return sizes
    return (
        f"Jensen-Shannon distance {found.jensen_shannon:.2f} from the labels of all clients, "
        f"{found.effective_classes:.2f} effective classes per client, {sizes}"
    )


def _parts_text(experiment: "Experiment", partition: "list[Tensor]") -> str:
    """Return how many samples are trained on and how many are set aside; nothing if all are trained on."""
    from fedsol.federation.sampling import central_validation, split_samples

    parts = [split_samples(experiment, indices, client) for client, indices in enumerate(partition)]
    training, validation, held_out = (sum(map(len, column)) for column in zip(*parts, strict=True))
    central = len(central_validation(experiment, partition))
    if not (validation or held_out or central):
        return ""
    by = " by the server" if central else ""
    return (
        f"of these, {training - central} are to train on, {validation + central} for validation{by}, {held_out} in "
        "hold-out sets"
    )


def _say_counts(counts: "np.ndarray[Any, Any]", clients: "Sequence[str]", classes: "Sequence[str]", title: str) -> None:
    """Print the samples per class, for the first clients and classes, by their names if they have any."""
    headings = [*classes] or [str(number) for number in range(counts.shape[1])]
    names = clients or [str(number) for number in range(len(counts))]
    rows = [
        [names[client], str(row.sum()), *(str(count) if count else "·" for count in row[:MOST_CLASSES])]
        for client, row in enumerate(counts[:MOST_CLIENTS])
    ]
    caption = f"the first {MOST_CLIENTS} of {len(counts)} clients" if len(counts) > MOST_CLIENTS else None
    say_table(["client", "samples", *headings[:MOST_CLASSES]], rows, title, caption, text_columns=1 if clients else 0)
