"""Compiled loops over the sorted samples of one binary problem."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import kernel

Floats = npt.NDArray[np.float64]


@kernel(error_model="numpy")
def isotonic_with_a_hit(weight: Floats, hits: Floats) -> Floats:
    """For each of G groups, the isotonic fit there after one more hit in this group.

    ``weight`` and ``hits`` are sums over the groups so far, (G + 1,), starting with 0. An isotonic
    fit is the slope of the lower convex hull of these points. One more hit in group i moves the
    points before it by (-1, -1); the answer is the slope of the edge from the moved points to the
    others. A stack holds this edge on top and the rest of the hull below it. Each point is pushed
    twice at most, so the loop takes linear time (Vovk, Petej, Fedorova 2015, algorithms 1 and 2).
    """
    n_groups = len(weight) - 1
    x, y = np.empty(n_groups + 1), np.empty(n_groups + 1)
    size = 0
    for i in range(n_groups, -1, -1):
        new_x, new_y = (weight[i], hits[i]) if i else (-1.0, -1.0)
        size = _without_covered(x, y, size, new_x, new_y)
        x[size], y[size] = new_x, new_y
        size += 1
    found = np.empty(n_groups)
    for i in range(1, n_groups + 1):
        run, rise = x[size - 2] - x[size - 1], y[size - 2] - y[size - 1]
        found[i - 1] = rise / run
        new_x, new_y = weight[i] - 1.0, hits[i] - 1.0
        below = run * (new_y - y[size - 1]) < rise * (new_x - x[size - 1])
        if below and i < n_groups:
            size = _without_covered(x, y, size - 1, new_x, new_y)
            x[size], y[size] = new_x, new_y
            size += 1
    return found


@kernel(inline="always", error_model="numpy")
def _without_covered(x: Floats, y: Floats, size: int, new_x: float, new_y: float) -> int:
    """The size of the stack without points on or above the line to a new point on its left."""
    while size > 1:
        to_top = (x[size - 1] - new_x, y[size - 1] - new_y)
        to_next = (x[size - 2] - x[size - 1], y[size - 2] - y[size - 1])
        if to_top[0] * to_next[1] > to_top[1] * to_next[0]:
            break
        size -= 1
    return size
