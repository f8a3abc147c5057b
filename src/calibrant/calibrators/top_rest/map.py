"""The map of top-rest scaling: the confidence and the odds among the other classes, separately.

The log-loss is a sum of two losses that share no parameter: whether the predicted class m is
correct, and the label among the other classes if it is not,

    -log p_y = -[y = m] log p_m - [y != m] log(1 - p_m)  -  [y != m] log(p_y / (1 - p_m)).

Each is calibrated by its own regression, which starts from temperature scaling. With z the log-odds
of the top class under softmax(s / T) and a its lead, the distance to the runner-up,

    top:   log(p_m / (1 - p_m)) = sum_j slope_j B_j(z) + offset + contest (z - a) + class_offset_m
    rest:  p_k / (1 - p_m) = softmax over k != m of (s_k / (T T_rest) + bias_k)

The B_j cut the log-odds into pieces at ``KNOTS`` and add up to z, so slopes of 1, with all other
numbers 0, are temperature scaling. The lead of the top class over every other class is then kept
between a quarter and four times a: the predicted class never changes, and tied classes stay close.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._numerics.first_use import are_few
from calibrant._numerics.logspace import (
    TopSplit,
    keep_argmax,
    scaled_below,
    sigmoid,
    softplus,
    split_top,
    sum_of_row,
)
from calibrant._numerics.precision import narrowed, widened
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Shapes, State
from calibrant.calibrators.data import NEARLY_TIED, are_few_rows
from calibrant.calibrators.temperature.solver import SMALLEST

KNOTS = (0.0, 2.0, 4.0, 6.0)
"""Log-odds of the top class under temperature scaling at which the slope may change: confidences of
50, 88, 98.2 and 99.75%."""
MOST_STRETCH = 4.0
"""The lead of the top class over the others stays within this factor of that under temperature
scaling."""
LARGEST_ODDS = 1e30
"""Larger log-odds and leads are reduced to this, so that their multiples do not overflow."""
LARGEST_NUMBER = 1e6
"""No fit comes near this; a file with larger numbers is refused because it could overflow."""
NEAR_ZERO = 4.0
"""If the largest exponent of a row is this close to 0, none overflows and no digit is lost."""


class TopAndRest(Calibrator):
    """The map of top-rest scaling; subclasses fit it."""

    STATE: ClassVar[Shapes] = {
        "temperature": (),
        "slopes": ("S",),
        "offset": (),
        "contest": (),
        "class_offsets": ("K",),
        "rest_temperature": (),
        "rest_biases": ("K",),
    }
    KEEPS_ARGMAX = True
    PER_CLASS = False
    IN_DOUBLE = False  # it is computed in double, but rounded before the argmax is restored

    def _log_probs(self, logits: Array, state: State) -> Array:
        wide = widened(logits)
        split = split_top(wide, state["temperature"])
        log_probs = narrowed(self._of_split(split, state), logits)
        return _top_first(log_probs, split)

    def _of_split(self, split: TopSplit, state: State) -> Array:
        xp = array_namespace(split.z)
        others = xp.where(split.is_top, -float("inf"), split.z)
        lowest = float(xp.finfo(split.z.dtype).min)
        lead = -xp.clip(xp.max(others, axis=-1, keepdims=True), min=-LARGEST_ODDS)
        odds = xp.clip(-split.log_odds, max=LARGEST_ODDS)

        rest = others / state["rest_temperature"] + state["rest_biases"]
        highest = xp.clip(xp.max(rest, axis=-1, keepdims=True), min=lowest)
        weights = xp.exp(rest - highest)
        # The most probable of the rest adds 1; the sum is below 1 only if there is none.
        log_total = xp.log(xp.clip(xp.sum(weights, axis=-1, keepdims=True), min=1.0))

        zero = xp.zeros_like(rest)
        class_offset = xp.sum(
            xp.where(split.is_top, zero + state["class_offsets"], zero), axis=-1, keepdims=True
        )
        top_odds = (
            spline(odds, state["slopes"])
            + state["offset"]
            + state["contest"] * (odds - lead)
            + class_offset
        )
        top_odds = xp.maximum(top_odds, lead / MOST_STRETCH - log_total)
        top_odds = xp.minimum(top_odds, lead * MOST_STRETCH - log_total)
        log_rest = rest - highest - log_total - softplus(top_odds)
        return xp.where(split.is_top, -softplus(-top_odds), log_rest)

    def _probs(self, logits: Array, state: State) -> Array:
        if isinstance(logits, np.ndarray):
            if are_few_rows(logits):
                found = [self._row_probs(row, state) for row in logits]
                return np.array(found, logits.dtype).reshape(logits.shape)
            if not are_few(logits.size):
                return _compiled_probs(logits, state)
        split = split_top(widened(logits), state["temperature"])
        probs = array_namespace(logits).exp(self._of_split(split, state))
        return _top_first(narrowed(probs, logits), split)

    def _row_probs(self, row: npt.NDArray[Any], state: State) -> npt.NDArray[Any]:
        m, others = row.argmax(), row.astype(np.float64)
        others[m] = -math.inf
        second = others.item(others.argmax())
        gap = (second - row.item(m)) / state["temperature"]
        if gap < -LARGEST_ODDS:
            return np.asarray(np.arange(len(row)) == m, row.dtype)
        z = scaled_below(others, second, state["temperature"])
        weights = np.exp(z)
        total = sum_of_row(weights)
        crowd, highest = -math.log(total), 0.0
        if state["rest_temperature"] != 1.0 or np.count_nonzero(state["rest_biases"]):
            z *= 1.0 / state["rest_temperature"]
            z += state["rest_biases"]
            highest = z.item(z.argmax())
            if abs(highest) > NEAR_ZERO:
                z -= highest
                highest = 0.0
            weights = np.exp(z, out=z)
            total = sum_of_row(weights)
        level = highest - math.log(total)
        top_odds = _scalar_spline(crowd - gap, state["slopes"].tolist())
        top_odds += state["offset"] + state["contest"] * crowd + state["class_offsets"].item(m)
        top_odds = max(top_odds, level - gap / MOST_STRETCH)
        top_odds = min(top_odds, level - gap * MOST_STRETCH)
        top, other = sigmoid(top_odds), sigmoid(-top_odds) / total
        weights *= other
        weights[m] = top
        probs: npt.NDArray[Any] = weights.astype(row.dtype, copy=False)
        if other * math.exp(highest) > top * NEARLY_TIED:
            probs = _top_first(probs, split_top(widened(row)))
        return probs

    def _probs_are_compiled(self, state: State) -> bool:
        return True

    def _refuse_state(self, state: State) -> str | None:
        temperature, rest_temperature = state["temperature"], state["rest_temperature"]
        if not SMALLEST <= temperature <= 1.0 / SMALLEST:
            return f"its temperature is {temperature:g}, not between 1e-300 and 1e300"
        if not 1.0 / LARGEST_NUMBER <= rest_temperature <= LARGEST_NUMBER:
            return f"its rest_temperature is {rest_temperature:g}, not between 1e-6 and 1e6"
        slopes = np.asarray(state["slopes"])
        if slopes.shape != (len(KNOTS) + 1,):
            return f"it has {len(slopes)} slopes, not {len(KNOTS) + 1}"
        if not (slopes >= 0.0).all():
            return "its slopes are not all at least 0"
        others = ("slopes", "offset", "contest", "class_offsets", "rest_biases")
        for name in others:
            if not (np.abs(state[name]) <= LARGEST_NUMBER).all():
                return f"its {name} holds numbers beyond {LARGEST_NUMBER:g}"
        return None


def _scalar_spline(odds: float, slopes: list[float]) -> float:
    """:func:`spline` of one number, summed over the knots at which the slope changes."""
    below, *others = slopes
    total = below * odds
    for knot, above in zip(KNOTS, others, strict=True):
        if above != below:
            x = odds - knot
            total += (above - below) * ((x if x > 0.0 else 0.0) + math.log1p(math.exp(-abs(x))))
            below = above
    return total


def _compiled_probs(logits: npt.NDArray[Any], state: State) -> npt.NDArray[Any]:
    from calibrant.calibrators.top_rest.kernels import top_rest_probs

    arrays = {name: np.asarray(state[name], dtype=np.float64) for name in state}
    out = np.empty_like(logits)
    top_rest_probs(
        logits,
        1.0 / state["temperature"],
        arrays["slopes"],
        np.array(KNOTS),
        state["offset"],
        state["contest"],
        arrays["class_offsets"],
        1.0 / state["rest_temperature"],
        arrays["rest_biases"],
        MOST_STRETCH,
        float(np.finfo(out.dtype).eps),
        out,
    )
    return out


def pieces(odds: Array) -> list[Array]:
    """B_j(z): smooth pieces that add up to z, below, between and above the knots."""
    below = [-softplus(-(odds - KNOTS[0])) + KNOTS[0]]
    between = [softplus(odds - low) - softplus(odds - high) for low, high in pairwise(KNOTS)]
    return [*below, *between, softplus(odds - KNOTS[-1])]


def spline(odds: Array, slopes: Array) -> Array:
    """sum_j slope_j B_j(z)."""
    # z + sum (slope - 1) B is exactly z for slopes of 1; the plain sum would round.
    total = odds
    for j, piece in enumerate(pieces(odds)):
        total = total + (slopes[j] - 1.0) * piece
    return total


def _top_first(values: Array, split: TopSplit) -> Array:
    """``values`` with the predicted class strictly largest, even over classes tied with it."""
    return keep_argmax(values, split._replace(is_tied=split.is_top))
