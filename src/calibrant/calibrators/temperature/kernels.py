"""Compiled passes over rows of logits: the focal map and the temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import copy_to, kernel, max_of, over_rows, sum_of, sum_of_squares
from calibrant.calibrators.row_kernels import (
    FARTHEST,
    LOWEST,
    difference,
    exponentials,
    log_one_plus_exp,
    log_phi_of_top,
    log_rests,
    mapped,
    moments,
    relative_exponents,
    relative_to,
    sum_of_mapped,
)

Floats = npt.NDArray[np.float64]

AT_ONCE = 2048
"""Exponentials computed in one loop: they stay in the innermost cache."""


@kernel()
def counted_sum(values: Floats, counts: Floats) -> Any:
    """Sum over the classes; the last ``len(counts)`` entries each stand for that many classes."""
    n = len(values) - len(counts)
    total = sum_of(values[:n])
    for j in range(len(counts)):
        total += values[n + j] * counts[j]
    return total


@kernel()
def map_row(
    row: Any,
    inverse_temperature: float,
    gamma: float,
    counts: Floats,
    x: Floats,
    e: Floats,
    g: Floats,
) -> tuple[int, float, float, float]:
    """The map of one row: m, b (s_r - s_m), log phi(q_m), log-odds against m.

    ``counts`` is that of :func:`counted_sum`, empty where every entry is one class.
    """
    m, gap = relative_exponents(row, inverse_temperature, x)
    if gap == -np.inf:
        e[:] = 0.0
        g[:] = 0.0
        return m, gap, 0.0, -np.inf
    exponentials(x, e)
    log_odds = gap + np.log(counted_sum(e, counts))
    if gamma == 0.0:
        copy_to(g, e)
        return m, gap, 0.0, log_odds
    odds = np.exp(log_odds)
    shift = gap - np.log1p(odds)
    mapped(x, e, np.exp(shift), shift, gamma, g)
    log_phi = log_phi_of_top(odds, log_odds, gamma)
    return m, gap, log_phi, gap + log_phi + np.log(counted_sum(g, counts))


@kernel(inline="always")
def log_against_top(
    k: int, m: int, row: Any, inverse_temperature: float, log_phi: float, e: Floats, g: Floats
) -> Any:
    """log p_k - log p_m after the map."""
    log_phi_k = np.log(e[k] / g[k]) if e[k] > 0.0 else 0.0  # phi(0) is 1
    return difference(row[k], row[m], inverse_temperature) + log_phi - log_phi_k


@over_rows
def map_probs(
    start: int,
    stop: int,
    logits: Any,
    inverse_temperature: float,
    gamma: float,
    step: float,
    out: Any,
) -> None:
    """Write Psi^gamma(softmax(b s)) of each row into ``out``, whose rounding step is ``step``.

    The top class stays strictly on top, and classes tied with it have its probability.
    """
    n_classes = logits.shape[1]
    x, e, g = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    counts = np.empty(0)
    for i in range(start, stop):
        row, result = logits[i], out[i]
        m, gap, log_phi, against = map_row(row, inverse_temperature, gamma, counts, x, e, g)
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
    inverse_temperature: float,
    gamma: float,
    log_odds: Floats,
    true_log_prob: Floats,
    distances: Floats,
) -> None:
    """Per row: log-odds of the top class, log-probability of the label, squared distance to it."""
    n_classes = logits.shape[1]
    x, e, g = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    counts = np.empty(0)
    for i in range(start, stop):
        row, y = logits[i], labels[i]
        m, gap, log_phi, against = map_row(row, inverse_temperature, gamma, counts, x, e, g)
        log_odds[i] = -against
        true_log_prob[i] = -log_one_plus_exp(against)
        # Relative to the top class.
        factor, against_top = np.exp(gap + log_phi), np.exp(against)
        others, others_square = against_top, factor * factor * sum_of_squares(g)
        if y != m:
            own = factor * g[y]
            others = 1.0 + (against_top - own)
            others_square = 1.0 + (others_square - own * own)
            true_log_prob[i] += log_against_top(y, m, row, inverse_temperature, log_phi, e, g)
        distances[i] = squared_distance(others, others_square, 1.0 + against_top)


@over_rows
def log_odds_of_rows(
    start: int,
    stop: int,
    logits: Any,
    inverse_temperature: float,
    gammas: Floats,
    log_odds: Floats,
) -> None:
    """The log-odds of the top class of each row for every gamma, (gammas, rows)."""
    n_classes = logits.shape[1]
    x, e, log_rest = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        _, gap = relative_exponents(logits[i], inverse_temperature, x)
        if gap == -np.inf:
            log_odds[:, i] = np.inf
            continue
        exponentials(x, e)
        against = gap + np.log(sum_of(e))
        odds = np.exp(against)
        shift = gap - np.log1p(odds)
        share = np.exp(shift)
        log_rests(e, share, log_rest)
        for c in range(len(gammas)):
            gamma = gammas[c]
            if gamma == 0.0:
                log_odds[c, i] = -against
            else:
                log_phi = log_phi_of_top(odds, against, gamma)
                total = sum_of_mapped(x, e, log_rest, share, shift, gamma)
                log_odds[c, i] = -(gap + log_phi + np.log(total))


@kernel(inline="always", error_model="numpy")
def squared_distance(others: float, others_square: float, total: float) -> Any:
    """Squared distance of e / total to the one-hot label, from sums of e and e^2 over the others.

    It is (1 - p)^2 plus the sum over the others, with 1 - p computed as the share of the others:
    a subtraction would cancel where the label is the top class.
    """
    share = others / total
    return share * share + others_square / (total * total)


@kernel()
def exponents_of_rows(
    logits: Any,
    first: int,
    last: int,
    inverse_temperature: float,
    tops: Floats,
    x: Floats,
    e: Floats,
) -> None:
    """Write b (s_k - s_m) of rows ``first`` to ``last`` into ``x``, row by row, and e^x into ``e``.

    The vector loop over the exponentials of several rows has one remainder, not one for each row.
    """
    n_classes = logits.shape[1]
    for i in range(first, last):
        row = logits[i]
        top = np.float64(max_of(row))
        tops[i - first] = top
        relative_to(
            row, top, inverse_temperature, x[(i - first) * n_classes : (i - first + 1) * n_classes]
        )
    exponentials(x[: (last - first) * n_classes], e)


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


@kernel(inline="always")
def cross_entropy_derivatives(
    total: float, first: float, second: float, third: float, of_label: float, out: Floats
) -> None:
    """Cross-entropy f of softmax(b s), and b f', b^2 f'' and b^3 f''', from the moments of x.

    Under the probabilities, f is log sum e - x_y, b f' is mean - x_y, and the other two are the
    variance and the third central moment of x.
    """
    mean, square = first / total, second / total
    out[0] = np.log(total) - of_label
    out[1] = mean - of_label
    out[2] = max(square - mean * mean, 0.0)
    out[3] = third / total - mean * (3.0 * square - 2.0 * mean * mean)


@over_rows
def cross_entropy_rows(
    start: int, stop: int, logits: Any, labels: Any, inverse_temperature: float, out: Floats
) -> None:
    """:func:`cross_entropy_derivatives` of softmax(b s), per row: (4, n)."""
    n_classes = logits.shape[1]
    together = max(1, min(stop - start, AT_ONCE // n_classes))
    x, e = np.empty(together * n_classes), np.empty(together * n_classes)
    tops = np.empty(together)
    for low in range(start, stop, together):
        high = min(low + together, stop)
        exponents_of_rows(logits, low, high, inverse_temperature, tops, x, e)
        for i in range(low, high):
            at = (i - low) * n_classes
            total, first, second, third = moments(x[at : at + n_classes], e[at : at + n_classes])
            of_label = difference(logits[i, labels[i]], tops[i - low], inverse_temperature)
            cross_entropy_derivatives(total, first, second, third, of_label, out[:, i])


@cross_entropy_rows.for_few
def _cross_entropy_of_few_rows(
    logits: Any, labels: Any, inverse_temperature: float, out: Floats
) -> None:
    top = logits.max(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite logits of candidates that fail
        x = np.subtract(logits, top[:, np.newaxis], dtype=np.float64)
        x *= inverse_temperature
    of_label = np.maximum(x[np.arange(len(x)), labels], FARTHEST)
    np.maximum(x, LOWEST, out=x)
    e = np.exp(x)
    total = e.sum(axis=1)
    mean, square, cube = (np.multiply(e, x, out=e).sum(axis=1) / total for _ in range(3))
    out[0] = np.log(total) - of_label
    out[1] = mean - of_label
    out[2] = np.maximum(square - mean * mean, 0.0)
    out[3] = cube - mean * (3.0 * square - 2.0 * mean * mean)


@over_rows
def squared_distance_rows(
    start: int, stop: int, logits: Any, labels: Any, inverse_temperature: float, out: Floats
) -> None:
    """f, b f' and b^2 f'' of the squared distance f of softmax(b s) to the label, per row: (3, n).

    With m and v the mean and variance of x under the probabilities p, p_k' is p_k (x_k - m) / b
    and p_k'' is p_k ((x_k - m)^2 - v) / b^2.
    """
    n_classes = logits.shape[1]
    together = max(1, min(stop - start, AT_ONCE // n_classes))
    xs, es = np.empty(together * n_classes), np.empty(together * n_classes)
    tops = np.empty(together)
    for low in range(start, stop, together):
        high = min(low + together, stop)
        exponents_of_rows(logits, low, high, inverse_temperature, tops, xs, es)
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
