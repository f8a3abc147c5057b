"""Calibration errors: the difference between confidence and accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant import _inputs
from calibrant.metrics.binning import (
    BinTable,
    EqualWidthBins,
    equal_mass_table,
    group_starts,
    width_edges,
)
from calibrant.metrics.registry import metric
from calibrant.metrics.samples import Floats, ScoredSamples

NORMS = ("l1", "l2", "max")
MOST_BINS = range(1, 100_001)


def width_table(samples: ScoredSamples, n_bins: int) -> BinTable:
    """Equal-width bins of the samples' confidence."""
    bins = EqualWidthBins(_inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS))
    bins.update(samples.confidence, samples.correct, samples.weight)
    return bins.table()


def mass_table(samples: ScoredSamples, n_bins: int) -> BinTable:
    """Equal-mass bins of the samples' confidence."""
    n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
    return equal_mass_table(samples.confidence, samples.correct, n_bins, samples.weight)


def error_of_table(table: BinTable, norm: str) -> float:
    """Norm of the gaps between confidence and accuracy of the bins."""
    norm = _inputs.choice(norm, "norm", NORMS)
    gap, share = np.abs(table.gap), table.share
    if norm == "l1":
        return float((share * gap).sum())
    return float(np.sqrt((share * gap**2).sum())) if norm == "l2" else float(gap.max())


@metric(lower_is_better=True)
def ece(samples: ScoredSamples, *, n_bins: int = 15, norm: str = "l1") -> float:
    r"""Expected calibration error over equal-width bins of confidence.

    .. math:: \sum_b \frac{n_b}{n} \, |\mathrm{conf}(b) - \mathrm{acc}(b)|

    ``norm="l2"`` is the root of the mean squared gap, ``"max"`` the largest gap. Bin i of M holds
    i/M < confidence <= (i+1)/M, with confidence 0 in the first.

    References:
        Naeini et al. (2015); Guo et al. (2017).

    Examples:
        >>> from calibrant import ece
        >>> round(ece([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.4
    """
    return error_of_table(width_table(samples, n_bins), norm)


@metric(lower_is_better=True)
def mce(samples: ScoredSamples, *, n_bins: int = 15) -> float:
    r"""Maximum calibration error: the largest gap of any non-empty equal-width bin.

    .. math:: \max_b \, |\mathrm{conf}(b) - \mathrm{acc}(b)|

    A bin with a single sample is enough to make it large: look at the counts too.

    References:
        Naeini et al. (2015).

    Examples:
        >>> from calibrant import mce
        >>> round(mce([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.4
    """
    return error_of_table(width_table(samples, n_bins), "max")


@metric(lower_is_better=True)
def ada_ece(samples: ScoredSamples, *, n_bins: int = 15, norm: str = "l1") -> float:
    r"""Calibration error over equal-mass bins: each holds the same number of samples.

    .. math:: \sum_b \frac{n_b}{n} \, |\mathrm{conf}(b) - \mathrm{acc}(b)|

    Bins are cut by rank, their sizes differ by at most one, and every sample counts. Tied
    confidences that straddle an edge are divided between both sides, so row order does not matter.

    References:
        Nguyen and O'Connor (2015); Mukhoti et al. (2020), AdaECE.

    Examples:
        >>> from calibrant import ada_ece
        >>> round(ada_ece([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1], n_bins=2), 4)
        0.1333
    """
    return error_of_table(mass_table(samples, n_bins), norm)


@metric(lower_is_better=True)
def classwise_ece(samples: ScoredSamples, *, n_bins: int = 15) -> float:
    r"""Equal-width calibration error of each class's probability, averaged over the classes.

    .. math:: \frac1K \sum_k \sum_b \frac{n_{kb}}{n} \, |\overline{p}_{kb} - \overline{y}_{kb}|

    References:
        Kull et al. (2019).

    Examples:
        >>> from calibrant import classwise_ece
        >>> round(classwise_ece([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.4
    """
    return float(np.abs(class_sums(samples, n_bins).gaps).sum(axis=1).mean() / samples.total)


