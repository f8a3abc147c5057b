"""The best temperature by a smooth criterion: NLL, Brier score or focal loss.

With b = 1/T the NLL is convex in b, so it has one minimum; Halley's method, of third order, finds
it in about three passes, started from the minimum on some of the rows. It lies at T -> 0 where
every sample is right and at T -> infinity where the model is worse than chance: then the limit is
reported, and T is what stands for it, a million times below or above the scale of the logits. The
other two criteria may have several minima: a scan over some rows finds where to look, and Newton's
method, on log b, goes down from each place.

Everything is relative to the scale of the logits, so logits that are c times as large give a
temperature that is c times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from calibrant.calibrators.batched_search import Walk, side_by_side
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.focal.scalar import phi, phi_gradient

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
REACHES = (1, 4)
"""Steps of the scan within which a minimum on all rows is looked for around one on some."""
NEAR = 1e-6
"""A step of Newton's method of this size leaves an error of about its square."""


class Slope(NamedTuple):
    """A criterion f at one b = 1/T: its mean, b f' and b^2 f''; of the NLL also b^3 f'''."""

    value: float
    slope: float
    curvature: float
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


RowsOf: TypeAlias = Callable[[FitData, float], Iterable[Floats]]


@dataclass(frozen=True)
class SmoothCriterion:
    """A smooth criterion, as a function of the samples and b = 1/T."""

    rows_of: RowsOf
    """What a :class:`Slope` has the means of, one after the other."""

    def __call__(self, data: Samples, beta: float) -> Slope:
        """At one b."""
        return self.at(data, [beta])[0]

    def at(self, data: Samples, betas: Sequence[float]) -> list[Slope]:
        """At each b, by one look at the samples."""
        if not betas:
            return []
        means = data.means(_rows_at, self.rows_of, tuple(betas))
        each = len(means) // len(betas)
        return [Slope(*means[i : i + each]) for i in range(0, len(means), each)]

    def values(self, data: Samples, betas: Sequence[float]) -> Floats:
        """The mean alone, at each b."""
        return np.array(data.means(_values_at, self.rows_of, tuple(betas)))


def _rows_at(data: FitData, rows_of: RowsOf, betas: tuple[float, ...]) -> Iterator[Floats]:
    for beta in betas:
        yield from rows_of(data, beta)


def _values_at(data: FitData, rows_of: RowsOf, betas: tuple[float, ...]) -> Iterator[Floats]:
    for beta in betas:
        yield next(iter(rows_of(data, beta)))


def criterion_by_name(name: str, focal_gamma: float) -> SmoothCriterion:
    """The smooth criterion of this name."""
    if name == "nll":
        return NLL
    if name == "brier":
        return SmoothCriterion(_brier_rows)
    return SmoothCriterion(partial(_focal_rows, focal_gamma))


def best_temperature(data: Samples, name: str, focal_gamma: float) -> BestTemperature:
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
    low, high = _bounds(scale)
    if name != "nll":
        return _scanned(data, criterion, low, high)
    return side_by_side([_halley(data, low, high)], partial(NLL.at, data))[0]


def nll_walk(data: Samples) -> Walk[float, Slope, BestTemperature] | None:
    """The search for the best temperature by NLL; None where logits are of no ordinary scale.

    It asks for the NLL at one b after the other, and its last question is at the end.
    """
    scale = _scale(data)
    return _halley(data, *_bounds(scale)) if ORDINARY[0] < scale < ORDINARY[1] else None


def _bounds(scale: float) -> tuple[float, float]:
    return 1.0 / (scale * LIMIT), LIMIT / scale


def _over(unit: float, data: FitData) -> FitData:
    return FitData(data.logits.astype(np.float64) / unit, data.labels, data.weight)


def _halley(data: Samples, low: float, high: float) -> Walk[float, Slope, BestTemperature]:
    """The minimum of the NLL, which is convex in b."""
    if data.labels_on_top:
        return (yield from _at_limit(high, "T -> 0", 0))
    start = math.sqrt(low * high)
    some_data = data.some_rows(TO_START)
    if some_data is not data:
        (some,) = side_by_side([_halley(some_data, low, high)], partial(NLL.at, some_data))
        start = 1.0 / some.temperature if some.limit is None else start
    lower, upper, beta = low, high, start
    evaluations = 0
    for _ in range(MOST_STEPS):
        (here,) = yield [beta]
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
        return (yield from _at_limit(low, "T -> infinity", evaluations))
    if lower >= 0.5 * high:
        return (yield from _at_limit(high, "T -> 0", evaluations))
    (there,) = yield [following]
    return BestTemperature(1.0 / following, there.value, there.slope, evaluations + 1)


def _at_limit(beta: float, limit: str, evaluations: int) -> Walk[float, Slope, BestTemperature]:
    (there,) = yield [beta]
    return BestTemperature(1.0 / beta, there.value, there.slope, evaluations + 1, limit)


