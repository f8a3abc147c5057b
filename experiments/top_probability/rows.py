"""Rows of probabilities to search."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def rising_rows(n_classes: int, parts: int) -> Floats:
    """Every row of positive multiples of 1/parts that sums to 1, its classes in rising order."""
    lower = combinations_with_replacement(range(1, parts), n_classes - 1)
    rows = [(*row, parts - sum(row)) for row in lower if parts - sum(row) >= row[-1]]
    return np.array(rows, dtype=float) / parts


def two_level_rows(n_classes: int, steps: int) -> Floats:
    """Rows with some equal largest classes and the others equal."""
    rows = []
    for n_top in sorted({1, 2, 3, n_classes // 4, n_classes // 2, n_classes - 1}):
        for held in n_top / n_classes + (1.0 - n_top / n_classes) * np.arange(1, steps) / steps:
            low = (1.0 - held) / (n_classes - n_top)
            rows.append(np.r_[np.full(n_top, held / n_top), np.full(n_classes - n_top, low)])
    return np.array(rows)