@dataclass(frozen=True)
class ClassSums:
    """Sums over samples for each class k, which can be added."""

    predicted: Floats
    """Of p_k, by bin of p_k: (K, bins)."""
    observed: Floats
    """Of [label is k], by bin of p_k: (K, bins)."""
    variance: Floats
    """Of w^2 p_k (1 - p_k), the variance of the label of a calibrated model: (K,)."""

    @property
    def gaps(self) -> Floats:
        """Of p_k - [label is k], by bin of p_k: (K, bins)."""
        return self.predicted - self.observed

    def __add__(self, other: ClassSums) -> ClassSums:
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return ClassSums(*(a + b for a, b in parts))


def class_sums(samples: ScoredSamples, n_bins: int) -> ClassSums:
    """The sums of the samples, in equal-width bins."""
    from calibrant.metrics import kernels

    n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
    weight = np.empty(0) if samples.weight is None else samples.weight
    sums: Floats = kernels.class_bin_sums.sum(
        samples.need_scores(), samples.labels, weight, samples.from_logits, width_edges(n_bins)
    )
    return ClassSums(sums[:n_bins].T, sums[n_bins:-1].T, sums[-1])


@metric(lower_is_better=True)
def debiased_ece(samples: ScoredSamples, *, n_bins: int = 15) -> float:
    r"""Root-mean-square error over equal-mass bins, corrected for sampling noise.

    .. math::
        \sqrt{\max\Big(0, \sum_b \tfrac{n_b}{n} \Big(\mathrm{gap}_b^2
        - \frac{\mathrm{acc}_b (1 - \mathrm{acc}_b)}{n_b - 1}\Big)\Big)}

    Bins with one sample are not corrected. Weights count as numbers of samples.

    References:
        Kumar, Liang and Ma (2019).

    Examples:
        >>> from calibrant.metrics import debiased_ece
        >>> round(debiased_ece([[0.9, 0.1]] * 4, [0, 0, 0, 1], n_bins=1), 4)
        0.0
    """
    table = mass_table(samples, n_bins)
    accuracy = table.accuracy
    noise = accuracy * (1.0 - accuracy) / np.maximum(table.weight - 1.0, 1e-300)
    squared = table.gap**2 - np.where(table.weight > 1.0, noise, 0.0)
    return float(np.sqrt(max(0.0, float((table.share * squared).sum()))))


@metric(lower_is_better=True)
def ks_error(samples: ScoredSamples) -> float:
    r"""Kolmogorov-Smirnov calibration error: the largest gap between two running sums.

    .. math::
        \max_c \Big| \frac1n \sum_{\mathrm{conf}_i \le c}
        (\mathrm{conf}_i - \mathrm{correct}_i) \Big|

    It has no bins to choose.

    References:
        Gupta et al. (2021).

    Examples:
        >>> from calibrant.metrics import ks_error
        >>> round(ks_error([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.1333
    """
    order = np.argsort(samples.confidence)
    confidence = samples.confidence[order]
    gap = samples.gap if samples.weight is None else samples.gap * samples.weight
    running = np.cumsum(gap[order])
    group_ends = np.append(group_starts(confidence)[1:], True)
    return float(np.abs(running[group_ends]).max() / samples.total)


@metric
def confidence_gap(samples: ScoredSamples) -> float:
    r"""Mean confidence minus accuracy: positive is over-confident, negative under-confident.

    .. math:: \frac1n \sum_i (\mathrm{conf}_i - \mathrm{correct}_i)

    Its absolute value is a lower bound of every calibration error over bins.

    Examples:
        >>> from calibrant.metrics import confidence_gap
        >>> round(confidence_gap([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.1333
    """
    return samples.mean(samples.gap)
