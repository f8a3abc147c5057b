"""The two regressions of top-rest scaling, on plain arrays, and the strengths of their penalties.

The top part is a logistic regression: convex, solved by Newton's method with bounds that keep its
slopes at or above 0. The rest is convex in its biases and smooth in log T'.

The variance of the class terms maximises the probability of the samples, by MacKay's fixed point:
the squares of the terms divided by the number of terms that the samples determine. If the classes
do not differ, it shrinks to 0, and so do the terms.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.top_rest.map import KNOTS

STRENGTH = 1.0
"""Penalty on the squares of slopes, offset and contest: a prior of variance 1 around temperature
scaling. Chosen on validation rows of every second network; 0.5 to 5 do about as well."""
REST_STRENGTH = 5.0
"""Penalty on the square of log T'. Mistakes are few."""
FIRST_STRENGTH = 20.0
STRENGTHS = (0.05, 1e3)
"""Penalty on the squares of class terms: first estimate, and bounds."""
SETTLED = 0.25
"""A smaller change of the logarithm of a strength ends the estimation."""
LARGEST_STEP = 2.0
MOST_STEPS = 60
LENGTHS = (1.0, 0.5, 0.25, 0.125)
"""Fractions of a step that are tried."""
CLOSE, REST_CLOSE = 1e-3, 0.05
"""A search stops at about this many standard errors of a parameter from the minimum."""
LAST_STEP = 0.03
"""From here a step of Newton's method ends close to the minimum, where it need not be checked."""
TINY = 1e-300
REST_BOUND = 3.0
"""Bound of |log T'|: a factor of 20."""

N_SLOPES = len(KNOTS) + 1
START = np.array([1.0] * N_SLOPES + [0.0, 0.0])
"""Slopes, offset and contest of temperature scaling."""
LOWEST_WEIGHTS = np.array([0.0] * N_SLOPES + [-np.inf, -np.inf])


class TopSums(NamedTuple):
    """Sums over samples at one point: the loss and its derivatives, without penalties."""

    loss: float
    by_weights: Floats
    by_offsets: Floats
    """(K,)"""
    system: Floats
    """(7, 7): second derivatives by two weights."""
    mixed: Floats
    """(K, 7): second derivatives by an offset and a weight."""
    curvature: Floats
    """(K,): second derivatives by an offset; no two offsets share a sample."""


class TopStep(NamedTuple):
    """A step of Newton's method for the top part, within the bounds of the weights."""

    weights: Floats
    offsets: Floats
    decrease: float
    """First-order decrease of the penalised loss."""
    by_weights: Floats
    by_offsets: Floats
    """The gradient; 0 where a bound holds a weight."""

    @property
    def gradient(self) -> float:
        """Largest entry of the gradient."""
        return float(max(np.abs(self.by_weights).max(), np.abs(self.by_offsets).max()))


def newton_step(weights: Floats, offsets: Floats, sums: TopSums, strength: float) -> TopStep:
    """The step to the minimum of the parabola with the derivatives ``sums`` and the penalties."""
    by_weights = sums.by_weights + STRENGTH * (weights - START)
    by_offsets = sums.by_offsets + strength * offsets
    curvature = sums.curvature + strength
    # The class offsets are eliminated: given the weights, each is on its own.
    system = sums.system + STRENGTH * np.eye(len(START))
    reduced = system - sums.mixed.T @ (sums.mixed / curvature[:, np.newaxis])
    target = by_weights - sums.mixed.T @ (by_offsets / curvature)
    step = -np.linalg.solve(reduced, target)
    if (weights + step < LOWEST_WEIGHTS).any():
        from scipy.optimize import lsq_linear

        root = np.linalg.cholesky(reduced).T
        wanted = root @ (weights + step)
        bounded = lsq_linear(root, wanted, bounds=(LOWEST_WEIGHTS, np.inf), method="bvls")
        step = bounded.x - weights
    offset_step = -(by_offsets + sums.mixed @ step) / curvature
    return TopStep(
        weights=step,
        offsets=offset_step,
        decrease=-float(by_weights @ step + by_offsets @ offset_step),
        by_weights=np.where((weights <= LOWEST_WEIGHTS) & (by_weights > 0.0), 0.0, by_weights),
        by_offsets=by_offsets,
    )


