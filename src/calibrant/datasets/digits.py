"""scikit-learn's handwritten digits: 1797 images of 8 x 8, part of the package itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _checks
from calibrant.datasets.base import DataSet
from calibrant.datasets.images import Pool, image_data_set
from calibrant.datasets.splitting import in_three


def read_digits(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_share: float = 0.2,
    test_share: float = 0.2,
    augment: str = "none",
) -> DataSet:
    """The digits as images of one channel; nothing is downloaded and ``folder`` is not looked at.

    Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), the
    test set of the UCI repository.
    """
    _checks.installed("sklearn", extra="sklearn", purpose="the data set digits")
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    features, classes = load_digits(return_X_y=True)
    labels = classes.astype(np.int64)
    pool = Pool("digits", features.astype(np.uint8).reshape(-1, 1, 8, 8), labels)
    train, val, test = in_three(labels, val_share, test_share, seed)
    record: dict[str, Any] = {
        "seed": seed,
        "files": {},
        "split": (
            f"at random by the seed, classes in equal shares: test {test_share:g}, "
            f"val {val_share:g} of all"
        ),
        "notes": ["pixels go from 0 to 16; scikit-learn's copy of the UCI test set"],
    }
    return image_data_set(
        "digits",
        [str(digit) for digit in range(10)],
        {"train": (pool, train), "val": (pool, val), "test": (pool, test)},
        limit=limit,
        augment=augment,
        record=record,
    )
