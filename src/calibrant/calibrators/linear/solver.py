"""The minimum of a regression loss, by Newton's method where the Hessian can be used, or L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.calibrators.data import Floats
from calibrant.calibrators.linear.loss import LossInMemory, RegressionLoss, RegressionRows

INVERSE_TEMPERATURES = (1e-6, 1e3)
"""Bounds of the inverse temperature, in units of the fit. 43 real networks have 0.4 to 6.3."""
CLOSE = 1e-7
"""The search ends when no entry of the gradient, in its own units, is larger."""
NOT_CLOSE = 1e-5
"""A larger gradient at the end gives a warning."""
MOST_NEWTON = 256
"""Largest number of parameters for Newton's method, whose Hessian is the square of it."""
NEWTON_STEPS = 50
NEWTON_LENGTHS = tuple(4.0**-i for i in range(6))
"""Fractions of a step of Newton's method that are tried."""
HIDDEN = 1e-9
"""Rounding can hide a decrease of this fraction of the loss: the gradient must fall then."""
FORCING = 0.1
"""Conjugate gradients reduce the gradient to this fraction, near the minimum to a smaller one."""
ROWS_PER_CLASS = 64
"""Truncated Newton steps hold the probabilities of all rows, in single precision. With more rows
they would take more memory than L-BFGS, which is used then."""
MOST_PRODUCTS = 200
"""Largest number of products with the Hessian for one step."""
MEMORY = 10
"""Steps that L-BFGS remembers, each in the memory of two sets of parameters."""
STEPS = 50
MOST_ROUNDS = 40
"""Steps in a round of L-BFGS, and rounds; the fits of real networks need 1 to 4 rounds."""


@dataclass(frozen=True)
class BestInverseTemperature:
    """The best single factor of x, size / T: temperature scaling."""

    value: float
    limit: str | None
    """"T -> 0" or "T -> infinity" if there is no minimum between the bounds."""
    evaluations: int


def best_inverse_temperature(rows: RegressionRows) -> BestInverseTemperature:
    """The inverse temperature of temperature scaling, within bounds."""
    if rows.all_uniform:
        return BestInverseTemperature(1.0, None, 0)
    best = rows.best
    inverse_temperature = rows.size / best.temperature
    # The NLL has one minimum along it, so the closest value within the bounds is the best there.
    low, high = INVERSE_TEMPERATURES
    if best.limit == "T -> 0" or inverse_temperature >= high:
        return BestInverseTemperature(high, "T -> 0", best.evaluations)
    if best.limit == "T -> infinity" or inverse_temperature <= low:
        return BestInverseTemperature(low, "T -> infinity", best.evaluations)
    return BestInverseTemperature(inverse_temperature, None, best.evaluations)


@dataclass(frozen=True)
class Optimum:
    """The parameters that minimise the loss, and how they were found."""

    parameters: Floats
    gradient: float
    """Largest remaining entry of the gradient that does not point out of the bounds."""
    evaluations: int
    gradient_in_units: float
    """The same in units in which the curvature is 1 along each parameter."""


def minimise(loss: RegressionLoss) -> Optimum:
    """The minimum, starting from N = 0, b = 0; a scalar N keeps the inverse temperature in bounds.

    Newton's method finds it in a few steps: with few parameters by the Hessian, for a matrix by
    products with it. If it ends early because of rounding (rows of very different sizes), or cannot
    be used, L-BFGS continues.
    """
    parameters = np.zeros(math.prod(loss.shape) + loss.rows.data.n_classes)
    lower, upper = np.full(len(parameters), -np.inf), np.full(len(parameters), np.inf)
    if loss.shape == ():
        lower[0], upper[0] = (bound - loss.inverse_temperature for bound in INVERSE_TEMPERATURES)
    found = None
    if len(loss.shape) == 2:
        few = len(loss.rows.data) <= ROWS_PER_CLASS * loss.rows.data.n_classes
        if few and isinstance(loss, LossInMemory):
            found = _by_truncated_newton(loss, parameters)
    elif len(parameters) <= MOST_NEWTON:
        found = _by_newton(loss, parameters, lower, upper)
    if found is not None:
        if found.gradient_in_units <= CLOSE:
            return found
        parameters = found.parameters
    return _by_lbfgs(loss, parameters, lower, upper)


