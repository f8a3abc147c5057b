"""Every metric on redrawn samples, by the cheapest way that it allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant.metrics import intervals
from calibrant.metrics.calibration import MOST_BINS
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import Floats, ScoredSamples
from calibrant.metrics.scores import SURE, brier_rows

BINNED = ("ece", "ada_ece", "mce", "classwise_ece")
"""Metrics over bins, whose sums are redrawn with the bins held fixed."""

ROWS: dict[str, Callable[[ScoredSamples], Any]] = {
    "nll": lambda samples: -samples.true_log_prob,
    "brier": brier_rows,
    "error_rate": lambda samples: ~samples.correct,
    "confidence_gap": lambda samples: samples.gap,
    "s99": lambda samples: samples.confidence > SURE,
    "entropy": lambda samples: samples.entropy,
}
"""Metrics that are means of rows."""

ERRORS_WITHOUT_BINS = ("debiased_ece", "smooth_ece", "ks_error", "mmce", "mmce_weighted")
"""Metrics that noise alone makes positive and that have no bin sums to take it out of: they get no
interval, because the quantiles of redrawn values would lie too high."""

RESAMPLES = range(20, 1_000_001)
SLOW_RESAMPLES = 200
"""Resamples of metrics that have to be computed anew for each."""
LARGEST_CLASSWISE = 5_000_000
"""Probabilities up to which the classwise error gets an interval."""


@dataclass(frozen=True)
class Plan:
    """What to measure and how often to redraw, checked."""

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
    """Check the options that evaluating and comparing ``n`` samples share."""
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


def bins_of(name: str, samples: ScoredSamples, n_bins: int) -> Any:
    """Which sample is in which bin of confidence, for a metric over such bins."""
    by_mass = name == "ada_ece"
    return (intervals.mass_bins_of if by_mass else intervals.width_bins_of)(samples, n_bins)


class Redrawn(NamedTuple):
    """A metric that is a function of sums: the sums, redrawn, and the function."""

    seen: Floats
    redrawn: Floats
    metric: Callable[[Floats], Floats]


def redraw(samples: ScoredSamples, todo: Plan) -> dict[str, Redrawn]:
    """Every metric of the plan that is a function of sums, from the same redrawn samples."""
    chosen = {
        name: _linear(name, samples, todo.n_bins)
        for name in todo.names
        if (name in ROWS and np.isfinite(ROWS[name](samples)).all())
        or (name in BINNED and name != "classwise_ece")
    }
    sums = _redrawn_sums(chosen, samples, todo, todo.n_resamples)
    if "classwise_ece" in todo.names and samples.need_scores().size <= LARGEST_CLASSWISE:
        by_class = {"classwise_ece": _linear("classwise_ece", samples, todo.n_bins)}
        fewer = intervals.allowed_resamples(todo.n_resamples, samples.need_scores().size)
        sums |= _redrawn_sums(by_class, samples, todo, fewer)
    return sums


def _redrawn_sums(
    chosen: dict[str, tuple[intervals.LinearStatistic, Callable[[Floats], Floats]]],
    samples: ScoredSamples,
    todo: Plan,
    n_resamples: int,
) -> dict[str, Redrawn]:
    if not chosen:
        return {}
    statistics = {name: statistic for name, (statistic, _) in chosen.items()}
    drawn = intervals.redrawn(statistics, len(samples), n_resamples, todo.seed)
    return {
        name: Redrawn(statistic.seen(), drawn[name], metric)
        for name, (statistic, metric) in chosen.items()
    }


def _linear(
    name: str, samples: ScoredSamples, n_bins: int
) -> tuple[intervals.LinearStatistic, Callable[[Floats], Floats]]:
    """The sums of a metric, and how they make up the metric."""
    if name in ROWS:
        rows = np.asarray(ROWS[name](samples), dtype=np.float64)[:, None]
        return intervals.LinearStatistic(rows, samples), _only
    if name == "classwise_ece":
        return intervals.class_statistic(samples, n_bins), intervals.total_error
    bins = bins_of(name, samples, n_bins)
    if name == "mce":
        share = intervals.LinearStatistic(bins, samples).seen()
        return intervals.gap_statistic(samples, bins), intervals.largest_error(share)
    return intervals.gap_statistic(samples, bins), intervals.total_error


def _only(sums: Floats) -> Floats:
    """The one column of a mean."""
    return sums[..., 0]


def has_interval(name: str, drawn: Mapping[str, Redrawn]) -> bool:
    """Whether noise can be told from truth: not for errors whose bin sums were not redrawn."""
    return name in drawn or name not in (*BINNED, *ERRORS_WITHOUT_BINS)


def redrawn_values(
    name: str, samples: ScoredSamples, todo: Plan, drawn: Mapping[str, Redrawn]
) -> Floats:
    """The metric of every resample, computed anew where it is not a function of sums."""
    if name in drawn:
        return drawn[name].metric(drawn[name].redrawn)
    n_resamples = min(todo.n_resamples, SLOW_RESAMPLES)
    return np.array(
        [
            METRICS[name].of(samples.weighted_by(samples.weights * counts))
            for chunk in intervals.redraws(len(samples), n_resamples, todo.seed)
            for counts in chunk
        ]
    )
