"""Labels drawn from probabilities in NumPy, for a command that draws them once.

The compiled form, ``count_drawn_labels``, takes a quarter of the time, but seconds to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.metrics.kernels import bins_of_few
from calibrant.metrics.samples import Floats

DRAWN_AT_ONCE = 1 << 20
"""Labels that are drawn at a time."""


def count_few_drawn_labels(
    rows: Floats, edges: Floats, first: Any, correct: Floats, drawn: Any
) -> None:
    """``count_drawn_labels`` of samples of weight 1: the same labels, up to rounding."""
    n_classes, n_simulations, n_bins = rows.shape[1], correct.shape[1], len(edges) - 1
    columns = np.arange(n_simulations)
    at_once = max(1, DRAWN_AT_ONCE // n_simulations)
    for start in range(0, len(rows), at_once):
        probs = rows[start : start + at_once]
        cut, alias = _alias_of_few(probs)
        own = np.arange(n_classes) * n_bins + bins_of_few(probs, edges)
        cells = np.stack([np.take_along_axis(own, alias, axis=1), own], axis=2).ravel()
        top = own[np.arange(len(probs)), probs.argmax(axis=1)]
        counters = np.arange(start * n_simulations, (start + len(probs)) * n_simulations)
        u = _uniform_of_few(counters.astype(np.uint64) + first).reshape(-1, n_simulations)
        u *= n_classes
        of = u.astype(np.intp)
        u -= of
        of += np.arange(len(probs))[:, np.newaxis] * n_classes
        found = cells[2 * of + (u < cut.ravel()[of])]
        correct[start : start + len(probs)] = found == top[:, np.newaxis]
        found *= n_simulations
        found += columns
        drawn += np.bincount(found.ravel(), minlength=drawn.size).reshape(drawn.shape)


def _uniform_of_few(counters: npt.NDArray[np.uint64]) -> Floats:
    """``uniform_of`` of each counter."""
    z = (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _alias_of_few(probs: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """``cut`` and ``alias`` of ``tabulate_alias``, for all rows at a time."""
    n, n_classes = probs.shape
    cut = probs * (n_classes / probs.sum(axis=1, keepdims=True))
    alias = np.tile(np.arange(n_classes), (n, 1))
    below_one = cut < 1.0
    small = below_one.sum(axis=1)
    large = small.copy()
    from_end = n_classes - np.cumsum(~below_one, axis=1)
    place = np.where(below_one, np.cumsum(below_one, axis=1) - 1, from_end)
    waiting = np.empty_like(alias)
    np.put_along_axis(waiting, place, alias, axis=1)
    row = np.flatnonzero((small > 0) & (large < n_classes))
    while len(row):
        small[row] -= 1
        below, above = waiting[row, small[row]], waiting[row, large[row]]
        alias[row, below] = above
        left = cut[row, above] - (1.0 - cut[row, below])
        cut[row, above] = left
        is_small = left < 1.0
        moved = row[is_small]
        waiting[moved, small[moved]] = above[is_small]
        small[moved] += 1
        large[moved] += 1
        row = row[(small[row] > 0) & (large[row] < n_classes)]
    return cut, alias
