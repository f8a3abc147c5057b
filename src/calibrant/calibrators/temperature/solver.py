"""The best temperature by a smooth criterion: NLL, Brier score or focal loss.

The NLL is convex in b = 1/T, so it has one minimum. Halley's method, of third order, finds it in
about three passes, starting from the minimum on some of the rows. The minimum is at T -> 0 if every
sample is classified correctly, and at T -> infinity if the model is worse than chance. The fit then
reports the limit and returns a T a million times below or above the scale of the logits. The other
two criteria may have several minima: a scan over some rows brackets them, and Newton's method on
log b descends to each.

Everything is relative to the scale of the logits, so multiplying the logits by c multiplies the
temperature by c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np

from calibrant.calibrators.batched_search import Search, run_together
from calibrant.calibrators.data import FitData, Floats, Samples, kept_with_samples
from calibrant.calibrators.temperature.rows import distances_below_top, temperature_rows
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.focal.scalar import phi, phi_gradient

SMOOTH = ("nll", "brier", "focal")
"""Criteria that are differentiable in the temperature."""

LIMIT = 1e6
"""The temperature stays within this factor of the scale of the logits, up or down."""
ORDINARY = (1e-100, 1e100)
"""Logits whose scale is outside this range are divided by it: nothing over- or underflows."""
SMALLEST = 1e-300
"""Smallest T and smallest 1/T: both must be finite floats."""
TO_START = 512
"""Rows that give the starting point of Halley's method."""
TO_LOOK = 2048
"""Rows that are scanned for minima."""
CLOSE = 1e-3
"""A step of this relative size leaves an error of about ten times its cube."""
MOST_STEPS = 200
SCAN_STEPS = 160
REACHES = (1, 4)
"""Scan steps around a minimum on some rows within which the minimum on all rows is searched."""
NEAR = 1e-6
"""A step of Newton's method of this size leaves an error of about its square."""


class Derivatives(NamedTuple):
    """A criterion f at one b = 1/T: its mean, b f' and b^2 f''; for the NLL also b^3 f'''."""

    value: float
    gradient: float
    curvature: float
    third: float = 0.0


@dataclass(frozen=True)
class BestTemperature:
    """The temperature that minimises a criterion, and how it was found."""

    temperature: float
    value: float
    gradient: float
    evaluations: int
    limit: str | None = None
    """"T -> 0" or "T -> infinity" if there is no minimum in between."""


RowsOf: TypeAlias = Callable[[FitData, float], Iterable[Floats]]


@dataclass(frozen=True)
class SmoothCriterion:
    """A smooth criterion, as a function of the samples and b = 1/T."""

    rows_of: RowsOf
    """The fields of :class:`Derivatives`, per row."""

    def __call__(self, data: Samples, inverse_temperature: float) -> Derivatives:
        """The criterion at one b."""
        return self.at(data, [inverse_temperature])[0]

    def at(self, data: Samples, inverse_temperatures: Sequence[float]) -> list[Derivatives]:
        """The criterion at each b, in one pass over the samples."""
        if not inverse_temperatures:
            return []
        means = data.means(_rows_at, self.rows_of, tuple(inverse_temperatures), None)
        each = len(means) // len(inverse_temperatures)
        return [Derivatives(*means[i : i + each]) for i in range(0, len(means), each)]

    def values(self, data: Samples, inverse_temperatures: Sequence[float]) -> Floats:
        """The mean at each b, without derivatives."""
        return np.array(data.means(_rows_at, self.rows_of, tuple(inverse_temperatures), 1))


def _rows_at(
    data: FitData, rows_of: RowsOf, inverse_temperatures: tuple[float, ...], first: int | None
) -> Iterator[Floats]:
    """The results of ``rows_of`` at each b, or only the ``first`` of each."""
    for inverse_temperature in inverse_temperatures:
        yield from islice(rows_of(data, inverse_temperature), first)


def criterion_by_name(name: str, focal_gamma: float) -> SmoothCriterion:
    """The smooth criterion of this name."""
    if name == "nll":
        return NLL
    if name == "brier":
        return SmoothCriterion(_brier_rows)
    return SmoothCriterion(partial(_focal_rows, focal_gamma))


