"""Every metric on redrawn samples, by the cheapest way that it allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.metrics import intervals
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import Floats, Samples
from calibrant.metrics.scores import SURE, brier_rows

BINNED = ("ece", "ada_ece", "mce", "classwise_ece")
"""Metrics over bins, whose sums are redrawn with the bins held fixed."""

ROWS: dict[str, Callable[[Samples], Any]] = {
    "nll": lambda samples: -samples.true_log_prob,
    "brier": brier_rows,
    "error_rate": lambda samples: ~samples.correct,
    "confidence_gap": lambda samples: samples.gap,
    "s99": lambda samples: samples.confidence > SURE,
    "entropy": lambda samples: samples.entropy,
}
"""Metrics that are means of rows."""

SLOW_RESAMPLES = 200
"""Resamples of metrics that have to be computed anew for each."""


def value_of(name: str, samples: Samples, n_bins: int) -> float:
    """The metric itself."""
    return METRICS[name].of(samples, **({"n_bins": n_bins} if name in BINNED else {}))


def bins_of(name: str, samples: Samples, n_bins: int) -> Any:
    """Which sample is in which bin of confidence, for a metric over such bins."""
    by_mass = name == "ada_ece"
    return (intervals.mass_bins_of if by_mass else intervals.width_bins_of)(samples, n_bins)


def binned(
    name: str, samples: Samples, n_bins: int
) -> tuple[intervals.LinearStatistic, Callable[[Floats], Floats]]:
    """The bin sums of a metric over bins, and how they make up the metric."""
    if name == "classwise_ece":
        return intervals.class_statistic(samples, n_bins), intervals.total_error
    bins = bins_of(name, samples, n_bins)
    if name == "mce":
        share = intervals.LinearStatistic(bins, samples).seen()
        return intervals.gap_statistic(samples, bins), intervals.largest_error(share)
    return intervals.gap_statistic(samples, bins), intervals.total_error


def redrawn_values(name: str, samples: Samples, n_bins: int, n_resamples: int, seed: int) -> Floats:
    """The metric of every resample; the same seed redraws the same rows."""
    if name in BINNED:
        statistic, error = binned(name, samples, n_bins)
        return error(statistic.redrawn(n_resamples, seed))
    if name in ROWS:
        rows = np.asarray(ROWS[name](samples), dtype=np.float64)[:, None]
        return intervals.LinearStatistic(rows, samples).redrawn(n_resamples, seed)[:, 0]
    weight = np.ones(len(samples)) if samples.weight is None else samples.weight
    return np.array(
        [
            METRICS[name].of(samples.weighted_by(weight * counts))
            for chunk in intervals.redraws(len(samples), min(n_resamples, SLOW_RESAMPLES), seed)
            for counts in chunk
        ]
    )
