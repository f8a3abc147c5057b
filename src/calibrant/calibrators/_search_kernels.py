"""Compiled passes of the (gamma, T) search: many gammas and temperatures for each row at once.

``node_log_odds`` computes, for each row, what the criteria need at a few *node* temperatures and
all gammas. The classes near the top are mapped exactly. The others, the tail, enter through power
sums that all gammas share, because the map is separable and its expansion in small q is known:

    1 / phi(q) = sum over b, c >= 0 of  gamma^b C(gamma+b+c-1, c)  q^(b+c) (log q)^b

:func:`mass_errors` and :func:`width_errors` interpolate the log odds of each row between the nodes
and bin the confidences, for as many points as asked. What they find is checked by an exact pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from calibrant._compiled import bin_of, exp_nonpositive, index_of, log_positive, max_of
from calibrant.calibrators._kernels import LOWEST, log_of_complement

Floats = npt.NDArray[np.float64]

NEAR = 24
"""Classes next to the top one that are mapped exactly."""
ORDER = 3
"""Highest power of q in the expansion for the tail."""
CERTAIN = 1e30
"""T times the log odds of a class that is the only one possible."""
SAME = 4e-16
"""Confidences closer than this may round to the same number, or the other way round."""


@njit(cache=True, fastmath={"contract"})
def tail_exponentials(tail: Any, beta: float, x: Floats, e: Floats) -> None:
    """b times each entry of the tail into ``x``, its exponential into ``e``."""
    for k in range(len(tail)):
        x[k] = max(tail[k] * beta, LOWEST)
        e[k] = exp_nonpositive(x[k])


@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def power_sums(x: Floats, e: Floats, sums: Floats) -> None:
    """Sums of e^(a+1) x^b over the tail for b <= a <= ORDER into ``sums[a, b]``."""
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = 0.0
    for k in range(len(x)):
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


@njit(cache=True)
def shifted_sums(sums: Floats, share: float, shift: float, moments: Floats) -> None:
    """The sums of e^(a+1) (log q)^b share^a, where log q = x + shift and q = share e."""
    power = 1.0
    for a in range(ORDER + 1):
        moments[a, 0] = power * sums[a, 0]
        if a >= 1:
            moments[a, 1] = power * (sums[a, 1] + shift * sums[a, 0])
        if a >= 2:
            moments[a, 2] = power * (
                sums[a, 2] + 2.0 * shift * sums[a, 1] + shift * shift * sums[a, 0]
            )
        if a >= 3:
            moments[a, 3] = power * (
                sums[a, 3]
                + 3.0 * shift * sums[a, 2]
                + 3.0 * shift * shift * sums[a, 1]
                + shift * shift * shift * sums[a, 0]
            )
        power *= share


@njit(cache=True)
def split_row(row: Any, others: Floats, near: Floats, tail: Floats) -> float:
    """Differences to the runner-up, the largest into ``near``, others into ``tail``; s_r - s_m."""
    top = max_of(row)
    m = index_of(row, top)
    n_others = len(row) - 1
    for k in range(n_others):
        others[k] = np.float64(row[k + 1] if k >= m else row[k])
    runner_up = max_of(others)
    if runner_up == -np.inf:
        return -np.inf
    for k in range(n_others):
        others[k] -= runner_up
    if len(tail) == 0:
        near[:] = others
    else:
        cut = np.partition(others, len(tail))[len(tail)]
        at_cut = len(near)  # how many of those tied at the cut are near
        for k in range(n_others):
            at_cut -= others[k] > cut
        n_near = n_tail = 0
        for k in range(n_others):
            if others[k] > cut or (others[k] == cut and at_cut > 0):
                at_cut -= others[k] == cut
                near[n_near] = others[k]
                n_near += 1
            else:
                tail[n_tail] = others[k]
                n_tail += 1
    return runner_up - np.float64(top)


@njit(cache=True, fastmath={"contract"})
def exponentials_at(difference: float, betas: Floats, x: Floats, e: Floats) -> None:
    """One class at every node: x = b difference, and e^x."""
    for j in range(len(betas)):
        x[j] = max(difference * betas[j], LOWEST)
        e[j] = exp_nonpositive(x[j])


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def softmax_at(
    gap: float, betas: Floats, total: Floats, odds: Floats, shift: Floats, share: Floats
) -> None:
    """From the sum of e at every node: S, log(e^gap q_m) and e^gap q_m."""
    for j in range(len(betas)):
        x = max(gap * betas[j], LOWEST)
        odds[j] = exp_nonpositive(x) * total[j]
        shift[j] = x - log_positive(1.0 + odds[j])
        share[j] = exp_nonpositive(shift[j])


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def log_rest_at(e: Floats, share: Floats, log_rest: Floats) -> None:
    """log(1 - q) of one class at every node."""
    for j in range(len(e)):
        log_rest[j] = log_of_complement(share[j] * e[j])


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def add_mapped_at(
    x: Floats, e: Floats, log_rest: Floats, share: Floats, shift: Floats, gamma: float, g: Floats
) -> None:
    """Add one class's g = e / phi(q) at every node."""
    for j in range(len(e)):
        q = share[j] * e[j]
        rest = 1.0 - q
        power = exp_nonpositive(gamma * log_rest[j])
        g[j] += e[j] * rest / (power * (rest - gamma * q * (x[j] + shift[j])))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def log_odds_at(
    gap: float, betas: Floats, odds: Floats, total: Floats, g: Floats, gamma: float, out: Any
) -> None:
    """T times the log odds of the top class at every node, from the sums of e and g."""
    for j in range(len(betas)):
        x = gap * betas[j]
        s = odds[j]
        log_total = log_positive(1.0 + s)
        u = 1.0 - s * (0.5 - s * (1.0 / 3.0 - 0.25 * s)) if s < 1e-3 else log_total / s
        log_phi = gamma * (x + log_positive(total[j]) - log_total) + log_positive(1.0 + gamma * u)
        out[j] = -(x + log_phi + log_positive(g[j])) / betas[j]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def add_confidence(scaled_log_odds: Any, betas: Floats, weight: float, sums: Floats) -> None:
    """Add the confidence of one row at every node."""
    for j in range(len(betas)):
        log_odds = scaled_log_odds[j] * betas[j]
        small = exp_nonpositive(-abs(log_odds))
        sums[j] += weight * ((1.0 if log_odds >= 0.0 else small) / (1.0 + small))


