"""Every metric on redrawn samples, by the cheapest way that it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import _checks
from calibrant.metrics import intervals
from calibrant.metrics.calibration import MOST_BINS
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


@dataclass(frozen=True)
class Plan:
    """What to measure and how often to redraw, checked."""

    names: tuple[str, ...]
    n_bins: int
    level: float
    n_resamples: int
    seed: int


def plan(
    metrics: Sequence[str], n_bins: int, level: float, n_resamples: int, seed: int, n: int
) -> Plan:
    """Check the options that evaluating and comparing ``n`` samples share."""
    wanted = _checks.whole_number(n_resamples, "n_resamples", allowed=range(20, 1_000_001))
    return Plan(
        names=tuple(_checks.choice(name, "metrics", sorted(METRICS)) for name in metrics),
        n_bins=_checks.whole_number(n_bins, "n_bins", allowed=MOST_BINS),
        level=float(_checks.unit_interval(level, "level")),
        n_resamples=intervals.allowed_resamples(wanted, n),
        seed=_checks.whole_number(seed, "seed", allowed=range(2**63)),
    )


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


def redrawn_values(name: str, samples: Samples, todo: Plan) -> Floats:
    """The metric of every resample; the same seed redraws the same rows."""
    n_resamples, seed = todo.n_resamples, todo.seed
    if name in BINNED:
        statistic, error = binned(name, samples, todo.n_bins)
        return error(statistic.redrawn(n_resamples, seed))
    if name in ROWS:
        rows = np.asarray(ROWS[name](samples), dtype=np.float64)[:, None]
        return intervals.LinearStatistic(rows, samples).redrawn(n_resamples, seed)[:, 0]
    weight = samples.weights
    return np.array(
        [
            METRICS[name].of(samples.weighted_by(weight * counts))
            for chunk in intervals.redraws(len(samples), min(n_resamples, SLOW_RESAMPLES), seed)
            for counts in chunk
        ]
    )
