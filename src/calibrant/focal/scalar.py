"""The one scalar function of the focal theory, phi, and its parts.

With t = 1 - q:

    u(q)   = -q log q / t
    G(t)   = (1 - u) / t = sum over k >= 1 of t^(k-1) / (k (k+1)),   from 1/2 at t = 0 to 1 at t = 1
    phi(q) = t^gamma (1 + gamma u) = t^gamma ((1 + gamma) - gamma t G(t))

phi is the factor between the focal and the cross-entropy gradient, decides between under- and
over-confidence, and divides q in the calibration map. This module has its forms for small and for
large q, and their gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import softplus
from calibrant._types import Array

SERIES_BELOW = 0.125
"""G is summed as a series below this t; above it the closed form loses at most four bits."""


def complement_of_u(t: Array, cross_entropy: Array) -> Array:
    """G(t) = (1 - u(1 - t)) / t for t in [0, 1], where ``cross_entropy`` = -log(1 - t).

    Each argument is exact at one end only: near q = 1 the caller knows t, near q = 0 the
    cross-entropy. There, the other one cannot be computed from it.
    """
    xp = array_namespace(t)
    # The k-th term is below t^(k-1) / k^2: the terms left out are smaller than one rounding.
    bits = -np.log2(float(xp.finfo(getattr(t, "dtype", float)).eps))
    n_terms = int(np.ceil(bits / -np.log2(SERIES_BELOW)))
    small = xp.clip(t, max=SERIES_BELOW)
    series = xp.zeros_like(t)
    for k in range(n_terms, 0, -1):
        series = series * small + 1.0 / (k * (k + 1))
    large = xp.clip(t, min=SERIES_BELOW)
    closed = (1.0 - xp.exp(-cross_entropy) * cross_entropy / large) / large
    return xp.where(t < SERIES_BELOW, series, closed)


def log_phi_top(log_rest: Array, cross_entropy: Array, gamma: float) -> Array:
    """log phi(q) where q may be close to 1, from log(1 - q) and -log q.

    For gamma < 0, 1 + gamma is computed in double precision and 1 - u from its series: near
    gamma = -1 the textbook form loses all digits.
    """
    xp = array_namespace(log_rest)
    t = xp.exp(log_rest)
    g = complement_of_u(t, cross_entropy)
    if gamma == -1.0:  # t^-1 (t G) without dividing by a t that underflows
        return xp.log(g)
    if gamma < 0.0:
        return gamma * log_rest + xp.log((1.0 + gamma) - gamma * t * g)
    return gamma * log_rest + xp.log1p(gamma * (1.0 - t * g))


def log_phi_low(log_q: Array, q: Array, gamma: float) -> Array:
    """log phi(q) for q up to about 1/2: every class except the top one."""
    return log_phi_of(q, -gamma * (q * log_q / (1.0 - q)), gamma)


def log_phi_of(q: Array, gamma_u: Array, gamma: float) -> Array:
    """log phi(q) for q up to about 1/2, from gamma u(q)."""
    xp = array_namespace(q)
    return gamma * xp.log1p(-q) + xp.log1p(gamma_u)


class LogQ(NamedTuple):
    """x = log q as a function of log h, h = q / phi, for q up to about 1/2."""

    q: Array
    rest: Array
    """1 - q."""
    gamma_u: Array
    factor: Array
    """1 + gamma u."""
    denominator: Array
    gradient: Array
    """d x / d log h = (1 - q) factor / denominator."""


def log_q_of_log_h(x: Array, q: Array, gamma: float) -> LogQ:
    """The function at x, in as few operations as possible."""
    rest = 1.0 - q
    of_u = -gamma * (q * x / rest)
    factor = 1.0 + of_u
    denominator = 1.0 + q * (gamma + (gamma - 1.0) * factor)
    return LogQ(q, rest, of_u, factor, denominator, rest * factor / denominator)


def log_q_curvature(at: LogQ, gamma: float) -> Array:
    """Second derivative of x divided by the square of the first."""
    change = (at.gamma_u - gamma * at.q) / at.rest  # d gamma u / d x
    of_denominator = (1.0 - (gamma - 1.0) * at.q * change) / at.denominator
    return change / at.factor - 1.0 / at.rest + of_denominator


def log_phi_low_gradient(log_q: Array, q: Array, gamma: float) -> Array:
    """d log phi / d log q for q up to about 1/2; du / d log q is (u - q) / (1 - q)."""
    rest = 1.0 - q
    u = -q * log_q / rest
    return gamma * ((u - q) / (1.0 + gamma * u) - q) / rest


class LogHTop(NamedTuple):
    """log h of h = q / phi as a function of the log-odds a = log(t / q); q may be close to 1."""

    q: Array
    t: Array
    log_t: Array
    log_h: Array
    gradient: Array
    curvature: Array


def log_h_top(a: Array, gamma: float) -> LogHTop:
    """The function and its derivatives for gamma >= 0."""
    xp = array_namespace(a)
    cross_entropy, log_t = softplus(a), -softplus(-a)
    q, t = xp.exp(-cross_entropy), xp.exp(log_t)
    smallest = float(xp.finfo(a.dtype).smallest_normal)
    u = q * (xp.clip(cross_entropy, min=smallest) / xp.clip(t, min=smallest))
    factor = 1.0 + gamma * u
    ratio = (u - q) / factor
    product = q * t
    return LogHTop(
        q,
        t,
        log_t,
        log_h=-cross_entropy - gamma * log_t - xp.log(factor),
        gradient=-t - gamma * (q - ratio),
        curvature=(gamma - 1.0) * product + gamma * (product / factor - ratio + gamma * ratio**2),
    )


def phi_gradient(cross_entropy: Array, gamma: float) -> Array:
    """d phi / d log q for gamma >= 0, from -log q.

    Where q rounds to 1, it is the gradient at the float below 1: for gamma < 1 the gradient at 1 is
    infinite.
    """
    xp = array_namespace(cross_entropy)
    q = xp.exp(-cross_entropy)
    t = xp.clip(-xp.expm1(-cross_entropy), min=float(xp.finfo(q.dtype).eps) / 2.0)
    u = q * cross_entropy / t
    return gamma * t ** (gamma - 1.0) * (u - q * (2.0 + gamma * u))


@np.errstate(over="ignore", divide="ignore")
def phi(p: Array, *, gamma: float) -> Array:
    r"""Factor between the focal and the cross-entropy gradient, per probability.

    .. math:: \varphi(p) = (1-p)^\gamma - \gamma (1-p)^{\gamma-1} p \log p

    Where ``phi`` is above 1, the focal loss has larger gradients than cross-entropy; where it is
    below 1, smaller ones. The same function decides whether a focal optimum is under- or
    over-confident, and divides p in :func:`focal_map`.

    Args:
        p: Probabilities in [0, 1], of any shape.
        gamma: Focusing parameter, at least -1 (the losses use gamma >= 0 only).

    Returns:
        An array of the shape of ``p``. For -1 < gamma < 0 the value at p = 1 is infinite.

    References:
        Mukhoti et al. (2020), Proposition 1; Charoenphakdee et al. (2021), Eq. 10.

    Examples:
        >>> from calibrant.focal import phi
        >>> phi([0.0, 0.1, 0.5, 1.0], gamma=2.0).round(4)
        array([1.    , 1.2245, 0.5966, 0.    ])
    """
    p = _inputs.unit_interval(p, "p")
    gamma = _inputs.gamma(gamma, lowest=-1.0, like=p)
    xp = array_namespace(p)
    t = 1.0 - p
    cross_entropy = -xp.log(xp.where(p > 0, p, 1.0))
    g = complement_of_u(t, cross_entropy)
    if gamma == -1.0:  # t^-1 (t G) without dividing by t = 0
        return g
    low = xp.clip(p, max=0.5)
    small = xp.exp(gamma * xp.log1p(-low)) * (1.0 + gamma * (low * cross_entropy / (1.0 - low)))
    large = t**gamma * ((1.0 + gamma) - gamma * (t * g))
    return xp.where(p < 0.5, small, large)
