"""scikit-learn's handwritten digits: 1797 images of 8 x 8, which come with that package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.training import checks
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.images import Pool, image_data_set
from calibrant.training.datasets.splitting import Rows, StableRandom, stratified_split

N_CLASSES = 10


def read_digits(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_share: float = 0.2,
    test_share: float = 0.2,
    augment: str = "none",
    label_noise: float = 0.0,
) -> DataSet:
    """The digits as images of one channel; ``folder`` is ignored.

    ``label_noise`` is the share of labels, over all splits, that are replaced at random. No network
    can predict these.

    Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), the
    test set of the UCI repository.
    """
    label_noise = checks.fraction_below_one(label_noise, "label_noise")
    _inputs.installed("sklearn", extra="sklearn", purpose="the data set digits")
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    features, classes = load_digits(return_X_y=True)
    truth = classes.astype(np.int64)
    labels = with_label_noise(truth, label_noise, seed)
    pool = Pool("digits", features.astype(np.uint8).reshape(-1, 1, 8, 8), labels)
    train, val, test = stratified_split(truth, val_share, test_share, seed)
    record: dict[str, Any] = {
        "files": {},
        "split": (f"stratified, drawn by the seed: test {test_share:g}, val {val_share:g}"),
        "notes": ["pixels range from 0 to 16; scikit-learn's copy of the UCI test set"],
    }
    if label_noise:
        record["label_noise"] = {
            "share": label_noise,
            "changed": int((labels != truth).sum()),
            "of": len(labels),
        }
    return image_data_set(
        "digits",
        [str(digit) for digit in range(N_CLASSES)],
        {"train": (pool, train), "val": (pool, val), "test": (pool, test)},
        limit=limit,
        augment=augment,
        record=record,
    )


def with_label_noise(labels: Rows, share: float, seed: int) -> Rows:
    """Labels of which the share ``share`` is replaced by classes drawn uniformly.

    About one in ten of these draws returns the original class.

    Examples:
        >>> import numpy as np
        >>> labels = with_label_noise(np.zeros(10_000, dtype=np.int64), 0.2, seed=0)
        >>> round(float((labels != 0).mean()), 2)  # nine tenths of a fifth
        0.18
    """
    # The seed itself decides the splits; the same stream would correlate noise and splits.
    words = [seed, *b"label noise"]
    random = StableRandom(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]))
    rows = random.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    noisy[rows] = (random.uniform(len(rows)) * N_CLASSES).astype(np.int64)
    return noisy
