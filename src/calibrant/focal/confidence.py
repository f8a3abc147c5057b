"""When a focal optimum is under- or over-confident, and the gamma for a given threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import split_probs
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.focal.scalar import (
    SERIES_BELOW,
    complement_of_u,
    log_phi_low,
    log_phi_low_gradient,
    log_phi_top,
)


def confidence_thresholds(*, gamma: float) -> tuple[float, float]:
    r"""Top probabilities below which a focal optimum is over-, above which it is under-confident.

    .. math::
        \tau_{oc} = \arg\max_v \varphi(v), \qquad
        \varphi(\tau_{uc}) = 1, \quad \tau_{oc} < \tau_{uc} < \tfrac12

    An output whose largest probability is at most ``tau_oc`` is over-confident; one whose largest
    probability is at least ``tau_uc`` is under-confident. In between it depends on the other
    classes: see :func:`confidence_bias`.

    Args:
        gamma: Focusing parameter, above 0.

    Returns:
        ``(tau_oc, tau_uc)``; below gamma = 1e-15, tau_uc is 1/2 in floating point.

    References:
        Charoenphakdee et al. (2021), Theorem 8.

    Examples:
        >>> from calibrant.focal import confidence_thresholds
        >>> [round(tau, 6) for tau in confidence_thresholds(gamma=1.0)]
        [0.135335, 0.367879]
    """
    from scipy.optimize import brentq

    gamma = check_positive_gamma(gamma)

    # Functions of x = log q, divided by gamma so that they do not vanish as gamma goes to 0.
    def gradient(x: float) -> float:
        return float(log_phi_low_gradient(np.float64(x), np.exp(x), gamma)) / gamma

    def height(x: float) -> float:
        return float(log_phi_low(np.float64(x), np.exp(x), gamma)) / gamma

    low, half = math.log(0.01 / (1.0 + gamma)), math.log(0.5)
    rtol = 4 * float(np.finfo(float).eps)
    peak = brentq(gradient, low, half, xtol=1e-15, rtol=rtol)
    # As gamma goes to 0, phi = 1 is at 1/2 to within one rounding.
    crossing = brentq(height, peak, half, xtol=1e-15, rtol=rtol) if height(half) < 0 else half
    return math.exp(peak), math.exp(crossing)


@np.errstate(over="ignore")
def confidence_bias(probs: Array, *, gamma: float) -> Array:
    r"""Whether a focal optimum is under-confident (-1), over-confident (+1) or neither (0).

    .. math:: \mathrm{sign}\big(\max_k q_k - \max_k \Psi^\gamma_k(q)\big)

    Args:
        probs: Outputs, classes on the last axis, rows summing to 1.
        gamma: Focusing parameter of the loss, at least 0.

    Returns:
        Integers, one per row. 0 where both maxima are equal: for gamma = 0, for rows that are
        uniform over some classes and 0 elsewhere (Prop. 6; this includes one-hot rows), and for
        isolated rows between the thresholds.

    References:
        Charoenphakdee et al. (2021), Theorem 8 and Proposition 6.

    Examples:
        >>> import numpy as np
        >>> from calibrant.focal import confidence_bias
        >>> many_classes = np.r_[0.1, np.full(999, 0.9 / 999)]
        >>> int(confidence_bias(np.array([0.6, 0.4]), gamma=1.0)), int(
        ...     confidence_bias(many_classes, gamma=1.0)
        ... )
        (-1, 1)
    """
    probs = _inputs.probs(probs)
    gamma = _inputs.gamma(gamma, lowest=0.0, like=probs)
    xp = array_namespace(probs)
    split = split_probs(probs)
    # max q > max Psi(q) means sum h_i/h_m > sum q_i/q_m over the other classes, and h_i/h_m is
    # q_i/q_m times phi(q_m)/phi(q_i). This form computes the difference without cancellation.
    gain = log_phi_top(split.log_rest, -split.log_top, gamma) - log_phi_low(
        split.log_q, split.q, gamma
    )
    # For classes close to the top one the two logarithms cancel; the gradient does not.
    top = xp.max(probs, axis=-1, keepdims=True)
    gap = (probs - top) / top
    near = gap > -(float(xp.finfo(probs.dtype).eps) ** (1 / 3))
    log_gap = xp.log1p(xp.where(near, gap, 0.0))
    middle = xp.clip(split.log_top + log_gap / 2, max=-math.log(2.0))  # of two classes: at most 1/2
    gradient = log_phi_low_gradient(middle, xp.exp(middle), gamma)
    gain = xp.where(near, -gradient * log_gap, gain)
    # Relative to 1 - q_m, so that nearly one-hot rows do not underflow.
    counted = ~split.is_tied & (probs > 0)
    share = xp.exp(xp.where(counted, split.z - split.log_odds, -float("inf")))
    difference = xp.sum(share * xp.expm1(xp.where(counted, gain, 0.0)), axis=-1)
    return xp.astype(xp.sign(difference), xp.int8)


def gamma_for_threshold(p0: float) -> float:
    r"""The gamma whose focal gradients equal those of cross-entropy at p = p0.

    .. math:: \varphi(p_0; \gamma^*) = 1

    Below ``p0`` the focal loss has larger gradients than cross-entropy, above it smaller ones. The
    sample-dependent policies choose their gammas this way.

    Args:
        p0: Probability of the true class, above 0 and at most 1/2.

    Returns:
        gamma*; it goes to 0 as ``p0`` goes to 1/2.

    References:
        Mukhoti et al. (2020), Proposition 2, with the Lambert W function. Here the equation is
        solved as log(1 + x) / x = kappa instead, because the closed form loses all digits near
        p0 = 1/2.

    Examples:
        >>> from calibrant.focal import gamma_for_threshold
        >>> round(gamma_for_threshold(0.2), 4), round(gamma_for_threshold(0.25), 4)
        (4.8506, 3.0702)
    """
    p0 = check_threshold(p0)
    # log phi = 0 with x = gamma u is log1p(x) = kappa x, where kappa = -log(1 - p0) / u.
    u = -p0 * math.log(p0) / (1.0 - p0)
    if p0 < 0.25:
        shortfall = 1.0 + math.log1p(-p0) / u
    else:  # 1 - kappa is odd in 1/2 - p0; this form does not cancel as that goes to 0
        delta = 0.5 - p0
        odd = math.atanh(2 * delta) - delta * (2 * math.log(2.0) - math.log1p(-4 * delta**2))
        shortfall = odd / ((1.0 - p0) * u)

    # 1 - log1p(x)/x is increasing and concave: Newton's method from below stays below the root.
    x = 2.0 * shortfall
    while x > 0.0:
        reached = _log1p_shortfall(x)
        step = (shortfall - reached) * x / (x / (1.0 + x) - reached)
        if step <= 4 * math.ulp(x):
            break
        x += step
    return x / u


def _log1p_shortfall(x: float) -> float:
    """1 - log1p(x)/x; for small x from the series of G at t = -x."""
    if x >= SERIES_BELOW:
        return 1.0 - math.log1p(x) / x
    return math.log1p(x) - x * float(complement_of_u(np.asarray(-x), np.asarray(-math.log1p(x))))


def check_positive_gamma(value: Any) -> float:
    """Check for a finite gamma above 0, where gamma = 0 has no answer."""
    number = _inputs.gamma(value, lowest=0.0)
    if number == 0.0:
        raise CalibrantError(
            "gamma must be above 0 here; found 0. At gamma = 0 the focal loss is cross-entropy, "
            "whose optimum is the posterior: it is neither under- nor over-confident"
        )
    return number


def check_threshold(value: Any) -> float:
    """Check for a probability of at most 1/2 whose gamma a float can represent."""
    number = _inputs.finite_number(value, "p0")
    if not 1e-300 <= number <= 0.5:
        raise CalibrantError(
            f"p0 must be between 1e-300 and 0.5; found {number:g}. At other probabilities no "
            "gamma > 0 gives the gradients of cross-entropy"
        )
    return number