@kept_with_samples
def uncalibrated(data: Samples, name: str = "nll", focal_gamma: float = 0.0) -> float:
    """The criterion of the probabilities as they are."""
    return criterion_by_name(name, focal_gamma)(data, 1.0).value


@kept_with_samples
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
            best = replace(best, temperature=nearest, value=there.value, gradient=there.gradient)
        return replace(best, temperature=best.temperature * unit)
    criterion = criterion_by_name(name, focal_gamma)
    if scale == 0.0:  # every row is uniform, at any temperature
        flat = criterion(data, 1.0)
        return BestTemperature(1.0, flat.value, flat.gradient, 1)
    low, high = _bounds(scale)
    if name != "nll":
        return _scanned(data, criterion, low, high)
    return run_together([_halley(data, low, high)], partial(NLL.at, data))[0]


def nll_search(data: Samples) -> Search[float, Derivatives, BestTemperature] | None:
    """The search for the best temperature by NLL; None if the scale of the logits is extreme.

    It asks for the NLL at one b after the other. Its last question is at the result.
    """
    scale = _scale(data)
    return _halley(data, *_bounds(scale)) if ORDINARY[0] < scale < ORDINARY[1] else None


def _bounds(scale: float) -> tuple[float, float]:
    return 1.0 / (scale * LIMIT), LIMIT / scale


def _over(unit: float, data: FitData) -> FitData:
    return FitData(data.logits.astype(np.float64) / unit, data.labels, data.weight)


def _halley(data: Samples, low: float, high: float) -> Search[float, Derivatives, BestTemperature]:
    """The minimum of the NLL, which is convex in b."""
    if data.labels_on_top:
        return (yield from _at_limit(high, high, "T -> 0"))
    start = math.sqrt(low * high)
    some_data = data.some_rows(TO_START)
    if some_data is not data:
        (some,) = run_together([_halley(some_data, low, high)], partial(NLL.at, some_data))
        start = 1.0 / some.temperature if some.limit is None else start
    lower, upper, inverse_temperature = low, high, start
    evaluations = 0
    for _ in range(MOST_STEPS):
        (here,) = yield [inverse_temperature]
        evaluations += 1
        lower, upper = (
            (inverse_temperature, upper) if here.gradient < 0.0 else (lower, inverse_temperature)
        )
        change = _step(here)
        following = inverse_temperature * (1.0 + change)
        if abs(change) <= CLOSE:
            break
        if not lower < following < upper:  # the step leaves the bracket: halve it instead
            following = math.sqrt(lower * upper)
            if upper <= lower * (1.0 + CLOSE):
                break
        inverse_temperature = following
    if upper <= 2.0 * low:
        return (yield from _at_limit(low, low, "T -> infinity", evaluations))
    if lower >= 0.5 * high:
        return (yield from _at_limit(high, high, "T -> 0", evaluations))
    (there,) = yield [following]
    return BestTemperature(1.0 / following, there.value, there.gradient, evaluations + 1)


def _at_limit(
    question: float, inverse_temperature: float, limit: str, evaluations: int = 0
) -> Search[float, Derivatives, BestTemperature]:
    (there,) = yield [question]
    return BestTemperature(
        1.0 / inverse_temperature, there.value, there.gradient, evaluations + 1, limit
    )


def _step(here: Derivatives) -> float:
    """Halley's relative change of b: Newton's step, corrected by the third derivative."""
    if here.curvature <= 0.0:
        return -math.inf
    newton = -here.gradient / here.curvature
    correction = 1.0 + 0.5 * newton * here.third / here.curvature
    return newton / correction if correction > 0.0 else newton


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
    known: dict[float, Derivatives] = {}

    def answers_to(questions: list[float]) -> list[Derivatives]:
        new = [x for x in dict.fromkeys(questions) if x not in known]
        known.update(zip(new, criterion.at(data, [math.exp(x) for x in new]), strict=True))
        return [known[x] for x in questions]

    limits = (float(grid[0]), "T -> infinity"), (float(grid[-1]), "T -> 0")
    searches = [_descent(grid, scan, int(index), known) for index in minima]
    at_limits = [_at_limit(x, math.exp(x), limit) for x, limit in limits]
    ends = run_together([*searches, *at_limits], answers_to)
    best = min((end for end in ends if end is not None), key=lambda end: end.value)
    between = known[limits[0][0]].gradient < 0.0 < known[limits[1][0]].gradient
    if best.limit is not None and between and some is not data:
        # The scan of some rows missed the minimum that all rows have.
        return _scanned(data, criterion, low, high, look_at=len(data))
    return replace(best, evaluations=len(known) + (len(grid) if some is data else 0))


