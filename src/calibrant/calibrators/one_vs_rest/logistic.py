"""Logistic regressions with a ridge, many at once: the criterion and its minimum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.calibrators.data import Floats

LEAST_SPREAD = 1e-6
"""Fraction of the ridge of a slope that remains if all samples have the same q."""
RIDGES = (1e-10, 1e10)
"""Bounds of the ridge relative to the mean loss: less is lost to rounding, more changes nothing."""
LEAST_TARGET = 2.0**-52
MOST_STEPS = 100
"""Largest number of Newton steps; a problem needs 5 to 20."""
LENGTHS = (*(0.5**i for i in range(50)), 0.0)
"""Fractions of a step that are tried; 0 lets a problem rest while others continue."""
FACTORS = 64
"""Numbers from 1 to 2 that are multiplied before their logarithm is taken: far below overflow."""
SMALL_DECREASE = 1e-11
"""If the criterion can fall by no more than this, the next step is the last."""


def smoothing(n: Any, n_classes: int) -> Any:
    """How far Platt's target of a sample is from its label, which ``n`` samples have."""
    return np.maximum(2.0 / n_classes / (n + 2.0), LEAST_TARGET)


def ridge_shape(log_odds: Floats, share: Floats, n_features: int) -> Floats:
    """(P, D): the fraction of the ridge for each parameter: 1, or less for a slope."""
    mean = (share * log_odds).sum(axis=1, keepdims=True)
    spread = (share * (log_odds - mean) ** 2).sum(axis=1)
    slopes = np.clip(spread, LEAST_SPREAD, 1.0)
    return np.stack([slopes] * n_features + [np.ones_like(slopes)], axis=1)


class LogisticPoint(NamedTuple):
    """The criteria and their derivatives, each at one point."""

    parameters: Floats
    """(P, D)"""
    value: Floats
    """(P,)"""
    gradient: Floats
    """(P, D)"""
    hessian: Floats
    """(P, D, D)"""


@dataclass(frozen=True)
class LogisticLosses:
    """The criterion of each of P problems, as a function of its D parameters.

    It is the weighted mean of log(1 + e^z) - t z, where z is the features times the parameters,
    plus half the ridge.
    """

    features: Floats
    """(P, D, n), the last one 1."""
    targets: Floats
    """(P, n)"""
    weight: Floats
    """(P, n), with sum 1 (or the weight of all samples, if that is less)."""
    ridge: Floats
    """(P, D)"""
    identity: Floats
    """(P, D)"""
    alike: bool = False
    """Whether all samples of a problem have the same weight."""

    def of(self, rows: npt.NDArray[np.intp]) -> LogisticLosses:
        """The criteria of some problems."""
        if len(rows) == len(self.ridge):
            return self
        names = ("features", "targets", "weight", "ridge", "identity")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def moved(self, last: LogisticPoint, parameters: Floats) -> LogisticPoint:
        """The criteria at other parameters, evaluated only where these changed."""
        rows = np.flatnonzero((parameters != last.parameters).any(axis=1))
        if len(rows) == len(parameters):
            return self.at(parameters)
        there = LogisticPoint(*(values.copy() for values in last))
        _overwrite(there, rows, self.of(rows).at(parameters[rows]))
        return there

    def at(self, parameters: Floats) -> LogisticPoint:
        """The criteria, their gradients and their Hessians."""
        z = (parameters[:, np.newaxis] @ self.features)[:, 0]
        smaller = np.abs(z)
        np.exp(np.negative(smaller, out=smaller), out=smaller)
        larger = 1.0 + smaller
        value = self._mean_log(larger, smaller)
        value += (self.weight * (np.maximum(z, 0.0) - self.targets * z)).sum(axis=1)
        g = np.where(z < 0.0, smaller, 1.0)
        g /= larger
        del z, smaller, larger  # the less is held at once, the less is mapped anew at each call
        gradient = self.features @ (self.weight * (g - self.targets))[:, :, np.newaxis]
        curved = self.features * (self.weight * (g * (1.0 - g)))[:, np.newaxis]
        hessian = curved @ self.features.transpose(0, 2, 1)
        away = parameters - self.identity
        return LogisticPoint(
            parameters,
            value + (self.ridge * away**2).sum(axis=1) / 2.0,
            gradient[:, :, 0] + self.ridge * away,
            hessian + self.ridge[:, :, np.newaxis] * np.eye(self.ridge.shape[1]),
        )

    def _mean_log(self, larger: Floats, smaller: Floats) -> Floats:
        """The weighted mean of log(1 + e^-|z|), by one logarithm of many factors if it can be."""
        n = larger.shape[1]
        if n < FACTORS or not self.alike:
            return np.asarray((self.weight * np.log1p(smaller)).sum(axis=1))
        factors = np.multiply.reduceat(larger, np.arange(0, n, FACTORS), axis=1)
        return np.asarray(self.weight[:, 0] * np.log(factors).sum(axis=1))


