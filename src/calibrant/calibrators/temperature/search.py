"""The three searches of focal temperature scaling for the best (gamma, T).

- ``grid``: the published grid, plus gamma = 0, or a given one. The result is that of trying all
  points, 5000 of the published grid, but only a few are evaluated (see ``grid_pruning``);
- ``line``: the best T for two gammas, then the straight line through them: three times the points
  of a temperature search, as the paper proposes;
- ``refine``: the grid, then a continuous search around its best point; never worse than the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.batched_search import Search, run_together
from calibrant.calibrators.data import Floats
from calibrant.calibrators.temperature.criterion import BINNED, Evaluator, Point
from calibrant.calibrators.temperature.grid_pruning import (
    COARSE,
    WIDER,
    chebyshev_nodes,
    interpolation,
    smallest_on_grid,
    smallest_on_line,
)
from calibrant.calibrators.temperature.solver import TO_LOOK

GAMMAS = np.array([-0.5, -0.25, 0.0, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0])
"""The gammas of Komisarenko and Kull (2024), and 0, which is temperature scaling."""
TEMPERATURES = np.arange(1, 501) / 100.0
"""Their temperatures, computed from whole numbers."""
LINE_GAMMAS = (0.0, 1.0)
"""The line runs through the best temperatures of these two gammas."""
REFINED_GAMMAS = (-0.9, 20.0)
REFINED_TEMPERATURES = (1e-3, 50.0)
"""Bounds of the refined search; gamma = -1 is the limit of the map."""


def grid(
    evaluator: Evaluator, gammas: Floats = GAMMAS, temperatures: Floats = TEMPERATURES
) -> Point:
    """The best point of the grid; ties go to the gamma closest to 0, then to the T closest to 1.

    Both axes are in ascending order.
    """
    if evaluator.criterion in BINNED:
        found = [smallest_on_grid(evaluator, gammas, temperatures)]
    else:
        searches = [_search_temperatures(evaluator, float(g), temperatures) for g in gammas]
        found = run_together(searches, evaluator.at)
    if 0.0 in gammas and 1.0 in temperatures:  # it takes part even where it was pruned
        found.append(Point(0.0, 1.0, evaluator.unchanged))
    best = min(found, key=lambda point: point.rank)
    return _with_edges(best, gammas, temperatures)


def line(evaluator: Evaluator) -> Point:
    """The best point on the line through the best temperatures of two gammas."""
    ends = [grid(evaluator, gammas=np.array([gamma])) for gamma in LINE_GAMMAS]
    slope = (ends[1].temperature - ends[0].temperature) / (LINE_GAMMAS[1] - LINE_GAMMAS[0])
    gammas = np.linspace(GAMMAS[0], GAMMAS[-1], len(TEMPERATURES))
    temperatures = ends[0].temperature + slope * (gammas - LINE_GAMMAS[0])
    on_grid = (temperatures >= TEMPERATURES[0]) & (temperatures <= TEMPERATURES[-1])
    gammas, temperatures = gammas[on_grid], temperatures[on_grid]
    best = min(ends, key=lambda point: point.rank)
    if evaluator.criterion in BINNED:
        best = smallest_on_line(evaluator, gammas, temperatures, best)
    else:
        values = evaluator.at(list(zip(gammas.tolist(), temperatures.tolist(), strict=True)))
        along = map(Point, gammas.tolist(), temperatures.tolist(), values)
        best = min(best, *along, key=lambda point: point.rank)
    return _with_edges(best, GAMMAS, TEMPERATURES)


def refine(evaluator: Evaluator) -> Point:
    """The grid's best point, improved by a continuous search that may leave the grid."""
    from scipy.optimize import Bounds, minimize

    start = grid(evaluator)
    at_start = np.array([start.gamma, math.log(start.temperature)])
    # As large as the spacing of the grid, and away from the bounds.
    simplex = at_start + np.array([[0.0, 0.0], [0.12, 0.0], [0.0, 0.02 / start.temperature]])
    low, high = (np.array([REFINED_GAMMAS[i], math.log(REFINED_TEMPERATURES[i])]) for i in (0, 1))

    def value(at: npt.NDArray[np.float64]) -> float:
        return evaluator(float(at[0]), math.exp(at[1]))

    found = minimize(
        value,
        x0=at_start,
        method="Nelder-Mead",
        bounds=Bounds(low, high),
        options={"initial_simplex": simplex, "maxfev": 200, "xatol": 1e-6, "fatol": 1e-12},
    )
    at_bound = np.minimum(found.x - low, high - found.x) < 1e-3
    bounds = [f"gamma = {found.x[0]:.3g}"] if at_bound[0] else []
    if at_bound[1]:
        bounds.append(f"T = {math.exp(found.x[1]):.3g}")
    if not found.success:
        bounds.append("the maximum number of steps")
    if start.at_bound is not None and found.fun > start.value - 1e-12:
        bounds.append(start.at_bound)
    refined = Point(
        float(found.x[0]), math.exp(found.x[1]), float(found.fun), " and ".join(bounds) or None
    )
    return min(start, refined, key=lambda point: point.rank)


