"""evaluate_on(): the metrics of a model on data that it has not seen."""

from typing import Any

from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import on_device
from fedsol.data.batches import evaluation_batches
from fedsol.data.catalog import load_dataset
from fedsol.data.checks import require_label_places
from fedsol.data.types import Split
from fedsol.errors import InputError
from fedsol.federation.evaluation import evaluate, values_of
from fedsol.federation.federation import choose_device
from fedsol.federation.trained import TrainedModel
from fedsol.inference.predictions import tokens_known
from fedsol.inference.samples import labels_of, read_samples
from fedsol.objectives.metrics import Scorer

BY_CLASS = ("classification", "multilabel", "segmentation")
"""Tasks whose answers are counted by class or label, and there are not thousands of them."""


def evaluate_on(trained: TrainedModel, source: Any = None) -> dict[str, Any]:
    """Return the metrics on the labeled samples of a source; without one, on the test set of the experiment's data."""
    split = test_set(trained) if source is None else labeled_split(trained, source)
    device, scorer = choose_device(trained.experiment.engine.device), Scorer(trained.tested_objective)
    with one_torch_thread(), tokens_known(trained.data):
        batches = evaluation_batches(split, trained.data.blank(), trained.experiment.server.evaluate_batch, device)
        tally = evaluate(trained.split_model(device), on_device(trained.weights, device), batches, scorer)
        metrics: dict[str, Any] = {"examples": len(split), "loss": tally.loss, **values_of(tally, scorer)}
    if trained.objective.kind in BY_CLASS:
        metrics["class_accuracy"] = dict(zip(trained.data.names, tally.class_accuracy, strict=True))
    return metrics


def test_set(trained: TrainedModel) -> Split:
    """Load the test set of the experiment's own data."""
    settings = trained.experiment.data
    split = load_dataset(settings, trained.objective.kind).test
    if not len(split):
        raise InputError(f"data: {settings.name!r} has no test set; evaluate on other data")
    return split


def _labels_of(trained: TrainedModel) -> str:
    if trained.data.columns is not None and trained.data.target:
        return f"a value of {' and '.join(map(repr, trained.data.target))} in each row"
    return "an array 'labels' or 'y', or a folder for each class"


def labeled_split(trained: TrainedModel, source: Any) -> Split:
    """Return the samples of a source with their labels as numbers."""
    samples = read_samples(source, trained.data)
    if samples.labels is None:
        raise InputError(f"data: has no labels; must have {_labels_of(trained)}")
    split = Split(samples.inputs, labels_of(samples.labels, trained.data, trained.objective.kind))
    require_label_places(split, trained.objective.kind, "data")
    return split