class _Local(NamedTuple):
    """The loss and its derivatives at one point."""

    parameters: Floats
    value: float
    gradient: Floats
    hessian: Floats


def _by_newton(loss: RegressionLoss, start: Floats, lower: Floats, upper: Floats) -> Optimum:
    """Damped Newton steps within the bounds."""

    def at(parameters: Floats) -> _Local:
        parameters = np.clip(parameters, lower, upper)
        return _Local(parameters, *loss.with_hessian(parameters))

    def left(there: _Local, unit: Floats) -> float:
        free = _gradient_in_bounds(there.gradient, there.parameters, lower, upper)
        return float(np.abs(free * unit).max())

    def step_from(here: _Local) -> NewtonStep[_Local] | None:
        unit = _units(np.diag(here.hessian))
        if left(here, unit) <= CLOSE:
            return None
        bounds = lower - here.parameters, upper - here.parameters
        step = _newton_step(here.gradient, here.hessian, unit, *bounds)
        decrease = -float(here.gradient @ step)
        hidden = decrease <= HIDDEN * abs(here.value)
        return NewtonStep(
            to=lambda length: at(here.parameters + length * step),
            decrease=decrease,
            accepts=lambda there: hidden and left(there, unit) < left(here, unit),
        )

    found = damped_newton(at(start), step_from, lengths=NEWTON_LENGTHS, most_steps=NEWTON_STEPS)
    in_units = left(found, _units(np.diag(found.hessian)))
    gradient = left(found, np.ones(len(start)))
    return Optimum(found.parameters, gradient, loss.evaluations, in_units)


def _newton_step(
    gradient: Floats, hessian: Floats, unit: Floats, lowest: Floats, highest: Floats
) -> Floats:
    """The step to the minimum of the parabola; only the bounds of the first entry may be finite."""
    scaled = hessian * unit[:, np.newaxis] * unit
    step = _solved(scaled, -gradient * unit) * unit
    first = min(max(step[0], lowest[0]), highest[0])
    if first != step[0]:
        rest = gradient[1:] + hessian[1:, 0] * first
        others = _solved(scaled[1:, 1:], -rest * unit[1:]) * unit[1:]
        step = np.concatenate([[first], others])
    return step


def _solved(matrix: Floats, target: Floats) -> Floats:
    """The solution for a matrix with unit diagonal whose eigenvalues rounding may have lowered."""
    values, vectors = np.linalg.eigh(matrix)
    least = 1e-15 * len(values) * max(float(values[-1]), 1.0)
    return np.asarray(vectors @ ((vectors.T @ target) / np.maximum(values, least)))


def _units(curvature: Floats) -> Floats:
    """Units of the parameters in which each curvature is 1."""
    return np.asarray(1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0)))


def _gradient_in_bounds(gradient: Floats, at: Floats, lower: Floats, upper: Floats) -> Floats:
    """The gradient, with 0 for entries that point out of the bounds."""
    outwards = (at <= lower) & (gradient > 0.0) | (at >= upper) & (gradient < 0.0)
    return np.where(outwards, 0.0, gradient)


class _Point(NamedTuple):
    """The loss at one point, its gradient, and units in which the curvature is 1."""

    parameters: Floats
    value: float
    gradient: Floats
    unit: Floats
    nll_product: Callable[[Floats], Floats]
    """Product of the Hessian of the NLL and a vector."""

    @property
    def left(self) -> float:
        """Largest entry of the gradient, in its own units; unknown if a curvature overflows."""
        return float(np.abs(self.gradient * self.unit).max()) if self.unit.all() else math.inf


