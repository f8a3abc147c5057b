"""The inverse of the focal map: the output of an optimal focal-trained model.

Given the posterior eta with largest entry m, the output q solves h(q_i) / h(q_m) = eta_i / eta_m
for every other class i, with q summing to one. h = q / phi is increasing for gamma >= 0, so the
solution is unique. The unknowns are x_i = log q_i of the other classes, and one number that they
share, a = log((1 - q_m) / q_m):

    log h(e^x_i) = rho_i + log h_m(a),   rho_i = log(eta_i / eta_m)
    logsumexp(x) = log(1 - q_m)

Newton's method solves for all of them at once and eliminates the x_i row by row. A step costs about
as much as one evaluation of the map. With a second term, for the error of the first (Chebyshev's
method), each step about triples the number of digits. The start is the solution for two groups of
equal classes, so that one to three steps are left.

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
    softplus,
    split_probs,
    split_top,
)
from calibrant._types import Array
from calibrant.focal.scalar import (
    LogHTop,
    LogQ,
    log_h_top,
    log_phi_low,
    log_phi_of,
    log_q_curvature,
    log_q_of_log_h,
)

MAX_STEPS = 100
"""Limit of the loop; rows need 1 to 30 steps in practice."""
LONGEST_STEP = 0.5
"""Largest step of a row, relative to its unknowns."""
START = 0.05
"""Step after which the solution for two groups of classes is close enough to start from."""
KNOTS = np.log(0.5 * 0.25 ** np.arange(5.0, -1.0, -1.0))
"""log q of points of h, between which the start is on straight lines."""


def inverse_logits(posterior: TopSplit, gamma: float) -> Array:
    """Logits, the top one 0, of the output whose focal map is ``posterior``; -inf stays -inf."""
    rho = detach(_of_others(posterior, posterior.z, gamma))
    groups = two_groups_of(rho)
    x, a = solve(rho, groups, start(groups, gamma), gamma)
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
        # Implicit function theorem: a step of third order from the solution, in which only rho
        # carries a gradient, has the first two derivatives of the solution.
        at = linearised(x, a, gamma)
        first = _newton_step(at, x, _of_others(posterior, posterior.z, gamma), gamma)
        second = _correction(at, first, gamma)
        x, a = x + first.x + second.x, a + first.a + second.a
    logits = xp.where(posterior.is_top, 0.0, x + softplus(a))
    return xp.where(posterior.z == -float("inf"), -float("inf"), logits)


class TwoGroups(NamedTuple):
    """The other classes as two groups of equal classes, for each row.

    They have the same sums of eta, eta^2, eta^3 and eta^4: the nodes of a Gauss quadrature.
    """

    rho: Array
    """Of both groups: (..., 2)."""
    log_n: Array
    """log of the number of classes in each group: (..., 2)."""
    log_odds: Array
    """log((1 - eta_m) / eta_m): (..., 1)."""


def two_groups_of(rho: Array) -> TwoGroups:
    """The two groups of each row of ``rho``."""
    xp = array_namespace(rho)
    runner_up = xp.max(rho, axis=-1, keepdims=True)
    eta = xp.exp(rho - runner_up)
    square = eta * eta
    total = _sum(eta)
    mean, of_squares = _sum(square) / total, _sum(eta * square) / total
    # A variance too small for its digits is increased: the groups are only a start.
    variance = xp.maximum(of_squares - mean**2, 1e-3 * mean**2)
    third = _sum(square * square) / total - mean * (3.0 * of_squares - 2.0 * mean**2)
    skew = 0.5 * third / variance
    root = xp.sqrt(variance + skew**2)
    nodes = xp.clip(mean + xp.concat([skew - root, skew + root], axis=-1), min=1e-6, max=1.0)
    masses = xp.clip(0.5 + xp.concat([skew, -skew], axis=-1) / (2.0 * root), min=1e-6)
    log_nodes, log_total = xp.log(nodes), xp.log(total)
    return TwoGroups(
        runner_up + log_nodes, log_total + xp.log(masses) - log_nodes, runner_up + log_total
    )


def start(groups: TwoGroups, gamma: float) -> Array:
    """a, about: the solution for the two groups."""
    xp = array_namespace(groups.rho)
    # For two classes the map is close to the temperature 1 + gamma, for many to the identity.
    low, high = xp.clip(groups.log_odds, max=0.0), xp.clip(groups.log_odds, min=0.0)
    a = high + low / (1.0 + gamma)
    return _iterate(groups.rho, groups, a, gamma, START, groups.log_n)[1]


def solve(rho: Array, groups: TwoGroups, a: Array, gamma: float) -> tuple[Array, Array]:
    """The unknowns (x, a), from a start of a."""
    eps = float(array_namespace(rho).finfo(rho.dtype).eps)
    # The next error is about a tenth of its cube.
    return _iterate(rho, groups, a, gamma, 2.0 * eps ** (1.0 / 3.0))


def _inverse_log_h(y: Array, gamma: float) -> Array:
    """log of the q whose log h is ``y``, about: y itself plus a bend at every knot."""
    xp = array_namespace(y)
    knots = KNOTS - log_phi_low(KNOTS, np.exp(KNOTS), gamma)
    bends = np.diff(np.diff(KNOTS) / np.diff(knots), prepend=1.0)
    x = y + float(KNOTS[0] - knots[0] - bends @ knots[:-1])
    for knot, bend in zip(knots.tolist(), bends.tolist(), strict=False):
        x = x + bend * xp.clip(y, min=knot)
    return x


def _iterate(
    rho: Array,
    groups: TwoGroups,
    a: Array,
    gamma: float,
    tolerance: float,
    log_n: Array | None = None,
) -> tuple[Array, Array]:
    """(x, a) after steps up to and including one below ``tolerance``."""
    xp = array_namespace(rho)
    # h_i/h_m <= (1 + gamma) q_i/q_m, because 1 - q_m <= 1 - q_i and 0 <= u <= 1. Summed over i,
    # this bounds a from below.
    lowest = groups.log_odds - math.log1p(gamma)
    x = xp.clip(_inverse_log_h(rho + log_h_top(a, gamma).log_h, gamma), max=-math.log(2.0))
    for _ in range(MAX_STEPS):
        at = linearised(x, a, gamma, log_n)
        first = _newton_step(at, x, rho, gamma)
        curved = xp.max(first.x * at.low.gamma_u * first.x, axis=-1, keepdims=True)
        size_a = xp.abs(first.a) / xp.clip(xp.abs(a), min=1.0)
        size = xp.maximum(xp.sqrt(curved), size_a)
        if not bool(xp.all(size <= LONGEST_STEP)):
            # For large gamma the curvature of log h is large, and full steps can cycle.
            sizes = xp.max(xp.abs(first.x) / xp.clip(-x, min=1.0), axis=-1, keepdims=True)
            damping = LONGEST_STEP / xp.clip(xp.maximum(sizes, size_a), min=LONGEST_STEP)
            first = SolverStep(*(damping * change for change in first))
        second = _correction(at, first, gamma)
        x = xp.clip(x + first.x + second.x, max=-math.log(2.0))
        a = xp.maximum(a + first.a + second.a, lowest)
        if bool(xp.all(size <= tolerance)):
            return x, a
    raise ArithmeticError(
        f"the inverse focal map did not converge in {MAX_STEPS} steps for gamma = {gamma:g}. "
        "This is a bug: please report it with the input"
    )


class Linearised(NamedTuple):
    """The equations at (x, a)."""

    low: LogQ
    top: LogHTop
    scaled: Array
    """q, up to a factor for each row."""
    weights: Array
    """The same times d x / d log h."""
    total: Array
    """Sum of ``scaled``."""
    mean_gradient: Array
    """Sum of ``weights``, divided by ``total``."""
    excess: Array
    """log of the sum of q, less log(1 - q_m)."""
    pivot: Array
    """What a step of a changes in the last equation, after x has been eliminated."""


def linearised(x: Array, a: Array, gamma: float, log_n: Array | None = None) -> Linearised:
    """The equations at (x, a), where an entry of x stands for n equal classes."""
    xp = array_namespace(x)
    log_sums = x if log_n is None else x + log_n
    largest = xp.max(log_sums, axis=-1, keepdims=True)
    scaled = xp.exp(log_sums - largest)  # even if every q underflows
    q = scaled * xp.exp(largest if log_n is None else largest - log_n)
    low, top = log_q_of_log_h(x, q, gamma), log_h_top(a, gamma)
    weights, total = scaled * low.gradient, _sum(scaled)
    mean_gradient = _sum(weights) / total
    excess = largest + xp.log(total) - top.log_t
    pivot = top.q - top.gradient * mean_gradient
    return Linearised(low, top, scaled, weights, total, mean_gradient, excess, pivot)


class SolverStep(NamedTuple):
    """Changes of the unknowns."""

    x: Array
    mean_x: Array
    """Mean of x, weighted by q."""
    a: Array


def _newton_step(at: Linearised, x: Array, rho: Array, gamma: float) -> SolverStep:
    miss = rho + at.top.log_h - (x - log_phi_of(at.low.q, at.low.gamma_u, gamma))
    step_a = (at.excess + _sum(at.weights * miss) / at.total) / at.pivot
    step_x = (miss + at.top.gradient * step_a) * at.low.gradient
    return SolverStep(step_x, at.top.q * step_a - at.excess, step_a)


def _correction(at: Linearised, first: SolverStep, gamma: float) -> SolverStep:
    """The second step of Chebyshev's method: the error of the first one, to second order."""
    # Limited for rows of huge logits, whose squares would overflow.
    x, mean_x, a = (array_namespace(v).clip(v, min=-1.0, max=1.0) for v in first)
    half_x, half_a = 0.5 * x * x, 0.5 * a * a
    bend = half_x * log_q_curvature(at.low, gamma)
    of_top = half_a * at.top.curvature
    error = _sum(at.scaled * (bend + half_x)) / at.total - 0.5 * mean_x * mean_x
    error = error + of_top * at.mean_gradient + half_a * at.top.q * at.top.t
    step_a = error / at.pivot
    of_log_h = of_top + at.top.gradient * step_a
    return SolverStep(bend + at.low.gradient * of_log_h, at.top.q * step_a, step_a)


def _sum(values: Array) -> Array:
    return array_namespace(values).sum(values, axis=-1, keepdims=True)


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
