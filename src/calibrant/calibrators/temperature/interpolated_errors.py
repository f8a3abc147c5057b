"""Calibration errors from interpolated log-odds, and how far the interpolation may put them off.

All of this is NumPy: the search asks for a few hundred points, which takes less time than
compilation would.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import Floats
from calibrant.calibrators.temperature.criterion import EvaluatorInMemory
from calibrant.metrics.binning import (
    all_whole,
    group_starts,
    mass_edges,
    width_edges,
    width_index,
)

SAME = 4e-16
"""Confidences closer than this may round to the same number, or to the opposite order."""


def errors_between(
    evaluator: EvaluatorInMemory,
    scaled: npt.NDArray[np.float32],
    path: npt.NDArray[np.intp],
    temperatures: Floats,
    stencils: Floats,
    doubt: Floats,
) -> tuple[Floats, Floats]:
    """The calibration error at each point, and by how much it may be off.

    T times the log-odds of point p are ``stencils[p]`` times those at the nodes of
    ``scaled[path[p]]``; its log-odds may be off by ``doubt[p]``. Points are in the order of paths.
    """
    data, n_bins = evaluator.data, evaluator.n_bins
    weight = np.ones(len(data)) if data.weight is None else data.weight
    correct = weight * data.correct
    order, found = np.arange(len(data)), np.empty((2, len(path)))
    edges = mass_edges(float(weight.sum()), n_bins, whole=all_whole(weight))
    for p, at in enumerate(path):
        if p == 0 or at != path[p - 1]:
            at_nodes = scaled[at].astype(np.float64)
        log_odds = at_nodes @ stencils[p] / temperatures[p]
        if evaluator.criterion == "ece":
            found[:, p] = width_error(log_odds, correct, weight, width_edges(n_bins), doubt[p])
            continue
        # Neighbours on a path sort the rows almost alike, which a stable sort makes use of.
        order = order[np.argsort(log_odds[order], kind="stable")]
        found[:, p] = mass_error(log_odds[order], correct[order], weight[order], edges, doubt[p])
    return found[0], found[1]


def mass_error(
    log_odds: Floats, correct: Floats, weight: Floats, edges: Floats, doubt: float
) -> tuple[Any, Any]:
    """Equal-mass calibration error of sorted rows, and the largest change from a wrong order.

    ``correct`` is the weight of correct rows and 0 of others. Rows of equal confidence are one
    group, which an edge cuts in proportion. The true order of two rows whose log-odds differ by
    less than ``doubt`` may be the reverse, which matters if an edge runs between them.
    """
    confidence = sigmoid(log_odds)
    first = np.flatnonzero(group_starts(confidence))
    bounds = np.append(first, len(log_odds))
    mass, hits = (np.append(0.0, np.cumsum(each)) for each in (weight, correct))
    ranks = mass[bounds]
    ranks[-1] = edges[-1]  # equal up to rounding
    gaps = np.append(0.0, np.cumsum(confidence[first] * np.diff(ranks))) - hits[bounds]
    error = np.abs(np.diff(np.interp(edges, ranks, gaps))).sum()

    inner = edges[1:-1]
    group = np.minimum(np.searchsorted(ranks[1:], inner), len(first) - 1)
    start, stop = bounds[group], bounds[group + 1]
    lowest, highest = start, stop
    for values, distance in ((log_odds, doubt), (confidence, SAME)):
        lowest = np.minimum(lowest, np.searchsorted(values, values[start] - distance))
        farthest = np.searchsorted(values, values[stop - 1] + distance, side="right")
        highest = np.maximum(highest, farthest)
    below, above = mass[start] - mass[lowest], mass[highest] - mass[stop]
    at_end = np.minimum(below + mass[stop] - mass[start], above)
    slack = 2.0 * np.where(inner < ranks[group + 1], below + above, at_end).sum()
    return error / edges[-1], slack / edges[-1]


def width_error(
    log_odds: Floats, correct: Floats, weight: Floats, edges: Floats, doubt: float
) -> tuple[Any, Any]:
    """Equal-width calibration error, and the largest change from rows close to an edge."""
    confidence, last = sigmoid(log_odds), len(edges) - 2
    index = width_index(confidence, last + 1)
    gaps = np.bincount(index, weights=weight * confidence - correct)
    reach = doubt * confidence * (1.0 - confidence) + SAME
    is_close = confidence - reach <= edges[index]
    is_close |= (confidence + reach > edges[index + 1]) & (index < last)
    total = weight.sum()
    return np.abs(gaps).sum() / total, 2.0 * weight[is_close].sum() / total
