"""Compiled passes over rows of which only the largest logits are known, by the estimate.

For the classes of the tail (``_top_tails``) a few stand-ins enter every sum, each several times
(see ``top_rows``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import kernel, max_of, over_rows, sum_of
from calibrant.calibrators.row_kernels import (
    difference,
    exponentials,
    log_one_plus_exp,
    log_phi_of_top,
    mapped,
    moments,
    relative_exponents,
    relative_to,
)
from calibrant.calibrators.temperature.search_kernels import (
    NEAR,
    NEGLIGIBLE,
    ORDER,
    add_confidence,
    add_mapped_at,
    add_tail_at,
    exponentials_at,
    log_odds_at,
    log_rest_at,
    shifted_sums,
    softmax_at,
    split_row,
    tail_exponentials,
)
from calibrant.calibrators.truncated.tails import COUNT, SLOPE, START

Floats = npt.NDArray[np.float64]

LEAST_TAIL = -12.0
"""A stand-in may count e^12 times: so much further down is it negligible."""


@kernel(inline="always")
def with_stand_ins(known: Floats, tail: Floats, places: Floats, row: Floats) -> None:
    """The known log-probabilities and those of the stand-ins into ``row``."""
    k = len(known)
    row[:k] = known
    for j in range(len(places)):
        row[k + j] = tail[START] - tail[SLOPE] * places[j]


@kernel()
def sum_of_all(values: Floats, n_known: int, tail: Floats, shares: Floats) -> Any:
    """The sum over known classes and stand-ins, each of these as often as it counts."""
    of_tail = 0.0
    for j in range(len(shares)):
        of_tail += values[n_known + j] * shares[j]
    return sum_of(values[:n_known]) + tail[COUNT] * of_tail


@kernel(inline="always")
def multiplied(values: Floats, n_known: int, tail: Floats, shares: Floats) -> None:
    """Each stand-in as often as it counts."""
    for j in range(len(shares)):
        values[n_known + j] *= tail[COUNT] * shares[j]


@kernel()
def mapped_row(
    known: Floats,
    tail: Floats,
    places: Floats,
    shares: Floats,
    beta: float,
    gamma: float,
    row: Floats,
    x: Floats,
    e: Floats,
    g: Floats,
) -> tuple[int, float, float]:
    """As ``_kernels.map_row``, with stand-ins: m, log phi(q_m), log odds against m."""
    with_stand_ins(known, tail, places, row)
    m, gap = relative_exponents(row, beta, x)
    if gap == -np.inf:
        e[:] = 0.0
        g[:] = 0.0
        return m, 0.0, -np.inf
    exponentials(x, e)
    against = gap + np.log(sum_of_all(e, len(known), tail, shares))
    if gamma == 0.0:
        g[:] = e
        return m, 0.0, against
    odds = np.exp(against)
    shift = gap - np.log1p(odds)
    mapped(x, e, np.exp(shift), shift, gamma, g)
    log_phi = log_phi_of_top(odds, against, gamma)
    return m, log_phi, gap + log_phi + np.log(sum_of_all(g, len(known), tail, shares))


@kernel(inline="always")
def log_against_top(
    j: int, m: int, row: Floats, beta: float, log_phi: float, e: Floats, g: Floats
) -> Any:
    """log p_j - log p_m after the map."""
    log_phi_j = np.log(e[j] / g[j]) if e[j] > 0.0 else 0.0  # phi of a class that is 0 is 1
    return difference(row[j], row[m], beta) + log_phi - log_phi_j


@over_rows
def map_rows(
    start: int,
    stop: int,
    known: Floats,
    tails: Floats,
    labels: Any,
    places: Floats,
    shares: Floats,
    beta: float,
    gamma: float,
    log_odds: Floats,
    true_log_prob: Floats,
) -> None:
    """Of Psi^gamma(softmax(b s)), per row: log odds of the top class, log-prob of the label."""
    k = known.shape[1]
    width = k + len(places)
    row, x, e, g = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for i in range(start, stop):
        m, log_phi, against = mapped_row(
            known[i], tails[i], places, shares, beta, gamma, row, x, e, g
        )
        log_odds[i] = -against
        true_log_prob[i] = -log_one_plus_exp(against)
        if labels[i] != m:
            true_log_prob[i] += log_against_top(labels[i], m, row, beta, log_phi, e, g)


@over_rows
def map_log_probs(
    start: int,
    stop: int,
    known: Floats,
    tails: Floats,
    places: Floats,
    shares: Floats,
    beta: float,
    gamma: float,
    out: Floats,
) -> None:
    """Log-probabilities of the known classes after Psi^gamma(softmax(b s))."""
    k = known.shape[1]
    width = k + len(places)
    row, x, e, g = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for i in range(start, stop):
        m, log_phi, against = mapped_row(
            known[i], tails[i], places, shares, beta, gamma, row, x, e, g
        )
        log_top = -log_one_plus_exp(against)
        for j in range(k):
            out[i, j] = log_top
            if row[j] == -np.inf:
                out[i, j] = -np.inf
            elif row[j] < row[m]:
                below = log_against_top(j, m, row, beta, log_phi, e, g)
                out[i, j] += min(below, 0.0)


@over_rows
def temperature_rows(
    start: int,
    stop: int,
    known: Floats,
    tails: Floats,
    labels: Any,
    places: Floats,
    shares: Floats,
    beta: float,
    out: Floats,
) -> None:
    """As ``_kernels.temperature_rows``: cross-entropy, its derivative by log b, variance, skew."""
    k = known.shape[1]
    width = k + len(places)
    row, x, e = np.empty(width), np.empty(width), np.empty(width)
    for i in range(start, stop):
        with_stand_ins(known[i], tails[i], places, row)
        top = max_of(row)
        relative_to(row, top, beta, x)
        exponentials(x, e)
        multiplied(e, k, tails[i], shares)
        total, first, second, third = moments(x, e)
        mean = first / total
        square = second / total
        of_label = difference(row[labels[i]], top, beta)
        out[0, i] = np.log(total) - of_label
        out[1, i] = mean - of_label
        out[2, i] = max(square - mean * mean, 0.0)
        out[3, i] = third / total - mean * (3.0 * square - 2.0 * mean * mean)


@kernel(fastmath={"reassoc", "nsz", "contract"})
def weighted_power_sums(x: Floats, e: Floats, times: Floats, sums: Floats, node: int) -> None:
    """Sums of times e^(a+1) x^b for b <= a <= ORDER into ``sums[node, a, b]``."""
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = 0.0
    for k in range(len(x)):
        t = x[k]
        w = times[k] * e[k]
        s00 += w
        w *= e[k]
        s10 += w
        s11 += w * t
        w *= e[k]
        s20 += w
        s21 += w * t
        s22 += w * t * t
        w *= e[k]
        s30 += w
        s31 += w * t
        s32 += w * t * t
        s33 += w * t * t * t
    sums[node, 0, 0] = s00
    sums[node, 1, 0] = s10
    sums[node, 1, 1] = s11
    sums[node, 2, 0] = s20
    sums[node, 2, 1] = s21
    sums[node, 2, 2] = s22
    sums[node, 3, 0] = s30
    sums[node, 3, 1] = s31
    sums[node, 3, 2] = s32
    sums[node, 3, 3] = s33


@over_rows
def node_sums(
    start: int,
    stop: int,
    known: Floats,
    tails: Floats,
    places: Floats,
    shares: Floats,
    betas: Floats,
    gammas: Floats,
    coefficients: Floats,
) -> Any:
    """The sums of the confidences at every gamma and node, (gammas, nodes).

    The classes next to the top are mapped one by one; the other known ones and the stand-ins enter
    by power sums.
    """
    k, n_nodes = known.shape[1], len(betas)
    confidence = np.zeros((len(gammas), n_nodes))
    n_far = k - 1 - NEAR
    n_tail = n_far + len(places)
    others, near, far = np.empty(k - 1), np.empty(NEAR), np.empty(n_far)
    tail, times = np.empty(n_tail), np.ones(n_tail)
    tail_x, tail_e = np.empty(n_tail), np.empty(n_tail)
    x, e = np.empty((NEAR, n_nodes)), np.empty((NEAR, n_nodes))
    log_rest = np.empty((NEAR, n_nodes))
    total, top = np.empty(n_nodes), np.empty((4, n_nodes))
    g, scaled = np.empty(n_nodes), np.empty(n_nodes)
    sums = np.zeros((n_nodes, ORDER + 1, ORDER + 1))
    power_moments = np.zeros((ORDER + 1, ORDER + 1, n_nodes))
    for i in range(start, stop):
        gap = split_row(known[i], others, near, far)
        if gap == -np.inf:  # one class is possible
            confidence += 1.0
            continue
        runner_up = max_of(known[i]) + gap
        tail[:n_far] = far
        for j in range(len(places)):
            tail[n_far + j] = tails[i, START] - tails[i, SLOPE] * places[j] - runner_up
            times[n_far + j] = tails[i, COUNT] * shares[j]
        exponentials_at(near, betas, x, e, total)
        highest = max_of(tail)
        for j in range(n_nodes):
            if highest * betas[j] < NEGLIGIBLE + LEAST_TAIL:
                sums[j] = 0.0
                continue
            tail_exponentials(tail, betas[j], tail_x, tail_e)
            weighted_power_sums(tail_x, tail_e, times, sums, j)
            total[j] += sums[j, 0, 0]
        softmax_at(gap, betas, total, top)
        log_rest_at(e, top, log_rest)
        shifted_sums(sums, top, power_moments)
        for c in range(len(gammas)):
            g[:] = total
            if gammas[c] != 0.0:
                g[:] = 0.0
                add_mapped_at(x, e, log_rest, top, gammas[c], g)
                add_tail_at(coefficients[c], power_moments, g)
            log_odds_at(gap, betas, top, g, gammas[c], scaled)
            add_confidence(scaled, betas, 1.0, confidence[c])
    return confidence