class TopSamples(Protocol):
    """What the regression of the top part needs of its samples."""

    def sums(self, weights: Floats, offsets: Floats, *, cautious: bool) -> TopSums:
        """The sums at one point.

        The cautious second derivatives are those of a parabola that touches the loss and is nowhere
        below it (Jaakkola and Jordan, 2000).
        """


class TopSamplesInMemory:
    """The samples as columns of features, sorted by class if there are class terms."""

    def __init__(
        self,
        features: Floats,
        correct: npt.NDArray[np.bool_],
        count: Floats,
        top: npt.NDArray[np.int64],
        *,
        classes: bool,
    ) -> None:
        self.order: Any = np.argsort(top, kind="stable") if classes else slice(None)
        self.features = np.ascontiguousarray(features[self.order].T)
        self.correct, self.count, self.top = (a[self.order] for a in (correct, count, top))
        self.classes = classes
        """Whether there are class terms."""
        if classes:
            self.present, self.first = np.unique(self.top, return_index=True)

    def counting(self, count: Floats) -> TopSamplesInMemory:
        """The same samples, which count for something else."""
        other = copy.copy(self)
        other.count = count[self.order]
        return other

    def sums(self, weights: Floats, offsets: Floats, *, cautious: bool) -> TopSums:
        """The sums at one point; see :class:`TopSamples`."""
        odds = weights @ self.features
        if self.classes:
            odds += offsets[self.top]
        size = np.abs(odds)
        small = np.exp(-size)
        # log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), for x = odds, and x = -odds if correct.
        beyond = np.where((odds > 0.0) != self.correct, size, 0.0)
        loss = float(self.count @ (beyond + np.log1p(small)))
        p = np.where(odds >= 0.0, 1.0, small) / (1.0 + small)
        excess = self.count * (p - self.correct)
        if cautious:
            size = np.maximum(size, 1e-6)
            curvature = self.count * np.tanh(size / 2.0) / (2.0 * size)
        else:
            curvature = self.count * p * (1.0 - p)
        bent = curvature * self.features
        of_class = partial(self._by_class, n_classes=len(offsets))
        return TopSums(
            loss,
            self.features @ excess,
            of_class(excess),
            self.features @ bent.T,
            of_class(bent).T,
            of_class(curvature),
        )

    def _by_class(self, values: Floats, n_classes: int) -> Floats:
        sums = np.zeros((*values.shape[:-1], n_classes))
        if self.classes:
            sums[..., self.present] = np.add.reduceat(values, self.first, axis=-1)
        return sums


class _Local(NamedTuple):
    """The penalised loss at one point, and the sums over samples there."""

    weights: Floats
    offsets: Floats
    cautious: bool
    sums: TopSums
    value: float


class TopRegression:
    """A logistic regression with one more term for each class."""

    def __init__(self, samples: TopSamples) -> None:
        self.samples = samples
        self.evaluations = 0
        self.last: tuple[Floats, TopSums] | None = None

    def minimise(
        self, weights: Floats, offsets: Floats, strength: float, *, close: float = CLOSE
    ) -> tuple[Floats, Floats, TopStep]:
        """Weights, class offsets, and the step of Newton's method from there, which is not taken.

        The loss can be nearly linear at a point and curve further on, where a step of Newton's
        method goes much too far. A cautious step follows then, on a parabola above the loss.
        """
        step: TopStep

        def at(weights: Floats, offsets: Floats, *, cautious: bool) -> _Local:
            sums = self._sums(weights, offsets, cautious=cautious)
            away = weights - START
            penalty = 0.5 * float(STRENGTH * (away @ away) + strength * (offsets @ offsets))
            return _Local(weights, offsets, cautious, sums, sums.loss + penalty)

        def step_from(here: _Local) -> NewtonStep[_Local] | None:
            nonlocal step
            weights, offsets, cautious, sums, _ = here
            step = newton_step(weights, offsets, sums, strength)
            if step.decrease <= close**2 and not cautious:
                return None

            def to(length: float) -> _Local:
                there = weights + length * step.weights, offsets + length * step.offsets
                return at(*there, cautious=False)

            return NewtonStep(to, step.decrease)

        def retry(here: _Local) -> _Local | None:
            # After a cautious step only rounding is left.
            return None if here.cautious else at(here.weights, here.offsets, cautious=True)

        start = at(weights, offsets, cautious=False)
        found = damped_newton(start, step_from, lengths=LENGTHS, most_steps=MOST_STEPS, retry=retry)
        return found.weights, found.offsets, step

    def curvature_of_classes(self, weights: Floats, offsets: Floats) -> Floats:
        """Curvature of the loss alone along each class offset."""
        return self._sums(weights, offsets, cautious=False).curvature

    def _sums(self, weights: Floats, offsets: Floats, *, cautious: bool) -> TopSums:
        asked = np.concatenate([weights, offsets, [cautious]])
        if self.last is None or not np.array_equal(self.last[0], asked):
            self.evaluations += 1
            self.last = asked, self.samples.sums(weights, offsets, cautious=cautious)
        return self.last[1]


