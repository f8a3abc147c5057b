"""Compiled passes of the (gamma, T) search: many gammas and temperatures for each row at once.

``node_log_odds`` computes, for each row, what the criteria need at a few *node* temperatures and
all gammas. The classes near the top are mapped exactly. The others, the tail, enter through power
sums that all gammas share, because the map is separable and 1/phi is smooth for small q:

    sum over the tail of q / phi(q) = sum over b <= a <= 3 of  C[gamma, a, b] sum q^(a+1) (log q)^b

``interpolated_errors`` interpolates the log-odds of each row between the nodes, and bins them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    copy_to,
    exp_nonpositive,
    index_of,
    kernel,
    log_positive,
    max_of,
    over_rows,
)
from calibrant.calibrators.row_kernels import FARTHEST, log_of_complement

Floats = npt.NDArray[np.float64]

NEAR = 7
"""Classes next to the top one that are mapped one by one if there are many classes."""
ALL_NEAR = 16
"""With up to this many classes besides the top one, all of them are mapped one by one."""
ORDER = 3
"""Highest power of q in the expansion for the tail."""
LEAST_EXPONENT = -170.0
"""Smaller exponents are raised to this, 1e-74: no product of such numbers is too small for the
processor's fast path, and none of them matters."""
NEGLIGIBLE = -32.0
"""A tail whose largest exponent is below this weighs less than 1e-13 per class."""
MOST_LOG_COUNT = 12.0
"""Logarithm of the largest number of classes that one stand-in stands for."""
CERTAIN = 1e30
"""T times the log-odds of the only possible class."""


@kernel(fastmath={"reassoc", "nsz", "contract"})
def power_sums(
    tail: Floats, inverse_temperature: float, x: Floats, e: Floats, sums: Floats
) -> None:
    """Write the sums of e^(a+1) x^b over the tail, b <= a <= ORDER, into ``sums[a, b]``.

    An x is an entry of the tail divided by T, and e its exponential.
    """
    for k in range(len(tail)):
        x[k] = max(tail[k] * inverse_temperature, LEAST_EXPONENT)
        e[k] = exp_nonpositive(x[k])
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = 0.0
    for k in range(len(tail)):
        w = e[k]
        t = x[k]
        s00 += w
        w2 = w * w
        s10 += w2
        w2t = w2 * t
        s11 += w2t
        w3 = w2 * w
        s20 += w3
        w3t = w3 * t
        s21 += w3t
        w3tt = w3t * t
        s22 += w3tt
        w4 = w3 * w
        s30 += w4
        w4t = w4 * t
        s31 += w4t
        w4tt = w4t * t
        s32 += w4tt
        s33 += w4tt * t
    sums[0, 0] = s00
    sums[1, 0] = s10
    sums[1, 1] = s11
    sums[2, 0] = s20
    sums[2, 1] = s21
    sums[2, 2] = s22
    sums[3, 0] = s30
    sums[3, 1] = s31
    sums[3, 2] = s32
    sums[3, 3] = s33


@kernel()
def add_counted_powers(
    tail: Floats, inverse_temperature: float, counts: Floats, sums: Floats
) -> None:
    """Add count e^(a+1) x^b of each stand-in to ``sums[a, b]``."""
    for k in range(len(tail)):
        x = max(tail[k] * inverse_temperature, LEAST_EXPONENT)
        e = exp_nonpositive(x)
        power_of_e = counts[k]
        for a in range(ORDER + 1):
            power_of_e *= e
            term = power_of_e
            for b in range(a + 1):
                sums[a, b] += term
                term *= x


@kernel()
def shifted_sums(sums: Floats, top: Floats, moments: Floats) -> None:
    """Sums of e^(a+1) share^a (log q)^b, where q = share e and log q = x + shift, at every node."""
    for j in range(len(sums)):
        shift, share = top[0, j], top[1, j]
        power = 1.0
        for a in range(ORDER + 1):
            s0, s1, s2, s3 = sums[j, a, 0], sums[j, a, 1], sums[j, a, 2], sums[j, a, 3]
            moments[a, 0, j] = power * s0
            moments[a, 1, j] = power * (s1 + shift * s0)
            moments[a, 2, j] = power * (s2 + shift * (2.0 * s1 + shift * s0))
            moments[a, 3, j] = power * (s3 + shift * (3.0 * s2 + shift * (3.0 * s1 + shift * s0)))
            power *= share


