"""Compiled steps on one row of logits, shared by several families.

The top class m and the runner-up r are kept apart. For k != m, with b = 1/T:

    x_k = b (s_k - s_r) <= 0,   e_k = e^x_k,   S = e^(b (s_r - s_m)) sum e_k = (1 - q_m) / q_m
    g_k = e_k / phi(q_k),       log-odds against m = b (s_r - s_m) + log phi(q_m) + log sum g_k

Nothing here overflows or cancels, whatever the size of the logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    atanh_series,
    exp_nonpositive,
    index_of,
    kernel,
    max_of,
)

Floats = npt.NDArray[np.float64]

LOWEST = -750.0
"""Smaller exponents are raised to this: e^x is 0, and x e^x must be 0 even for a masked class."""
FARTHEST = -1e150
"""Smaller differences of logits, divided by T, are raised to this: neither their squares nor a sum
over rows overflows."""

_complement_series = atanh_series(33)


@kernel(fastmath={"contract"}, error_model="numpy")
def log_of_complement(q: float) -> Any:
    """log(1 - q) for q up to about 1/2, as the series of -2 atanh(q / (2 - q))."""
    z = q / (2.0 - q)
    y = z * z
    return -2.0 * z * (_complement_series(y) * y + 1.0)


@kernel(fastmath={"contract"})
def relative_exponents(row: Any, inverse_temperature: float, x: Floats) -> tuple[int, float]:
    """Write x_k of each class into ``x``, FARTHEST for the top one; return m and b (s_r - s_m)."""
    top = max_of(row)
    m = index_of(row, top)
    for k in range(len(row)):
        x[k] = np.float64(row[k])
    x[m] = -np.inf
    runner_up = max_of(x)
    if runner_up == -np.inf:  # no other class is possible
        x[:] = FARTHEST
        return m, -np.inf
    for k in range(len(row)):
        x[k] = max((x[k] - runner_up) * inverse_temperature, FARTHEST)
    return m, difference(runner_up, top, inverse_temperature)


def relative_exponents_of_few(
    logits: Any, inverse_temperature: float
) -> tuple[npt.NDArray[np.intp], Floats, Floats]:
    """:func:`relative_exponents` of every row in NumPy: m, b (s_r - s_m) and x."""
    rows, m = np.arange(len(logits)), logits.argmax(axis=1)
    x: Floats = logits.astype(np.float64)
    top = x[rows, m]
    x[rows, m] = -np.inf
    runner_up = x.max(axis=1)
    none = runner_up == -np.inf  # no other class is possible
    runner_up[none] = 0.0
    with np.errstate(over="ignore"):
        x -= runner_up[:, np.newaxis]
        x *= inverse_temperature
        np.maximum(x, FARTHEST, out=x)
        gap = np.maximum((runner_up - top) * inverse_temperature, FARTHEST)
    return m, np.where(none, -np.inf, gap), x


@kernel(inline="always")
def difference(low: Any, high: Any, inverse_temperature: float) -> Any:
    """b (low - high) of two logits."""
    return max((np.float64(low) - np.float64(high)) * inverse_temperature, FARTHEST)


@kernel(fastmath={"contract"})
def exponentials(x: Floats, e: Floats) -> None:
    """Write e^x of each class into ``e``; the lowest exponent gives 0."""
    for k in range(len(x)):
        e[k] = exp_nonpositive(x[k])


@kernel(fastmath={"contract"}, error_model="numpy")
def mapped(x: Floats, e: Floats, share: float, shift: float, gamma: float, g: Floats) -> None:
    """Write g_k = e_k / phi(q_k) into ``g``, where q_k = share e_k and log q_k = x_k + shift."""
    for k in range(len(x)):
        q = share * e[k]
        rest = 1.0 - q
        power = exp_nonpositive(gamma * log_of_complement(q))
        g[k] = e[k] * rest / (power * (rest - gamma * q * (x[k] + shift)))


@kernel(fastmath={"contract"}, error_model="numpy")
def log_rests(e: Floats, share: float, log_rest: Floats) -> None:
    """Write log(1 - q_k) of each class into ``log_rest``, where q_k = share e_k."""
    for k in range(len(e)):
        log_rest[k] = log_of_complement(share * e[k])


@kernel(fastmath={"reassoc", "contract"}, error_model="numpy")
def sum_of_mapped(
    x: Floats, e: Floats, log_rest: Floats, share: float, shift: float, gamma: float
) -> float:
    """The sum of g_k of :func:`mapped`, if log(1 - q_k) is known."""
    total = 0.0
    for k in range(len(x)):
        q = share * e[k]
        rest = 1.0 - q
        power = exp_nonpositive(gamma * log_rest[k])
        total += e[k] * rest / (power * (rest - gamma * q * (x[k] + shift)))
    return total


@kernel()
def log_phi_of_top(odds: float, log_odds: float, gamma: float) -> Any:
    """log phi(q_m) from S = (1 - q_m) / q_m and its logarithm; u(q_m) is log(1 + S) / S."""
    log_total = np.log1p(odds)
    u = log_total / odds if odds > 0.0 else 1.0
    return gamma * (log_odds - log_total) + np.log1p(gamma * u)


@kernel()
def log_one_plus_exp(x: float) -> Any:
    """log(1 + e^x)."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@kernel(fastmath={"contract"})
def relative_to(row: Any, top: float, inverse_temperature: float, x: Floats) -> None:
    """Write b (s_k - top) of each class into ``x``."""
    for k in range(len(row)):
        x[k] = max((np.float64(row[k]) - top) * inverse_temperature, LOWEST)


@kernel(fastmath={"reassoc", "nsz", "contract"})
def moments(x: Floats, e: Floats) -> tuple[float, float, float, float]:
    """Sums of e, e x, e x^2 and e x^3."""
    total = first = second = third = 0.0
    for k in range(len(x)):
        total += e[k]
        weighted = e[k] * x[k]
        first += weighted
        second += weighted * x[k]
        third += weighted * x[k] * x[k]
    return total, first, second, third
