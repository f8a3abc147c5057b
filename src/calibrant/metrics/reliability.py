"""Reliability curves, histograms and risk curves, as data for plots, reports and notebooks.

A function computes a frozen dataclass, and ``calibrant.plots`` draws it. Every class is shown as a
table in a notebook, and ``to_dict`` converts it for JSON.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._tables import count_text, html_table, json_value
from calibrant._types import Array
from calibrant.metrics.binning import BinTable, EqualWidthBins, Floats, width_edges
from calibrant.metrics.calibration import MOST_BINS, error_of_table, mass_table, width_table
from calibrant.metrics.positive import positive
from calibrant.metrics.samples import ScoredSamples, samples_from_scores
from calibrant.metrics.scores import risk_by_coverage

BINNINGS = {"width": width_table, "mass": mass_table}
"""Bins of equal width, or with equal numbers of samples."""

MOST_ROWS = 30
"""Most rows of a table in a notebook; a longer one says how many are left out."""


@dataclass(frozen=True, eq=False)
class _Curve(ABC):
    """What all curves share: conversion for JSON, and a table for notebooks."""

    _head: ClassVar[Sequence[str]]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them: arrays as lists, NaN as None."""
        return {f.name: json_value(getattr(self, f.name)) for f in fields(self)}

    def _repr_html_(self) -> str:
        rows = self._rows()
        return html_table([self._head], rows, caption=self._caption(), most_rows=MOST_ROWS)

    @abstractmethod
    def _caption(self) -> str: ...

    @abstractmethod
    def _rows(self) -> list[Sequence[str]]: ...


@dataclass(frozen=True, eq=False)
class ReliabilityCurve(_Curve):
    """Confidence and accuracy of each bin, from the lowest confidence to the highest."""

    lower: Floats
    """Lower edge of each bin, exclusive; for equal mass the smallest confidence in it."""
    upper: Floats
    """Upper edge, inclusive; for equal mass the largest confidence in the bin."""
    count: Floats
    """Samples in the bin, or their total weight."""
    confidence: Floats
    """Mean confidence in the bin, NaN if it is empty."""
    accuracy: Floats
    """Accuracy in the bin, NaN if it is empty."""
    accuracy_low: Floats
    """Lower end of the interval of the accuracy, NaN if the bin is empty."""
    accuracy_high: Floats
    """Upper end of the interval."""
    n: float
    """Samples in all bins, or their total weight."""
    overall_confidence: float
    """Mean confidence of all samples."""
    overall_accuracy: float
    """Accuracy of all samples."""
    ece: float
    """Calibration error of these bins: the mean absolute gap, weighted by their shares."""
    binning: str
    """``"width"`` or ``"mass"``."""
    level: float
    """Confidence level of the intervals."""
    class_index: int | None = None
    """The class whose probability is the confidence; None for the predicted class."""

    _head: ClassVar = ("bin", "count", "confidence", "accuracy", "interval", "gap")

    @property
    def gap(self) -> Floats:
        """Mean confidence minus accuracy: positive is over-confident; NaN if a bin is empty."""
        return self.confidence - self.accuracy

    @property
    def full(self) -> npt.NDArray[np.bool_]:
        """Which bins hold samples."""
        return self.count > 0

    def _caption(self) -> str:
        of = "" if self.class_index is None else f" of class {self.class_index}"
        return (
            f"Reliability{of}: ECE {self.ece:.4f}, confidence {self.overall_confidence:.4f}, "
            f"accuracy {self.overall_accuracy:.4f}, n = {count_text(self.n)}, "
            f"bins of equal {self.binning}, {self.level:.4g} intervals"
        )

    def _rows(self) -> list[Sequence[str]]:
        return [
            (
                f"{self.lower[i]:.4f} to {self.upper[i]:.4f}",
                count_text(self.count[i]),
                f"{self.confidence[i]:.4f}",
                f"{self.accuracy[i]:.4f}",
                f"{self.accuracy_low[i]:.4f} to {self.accuracy_high[i]:.4f}",
                f"{self.gap[i]:+.4f}",
            )
            for i in np.flatnonzero(self.full)
        ]