@kernel()
def split_row(row: Any, near: Floats, tail: Floats) -> Any:
    """Write the differences to the runner-up into ``near`` and ``tail``; return s_r - s_m.

    ``near`` takes the largest of the other classes. np.partition would take seconds to compile.
    """
    top = max_of(row)
    m, n_near = index_of(row, top), len(near)
    lowest = 0
    for k in range(len(row) - 1):
        value = np.float64(row[k + 1] if k >= m else row[k])
        if k >= n_near:
            tail[k - n_near] = min(value, near[lowest])
            if value <= near[lowest]:
                continue
        near[k if k < n_near else lowest] = value
        for j in range(min(k + 1, n_near)):
            if near[j] < near[lowest]:
                lowest = j
    runner_up = max_of(near)
    if runner_up == -np.inf:
        return -np.inf
    for k in range(n_near):
        near[k] -= runner_up
    for k in range(len(tail)):
        tail[k] -= runner_up
    return runner_up - np.float64(top)


@kernel(fastmath={"contract"})
def exponentials_at(
    near: Floats, inverse_temperatures: Floats, x: Floats, e: Floats, total: Floats
) -> None:
    """x = b times each entry of ``near`` at every node, e^x, and the sums of e^x."""
    total[:] = 0.0
    for k in range(len(near)):
        for j in range(len(inverse_temperatures)):
            x[k, j] = max(near[k] * inverse_temperatures[j], LEAST_EXPONENT)
            e[k, j] = exp_nonpositive(x[k, j])
            total[j] += e[k, j]


@kernel(fastmath={"contract"}, error_model="numpy")
def softmax_at(
    gap: float,
    inverse_temperatures: Floats,
    total: Floats,
    e: Floats,
    top: Floats,
    log_rest: Floats,
) -> None:
    """What the map needs of the softmax at every node, from the sum of e.

    Rows of ``top``: log(e^gap q_m), e^gap q_m, log(1 - q_m), and u(q_m) = log(1 + S) / S.
    ``log_rest`` is log(1 - q) of each near class.
    """
    for j in range(len(inverse_temperatures)):
        x = gap * inverse_temperatures[j]
        bounded = max(x, LEAST_EXPONENT)
        odds = exp_nonpositive(bounded) * total[j]
        log_total = log_positive(1.0 + odds)
        series = 1.0 - odds * (0.5 - odds * (1.0 / 3.0 - 0.25 * odds))
        top[0, j] = bounded - log_total
        top[1, j] = exp_nonpositive(bounded - log_total)
        top[2, j] = x + log_positive(total[j]) - log_total
        top[3, j] = series if odds < 1e-3 else log_total / odds
    for k in range(len(e)):
        for j in range(e.shape[1]):
            log_rest[k, j] = log_of_complement(top[1, j] * e[k, j])


@kernel(fastmath={"contract"}, error_model="numpy")
def add_mapped_at(
    x: Floats, e: Floats, log_rest: Floats, top: Floats, gamma: float, g: Floats
) -> None:
    """Add g = e / phi(q) of each near class at every node."""
    for k in range(len(e)):
        for j in range(e.shape[1]):
            q = top[1, j] * e[k, j]
            rest = 1.0 - q
            power = exp_nonpositive(gamma * log_rest[k, j])
            g[j] += e[k, j] * rest / (power * (rest - gamma * q * (x[k, j] + top[0, j])))


@kernel(fastmath={"contract"}, error_model="numpy")
def log_odds_at(
    gap: float,
    inverse_temperatures: Floats,
    top: Floats,
    g: Floats,
    gamma: float,
    weight: float,
    scaled: Floats,
    confidence: Floats,
) -> None:
    """T times the log-odds of the top class at every node, from the sum of g; add confidences."""
    for j in range(len(inverse_temperatures)):
        log_ratio = gamma * top[2, j] + log_positive((1.0 + gamma * top[3, j]) * g[j])
        scaled[j] = -(gap + log_ratio / inverse_temperatures[j])
    for j in range(len(inverse_temperatures)):
        log_odds = scaled[j] * inverse_temperatures[j]
        small = exp_nonpositive(-abs(log_odds))
        confidence[j] += weight * ((1.0 if log_odds >= 0.0 else small) / (1.0 + small))