def _step(here: Slope) -> float:
    """Halley's relative change of b: Newton's, bent by the third derivative; -inf without one."""
    if here.curvature <= 0.0:
        return -math.inf
    newton = -here.slope / here.curvature
    bend = 1.0 + 0.5 * newton * here.third / here.curvature
    return newton / bend if bend > 0.0 else newton


def _scanned(
    data: Samples, criterion: SmoothCriterion, low: float, high: float, look_at: int = TO_LOOK
) -> BestTemperature:
    """The lowest minimum of a criterion that may have several."""
    some = data.some_rows(look_at)
    grid: Floats = np.linspace(math.log(low), math.log(high), SCAN_STEPS)
    scan = criterion.values(some, [math.exp(x) for x in grid])
    padded = np.concatenate([[np.inf], scan, [np.inf]])
    minima = np.flatnonzero((scan <= padded[:-2]) & (scan <= padded[2:]))
    minima = minima[np.argsort(scan[minima], kind="stable")][:3]
    known: dict[float, Slope] = {}

    def answers_of(places: list[float]) -> list[Slope]:
        new = [x for x in dict.fromkeys(places) if x not in known]
        known.update(zip(new, criterion.at(data, [math.exp(x) for x in new]), strict=True))
        return [known[x] for x in places]

    limits = (float(grid[0]), "T -> infinity"), (float(grid[-1]), "T -> 0")
    walks = [_descent(grid, scan, int(index), known) for index in minima]
    ends = side_by_side([*walks, *(_stay(x, limit) for x, limit in limits)], answers_of)
    best = min((end for end in ends if end is not None), key=lambda end: end.value)
    between = known[limits[0][0]].slope < 0.0 < known[limits[1][0]].slope
    if best.limit is not None and between and some is not data:
        # What some rows show is nowhere near the minimum that all of them have.
        return _scanned(data, criterion, low, high, look_at=len(data))
    return replace(best, evaluations=len(known) + (len(grid) if some is data else 0))


def _stay(x: float, limit: str) -> Walk[float, Slope, BestTemperature]:
    (here,) = yield [x]
    return BestTemperature(math.exp(-x), here.value, here.slope, 1, limit)


def _descent(
    grid: Floats, scan: Floats, index: int, known: dict[float, Slope]
) -> Walk[float, Slope, BestTemperature | None]:
    """The minimum, by x = log b, close to one of the scan; None where there is none close by.

    Nor where what is ``known`` elsewhere is lower than it can be.
    """
    start = _lowest_of_parabola(grid, scan, index)
    for reach in REACHES:
        lower, upper = (
            float(grid[min(max(index + step, 0), len(grid) - 1)]) for step in (-reach, reach)
        )
        left, right, here = yield [lower, upper, start]
        if left.slope < 0.0 < right.slope:
            break
    else:
        return None
    x, last = start, upper - lower
    for _ in range(MOST_STEPS):
        lower, upper = (x, upper) if here.slope < 0.0 else (lower, x)
        bend = here.slope + here.curvature
        change = -here.slope / bend if bend > 0.0 else math.inf
        if abs(change) <= NEAR:
            break
        lowest = here.value - abs(here.slope) * (upper - lower)
        if lowest > min(elsewhere.value for elsewhere in known.values()) * (1.0 + NEAR):
            return None
        # Newton's steps must halve, and stay between what is known: else the bracket is halved.
        if abs(change) > 0.5 * last or not lower < x + change < upper:
            change = 0.5 * (lower + upper) - x
            if upper - lower <= NEAR**2:
                break
        x, last = x + change, abs(change)
        (here,) = yield [x]
    x += change
    (there,) = yield [x]
    return BestTemperature(math.exp(-x), there.value, there.slope, 0)


def _lowest_of_parabola(grid: Floats, scan: Floats, index: int) -> float:
    """Where the parabola through a minimum of the scan and its neighbours is lowest."""
    x = float(grid[index])
    if 0 < index < len(grid) - 1:
        left, here, right = (float(value) for value in scan[index - 1 : index + 2])
        bend = left - 2.0 * here + right
        if bend > 0.0:
            x += 0.5 * (left - right) / bend * float(grid[1] - grid[0])
    return x


def _scale(data: Samples) -> float:
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
    return temperature_rows(data, beta)


def cross_entropies(data: FitData, beta: float) -> Floats:
    """The NLL of each row at b = 1/T."""
    return np.asarray(_rows(data, beta)[0])


NLL = SmoothCriterion(_rows)


def _focal_rows(gamma: float, data: FitData, beta: float) -> Iterator[Floats]:
    cross_entropy, slope, variance, _ = _rows(data, beta)
    yield np.asarray(focal_of_cross_entropy(cross_entropy, gamma))
    factor = phi(np.exp(-cross_entropy), gamma=gamma)
    yield factor * slope
    yield factor * variance - phi_gradient(cross_entropy, gamma) * slope**2


def _brier_rows(data: FitData, beta: float) -> Floats:
    from calibrant.calibrators.temperature.kernels import brier_rows

    out = np.empty((3, len(data)))
    brier_rows(data.logits, data.labels, beta, out)
    return out
