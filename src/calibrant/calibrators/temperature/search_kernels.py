"""Compiled passes of the (gamma, T) search: many gammas and temperatures for each row at once.

``node_log_odds`` computes, for each row, what the criteria need at a few *node* temperatures and
all gammas. The classes near the top are mapped exactly. The others, the tail, enter through power
sums that all gammas share, because the map is separable and 1/phi is smooth for small q:

    sum over the tail of q / phi(q) = sum over b <= a <= 3 of  C[gamma, a, b] sum q^(a+1) (log q)^b

:func:`errors_between` interpolates the log-odds of each row between the nodes and bins the
confidences (:func:`mass_error`, :func:`width_error`) at any number of points. An exact pass checks
the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    bin_of,
    copy_to,
    exp_nonpositive,
    index_of,
    kernel,
    log_positive,
    max_of,
    over_rows,
)
from calibrant.calibrators.row_kernels import log_of_complement
from calibrant.metrics.binning import tie_width

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
SAME = 4e-16
"""Confidences closer than this may round to the same number, or to the opposite order."""


@kernel(fastmath={"contract"})
def tail_exponentials(tail: Any, inverse_temperature: float, x: Floats, e: Floats) -> None:
    """Write b times each entry of the tail into ``x`` and its exponential into ``e``."""
    for k in range(len(tail)):
        x[k] = max(tail[k] * inverse_temperature, LEAST_EXPONENT)
        e[k] = exp_nonpositive(x[k])


@kernel(fastmath={"reassoc", "nsz", "contract"})
def power_sums(x: Floats, e: Floats, sums: Floats, node: int) -> None:
    """Write the sums of e^(a+1) x^b over the tail, b <= a <= ORDER, into ``sums[node, a, b]``."""
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


@kernel()
def add_counted_powers(x: Floats, e: Floats, counts: Floats, sums: Floats) -> None:
    """Add count e^(a+1) x^b of each stand-in to ``sums[a, b]``."""
    for k in range(len(x)):
        power_of_e = counts[k]
        for a in range(ORDER + 1):
            power_of_e *= e[k]
            term = power_of_e
            for b in range(a + 1):
                sums[a, b] += term
                term *= x[k]


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
def find_largest(values: Floats, largest: Floats) -> None:
    """Write the largest entries into ``largest``, in ascending order.

    They are few, so each is inserted; np.partition would take seconds to compile.
    """
    largest[:] = -np.inf
    last = len(largest) - 1
    for k in range(len(values)):
        j = 0
        while j < last and largest[j + 1] < values[k]:
            largest[j] = largest[j + 1]
            j += 1
        largest[j] = max(largest[j], values[k])


@kernel()
def split_row(row: Any, others: Floats, near: Floats, tail: Floats) -> Any:
    """Write the differences to the runner-up into ``near`` and ``tail``; return s_r - s_m."""
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
        copy_to(near, others)
    else:
        find_largest(others, near)
        cut = near[0]
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
def softmax_at(gap: float, inverse_temperatures: Floats, total: Floats, top: Floats) -> None:
    """What the map needs of the softmax at every node, from the sum of e.

    Rows of ``top``: log(e^gap q_m), e^gap q_m, log(1 - q_m), and u(q_m) = log(1 + S) / S.
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


@kernel(fastmath={"contract"}, error_model="numpy")
def log_rest_at(e: Floats, top: Floats, log_rest: Floats) -> None:
    """log(1 - q) of each near class at every node."""
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
    gap: float, inverse_temperatures: Floats, top: Floats, g: Floats, gamma: float, out: Floats
) -> None:
    """T times the log-odds of the top class at every node, from the sum of g."""
    for j in range(len(inverse_temperatures)):
        log_ratio = gamma * top[2, j] + log_positive((1.0 + gamma * top[3, j]) * g[j])
        out[j] = -(gap + log_ratio / inverse_temperatures[j])


