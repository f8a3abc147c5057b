"""One pass over the rows of probabilities or logits, in parallel, without a copy of them.

Compiled by Numba on first use and cached on disk. The kernels also look at what the checks would
look at, and return the first row that needs refusing, so that good input is read only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    bin_of,
    exp_row,
    extremes_of,
    index_of,
    max_of,
    over_rows,
    sum_of,
    sum_of_squares,
)

Floats = npt.NDArray[np.float64]


@over_rows
def top_of_probs(
    start: int,
    stop: int,
    probs: Any,
    labels: Any,
    tolerance: float,
    confidence: Floats,
    correct: Any,
) -> int:
    """Largest probability of each row, and whether it is at the label; -1 or the first bad row."""
    bad = -1
    for i in range(start, stop):
        row = probs[i]
        lowest, top = extremes_of(row)
        confidence[i] = min(top, 1.0)
        correct[i] = index_of(row, top) == labels[i]
        # Written so that NaN fails it.
        if not (lowest >= 0.0 and abs(sum_of(row) - 1.0) <= tolerance):
            bad = i if bad < 0 else bad
    return bad


@over_rows
def top_of_logits(
    start: int, stop: int, logits: Any, labels: Any, confidence: Floats, correct: Any
) -> int:
    """The same from logits: the confidence is 1 over the sum of e^(logit - largest)."""
    n_classes = logits.shape[1]
    bad = -1
    weights = np.empty(n_classes)
    for i in range(start, stop):
        row = logits[i]
        top = max_of(row)
        exp_row(row, np.float64(top), weights)
        total = sum_of(weights)
        confidence[i] = 1.0 / total
        correct[i] = index_of(row, top) == labels[i]
        # A NaN anywhere, +inf on top or -inf everywhere makes the total NaN.
        if not (total >= 1.0 and abs(top) < np.inf):
            bad = i if bad < 0 else bad
    return bad


@over_rows
def rest_of_probs(
    start: int, stop: int, probs: Any, labels: Any, true_log_prob: Floats, squares: Floats
) -> None:
    """log p of the label and sum of squares of each row."""
    for i in range(start, stop):
        p = np.float64(probs[i, labels[i]])
        true_log_prob[i] = np.log(p) if p > 0.0 else -np.inf
        squares[i] = sum_of_squares(probs[i])


@over_rows
def rest_of_logits(
    start: int, stop: int, logits: Any, labels: Any, true_log_prob: Floats, squares: Floats
) -> None:
    """The same from logits."""
    n_classes = logits.shape[1]
    weights = np.empty(n_classes)
    for i in range(start, stop):
        row = logits[i]
        top = np.float64(max_of(row))
        exp_row(row, top, weights)
        total = sum_of(weights)
        true_log_prob[i] = np.float64(row[labels[i]]) - top - np.log(total)
        squares[i] = sum_of_squares(weights) / (total * total)


@over_rows
def entropy_of_probs(start: int, stop: int, probs: Any, entropy: Floats) -> None:
    """Entropy of each row, in nats."""
    for i in range(start, stop):
        surprise = 0.0
        for k in range(probs.shape[1]):
            p = np.float64(probs[i, k])
            if p > 0.0:
                surprise -= p * np.log(p)
        entropy[i] = surprise


@over_rows
def entropy_of_logits(start: int, stop: int, logits: Any, entropy: Floats) -> None:
    """The same from logits."""
    n_classes = logits.shape[1]
    weights = np.empty(n_classes)
    for i in range(start, stop):
        row = logits[i]
        top = np.float64(max_of(row))
        exp_row(row, top, weights)
        total = sum_of(weights)
        weighted = 0.0
        for k in range(n_classes):
            if weights[k] > 0.0:
                weighted += weights[k] * (np.float64(row[k]) - top)
        entropy[i] = np.log(total) - weighted / total


@over_rows
def class_gap_sums(
    start: int,
    stop: int,
    scores: Any,
    labels: Any,
    weight: Floats,
    from_logits: bool,
    edges: Floats,
) -> Any:
    """Sum of w (p_k - [label is k]) over the samples whose p_k falls in each bin: (bins, K)."""
    n_classes = scores.shape[1]
    # Classes side by side: of many classes, most are in the first bin.
    sums = np.zeros((len(edges) - 1, n_classes))
    probs = np.empty(n_classes)
    bins = np.empty(n_classes, dtype=np.int64)
    for i in range(start, stop):
        row = scores[i]
        if from_logits:
            exp_row(row, np.float64(max_of(row)), probs)
            share = 1.0 / sum_of(probs)
            for k in range(n_classes):
                probs[k] *= share
        else:
            for k in range(n_classes):
                probs[k] = row[k]
        label = labels[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for k in range(n_classes):
            bins[k] = bin_of(probs[k], edges)
        for k in range(n_classes):
            sums[bins[k], k] += w * (probs[k] - (1.0 if k == label else 0.0))
    return sums