@np.errstate(over="ignore", invalid="ignore")  # in single precision; the search ends then
def _by_truncated_newton(loss: LossInMemory, start: Floats) -> Optimum:
    """Newton steps by conjugate gradients, no more exact than the distance to the minimum asks.

    References:
        Dembo and Steihaug (1983); Nocedal and Wright, Numerical Optimization, Sec. 7.1.
    """
    penalties = loss.penalty_curvatures()
    loss.probs = probs = np.empty(loss.rows.x.shape, dtype=np.float32)

    def at(parameters: Floats) -> _Point:
        value, gradient = loss(parameters)
        curvatures, nll_product = loss.approximate_hessian(probs)
        return _Point(parameters, value, gradient, _units(curvatures + penalties), nll_product)

    def step_from(here: _Point) -> NewtonStep[_Point] | None:
        if here.left <= CLOSE:
            return None

        def product(vector: Floats) -> Floats:
            moved = here.unit * vector
            return here.unit * (here.nll_product(moved) + penalties * moved)

        close = max(min(FORCING, here.left) * here.left, CLOSE / 10.0)
        step = here.unit * _conjugate_gradients(product, -here.unit * here.gradient, close)
        decrease = -float(here.gradient @ step)
        if not decrease > 0.0:
            return None
        hidden = decrease <= HIDDEN * abs(here.value)
        return NewtonStep(
            to=lambda length: at(here.parameters + length * step),
            decrease=decrease,
            accepts=lambda there: hidden and there.left < here.left,
        )

    found = damped_newton(at(start), step_from, lengths=NEWTON_LENGTHS, most_steps=NEWTON_STEPS)
    loss.probs = None
    gradient = float(np.abs(found.gradient).max())
    return Optimum(found.parameters, gradient, loss.evaluations, found.left)


def _conjugate_gradients(
    product: Callable[[Floats], Floats], target: Floats, close: float
) -> Floats:
    """The vector whose ``product`` is the target, up to entries of size ``close``."""
    vector, left, direction = np.zeros_like(target), target.copy(), target.copy()
    for _ in range(MOST_PRODUCTS):
        along, square = product(direction), left @ left
        curvature = direction @ along
        if not 0.0 < curvature < np.inf:  # rounding
            break
        vector += square / curvature * direction
        left -= square / curvature * along
        if np.abs(left).max() <= close:
            break
        direction = left + (left @ left) / square * direction
    return vector


def _by_lbfgs(loss: RegressionLoss, parameters: Floats, lower: Floats, upper: Floats) -> Optimum:
    """L-BFGS in rounds.

    Each round measures the parameters in units in which their curvature is 1 at its start. Without
    this, penalties of very different strengths and classes of very different frequencies would make
    it slow.
    """
    from scipy.optimize import Bounds, minimize

    value = gradient = in_units = math.inf
    for _ in range(MOST_ROUNDS):
        unit = _units(loss.nll_curvatures(parameters) + loss.penalty_curvatures())
        found = minimize(
            partial(_in_units, loss, unit),
            parameters / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower / unit, upper / unit),
            options={"maxcor": MEMORY, "ftol": 0.0, "gtol": CLOSE, "maxiter": STEPS},
        )
        parameters = np.clip(found.x * unit, lower, upper)
        left = np.abs(_gradient_in_bounds(found.jac, parameters, lower, upper))
        in_units = float(left.max())
        gradient = float((left / unit).max())
        if in_units <= CLOSE or not found.fun < value:
            break
        value = found.fun
    return Optimum(parameters, gradient, loss.evaluations, in_units)


def _in_units(loss: RegressionLoss, unit: Floats, inner: Floats) -> tuple[float, Floats]:
    value, gradient = loss(inner * unit)
    return value, gradient * unit
