"""The passes of ``search_kernels`` in NumPy, for inputs that are too small to be worth compiling.

``search_kernels`` says what is computed. Here one temperature is computed at a time, for many rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import Floats, row_blocks
from calibrant.calibrators.row_kernels import FARTHEST
from calibrant.calibrators.temperature.search_kernels import (
    ALL_NEAR,
    CERTAIN,
    LEAST_EXPONENT,
    NEAR,
    ORDER,
)


def few_node_log_odds(
    logits: npt.NDArray[Any],
    weight: Floats | None,
    inverse_temperatures: Floats,
    gammas: Floats,
    coefficients: Floats,
    out: npt.NDArray[np.float32],
) -> Floats:
    """What ``search_kernels.node_log_odds`` writes to ``out`` and returns."""
    n, n_classes = logits.shape
    confidence = np.zeros((len(gammas), len(inverse_temperatures)))
    for rows in row_blocks(n, n_classes):
        below, gap = differences(logits[rows])
        near, tail = split(below)
        w = np.ones(len(gap)) if weight is None else weight[rows]
        for j, b in enumerate(inverse_temperatures):
            log_odds = log_odds_of_split_rows(near, tail, gap, b, gammas, coefficients)
            confidence[:, j] += sigmoid(log_odds) @ w
            if out.shape[1] > 0:
                out[:, rows, j] = np.clip(log_odds / b, -CERTAIN, CERTAIN)
    return confidence


def few_log_odds(logits: npt.NDArray[Any], inverse_temperature: float, gammas: Floats) -> Floats:
    """What ``kernels.log_odds_of_rows`` writes: the log-odds of the top class, (gammas, rows)."""
    n, n_classes = logits.shape
    found = np.empty((len(gammas), n))
    for rows in row_blocks(n, n_classes):
        below, gap = differences(logits[rows])
        found[:, rows] = log_odds_of_split_rows(below, below[:0], gap, inverse_temperature, gammas)
    return found


def differences(logits: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Differences to the runner-up, (classes, rows), and s_r - s_m.

    The top class has -inf, so that it counts for nothing. Where only one class is possible, so has
    every class.
    """
    others = np.array(logits.T, dtype=np.float64)
    m = others.argmax(axis=0), np.arange(others.shape[1])
    top = others[m]
    others[m] = -np.inf
    runner_up = others.max(axis=0)
    is_certain = np.isneginf(runner_up)
    with np.errstate(over="ignore"):
        gap = np.maximum(runner_up - top, np.where(is_certain, -np.inf, np.finfo(float).min))
        return others - np.where(is_certain, 0.0, runner_up), gap


def split(below: Floats) -> tuple[Floats, Floats]:
    """The differences of the classes next to the top one, and of the others."""
    others = len(below) - 1
    if others <= ALL_NEAR:
        return below, below[:0]
    ordered = np.partition(below, others + 1 - NEAR, axis=0)
    return ordered[-NEAR:], ordered[:-NEAR]


def log_odds_of_split_rows(
    near: Floats,
    tail: Floats,
    gap: Floats,
    b: float,
    gammas: Floats,
    coefficients: Floats | None = None,
) -> Floats:
    """Log-odds of the top class, (gammas, rows); infinite where only one class is possible.

    A tail needs the ``coefficients`` of 1/phi.
    """
    is_certain = np.isneginf(gap)
    with np.errstate(over="ignore"):
        against = np.maximum(np.where(is_certain, 0.0, gap) * b, FARTHEST)
        x, far_x = (np.maximum(each * b, LEAST_EXPONENT) for each in (near, tail))
    bounded = np.maximum(against, LEAST_EXPONENT)
    e, far_e = np.exp(x), np.exp(far_x)
    total = e.sum(axis=0) + far_e.sum(axis=0)
    odds = np.exp(bounded) * total
    log_total = np.log1p(odds)
    shift = bounded - log_total
    share = np.exp(shift)
    log_rest_of_top = against + np.log(total) - log_total
    u = log_total / odds

    q, log_q = share * e, shift + x
    rest, log_rest = 1.0 - q, np.log1p(-q)
    q_log_q = q * log_q
    moments = None if len(tail) == 0 else tail_moments(share * far_e, shift + far_x) / share
    found = np.empty((len(gammas), len(gap)))
    for c, gamma in enumerate(gammas):
        g = (e * rest / (np.exp(gamma * log_rest) * (rest - gamma * q_log_q))).sum(axis=0)
        if moments is not None and coefficients is not None:
            g += np.einsum("ab,abi->i", coefficients[c], moments)
        log_phi = gamma * log_rest_of_top + np.log1p(gamma * u)
        found[c] = -(against + log_phi + np.log(g))
    found[:, is_certain] = np.inf
    return found


def tail_moments(q: Floats, log_q: Floats) -> Floats:
    """Sums of q^(a+1) (log q)^b over the classes, b <= a <= ORDER: (a, b, rows)."""
    sums = np.zeros((ORDER + 1, ORDER + 1, q.shape[1]))
    logs = [np.ones_like(q), log_q, log_q * log_q]
    logs.append(logs[2] * log_q)
    power = q
    for a in range(ORDER + 1):
        for b in range(a + 1):
            sums[a, b] = np.einsum("ki,ki->i", power, logs[b])
        power = power * q
    return sums
