"""Compiled passes over rows of logits: the top class and the rest, all other classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import kernel, max_of, over_rows, sum_of
from calibrant.calibrators.row_kernels import (
    LOWEST,
    exponentials,
    log_one_plus_exp,
    moments,
    relative_exponents,
    relative_exponents_of_few,
)

Floats = npt.NDArray[np.float64]


@kernel(fastmath={"contract"})
def rest_scores(
    x: Floats, rest_inverse_temperature: float, bias: Floats, m: int, score: Floats
) -> Any:
    """Write b' x_k + bias_k, minus the largest of them, into ``score``; return the largest.

    The top class gets the lowest score.
    """
    for k in range(len(x)):
        score[k] = rest_inverse_temperature * x[k] + bias[k]
    score[m] = -np.inf
    largest = max_of(score)
    for k in range(len(x)):
        score[k] = max(score[k] - largest, LOWEST)
    return largest


@over_rows
def rest_rows(
    start: int,
    stop: int,
    needed: Any,
    row_of: Any,
    logits: Any,
    labels: Any,
    inverse_temperature: float,
    rest_inverse_temperature: float,
    bias: Floats,
    tops: Any,
    lead: Floats,
    level: Floats,
    of_label: Floats,
) -> None:
    """The top class m of softmax(b s), its lead b (s_m - s_r), and the rest, where needed.

    ``needed`` are indices of samples, whose rows in ``logits`` are ``row_of``. ``level`` and
    ``of_label`` are the largest log-probability and that of the label in the softmax of the rest,
    which is over k != m of b' b s_k + bias_k. That of the label is 0 if it is the top class; both
    are 0 if only m is possible. Without biases, where ``bias`` is empty, b' is 1, and lead + level
    are the log-odds of m.
    """
    n_classes = logits.shape[1]
    x, e = np.empty(n_classes), np.empty(n_classes)
    for i in needed[start:stop]:
        row = row_of[i]
        y = labels[row]
        m, gap = relative_exponents(logits[row], inverse_temperature, x)
        tops[i], lead[i] = m, -gap
        level[i] = of_label[i] = 0.0
        if gap > -np.inf:
            own, largest = x[y], 0.0
            if len(bias) > 0:
                own = rest_inverse_temperature * x[y] + bias[y]
                largest = rest_scores(x, rest_inverse_temperature, bias, m, x)
            exponentials(x, e)
            level[i] = -np.log(sum_of(e))
            if y != m:
                of_label[i] = own - largest + level[i]


@rest_rows.for_few
def _rest_of_few_rows(
    needed: Any,
    row_of: Any,
    logits: Any,
    labels: Any,
    inverse_temperature: float,
    rest_inverse_temperature: float,
    bias: Floats,
    tops: Any,
    lead: Floats,
    level: Floats,
    of_label: Floats,
) -> None:
    row = row_of[needed]
    y = labels[row]
    m, gap, x = relative_exponents_of_few(logits[row], inverse_temperature)
    tops[needed], lead[needed] = m, -gap
    bias = bias if len(bias) else np.zeros(x.shape[1])
    own = rest_inverse_temperature * x[np.arange(len(x)), y] + bias[y]
    score, largest = _rest_scores_of_few(x, rest_inverse_temperature, bias, m)
    possible = gap > -np.inf
    level[needed] = np.where(possible, -np.log(np.exp(score, out=score).sum(axis=1)), 0.0)
    of_label[needed] = np.where(possible & (y != m), own - largest + level[needed], 0.0)


def _rest_scores_of_few(
    x: Floats, rest_inverse_temperature: float, bias: Floats, m: Any
) -> tuple[Floats, Floats]:
    """:func:`rest_scores` of every row: the scores, and the largest of each row."""
    score = rest_inverse_temperature * x + bias
    score[np.arange(len(x)), m] = -np.inf
    largest: Floats = score.max(axis=1)
    score -= largest[:, np.newaxis]
    return np.maximum(score, LOWEST, out=score), largest


@kernel(fastmath={"contract"})
def add_share(e: Floats, share: float, weight: float, by_class: Floats, curvature: Floats) -> None:
    """Add a row's probabilities e * share, and p (1 - p), to the sums of each class."""
    for k in range(len(e)):
        p = e[k] * share
        by_class[k] += weight * p
        curvature[k] += weight * p * (1.0 - p)


