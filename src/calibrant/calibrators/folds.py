"""Folds for cross-validation that depend neither on the order of rows nor on how they repeat."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.data import Floats
from calibrant.metrics.binning import all_whole

FOLDS = 5
MANY = 10_000
"""From this many samples on there are two folds: they lead to the same choice in less time."""


class Folds(NamedTuple):
    """Rows divided into folds: each piece is a row, or its part in one fold."""

    row: npt.NDArray[np.intp]
    """The row of each piece."""
    fold: npt.NDArray[np.intp]
    """The fold of each piece."""
    share: Floats
    """The fraction of the row that the piece is."""

    @classmethod
    def of(cls, count: Floats) -> Folds:
        """Samples dealt out in turn, from rows that are sorted by what they hold.

        ``count`` is how many samples each row stands for. If these are whole numbers, a row of
        several samples is split among the folds: it does not matter whether a sample occurs twice
        or has weight 2.

        Examples:
            >>> import numpy as np
            >>> Folds.of(np.array([1.0, 2.0, 1.0])).fold.tolist()
            [0, 1, 2, 3]
        """
        n_folds = FOLDS if round(float(count.sum())) < MANY else 2
        size = count.astype(np.int64) if all_whole(count) else np.ones(len(count), dtype=np.int64)
        # Samples before + 0, 1, ... size - 1 are in the folds of these numbers modulo n_folds.
        before = (np.cumsum(size) - size)[:, np.newaxis] - np.arange(n_folds)
        in_fold = (before + size[:, np.newaxis] - 1) // n_folds - (before - 1) // n_folds
        row, fold = np.nonzero(in_fold)
        return cls(row, fold, in_fold[row, fold] / size[row])
