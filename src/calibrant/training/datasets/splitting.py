"""Seeded, disjoint splits that are the same on every machine.

Permutations come from sorting the raw output of a bit generator. NumPy keeps that output stable
from release to release, which it does not promise for ``Generator.permutation``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant.errors import CalibrantError

Rows = NDArray[np.int64]


class StableRandom:
    """Random numbers of a seed, the same with every version of NumPy.

    Examples:
        >>> random = StableRandom(7)
        >>> sorted(random.permutation(5).tolist())
        [0, 1, 2, 3, 4]
        >>> bool((random.uniform(100) < 1).all())
        True
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def permutation(self, n: int) -> Rows:
        """0 to n - 1, shuffled."""
        return np.argsort(self._raw(n), kind="stable")

    def uniform(self, n: int) -> NDArray[np.float64]:
        """Numbers of 53 bits in [0, 1)."""
        return (self._raw(n) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)

    def _raw(self, n: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(n), dtype=np.uint64)


def hold_out(n: int, val_size: int, seed: int) -> tuple[Rows, Rows]:
    """(training rows, validation rows) of ``n``, both shuffled by the seed."""
    if n < 2:
        raise CalibrantError(
            f"training and validation need two or more items; found {n}. "
            "Check that the files are complete"
        )
    size = _inputs.whole_number(val_size, "val_size", allowed=range(1, n))
    order = StableRandom(seed).permutation(n)
    return order[size:], order[:size]


def share_of_each_class(labels: Rows, rows: Rows, share: float) -> Rows:
    """The first ``share`` of the rows of each class, rounded, and at least one; in the same order.

    Examples:
        >>> import numpy as np
        >>> labels = np.array([0, 1, 0, 0, 1, 0])
        >>> share_of_each_class(labels, np.array([5, 4, 3, 2, 1]), 0.5).tolist()
        [5, 4, 3]
    """
    share = _inputs.above_zero(share, "class_share")
    if share > 1.0:
        raise CalibrantError(
            f"class_share must be at most 1; found {share:g}. Pass 0.1 for a tenth of each class"
        )
    kept = np.zeros(len(rows), dtype=np.bool_)
    for label in np.unique(labels[rows]):
        places = np.flatnonzero(labels[rows] == label)
        kept[places[: max(1, round(share * len(places)))]] = True
    return rows[kept]


def stratified_split(
    labels: Rows, val_share: float, test_share: float, seed: int
) -> tuple[Rows, Rows, Rows]:
    """(train, val, test) rows; each class is divided in the same shares as nearly as possible.

    The rows of each class are spread evenly over the whole, and the whole is cut twice. The last
    row of each class goes to the end, where the training split is, so every class is trained on.
    """
    val_share = _inputs.finite_number(val_share, "val_share")
    test_share = _inputs.finite_number(test_share, "test_share")
    if not (val_share > 0.0 and test_share > 0.0 and val_share + test_share < 1.0):
        raise CalibrantError(
            "val_share and test_share must be above 0 and their sum below 1; found "
            f"{val_share:g} and {test_share:g}. Pass 0.2 and 0.2, for example"
        )
    random = StableRandom(seed)
    position = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[random.permutation(len(rows))]
        position[rows] = (np.arange(len(rows)) + random.uniform(1)) / len(rows)
        position[rows[-1]] = 1.0
    order = np.argsort(position, kind="stable")
    ends = np.round(np.cumsum((test_share, val_share)) * len(labels)).astype(np.int64)
    test, val, train = np.split(order, ends)
    if not (len(test) and len(val) and len(train)):
        raise CalibrantError(
            f"each split must have a row; found {len(labels)} rows in all, which give "
            f"{len(train)} for training, {len(val)} for validation and {len(test)} for testing. "
            "Use more rows or other shares"
        )
    test, val, train = (rows[random.permutation(len(rows))] for rows in (test, val, train))
    return train, val, test
