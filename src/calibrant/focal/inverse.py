"""The inverse of the focal map: the output of an optimal focal-trained model.

Given the posterior eta with largest entry m, the output q solves h(q_i) / h(q_m) = eta_i / eta_m
for every other class i, with q summing to one. h = q / phi is increasing for gamma >= 0, so the
solution is unique. The unknowns are x_i = log q_i of the other classes, and one number that they
share, a = log((1 - q_m) / q_m):

    log h(e^x_i) = rho_i + log h_m(a),   rho_i = log(eta_i / eta_m)
    logsumexp(x) = log(1 - q_m)

Newton's method solves for all of them at once and eliminates the x_i row by row. A step costs about
as much as one evaluation of the map.
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
    softplus,
    split_probs,
    split_top,
)
from calibrant._types import Array
from calibrant.focal.scalar import (
    log_h_top_gradient,
    log_phi_low,
    log_phi_low_gradient,
    log_phi_top,
)

MAX_STEPS = 100
"""Limit of the loop; rows need 3 to 30 steps in practice."""
LONGEST_STEP = 0.5
"""Largest step of a row, relative to its unknowns."""


def inverse_logits(posterior: TopSplit, gamma: float) -> Array:
    """Logits, the top one 0, of the output whose focal map is ``posterior``; -inf stays -inf."""
    equations = _equations(posterior)
    xp = array_namespace(posterior.z)
    start = xp.where(equations.lonely, 0.0, posterior.log_odds)
    x, a = _solve(detach(equations.rho), detach(start), equations.skipped, gamma)
    return _with_derivatives(posterior, equations, x, a, gamma)


def from_solution(posterior: TopSplit, solution: TopSplit, gamma: float) -> Array:
    """As :func:`inverse_logits`, from a known solution; adds the gradient to ``posterior``."""
    equations = _equations(posterior)
    xp = array_namespace(posterior.z)
    x = xp.where(equations.absent, -1.0, detach(solution.log_q))
    a = xp.where(equations.lonely, 0.0, detach(solution.log_odds))
    return _with_derivatives(posterior, equations, x, a, gamma)


class _Equations(NamedTuple):
    rho: Array
    absent: Array
    lonely: Array
    """One-hot rows: nothing to solve. Their numbers are arbitrary and masked at the end."""
    skipped: Array


def _equations(posterior: TopSplit) -> _Equations:
    xp = array_namespace(posterior.z)
    absent = posterior.z == -float("inf")
    lonely = xp.all(absent | posterior.is_top, axis=-1, keepdims=True)
    rho = xp.where(absent, 0.0, posterior.z)
    return _Equations(rho, absent, lonely, posterior.is_top | (absent & ~lonely))


def _with_derivatives(
    posterior: TopSplit, equations: _Equations, x: Array, a: Array, gamma: float
) -> Array:
    xp = array_namespace(posterior.z)
    # Implicit function theorem: one more step from the solution, in which only rho carries a
    # gradient, has the gradient of the solution.
    x, a = _newton_step(x, a, equations.rho, equations.skipped, gamma)
    # A second step gives the second derivative too. Probabilities near 0 add nothing to it, but
    # the derivatives of their powers would overflow.
    lowest = -math.log(float(xp.finfo(x.dtype).max)) / 4.0
    x = xp.where((x > lowest) & ~equations.skipped, x, detach(x))
    a = xp.where(a > lowest, a, detach(a))
    x, a = _newton_step(x, a, equations.rho, equations.skipped, gamma)
    logits = xp.where(posterior.is_top, 0.0, x + softplus(a))
    return xp.where(equations.absent, -float("inf"), logits)


def _solve(rho: Array, log_odds: Array, skipped: Array, gamma: float) -> tuple[Array, Array]:
    """Solve the equations of this module for (x, a), up to one last Newton step."""
    xp = array_namespace(rho)
    # h_i/h_m <= (1 + gamma) q_i/q_m, because 1 - q_m <= 1 - q_i and 0 <= u <= 1. Summed over i,
    # this bounds a from below. The top class has at least 1/K, which bounds a from above.
    n_others = xp.sum(xp.astype(~skipped, rho.dtype), axis=-1, keepdims=True)
    lowest, highest = log_odds - math.log1p(gamma), xp.log(n_others)

    # Start from the temperature 1 + gamma, which is close to the map for two classes.
    a = xp.clip(log_odds / (1.0 + gamma), min=lowest, max=highest)
    x = rho / (1.0 + gamma)
    x = xp.clip(x - _log_sum(x, skipped) - softplus(-a), max=-math.log(2.0))
    tolerance = float(xp.finfo(rho.dtype).eps) ** 0.6  # the next error is about its square
    for _ in range(MAX_STEPS):
        new_x, new_a = _newton_step(x, a, rho, skipped, gamma)
        step_x, step_a = xp.where(skipped, 0.0, new_x - x), new_a - a
        sizes = xp.max(xp.abs(step_x) / xp.clip(xp.abs(x), min=1.0), axis=-1, keepdims=True)
        size = xp.maximum(sizes, xp.abs(step_a) / xp.clip(xp.abs(a), min=1.0))
        # For large gamma the curvature of log h is large, and full steps can cycle.
        damping = LONGEST_STEP / xp.clip(size, min=LONGEST_STEP)
        x = xp.clip(x + damping * step_x, max=-math.log(2.0))
        a = xp.clip(a + damping * step_a, min=lowest, max=highest)
        if bool(xp.all(size <= tolerance)):
            return x, a
    raise ArithmeticError(
        f"the inverse focal map did not converge in {MAX_STEPS} steps for gamma = {gamma:g}. "
        "This is a bug: please report it with the input"
    )


def _newton_step(
    x: Array, a: Array, rho: Array, skipped: Array, gamma: float
) -> tuple[Array, Array]:
    """One Newton step from (x, a), without the ``skipped`` entries of x."""
    xp = array_namespace(x)
    q = xp.where(skipped, 0.0, xp.exp(x))
    log_h = x - log_phi_low(x, q, gamma)
    gradient = 1.0 - log_phi_low_gradient(x, q, gamma)

    cross_entropy, log_rest = softplus(a), -softplus(-a)
    log_h_top = -cross_entropy - log_phi_top(log_rest, cross_entropy, gamma)
    q_top, t = xp.exp(-cross_entropy), xp.exp(log_rest)
    top_gradient = log_h_top_gradient(q_top, t, cross_entropy, gamma)

    miss = xp.where(skipped, 0.0, rho + log_h_top - log_h)
    mass = _log_sum(x, skipped)
    weights = xp.where(skipped, 0.0, xp.exp(x - mass)) / gradient
    excess = mass - log_rest + xp.sum(weights * miss, axis=-1, keepdims=True)
    step_a = excess / (q_top - top_gradient * xp.sum(weights, axis=-1, keepdims=True))
    return x + (miss + top_gradient * step_a) / gradient, a + step_a


def _log_sum(x: Array, skipped: Array) -> Array:
    """logsumexp of the entries of ``x`` that are not ``skipped``."""
    xp = array_namespace(x)
    kept = xp.where(skipped, -float("inf"), x)
    top = xp.max(kept, axis=-1, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(kept - top), axis=-1, keepdims=True))


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