class RestLoss:
    """The log-loss of the labels of mistakes, among the rest."""

    def __init__(self, wrong: FitData, inverse_temperature: float) -> None:
        from calibrant.calibrators.top_rest.kernels import exponents_of_rest

        self.labels, self.weight = wrong.labels, wrong.weight
        self.x: Floats = np.empty(wrong.logits.shape)
        self.top = np.empty(len(wrong), dtype=np.int64)
        exponents_of_rest(wrong.logits, inverse_temperature, self.top, self.x)
        self.evaluations = 0
        self.last: tuple[Floats, tuple[float, Floats, Floats]] | None = None

    def counting(self, weight: Floats) -> RestLoss:
        """The same rows, which count for something else."""
        other = copy.copy(self)
        other.weight, other.evaluations, other.last = weight, 0, None
        return other

    def minimise(self, parameters: Floats, strength: float) -> tuple[Floats, float]:
        """log 1/T' and biases, and the largest remaining entry of the gradient."""
        from scipy.optimize import Bounds, minimize

        strengths = self._strengths(len(parameters), strength)
        unit = 1.0 / np.sqrt(self.curvatures(parameters) + strengths)
        bounds = np.full(len(parameters), np.inf)
        bounds[0] = REST_BOUND
        _, slope = self._in_units(parameters / unit, unit, strengths)
        if np.abs(slope).max() <= REST_CLOSE:
            return parameters, float(np.abs(slope / unit).max())
        found = minimize(
            self._in_units,
            parameters / unit,
            args=(unit, strengths),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(-bounds / unit, bounds / unit),
            options={"ftol": 0.0, "gtol": REST_CLOSE, "maxiter": MOST_STEPS},
        )
        inside = (np.abs(found.x) < bounds / unit) | (found.x * found.jac > 0.0)
        gradient = float(np.abs(np.where(inside, found.jac / unit, 0.0)).max())
        return found.x * unit, gradient

    def newton_steps(self, parameters: Floats, strength: float, weights: Floats) -> Floats:
        """(F, K + 1): steps of Newton's method from one point, for (F, n) weights of the rows.

        With v = b' x, and m and p the mean of v and the probabilities in a row, the Hessian is the
        sum over rows of E[f f^T] - a a^T, where f is v and an indicator of each class, a = (m, p).
        Conjugate gradients need no more than its products with vectors.
        """
        rows = np.arange(len(self.x))
        v = math.exp(parameters[0]) * self.x
        scores = v + parameters[1:]
        scores[rows, self.top] = -np.inf
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        pv = p * v
        a = np.column_stack([pv.sum(axis=1), p])
        squares = np.column_stack([(pv * v).sum(axis=1), p])
        excess = a.copy()
        excess[:, 0] -= v[rows, self.labels]
        excess[rows, 1 + self.labels] -= 1.0
        strengths = self._strengths(len(parameters), strength)
        diagonal, mixed = weights @ squares + strengths, weights @ pv
        unit = 1.0 / np.sqrt(diagonal - weights @ a**2)

        def curved(inner: Floats) -> Floats:
            step = unit * inner
            product = diagonal * step - (weights * (step @ a.T)) @ a
            product[:, 0] += (mixed * step[:, 1:]).sum(axis=1)
            product[:, 1:] += mixed * step[:, :1]
            return np.asarray(unit * product)

        target = -unit * (weights @ excess + strengths * parameters)
        return np.asarray(unit * conjugate_gradients(curved, target, REST_CLOSE))

    def _in_units(self, inner: Floats, unit: Floats, strengths: Floats) -> tuple[float, Floats]:
        """The penalised loss and its gradient, as functions of parameters / unit."""
        parameters = inner * unit
        loss, gradient, _ = self._derivatives(parameters)
        value = loss + 0.5 * float(strengths @ parameters**2)
        return value, (gradient + strengths * parameters) * unit

    def _strengths(self, n_parameters: int, strength: float) -> Floats:
        strengths = np.full(n_parameters, strength)
        strengths[0] = REST_STRENGTH
        return strengths

    def curvatures(self, parameters: Floats) -> Floats:
        """Curvature of the loss alone along each parameter."""
        return self._derivatives(parameters)[2]

    def _derivatives(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        if self.last is None or not np.array_equal(self.last[0], parameters):
            self.last = parameters.copy(), self._computed(parameters)
        return self.last[1]

    def _computed(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The loss, its gradient, and its curvature along each parameter."""
        from calibrant.calibrators.top_rest.kernels import rest_derivatives

        self.evaluations += 1
        n_classes = self.x.shape[1]
        bias = parameters[1:] if len(parameters) > 1 else np.zeros(n_classes)
        rest_inverse_temperature = math.exp(parameters[0])
        sums = rest_derivatives.sum(
            self.x, self.top, self.labels, self.weight, rest_inverse_temperature, bias
        )
        by_bias, curvatures = sums[3 : 3 + n_classes], sums[3 + n_classes :]
        n_biases = len(parameters) - 1
        gradient = np.concatenate([sums[1:2], by_bias[:n_biases]])
        return float(sums[0]), gradient, np.concatenate([sums[2:3], curvatures[:n_biases]])


def conjugate_gradients(
    product: Callable[[Floats], Floats], target: Floats, close: float
) -> Floats:
    """The solution of each of F positive definite systems, up to residuals of norm ``close``."""
    found, residual = np.zeros_like(target), target
    direction, size = target, (target**2).sum(axis=1, keepdims=True)
    for _ in range(MOST_STEPS):
        if (size <= close**2).all():
            break
        curved = product(direction)
        length = size / np.maximum((direction * curved).sum(axis=1, keepdims=True), TINY)
        found, residual = found + length * direction, residual - length * curved
        before, size = size, (residual**2).sum(axis=1, keepdims=True)
        direction = residual + size / np.maximum(before, TINY) * direction
    return found


class StrengthSearch:
    """The secant method for MacKay's fixed point, on the logarithm of a strength.

    Iterating the fixed point would take hundreds of rounds close to a limit.
    """

    def __init__(self) -> None:
        self.last: tuple[float, float] | None = None

    def following(self, strength: float, terms: Floats, curvature: Floats) -> tuple[float, bool]:
        """The next strength, and whether it is close enough to the last one."""
        determined = float((curvature / (curvature + strength)).sum())
        squares = max(float(terms @ terms), 1e-12)
        here, change = math.log(strength), math.log(max(determined, 1e-12) / squares / strength)
        # Near a limit the iteration barely moves, however far away the limit is.
        step = math.copysign(LARGEST_STEP, change)
        if self.last is not None and self.last[1] != change:
            secant = change * (self.last[0] - here) / (change - self.last[1])
            step = min(max(secant, -LARGEST_STEP), LARGEST_STEP) if secant * change > 0.0 else step
        self.last = here, change
        low, high = map(math.log, STRENGTHS)
        there = min(max(here + step, low), high)
        return math.exp(there), abs(there - here) <= SETTLED
