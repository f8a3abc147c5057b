"""The minimum of a regression loss: Newton's method where parameters are few, else L-BFGS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from calibrant.calibrators.data import Floats
from calibrant.calibrators.linear.loss import RegressionLoss, RegressionRows

FACTORS = (1e-6, 1e3)
"""Bounds of beta. Those of 43 real networks lie between 0.4 and 6.3."""
CLOSE = 1e-7
"""The search is over where no slope, in its own units, is larger."""
NOT_CLOSE = 1e-5
"""A slope above this at the end is worth a warning."""
MOST_SECONDS = 256
"""Up to so many parameters Newton's method is used, whose second derivatives are the square of them
in number."""
NEWTON_STEPS = 50
LEAST_LENGTH = 2.0**-10
"""Of a step of Newton's method, as a part of the whole."""
HIDDEN = 1e-9
"""A decrease of this part of the loss may be hidden by rounding: slopes have to fall then."""
MEMORY = 10
"""Steps that the search remembers, each in the memory of two sets of parameters."""
STEPS = 50
MOST_ROUNDS = 40
"""The search takes up to so many steps in a round; the fits of real networks need 1 to 4 rounds."""


@dataclass(frozen=True)
class Factor:
    """The best single factor beta of x: temperature scaling, with T = size / beta."""

    value: float
    limit: str | None
    """"T -> 0" or "T -> infinity" where there is no minimum between the bounds."""
    evaluations: int


def best_factor(rows: RegressionRows) -> Factor:
    """That of temperature scaling, in bounds."""
    if rows.say_nothing:
        return Factor(1.0, None, 0)
    best = rows.best
    factor = rows.size / best.temperature
    # The NLL has one minimum along beta, so the closest in bounds is the best in bounds.
    low, high = FACTORS
    if best.limit == "T -> 0" or factor >= high:
        return Factor(high, "T -> 0", best.evaluations)
    if best.limit == "T -> infinity" or factor <= low:
        return Factor(low, "T -> infinity", best.evaluations)
    return Factor(factor, None, best.evaluations)


@dataclass(frozen=True)
class Optimum:
    """Where the loss is smallest, and how that was found."""

    parameters: Floats
    gradient: float
    """Largest slope left, apart from those that point out of the bounds."""
    evaluations: int
    gradient_in_units: float
    """The same in units in which the loss bends by 1 along each parameter."""


def minimise(loss: RegressionLoss) -> Optimum:
    """The minimum, from the start N = 0, b = 0; one number in place of N keeps beta in bounds.

    With few parameters Newton's method finds it in a few steps. Where they are many, or it ends
    early, as rounding can make it where rows are of very different sizes, L-BFGS goes on.
    """
    parameters = np.zeros(math.prod(loss.shape) + loss.rows.data.n_classes)
    lower, upper = np.full(len(parameters), -np.inf), np.full(len(parameters), np.inf)
    if loss.shape == ():
        lower[0], upper[0] = (bound - loss.factor for bound in FACTORS)
    if len(parameters) <= MOST_SECONDS and len(loss.shape) < 2:
        found = _by_newton(loss, parameters, lower, upper)
        if found.gradient_in_units <= CLOSE:
            return found
        parameters = found.parameters
    return _by_lbfgs(loss, parameters, lower, upper)


def _by_newton(loss: RegressionLoss, start: Floats, lower: Floats, upper: Floats) -> Optimum:
    """Steps to the minimum of the parabola that touches the loss, shorter where it must be."""
    parameters = np.clip(start, lower, upper)
    value, slopes, seconds = loss.bent(parameters)
    for _ in range(NEWTON_STEPS):
        unit = _units(np.diag(seconds))
        free = _without_outwards(slopes, parameters, lower, upper)
        left = np.abs(free * unit).max()
        if left <= CLOSE:
            break
        step = _newton_step(slopes, seconds, unit, lower - parameters, upper - parameters)
        length, decrease = 1.0, -float(slopes @ step)
        hidden = decrease <= HIDDEN * abs(value)
        while length >= LEAST_LENGTH:
            nearby = np.clip(parameters + length * step, lower, upper)
            there = loss.bent(nearby)
            if there[0] <= value - 1e-4 * length * decrease:
                break
            left_there = _without_outwards(there[1], nearby, lower, upper)
            if hidden and np.abs(left_there * unit).max() < left:
                break
            length *= 0.25
        else:
            break
        parameters, (value, slopes, seconds) = nearby, there
    free = _without_outwards(slopes, parameters, lower, upper)
    in_units = float(np.abs(free * _units(np.diag(seconds))).max())
    return Optimum(parameters, float(np.abs(free).max()), loss.evaluations, in_units)


def _newton_step(
    slopes: Floats, seconds: Floats, unit: Floats, lowest: Floats, highest: Floats
) -> Floats:
    """To the lowest point of the parabola between bounds, of which only the first may be finite."""
    scaled = seconds * unit[:, np.newaxis] * unit
    step = _solved(scaled, -slopes * unit) * unit
    first = min(max(step[0], lowest[0]), highest[0])
    if first != step[0]:
        rest = slopes[1:] + seconds[1:, 0] * first
        others = _solved(scaled[1:, 1:], -rest * unit[1:]) * unit[1:]
        step = np.concatenate([[first], others])
    return step


def _solved(matrix: Floats, target: Floats) -> Floats:
    """The solution for a matrix with a diagonal of ones whose eigenvalues rounding may lower."""
    values, vectors = np.linalg.eigh(matrix)
    least = 1e-15 * len(values) * max(float(values[-1]), 1.0)
    return np.asarray(vectors @ ((vectors.T @ target) / np.maximum(values, least)))


def _units(bend: Floats) -> Floats:
    """Units in which the loss bends by 1 along each parameter."""
    return np.asarray(1.0 / np.sqrt(np.where(bend > 0.0, bend, 1.0)))


def _without_outwards(slopes: Floats, at: Floats, lower: Floats, upper: Floats) -> Floats:
    """Slopes, but for those that point out of the bounds."""
    outwards = (at <= lower) & (slopes > 0.0) | (at >= upper) & (slopes < 0.0)
    return np.where(outwards, 0.0, slopes)


def _by_lbfgs(loss: RegressionLoss, parameters: Floats, lower: Floats, upper: Floats) -> Optimum:
    """L-BFGS in rounds.

    A round takes each parameter in units in which the loss bends by 1 where the round starts.
    Without that, penalties of very different strengths and classes of very different frequencies
    would make it slow.
    """
    from scipy.optimize import Bounds, minimize

    value = gradient = in_units = math.inf
    for _ in range(MOST_ROUNDS):
        unit = _units(loss.curvatures(parameters) + loss.penalty_curvatures())
        found = minimize(
            partial(_in_units, loss, unit),
            parameters / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower / unit, upper / unit),
            options={"maxcor": MEMORY, "ftol": 0.0, "gtol": CLOSE, "maxiter": STEPS},
        )
        parameters = np.clip(found.x * unit, lower, upper)
        slopes = np.abs(_without_outwards(found.jac, parameters, lower, upper))
        in_units = float(slopes.max())
        gradient = float((slopes / unit).max())
        if in_units <= CLOSE or not found.fun < value:
            break
        value = found.fun
    return Optimum(parameters, gradient, loss.evaluations, in_units)


def _in_units(loss: RegressionLoss, unit: Floats, inner: Floats) -> tuple[float, Floats]:
    value, slopes = loss(inner * unit)
    return value, slopes * unit
