"""Classifier outputs to search, and the gammas at which over-confidence ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from calibrant.focal import confidence_bias

Floats = npt.NDArray[np.float64]


def random_outputs(n: int, n_classes: int, rng: np.random.Generator) -> Floats:
    """Rows from nearly one-hot to nearly flat; in a third of them several classes are largest."""
    spread = 10.0 ** rng.uniform(-1.0, 3.0, size=(n, 1))
    drawn = np.maximum(rng.gamma(spread, size=(n, n_classes)), 1e-300)
    probs = drawn / drawn.sum(axis=1, keepdims=True)
    tied = np.arange(n) % 3 == 0
    n_tied = rng.integers(1, n_classes, size=n)  # at least one class is below the others
    below = 10.0 ** rng.uniform(-12.0, 0.0, size=n)
    on_top = np.arange(n_classes) < n_tied[:, None]
    rows = np.where(on_top, 1.0, below[:, None])
    rows /= rows.sum(axis=1, keepdims=True)
    return np.asarray(np.where(tied[:, None], rows, probs))


def one_above(top: Floats, n_classes: int) -> Floats:
    """One class at ``top``, the others equal."""
    others = np.repeat((1.0 - top)[:, None] / (n_classes - 1), n_classes - 1, axis=1)
    return np.concatenate([top[:, None], others], axis=1)


def one_below(bottom: Floats, n_classes: int) -> Floats:
    """One class at ``bottom``, the others equal."""
    return np.roll(one_above(bottom, n_classes), -1, axis=1)


def all_of_three_classes(n: int) -> Floats:
    """A grid over all sorted outputs of three classes, without the ends."""
    top, share = np.meshgrid(np.linspace(1 / 3, 1.0, n + 2)[1:-1], np.linspace(0.0, 1.0, n))
    # The second lies between half of what is left and the top, or all of what is left.
    low, high = (1.0 - top) / 2, np.minimum(top, 1.0 - top)
    second = low + share * (high - low)
    rows = np.stack([top, second, np.maximum(1.0 - top - second, 0.0)], axis=-1)
    return rows.reshape(-1, 3)


def largest_gamma(probs: Floats) -> float:
    """The largest gamma at which one of these outputs is over-confident, or 0."""

    def is_over(gamma: float) -> bool:
        return bool((np.asarray(confidence_bias(probs, gamma=gamma)) > 0).any())

    return last_true(is_over, low=1e-9, high=100.0)


def last_true(holds: Callable[[float], bool], *, low: float, high: float) -> float:
    """The end of the range in which a condition holds, by bisection; 0 if it never holds."""
    if not holds(low):
        return 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def gamma_near_uniform(n_classes: int) -> float:
    """Where phi is largest at 1/K, in closed form: K - 2 (K - 1) / log K; below 0 for none.

    Near the uniform output the map multiplies differences of logarithms by 1 - d log phi / d log q
    at 1/K. So an output there is over-confident as long as phi rises at 1/K. Its slope has the sign
    of 2 (1 - p) / log p + 1 - gamma p (Mukhoti et al. 2020, Eq. 9).
    """
    return n_classes - 2 * (n_classes - 1) / math.log(n_classes)
