"""Compiled passes over rows of logits: the map and the temperature, exactly and fast.

One row at a time, with the top class m and the runner-up r apart. For k != m, with b = 1/T:

    x_k = b (s_k - s_r) <= 0,   e_k = e^x_k,   S = e^(b (s_r - s_m)) sum e_k = (1 - q_m) / q_m
    g_k = e_k / phi(q_k),       log odds against m = b (s_r - s_m) + log phi(q_m) + log sum g_k

Nothing here overflows or cancels, whatever the size of the logits. Numba compiles each pass on
first use and keeps it on disk.
"""

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
    sum_of_squares,
)

Floats = npt.NDArray[np.float64]

AT_ONCE = 2048
"""Entries whose exponentials are taken in one go: they stay in the innermost cache."""
LOWEST = -750.0
"""Exponents below this count as this: e^x is 0 and x e^x must be too, also for a masked class."""
FARTHEST = -1e150
"""Differences of logits, over T, below this count as this: neither their squares nor a sum over
rows overflows."""


@kernel(inline="always", error_model="numpy")
def log_of_complement(q: float) -> float:
    """log(1 - q) for q up to about 1/2: -2 atanh(q / (2 - q)) by its series."""
    z = q / (2.0 - q)
    y = z * z
    p = 1.0 / 33.0
    p = p * y + 1.0 / 31.0
    p = p * y + 1.0 / 29.0
    p = p * y + 1.0 / 27.0
    p = p * y + 1.0 / 25.0
    p = p * y + 1.0 / 23.0
    p = p * y + 1.0 / 21.0
    p = p * y + 1.0 / 19.0
    p = p * y + 1.0 / 17.0
    p = p * y + 1.0 / 15.0
    p = p * y + 1.0 / 13.0
    p = p * y + 1.0 / 11.0
    p = p * y + 1.0 / 9.0
    p = p * y + 1.0 / 7.0
    p = p * y + 1.0 / 5.0
    p = p * y + 1.0 / 3.0
    return -2.0 * z * (p * y + 1.0)


@kernel(fastmath={"contract"})
def relative_exponents(row: Any, beta: float, x: Floats) -> tuple[int, float]:
    """x_k of each class into ``x``, the farthest for the top class; m, and b (s_r - s_m)."""
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
        x[k] = max((x[k] - runner_up) * beta, FARTHEST)
    return m, difference(runner_up, top, beta)


@kernel(inline="always")
def difference(low: Any, high: Any, beta: float) -> Any:
    """b (low - high) of two logits."""
    return max((np.float64(low) - np.float64(high)) * beta, FARTHEST)


@kernel(fastmath={"contract"})
def exponentials(x: Floats, e: Floats) -> None:
    """e^x of each class into ``e``; the lowest exponent gives 0."""
    for k in range(len(x)):
        e[k] = exp_nonpositive(x[k])


@kernel(fastmath={"contract"}, error_model="numpy")
def mapped(x: Floats, e: Floats, share: float, shift: float, gamma: float, g: Floats) -> None:
    """g_k = e_k / phi(q_k) into ``g``, where q_k = share e_k and log q_k = x_k + shift."""
    for k in range(len(x)):
        q = share * e[k]
        rest = 1.0 - q
        power = exp_nonpositive(gamma * log_of_complement(q))
        g[k] = e[k] * rest / (power * (rest - gamma * q * (x[k] + shift)))


@kernel()
def log_phi_of_top(odds: float, log_odds: float, gamma: float) -> Any:
    """log phi(q_m) from S = (1 - q_m) / q_m and its logarithm; u(q_m) is log(1 + S) / S."""
    log_total = np.log1p(odds)
    u = log_total / odds if odds > 0.0 else 1.0
    return gamma * (log_odds - log_total) + np.log1p(gamma * u)


@kernel()
def map_row(
    row: Any, beta: float, gamma: float, x: Floats, e: Floats, g: Floats
) -> tuple[int, float, float, float, float]:
    """The map of one row: m, b (s_r - s_m), log phi(q_m), sum of g^2, log odds against m."""
    m, gap = relative_exponents(row, beta, x)
    if gap == -np.inf:
        e[:] = 0.0
        g[:] = 0.0
        return m, gap, 0.0, 0.0, -np.inf
    exponentials(x, e)
    log_odds = gap + np.log(sum_of(e))
    if gamma == 0.0:
        g[:] = e
        return m, gap, 0.0, sum_of_squares(e), log_odds
    odds = np.exp(log_odds)
    shift = gap - np.log1p(odds)
    mapped(x, e, np.exp(shift), shift, gamma, g)
    log_phi = log_phi_of_top(odds, log_odds, gamma)
    return m, gap, log_phi, sum_of_squares(g), gap + log_phi + np.log(sum_of(g))