def _with_edges(point: Point, gammas: Floats, temperatures: Floats) -> Point:
    """The point, with the edges of the grid that it lies at; a single value is no edge."""
    edges = []
    if len(gammas) > 1 and point.gamma in gammas[[0, -1]]:
        edges.append(f"gamma = {point.gamma:g}")
    if len(temperatures) > 1 and point.temperature in temperatures[[0, -1]]:
        edges.append(f"T = {point.temperature:g}")
    return replace(point, at_bound=" and ".join(edges) or None)


def _search_temperatures(
    evaluator: Evaluator, gamma: float, temperatures: Floats
) -> Search[tuple[float, float], float, Point]:
    """The best temperature of the grid for one gamma, by a criterion that is smooth in T.

    Interpolation on some of the rows finds the starting point; the search on all rows descends
    from there.
    """
    few = evaluator.on(evaluator.data.some_rows(TO_LOOK))
    x = np.log(temperatures)
    nodes = chebyshev_nodes(x[0] - WIDER, x[-1] + WIDER, evaluator.data.n_classes, COARSE)
    # T times a loss stays bounded as T falls, so its interpolation is equally exact at every T.
    scaled = np.array(few.at([(gamma, math.exp(node)) for node in nodes])) * np.exp(nodes)
    step = int((interpolation(nodes, x) @ scaled / temperatures).argmin())
    closest = int(np.abs(x).argmin())
    known: dict[int, Point] = {}

    def look(*steps: int) -> Generator[list[tuple[float, float]], list[float], list[Point]]:
        new = [s for s in dict.fromkeys(steps) if s not in known]
        values = (yield [(gamma, float(temperatures[s])) for s in new]) if new else []
        for s, value in zip(new, values, strict=True):
            known[s] = Point(gamma, float(temperatures[s]), value)
        return [known[s] for s in steps]

    while True:
        around = [min(max(s, 0), len(x) - 1) for s in (step - 1, step, step + 1)]
        left, here, right, at_closest = yield from look(*around, closest)
        if here.value <= min(left.value, right.value):
            # If T does not matter, it stays as close to 1 as it can.
            return min(here, at_closest, key=lambda point: point.rank)
        downhill = -1 if left.value < right.value else 1
        curvature = left.value - 2.0 * here.value + right.value
        leap = (left.value - right.value) / (2.0 * curvature) if curvature > 0.0 else 8.0 * downhill
        far = min(max(step + round(leap), 0), len(x) - 1)
        there, near = yield from look(far, step + downhill)
        step = far if there.value < near.value else step + downhill


SEARCHES: dict[str, Callable[[Evaluator], Point]] = {"grid": grid, "line": line, "refine": refine}
"""Each search by its name."""