@kernel(fastmath={"contract"})
def add_tail_at(coefficients: Floats, moments: Floats, g: Floats) -> None:
    """Add the tail at every node: the moments (a, b, node) times the coefficients of 1/phi."""
    for a in range(ORDER + 1):
        for b in range(a + 1):
            for j in range(len(g)):
                g[j] += coefficients[a, b] * moments[a, b, j]


@over_rows
def node_log_odds(
    start: int,
    stop: int,
    logits: Any,
    stand_ins: Floats,
    counts: Floats,
    weight: Floats,
    inverse_temperatures: Floats,
    gammas: Floats,
    coefficients: Floats,
    out: Any,
) -> Any:
    """Write T times the log-odds of each row's top class, at every gamma and node, into ``out``.

    ``out`` is (gammas, rows, nodes), or has no rows if only the sums are needed. ``stand_ins`` are
    further logits of a row, each of which counts ``counts`` times; both are (rows, 0) where all
    classes are known. ``coefficients[gamma, a, b]`` are those of 1/phi. Returns the weighted sums
    of the confidences: (gammas, nodes).
    """
    confidence = np.zeros((len(gammas), len(inverse_temperatures)))
    n_classes, n_nodes = logits.shape[1], len(inverse_temperatures)
    n_near = n_classes - 1 if n_classes - 1 <= ALL_NEAR else NEAR
    n_far, n_stand_ins = n_classes - 1 - n_near, stand_ins.shape[1]
    n_tail = n_far + n_stand_ins
    negligible = NEGLIGIBLE if n_stand_ins == 0 else NEGLIGIBLE - MOST_LOG_COUNT
    near, tail = np.empty(n_near), np.empty(n_tail)
    tail_x, tail_e = np.empty(n_far), np.empty(n_far)
    x, e = np.empty((n_near, n_nodes)), np.empty((n_near, n_nodes))
    log_rest = np.empty((n_near, n_nodes))
    total, top = np.empty(n_nodes), np.empty((4, n_nodes))
    g, scaled = np.empty(n_nodes), np.empty(n_nodes)
    sums = np.zeros((n_nodes, ORDER + 1, ORDER + 1))
    moments = np.zeros((ORDER + 1, ORDER + 1, n_nodes))
    for i in range(start, stop):
        w = weight[i] if len(weight) > 0 else 1.0
        gap = split_row(logits[i], near, tail[:n_far])
        if gap == -np.inf:  # only one class is possible
            for c in range(len(gammas)):
                for j in range(n_nodes):
                    confidence[c, j] += w
                    if out.shape[1] > 0:
                        out[c, i, j] = CERTAIN
            continue
        exponentials_at(near, inverse_temperatures, x, e, total)
        if n_stand_ins > 0:
            runner_up = np.float64(max_of(logits[i])) + gap
            for j in range(n_stand_ins):
                tail[n_far + j] = stand_ins[i, j] - runner_up
        gap = max(gap, FARTHEST)
        if n_tail > 0:
            highest = max_of(tail)
            for j in range(n_nodes):
                if highest * inverse_temperatures[j] < negligible:
                    for a in range(ORDER + 1):
                        for b in range(a + 1):
                            sums[j, a, b] = 0.0
                    continue
                power_sums(tail[:n_far], inverse_temperatures[j], tail_x, tail_e, sums[j])
                if n_stand_ins > 0:
                    add_counted_powers(tail[n_far:], inverse_temperatures[j], counts[i], sums[j])
                total[j] += sums[j, 0, 0]
        softmax_at(gap, inverse_temperatures, total, e, top, log_rest)
        if n_tail > 0:
            shifted_sums(sums, top, moments)
        for c in range(len(gammas)):
            gamma = gammas[c]
            if gamma == 0.0:
                copy_to(g, total)
            else:
                g[:] = 0.0
                add_mapped_at(x, e, log_rest, top, gamma, g)
                if n_tail > 0:
                    add_tail_at(coefficients[c], moments, g)
            log_odds_at(gap, inverse_temperatures, top, g, gamma, w, scaled, confidence[c])
            if out.shape[1] > 0:
                for j in range(n_nodes):  # bounded, because ``out`` has single precision
                    out[c, i, j] = max(min(scaled[j], CERTAIN), -CERTAIN)
    return confidence
