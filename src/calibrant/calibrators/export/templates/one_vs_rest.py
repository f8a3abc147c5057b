"""Each class against the rest: the curve of one class in each method, and what they share."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

SLOPE = np.ones(3)
SHIFT = np.zeros(3)
A = np.ones(3)
B = np.ones(3)
C = np.zeros(3)
KNOTS = np.zeros((3, 1))
VALUES = np.zeros((3, 1))
P0 = np.zeros((3, 1))
P1 = np.ones((3, 1))


def log_odds(s: Floats) -> Floats:
    """log(q / (1 - q)) of q = softmax(s), within the bounds that a double can tell from 0 and 1."""
    top = s.argmax(axis=-1)[..., np.newaxis]
    is_top = np.arange(N_CLASSES) == top
    with np.errstate(over="ignore"):
        z = np.maximum(s - np.take_along_axis(s, top, axis=-1), -1e300)
    # The top class from the logits of the others, as 1 - q would round to 0.
    others = np.where(is_top, -np.inf, z)
    second: Floats = others.max(axis=-1, keepdims=True)
    rest: Floats = second + np.log(np.exp(others - second).sum(axis=-1, keepdims=True))
    log_q = z - np.logaddexp(0.0, rest)
    lower = log_q - np.log1p(-np.where(is_top, 0.0, np.exp(log_q)))
    return np.where(is_top, -rest, lower).clip(-52 * np.log(2), 52 * np.log(2))


def platt(x: Floats) -> Floats:
    """Log-odds of one class against the rest, from those of the softmax."""
    return SLOPE * x + SHIFT


def beta(x: Floats) -> Floats:
    """Log-odds of one class: A log(q) - B log(1 - q) + C, from x = log(q / (1 - q))."""
    return C - A * np.logaddexp(0.0, -x) + B * np.logaddexp(0.0, x)


def isotonic(x: Floats) -> Floats:
    """Log-odds of one class against the rest; its probability is linear between the knots."""
    y = np.empty_like(x)
    for k, (knots, values) in enumerate(zip(KNOTS, VALUES, strict=True)):
        hit = np.interp(x[..., k], knots, 1 / (1 + np.exp(-values)))
        miss = np.interp(x[..., k], knots, 1 / (1 + np.exp(values)))
        y[..., k] = np.log(hit) - np.log(miss)
    return y


def spline(x: Floats) -> Floats:
    """Log-odds of one class against the rest, linear between the knots."""
    y = np.empty_like(x)
    for k, (knots, values) in enumerate(zip(KNOTS, VALUES, strict=True)):
        y[..., k] = np.interp(x[..., k], knots, values)
    return y


def steps(x: Floats) -> Floats:
    """Log-odds of one class against the rest: the value at the last knot below x, or the first."""
    y = np.empty_like(x)
    for k, (knots, values) in enumerate(zip(KNOTS, VALUES, strict=True)):
        y[..., k] = values[np.maximum(np.searchsorted(knots, x[..., k]) - 1, 0)]
    return y


def venn_abers(x: Floats) -> Floats:
    """Log-odds of p1 / (1 - p0 + p1), with p0 and p1 at the last knot below x, or the first."""
    y = np.empty_like(x)
    for k, (knots, p0, p1) in enumerate(zip(KNOTS, P0, P1, strict=True)):
        place = np.maximum(np.searchsorted(knots, x[..., k]) - 1, 0)
        y[..., k] = np.log(p1[place]) - np.log1p(-p0[place])
    return y


calibrated = platt  # or another of these curves


def one_vs_rest(logits: ArrayLike) -> np.ndarray:
    """The calibrated probability of each class against the rest, divided by their sum."""
    s, dtype = checked(logits)
    x = log_odds(s)
    if N_CLASSES == 2:  # a single map; the log-odds of the other class are its negative
        y = calibrated(x[..., 1:])
        y = np.concatenate([-y, y], axis=-1)
    else:
        y = calibrated(x)
    y = y.clip(-52 * np.log(2), 52 * np.log(2))
    g = np.where(s == -np.inf, -np.inf, -np.logaddexp(0.0, -y))  # log-probabilities
    p: Floats = np.exp(g - g.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
