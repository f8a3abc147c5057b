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
    """Equal-mass calibration error of sorted rows, and by how much it may be off.

    ``correct`` is the weight of correct rows and 0 of others. Rows of equal confidence are one
    group, which an edge cuts in proportion. The true order of two rows whose log-odds differ by
    less than twice ``doubt`` may be the reverse, which matters if an edge runs between them.
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
    for values, distance in ((log_odds, 2.0 * doubt), (confidence, SAME)):
        lowest = np.minimum(lowest, np.searchsorted(values, values[start] - distance))
        farthest = np.searchsorted(values, values[stop - 1] + distance, side="right")
        highest = np.maximum(highest, farthest)
    below, above = mass[start] - mass[lowest], mass[highest] - mass[stop]
    at_end = np.minimum(below + mass[stop] - mass[start], above)
    moved = np.where(inner < ranks[group + 1], below + above, at_end)
    # Rows that change places matter as far as one is correct and the other is not.
    part, whole = inner - mass[lowest], mass[highest] - mass[lowest]
    now = np.interp(inner, ranks, hits[bounds]) - hits[lowest]
    all_hits = hits[highest] - hits[lowest]
    most, least = np.minimum(part, all_hits), np.maximum(part - (whole - all_hits), 0.0)
    exchanged = np.maximum(most - now, now - least)
    exchanged += whole * (confidence[highest - 1] - confidence[lowest])
    slack = 2.0 * np.minimum(moved, exchanged).sum()
    return error / edges[-1], (slack + weight @ reach_of(confidence, doubt)) / edges[-1]


def width_error(
    log_odds: Floats, correct: Floats, weight: Floats, edges: Floats, doubt: float
) -> tuple[Any, Any]:
    """Equal-width calibration error, and by how much it may be off: rows close to an edge."""
    confidence, last = sigmoid(log_odds), len(edges) - 2
    index = width_index(confidence, last + 1)
    gap_of_row = weight * confidence - correct
    gaps = np.bincount(index, weights=gap_of_row)
    reach = reach_of(confidence, doubt)
    is_close = confidence - reach - SAME <= edges[index]
    is_close |= (confidence + reach + SAME > edges[index + 1]) & (index < last)
    total = weight.sum()
    slack = 2.0 * np.abs(gap_of_row[is_close]).sum() + weight @ reach
    return np.abs(gaps).sum() / total, slack / total


def reach_of(confidence: Floats, doubt: float) -> Floats:
    """The largest change of each confidence whose log-odds may be off by ``doubt``.

    The derivative p (1 - p) grows by a factor e^doubt at most on the way, and is never above 1/4.
    """
    steepest = np.exp(min(doubt, 700.0)) * confidence * (1.0 - confidence)
    return np.asarray(doubt * np.minimum(steepest, 0.25))
