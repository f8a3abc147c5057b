"""Compiled passes over the rows of probabilities or logits, in parallel and without a copy.

Numba compiles them on first use and caches them on disk. ``top_of_probs`` and ``top_of_logits``
also check the values and return the first bad row, so that valid input is read only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import (
    bin_of,
    bits_of,
    exp_nonpositive,
    exp_row,
    extremes_of,
    index_of,
    kernel,
    max_of,
    over_rows,
    sum_of,
    sum_of_squares,
)
from calibrant._numerics.first_use import are_few
from calibrant._numerics.logspace import probs_of

Floats = npt.NDArray[np.float64]
NARROW = 16
"""Up to so many classes, one loop over a row is faster than several vectorised ones."""


@kernel()
def scanned(probs: Any, i: int) -> tuple[Any, int, Any, Any]:
    """The largest entry of a short row, its first index, the smallest entry, and the sum.

    Indexed from the array: a view of each row takes longer than the loop.
    """
    top, m = probs[i, 0], 0
    lowest, total = top, np.float64(top)
    for k in range(1, probs.shape[1]):
        p = probs[i, k]
        total += p  # NaN if there is one
        lowest = min(lowest, p)
        if p > top:
            top, m = p, k
    return top, m, lowest, total


@kernel(fastmath={"reassoc", "nsz", "contract"})
def scanned_logits(logits: Any, i: int) -> tuple[Any, int, Any]:
    """The largest entry of a short row, its first index, and the sum of e^(logit - largest)."""
    top, m = logits[i, 0], 0
    for k in range(1, logits.shape[1]):
        x = logits[i, k]
        if x > top:  # never, if the first is NaN
            top, m = x, k
    total = 0.0
    for k in range(logits.shape[1]):
        total += exp_nonpositive(np.float64(logits[i, k]) - np.float64(top))
    return top, m, total


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
    """Largest probability of each row, and whether it is at the label; the first bad row or -1."""
    bad = -1
    for i in range(start, stop):
        if probs.shape[1] <= NARROW:
            top, m, lowest, total = scanned(probs, i)
        else:
            row = probs[i]
            lowest, top = extremes_of(row)
            m, total = index_of(row, top), sum_of(row)
        confidence[i] = min(top, 1.0)
        correct[i] = m == labels[i]
        # NaN fails these comparisons.
        if not (lowest >= 0.0 and abs(total - 1.0) <= tolerance):
            bad = i if bad < 0 else bad
    return bad


@top_of_probs.for_few
def _top_of_few_probs(
    probs: Any, labels: Any, tolerance: float, confidence: Floats, correct: Any
) -> int:
    np.minimum(probs.max(axis=1), 1.0, out=confidence)
    np.equal(probs.argmax(axis=1), labels, out=correct)
    off = np.abs(probs.sum(axis=1, dtype=np.float64) - 1.0)
    return _first_bad((probs.min(axis=1) >= 0.0) & (off <= tolerance))


def _first_bad(good: npt.NDArray[np.bool_]) -> int:
    return -1 if good.all() else int(good.argmin())


@over_rows
def top_of_logits(
    start: int, stop: int, logits: Any, labels: Any, confidence: Floats, correct: Any
) -> int:
    """As ``top_of_probs``, from logits: the confidence is 1 / sum of e^(logit - largest)."""
    n_classes = logits.shape[1]
    bad = -1
    weights = np.empty(n_classes)
    for i in range(start, stop):
        if n_classes <= NARROW:
            top, m, total = scanned_logits(logits, i)
        else:
            row = logits[i]
            top = max_of(row)
            exp_row(row, np.float64(top), weights)
            m, total = index_of(row, top), sum_of(weights)
        confidence[i] = 1.0 / total
        correct[i] = m == labels[i]
        # The total is NaN if there is a NaN, if the top is +inf, or if all logits are -inf.
        if not (total >= 1.0 and abs(top) < np.inf):
            bad = i if bad < 0 else bad
    return bad


@top_of_logits.for_few
def _top_of_few_logits(logits: Any, labels: Any, confidence: Floats, correct: Any) -> int:
    top, weights = _weights_of(logits)
    total = weights.sum(axis=1)
    np.divide(1.0, total, out=confidence)
    np.equal(logits.argmax(axis=1), labels, out=correct)
    return _first_bad((total >= 1.0) & (np.abs(top) < np.inf))


def _weights_of(logits: Any) -> tuple[Floats, Floats]:
    """The largest logit of each row, and e^(logit - largest)."""
    top: Floats = logits.max(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: rows that are refused
        weights: Floats = np.subtract(logits, top[:, np.newaxis], dtype=np.float64)
    return top, np.exp(weights, out=weights)


@over_rows
def rest_of_probs(
    start: int, stop: int, probs: Any, labels: Any, true_log_prob: Floats, squares: Floats
) -> None:
    """log p of the label, and the sum of squared probabilities, of each row."""
    for i in range(start, stop):
        p = np.float64(probs[i, labels[i]])
        true_log_prob[i] = np.log(p) if p > 0.0 else -np.inf
        squares[i] = sum_of_squares(probs[i])


@rest_of_probs.for_few
def _rest_of_few_probs(probs: Any, labels: Any, true_log_prob: Floats, squares: Floats) -> None:
    of_label = probs[np.arange(len(labels)), labels].astype(np.float64)
    with np.errstate(divide="ignore"):
        np.log(of_label, out=true_log_prob)
    np.einsum("ik,ik->i", probs, probs, out=squares, dtype=np.float64)


@over_rows
def rest_of_logits(
    start: int, stop: int, logits: Any, labels: Any, true_log_prob: Floats, squares: Floats
) -> None:
    """As ``rest_of_probs``, from logits."""
    n_classes = logits.shape[1]
    weights = np.empty(n_classes)
    for i in range(start, stop):
        row = logits[i]
        top = np.float64(max_of(row))
        exp_row(row, top, weights)
        total = sum_of(weights)
        true_log_prob[i] = np.float64(row[labels[i]]) - top - np.log(total)
        squares[i] = sum_of_squares(weights) / (total * total)


@rest_of_logits.for_few
def _rest_of_few_logits(logits: Any, labels: Any, true_log_prob: Floats, squares: Floats) -> None:
    top, weights = _weights_of(logits)
    total = weights.sum(axis=1)
    np.subtract(logits[np.arange(len(labels)), labels], top, out=true_log_prob, dtype=np.float64)
    true_log_prob -= np.log(total)
    np.einsum("ik,ik->i", weights, weights, out=squares)
    squares /= total * total


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
    """As ``entropy_of_probs``, from logits."""
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


@kernel()
def write_probs(row: Any, from_logits: bool, probs: Floats) -> None:
    """Write the probabilities of a row to ``probs``."""
    if from_logits:
        exp_row(row, np.float64(max_of(row)), probs)
        share = 1.0 / sum_of(probs)
        for k in range(len(row)):
            probs[k] *= share
    else:
        for k in range(len(row)):
            probs[k] = row[k]


@over_rows
def class_bin_sums(
    start: int,
    stop: int,
    scores: Any,
    labels: Any,
    weight: Floats,
    from_logits: bool,
    edges: Floats,
) -> Any:
    """Sums over samples for each class, (2 bins + 1, K).

    Of w p_k and of w [label is k] over the samples whose p_k falls in each bin, and of
    w^2 p_k (1 - p_k) over all samples.
    """
    n_classes = scores.shape[1]
    # The classes of a bin are adjacent in memory: most of many classes fall into the first bin.
    n_bins = len(edges) - 1
    sums = np.zeros((2 * n_bins + 1, n_classes))
    probs = np.empty(n_classes)
    for i in range(start, stop):
        write_probs(scores[i], from_logits, probs)
        w = weight[i] if len(weight) > 0 else 1.0
        for k in range(n_classes):
            p = probs[k]
            sums[0, k] += w * p if p <= edges[1] else 0.0
            sums[2 * n_bins, k] += w * w * (p * (1.0 - p))
        for k in range(n_classes):
            if probs[k] > edges[1]:  # few of many classes
                sums[bin_of(probs[k], edges), k] += w * probs[k]
        label = labels[i]
        sums[n_bins + bin_of(probs[label], edges), label] += w
    return sums


@class_bin_sums.for_few
def _class_bin_sums_of_few(
    scores: Any, labels: Any, weight: Floats, from_logits: bool, edges: Floats
) -> Floats:
    n, n_classes = scores.shape
    probs = probs_of(scores, from_logits=from_logits)
    weights = (weight if len(weight) else np.ones(n))[:, np.newaxis]
    bins = bins_of_few(probs, edges)
    cells = bins * n_classes + np.arange(n_classes)
    n_cells = (len(edges) - 1) * n_classes
    predicted = np.bincount(cells.ravel(), weights=(weights * probs).ravel(), minlength=n_cells)
    of_label = cells[np.arange(n), labels]
    observed = np.bincount(of_label, weights=weights[:, 0], minlength=n_cells)
    variance = (weights**2 * (probs * (1.0 - probs))).sum(axis=0)
    sums: Floats = np.concatenate([predicted, observed, variance])
    return sums.reshape(-1, n_classes)


@kernel(inline="always")
def uniform_of(counter: Any) -> Any:
    """A random number from 0 to 1 for each counter: SplitMix64 (Steele, Lea and Flood 2014)."""
    z = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@kernel(error_model="numpy")
def tabulate_alias(probs: Any, cut: Any, alias: Any, waiting: Any) -> None:
    """Prepare draws from K probabilities: of class k if u < cut[k], else of alias[k], k at random.

    Walker's method in the form of Vose (1991). ``waiting`` is memory for K indices: from its start
    the classes below 1 / K, from its end the others.
    """
    n_classes = len(probs)
    scale = n_classes / sum_of(probs)  # rows may miss a sum of 1 by rounding
    small, large = 0, n_classes
    for k in range(n_classes):
        cut[k] = probs[k] * scale
        alias[k] = k
    for k in range(n_classes):  # without a branch: it would be unpredictable
        is_small: Any = np.int64(cut[k] < 1.0)
        waiting[large - 1] = k
        waiting[small] = k
        small += is_small
        large -= 1 - is_small
    for place in range(large, n_classes):
        above = waiting[place]
        left = cut[above]
        while small > 0 and left >= 1.0:
            small -= 1
            below = waiting[small]
            alias[below] = above
            left -= 1.0 - cut[below]
        cut[above] = left
        if left < 1.0:
            waiting[small] = above
            small += 1


@kernel(nogil=True)
def count_drawn_labels(
    rows: Floats, weight: Floats, edges: Floats, first: Any, correct: Floats, drawn: Any
) -> None:
    """Draw a label of each of ``rows`` of probabilities for every simulation, and count it.

    ``correct``, (rows, simulations), is set to whether the label has the largest probability.
    ``drawn``, (K * bins, simulations), counts labels by their bin. ``first`` is the first counter.
    """
    n_classes, n_simulations, n_bins = rows.shape[1], correct.shape[1], len(edges) - 1
    cut = np.empty(n_classes)
    alias = np.empty(n_classes, dtype=np.int64)
    waiting = np.empty(n_classes, dtype=np.int64)
    cells = np.empty((n_classes, 2), dtype=np.int64)
    found = np.empty(n_simulations, dtype=np.int64)
    for i in range(len(rows)):
        probs, add = rows[i], np.float32(weight[i])
        tabulate_alias(probs, cut, alias, waiting)
        for k in range(n_classes):
            cells[k, 1] = k * n_bins
        for k in range(n_classes):
            if probs[k] > edges[1]:  # few of many classes
                cells[k, 1] += bin_of(probs[k], edges)
        for k in range(n_classes):
            cells[k, 0] = cells[alias[k], 1]
        top = cells[index_of(probs, max_of(probs)), 1]
        counter = first + np.uint64(i) * np.uint64(n_simulations)
        # Short loops without branches: together they take less than half the time of one.
        for r in range(n_simulations):
            u = uniform_of(counter + np.uint64(r)) * n_classes
            of = np.int64(u)  # below K, as the largest number is 1 - 2^-53
            found[r] = cells[of, np.int64(u - of < cut[of])]
        for r in range(n_simulations):
            correct[i, r] = found[r] == top
        for r in range(n_simulations):
            drawn[found[r], r] += add


@over_rows
def write_bins(start: int, stop: int, values: Any, edges: Any, out: Any) -> None:
    """The equal-width bin of each value into ``out``."""
    for i in range(start, stop):
        out[i] = bin_of(values[i], edges)


@write_bins.for_few
def _write_bins_of_few(values: Any, edges: Floats, out: Any) -> None:
    out[:] = bins_of_few(values, edges)


def bins_of_few(values: Any, edges: Floats) -> npt.NDArray[np.intp]:
    """The bin i of each value, edges[i] < value <= edges[i+1]; 0 is in the first."""
    bins: npt.NDArray[np.intp] = np.clip(np.searchsorted(edges, values) - 1, 0, len(edges) - 2)
    return bins


@kernel()
def add_many_to_cells(
    cell: Any, confidence: Any, correct: Any, weight: Any, counts: Any, sums: Any
) -> None:
    """:func:`add_to_cells`, compiled."""
    for i in range(len(cell)):
        w = weight[i] if len(weight) > 0 else 1.0
        add_one_to_cell(cell[i], confidence[i], correct[i], w, counts, sums)


@kernel()
def add_one_to_cell(k: int, c: float, correct: Any, w: float, counts: Any, sums: Any) -> None:
    """Add one sample to the counts and sums of its cell."""
    hit = 1.0 if correct else 0.0
    counts[k] += 1
    sums[k, 0] += w
    sums[k, 1] += w * c
    sums[k, 2] += w * hit
    sums[k, 3] += w * (c - hit) ** 2
    sums[k, 4] += w * (c * (1.0 - c))


def add_to_cells(
    cell: Any, confidence: Any, correct: Any, weight: Any, counts: Any, sums: Any
) -> None:
    """Add samples to the ``counts`` of their cells, and to ``sums``, (cells, 5) as in BinTable."""
    if not are_few(len(cell)):
        add_many_to_cells(cell, confidence, correct, weight, counts, sums)
        return
    counts += np.bincount(cell, minlength=len(counts))
    shared = weight if len(weight) else np.ones(len(cell))
    variance = confidence * (1.0 - confidence)
    values = (1.0, confidence, correct, (confidence - correct) ** 2, variance)
    for column, each in enumerate(values):
        sums[:, column] += np.bincount(cell, weights=shared * each, minlength=len(counts))


@over_rows
def width_bin_sums(
    start: int, stop: int, confidence: Any, correct: Any, weight: Any, edges: Any
) -> Any:
    """Counts and sums of equal-width bins, (bins, 6), as :func:`add_to_cells` adds them."""
    table = np.zeros((len(edges) - 1, 6))
    counts, sums = table[:, 0], table[:, 1:]
    for i in range(start, stop):
        c, w = confidence[i], weight[i] if len(weight) > 0 else 1.0
        add_one_to_cell(bin_of(c, edges), c, correct[i], w, counts, sums)
    return table


@width_bin_sums.for_few
def _width_bin_sums_of_few(confidence: Floats, correct: Any, weight: Floats, edges: Floats) -> Any:
    table = np.zeros((len(edges) - 1, 6))
    cell = bins_of_few(confidence, edges)
    add_to_cells(cell, confidence, correct, weight, table[:, 0], table[:, 1:])
    return table


@kernel()
def sketch_cells(
    confidence: Any, digits: int, halvings: int, lowest: Any, highest: Any, cells: Any
) -> None:
    """The cell of each confidence in ``EqualMassSketch``, and the extremes of every cell.

    The distance to 0 or 1 is 2^n (1 + m). Its bits hold n, then m; ``digits`` bits of m count.
    """
    last = halvings << digits
    for i in range(len(confidence)):
        c = confidence[i]
        low = c <= 0.5
        bits = bits_of(c if low else 1.0 - c)
        step = (((bits >> 52) - 1022 + halvings) << digits) + (
            (bits & 0xFFFFFFFFFFFFF) >> (52 - digits)
        )
        step = max(0, min(step, last))
        k = step if low else 2 * last + 1 - step
        cells[i] = k
        lowest[k] = min(lowest[k], c)
        highest[k] = max(highest[k], c)
