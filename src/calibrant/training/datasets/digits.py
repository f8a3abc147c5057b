"""scikit-learn's handwritten digits: 1797 images of 8 x 8, part of the package itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.training import checks
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.images import Pool, image_data_set
from calibrant.training.datasets.splitting import Chance, Rows, in_three

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
    """The digits as images of one channel; nothing is downloaded and ``folder`` is not looked at.

    Of all labels, whatever their part, the share ``label_noise`` is drawn at random: what no
    network can know.

    Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), the
    test set of the UCI repository.
    """
    label_noise = checks.share_left_out(label_noise, "label_noise")
    _inputs.installed("sklearn", extra="sklearn", purpose="the data set digits")
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    features, classes = load_digits(return_X_y=True)
    truth = classes.astype(np.int64)
    labels = partly_drawn(truth, label_noise, seed)
    pool = Pool("digits", features.astype(np.uint8).reshape(-1, 1, 8, 8), labels)
    train, val, test = in_three(truth, val_share, test_share, seed)
    record: dict[str, Any] = {
        "seed": seed,
        "files": {},
        "split": (
            f"at random by the seed, classes in equal shares: test {test_share:g}, "
            f"val {val_share:g} of all"
        ),
        "notes": ["pixels go from 0 to 16; scikit-learn's copy of the UCI test set"],
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


def partly_drawn(labels: Rows, share: float, seed: int) -> Rows:
    """Labels of which the share ``share`` is drawn anew, from all classes alike.

    About one in ten of them is drawn to be what it was.

    Examples:
        >>> import numpy as np
        >>> labels = partly_drawn(np.zeros(10_000, dtype=np.int64), 0.2, seed=0)
        >>> round(float((labels != 0).mean()), 2)  # nine tenths of a fifth
        0.18
    """
    # The seed itself decides the parts: from the same numbers, noise and parts would go together.
    words = [seed, *b"label noise"]
    chance = Chance(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]))
    places = chance.order(len(labels))[: round(share * len(labels))]
    drawn = labels.copy()
    drawn[places] = (chance.uniform(len(places)) * N_CLASSES).astype(np.int64)
    return drawn
