"""Stable log-space primitives for every array library.

Nearly one-hot probability vectors cannot be handled through their probabilities: ``1 - q`` of the
top class is lost to rounding long before the logits run out of range. Everything here keeps the top
class apart and computes ``log(1 - q)`` from the *other* logits, which is exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace, device
from calibrant._types import Array

TINY = 1e-100
"""At a temperature below this, the quotient of ordinary logits may overflow."""
SHORT = 32
"""Up to this many numbers, Python adds up a list faster than NumPy an array."""


class TopSplit(NamedTuple):
    """Softmax probabilities q of the last axis, with the top class m kept apart.

    Arrays marked (..., 1) have one value per row, the others one value per class. In ``q``,
    ``log_q`` and ``z`` the entry of the top class is a harmless placeholder (0, log q_m and 0); its
    values are ``log_top`` and ``log_rest``.
    """

    z: Array
    """Logits relative to the top one, divided by the temperature: 0 or negative."""
    is_top: Array
    """True at the first largest logit."""
    is_tied: Array
    """True at every logit equal to the largest."""
    q: Array
    """Probabilities of the other classes, each at most 1/2."""
    log_q: Array
    """Their logarithms, finite even if q is 0."""
    log_odds: Array
    """log((1 - q_m) / q_m), from the logits of the other classes: (..., 1)."""
    log_top: Array
    """log q_m: (..., 1)."""
    log_rest: Array
    """log(1 - q_m): (..., 1)."""


def softplus(x: Array) -> Array:
    """log(1 + e^x), exact to rounding for every x."""
    xp = array_namespace(x)
    if xp is np and x.size > 1:  # NumPy's logaddexp takes twice the time
        return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return xp.logaddexp(x, xp.zeros_like(x))


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), the probability of log-odds x, without overflow."""
    xp = array_namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1.0, small) / (1.0 + small)


def softmax(logits: Array) -> Array:
    """Probabilities, without care for the digits of one that is nearly 1."""
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def log_softmax(logits: Array) -> Array:
    """Logarithms of :func:`softmax`."""
    xp = array_namespace(logits)
    z = logits - xp.max(logits, axis=-1, keepdims=True)
    return z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))


def probs_of(scores: npt.NDArray[Any], *, from_logits: bool) -> npt.NDArray[np.float64]:
    """Probabilities of NumPy scores as one new array: :func:`softmax` of logits."""
    probs = scores.astype(np.float64)
    if from_logits:
        probs -= probs.max(axis=-1, keepdims=True)
        np.exp(probs, out=probs)
        probs /= probs.sum(axis=-1, keepdims=True)
    return probs


def split_probs(probs: Array) -> TopSplit:
    """:func:`split_top` of probabilities, ranked before the rounding of the logarithm."""
    return split_top(log_of_probs(probs), ranked_by=probs)


def split_top(
    logits: Array, temperature: float = 1.0, *, ranked_by: Array | None = None
) -> TopSplit:
    """Softmax of ``logits / temperature`` with the top class apart; -inf marks an absent class.

    The row maximum is subtracted *before* the division by the temperature. In the other order the
    rounding errors of the quotients, which scale with the logits, would remain in the difference.
    """
    xp = array_namespace(logits)
    rank = logits if ranked_by is None else ranked_by
    top = xp.argmax(rank, axis=-1, keepdims=True)
    z = relative_to(top, logits, temperature)
    is_top = xp.arange(logits.shape[-1], device=device(logits)) == top
    runner_up, weights, log_odds = _others(z, is_top)
    log_top = -softplus(log_odds)
    return TopSplit(
        z=z,
        is_top=is_top,
        is_tied=rank == xp.take_along_axis(rank, top, axis=-1),
        q=weights * xp.exp(runner_up + log_top),
        log_q=_finite(z) + log_top,
        log_odds=log_odds,
        log_top=log_top,
        log_rest=-softplus(-log_odds),
    )


def exact_log_softmax(
    logits: Array, temperature: float | None = None, *, finite: bool = False
) -> Array:
    """Log-probabilities, exact close to 0 and 1, as in :func:`split_top` but in half the time.

    -inf stays -inf, or is raised to the lowest number if they must be ``finite``.
    """
    xp = array_namespace(logits)
    top = xp.argmax(logits, axis=-1, keepdims=True)
    z = relative_to(top, logits, temperature)
    _, _, log_odds = _others(z, xp.arange(logits.shape[-1], device=device(logits)) == top)
    return (_finite(z) if finite else z) - softplus(log_odds)


def log_odds_of_classes(logits: Array) -> Array:
    """log(q_k / (1 - q_k)) of every class, exact close to 0 and 1."""
    xp = array_namespace(logits)
    top = xp.argmax(logits, axis=-1, keepdims=True)
    z = relative_to(top, logits)
    is_top = xp.arange(logits.shape[-1], device=device(logits)) == top
    runner_up, weights, log_odds = _others(z, is_top)
    log_top = -softplus(log_odds)
    q = weights * xp.exp(runner_up + log_top)
    return xp.where(is_top, -log_odds, _finite(z) + log_top - xp.log1p(-q))


