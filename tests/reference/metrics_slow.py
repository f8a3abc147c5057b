r"""The metrics in plain loops: slow, obvious, and the judge.

Inputs are lists or arrays: `probs` n rows of K probabilities, `labels` n class numbers,
`confidence` n numbers in [0, 1], `correct` n zeros and ones, `weights` n numbers >= 0 or None.
Every input number is read as the exact float64 it converts to, also a float32. The predicted class
is the first argmax. Sums are `math.fsum` or exact fractions, so row order cannot change a digit.

A weight w that is a whole number means that the sample is there w times: this holds for every
function with a `weights` argument. A sample of weight 0 is as good as absent. Functions without
the argument have no weighted form here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr

Bin = tuple[float, float, float]

NAN = math.nan
INF = math.inf


# --- inputs and means --------------------------------------------------------------------------


def _floats(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values]


def _rows(probs: Iterable[Iterable[Any]]) -> list[list[float]]:
    return [_floats(row) for row in probs]


def _labels(labels: Iterable[Any]) -> list[int]:
    return [int(label) for label in labels]


def _weights(n: int, weights: Iterable[Any] | None) -> list[float]:
    if weights is None:
        weights = [1.0] * n
    weights = _floats(weights)
    if len(weights) != n or any(not 0 <= w < INF for w in weights) or not any(weights):
        raise ValueError(f"expected {n} finite weights >= 0, one of them > 0, got {weights}")
    return weights


def _mean(values: Sequence[float], weights: Iterable[Any] | None = None) -> float:
    """sum w v / sum w, where a sample of weight 0 is left out even when its value is inf."""
    weights = _weights(len(values), weights)
    terms = [w * v for w, v in zip(weights, values, strict=True) if w > 0]
    return math.fsum(terms) / math.fsum(weights)


def _argmax(row: Sequence[float]) -> int:
    return row.index(max(row))  # index() finds the first


def top_label(
    probs: Iterable[Iterable[Any]], labels: Iterable[Any]
) -> tuple[list[float], list[float]]:
    """The largest probability of each row, and 1.0 where its first argmax is the label."""
    confidence, correct = [], []
    for row, label in zip(_rows(probs), _labels(labels), strict=True):
        confidence.append(max(row))
        correct.append(1.0 if _argmax(row) == label else 0.0)
    return confidence, correct


# --- bins --------------------------------------------------------------------------------------


def width_bins(
    confidence: Iterable[Any],
    correct: Iterable[Any],
    n_bins: int,
    weights: Iterable[Any] | None = None,
) -> list[Bin]:
    """(sum w, sum w confidence, sum w correct) of n_bins equal-width bins, empty ones included.

    Bin i holds edge[i] < c <= edge[i+1], edge[i] being the float64 i / n_bins; 0 goes to the first.
    """
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    edges = [Fraction(i / n_bins) for i in range(n_bins + 1)]
    members: list[list[Bin]] = [[] for _ in range(n_bins)]
    for c, hit, w in zip(confidence, correct, weights, strict=True):
        if not 0 <= c <= 1:
            raise ValueError(f"expected a confidence in [0, 1], got {c}")
        exact = Fraction(c)
        place = 0
        for i in range(n_bins):
            if edges[i] < exact <= edges[i + 1]:
                place = i
        members[place].append((w, w * c, w * hit))
    return [
        (
            math.fsum(w for w, _, _ in inside),
            math.fsum(c for _, c, _ in inside),
            math.fsum(hit for _, _, hit in inside),
        )
        for inside in members
    ]


def mass_bins(
    confidence: Iterable[Any],
    correct: Iterable[Any],
    n_bins: int,
    weights: Iterable[Any] | None = None,
) -> list[Bin]:
    """(sum w, sum w confidence, sum w correct) of equal-mass bins, in order of confidence.

    Samples of one confidence are pooled into a group; a bin that takes a part of a group takes the
    same part of its correct answers.

    - Weights all whole: the samples are repeated, then n of them make min(n, n_bins) bins, the
      first n % n_bins one larger.
    - Any weight not whole: n_bins bins whose edges are exactly at total * i / n_bins.
    """
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    samples = list(zip(confidence, correct, weights, strict=True))

    if all(w == int(w) for w in weights):
        samples = [(c, hit, 1.0) for c, hit, w in samples for _ in range(int(w))]
        n = len(samples)
        bins = min(n, n_bins)
        cuts = [Fraction(0)]
        for i in range(bins):
            cuts.append(cuts[-1] + n // bins + (1 if i < n % bins else 0))
    else:
        total = sum((Fraction(w) for w in weights), Fraction(0))
        cuts = [total * Fraction(i, n_bins) for i in range(n_bins + 1)]

    return _cut(_groups(samples), cuts)


def _groups(
    samples: Iterable[tuple[float, float, float]],
) -> list[tuple[Fraction, Fraction, Fraction]]:
    """(confidence, total weight, weight of the correct) of each distinct confidence, increasing."""
    groups: list[list[tuple[float, float, float]]] = []
    for sample in sorted(sample for sample in samples if sample[2] > 0):
        if groups and _same(groups[-1][-1][0], sample[0]):
            groups[-1].append(sample)
        else:
            groups.append([sample])
    found = []
    for group in groups:
        mass = sum((Fraction(w) for _, _, w in group), Fraction(0))
        claimed = sum((Fraction(c) * Fraction(w) for c, _, w in group), Fraction(0))
        hits = sum((Fraction(hit) * Fraction(w) for _, hit, w in group), Fraction(0))
        found.append((claimed / mass, mass, hits))
    return found


def _same(low: float, high: float) -> bool:
    """Whether two confidences differ by rounding alone.

    That is: by 12 digits of their odds, or by the last bits of a float, which next to 1, where
    these are more than 8 digits of the odds, is a difference.
    """
    c, distance = Fraction(low), Fraction(high) - Fraction(low)
    last_bits = min(Fraction(1, 2**52), (1 - c) / 2**26)
    return distance <= c * (1 - c) / 2**40 + last_bits


def _cut(
    groups: Sequence[tuple[Fraction, Fraction, Fraction]], cuts: Sequence[Fraction]
) -> list[Bin]:
    """Lay the groups side by side on a line and cut it; a group cut in two splits in proportion."""
    bins = []
    for low, high in pairwise(cuts):
        weight = confidence_sum = correct_sum = start = Fraction(0)
        for c, mass, hits in groups:
            stop = start + mass
            part = min(stop, high) - max(start, low)
            if part > 0:
                weight += part
                confidence_sum += part * c
                correct_sum += part * hits / mass
            start = stop
        bins.append((float(weight), float(confidence_sum), float(correct_sum)))
    return bins


# --- calibration errors ------------------------------------------------------------------------


def _error_of_bins(bins: Sequence[Bin], norm: str) -> float:
    """Norm of the gaps, mean confidence - accuracy, over the bins that are not empty."""
    total = math.fsum(weight for weight, _, _ in bins)
    shares, gaps = [], []
    for weight, confidence_sum, correct_sum in bins:
        if weight > 0:
            shares.append(weight / total)
            gaps.append(confidence_sum / weight - correct_sum / weight)
    if norm == "l1":
        return math.fsum(s * abs(gap) for s, gap in zip(shares, gaps, strict=True))
    if norm == "l2":
        return math.sqrt(math.fsum(s * gap**2 for s, gap in zip(shares, gaps, strict=True)))
    if norm == "max":
        return max(abs(gap) for gap in gaps)
    raise ValueError(f"expected norm 'l1', 'l2' or 'max', got {norm!r}")


def ece(
    confidence: Iterable[Any],
    correct: Iterable[Any],
    n_bins: int = 15,
    norm: str = "l1",
    weights: Iterable[Any] | None = None,
) -> float:
    """sum_b share_b |gap_b| (l1), sqrt(sum_b share_b gap_b^2) (l2) or max_b |gap_b| (max)."""
    return _error_of_bins(width_bins(confidence, correct, n_bins, weights), norm)


def mce(
    confidence: Iterable[Any],
    correct: Iterable[Any],
    n_bins: int = 15,
    weights: Iterable[Any] | None = None,
) -> float:
    """The largest |gap| of an equal-width bin that is not empty."""
    return ece(confidence, correct, n_bins, "max", weights)


def ada_ece(
    confidence: Iterable[Any],
    correct: Iterable[Any],
    n_bins: int = 15,
    norm: str = "l1",
    weights: Iterable[Any] | None = None,
) -> float:
    """The same norms as `ece` over equal-mass bins."""
    return _error_of_bins(mass_bins(confidence, correct, n_bins, weights), norm)


def classwise_ece(
    probs: Iterable[Iterable[Any]],
    labels: Iterable[Any],
    n_bins: int = 15,
    weights: Iterable[Any] | None = None,
) -> float:
    """mean_k of the equal-width ECE of column k against 1[y = k]."""
    rows, labels = _rows(probs), _labels(labels)
    weights = _weights(len(rows), weights)
    errors = []
    for k in range(len(rows[0])):
        column = [row[k] for row in rows]
        is_k = [1.0 if label == k else 0.0 for label in labels]
        errors.append(ece(column, is_k, n_bins, "l1", weights))
    return math.fsum(errors) / len(errors)


def debiased_ece(confidence: Iterable[Any], correct: Iterable[Any], n_bins: int = 15) -> float:
    """sqrt(max(0, sum_b share_b (gap_b^2 - acc_b (1 - acc_b) / (n_b - 1)))), equal-mass bins.

    Kumar et al. 2019. A bin of one sample has no variance estimate: it adds gap^2, uncorrected.
    """
    bins = mass_bins(confidence, correct, n_bins)
    total = math.fsum(n for n, _, _ in bins)
    terms = []
    for n, confidence_sum, correct_sum in bins:
        accuracy = correct_sum / n
        gap = confidence_sum / n - accuracy
        noise = accuracy * (1 - accuracy) / (n - 1) if n > 1 else 0.0
        terms.append(n / total * (gap**2 - noise))
    return math.sqrt(max(0.0, math.fsum(terms)))


def ks_error(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """max over the distinct values c of |sum_{conf_i <= c} w_i (conf_i - correct_i)| / sum w."""
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    sums = []
    values = sorted(set(confidence))
    for c, above in zip(values, [*values[1:], math.inf], strict=True):
        if above < math.inf and _same(c, above):
            continue
        inside = [i for i, other in enumerate(confidence) if other <= c]
        over = [weights[i] * confidence[i] for i in inside]
        under = [-weights[i] * correct[i] for i in inside]
        sums.append(abs(math.fsum(over + under)))
    return max(sums) / math.fsum(weights)


def confidence_gap(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """Mean confidence minus accuracy."""
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    return _mean(confidence, weights) - _mean(correct, weights)


# --- kernel calibration errors -----------------------------------------------------------------


def _laplace(r: float, other: float) -> float:
    return math.exp(-abs(r - other) / 0.4)


def mmce(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """sqrt(mean_ij (c_i - r_i)(c_j - r_j) k(r_i, r_j)) over all i, j; k = exp(-|r - r'| / 0.4)."""
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    samples = list(zip(confidence, correct, weights, strict=True))
    terms = []
    for r, c, w in samples:
        for r2, c2, w2 in samples:
            terms.append(w * w2 * (c - r) * (c2 - r2) * _laplace(r, r2))
    return math.sqrt(max(0.0, math.fsum(terms) / math.fsum(weights) ** 2))


def mmce_weighted(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """The root of MMCE_w^2: wrong and correct samples each averaged over their own number.

    sum_{wrong i, j} r_i r_j k / (m-n)^2 + sum_{right i, j} (1-r_i)(1-r_j) k / n^2
    - 2 sum_{right i, wrong j} (1-r_i) r_j k / (n (m-n)); no right (or wrong) samples: terms 0.
    """
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    samples = list(zip(confidence, correct, weights, strict=True))
    right = [(r, w) for r, c, w in samples if c == 1 and w > 0]
    wrong = [(r, w) for r, c, w in samples if c == 0 and w > 0]
    n_correct = math.fsum(w for _, w in right)
    n_wrong = math.fsum(w for _, w in wrong)
    square = []
    for r, w in wrong:
        for r2, w2 in wrong:
            square.append(w * w2 * r * r2 * _laplace(r, r2) / n_wrong**2)
    for r, w in right:
        for r2, w2 in right:
            square.append(w * w2 * (1 - r) * (1 - r2) * _laplace(r, r2) / n_correct**2)
    for r, w in right:
        for r2, w2 in wrong:
            square.append(-2 * w * w2 * (1 - r) * r2 * _laplace(r, r2) / (n_correct * n_wrong))
    return math.sqrt(max(0.0, math.fsum(square)))


def smooth_ece(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """The sigma with smECE_sigma = sigma (Błasiok & Nakkiran 2023), to about 1e-6; 5e-6 near 0.

    Bisection over (0, 1]: smECE_sigma does not increase with sigma, is at most 1, and bisection
    never looks below half the answer, so the kernels it integrates never get much narrower.
    """
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    residuals: dict[float, list[float]] = {}
    for c, hit, w in zip(confidence, correct, weights, strict=True):
        residuals.setdefault(c, []).extend([w * c, -w * hit])
    total = math.fsum(weights)
    masses = {c: math.fsum(terms) / total for c, terms in sorted(residuals.items())}
    if not any(masses.values()):
        return 0.0
    low, high = 0.0, 1.0
    while high - low > 1e-7 and high > 1e-5:
        middle = (low + high) / 2
        if smooth_ece_at(masses, middle) > middle:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def smooth_ece_at(masses: dict[float, float], sigma: float) -> float:
    """smECE_sigma = int_0^1 |sum_c masses[c] K(t, c)| dt, K the Gaussian reflected at 0 and 1.

    K(t, c) = sum_k normal(t; c + 2k, sigma) + normal(t; -c + 2k, sigma). Its antiderivative is a
    sum of normal distribution functions, so each cell [t, t + h] contributes |R(t + h) - R(t)|,
    which is exact wherever the integrand keeps its sign within the cell.
    """
    cells = min(100_000, max(2_000, math.ceil(40 / sigma)))
    grid = np.linspace(0.0, 1.0, cells + 1)
    antiderivative = np.zeros(cells + 1)
    reach = 10 * sigma
    k_max = math.ceil(reach / 2) + 1
    for c, mass in masses.items():
        for k in range(-k_max, k_max + 1):
            for image in (c + 2 * k, -c + 2 * k):
                if -reach < image < 1 + reach:
                    antiderivative += mass * ndtr((grid - image) / sigma)
    return math.fsum(np.abs(np.diff(antiderivative)))


# --- proper losses, errors and entropy ---------------------------------------------------------


def nll_rows(probs: Iterable[Iterable[Any]], labels: Iterable[Any]) -> list[float]:
    """-log p of the true class, row by row; inf where p = 0."""
    return focal_rows(probs, labels, 0.0)


def nll(
    probs: Iterable[Iterable[Any]], labels: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """Mean -log p of the true class; inf as soon as one of them has p = 0."""
    return _mean(nll_rows(probs, labels), weights)


def focal_rows(probs: Iterable[Iterable[Any]], labels: Iterable[Any], gamma: float) -> list[float]:
    """-(1 - p)^gamma log p of the true class, row by row; inf where p = 0."""
    values = []
    for row, label in zip(_rows(probs), _labels(labels), strict=True):
        p = row[label]
        values.append(-((1 - p) ** gamma) * math.log(p) if p > 0 else INF)
    return values


def focal(
    probs: Iterable[Iterable[Any]],
    labels: Iterable[Any],
    gamma: float,
    weights: Iterable[Any] | None = None,
) -> float:
    """Mean -(1 - p)^gamma log p of the true class."""
    return _mean(focal_rows(probs, labels, gamma), weights)


def brier(
    probs: Iterable[Iterable[Any]], labels: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """Mean over samples of sum_k (q_k - 1[k = y])^2."""
    values = []
    for row, label in zip(_rows(probs), _labels(labels), strict=True):
        values.append(math.fsum((q - (k == label)) ** 2 for k, q in enumerate(row)))
    return _mean(values, weights)


def brier_decomposition(
    probs: Iterable[Iterable[Any]],
    labels: Iterable[Any],
    n_bins: int = 15,
    weights: Iterable[Any] | None = None,
) -> tuple[float, float, float]:
    """(reliability, resolution, uncertainty), summed over classes k and equal-width bins b.

    sum share_kb (mean p_kb - mean y_kb)^2, sum share_kb (mean y_kb - mean y_k)^2 and
    sum_k mean y_k (1 - mean y_k). Brier = reliability - resolution + uncertainty exactly when
    each bin holds a single value of p; otherwise the spread within bins is missing.
    """
    rows, labels = _rows(probs), _labels(labels)
    weights = _weights(len(rows), weights)
    reliability, resolution, uncertainty = [], [], []
    for k in range(len(rows[0])):
        column = [row[k] for row in rows]
        is_k = [1.0 if label == k else 0.0 for label in labels]
        base = _mean(is_k, weights)
        uncertainty.append(base * (1 - base))
        for weight, p_sum, y_sum in width_bins(column, is_k, n_bins, weights):
            if weight > 0:
                share = weight / math.fsum(weights)
                reliability.append(share * (p_sum / weight - y_sum / weight) ** 2)
                resolution.append(share * (y_sum / weight - base) ** 2)
    return math.fsum(reliability), math.fsum(resolution), math.fsum(uncertainty)


def error_rate(
    probs: Iterable[Iterable[Any]], labels: Iterable[Any], weights: Iterable[Any] | None = None
) -> float:
    """Share of rows whose first argmax is not the label."""
    _, correct = top_label(probs, labels)
    return _mean([1 - c for c in correct], weights)


def top_k_error(
    probs: Iterable[Iterable[Any]],
    labels: Iterable[Any],
    k: int,
    weights: Iterable[Any] | None = None,
) -> float:
    """Share of rows whose label has k or more classes ahead of it.

    Ahead: strictly more probable, or equally probable with a smaller index.
    """
    values = []
    for row, label in zip(_rows(probs), _labels(labels), strict=True):
        ahead = 0
        for j, q in enumerate(row):
            if q > row[label] or (q == row[label] and j < label):
                ahead += 1
        values.append(0.0 if ahead < k else 1.0)
    return _mean(values, weights)


def entropy_rows(probs: Iterable[Iterable[Any]]) -> list[float]:
    """-sum_k q_k log q_k in nats, row by row; 0 log 0 = 0."""
    return [-math.fsum(q * math.log(q) for q in row if q > 0) for row in _rows(probs)]


def entropy(probs: Iterable[Iterable[Any]], weights: Iterable[Any] | None = None) -> float:
    """Mean of the row entropies."""
    return _mean(entropy_rows(probs), weights)


def kl(
    posterior: Iterable[Iterable[Any]],
    probs: Iterable[Iterable[Any]],
    weights: Iterable[Any] | None = None,
) -> float:
    """Mean of sum_k eta_k log(eta_k / q_k); 0 log 0 = 0, inf where eta_k > 0 and q_k = 0."""
    values = []
    for etas, row in zip(_rows(posterior), _rows(probs), strict=True):
        terms = []
        for eta, q in zip(etas, row, strict=True):
            if eta > 0:
                terms.append(eta * (math.log(eta) - math.log(q)) if q > 0 else INF)
        values.append(math.fsum(terms))
    return _mean(values, weights)


# --- correct and wrong ---------------------------------------------------------------------------


def split_by_correct(values: Iterable[Any], correct: Iterable[Any]) -> tuple[float, float]:
    """(mean over the correct samples, mean over the wrong ones); nan where there are none."""
    pairs = list(zip(_floats(values), _floats(correct), strict=True))
    right = [value for value, c in pairs if c == 1]
    wrong = [value for value, c in pairs if c == 0]
    return (_mean(right) if right else NAN, _mean(wrong) if wrong else NAN)


def s99(
    confidence: Iterable[Any], correct: Iterable[Any], weights: Iterable[Any] | None = None
) -> tuple[float, float]:
    """(share of samples with confidence > 0.99 strictly, their accuracy or nan)."""
    confidence, correct = _floats(confidence), _floats(correct)
    weights = _weights(len(confidence), weights)
    above = [(hit, w) for c, hit, w in zip(confidence, correct, weights, strict=True) if c > 0.99]
    mass = math.fsum(w for _, w in above)
    share = mass / math.fsum(weights)
    return share, (math.fsum(w * hit for hit, w in above) / mass if mass > 0 else NAN)


def aurc(confidence: Iterable[Any], correct: Iterable[Any]) -> float:
    """mean over k = 1..n of (errors among the k most confident) / k.

    Samples of one confidence have no order: each of them brings the group's mean error.
    """
    samples = [(c, hit, 1.0) for c, hit in zip(_floats(confidence), _floats(correct), strict=True)]
    errors = Fraction(0)
    risks: list[Fraction] = []
    for _, size, hits in reversed(_groups(samples)):
        for _ in range(int(size)):
            errors += (size - hits) / size
            risks.append(errors / (len(risks) + 1))
    return math.fsum(risks) / len(risks)