@njit(cache=True, parallel=True, error_model="numpy")
def node_log_odds(
    logits: Any,
    weight: Floats,
    betas: Floats,
    gammas: Floats,
    series: Floats,
    n_parts: int,
    out: Any,
) -> Floats:
    """T times the log odds of each row's top class at every gamma and node into ``out``.

    ``out`` is (gammas, rows, nodes), or has no rows where only the sums are wanted.
    ``series[gamma, a, b]`` are the coefficients of 1/phi. Returns the weighted sums of the
    confidences: (gammas, nodes).
    """
    n, n_classes = logits.shape
    n_gammas, n_nodes = len(gammas), len(betas)
    n_near = min(NEAR, n_classes - 1)
    n_tail = n_classes - 1 - n_near
    parts = np.zeros((n_parts, n_gammas, n_nodes))
    for part in prange(n_parts):
        others, near, tail = np.empty(n_classes - 1), np.empty(n_near), np.empty(n_tail)
        tail_x, tail_e = np.empty(n_tail), np.empty(n_tail)
        x, e = np.empty((n_near, n_nodes)), np.empty((n_near, n_nodes))
        log_rest = np.empty((n_near, n_nodes))
        total, odds = np.empty(n_nodes), np.empty(n_nodes)
        shift, share = np.empty(n_nodes), np.empty(n_nodes)
        g, scaled = np.empty(n_nodes), np.empty(n_nodes)
        sums = np.zeros((n_nodes, ORDER + 1, ORDER + 1))
        moments = np.zeros((n_nodes, ORDER + 1, ORDER + 1))
        for i in range(part * n // n_parts, (part + 1) * n // n_parts):
            w = weight[i] if len(weight) > 0 else 1.0
            gap = split_row(logits[i], others, near, tail)
            if gap == -np.inf:  # one class is possible
                if out.shape[1] > 0:
                    out[:, i, :] = CERTAIN
                parts[part] += w
                continue
            total[:] = 0.0
            for k in range(n_near):
                exponentials_at(near[k], betas, x[k], e[k])
                total += e[k]
            if n_tail > 0:
                for j in range(n_nodes):
                    tail_exponentials(tail, betas[j], tail_x, tail_e)
                    power_sums(tail_x, tail_e, sums[j])
                    total[j] += sums[j, 0, 0]
            softmax_at(gap, betas, total, odds, shift, share)
            for k in range(n_near):
                log_rest_at(e[k], share, log_rest[k])
            if n_tail > 0:
                for j in range(n_nodes):
                    shifted_sums(sums[j], share[j], shift[j], moments[j])
            for c in range(n_gammas):
                gamma = gammas[c]
                if gamma == 0.0:
                    g[:] = total
                else:
                    g[:] = 0.0
                    for k in range(n_near):
                        add_mapped_at(x[k], e[k], log_rest[k], share, shift, gamma, g)
                    if n_tail > 0:
                        for j in range(n_nodes):
                            for a in range(ORDER + 1):
                                for b in range(a + 1):
                                    g[j] += series[c, a, b] * moments[j, a, b]
                log_odds_at(gap, betas, odds, total, g, gamma, scaled)
                add_confidence(scaled, betas, w, parts[part, c])
                if out.shape[1] > 0:
                    out[c, i] = scaled
    return parts.sum(axis=0)


@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def product(values: Any, stencil: Floats) -> float:
    """Sum of products, in any order."""
    total = 0.0
    for j in range(len(stencil)):
        total += values[j] * stencil[j]
    return total


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def confidences_of(log_odds: Floats, confidence: Floats) -> None:
    """1 / (1 + e^-log odds), exact to rounding at both ends."""
    for i in range(len(log_odds)):
        small = exp_nonpositive(-abs(log_odds[i]))
        confidence[i] = (1.0 if log_odds[i] >= 0.0 else small) / (1.0 + small)


@njit(cache=True)
def sort_nearly_sorted(order: Any, keys: Floats) -> None:
    """Rows by rising key into ``order``, which is nearly so already; far from it, from scratch."""
    moves_left = 8 * len(order)
    for i in range(1, len(order)):
        row = order[i]
        key = keys[row]
        j = i
        while j > 0 and keys[order[j - 1]] > key:
            order[j] = order[j - 1]
            j -= 1
        order[j] = row
        moves_left -= i - j
        if moves_left < 0:
            order[:] = np.argsort(keys)
            return


@njit(cache=True)
def mass_in_doubt(
    order: Any,
    start: int,
    stop: int,
    log_odds: Floats,
    confidence: Floats,
    weight: Floats,
    doubt: float,
) -> tuple[float, float]:
    """Weight of the rows below and above ``order[start:stop]`` that may change sides with it."""
    below = above = 0.0
    k = stop
    while k < len(order) and (
        log_odds[order[k]] - log_odds[order[stop - 1]] <= doubt
        or confidence[order[k]] - confidence[order[stop - 1]] <= SAME
    ):
        above += weight[order[k]] if len(weight) > 0 else 1.0
        k += 1
    k = start - 1
    while k >= 0 and (
        log_odds[order[start]] - log_odds[order[k]] <= doubt
        or confidence[order[start]] - confidence[order[k]] <= SAME
    ):
        below += weight[order[k]] if len(weight) > 0 else 1.0
        k -= 1
    return below, above


@njit(cache=True, error_model="numpy")
def mass_error(
    order: Any,
    log_odds: Floats,
    confidence: Floats,
    correct: Any,
    weight: Floats,
    edges: Floats,
    doubt: float,
) -> tuple[float, float]:
    """Equal-mass calibration error of rows in rising order, and by how much their order may err.

    Rows of equal confidence are one group, which an edge cuts in proportion. Two rows whose log
    odds differ by less than ``doubt`` may stand the other way round in truth, which matters where
    an edge runs between them.
    """
    last = len(edges) - 2
    error = slack = rank = gap = 0.0
    b = i = 0
    while i < len(order):
        start = i
        value = confidence[order[i]]
        mass = hits = 0.0
        while i < len(order) and confidence[order[i]] == value:
            w = weight[order[i]] if len(weight) > 0 else 1.0
            mass += w
            hits += w * correct[order[i]]
            i += 1
        gap_per_mass = value - hits / mass
        begin = rank
        end = rank + mass if i < len(order) else edges[last + 1]
        while b < last and edges[b + 1] <= end:
            error += abs(gap + (edges[b + 1] - begin) * gap_per_mass)
            below, above = mass_in_doubt(order, start, i, log_odds, confidence, weight, doubt)
            if edges[b + 1] < end:
                slack += 2.0 * (below + above)
            else:
                slack += 2.0 * min(below + mass, above)
            begin = edges[b + 1]
            gap = 0.0
            b += 1
        gap += (end - begin) * gap_per_mass
        rank = end
    error += abs(gap)
    return error / edges[last + 1], slack / edges[last + 1]


@njit(cache=True, error_model="numpy")
def width_error(
    log_odds: Floats, confidence: Floats, correct: Any, weight: Floats, edges: Floats, doubt: float
) -> tuple[float, float]:
    """Equal-width calibration error, and by how much rows close to an edge may change it."""
    n_bins = len(edges) - 1
    gaps = np.zeros(n_bins)
    total = slack = 0.0
    for i in range(len(confidence)):
        w = weight[i] if len(weight) > 0 else 1.0
        c = confidence[i]
        b = bin_of(c, edges)
        gaps[b] += w * (c - correct[i])
        total += w
        reach = doubt * c * (1.0 - c) + SAME
        if c - reach <= edges[b] or (c + reach > edges[b + 1] and b < n_bins - 1):
            slack += 2.0 * w
    return np.abs(gaps).sum() / total, slack / total


@njit(cache=True, parallel=True)
def errors_between(
    scaled: Any,
    paths: Any,
    stencils: Floats,
    betas: Floats,
    tasks: Any,
    correct: Any,
    weight: Floats,
    edges: Floats,
    by_mass: bool,
    doubt: float,
) -> Floats:
    """Calibration error at points between the nodes, and how much it may be off: (2, points).

    Point p lies on path ``paths[p]`` of ``scaled``; neighbours in the list are close to each other.
    ``tasks`` are the places where the list is cut into parts for the threads.
    """
    n = scaled.shape[1]
    out = np.empty((2, len(paths)))
    for task in prange(len(tasks) - 1):
        log_odds, confidence = np.empty(n), np.empty(n)
        order = np.arange(n)
        for p in range(tasks[task], tasks[task + 1]):
            for i in range(n):
                log_odds[i] = betas[p] * product(scaled[paths[p], i], stencils[p])
            confidences_of(log_odds, confidence)
            if by_mass:
                sort_nearly_sorted(order, log_odds)
                error, slack = mass_error(
                    order, log_odds, confidence, correct, weight, edges, doubt
                )
            else:
                error, slack = width_error(log_odds, confidence, correct, weight, edges, doubt)
            out[0, p] = error
            out[1, p] = slack
    return out
