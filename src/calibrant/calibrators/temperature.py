"""The best temperature by a smooth criterion: NLL, Brier score or focal loss.

With b = 1/T the NLL is convex in b, so it has one minimum; Halley's method, of third order, finds
it in about three passes, started from the minimum on some of the rows. It lies at T -> 0 where
every sample is right and at T -> infinity where the model is worse than chance: then the limit is
reported, and T is what stands for it, a million times below or above the scale of the logits. The
other two criteria may have several minima: a scan over some rows finds where to look.

Everything is relative to the scale of the logits, so logits that are c times as large give a
temperature that is c times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from calibrant.calibrators.base import FitData, Floats
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.focal.scalar import phi

SMOOTH = ("nll", "brier", "focal")
"""Criteria with a derivative by the temperature."""

LIMIT = 1e6
"""The temperature stays within this factor of the scale of the logits."""
ORDINARY = (1e-100, 1e100)
"""Logits of another scale are fitted in units of it, so that nothing over- or underflows."""
LARGEST = 2.0**1022
"""Distances beyond this count as this."""
SMALLEST = 1e-300
"""Neither T nor 1/T may be beyond what a float can hold."""
TO_START = 512
"""Rows on which the start of Halley's method is found."""
TO_LOOK = 2048
"""Rows on which one sees where the minima are."""
CLOSE = 1e-3
"""A step of this relative size leaves an error of about ten times its cube."""
MOST_STEPS = 200
SCAN_STEPS = 160


class Slope(NamedTuple):
    """A criterion f at one b = 1/T: its mean and b f'; of the NLL also b^2 f'' and b^3 f'''."""

    value: float
    slope: float
    curvature: float = 0.0
    third: float = 0.0


@dataclass(frozen=True)
class BestTemperature:
    """Where the criterion is smallest, and how that was found."""

    temperature: float
    value: float
    slope: float
    evaluations: int
    limit: str | None = None
    """"T -> 0" or "T -> infinity" where there is no minimum in between."""


Criterion = Callable[[FitData, float], Slope]


def criterion_by_name(name: str, focal_gamma: float) -> Criterion:
    """The smooth criterion of this name, as a function of the samples and b = 1/T."""
    if name == "nll":
        return _nll
    if name == "brier":
        return _brier
    return lambda data, beta: _focal(data, beta, focal_gamma)


def best_temperature(data: FitData, name: str, focal_gamma: float) -> BestTemperature:
    """The temperature that minimises the criterion on ``data``."""
    scale = _scale(data)
    if scale > 0.0 and not ORDINARY[0] < scale < ORDINARY[1]:
        unit = 2.0 ** round(math.log2(scale))
        in_units = data.mapped(partial(_over, unit))
        best = best_temperature(in_units, name, focal_gamma)
        lowest, highest = SMALLEST / unit, 1.0 / SMALLEST / unit
        if not lowest <= best.temperature <= highest:
            nearest = lowest if best.temperature < lowest else highest
            there = criterion_by_name(name, focal_gamma)(in_units, 1.0 / nearest)
            best = replace(best, temperature=nearest, value=there.value, slope=there.slope)
        return replace(best, temperature=best.temperature * unit)
    criterion = criterion_by_name(name, focal_gamma)
    if scale == 0.0:  # every row says the same of all its classes, at any temperature
        flat = criterion(data, 1.0)
        return BestTemperature(1.0, flat.value, flat.slope, 1)
    low, high = 1.0 / (scale * LIMIT), LIMIT / scale
    if name != "nll":
        return _scanned(data, criterion, low, high)
    if data.labels_on_top:
        return _at_limit(data, _nll, high, "T -> 0", 0)
    return _halley(data, low, high)


def _over(unit: float, data: FitData) -> FitData:
    return FitData(data.logits.astype(np.float64) / unit, data.labels, data.weight)


def _halley(data: FitData, low: float, high: float) -> BestTemperature:
    """The minimum of the NLL, which is convex in b."""
    start = math.sqrt(low * high)
    some_data = data.some_rows(TO_START)
    if some_data is not data:
        some = _halley(some_data, low, high)
        start = 1.0 / some.temperature if some.limit is None else start
    lower, upper, beta = low, high, start
    evaluations = 0
    for _ in range(MOST_STEPS):
        here = _nll(data, beta)
        evaluations += 1
        lower, upper = (beta, upper) if here.slope < 0.0 else (lower, beta)
        change = _step(here)
        following = beta * (1.0 + change)
        if abs(change) <= CLOSE:
            break
        if not lower < following < upper:  # the step leaves the bracket: halve it instead
            following = math.sqrt(lower * upper)
            if upper <= lower * (1.0 + CLOSE):
                break
        beta = following
    if upper <= 2.0 * low:
        return _at_limit(data, _nll, low, "T -> infinity", evaluations)
    if lower >= 0.5 * high:
        return _at_limit(data, _nll, high, "T -> 0", evaluations)
    there = _nll(data, following)
    return BestTemperature(1.0 / following, there.value, there.slope, evaluations + 1)


