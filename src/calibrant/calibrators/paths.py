"""The smallest calibration error along paths of points (gamma, T), without trying every point.

A path is a row of points along which the confidence of every sample changes smoothly: one gamma
and all temperatures, or the line of the line search.

1. At a few *nodes* of each path the confidences are computed and averaged. No calibration error is
   smaller than |mean confidence - accuracy|, and the mean between the nodes follows by
   interpolation: a point where this bound exceeds what some other point achieves is out.
2. Where points are left, the log odds of every row are computed at nodes that lie closer, and
   interpolated between them; the error follows, with a bound on what interpolation can change.
3. The points that could still be the best are evaluated exactly, and the best of them returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant.binning import all_whole, mass_edges, width_edges
from calibrant.calibrators.base import Floats
from calibrant.calibrators.evaluator import Evaluator

Indices = npt.NDArray[np.intp]

MARGIN = 1e-3
"""How far the interpolated mean confidence is trusted."""
FIRST_DOUBT = 1e-6
"""Error of interpolated log odds that is assumed until it has been measured."""
LEAST_MEMORY = 1 << 26
"""Bytes that interpolation may use, however small the logits are."""
SATURATED = 34.0
"""Log odds beyond which the confidence rounds to 1."""
POINTS_PER_TASK = 16


@dataclass(frozen=True)
class Point:
    """A point (gamma, T) and the criterion there."""

    gamma: float
    temperature: float
    value: float

    @property
    def rank(self) -> tuple[float, float, float]:
        """Smaller is better; of equal values, what changes the probabilities least."""
        return self.value, abs(self.gamma), abs(np.log(self.temperature))


def smallest_on_grid(evaluator: Evaluator, gammas: Floats, temperatures: Floats) -> Point:
    """The best point of a full grid."""
    x = np.log(temperatures)
    nodes = chebyshev_nodes(x[0], x[-1])
    sums = _node_log_odds(evaluator, gammas, nodes, keep=False)[1]
    weight = evaluator.data.weight
    total = float(len(evaluator.data)) if weight is None else float(weight.sum())
    mean_confidence = (sums / total) @ interpolation(nodes, x).T
    bound = np.abs(mean_confidence - evaluator.data.mean(evaluator.correct)) - MARGIN

    # One exact value on some of the gammas, where the bound is lowest, to compare with.
    best = min(
        (
            _exact(evaluator, float(gammas[c]), float(temperatures[bound[c].argmin()]))
            for c in range(0, len(gammas), 3)
        ),
        key=lambda point: point.rank,
    )
    left = bound <= best.value
    for group in _groups(evaluator, left, x):
        best = _best_of_group(evaluator, gammas, temperatures, left, group, best)
    return best


def chebyshev_nodes(low: float, high: float) -> Floats:
    """Nodes for interpolation between ``low`` and ``high``, closer where they are far apart."""
    n = 10 + int(np.ceil(5.0 * (high - low)))
    angles = np.pi * np.arange(n) / (n - 1)
    return 0.5 * (low + high) - 0.5 * (high - low) * np.cos(angles)


def interpolation(nodes: Floats, x: Floats) -> Floats:
    """Weights (points, nodes) of the interpolating polynomial, by the barycentric formula."""
    signs = np.where(np.arange(len(nodes)) % 2 == 0, 1.0, -1.0)
    signs[[0, -1]] *= 0.5
    distance = x[:, None] - nodes[None, :]
    at_node = distance == 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = signs / distance
        weights /= weights.sum(axis=1, keepdims=True)
    hit = at_node.any(axis=1)
    weights[hit] = at_node[hit]
    return weights


def series_of(gammas: Floats) -> Floats:
    """Coefficients [gamma, a, b] of q^a (log q)^b in 1 / phi(q), for b <= a.

    1 / phi = (1-q)^-gamma / (1 - gamma q log q / (1-q)), and q^c in (1-q)^-(gamma+b) has the
    coefficient (gamma+b) (gamma+b+1) ... (gamma+b+c-1) / c!.
    """
    from scipy.special import factorial, poch

    from calibrant.calibrators._search_kernels import ORDER

    a, b = np.mgrid[0 : ORDER + 1, 0 : ORDER + 1]
    g, c = gammas[:, None, None], np.maximum(a - b, 0)
    return np.where(b <= a, g**b * poch(g + b, c) / factorial(c), 0.0)


def _exact(evaluator: Evaluator, gamma: float, temperature: float) -> Point:
    return Point(gamma, temperature, evaluator(gamma, temperature))


def _node_log_odds(
    evaluator: Evaluator, gammas: Floats, nodes: Floats, *, keep: bool
) -> tuple[npt.NDArray[np.float32], Floats]:
    """T times the log odds (gammas, rows, nodes), if kept, and the sums of the confidences."""
    import numba

    from calibrant.calibrators._search_kernels import node_log_odds

    data = evaluator.data
    out = np.empty((len(gammas), len(data) if keep else 0, len(nodes)), dtype=np.float32)
    sums = node_log_odds(
        data.logits,
        np.empty(0) if data.weight is None else data.weight,
        np.exp(-nodes),
        gammas,
        series_of(gammas),
        8 * numba.get_num_threads(),
        out,
    )
    return out, sums


def _groups(evaluator: Evaluator, left: npt.NDArray[np.bool_], x: Floats) -> Iterator[Indices]:
    """Gammas whose nodes are computed together, as many as memory allows."""
    data = evaluator.data
    most = max(data.logits.nbytes // 2, LEAST_MEMORY)
    group: list[int] = []
    for c in np.flatnonzero(left.any(axis=1)):
        wider = [*group, int(c)]
        nodes = _nodes_around(left, wider, x)
        if group and 4 * len(data) * len(wider) * len(nodes) > most:
            yield np.array(group)
            wider = [int(c)]
        group = wider
    if group:
        yield np.array(group)


def _nodes_around(left: npt.NDArray[np.bool_], group: list[int] | Indices, x: Floats) -> Floats:
    """Nodes of a band in which all points lie that are left on these gammas."""
    where = x[left[group].any(axis=0)]
    return chebyshev_nodes(where[0] - 1e-3, where[-1] + 1e-3)


def _best_of_group(
    evaluator: Evaluator,
    gammas: Floats,
    temperatures: Floats,
    left: npt.NDArray[np.bool_],
    group: Indices,
    best: Point,
) -> Point:
    """The best of ``best`` and the points that are left on the gammas of ``group``."""
    x = np.log(temperatures)
    nodes = _nodes_around(left, group, x)
    scaled, _ = _node_log_odds(evaluator, gammas[group], nodes, keep=True)
    path, step = np.nonzero(left[group])
    return best_of_points(
        evaluator,
        scaled,
        path,
        gammas[group][path],
        temperatures[step],
        interpolation(nodes, x[step]),
        best,
    )


def best_of_points(
    evaluator: Evaluator,
    scaled: npt.NDArray[np.float32],
    path: Indices,
    gammas: Floats,
    temperatures: Floats,
    stencils: Floats,
    best: Point | None,
) -> Point:
    """The best of ``best`` and of points whose log odds are interpolated from ``scaled``.

    Point p is (gammas[p], temperatures[p]); T times its log odds are ``stencils[p]`` times those
    at the nodes of ``scaled[path[p]]``.
    """
    doubt = FIRST_DOUBT
    tried: dict[int, Point] = {}
    while True:
        values, slack = _errors_between(evaluator, scaled, path, temperatures, stencils, doubt)
        lowest, highest = values - slack - doubt, values + slack + doubt
        highest_best = highest.min() if best is None else min(highest.min(), best.value)
        worse = doubt
        for p in np.argsort(values, kind="stable"):
            if lowest[p] > highest_best:
                continue
            if p not in tried:
                log_odds = evaluator.log_odds(float(gammas[p]), float(temperatures[p]))
                guess = (scaled[path[p]] @ stencils[p]) / temperatures[p]
                open_rows = np.abs(log_odds) < SATURATED
                off = np.abs(log_odds - guess)[open_rows].max(initial=0.0)
                worse = max(worse, 2.0 * off)
                value = evaluator.binned(log_odds)
                tried[p] = Point(float(gammas[p]), float(temperatures[p]), value)
                highest_best = min(highest_best, value)
        if worse == doubt:
            found = [*tried.values()] if best is None else [best, *tried.values()]
            return min(found, key=lambda point: point.rank)
        doubt = 2.0 * worse  # interpolation was less exact than assumed: once more, more carefully


def _errors_between(
    evaluator: Evaluator,
    scaled: npt.NDArray[np.float32],
    path: Indices,
    temperatures: Floats,
    stencils: Floats,
    doubt: float,
) -> tuple[Floats, Floats]:
    """The calibration error at each point from interpolated log odds, and its uncertainty."""
    from calibrant.calibrators._search_kernels import errors_between

    weight = evaluator.data.weight
    by_mass = evaluator.criterion == "ada_ece"
    if by_mass:
        whole = weight is None or all_whole(weight)
        total = float(len(evaluator.data)) if weight is None else float(weight.sum())
        edges = mass_edges(total, evaluator.n_bins, whole=whole)
    else:
        edges = width_edges(evaluator.n_bins)
    # Neighbours on a path are nearly in the same order, so each task is a stretch of one path.
    starts = np.arange(0, len(path), POINTS_PER_TASK)
    tasks = np.unique(np.concatenate([starts, np.flatnonzero(np.diff(path)) + 1, [len(path)]]))
    values, slack = errors_between(
        scaled,
        path,
        stencils,
        1.0 / temperatures,
        tasks,
        evaluator.correct,
        np.empty(0) if weight is None else weight,
        edges,
        by_mass,
        doubt,
    )
    return values, slack
