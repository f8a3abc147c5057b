"""Which items go where: seeded, disjoint, the same on every machine.

Orders come from sorting the raw numbers of a bit generator. NumPy keeps these the same from
release to release, which it does not promise of ``Generator.permutation``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant.errors import CalibrantError

Rows = NDArray[np.int64]


class Chance:
    """Random numbers of a seed, the same whatever the version of NumPy.

    Examples:
        >>> chance = Chance(7)
        >>> sorted(chance.order(5).tolist())
        [0, 1, 2, 3, 4]
        >>> bool((chance.uniform(100) < 1).all())
        True
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def order(self, n: int) -> Rows:
        """0 to n - 1, shuffled."""
        return np.argsort(self._raw(n), kind="stable")

    def uniform(self, n: int) -> NDArray[np.float64]:
        """Numbers from 0 up to but not including 1, of 53 bits."""
        return (self._raw(n) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)

    def _raw(self, n: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(n), dtype=np.uint64)


def held_out(n: int, val_size: int, seed: int) -> tuple[Rows, Rows]:
    """(training rows, validation rows) of ``n``, both in the order of the seed."""
    check_enough_to_hold_out(n)
    size = _inputs.whole_number(val_size, "val_size", allowed=range(1, n))
    order = Chance(seed).order(n)
    return order[size:], order[:size]


def in_three(
    labels: Rows, val_share: float, test_share: float, seed: int
) -> tuple[Rows, Rows, Rows]:
    """(train, val, test) rows, every class divided in the same shares as nearly as can be.

    The rows of each class are spread evenly over the whole, and the whole is cut twice. The last
    row of each class is put at the end, where the training part is: no class is left unlearned.
    """
    shares = check_shares_of_parts(val_share, test_share)
    chance = Chance(seed)
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[chance.order(len(rows))]
        place[rows] = (np.arange(len(rows)) + chance.uniform(1)) / len(rows)
        place[rows[-1]] = 1.0
    order = np.argsort(place, kind="stable")
    ends = np.round(np.cumsum(shares) * len(labels)).astype(np.int64)
    check_no_empty_part(len(labels), np.diff(ends, prepend=0, append=len(labels)).tolist())
    test, val, train = (part[chance.order(len(part))] for part in np.split(order, ends))
    return train, val, test


def limited(rows: Rows, limit: int | None) -> Rows:
    """The first ``limit`` training rows; None: all."""
    return rows if limit is None else rows[:limit]


def check_shares_of_parts(val_share: Any, test_share: Any) -> tuple[float, float]:
    """(test, val) shares of a data set that leave something to train on."""
    val, test = (
        _inputs.finite_number(val_share, "val_share"),
        _inputs.finite_number(test_share, "test_share"),
    )
    if not (val > 0.0 and test > 0.0 and val + test < 1.0):
        raise CalibrantError(
            f"val_share and test_share must be above 0 and below 1 together; found {val:g} and "
            f"{test:g}. Pass 0.2 and 0.2, say"
        )
    return test, val


def check_no_empty_part(n_rows: int, sizes: Sequence[int]) -> None:
    """Enough rows for a test, a validation and a training part."""
    if min(sizes) < 1:
        raise CalibrantError(
            f"each part must have a row; found {n_rows} rows in all, which give {sizes[2]} for "
            f"training, {sizes[1]} for validation and {sizes[0]} for testing. Use more rows or "
            "other shares"
        )


def check_enough_to_hold_out(n: int) -> None:
    """Items to train on and items to hold out."""
    if n < 2:
        raise CalibrantError(
            f"there must be two or more items to divide into training and validation; found {n}. "
            "Look whether the files are complete"
        )