@dataclass(frozen=True, eq=False)
class ConfidenceHistogram(_Curve):
    """Numbers of correct and of wrong predictions in bins of confidence.

    With ``class_index``, of samples of that class and of others, in bins of its probability.
    """

    edges: Floats
    """Edges of the equal-width bins, one more than there are bins."""
    correct: Floats
    """Correct predictions in each bin, or their total weight."""
    wrong: Floats
    """Wrong predictions in each bin, or their total weight."""
    class_index: int | None = None
    """The class whose probability is the confidence; None for the predicted class."""

    _head: ClassVar = ("bin", "correct", "wrong")

    @property
    def names(self) -> tuple[str, str]:
        """What the samples in ``correct`` and in ``wrong`` are."""
        k = self.class_index
        return ("correct", "wrong") if k is None else (f"of class {k}", "of other classes")

    def _caption(self) -> str:
        correct, wrong = (count_text(float(each.sum())) for each in (self.correct, self.wrong))
        if self.class_index is not None:
            return f"Probability of class {self.class_index}: {correct} of it, {wrong} of others"
        return f"Confidence of {correct} correct and {wrong} wrong predictions"

    def _rows(self) -> list[Sequence[str]]:
        return [
            (
                f"{self.edges[i]:.4f} to {self.edges[i + 1]:.4f}",
                count_text(self.correct[i]),
                count_text(self.wrong[i]),
            )
            for i in np.flatnonzero(self.correct + self.wrong > 0)
        ]


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve(_Curve):
    """Error rate among the most confident samples, by the share of samples kept."""

    coverage: Floats
    """Share of the samples (or of their weight) that is kept, ascending to 1."""
    risk: Floats
    """Error rate among those."""
    confidence: Floats
    """Confidence of the last sample that is kept: the threshold, descending."""
    aurc: float
    """Area under the curve: the mean risk over all coverages."""

    _head: ClassVar = ("coverage", "confidence at least", "risk")

    def _caption(self) -> str:
        return f"Risk at each coverage: AURC {self.aurc:.4f}, risk of all {self.risk[-1]:.4f}"

    def _rows(self) -> list[Sequence[str]]:
        tenths = np.searchsorted(self.coverage, np.arange(1, 11) / 10 - 1e-12)
        return [
            (f"{self.coverage[i]:.4f}", f"{self.confidence[i]:.4f}", f"{self.risk[i]:.4f}")
            for i in np.unique(np.minimum(tenths, len(self.coverage) - 1))
        ]


def reliability_curve(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    n_bins: int = 15,
    binning: str = "width",
    top_class: bool = False,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
) -> ReliabilityCurve:
    r"""Accuracy against confidence in bins, with Wilson's interval for each accuracy.

    For two classes: the rate of class 1 against its probability, over the whole of 0 to 1.

    .. math::
        \frac{\mathrm{acc}_b + z^2 / 2n_b}{1 + z^2/n_b} \pm \frac{z}{1 + z^2/n_b}
        \sqrt{\frac{\mathrm{acc}_b (1 - \mathrm{acc}_b)}{n_b} + \frac{z^2}{4 n_b^2}}

    Args:
        probs: Probabilities, classes on the last axis.
        labels: One per row: class indices, or names.
        logits: Scores before the softmax, instead of ``probs``.
        n_bins: Number of bins; with equal mass at most the number of samples.
        binning: ``"width"`` as :func:`calibrant.ece`, ``"mass"`` as :func:`calibrant.ada_ece`.
        top_class: For two classes too, the confidence of the predicted class, as papers show it.
        sample_weight: Weight of each row. It counts as a number of samples, in the interval too.
        ignore_label: Rows with this label are left out.
        positive: The positive class, if the scores are one column and the labels not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        level: Confidence level of the intervals, from 0 to 1.

    Returns:
        The bins, from the lowest confidence to the highest.

    References:
        DeGroot and Fienberg (1983); Niculescu-Mizil and Caruana (2005); Wilson (1927).

    Examples:
        >>> from calibrant import reliability_curve
        >>> probs = [[0.9, 0.1], [0.9, 0.1], [0.35, 0.65]]
        >>> reliability_curve(probs, [0, 1, 1], n_bins=5).count.tolist()
        [2.0, 0.0, 0.0, 1.0, 0.0]
        >>> curve = reliability_curve(probs, [0, 1, 1], n_bins=5, top_class=True)
        >>> curve.count.tolist()
        [0.0, 0.0, 0.0, 1.0, 2.0]
        >>> curve.accuracy[4], curve.accuracy_low[4].round(4), curve.accuracy_high[4].round(4)
        (np.float64(0.5), np.float64(0.0945), np.float64(0.9055))
        >>> round(curve.ece, 4)
        0.3833
    """
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
    )
    return reliability_of(samples, n_bins=n_bins, binning=binning, top_class=top_class, level=level)