@kernel(fastmath={"contract"}, error_model="numpy")
def add_confidence(
    scaled_log_odds: Floats, inverse_temperatures: Floats, weight: float, sums: Floats
) -> None:
    """Add the confidence of one row at every node."""
    for j in range(len(inverse_temperatures)):
        log_odds = scaled_log_odds[j] * inverse_temperatures[j]
        small = exp_nonpositive(-abs(log_odds))
        sums[j] += weight * ((1.0 if log_odds >= 0.0 else small) / (1.0 + small))


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
    others, near, tail = np.empty(n_classes - 1), np.empty(n_near), np.empty(n_tail)
    tail_x, tail_e = np.empty(n_tail), np.empty(n_tail)
    x, e = np.empty((n_near, n_nodes)), np.empty((n_near, n_nodes))
    log_rest = np.empty((n_near, n_nodes))
    total, top = np.empty(n_nodes), np.empty((4, n_nodes))
    g, scaled = np.empty(n_nodes), np.empty(n_nodes)
    sums = np.zeros((n_nodes, ORDER + 1, ORDER + 1))
    moments = np.zeros((ORDER + 1, ORDER + 1, n_nodes))
    for i in range(start, stop):
        w = weight[i] if len(weight) > 0 else 1.0
        gap = split_row(logits[i], others, near, tail[:n_far])
        if gap == -np.inf:  # only one class is possible
            if out.shape[1] > 0:
                out[:, i, :] = CERTAIN
            confidence += w
            continue
        exponentials_at(near, inverse_temperatures, x, e, total)
        if n_stand_ins > 0:
            runner_up = np.float64(max_of(logits[i])) + gap
            for j in range(n_stand_ins):
                tail[n_far + j] = stand_ins[i, j] - runner_up
        if n_tail > 0:
            highest = max_of(tail)
            for j in range(n_nodes):
                if highest * inverse_temperatures[j] < negligible:
                    sums[j] = 0.0
                    continue
                tail_exponentials(tail, inverse_temperatures[j], tail_x, tail_e)
                power_sums(tail_x[:n_far], tail_e[:n_far], sums, j)
                add_counted_powers(tail_x[n_far:], tail_e[n_far:], counts[i], sums[j])
                total[j] += sums[j, 0, 0]
        softmax_at(gap, inverse_temperatures, total, top)
        log_rest_at(e, top, log_rest)
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
            log_odds_at(gap, inverse_temperatures, top, g, gamma, scaled)
            add_confidence(scaled, inverse_temperatures, w, confidence[c])
            if out.shape[1] > 0:
                for j in range(n_nodes):  # bounded, because ``out`` has single precision
                    out[c, i, j] = max(min(scaled[j], CERTAIN), -CERTAIN)
    return confidence


@kernel(fastmath={"reassoc", "nsz", "contract"})
def product(values: Any, stencil: Floats) -> float:
    """Sum of products, in any order."""
    total = 0.0
    for j in range(len(stencil)):
        total += values[j] * stencil[j]
    return total


@kernel(fastmath={"contract"}, error_model="numpy")
def confidences_of(log_odds: Floats, confidence: Floats) -> None:
    """Write 1 / (1 + e^-log_odds) into ``confidence``, exact to rounding at both ends."""
    for i in range(len(log_odds)):
        small = exp_nonpositive(-abs(log_odds[i]))
        confidence[i] = (1.0 if log_odds[i] >= 0.0 else small) / (1.0 + small)


@kernel()
def sort_nearly_sorted(order: Any, keys: Floats) -> None:
    """Sort ``order`` by key: by insertion if it is nearly sorted, else from scratch."""
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
            copy_to(order, np.argsort(keys))
            return


width_of_ties = kernel()(tie_width)


@kernel()
def mass_in_doubt(
    order: Any,
    start: int,
    stop: int,
    log_odds: Floats,
    confidence: Floats,
    weight: Floats,
    doubt: float,
) -> tuple[float, float]:
    """Weight of the rows below and above ``order[start:stop]`` whose true order may differ."""
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