@kernel()
def log_one_plus_exp(x: float) -> Any:
    """log(1 + e^x)."""
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@over_rows
def map_probs(
    start: int, stop: int, logits: Any, beta: float, gamma: float, step: float, out: Any
) -> None:
    """Psi^gamma(softmax(b s)) of each row into ``out``, whose rounding is ``step``.

    The top class stays strictly on top, and classes tied with it have its probability.
    """
    n_classes = logits.shape[1]
    x, e, g = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        row, result = logits[i], out[i]
        m, gap, log_phi, _, against = map_row(row, beta, gamma, x, e, g)
        top = 1.0 / (1.0 + np.exp(against))
        factor = np.exp(gap + log_phi) * top
        below = top * (1.0 - step)
        for k in range(n_classes):
            result[k] = min(g[k] * factor, below)
        result[m] = top
        if gap == 0.0:
            for k in range(n_classes):
                if row[k] == row[m]:
                    result[k] = top


@over_rows
def map_rows(
    start: int,
    stop: int,
    logits: Any,
    labels: Any,
    beta: float,
    gamma: float,
    log_odds: Floats,
    true_log_prob: Floats,
    distances: Floats,
) -> None:
    """Of each row: log odds of the top class, log-probability of the label, squared distance.

    The last is that of :func:`squared_distance`.
    """
    n_classes = logits.shape[1]
    x, e, g = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        m, gap, log_phi, square, against = map_row(logits[i], beta, gamma, x, e, g)
        log_odds[i] = -against
        y = labels[i]
        true_log_prob[i] = -log_one_plus_exp(against)
        # Relative to the top class.
        factor, against_top = np.exp(gap + log_phi), np.exp(against)
        others, others_square = against_top, factor * factor * square
        if y != m:
            own = factor * g[y]
            others = 1.0 + (against_top - own)
            others_square = 1.0 + (others_square - own * own)
            # Phi of a class that is 0 is 1.
            below = difference(logits[i, y], logits[i, m], beta)
            log_phi_y = np.log(e[y] / g[y]) if e[y] > 0.0 else 0.0
            true_log_prob[i] += below + log_phi - log_phi_y
        distances[i] = squared_distance(others, others_square, 1.0 + against_top)


@over_rows
def log_odds_of_rows(
    start: int, stop: int, logits: Any, beta: float, gamma: float, log_odds: Floats
) -> None:
    """Of each row the log odds of the top class alone."""
    n_classes = logits.shape[1]
    x, e, g = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        log_odds[i] = -map_row(logits[i], beta, gamma, x, e, g)[4]


@kernel(inline="always", error_model="numpy")
def squared_distance(others: float, others_square: float, total: float) -> Any:
    """Squared distance of e / total to the one-hot label, from sums of e and e^2 over the others.

    As (1 - p)^2 + sum over others, where 1 - p is the others' share: 1 - p itself would cancel
    where the label is on top.
    """
    share = others / total
    return share * share + others_square / (total * total)


@kernel()
def exponents_of_rows(
    logits: Any, first: int, last: int, beta: float, tops: Floats, x: Floats, e: Floats
) -> None:
    """b (s_k - s_m) of rows ``first`` to ``last``, one after the other into ``x``; e^x into ``e``.

    Several rows at once: the vector loop over the exponentials then has one remainder, not one
    for each row.
    """
    n_classes = logits.shape[1]
    for i in range(first, last):
        row = logits[i]
        top = np.float64(max_of(row))
        tops[i - first] = top
        relative_to(row, top, beta, x[(i - first) * n_classes : (i - first + 1) * n_classes])
    exponentials(x[: (last - first) * n_classes], e)


@kernel(fastmath={"contract"})
def relative_to(row: Any, top: float, beta: float, x: Floats) -> None:
    """b (s_k - top) of each class into ``x``."""
    for k in range(len(row)):
        x[k] = max((np.float64(row[k]) - top) * beta, LOWEST)


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


@kernel(fastmath={"reassoc", "nsz", "contract"})
def square_moments(x: Floats, e: Floats) -> tuple[float, float, float]:
    """Sums of e^2, e^2 x and e^2 x^2."""
    total = first = second = 0.0
    for k in range(len(x)):
        square = e[k] * e[k]
        total += square
        first += square * x[k]
        second += square * x[k] * x[k]
    return total, first, second


