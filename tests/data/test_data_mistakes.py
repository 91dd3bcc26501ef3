"""Mistakes that train silently are warned of, with field and remedy; good data is not."""

import numpy as np
import pytest

from fedsol.config.tables import DataSettings
from fedsol.data.catalog import load_dataset

RANDOM = np.random.default_rng(0)
LABELS = np.arange(40) % 2
FEATURES = RANDOM.normal(size=(40, 5))
PIXELS = RANDOM.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


def warnings_of(tmp_path, caplog, inputs, labels=LABELS):
    np.savez(tmp_path / "own.npz", x_train=inputs, y_train=labels)
    load_dataset(DataSettings(name=str(tmp_path / "own.npz"), test_fraction=0.25))
    return caplog.messages


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (
            PIXELS / 255,
            LABELS,
            r"x_train: float inputs of shape (8, 8, 3) look like images with channels last, but are read as 8",
        ),
        (FEATURES * [1, 1, 5000, 1, 1], LABELS, "x_train: the features are not scaled: feature 2 is "),
        (PIXELS.transpose(0, 3, 1, 2) / 1.0, LABELS, "x_train: the features are not scaled: feature "),
        (PIXELS // 128, LABELS, "x_train: the images have only the values 0 and 1, and uint8 pixels are 0 to 255"),
        (FEATURES, LABELS * 0, "y_train: every sample has the same label"),
    ],
)
def test_a_mistake_is_named_with_its_array_and_remedy(tmp_path, caplog, inputs, labels, message):
    (found,) = warnings_of(tmp_path, caplog, inputs, labels)
    assert f"own.npz: {message}" in found


def test_masks_of_black_and_white_are_not_256_classes(tmp_path, caplog):
    np.savez(tmp_path / "own.npz", x_train=PIXELS, y_train=(PIXELS[..., 0] > 99).astype(np.uint8) * 255)
    load_dataset(DataSettings(name=str(tmp_path / "own.npz"), test_fraction=0.25), "segmentation")
    (found,) = caplog.messages
    assert "own.npz: y_train: only 2 of 256 classes occur (0, 255), and the model has an output for each" in found


@pytest.mark.parametrize(
    "inputs",
    [
        FEATURES,
        FEATURES + 3,
        PIXELS,
        PIXELS.transpose(0, 3, 1, 2) / 255,
        RANDOM.normal(size=(40, 3, 8, 3)),
        PIXELS[..., 0],
    ],
)
def test_good_data_is_not_warned_of(tmp_path, caplog, inputs):
    assert warnings_of(tmp_path, caplog, inputs) == []
