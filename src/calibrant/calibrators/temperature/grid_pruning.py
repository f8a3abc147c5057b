"""The smallest calibration error along paths of points (gamma, T), without trying every point.

A path is a sequence of points along which the confidence of every sample changes smoothly: one
gamma and all temperatures, or the line of the line search.

1. The mean confidence is computed at a few *nodes* of each path and interpolated between them. No
   calibration error is smaller than |mean confidence - accuracy|, so a point where this bound
   exceeds the error of some other point is pruned.
2. For the points that are left, the log-odds of every row are computed at closer nodes and
   interpolated. They give the calibration error, with a bound on the interpolation error.
3. The points that could still be the best are evaluated exactly, and the best of them is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.first_use import are_few_and_once
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.temperature.criterion import Evaluator, EvaluatorInMemory, Point
from calibrant.calibrators.temperature.interpolated_errors import errors_between
from calibrant.focal.scalar import phi

Indices = npt.NDArray[np.intp]

COARSE, FINE = 3e-3, 1e-7
"""Target errors of interpolation: of the mean confidence, and of the log-odds of each row."""
WIDER = 1e-3
"""Margin, in log T, of the nodes on both sides of the points: a single T has nodes around it."""
LEAST_MARGIN = 1e-4
"""Smallest error assumed for the interpolated mean confidence."""
LEAST_DOUBT = 4e-6
"""Smallest error assumed for interpolated log-odds, which are stored in single precision."""
LEAST_MEMORY = 3 << 18
"""Bytes that interpolation may always use, even if the logits take less; more would only save
cheap passes."""
SATURATED = 34.0
"""Log-odds above which the confidence rounds to 1."""
EVERY = 3
"""One in this many gammas is evaluated exactly before the search, for values to compare with."""


@singledispatch
def smallest_on_grid(evaluator: Evaluator, gammas: Floats, temperatures: Floats) -> Point:
    """The best point of a full grid, by a calibration error."""
    raise TypeError(f"no search of a grid is defined for {type(evaluator).__name__}")


@singledispatch
def smallest_on_line(
    evaluator: Evaluator, gammas: Floats, temperatures: Floats, best: Point
) -> Point:
    """The best of ``best`` and of points on a straight line, in the order of their gammas."""
    raise TypeError(f"no search of a line is defined for {type(evaluator).__name__}")


@smallest_on_grid.register
def _on_grid(evaluator: EvaluatorInMemory, gammas: Floats, temperatures: Floats) -> Point:
    x = np.log(temperatures)
    bound = lower_bound(evaluator.data, gammas, x)
    # Exact values to compare with, where the bound is lowest.
    lowest = [(gammas[c], temperatures[bound[c].argmin()]) for c in range(0, len(gammas), EVERY)]
    tried = [Point(float(g), float(t), evaluator(float(g), float(t))) for g, t in lowest]
    best = min(tried, key=lambda point: point.rank)
    left = bound <= best.value
    for group, nodes in _groups(evaluator.data, left, x):
        scaled, _ = node_log_odds_of(evaluator.data, gammas[group], nodes, keep=True)
        path, step = np.nonzero(left[group])
        at = gammas[group][path], temperatures[step]
        stencils = interpolation(nodes, x[step])
        best = best_of_points(evaluator, scaled, path, *at, stencils, best)
    return best


@smallest_on_line.register
def _on_line(
    evaluator: EvaluatorInMemory, gammas: Floats, temperatures: Floats, best: Point
) -> Point:
    from calibrant.calibrators.temperature.search_kernels import CERTAIN

    nodes = chebyshev_nodes(gammas[0], gammas[-1], evaluator.data.n_classes, FINE)
    slope = (temperatures[-1] - temperatures[0]) / max(gammas[-1] - gammas[0], LEAST_MARGIN)
    at_nodes = temperatures[0] + slope * (nodes - gammas[0])
    scaled = np.stack(
        [
            np.clip(t * evaluator.log_odds(float(g), float(t)), -CERTAIN, CERTAIN)
            for g, t in zip(nodes, at_nodes, strict=True)
        ],
        axis=-1,
    ).astype(np.float32)[None]
    path = np.zeros(len(gammas), dtype=np.intp)
    stencils = interpolation(nodes, gammas)
    return best_of_points(evaluator, scaled, path, gammas, temperatures, stencils, best)


def lower_bound(data: Samples, gammas: Floats, x: Floats) -> Floats:
    """|mean confidence - accuracy|, minus the possible interpolation error: (gammas, points)."""
    nodes = chebyshev_nodes(x[0] - WIDER, x[-1] + WIDER, data.n_classes, COARSE)
    sums, total = data.summed(_node_sums, gammas, nodes)
    mean = sums / total
    margin = LEAST_MARGIN + 8.0 * last_coefficients(mean)
    return np.asarray(np.abs(mean @ interpolation(nodes, x).T - data.accuracy) - margin[:, None])


def _node_sums(data: FitData, gammas: Floats, nodes: Floats) -> tuple[Floats, float]:
    """The sums of the confidences (gammas, nodes), and the number of samples or their weight."""
    total = len(data) if data.weight is None else data.weight.sum()
    return node_sums(data, gammas, nodes), float(total)


@singledispatch
def node_sums(data: FitData, gammas: Floats, nodes: Floats) -> Floats:
    """The sums of the confidences at every gamma and log T."""
    return node_log_odds_of(data, gammas, nodes, keep=False)[1]


def chebyshev_nodes(low: float, high: float, n_classes: int, error: float) -> Floats:
    """Nodes between ``low`` and ``high``, in log T, that interpolate confidences to ``error``.

    A softmax of K classes has no pole closer to the real line of log T than atan(pi / log(K - 1)),
    where K - 1 equal classes cancel the top one. Interpolation converges like rho^-n, where rho is
    the size of the ellipse around the interval that reaches the pole. A multiple of 8 fills the
    processor's registers.

    The line search uses the same number of nodes along gamma, where it is a guess: nothing of this
    was derived for gamma. In both cases :func:`last_coefficients` and the exact values in
    :func:`best_of_points` measure the interpolation error.
    """
    pole = np.arctan(np.pi / np.log(max(n_classes - 1, 2)))
    log_rho = np.arcsinh(pole / (0.5 * (high - low)))
    n = 8 * int(np.ceil(-np.log(error) / log_rho / 8))
    angles = np.pi * np.arange(n) / (n - 1)
    return 0.5 * (low + high) - 0.5 * (high - low) * np.cos(angles)


def last_coefficients(values: npt.NDArray[Any]) -> Floats:
    """Size of the last Chebyshev coefficients of values at the nodes: the interpolation error."""
    n = values.shape[-1]
    angles = np.pi * np.arange(n) / (n - 1)
    ends = np.ones(n)
    ends[[0, -1]] = 0.5
    degrees = np.arange(n - 4, n)
    cosines = ends * np.cos(degrees[:, None] * angles) * (2.0 / (n - 1))
    sizes: Floats = np.abs(values @ cosines.T.astype(values.dtype)).max(axis=-1)
    return sizes


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


def tail_coefficients(gammas: Floats) -> Floats:
    """Coefficients [gamma, a, b] of q^a (log q)^b, b <= a, whose sum is 1 / phi(q) in the tail.

    A class of the tail is below NEAR classes and the top class, so its q is at most 1 / (NEAR + 2).
    The coefficients are fitted on that interval; the first is 1, the value at q = 0.
    """
    from calibrant.calibrators.temperature.search_kernels import NEAR, ORDER

    a, b = (index[1:] for index in np.tril_indices(ORDER + 1))
    q = np.geomspace(1e-9, 1.0 / (NEAR + 2), 400)
    terms = q[:, None] ** a * np.log(q)[:, None] ** b
    out = np.zeros((len(gammas), ORDER + 1, ORDER + 1))
    out[:, 0, 0] = 1.0
    for c, gamma in enumerate(gammas):
        out[c, a, b] = np.linalg.lstsq(terms, 1.0 / phi(q, gamma=float(gamma)) - 1.0)[0]
    return out


def node_log_odds_of(
    data: FitData, gammas: Floats, nodes: Floats, *, keep: bool
) -> tuple[npt.NDArray[np.float32], Floats]:
    """T times the log-odds (gammas, rows, nodes), if kept, and the sums of the confidences."""
    from calibrant.calibrators.temperature.search_in_numpy import few_node_log_odds
    from calibrant.calibrators.temperature.search_kernels import node_log_odds

    out = np.empty((len(gammas), len(data) if keep else 0, len(nodes)), dtype=np.float32)
    coefficients = tail_coefficients(gammas)
    if are_few_and_once(data.logits.size):
        at = data.logits, data.weight, np.exp(-nodes), gammas
        return out, few_node_log_odds(*at, coefficients, out)
    none = np.empty((len(data), 0))
    sums = node_log_odds.sum(
        data.logits,
        none,
        none,
        np.empty(0) if data.weight is None else data.weight,
        np.exp(-nodes),
        gammas,
        coefficients,
        out,
        times=len(nodes),  # most classes are in the tail, which all gammas share
    )
    return out, sums


def _groups(
    data: FitData, left: npt.NDArray[np.bool_], x: Floats
) -> Iterator[tuple[list[int], Floats]]:
    """Groups of gammas whose nodes are computed together, as many as memory allows, with these.

    The nodes are those of the band of log T that contains all points left for the gammas.
    """

    def nodes_of(group: list[int]) -> Floats:
        where = x[left[group].any(axis=0)]
        return chebyshev_nodes(where[0] - WIDER, where[-1] + WIDER, data.n_classes, FINE)

    most = max(data.logits.nbytes // 2, LEAST_MEMORY)
    group: list[int] = []
    for c in np.flatnonzero(left.any(axis=1)).tolist():
        wider = [*group, c]
        if group and 4 * len(data) * len(wider) * len(nodes_of(wider)) > most:
            yield group, nodes_of(group)
            wider = [c]
        group = wider
    if group:
        yield group, nodes_of(group)


def best_of_points(
    evaluator: EvaluatorInMemory,
    scaled: npt.NDArray[np.float32],
    path: Indices,
    gammas: Floats,
    temperatures: Floats,
    stencils: Floats,
    best: Point,
) -> Point:
    """The best of ``best`` and of points whose log-odds are interpolated from ``scaled``.

    Point p is (gammas[p], temperatures[p]); T times its log-odds are ``stencils[p]`` times those
    at the nodes of ``scaled[path[p]]``.
    """
    doubt = _doubt_of_paths(scaled, 1.0 / float(temperatures.min()))[path]
    tried: dict[int, Point] = {}
    n_tried = -1
    while len(tried) > n_tried:
        n_tried = len(tried)
        values, slack = errors_between(evaluator, scaled, path, temperatures, stencils, doubt)
        lowest, highest = values - slack, values + slack
        to_beat = min(float(highest.min()), best.value)
        seen = doubt.copy()
        for p in np.argsort(values, kind="stable"):
            if p in tried or lowest[p] > to_beat:
                continue
            gamma, temperature = float(gammas[p]), float(temperatures[p])
            if (gamma, temperature) == (best.gamma, best.temperature):
                continue
            log_odds = evaluator.log_odds(gamma, temperature)
            tried[p] = Point(gamma, temperature, evaluator.binned(log_odds))
            to_beat = min(to_beat, tried[p].value)
            off = np.abs(log_odds - (scaled[path[p]] @ stencils[p]) / temperature)
            off = off[np.abs(log_odds) < SATURATED].max(initial=0.0)
            seen[path == path[p]] = np.maximum(seen[path == path[p]], 2.0 * off)
        if (seen == doubt).all():
            break
        doubt = 2.0 * seen  # interpolation was less exact than assumed: repeat with wider bounds
    return min([best, *tried.values()], key=lambda point: point.rank)


def _doubt_of_paths(scaled: npt.NDArray[np.float32], inverse_temperature: float) -> Floats:
    """Largest error of interpolated log-odds on each path, in rows that are not saturated."""
    lacking = last_coefficients(scaled).astype(np.float64) * inverse_temperature
    open_rows = np.abs(scaled).min(axis=-1) * inverse_temperature < SATURATED
    doubt: Floats = LEAST_DOUBT + 8.0 * np.where(open_rows, lacking, 0.0).max(axis=1)
    return doubt