def relative_to(top: Array, logits: Array, temperature: float | None = None) -> Array:
    """Logits minus the one at the index ``top``, divided by the temperature."""
    # By index, not as a maximum: among tied logits this one gets the gradient.
    z = logits - array_namespace(logits).take_along_axis(logits, top, axis=-1)
    return z if temperature is None else z / temperature


def _others(z: Array, is_top: Array) -> tuple[Array, Array, Array]:
    """The largest z but that of the top class, e^z relative to it, and the log-odds of the sum."""
    xp = array_namespace(z)
    others = xp.where(is_top, -float("inf"), z)
    lowest = float(xp.finfo(z.dtype).min)
    runner_up = xp.clip(xp.max(others, axis=-1, keepdims=True), min=lowest)
    weights = xp.exp(others - runner_up)
    # The weight of the runner-up is 1, so the sum is below 1 only if all other classes are absent.
    log_odds = runner_up + xp.log(xp.clip(xp.sum(weights, axis=-1, keepdims=True), min=1.0))
    return runner_up, weights, log_odds


def _finite(z: Array) -> Array:
    xp = array_namespace(z)
    return xp.clip(z, min=float(xp.finfo(z.dtype).min))


def below_top(row: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """The ``z`` of :func:`split_top` for one row, in a twentieth of the time; at least -1e300."""
    return scaled_below(row, row.item(row.argmax()), temperature)


def scaled_below(
    row: npt.NDArray[np.float64], top: float, temperature: float
) -> npt.NDArray[np.float64]:
    """``row - top`` divided by the temperature, at least -1e300, if ``top`` is the largest."""
    z: npt.NDArray[np.float64]
    if temperature > TINY:  # a context for errors would make all of NumPy slower
        if top == 0.0:  # of the part before
            return row * (1.0 / temperature)
        z = row - top
        z *= 1.0 / temperature
        return z
    with np.errstate(over="ignore"):
        z = np.maximum((row - top) / temperature, -1e300)
        return z


def sum_of_row(row: npt.NDArray[np.float64]) -> float:
    """The sum of one row, in a third of the time of NumPy if it is short."""
    return sum(row.tolist()) if len(row) <= SHORT else float(np.add.reduce(row))


def normalise_log_ratios(ratios: Array, split: TopSplit) -> Array:
    """Log-probabilities from ``ratios`` = log(h_i / h_m) to the top class m, none above 0.

    The ratio of a class tied with the top one is exactly 0. Its rounding error is subtracted,
    without a gradient, so that equal logits give equal results.
    """
    xp = array_namespace(ratios)
    ratios = xp.where(split.is_top, -float("inf"), ratios)
    tied = split.is_tied & ~split.is_top
    ratios = ratios - detach(xp.where(tied, ratios, xp.clip(ratios, min=0.0)))
    rest = xp.sum(xp.exp(ratios), axis=-1, keepdims=True)
    return xp.where(split.is_top, 0.0, ratios) - xp.log1p(rest)


def keep_argmax(values: Array, split: TopSplit) -> Array:
    """``values`` with the top class of ``split`` strictly first, even after rounding.

    The results of two nearly equal logits could come out equal, or swapped by one rounding, and
    the predicted class would change. Classes tied with the top class get its value; classes below
    it get at most the next smaller value. The correction is one rounding and has no gradient.
    """
    xp = array_namespace(values)
    top = xp.max(xp.where(split.is_top, values, -float("inf")), axis=-1, keepdims=True)
    return values - detach(_excess(values, top, split.is_tied))


def _excess(values: Array, top: Array, is_tied: Array) -> Array:
    """Excess of values over their limit: ``top`` if tied with it, else just below ``top``."""
    xp = array_namespace(values)
    below = top - float(xp.finfo(values.dtype).eps) * xp.abs(top)
    return xp.where(is_tied, values - top, xp.clip(values - below, min=0.0))


def floored_log_of_probs(probs: Array, floor: float) -> Array:
    """log(max(probs, floor)) with the same argmax.

    The logarithms of two adjacent probabilities may be equal.
    """
    xp = array_namespace(probs)
    values = xp.log(xp.clip(probs, min=floor))
    is_tied = probs == xp.max(probs, axis=-1, keepdims=True)
    top = xp.max(xp.where(is_tied, values, -float("inf")), axis=-1, keepdims=True)
    return values - detach(_excess(values, top, is_tied))


def log_of_probs(probs: Array) -> Array:
    """log(probs), -inf at 0, with gradient 0 where 1/probs would overflow."""
    xp = array_namespace(probs)
    normal = xp.clip(probs, min=float(xp.finfo(probs.dtype).smallest_normal))
    positive = probs > 0
    subnormal = detach(xp.log(xp.where(positive, probs, 1.0)) - xp.log(normal))
    return xp.log(normal) + xp.where(positive, subnormal, -float("inf"))


def detach(x: Array) -> Array:
    """``x`` without its gradient; ``x`` itself if its library has no gradients."""
    return x.detach() if hasattr(x, "detach") else x
