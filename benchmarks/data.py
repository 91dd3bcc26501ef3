"""Data of the sizes that matter, with random content: what it shows has no influence on speed."""

import numpy as np


def tiny_images() -> dict[str, np.ndarray]:
    """200,000 and 1,000 gray images of 8 x 8: two for each of 100,000 clients."""
    return _random_images(200_000, 1_000, 8, 1)


def _random_images(train: int, test: int, side: int, channels: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (side, side, channels)
    return {
        "x_train": rng.integers(0, 256, (train, *shape), dtype=np.uint8),
        "y_train": np.arange(train) % 10,
        "x_test": rng.integers(0, 256, (test, *shape), dtype=np.uint8),
        "y_test": np.arange(test) % 10,
    }


def like_cifar10() -> dict[str, np.ndarray]:
    """50,000 and 10,000 color images of 32 x 32."""
    return _random_images(50_000, 10_000, 32, 3)


def like_mnist() -> dict[str, np.ndarray]:
    """60,000 and 10,000 gray images of 28 x 28."""
    return _random_images(60_000, 10_000, 28, 1)