@over_rows
def exponents_of_rest(
    start: int, stop: int, logits: Any, inverse_temperature: float, tops: Any, x: Any
) -> None:
    """The top class of every row, and x_k of the others (see ``row_kernels``)."""
    for i in range(start, stop):
        m, _ = relative_exponents(logits[i], inverse_temperature, x[i])
        x[i, m] = 0.0  # a placeholder
        tops[i] = m


@exponents_of_rest.for_few
def _exponents_of_few(logits: Any, inverse_temperature: float, tops: Any, x: Any) -> None:
    tops[:], _, x[:] = relative_exponents_of_few(logits, inverse_temperature)
    x[np.arange(len(x)), tops] = 0.0  # a placeholder


@over_rows
def rest_derivatives(
    start: int,
    stop: int,
    x: Any,
    tops: Any,
    labels: Any,
    weight: Floats,
    rest_inverse_temperature: float,
    bias: Floats,
) -> Any:
    """Sums of the log-loss of the rest and its derivatives, for rows of :func:`exponents_of_rest`.

    The loss, its derivative by log b', b'^2 times the variance of x; then p_k - [k = y] of each
    class, and p_k (1 - p_k) of each class.
    """
    n_classes = x.shape[1]
    score, e = np.empty(n_classes), np.empty(n_classes)
    sums = np.zeros(3 + 2 * n_classes)
    by_class, curvature = sums[3 : 3 + n_classes], sums[3 + n_classes :]
    for i in range(start, stop):
        y, w = labels[i], weight[i]
        largest = rest_scores(x[i], rest_inverse_temperature, bias, tops[i], score)
        exponentials(score, e)
        total, first, second, _ = moments(x[i], e)
        mean = first / total
        own = x[i, y]
        sums[0] += w * (np.log(total) + largest - rest_inverse_temperature * own - bias[y])
        sums[1] += w * rest_inverse_temperature * (mean - own)
        sums[2] += (
            w
            * rest_inverse_temperature
            * rest_inverse_temperature
            * max(second / total - mean * mean, 0.0)
        )
        add_share(e, 1.0 / total, w, by_class, curvature)
        by_class[y] -= w
    return sums


@rest_derivatives.for_few
def _rest_derivatives_of_few(
    x: Any,
    tops: Any,
    labels: Any,
    weight: Floats,
    rest_inverse_temperature: float,
    bias: Floats,
) -> Floats:
    score, largest = _rest_scores_of_few(x, rest_inverse_temperature, bias, tops)
    e = np.exp(score, out=score)
    total = e.sum(axis=1)
    p = e / total[:, np.newaxis]
    mean = np.einsum("ik,ik->i", p, x)
    second = np.einsum("ik,ik,ik->i", p, x, x)
    own = x[np.arange(len(x)), labels]
    loss = np.log(total) + largest - rest_inverse_temperature * own - bias[labels]
    variance = np.maximum(second - mean * mean, 0.0)
    by_class = weight @ p - np.bincount(labels, weights=weight, minlength=p.shape[1])
    sums = (
        weight @ loss,
        rest_inverse_temperature * (weight @ (mean - own)),
        rest_inverse_temperature**2 * (weight @ variance),
    )
    return np.concatenate([sums, by_class, weight @ (p * (1.0 - p))])


@kernel()
def spline_of(odds: float, slopes: Floats, knots: Floats) -> Any:
    """sum_j slope_j B_j(z) of ``map``, as z + sum (slope_j - 1) B_j(z)."""
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
    inverse_temperature: float,
    slopes: Floats,
    knots: Floats,
    offset: float,
    contest: float,
    class_offsets: Floats,
    rest_inverse_temperature: float,
    bias: Floats,
    stretch: float,
    step: float,
    out: Any,
) -> None:
    """Write the probabilities of ``map`` into ``out``, whose rounding step is ``step``."""
    n_classes = logits.shape[1]
    x, e = np.empty(n_classes), np.empty(n_classes)
    for i in range(start, stop):
        result = out[i]
        m, gap = relative_exponents(logits[i], inverse_temperature, x)
        if gap == -np.inf:
            result[:] = 0.0
            result[m] = 1.0
            continue
        exponentials(x, e)
        crowd = -np.log(sum_of(e))
        odds = crowd - gap
        rest_scores(x, rest_inverse_temperature, bias, m, x)
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