@over_rows
def temperature_rows(
    start: int, stop: int, logits: Any, labels: Any, beta: float, out: Floats
) -> None:
    """Of softmax(b s), per row: cross-entropy, its derivative by log b, variance and skew of x.

    The cross-entropy is log sum e - x_y and its derivative mean - x_y, under the probabilities;
    the variance is b^2 times its second derivative by b, the third central moment b^3 times its
    third.
    """
    n_classes = logits.shape[1]
    together = max(1, min(stop - start, AT_ONCE // n_classes))
    x, e = np.empty(together * n_classes), np.empty(together * n_classes)
    tops = np.empty(together)
    for low in range(start, stop, together):
        high = min(low + together, stop)
        exponents_of_rows(logits, low, high, beta, tops, x, e)
        for i in range(low, high):
            at = (i - low) * n_classes
            total, first, second, third = moments(x[at : at + n_classes], e[at : at + n_classes])
            mean = first / total
            square = second / total
            of_label = difference(logits[i, labels[i]], tops[i - low], beta)
            out[0, i] = np.log(total) - of_label
            out[1, i] = mean - of_label
            out[2, i] = max(square - mean * mean, 0.0)
            out[3, i] = third / total - mean * (3.0 * square - 2.0 * mean * mean)


@over_rows
def brier_rows(start: int, stop: int, logits: Any, labels: Any, beta: float, out: Floats) -> None:
    """Of softmax(b s), per row: f, b f' and b^2 f'' of the squared distance f to the label.

    With m and v the mean and variance of x under the probabilities p, p_k' is p_k (x_k - m) / b
    and p_k'' is p_k ((x_k - m)^2 - v) / b^2.
    """
    n_classes = logits.shape[1]
    together = max(1, min(stop - start, AT_ONCE // n_classes))
    xs, es = np.empty(together * n_classes), np.empty(together * n_classes)
    tops = np.empty(together)
    for low in range(start, stop, together):
        high = min(low + together, stop)
        exponents_of_rows(logits, low, high, beta, tops, xs, es)
        for i in range(low, high):
            at = (i - low) * n_classes
            x, e = xs[at : at + n_classes], es[at : at + n_classes]
            y = labels[i]
            total, first, second, _ = moments(x, e)
            square, square_first, square_second = square_moments(x, e)
            mean = first / total
            variance = second / total - mean * mean
            p, away = e[y] / total, x[y] - mean
            others, others_square = without(e, y)
            out[0, i] = squared_distance(others, others_square, total)
            # Sums over classes of p^2, p^2 (x - m) and p^2 (x - m)^2.
            share = 1.0 / (total * total)
            even = square * share
            linear = square_first * share - mean * even
            spread = square_second * share - mean * (2.0 * square_first * share - mean * even)
            out[1, i] = 2.0 * (linear - p * away)
            out[2, i] = 2.0 * (2.0 * spread - variance * even - p * (away * away - variance))


@kernel(fastmath={"reassoc", "nsz", "contract"})
def without(e: Floats, y: int) -> tuple[float, float]:
    """Sums of e and e^2 over all classes but one."""
    total = square = 0.0
    for k in range(len(e)):
        other = 0.0 if k == y else e[k]
        total += other
        square += other * other
    return total, square


@over_rows
def lead_rows(
    start: int,
    stop: int,
    logits: Any,
    labels: Any,
    beta: float,
    tops: Any,
    lead: Floats,
    level: Floats,
    of_label: Floats,
) -> None:
    """Of softmax(b s), per row: the top class, and its lead b (s_m - s_r).

    And log-probabilities among the classes that are not on top: ``level`` is that of the runner-up,
    ``of_label`` that of the label, or 0 where it is on top itself. The log-odds are lead + level.
    """
    n_classes = logits.shape[1]
    x, e = np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        m, gap = relative_exponents(logits[i], beta, x)
        tops[i] = m
        lead[i] = -gap
        level[i] = 0.0
        of_label[i] = 0.0
        if gap > -np.inf:
            exponentials(x, e)
            level[i] = -np.log(sum_of(e))
            y = labels[i]
            if y != m:
                of_label[i] = x[y] + level[i]


@kernel(fastmath={"contract"})
def rest_scores(x: Floats, sharpness: float, bias: Floats, m: int, score: Floats) -> Any:
    """b' x_k + bias_k, minus the largest of them, into ``score``; the largest.

    The top class has the lowest score.
    """
    for k in range(len(x)):
        score[k] = sharpness * x[k] + bias[k]
    score[m] = -np.inf
    largest = max_of(score)
    for k in range(len(x)):
        score[k] = max(score[k] - largest, LOWEST)
    return largest


@over_rows
def rest_rows(
    start: int,
    stop: int,
    logits: Any,
    labels: Any,
    beta: float,
    sharpness: float,
    bias: Floats,
    level: Floats,
    of_label: Floats,
) -> None:
    """Of softmax over k != m of b' b s_k + bias_k: the largest log-probability, the label's.

    The label's is 0 where it is the top class m itself; both are 0 where no class but m is
    possible.
    """
    n_classes = logits.shape[1]
    x, e = np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        y = labels[i]
        m, gap = relative_exponents(logits[i], beta, x)
        of_label[i] = 0.0
        level[i] = 0.0
        if gap > -np.inf:
            own = sharpness * x[y] + bias[y]
            largest = rest_scores(x, sharpness, bias, m, x)
            exponentials(x, e)
            level[i] = -np.log(sum_of(e))
            if y != m:
                of_label[i] = own - largest + level[i]


@kernel(fastmath={"contract"})
def add_share(e: Floats, share: float, weight: float, by_class: Floats, curvature: Floats) -> None:
    """Add a row's probabilities e * share, and p (1 - p), to the sums of each class."""
    for k in range(len(e)):
        p = e[k] * share
        by_class[k] += weight * p
        curvature[k] += weight * p * (1.0 - p)


@over_rows
def exponents_of_rest(start: int, stop: int, logits: Any, beta: float, tops: Any, x: Any) -> None:
    """The top class of every row, and x_k of the others (see the top of this file)."""
    for i in range(start, stop):
        m, _ = relative_exponents(logits[i], beta, x[i])
        x[i, m] = 0.0  # a place-holder
        tops[i] = m


@over_rows
def rest_slopes(
    start: int,
    stop: int,
    x: Any,
    tops: Any,
    labels: Any,
    weight: Floats,
    sharpness: float,
    bias: Floats,
) -> Any:
    """Slopes of the rest's log-loss, for rows of :func:`exponents_of_rest`.

    The sum of the loss, of its derivative by log b' and of b'^2 times the variance of x; then of
    p_k - [k = y] of each class, and of p_k (1 - p_k).
    """
    n_classes = x.shape[1]
    score, e = np.empty(n_classes), np.empty(n_classes)
    sums = np.zeros(3 + 2 * n_classes)
    by_class, curvature = sums[3 : 3 + n_classes], sums[3 + n_classes :]
    for i in range(start, stop):
        y, w = labels[i], weight[i]
        largest = rest_scores(x[i], sharpness, bias, tops[i], score)
        exponentials(score, e)
        total, first, second, _ = moments(x[i], e)
        mean = first / total
        own = x[i, y]
        sums[0] += w * (np.log(total) + largest - sharpness * own - bias[y])
        sums[1] += w * sharpness * (mean - own)
        sums[2] += w * sharpness * sharpness * max(second / total - mean * mean, 0.0)
        add_share(e, 1.0 / total, w, by_class, curvature)
        by_class[y] -= w
    return sums


@kernel()
def spline_of(odds: float, slopes: Floats, knots: Floats) -> Any:
    """sum_j slope_j B_j(z) of ``top_rest``, as z + sum (slope_j - 1) B_j(z)."""
    below = log_one_plus_exp(odds - knots[0])
    total = odds + (slopes[0] - 1.0) * (knots[0] - log_one_plus_exp(knots[0] - odds))
    for j in range(1, len(knots)):
        above = log_one_plus_exp(odds - knots[j])
        total += (slopes[j] - 1.0) * (below - above)
        below = above
    return total + (slopes[-1] - 1.0) * below


@over_rows
def top_rest_probs(
    start: int,
    stop: int,
    logits: Any,
    beta: float,
    slopes: Floats,
    knots: Floats,
    offset: float,
    contest: float,
    class_offsets: Floats,
    sharpness: float,
    bias: Floats,
    stretch: float,
    step: float,
    out: Any,
) -> None:
    """Probabilities of ``top_rest`` of each row into ``out``, whose rounding is ``step``."""
    n_classes = logits.shape[1]
    x, e = np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        result = out[i]
        m, gap = relative_exponents(logits[i], beta, x)
        if gap == -np.inf:
            result[:] = 0.0
            result[m] = 1.0
            continue
        exponentials(x, e)
        crowd = -np.log(sum_of(e))
        odds = crowd - gap
        rest_scores(x, sharpness, bias, m, x)
        exponentials(x, e)
        total = sum_of(e)
        level = -np.log(total)
        top_odds = spline_of(odds, slopes, knots) + offset + contest * crowd
        top_odds = max(top_odds + class_offsets[m], level - gap / stretch)
        top_odds = min(top_odds, level - gap * stretch)
        top = 1.0 / (1.0 + np.exp(-top_odds))
        share = 1.0 / (total * (1.0 + np.exp(top_odds)))
        below = top * (1.0 - step)
        for k in range(n_classes):
            result[k] = min(e[k] * share, below)
        result[m] = top
