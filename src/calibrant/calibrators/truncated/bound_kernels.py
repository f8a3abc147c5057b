"""Compiled bounds on the confidences and log-probabilities of truncated rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    exp_nonpositive,
    index_of,
    kernel,
    max_of,
    over_rows,
    sum_of,
)
from calibrant.calibrators.row_kernels import (
    difference,
    exponentials,
    log_of_complement,
    log_one_plus_exp,
    log_phi_of_top,
)
from calibrant.calibrators.truncated.tails import COUNT, LARGEST, LEAST, MOST

Floats = npt.NDArray[np.float64]

LOG_HALF = float(np.log(0.5))
LOG_OF_ZERO = -700.0
"""Odds that round to 0 are below e^-700, also as a sum over classes."""


@kernel(inline="always", error_model="numpy")
def phi_of(q: float, log_q: float, gamma: float) -> Any:
    """phi(q) for q up to about 1/2."""
    rest = 1.0 - q
    return exp_nonpositive(gamma * log_of_complement(q)) * (rest - gamma * q * log_q) / rest


@kernel(fastmath={"contract"}, error_model="numpy")
def phi_of_each(x: Floats, a: Floats, log_z: float, gamma: float, out: Floats) -> None:
    """Write phi(q) of each class into ``out``, where q = a / Z and log q = x - log Z."""
    share = np.exp(-log_z)
    for j in range(len(x)):
        out[j] = phi_of(share * a[j], x[j] - log_z, gamma)


@kernel(inline="always")
def range_of_phi(
    q_low: float, q_high: float, low: float, high: float, gamma: float, turn: float, at_turn: float
) -> tuple[float, float]:
    """Smallest and largest phi between two q, where it is ``low`` and ``high``.

    Between 0 and 1 phi has one extremum, at ``turn``.
    """
    least, most = min(low, high), max(low, high)
    if q_low < turn < q_high:
        if gamma > 0.0:
            most = at_turn
        else:
            least = at_turn
    return least, most


@kernel()
def limits_of_tail(tail: Floats, top: float, inverse_temperature: float) -> tuple[float, float]:
    """Smallest and largest sum over the tail of e^(b (s - top)).

    They are R min(c, R)^(b-1) and n^(1-b) R^b, in either order; both rise with R.
    """
    low = high = 0.0
    if tail[LEAST] > -np.inf:
        low = np.exp(
            min(*extreme_tails(tail, tail[LEAST], inverse_temperature)) - inverse_temperature * top
        )
    if tail[MOST] > -np.inf:
        high = np.exp(
            max(*extreme_tails(tail, tail[MOST], inverse_temperature)) - inverse_temperature * top
        )
    return low, high


@kernel()
def extreme_tails(tail: Floats, log_rest: float, inverse_temperature: float) -> tuple[float, float]:
    """log S of as few classes as possible, and of n equal ones."""
    few = log_rest + (inverse_temperature - 1.0) * min(tail[LARGEST], log_rest)
    return few, (1.0 - inverse_temperature) * np.log(tail[COUNT]) + inverse_temperature * log_rest


@over_rows
def bound_rows(
    start: int,
    stop: int,
    known: Floats,
    tails: Floats,
    labels: Any,
    inverse_temperature: float,
    gamma: float,
    turn: float,
    at_turn: float,
    log_odds: Floats,
    true_log_prob: Floats,
    log_probs: Any,
) -> None:
    """Smallest and largest value of each row, whatever the unknown classes are: (2, n) each.

    Those of the known classes are written into ``log_probs`` (2, n, k), unless it is empty. With
    a_i = e^(b (s_i - s_m)), S the sum over the tail, Z = sum a + S, q_i = a_i / Z:

        G = sum over known i != m of a_i / phi(q_i) + f S
        odds against m = phi(q_m) G,    p_i = a_i / phi(q_i) / (1 / phi(q_m) + G)

    This is interval arithmetic: S is within its limits, f within those of 1/phi up to c^b / Z, and
    phi has one extremum, ``at_turn``, at ``turn``. At gamma = 0 both are monotone in S, so the
    limits are attained.
    """
    k = known.shape[1]
    x, a = np.empty(k), np.empty(k)
    least, most = np.ones(k), np.ones(k)  # of phi of each class
    for i in range(start, stop):
        top = max_of(known[i])
        m = index_of(known[i], top)
        for j in range(k):
            x[j] = difference(known[i, j], top, inverse_temperature)
        exponentials(x, a)
        a[m] = 0.0
        others = sum_of(a)
        s_low, s_high = limits_of_tail(tails[i], top, inverse_temperature)
        odds_low, odds_high = others + s_low, others + s_high
        if odds_high == 0.0:  # only one class is possible, or the others are below rounding
            log_odds[:, i] = np.inf
            true_log_prob[:, i] = 0.0
            y = labels[i]
            if y != m:
                # The odds against m are at least those of the label, and round to 0.
                for end, odds in ((0, x[y]), (1, max(x[y], LOG_OF_ZERO))):
                    true_log_prob[end, i] = x[y] + log_phi_of_top(0.0, odds, gamma)
                if true_log_prob[0, i] > true_log_prob[1, i]:  # gamma is below 0
                    true_log_prob[0, i], true_log_prob[1, i] = (
                        true_log_prob[1, i],
                        true_log_prob[0, i],
                    )
            if log_probs.shape[1] > 0:
                log_probs[:, i, :] = -np.inf
                log_probs[:, i, m] = 0.0
            continue
        g_low, g_high = odds_low, odds_high
        top_least = top_most = 0.0  # of log phi of the top class
        if gamma != 0.0:
            log_z_low, log_z_high = np.log1p(odds_low), np.log1p(odds_high)
            q_low, q_high = np.exp(-log_z_high), np.exp(-log_z_low)
            phi_of_each(x, a, log_z_high, gamma, least)
            phi_of_each(x, a, log_z_low, gamma, most)
            g_low = g_high = 0.0
            for j in range(k):
                least[j], most[j] = range_of_phi(
                    a[j] * q_low, a[j] * q_high, least[j], most[j], gamma, turn, at_turn
                )
                g_low += a[j] / most[j]
                g_high += a[j] / least[j]
            if s_high > 0.0:
                log_q = (
                    inverse_temperature * (min(tails[i, LARGEST], tails[i, MOST]) - top) - log_z_low
                )
                log_q = min(log_q, LOG_HALF)  # no class but the top one has more
                q = np.exp(log_q)
                of_tail = range_of_phi(0.0, q, 1.0, phi_of(q, log_q, gamma), gamma, turn, at_turn)
                g_low += s_low / of_tail[1]
                g_high += s_high / of_tail[0]
            top_least, top_most = range_of_phi(
                q_low,
                q_high,
                log_phi_of_top(odds_high, np.log(odds_high), gamma),
                log_phi_of_top(odds_low, np.log(odds_low), gamma),
                gamma,
                turn,
                np.log(at_turn),
            )
        against_low = top_least + np.log(g_low)
        against_high = top_most + np.log(g_high)
        log_odds[0, i], log_odds[1, i] = -against_high, -against_low
        top_low = -log_one_plus_exp(against_high)
        top_high = -log_one_plus_exp(against_low)
        all_low = np.logaddexp(-top_most, np.log(g_low))
        all_high = np.logaddexp(-top_least, np.log(g_high))
        y = labels[i]
        if y == m:
            true_log_prob[0, i], true_log_prob[1, i] = top_low, top_high
        else:
            true_log_prob[0, i] = x[y] - np.log(most[y]) - all_high
            true_log_prob[1, i] = min(x[y] - np.log(least[y]) - all_low, 0.0)
        if log_probs.shape[1] > 0:
            for j in range(k):
                log_probs[0, i, j] = log_probs[1, i, j] = -np.inf
                if j == m:
                    log_probs[0, i, j], log_probs[1, i, j] = top_low, top_high
                elif a[j] > 0.0:
                    log_probs[0, i, j] = x[j] - np.log(most[j]) - all_high
                    log_probs[1, i, j] = min(x[j] - np.log(least[j]) - all_low, 0.0)