def reliability_of(
    samples: ScoredSamples,
    *,
    n_bins: int = 15,
    binning: str = "width",
    top_class: bool = False,
    level: float = 0.95,
) -> ReliabilityCurve:
    """As :func:`reliability_curve`, for samples that are already checked."""
    column, class_index = _column(samples, top_class=top_class)
    table = BINNINGS[_inputs.choice(binning, "binning", tuple(BINNINGS))](column, n_bins)
    return reliability_of_table(table, binning=binning, level=level, class_index=class_index)


def _column(samples: ScoredSamples, *, top_class: bool) -> tuple[ScoredSamples, int | None]:
    """The probabilities to show, and their class: class 1 of two, None for the predicted class."""
    if top_class or samples.scores is None or samples.n_classes != 2:
        return samples, None
    return positive(samples), 1


def reliability_of_table(
    table: BinTable, *, binning: str, level: float = 0.95, class_index: int | None = None
) -> ReliabilityCurve:
    """As :func:`reliability_curve`, for bins that are already counted, such as those of a stream.

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics.binning import EqualWidthBins
        >>> bins = EqualWidthBins(5)
        >>> bins.update(np.array([0.9, 1.0, 0.3]), np.array([True, False, True]))
        >>> round(reliability_of_table(bins.table(), binning="width").ece, 4)
        0.5333
    """
    level = _inputs.level(level)
    accuracy = table.accuracy
    low, high = wilson_interval(accuracy, table.weight, level)
    return ReliabilityCurve(
        lower=table.lower,
        upper=table.upper,
        count=table.weight,
        confidence=table.confidence,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
        n=table.total,
        overall_confidence=float(table.confidence_sum.sum()) / table.total,
        overall_accuracy=float(table.correct_sum.sum()) / table.total,
        ece=error_of_table(table, "l1"),
        binning=binning,
        level=level,
        class_index=class_index,
    )


def wilson_interval(share: Floats, count: Floats, level: float) -> tuple[Floats, Floats]:
    r"""Wilson's score interval for a share observed among ``count`` samples; NaN for a NaN.

    With s = n / (n + z^2) it is the observed share shrunk towards one half,

    .. math:: s p + \tfrac{1-s}{2} \pm \sqrt{s (1-s) p (1-p) + \tfrac{(1-s)^2}{4}}.

    Unlike the normal interval it stays inside [0, 1], and its width is not 0 for shares of 0 and 1.

    References:
        Wilson (1927); Brown, Cai and DasGupta (2001).

    Examples:
        >>> import numpy as np
        >>> low, high = wilson_interval(np.array([0.0, 0.8]), np.array([10.0, 10.0]), 0.95)
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([0.0, 0.4902], [0.2775, 0.9433])
    """
    z = NormalDist().inv_cdf((1.0 + level) / 2.0) if level < 1.0 else math.inf
    own = np.divide(count, count + z**2, out=np.zeros(len(count)), where=count > 0)
    centre = own * share + (1.0 - own) / 2.0
    half = np.sqrt(
        np.maximum(0.0, own * (1.0 - own) * share * (1.0 - share) + (1.0 - own) ** 2 / 4)
    )
    # Rounding must not take the share out of the interval, or the interval out of [0, 1].
    low = np.clip(np.minimum(centre - half, share), 0.0, 1.0)
    high = np.clip(np.maximum(centre + half, share), 0.0, 1.0)
    return low, high


