"""Compiled passes over rows of which only the largest logits are known.

A row is k known log-probabilities, perhaps that of its label, and a *tail*: the classes that are
not known, for which a few stand-ins enter every sum, each several times (see ``top_rows``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from calibrant._compiled import exp_nonpositive, index_of, max_of, over_rows, sum_of
from calibrant.calibrators._kernels import (
    BLOCK,
    difference,
    exponentials,
    log_of_complement,
    log_one_plus_exp,
    log_phi_of_top,
    mapped,
    moments,
    relative_exponents,
    relative_to,
)
from calibrant.calibrators._search_kernels import (
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

Floats = npt.NDArray[np.float64]

START, SLOPE, COUNT, LARGEST, LEAST, MOST = 0, 1, 2, 3, 4, 5
"""What is stored of a tail: where its power law starts, log min(c, R), and its exponent; n; log c;
the least and the largest log R that the rounding of the logits leaves possible."""
OF_TAIL = 6
MOST_STEPS = 200
LOG_HALF = float(np.log(0.5))
LEAST_TAIL = -12.0
"""A stand-in may count e^12 times: so much further down is it negligible."""
REACH = 1e5
"""Log-probabilities below minus this have no probability at any temperature: such classes are
absent."""

(
    FINE,
    NOT_A_NUMBER,
    NO_SUCH_CLASS,
    CLASS_TWICE,
    NO_NORMALISER,
    NO_SUCH_LABEL,
    LABEL_UNKNOWN,
    LABEL_TOO_LARGE,
    LABEL_IMPOSSIBLE,
    NOTHING_POSSIBLE,
    TOO_MUCH_KNOWN,
    TOO_LITTLE_KNOWN,
) = range(12)
"""What can be wrong with a row, in the order in which it is looked at."""


@njit(cache=True, fastmath={"contract"})
def tilt(a: float, places: Floats, shares: Floats, e: Floats) -> None:
    """Shares e^(-a (place - first place)) into ``e``."""
    for j in range(len(places)):
        e[j] = shares[j] * exp_nonpositive(-a * (places[j] - places[0]))


@njit(cache=True)
def power_law(log_share: float, places: Floats, shares: Floats, e: Floats) -> float:
    """The exponent a for which log sum of shares e^(-a places) is ``log_share``, at most 0.

    Newton's method from a = 0: the left side is convex and falls, so every step stays below the
    solution.
    """
    a = 0.0
    for _ in range(MOST_STEPS):
        tilt(a, places, shares, e)
        total = first = 0.0
        for j in range(len(places)):
            total += e[j]
            first += e[j] * places[j]
        step = (np.log(total) - a * places[0] - log_share) * total / first
        a = max(a + step, 0.0)
        if abs(step) <= 1e-14 * a:
            break
    return a


@njit(cache=True, error_model="numpy")
def prepared_row(
    logits: Any,
    classes: Any,
    normaliser: float,
    label: int,
    label_logit: float,
    n_classes: int,
    rounding: float,
    tolerance: float,
    seen: Any,
    stamp: int,
    places: Floats,
    shares: Floats,
    known: Floats,
    tail: Floats,
    e: Floats,
) -> tuple[int, int]:
    """Log-probabilities into ``known``, the tail; what is wrong, and the label's place.

    ``label`` is -1 where there is none. The place of a label that is not among the known is k.
    ``e`` is space to work in.
    """
    k = len(classes)
    place = -1
    for j in range(k):
        if not logits[j] < np.inf:
            return NOT_A_NUMBER, place
        if not 0 <= classes[j] < n_classes:
            return NO_SUCH_CLASS, place
        if seen[classes[j]] == stamp:
            return CLASS_TWICE, place
        seen[classes[j]] = stamp
        if classes[j] == label:
            place = j
    if not abs(normaliser) < np.inf:
        return NO_NORMALISER, place
    if label < -1 or label >= n_classes:
        return NO_SUCH_LABEL, place
    top, least = -np.inf, np.inf
    for j in range(k):
        known[j] = np.float64(logits[j]) - normaliser
        if known[j] < -REACH:
            known[j] = -np.inf
        top, least = max(top, known[j]), min(least, known[j])
    if top == -np.inf:
        return NOTHING_POSSIBLE, place
    # The relative errors of e^logit and e^normaliser are those numbers times their precision.
    size = abs(top + normaliser) + abs(normaliser) + np.log(n_classes) + 2.0
    slack = tolerance * size
    if top > slack:
        return TOO_MUCH_KNOWN, place
    exponentials(known[:k], e)
    e[index_of(known[:k], top)] = 0.0
    rest = -np.expm1(top) - sum_of(e[:k])
    missing = n_classes - k
    known[k] = -np.inf
    if label >= 0 and place < 0:
        place = k
        of_label = label_logit - normaliser
        if np.isnan(of_label):
            return LABEL_UNKNOWN, place
        if of_label > least + slack:
            return LABEL_TOO_LARGE, place
        known[k] = of_label if of_label >= -REACH else -np.inf
        rest -= np.exp(known[k])
        missing -= 1
    if label >= 0 and known[place] == -np.inf:
        return LABEL_IMPOSSIBLE, place
    if rest < -slack:
        return TOO_MUCH_KNOWN, place
    most = missing * np.exp(least)
    if rest > most * (1.0 + slack) + slack:
        return TOO_LITTLE_KNOWN, place
    tail[:] = -np.inf
    tail[SLOPE] = tail[COUNT] = 0.0
    if most > 0.0:
        tail[COUNT], tail[LARGEST] = missing, least
        tail[LEAST] = np.log(min(max(rest - rounding * size, 0.0), most))
        tail[MOST] = np.log(min(max(rest + rounding * size, 0.0), most))
        if rest > 0.0:
            rest = min(rest, most)
            tail[START] = min(np.log(rest), least)
            log_share = np.log(rest) - tail[START] - np.log(missing)
            tail[SLOPE] = power_law(min(log_share, 0.0), places, shares, e)
    return FINE, place


@over_rows
def prepare_rows(
    logits: Any,
    classes: Any,
    normaliser: Any,
    labels: Any,
    label_logits: Any,
    n_classes: int,
    rounding: float,
    tolerance: float,
    places: Floats,
    shares: Floats,
    known: Floats,
    tail: Floats,
    label_places: Any,
    verdicts: Any,
) -> None:
    """:func:`prepared_row` of each row; ``labels`` may be empty, and so may ``label_logits``."""
    n = len(logits)
    n_parts = min(n, 8)  # few, because each has an entry for every class
    for part in prange(n_parts):
        seen = np.full(n_classes, -1, dtype=np.int64)
        e = np.empty(max(logits.shape[1], len(places)))
        for i in range(part * n // n_parts, (part + 1) * n // n_parts):
            verdicts[i], label_places[i] = prepared_row(
                logits[i],
                classes[i],
                normaliser[i],
                labels[i] if len(labels) > 0 else -1,
                label_logits[i] if len(label_logits) > 0 else np.nan,
                n_classes,
                rounding,
                tolerance,
                seen,
                i,
                places,
                shares,
                known[i],
                tail[i],
                e,
            )


@njit(cache=True, inline="always")
def with_stand_ins(known: Floats, tail: Floats, places: Floats, row: Floats) -> None:
    """The known log-probabilities and those of the stand-ins into ``row``."""
    k = len(known)
    row[:k] = known
    for j in range(len(places)):
        row[k + j] = tail[START] - tail[SLOPE] * places[j]


@njit(cache=True)
def sum_of_all(values: Floats, n_known: int, tail: Floats, shares: Floats) -> Any:
    """The sum over known classes and stand-ins, each of these as often as it counts."""
    of_tail = 0.0
    for j in range(len(shares)):
        of_tail += values[n_known + j] * shares[j]
    return sum_of(values[:n_known]) + tail[COUNT] * of_tail


@njit(cache=True, inline="always")
def multiplied(values: Floats, n_known: int, tail: Floats, shares: Floats) -> None:
    """Each stand-in as often as it counts."""
    for j in range(len(shares)):
        values[n_known + j] *= tail[COUNT] * shares[j]


@njit(cache=True)
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


@njit(cache=True, inline="always")
def log_against_top(
    j: int, m: int, row: Floats, beta: float, log_phi: float, e: Floats, g: Floats
) -> Any:
    """log p_j - log p_m after the map."""
    log_phi_j = np.log(e[j] / g[j]) if e[j] > 0.0 else 0.0  # phi of a class that is 0 is 1
    return difference(row[j], row[m], beta) + log_phi - log_phi_j


@over_rows
def map_rows(
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
    n, k = known.shape
    width = k + len(places)
    n_blocks = (n + BLOCK - 1) // BLOCK
    for block in prange(n_blocks):
        row, x, e, g = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            m, log_phi, against = mapped_row(
                known[i], tails[i], places, shares, beta, gamma, row, x, e, g
            )
            log_odds[i] = -against
            true_log_prob[i] = -log_one_plus_exp(against)
            if labels[i] != m:
                true_log_prob[i] += log_against_top(labels[i], m, row, beta, log_phi, e, g)


@over_rows
def map_log_probs(
    known: Floats,
    tails: Floats,
    places: Floats,
    shares: Floats,
    beta: float,
    gamma: float,
    out: Floats,
) -> None:
    """Log-probabilities of the known classes after Psi^gamma(softmax(b s))."""
    n, k = known.shape
    width = k + len(places)
    n_blocks = (n + BLOCK - 1) // BLOCK
    for block in prange(n_blocks):
        row, x, e, g = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
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
    known: Floats,
    tails: Floats,
    labels: Any,
    places: Floats,
    shares: Floats,
    beta: float,
    out: Floats,
) -> None:
    """As ``_kernels.temperature_rows``: cross-entropy, its derivative by log b, variance, skew."""
    n, k = known.shape
    width = k + len(places)
    n_blocks = (n + BLOCK - 1) // BLOCK
    for block in prange(n_blocks):
        row, x, e = np.empty(width), np.empty(width), np.empty(width)
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
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


@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
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


@njit(cache=True)
def node_rows(
    known: Floats,
    tails: Floats,
    places: Floats,
    shares: Floats,
    betas: Floats,
    gammas: Floats,
    coefficients: Floats,
    start: int,
    stop: int,
    confidence: Floats,
) -> None:
    """Confidences of some rows at every gamma and node, added up, as ``_search_kernels`` does.

    The classes next to the top are mapped one by one; the other known ones and the stand-ins enter
    by power sums.
    """
    k, n_nodes = known.shape[1], len(betas)
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


@over_rows
def node_sums(
    known: Floats,
    tails: Floats,
    places: Floats,
    shares: Floats,
    betas: Floats,
    gammas: Floats,
    coefficients: Floats,
    n_parts: int,
) -> Any:
    """The sums of the confidences at every gamma and node: (gammas, nodes)."""
    n = len(known)
    parts = np.zeros((n_parts, len(gammas), len(betas)))
    for part in prange(n_parts):
        start, stop = part * n // n_parts, (part + 1) * n // n_parts
        node_rows(
            known,
            tails,
            places,
            shares,
            betas,
            gammas,
            coefficients,
            start,
            stop,
            parts[part],
        )
    return parts.sum(axis=0)


@njit(cache=True, inline="always", error_model="numpy")
def phi_of(q: float, log_q: float, gamma: float) -> Any:
    """phi(q) for q up to about 1/2."""
    rest = 1.0 - q
    return exp_nonpositive(gamma * log_of_complement(q)) * (rest - gamma * q * log_q) / rest


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def phi_of_each(x: Floats, a: Floats, log_z: float, gamma: float, out: Floats) -> None:
    """phi(q) of each class into ``out``, where q = a / Z and log q = x - log Z."""
    share = np.exp(-log_z)
    for j in range(len(x)):
        out[j] = phi_of(share * a[j], x[j] - log_z, gamma)


@njit(cache=True, inline="always")
def range_of_phi(
    q_low: float, q_high: float, low: float, high: float, gamma: float, turn: float, at_turn: float
) -> tuple[float, float]:
    """Least and largest phi between two q where it is ``low`` and ``high``.

    Between 0 and 1 phi turns once, at ``turn``.
    """
    least, most = min(low, high), max(low, high)
    if q_low < turn < q_high:
        if gamma > 0.0:
            most = at_turn
        else:
            least = at_turn
    return least, most


@njit(cache=True)
def limits_of_tail(tail: Floats, top: float, beta: float) -> tuple[float, float]:
    """Least and largest sum over the tail of e^(b (s - top)).

    They are R min(c, R)^(b-1) and n^(1-b) R^b, one way or the other round; both rise with R.
    """
    low = high = 0.0
    if tail[LEAST] > -np.inf:
        low = np.exp(min(*extreme_tails(tail, tail[LEAST], beta)) - beta * top)
    if tail[MOST] > -np.inf:
        high = np.exp(max(*extreme_tails(tail, tail[MOST], beta)) - beta * top)
    return low, high


@njit(cache=True)
def extreme_tails(tail: Floats, log_rest: float, beta: float) -> tuple[float, float]:
    """log S of as few classes as can be, and of n equal ones."""
    few = log_rest + (beta - 1.0) * min(tail[LARGEST], log_rest)
    return few, (1.0 - beta) * np.log(tail[COUNT]) + beta * log_rest


@over_rows
def bound_rows(
    known: Floats,
    tails: Floats,
    labels: Any,
    beta: float,
    gamma: float,
    turn: float,
    at_turn: float,
    log_odds: Floats,
    true_log_prob: Floats,
    log_probs: Any,
) -> None:
    """Least and largest value of each row, whatever the unknown classes are: (2, n) each.

    And into ``log_probs`` (2, n, k), where that is not empty, those of the known classes. With
    a_i = e^(b (s_i - s_m)), S the sum over the tail, Z = sum a + S, q_i = a_i / Z:

        G = sum over known i != m of a_i / phi(q_i) + f S
        odds against m = phi(q_m) G,    p_i = a_i / phi(q_i) / (1 / phi(q_m) + G)

    S lies in its limits, f in those of 1/phi up to c^b / Z, and phi turns once, at ``turn``, where
    it is ``at_turn``: interval arithmetic over these. At gamma = 0 both are monotone in
    S, so the limits are attained.
    """
    n, k = known.shape
    n_blocks = (n + BLOCK - 1) // BLOCK
    for block in prange(n_blocks):
        x, a = np.empty(k), np.empty(k)
        least, most = np.ones(k), np.ones(k)  # of phi of each class
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            top = max_of(known[i])
            m = index_of(known[i], top)
            for j in range(k):
                x[j] = difference(known[i, j], top, beta)
            exponentials(x, a)
            a[m] = 0.0
            others = sum_of(a)
            s_low, s_high = limits_of_tail(tails[i], top, beta)
            odds_low, odds_high = others + s_low, others + s_high
            if odds_high == 0.0:  # one class is possible
                log_odds[:, i] = np.inf
                true_log_prob[:, i] = 0.0
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
                    log_q = beta * (min(tails[i, LARGEST], tails[i, MOST]) - top) - log_z_low
                    log_q = min(log_q, LOG_HALF)  # no class but the top one has more
                    q = np.exp(log_q)
                    of_tail = range_of_phi(
                        0.0, q, 1.0, phi_of(q, log_q, gamma), gamma, turn, at_turn
                    )
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
            all_low = np.log(np.exp(-top_most) + g_low)
            all_high = np.log(np.exp(-top_least) + g_high)
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
