"""The inverse of the focal map: the output of an optimal focal-trained model.

Given the posterior eta with largest entry m, the output q solves h(q_i) / h(q_m) = eta_i / eta_m
for every other class i, with q summing to one. h = q / phi is increasing for gamma >= 0, so the
solution is unique. The unknowns are x_i = log q_i of the other classes, and one number that they
share, a = log((1 - q_m) / q_m):

    log h(e^x_i) = rho_i + log h_m(a),   rho_i = log(eta_i / eta_m)
    logsumexp(x) = log(1 - q_m)

Newton's method solves for all of them at once and eliminates the x_i row by row. A step costs about
as much as one evaluation of the map. It starts from the solution for as many equal classes as have
the same sum of probabilities and of their squares: two or three steps are left.

No array is masked, which would take longer than the arithmetic: classes that are not among the
others, the top class and absent ones, have such a small rho that their q is 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import (
    TopSplit,
    detach,
    keep_argmax,
    sigmoid,
    softplus,
    split_probs,
    split_top,
)
from calibrant._types import Array
from calibrant.focal.scalar import log_h_top, log_phi_low, log_phi_low_gradient

MAX_STEPS = 100
"""Limit of the loop; rows need 2 to 30 steps in practice."""
LONGEST_STEP = 0.5
"""Largest step of a row, relative to its unknowns."""
START = 0.05
"""Step after which the solution for equal classes is close enough to start from."""
KNOTS = np.log(0.5 * 0.25 ** np.arange(5.0, -1.0, -1.0))
"""log q of points of h, between which the start is on straight lines."""


def inverse_logits(posterior: TopSplit, gamma: float) -> Array:
    """Logits, the top one 0, of the output whose focal map is ``posterior``; -inf stays -inf."""
    x, a = solve(detach(_of_others(posterior, posterior.z, gamma)), gamma)
    return _with_derivatives(posterior, x, a, gamma)


def from_solution(posterior: TopSplit, solution: TopSplit, gamma: float) -> Array:
    """As :func:`inverse_logits`, from a known solution; adds the gradient to ``posterior``."""
    x = detach(_of_others(posterior, solution.log_q, gamma))
    a = array_namespace(x).clip(detach(solution.log_odds), min=absent(x, gamma))
    return _with_derivatives(posterior, x, a, gamma)


def absent(like: Array, gamma: float) -> float:
    """rho of a class that is not among the others: in solving, its multiples do not overflow."""
    return float(array_namespace(like).finfo(like.dtype).min) / (4.0 * (1.0 + gamma))


def _of_others(posterior: TopSplit, values: Array, gamma: float) -> Array:
    xp = array_namespace(values)
    lowest = absent(values, gamma)
    return xp.clip(xp.where(posterior.is_top, lowest, values), min=lowest)


def _with_derivatives(posterior: TopSplit, x: Array, a: Array, gamma: float) -> Array:
    xp = array_namespace(posterior.z)
    if hasattr(x, "detach"):
        rho = _of_others(posterior, posterior.z, gamma)
        # Implicit function theorem: one more step from the solution, in which only rho carries a
        # gradient, has the gradient of the solution.
        step_x, step_a = _newton_step(x, a, rho, gamma)
        # A second step gives the second derivative too. Probabilities near 0 add nothing to it, but
        # the derivatives of their powers would overflow.
        lowest = -math.log(float(xp.finfo(x.dtype).max)) / 4.0
        x = xp.where(x > lowest, x + step_x, detach(x + step_x))
        a = xp.where(a > lowest, a + step_a, detach(a + step_a))
        step_x, step_a = _newton_step(x, a, rho, gamma)
        x, a = x + step_x, a + step_a
    logits = xp.where(posterior.is_top, 0.0, x + softplus(a))
    return xp.where(posterior.z == -float("inf"), -float("inf"), logits)


def solve(rho: Array, gamma: float) -> tuple[Array, Array]:
    """The unknowns (x, a) of this module, without a gradient."""
    xp = array_namespace(rho)
    runner_up = xp.max(rho, axis=-1, keepdims=True)
    weights = xp.exp(rho - runner_up)
    log_total = xp.log(xp.sum(weights, axis=-1, keepdims=True))
    log_odds = runner_up + log_total
    log_n = 2.0 * log_total - xp.log(xp.sum(weights * weights, axis=-1, keepdims=True))

    # h_i/h_m <= (1 + gamma) q_i/q_m, because 1 - q_m <= 1 - q_i and 0 <= u <= 1. Summed over i,
    # this bounds a from below. The top class has at least 1/K, which bounds a from above.
    bounds = log_odds - math.log1p(gamma), math.log(max(1, rho.shape[-1] - 1))
    # For two classes the map is close to the temperature 1 + gamma, for many to the identity.
    a = xp.clip(log_odds, min=0.0) + xp.clip(log_odds, max=0.0) / (1.0 + gamma)
    a = xp.minimum(a, log_n)
    x = xp.clip(-softplus(-a) - log_n, max=-math.log(2.0))
    _, a = _iterate(x, a, log_odds - log_n, gamma, bounds, START, log_n)

    x = xp.clip(_inverse_log_h(rho + log_h_top(a, gamma)[0], gamma), max=-math.log(2.0))
    tolerance = float(xp.finfo(rho.dtype).eps) ** 0.6  # the next error is about its square
    return _iterate(x, a, rho, gamma, bounds, tolerance)


def _inverse_log_h(y: Array, gamma: float) -> Array:
    """log of the q whose log h is ``y``, about: y itself plus a bend at every knot."""
    xp = array_namespace(y)
    knots = KNOTS - log_phi_low(KNOTS, np.exp(KNOTS), gamma)
    bends = np.diff(np.diff(KNOTS) / np.diff(knots), prepend=1.0)
    x = y + float(KNOTS[0] - knots[0])
    for knot, bend in zip(knots.tolist(), bends.tolist(), strict=False):
        x = x + bend * xp.clip(y - knot, min=0.0)
    return x


def _iterate(
    x: Array,
    a: Array,
    rho: Array,
    gamma: float,
    bounds: tuple[Array, float],
    tolerance: float,
    log_n: Array | float = 0.0,
) -> tuple[Array, Array]:
    """Damped Newton steps from (x, a), up to and including one below ``tolerance``."""
    xp = array_namespace(rho)
    lowest, highest = bounds
    for _ in range(MAX_STEPS):
        step_x, step_a = _newton_step(x, a, rho, gamma, log_n)
        sizes = xp.max(xp.abs(step_x) / xp.clip(-x, min=1.0), axis=-1, keepdims=True)
        size = xp.maximum(sizes, xp.abs(step_a) / xp.clip(xp.abs(a), min=1.0))
        if not bool(xp.all(size <= LONGEST_STEP)):
            # For large gamma the curvature of log h is large, and full steps can cycle.
            damping = LONGEST_STEP / xp.clip(size, min=LONGEST_STEP)
            step_x, step_a = damping * step_x, damping * step_a
        x = xp.clip(x + step_x, max=-math.log(2.0))
        a = xp.clip(xp.maximum(a + step_a, lowest), max=highest)
        if bool(xp.all(size <= tolerance)):
            return x, a
    raise ArithmeticError(
        f"the inverse focal map did not converge in {MAX_STEPS} steps for gamma = {gamma:g}. "
        "This is a bug: please report it with the input"
    )


class _Linearised(NamedTuple):
    """log h and its gradients at (x, a)."""

    q: Array
    log_mass: Array
    """log of the sum of q."""
    log_h_top: Array
    top_gradient: Array
    """d log h_m / d a."""
    gradient: Array
    """d log h / d x."""
    shares: Array
    """q / gradient, divided by the sum of q."""
    pivot: Array
    """What a step of a changes in the last equation, after x has been eliminated."""


def _linearised(x: Array, a: Array, gamma: float) -> _Linearised:
    xp = array_namespace(x)
    largest = xp.max(x, axis=-1, keepdims=True)
    scaled = xp.exp(x - largest)  # even if every q underflows
    total = xp.sum(scaled, axis=-1, keepdims=True)
    q = scaled * xp.exp(largest)
    gradient = 1.0 - log_phi_low_gradient(x, q, gamma)
    shares = scaled / (total * gradient)
    value, top_gradient = log_h_top(a, gamma)
    pivot = sigmoid(-a) - top_gradient * xp.sum(shares, axis=-1, keepdims=True)
    log_mass = largest + xp.log(total)
    return _Linearised(q, log_mass, value, top_gradient, gradient, shares, pivot)


def _newton_step(
    x: Array, a: Array, rho: Array, gamma: float, log_n: Array | float = 0.0
) -> tuple[Array, Array]:
    """The step from (x, a), where every entry of x stands for n equal classes."""
    xp = array_namespace(x)
    at = _linearised(x, a, gamma)
    miss = rho + at.log_h_top - (x - log_phi_low(x, at.q, gamma))
    excess = at.log_mass + log_n + softplus(-a)
    step_a = (excess + xp.sum(at.shares * miss, axis=-1, keepdims=True)) / at.pivot
    return (miss + at.top_gradient * step_a) / at.gradient, step_a


def pulled_back(gradient: Array, x: Array, a: Array, gamma: float) -> tuple[Array, Array]:
    """Gradient with respect to the posterior's logits, (others, top), of a function of the output.

    ``gradient`` is that with respect to the logits of the others, which are relative to the top.
    """
    xp = array_namespace(x)
    at = _linearised(x, a, gamma)
    others = gradient / at.gradient
    top = xp.sum(gradient, axis=-1, keepdims=True) * (sigmoid(a) / at.top_gradient)
    total = (xp.sum(others, axis=-1, keepdims=True) + top) / at.pivot
    return others + at.shares * (at.top_gradient * total), top - sigmoid(-a) * total


@np.errstate(over="ignore")
def inverse_focal_map(probs: Array, *, gamma: float) -> Array:
    r"""The output of an optimal focal-trained model whose true posterior is ``probs``.

    .. math:: q = (\Psi^\gamma)^{-1}(\eta), \qquad q_i = h^{-1}(c\,\eta_i), \quad \sum_i q_i = 1

    Args:
        probs: Posterior probabilities, classes on the last axis, rows summing to 1.
        gamma: Focusing parameter of the loss, at least 0.

    Returns:
        Probabilities of the shape of ``probs``; :func:`focal_map` maps them back. Entries of 0
        stay 0. In PyTorch the first two derivatives are those of the implicit function.

    References:
        Charoenphakdee et al. (2021), Theorem 11; Komisarenko and Kull (2024), Prop. 4.

    Examples:
        >>> from calibrant.focal import inverse_focal_map
        >>> inverse_focal_map([0.9, 0.1], gamma=2.0).round(4)
        array([0.6942, 0.3058])
    """
    probs = _inputs.probs(probs)
    gamma = _inputs.gamma(gamma, lowest=0.0, like=probs)
    posterior = split_probs(probs)
    xp = array_namespace(probs)
    output = split_top(inverse_logits(posterior, gamma))
    return keep_argmax(xp.where(output.is_top, xp.exp(output.log_top), output.q), posterior)