def classwise_curves(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    n_bins: int = 15,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
) -> tuple[ReliabilityCurve, ...]:
    r"""One curve per class: its frequency against its probability, in equal-width bins.

    .. math:: \overline{p}_{kb} \ \text{against} \ \overline{[y = k]}_{kb}

    The mean of their ``ece`` is :func:`calibrant.classwise_ece`. The arguments are those of
    :func:`reliability_curve`.

    References:
        Kull et al. (2019).

    Examples:
        >>> from calibrant.metrics.reliability import classwise_curves
        >>> first, second = classwise_curves([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1])
        >>> round(first.overall_confidence, 4), round(first.overall_accuracy, 4)
        (0.7333, 0.3333)
        >>> round(first.ece, 4), second.class_index
        (0.4, 1)
    """
    n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
    )
    curves = []
    for k, p in enumerate(samples.probs().T):
        bins = EqualWidthBins(n_bins)
        bins.update(np.minimum(p, 1.0), samples.need_labels() == k, samples.weight)
        curves.append(
            reliability_of_table(bins.table(), binning="width", level=level, class_index=k)
        )
    return tuple(curves)


def confidence_histogram(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    n_bins: int = 15,
    top_class: bool = False,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
) -> ConfidenceHistogram:
    r"""Numbers of correct and of wrong predictions in equal-width bins of confidence.

    For two classes: of samples of class 1 and of class 0, in bins of P(class 1).

    .. math:: \#\{i : \mathrm{conf}_i \in b, \, \hat y_i = y_i\}, \quad
        \#\{i : \mathrm{conf}_i \in b, \, \hat y_i \ne y_i\}

    The arguments are those of :func:`reliability_curve`.

    References:
        Mukhoti et al. (2020), Fig. 2.

    Examples:
        >>> from calibrant.metrics.reliability import confidence_histogram
        >>> probs = [[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]]
        >>> histogram = confidence_histogram(probs, [0, 1, 1], n_bins=2, top_class=True)
        >>> histogram.correct.tolist(), histogram.wrong.tolist()
        ([0.0, 2.0], [0.0, 1.0])
    """
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
    )
    return histogram_of(samples, n_bins=n_bins, top_class=top_class)


def histogram_of(
    samples: ScoredSamples, *, n_bins: int = 15, top_class: bool = False
) -> ConfidenceHistogram:
    """As :func:`confidence_histogram`, for samples that are already checked."""
    column, class_index = _column(samples, top_class=top_class)
    return histogram_of_table(width_table(column, n_bins), class_index=class_index)


def histogram_of_table(table: BinTable, *, class_index: int | None = None) -> ConfidenceHistogram:
    """As :func:`confidence_histogram`, for equal-width bins that are already counted."""
    return ConfidenceHistogram(
        edges=width_edges(len(table.weight)),
        correct=table.correct_sum,
        wrong=table.weight - table.correct_sum,
        class_index=class_index,
    )


def risk_coverage_curve(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
) -> RiskCoverageCurve:
    r"""Error rate among the most confident samples, by the share of samples kept.

    .. math:: \mathrm{risk}(k/n) = \frac{\text{errors among the k most confident}}{k}

    It has one point for each row, from the most confident to the least. Within a group of equal
    confidence, errors are spread evenly. With weights, coverage is the share of weight. The
    arguments are those of :func:`reliability_curve`.

    References:
        Geifman and El-Yaniv (2017).

    Examples:
        >>> from calibrant.metrics.reliability import risk_coverage_curve
        >>> curve = risk_coverage_curve([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        >>> curve.coverage.tolist(), curve.risk.tolist(), curve.aurc
        ([0.5, 1.0], [0.0, 0.5], 0.25)
    """
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
    )
    return risk_coverage_of(samples)


def risk_coverage_of(samples: ScoredSamples) -> RiskCoverageCurve:
    """As :func:`risk_coverage_curve`, for samples that are already checked."""
    steps = risk_by_coverage(samples)
    return RiskCoverageCurve(
        coverage=steps.covered / steps.covered[-1],
        risk=steps.risk,
        confidence=steps.confidence,
        aurc=steps.mean_risk(),
    )
