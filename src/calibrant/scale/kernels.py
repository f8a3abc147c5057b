"""Compiled passes over rows: which rows are usable and correct, and counts in cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._numerics.compiled import index_of, kernel, max_of, over_rows


@over_rows
def all_usable(start: int, stop: int, logits: Any, labels: Any, correct: Any) -> bool:
    """Whether a fit accepts all rows; sets ``correct`` where the largest logit is the label's.

    A fit refuses NaN, +inf, a row or a label of -inf, and a label that is not a class. The checks
    say which row is wrong and why.
    """
    usable = True
    n_classes = logits.shape[1]
    for i in range(start, stop):
        row = logits[i]
        top = max_of(row)
        label = labels[i]
        correct[i] = index_of(row, top) == label
        # Written so that NaN fails it.
        if not (abs(top) < np.inf and 0 <= label < n_classes and row[label] > -np.inf):
            usable = False
    return usable


@over_rows
def cells_between(start: int, stop: int, confidence: Any, boundaries: Any, cells: Any) -> None:
    """Cell j holds boundaries[j - 1] < confidence <= boundaries[j]."""
    for i in range(start, stop):
        c = confidence[i]
        below, left = 0, len(boundaries)
        while left > 0:  # binary search without a branch: how many boundaries are below c
            half = (left + 1) >> 1
            below += half if boundaries[below + half - 1] < c else 0
            left >>= 1
        cells[i] = below


@kernel()
def add_to_sums(cells: Any, confidence: Any, correct: Any, sums: Any) -> None:
    """Rows, sum of confidences, correct rows, smallest and largest confidence: (cells, 5)."""
    for i in range(len(cells)):
        j, c = cells[i], confidence[i]
        sums[j, 0] += 1.0
        sums[j, 1] += c
        sums[j, 2] += 1.0 if correct[i] else 0.0
        sums[j, 3] = min(sums[j, 3], c)
        sums[j, 4] = max(sums[j, 4], c)
