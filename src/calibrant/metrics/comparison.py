"""Paired comparison of two models on the same samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibrant import _inputs
from calibrant._tables import json_value
from calibrant._types import Array, RandomState
from calibrant.metrics import intervals
from calibrant.metrics.registry import METRICS
from calibrant.metrics.resampling import BINNED, ResampledMetrics, plan
from calibrant.metrics.samples import samples_from_scores

PAIRED_METRICS = ("ece", "ada_ece", "nll", "brier", "error_rate")
FIGURES = ("a", "b", "difference", "low", "high")
ROUNDINGS = 4
"""Rounding errors of a probability by which a metric of two models may differ: the scores of each
are rounded, and so is what is computed from them."""


@dataclass(frozen=True)
class Difference:
    """One metric of two models on the same samples: a minus b, with its interval."""

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    rounding: float = 0.0
    """Largest difference that can come from rounding."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``not distinguishable``: how a compares with b."""
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return "not distinguishable"
        if abs(self.difference) <= self.rounding:
            return "not distinguishable"
        return "better" if self.high < 0.0 else "worse"

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.name}: a {self.a:.4f}, b {self.b:.4f}: no interval."
        interval = f"a - b = {self.difference:+.4f}, interval {self.low:+.4f} to {self.high:+.4f}"
        words = {
            "better": "a is better than b",
            "worse": "a is worse than b",
            "not distinguishable": "a and b are not distinguishable",
        }
        return f"{self.name}: {words[self.verdict]} ({self.a:.4f}, {self.b:.4f}; {interval})."


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`paired_difference`: print it, or index it by metric."""

    n: int
    level: float
    n_resamples: int
    seed: int
    differences: tuple[Difference, ...]

    def __getitem__(self, name: str) -> Difference:
        for row in self.differences:
            if row.name == name:
                return row
        known = ", ".join(row.name for row in self.differences)
        raise KeyError(f"{name} was not compared; there are {known}")

    def __str__(self) -> str:
        head = f"{self.n} samples, {100 * self.level:g}% intervals, lower is better"
        return "\n".join([head, *map(str, self.differences)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with None for infinities and NaN."""
        return {
            "n": self.n,
            "level": self.level,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "differences": {
                row.name: {
                    **{key: json_value(getattr(row, key)) for key in FIGURES},
                    "verdict": row.verdict,
                }
                for row in self.differences
            },
        }


def paired_difference(
    probs_a: Array = None,
    probs_b: Array = None,
    labels: Array = None,
    *,
    logits_a: Array = None,
    logits_b: Array = None,
    metrics: Sequence[str] = PAIRED_METRICS,
    n_bins: int = 15,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
) -> Comparison:
    r"""Compare two models on the same samples: is the difference more than noise?

    Both models are resampled together, so the difficulty of a sample, which they share, cancels.
    The interval is :math:`[d - q_{0.975}, d - q_{0.025}]`, with the observed difference d and the
    quantiles q of the deviation of resampled differences from the truth. Noise raises a calibration
    error by an amount that depends on the truth. The interval of a calibration error therefore
    spans two extremes, calibrated models and models as miscalibrated as observed, and is widened by
    15% for small samples.

    A difference is called significant only if rounding cannot explain it: if it exceeds four
    rounding errors of the coarser scores, times the metric if that is above 1. A rounding error is
    the machine epsilon :math:`\varepsilon` of their type for probabilities, and of a logit z it is
    :math:`\varepsilon |z|`, here the mean over the largest logit of each row. Half precision is
    computed in float32, and its values are taken as exact.

    Args:
        probs_a: Probabilities of model a, or pass ``logits_a``.
        probs_b: Probabilities of model b for the same rows, or pass ``logits_b``.
        labels: One per row: class indices, or names.
        logits_a: Logits of model a.
        logits_b: Logits of model b.
        metrics: Names of metrics for which lower is better.
        n_bins: Number of bins of the calibration errors.
        sample_weight: Weight of each row.
        ignore_label: Rows with this label are left out.
        positive: The positive class, if the scores are one column and the labels not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        level: Confidence level of the intervals.
        n_resamples: Number of bootstrap resamples.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.

    Examples:
        >>> import numpy as np
        >>> import calibrant
        >>> rng = np.random.default_rng(0)
        >>> honest = rng.dirichlet([1.0, 1.0, 1.0], size=3000)
        >>> labels = (rng.random((3000, 1)) > honest.cumsum(axis=1)).sum(axis=1)
        >>> bold = honest**2 / (honest**2).sum(axis=1, keepdims=True)
        >>> calibrant.paired_difference(honest, bold, labels)["ece"].verdict
        'better'
    """
    options: dict[str, Any] = {
        "sample_weight": sample_weight,
        "ignore_label": ignore_label,
        "positive": positive,
        "classes": classes,
    }
    _inputs.same_rows(None, probs_a=probs_a, logits_a=logits_a, probs_b=probs_b, logits_b=logits_b)
    a = samples_from_scores(probs_a, labels, logits=logits_a, **options)
    b = samples_from_scores(probs_b, labels, logits=logits_b, **options)
    todo = plan(metrics, n_bins, level, n_resamples, random_state, len(a))
    return difference_of_resampled(ResampledMetrics(a, todo), ResampledMetrics(b, todo), todo.names)


def difference_of_resampled(
    a: ResampledMetrics, b: ResampledMetrics, names: Sequence[str], level: float | None = None
) -> Comparison:
    """:func:`paired_difference` of metrics that are already resampled, in the same way."""
    comparable = [name for name, each in METRICS.items() if each.lower_is_better]
    for name in names:
        _inputs.choice(name, "metrics", comparable)
    todo = a.todo if level is None else replace(a.todo, level=level)
    differences = tuple(_difference(name, a, b, todo.level) for name in names)
    return Comparison(len(a.samples), todo.level, todo.n_resamples, todo.seed, differences)


def _difference(name: str, a: ResampledMetrics, b: ResampledMetrics, level: float) -> Difference:
    value_a, value_b = a.value(name), b.value(name)
    observed = value_a - value_b
    if len(a.samples) < 2 or not math.isfinite(observed) or not a.has_interval(name):
        return Difference(name, value_a, value_b, observed, None, None)
    if name in BINNED:
        of_a, of_b = (intervals.deviations(*each.sums[name]) for each in (a, b))
        wider = intervals.WIDENING_OF_DIFFERENCE
        deviations = [wider * (at_a - at_b) for at_a, at_b in zip(of_a, of_b, strict=True)]
    else:
        deviations = [a.resampled(name) - b.resampled(name) - observed]
    ends = [intervals.mean_interval(values, level) for values in deviations]
    low = observed - max(upper for _, upper in ends)
    high = observed - min(lower for lower, _ in ends)
    size = max(1.0, abs(value_a), abs(value_b))
    rounding = ROUNDINGS * max(a.samples.rounding, b.samples.rounding) * size
    return Difference(name, value_a, value_b, observed, low, high, rounding)
