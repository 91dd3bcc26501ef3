"""A federation without its data: enough to build a model and to count what it costs."""

import torch

from fedsol.config.experiment import Experiment
from fedsol.data.catalog import SPECS
from fedsol.data.types import Dataset, Split
from fedsol.federation.federation import Federation, assemble, fill_defaults, load_dataset


def outline(experiment: Experiment) -> Federation:
    """The experiment's model and settings, with no clients. A named dataset need not be on the disk."""
    spec = SPECS.get(experiment.data.name)
    if spec is None:
        dataset = load_dataset(experiment.data)
    else:
        side = experiment.data.image_size or spec.image_size
        shape = (spec.shape[0], side, side) if side else spec.shape
        empty = Split(torch.empty((0, *shape), dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
        channels = experiment.data.channels or spec.channels
        dataset = Dataset(spec.name, empty, empty, spec.classes, spec.mean, spec.std, channels=channels)
    return assemble(fill_defaults(experiment, dataset), dataset, [])
