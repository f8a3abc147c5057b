"""Every metric on resampled data, computed in the cheapest way that it allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant.metrics import intervals
from calibrant.metrics.calibration import MOST_BINS
from calibrant.metrics.positive import positive
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import Floats, ScoredSamples
from calibrant.metrics.scores import SURE, brier_rows

BINNED = ("ece", "ada_ece", "mce", "classwise_ece", "positive_ece", "positive_ada_ece")
"""Metrics over bins. Their bin sums are resampled; the bins stay fixed."""

ROWS: dict[str, Callable[[ScoredSamples], Any]] = {
    "nll": lambda samples: -samples.true_log_prob,
    "brier": brier_rows,
    "error_rate": lambda samples: ~samples.correct,
    "confidence_gap": lambda samples: samples.gap,
    "prevalence_gap": lambda samples: positive(samples).gap,
    "s99": lambda samples: samples.confidence > SURE,
    "entropy": lambda samples: samples.entropy,
}
"""Metrics that are means over rows, and the values of the rows."""

ERRORS_WITHOUT_BINS = ("debiased_ece", "smooth_ece", "ks_error", "mmce", "mmce_weighted")
"""Metrics that noise alone makes positive, without bin sums to remove it from. They get no
interval, because the quantiles of resampled values would be too high."""

RESAMPLES = range(20, 1_000_001)
SLOW_RESAMPLES = 200
"""Number of resamples for metrics that are recomputed for each of them."""
LARGEST_CLASSWISE = 5_000_000
"""Largest number of probabilities for which the classwise error gets an interval."""


@dataclass(frozen=True)
class Plan:
    """What to measure and how to resample: checked options."""

    names: tuple[str, ...]
    n_bins: int
    level: float
    n_resamples: int
    seed: int


def plan(
    metrics: Sequence[str],
    n_bins: int,
    level: float,
    n_resamples: int,
    random_state: RandomState,
    n: int,
) -> Plan:
    """Check the options that the evaluation and the comparison of ``n`` samples share."""
    wanted = _inputs.whole_number(n_resamples, "n_resamples", allowed=RESAMPLES)
    return Plan(
        names=tuple(METRICS.key(name, "metrics") for name in metrics),
        n_bins=_inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS),
        level=_inputs.level(level),
        n_resamples=intervals.allowed_resamples(wanted, n),
        seed=_inputs.seed_of(random_state),
    )


def value_of(name: str, samples: ScoredSamples, n_bins: int) -> float:
    """The metric itself."""
    core = METRICS[name].of
    takes_bins = "n_bins" in inspect.signature(core).parameters
    return core(samples, n_bins=n_bins) if takes_bins else core(samples)


def binned_column(name: str, samples: ScoredSamples, n_bins: int) -> tuple[ScoredSamples, Any]:
    """The column that a metric bins, and its bins, (n, bins): the share of each sample in each."""
    column = positive(samples) if name.startswith("positive_") else samples
    by_mass = name.endswith("ada_ece")
    return column, (intervals.mass_bins_of if by_mass else intervals.width_bins_of)(column, n_bins)


class ResampledSums(NamedTuple):
    """A metric that is a function of sums."""

    observed: Floats
    resampled: Floats
    """(resamples, sums)."""
    metric: Callable[[Floats], Floats]
    """The metric as a function of the sums."""


class ResampledMetrics:
    """The metrics of a plan on samples and on their resamples, each computed once.

    All metrics, and all models on as many samples, have the same resamples.
    """

    def __init__(self, samples: ScoredSamples, todo: Plan) -> None:
        self.samples, self.todo = samples, todo
        self.sums = _resampled_sums(samples, todo)
        self._values: dict[str, float] = {}
        self._resampled: dict[str, Floats] = {}

    def without_many_scores(self) -> ResampledMetrics:
        """What later comparisons need: of more than two classes, nothing but the top class."""
        few = copy(self)
        few.samples = self.samples.without_many_scores()
        return few

    def value(self, name: str) -> float:
        """The metric itself."""
        if name not in self._values:
            self._values[name] = value_of(name, self.samples, self.todo.n_bins)
        return self._values[name]

    def has_interval(self, name: str) -> bool:
        """Whether noise can be separated: not for errors over bins that were not resampled."""
        return name in self.sums or name not in (*BINNED, *ERRORS_WITHOUT_BINS)

    def resampled(self, name: str) -> Floats:
        """The metric of every resample, recomputed where it is not a function of sums."""
        if name not in self._resampled:
            if name in self.sums:
                values = self.sums[name].metric(self.sums[name].resampled)
            else:
                values = _recomputed(name, self.samples, self.todo)
            self._resampled[name] = values
        return self._resampled[name]


def _recomputed(name: str, samples: ScoredSamples, todo: Plan) -> Floats:
    n_resamples = min(todo.n_resamples, SLOW_RESAMPLES)
    return np.array(
        [
            value_of(name, samples.weighted_by(samples.weights * counts), todo.n_bins)
            for chunk in intervals.resample_counts(len(samples), n_resamples, todo.seed)
            for counts in chunk.T
        ]
    )


def _resampled_sums(samples: ScoredSamples, todo: Plan) -> dict[str, ResampledSums]:
    """Every metric of the plan that is a function of sums."""
    names = [
        name
        for name in todo.names
        if (name in ROWS and np.isfinite(ROWS[name](samples)).all())
        or (name in BINNED and name != "classwise_ece")
    ]
    sums = _sums_of(names, samples, todo, todo.n_resamples)
    if "classwise_ece" in todo.names and samples.need_scores().size <= LARGEST_CLASSWISE:
        fewer = intervals.allowed_resamples(todo.n_resamples, samples.need_scores().size)
        sums |= _sums_of(["classwise_ece"], samples, todo, fewer)
    return sums


def _sums_of(
    names: list[str], samples: ScoredSamples, todo: Plan, n_resamples: int
) -> dict[str, ResampledSums]:
    if not names:
        return {}
    matrices, metrics = zip(*(_columns(name, samples, todo.n_bins) for name in names), strict=True)
    resampled = intervals.resampled_means(matrices, samples.weights, n_resamples, todo.seed)
    return {
        name: ResampledSums(intervals.weighted_means(matrix, samples.weights), sums, metric)
        for name, matrix, sums, metric in zip(names, matrices, resampled, metrics, strict=True)
    }


def _columns(
    name: str, samples: ScoredSamples, n_bins: int
) -> tuple[Any, Callable[[Floats], Floats]]:
    """The columns whose means are the sums of a metric, and the metric as a function of them."""
    if name in ROWS:
        rows = np.asarray(ROWS[name](samples), dtype=np.float64)[:, None]
        return rows, lambda sums: sums[..., 0]
    if name == "classwise_ece":
        return intervals.class_columns(samples, n_bins), intervals.total_error
    column, bins = binned_column(name, samples, n_bins)
    error: Callable[[Floats], Floats] = intervals.total_error
    if name == "mce":
        error = intervals.largest_error(intervals.weighted_means(bins, samples.weights))
    return intervals.gap_columns(column, bins), error