@kernel(error_model="numpy")
def mass_error(
    order: Any,
    log_odds: Floats,
    confidence: Floats,
    correct: Any,
    weight: Floats,
    edges: Floats,
    doubt: float,
) -> tuple[float, float]:
    """Equal-mass calibration error of sorted rows, and the largest change from a wrong order.

    Rows of equal confidence are one group, which an edge cuts in proportion. The true order of two
    rows whose log-odds differ by less than ``doubt`` may be the reverse, which matters if an edge
    runs between them.
    """
    n, last = len(order), len(edges) - 2
    error = slack = rank = gap = mass = hits = 0.0
    b = start = 0
    for i in range(n):
        c = confidence[order[i]]
        w = weight[order[i]] if len(weight) > 0 else 1.0
        mass += w
        hits += w * correct[order[i]]
        if i + 1 < n and confidence[order[i + 1]] - c <= width_of_ties(c):
            continue
        gap_per_mass = confidence[order[start]] - hits / mass
        begin = rank
        end = rank + mass if i + 1 < n else edges[last + 1]
        while b < last and edges[b + 1] <= end:
            error += abs(gap + (edges[b + 1] - begin) * gap_per_mass)
            below, above = mass_in_doubt(order, start, i + 1, log_odds, confidence, weight, doubt)
            if edges[b + 1] < end:
                slack += 2.0 * (below + above)
            else:
                slack += 2.0 * min(below + mass, above)
            begin = edges[b + 1]
            gap = 0.0
            b += 1
        gap += (end - begin) * gap_per_mass
        rank = end
        start = i + 1
        mass = hits = 0.0
    error += abs(gap)
    return error / edges[last + 1], slack / edges[last + 1]


@kernel(error_model="numpy")
def width_error(
    log_odds: Floats, confidence: Floats, correct: Any, weight: Floats, edges: Floats, doubt: float
) -> tuple[float, float]:
    """Equal-width calibration error, and the largest change from rows close to an edge."""
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


@kernel()
def errors_of_stretch(
    scaled: Any,
    stencils: Floats,
    inverse_temperatures: Floats,
    correct: Any,
    weight: Floats,
    edges: Floats,
    by_mass: bool,
    doubt: Floats,
    out: Floats,
) -> None:
    """Write the error and its slack at neighbouring points of one path into ``out``."""
    log_odds, confidence = np.empty(len(scaled)), np.empty(len(scaled))
    order = np.arange(len(scaled))
    for p in range(len(inverse_temperatures)):
        for i in range(len(scaled)):
            log_odds[i] = inverse_temperatures[p] * product(scaled[i], stencils[p])
        confidences_of(log_odds, confidence)
        if by_mass:
            sort_nearly_sorted(order, log_odds)
            out[0, p], out[1, p] = mass_error(
                order, log_odds, confidence, correct, weight, edges, doubt[p]
            )
        else:
            out[0, p], out[1, p] = width_error(
                log_odds, confidence, correct, weight, edges, doubt[p]
            )


@over_rows
def errors_between(
    start: int,
    stop: int,
    tasks: Any,
    scaled: Any,
    paths: Any,
    stencils: Floats,
    inverse_temperatures: Floats,
    correct: Any,
    weight: Floats,
    edges: Floats,
    by_mass: bool,
    doubt: Floats,
    out: Floats,
) -> None:
    """Calibration error at points between the nodes, and its largest error: (2, points).

    Point p lies on path ``paths[p]`` of ``scaled``. A task is a range of points (first, last) on
    one path.
    """
    for task in range(start, stop):
        first, last = tasks[task]
        errors_of_stretch(
            scaled[paths[first]],
            stencils[first:last],
            inverse_temperatures[first:last],
            correct,
            weight,
            edges,
            by_mass,
            doubt[first:last],
            out[:, first:last],
        )