def _descent(
    grid: Floats, scan: Floats, index: int, known: dict[float, Derivatives]
) -> Search[float, Derivatives, BestTemperature | None]:
    """The minimum, in x = log b, close to a minimum of the scan.

    None if there is no minimum close by, or if a ``known`` value elsewhere is lower than this
    minimum can be.
    """
    start = _lowest_of_parabola(grid, scan, index)
    for reach in REACHES:
        lower, upper = (
            float(grid[min(max(index + step, 0), len(grid) - 1)]) for step in (-reach, reach)
        )
        left, right, here = yield [lower, upper, start]
        if left.gradient < 0.0 < right.gradient:
            break
    else:
        return None
    x, last = start, upper - lower
    for _ in range(MOST_STEPS):
        lower, upper = (x, upper) if here.gradient < 0.0 else (lower, x)
        curvature = here.gradient + here.curvature
        change = -here.gradient / curvature if curvature > 0.0 else math.inf
        if abs(change) <= NEAR:
            break
        lowest = here.value - abs(here.gradient) * (upper - lower)
        if lowest > min(elsewhere.value for elsewhere in known.values()) * (1.0 + NEAR):
            return None
        # Newton's steps must halve and stay inside the bracket; otherwise the bracket is halved.
        if abs(change) > 0.5 * last or not lower < x + change < upper:
            change = 0.5 * (lower + upper) - x
            if upper - lower <= NEAR**2:
                break
        x, last = x + change, abs(change)
        (here,) = yield [x]
    x += change
    (there,) = yield [x]
    return BestTemperature(math.exp(-x), there.value, there.gradient, 0)


def _lowest_of_parabola(grid: Floats, scan: Floats, index: int) -> float:
    """The lowest point of the parabola through a minimum of the scan and its neighbours."""
    x = float(grid[index])
    if 0 < index < len(grid) - 1:
        left, here, right = (float(value) for value in scan[index - 1 : index + 2])
        curvature = left - 2.0 * here + right
        if curvature > 0.0:
            x += 0.5 * (left - right) / curvature * float(grid[1] - grid[0])
    return x


def _scale(data: Samples) -> float:
    """Median of :func:`distances_below_top` over the rows that have such a distance; 0 if none has.

    Large negative numbers that mark absent classes do not move it, nor do a few rows of another
    order of magnitude.
    """
    distances = data.some_rows(TO_START).listed(_distances)
    if len(distances) == 0:
        distances = data.listed(_distances)
    return float(np.median(distances)) if len(distances) else 0.0


def _distances(data: FitData) -> Floats:
    distances = distances_below_top(data)
    return distances[distances > 0.0]


NLL = SmoothCriterion(temperature_rows)


def _focal_rows(gamma: float, data: FitData, inverse_temperature: float) -> Iterator[Floats]:
    cross_entropy, gradient, variance, _ = temperature_rows(data, inverse_temperature)
    yield np.asarray(focal_of_cross_entropy(cross_entropy, gamma))
    weight = phi(np.exp(-cross_entropy), gamma=gamma)
    yield weight * gradient
    yield weight * variance - phi_gradient(cross_entropy, gamma) * gradient**2


def _brier_rows(data: FitData, inverse_temperature: float) -> Floats:
    from calibrant.calibrators.temperature.kernels import squared_distance_rows

    out = np.empty((3, len(data)))
    squared_distance_rows(data.logits, data.labels, inverse_temperature, out)
    return out