def _step(here: Slope) -> float:
    """Halley's relative change of b: Newton's, bent by the third derivative; -inf without one."""
    if here.curvature <= 0.0:
        return -math.inf
    newton = -here.slope / here.curvature
    bend = 1.0 + 0.5 * newton * here.third / here.curvature
    return newton / bend if bend > 0.0 else newton


def _scanned(data: FitData, criterion: Criterion, low: float, high: float) -> BestTemperature:
    """The lowest minimum of a criterion that may have several."""
    from scipy.optimize import brentq

    some = data.some_rows(TO_LOOK)
    grid: Floats = np.geomspace(low, high, SCAN_STEPS)
    values = np.array([criterion(some, beta).value for beta in grid])
    evaluations = 0 if some is not data else len(grid)
    padded = np.concatenate([[np.inf], values, [np.inf]])
    minima = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    minima = minima[np.argsort(values[minima], kind="stable")][:3]
    candidates = []
    for index in minima:
        # What is a minimum on some rows is one on all of them, a little way off.
        for reach in (1, 4, SCAN_STEPS):
            left = math.log(grid[max(int(index) - reach, 0)])
            right = math.log(grid[min(int(index) + reach, len(grid) - 1)])
            ends = criterion(data, math.exp(left)).slope, criterion(data, math.exp(right)).slope
            evaluations += 2
            if ends[0] < 0.0 < ends[1]:
                root, result = brentq(
                    lambda log_beta: criterion(data, math.exp(log_beta)).slope,
                    left,
                    right,
                    xtol=1e-11,
                    full_output=True,
                )
                there = criterion(data, math.exp(root))
                evaluations += result.function_calls + 1
                candidates.append(
                    BestTemperature(math.exp(-root), there.value, there.slope, evaluations)
                )
                break
    candidates.append(_at_limit(data, criterion, low, "T -> infinity", 0))
    candidates.append(_at_limit(data, criterion, high, "T -> 0", 0))
    best = min(candidates, key=lambda found: found.value)
    return replace(best, evaluations=evaluations + 2)


def _at_limit(
    data: FitData, criterion: Criterion, beta: float, limit: str, evaluations: int
) -> BestTemperature:
    there = criterion(data, beta)
    return BestTemperature(1.0 / beta, there.value, there.slope, evaluations + 1, limit)


def _scale(data: FitData) -> float:
    """Typical distance between the largest logit of a row and what competes with it.

    That is the label where it is another class, else the largest logit below it: large negative
    numbers that stand for absent classes, and rows of another order of magnitude, do not count.
    Rows without such a distance do not either; 0 where there is no other row.
    """
    distances = data.some_rows(TO_START).listed(_distances)
    if len(distances) == 0:
        distances = data.listed(_distances)
    return float(np.median(distances)) if len(distances) else 0.0


def _distances(data: FitData) -> Floats:
    found = []
    for block in data.blocks():
        rows = data.logits[block].astype(np.float64)
        label = rows[np.arange(len(rows)), data.labels[block]]
        top = rows.max(axis=1)
        below = np.where(rows < top[:, np.newaxis], rows, -np.inf).max(axis=1)
        half = top / 2.0 - np.where(label < top, label, below) / 2.0  # the whole may overflow
        found.append(2.0 * np.minimum(half[(half > 0.0) & (half < np.inf)], LARGEST / 2.0))
    return np.concatenate(found)


def _rows(data: FitData, beta: float) -> Floats:
    return data.temperature_rows(beta)


def cross_entropies(data: FitData, beta: float) -> Floats:
    """The NLL of each row at b = 1/T."""
    return np.asarray(_rows(data, beta)[0])


def _nll(data: FitData, beta: float) -> Slope:
    return Slope(*data.means(_rows, beta))


def _focal(data: FitData, beta: float, gamma: float) -> Slope:
    return Slope(*data.means(_focal_rows, beta, gamma))


def _focal_rows(data: FitData, beta: float, gamma: float) -> tuple[Floats, Floats]:
    cross_entropy, slope, _, _ = _rows(data, beta)
    values = focal_of_cross_entropy(cross_entropy, gamma)
    return values, phi(np.exp(-cross_entropy), gamma=gamma) * slope


def _brier(data: FitData, beta: float) -> Slope:
    return Slope(*data.means(_brier_rows, beta))


def _brier_rows(data: FitData, beta: float) -> Floats:
    from calibrant._compiled import threads_for
    from calibrant.calibrators._kernels import brier_rows

    out = np.empty((2, len(data)))
    with threads_for(data.logits.size):
        brier_rows(data.logits, data.labels, beta, out)
    return out