def _overwrite(values: Iterable[Floats], rows: npt.NDArray[np.intp], new: Iterable[Floats]) -> None:
    for old, replacement in zip(values, new, strict=True):
        old[rows] = replacement


class Minimum(NamedTuple):
    """The minimum of each criterion."""

    parameters: Floats
    """(P, D)"""
    value: Floats
    """(P,)"""
    gradient: Floats
    """(P,), the largest remaining entry, among the parameters that are not held at 0."""
    hessian: Floats
    """(P, D, D)"""
    steps: int


def bounded_minimum(losses: LogisticLosses, start: Floats | None = None) -> Minimum:
    """The minimum of each criterion at which no parameter but the last is below 0.

    If the free minimum violates a bound, the answer is on a face, where some parameters are 0.
    There are at most three faces. Each is a free problem again, and the lowest minimum within the
    bounds is the answer.
    """
    best = free_minimum(losses, start)
    outside = np.flatnonzero((best.parameters[:, :-1] < 0.0).any(axis=1))
    if len(outside) == 0:
        return best
    best.value[outside] = np.inf
    steps = best.steps
    bounded = losses.of(outside)
    for held in _faces(losses.ridge.shape[1]):
        found = free_minimum(bounded, held=held)
        steps += found.steps
        inside = (found.parameters[:, :-1] >= 0.0).all(axis=1)
        lower = inside & (found.value < best.value[outside])
        _overwrite(best[:4], outside[lower], (values[lower] for values in found[:4]))
    return best._replace(steps=steps)


def _faces(n_parameters: int) -> Iterator[tuple[int, ...]]:
    """Which parameters are held at 0: every choice of at least one among all but the last."""
    for size in range(1, n_parameters):
        yield from combinations(range(n_parameters - 1), size)


def free_minimum(
    losses: LogisticLosses, start: Floats | None = None, *, held: tuple[int, ...] = ()
) -> Minimum:
    """The minima where the parameters in ``held`` are 0; so they are in ``start``, (P, D)."""
    free = np.array([j not in held for j in range(losses.ridge.shape[1])])
    if start is None:
        start = np.zeros(losses.ridge.shape)
        mean = np.average(losses.targets, weights=losses.weight, axis=1)
        start[:, -1] = np.log(mean) - np.log1p(-mean)
    last = losses.at(start)
    steps = 0

    solved_at = np.full(start.shape, np.nan)
    directions, decreases = np.zeros(start.shape), np.zeros(len(start))

    def direction_from(here: LogisticPoint) -> tuple[Floats, Floats]:
        """The steps to the minima of the parabolas, and their first-order decreases."""
        nonlocal steps
        steps += 1
        moved = np.flatnonzero((here.parameters != solved_at).any(axis=1))
        gradient, hessian = here.gradient[moved] * free, here.hessian[moved]
        if held:
            hessian = np.where(free & free[:, np.newaxis], hessian, np.eye(len(free)))
        direction = -np.linalg.solve(hessian, gradient[:, :, np.newaxis])[:, :, 0]
        new = here.parameters[moved], direction, -(gradient * direction).sum(axis=1)
        _overwrite((solved_at, directions, decreases), moved, new)
        return directions.copy(), decreases.copy()

    def step_from(here: LogisticPoint) -> NewtonStep[LogisticPoint] | None:
        direction, decrease = direction_from(here)
        finished = decrease <= SMALL_DECREASE
        direction[finished] = decrease[finished] = 0.0

        def to(length: Floats) -> LogisticPoint:
            nonlocal last
            last = losses.moved(last, here.parameters + length[:, np.newaxis] * direction)
            return last

        return None if finished.all() else NewtonStep(to, decrease)

    found = damped_newton(last, step_from, lengths=LENGTHS, most_steps=MOST_STEPS)
    # The last step is taken in full: the criterion is flat to rounding by now.
    direction, decrease = direction_from(found)
    direction[decrease > SMALL_DECREASE] = 0.0
    found = losses.moved(found, found.parameters + direction)
    gradient = np.abs(found.gradient[:, free]).max(axis=1)
    return Minimum(found.parameters, found.value, gradient, found.hessian, steps - 1)
