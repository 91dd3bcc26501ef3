"""An experiment on data that only nodes have, and a node's file."""

import numpy as np

from fedsol import Experiment

SHAPE = [1, 8, 8]


def settings(**changes):
    base = {
        "rounds": 1,
        "data.name": "private",
        "data.private.shape": SHAPE,
        "data.private.classes": 3,
        "data.partition.clients": 2,
        "data.partition.held_out": 0.25,
        "model.name": "mlp",
        "engine.kind": "local",
    }
    return Experiment().override({**base, **{key.replace("__", "."): value for key, value in changes.items()}})


def save(path, labels, images=None):
    count = len(labels)
    images = np.arange(count * 64, dtype=np.uint8).reshape(count, 8, 8) if images is None else images
    np.savez(path, x_train=images, y_train=np.array(labels))
    return str(path)
