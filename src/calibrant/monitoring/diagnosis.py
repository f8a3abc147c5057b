"""After an alarm: since when, what is off, and how large the gaps are."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calibrant.metrics.samples import Floats
from calibrant.monitoring.alternatives import alternatives
from calibrant.monitoring.e_process import ALL, onset
from calibrant.monitoring.periods import classes_of, ratios_of, shared_of
from calibrant.monitoring.repair import Repair
from calibrant.monitoring.state import State

LEVEL = 0.95
"""Of intervals."""
SMALL = 0.01
"""A share of the evidence that is not mentioned."""


@dataclass(frozen=True)
class Gap:
    """Stated probability of an event against how often it happened, with an interval.

    The width is that of the stated probabilities: :math:`z \\sqrt{\\sum p (1 - p)} / n`.
    """

    what: str
    n: int
    stated: float
    happened: float
    low: float
    """Of the gap, stated minus happened."""
    high: float

    @classmethod
    def of(
        cls, what: str, n: float, stated: float, happened: float, variance: float, alpha: float
    ) -> Gap:
        """From sums over n samples; the interval covers with a probability of 1 - alpha."""
        width = NormalDist().inv_cdf(1.0 - alpha / 2.0) * math.sqrt(max(variance, 0.0)) / n
        gap = (stated - happened) / n
        return cls(what, round(n), stated / n, happened / n, gap - width, gap + width)

    @property
    def gap(self) -> float:
        """Stated minus happened."""
        return self.stated - self.happened

    @property
    def off(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a change after an alarm."""

    since: str
    """The likeliest first period of the change."""
    earliest: str
    latest: str
    n: int
    """Samples since then."""
    evidence: dict[str, float]
    """What the evidence is about, largest shares first."""
    gaps: tuple[Gap, ...]
    """Of all samples since then, of each class of many and of each group: the worst first."""
    repair: Repair | None = None

    @property
    def off(self) -> tuple[Gap, ...]:
        """The gaps whose intervals exclude 0."""
        return tuple(gap for gap in self.gaps if gap.off)


def diagnosed(state: State) -> Diagnosis:
    """The diagnosis without a repair."""
    periods = state.sums.by_period()
    names = list(periods)
    began = onset(*_all_ratios(state, periods), level=LEVEL)
    total: dict[str, Floats] = {}
    for period in names[began.likeliest :]:
        for group, vector in periods[period].items():
            total[group] = total[group] + vector if group in total else vector
    return Diagnosis(
        names[began.likeliest],
        names[began.earliest],
        names[began.latest],
        round(shared_of(total[ALL]).n),
        _shares(state),
        _gaps(state, total),
    )


def class_name(state: State, k: int) -> str:
    """The name of a class."""
    return f"class {k}" if state.class_names is None else state.class_names[k]


def _all_ratios(state: State, periods: dict[str, dict[str, Floats]]) -> tuple[Floats, Floats]:
    """(periods, alternatives) log likelihood ratios, those of groups included; log-weights."""
    columns, weights = [], []
    for group in state.evidence.wealth:
        prior = state.evidence.prior(group)
        none = np.zeros(len(prior))
        rows = [
            ratios_of(groups[group], group, state.n_classes) if group in groups else none
            for groups in periods.values()
        ]
        columns.append(np.array(rows))
        weights.append(prior)
    return np.concatenate(columns, axis=1), np.concatenate(weights)


def _shares(state: State) -> dict[str, float]:
    """The share of each kind of alternative, class and group in the evidence."""
    wealth = state.evidence.wealth
    largest = max(float(each.max()) for each in wealth.values())
    found: dict[str, float] = defaultdict(float)
    for group, each in wealth.items():
        for j, share in enumerate(np.exp(each - largest)):
            found[group or _named(state, j)] += float(share)
    total = sum(found.values())
    shares = {what: share / total for what, share in found.items() if share > SMALL * total}
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def _named(state: State, j: int) -> str:
    alternative = alternatives(state.n_classes)[j]
    return alternative.what if alternative.of is None else class_name(state, alternative.of)


def _gaps(state: State, total: dict[str, Floats]) -> tuple[Gap, ...]:
    of_classes = range(state.n_classes) if state.n_classes > 2 else ()
    alpha = (1.0 - LEVEL) / (len(total) + len(of_classes))  # Bonferroni
    found = []
    for group, vector in total.items():
        n, stated, happened, variance, _ = shared_of(vector)
        found.append(Gap.of(group or "all samples", n, stated, happened, variance, alpha))
    classes = classes_of(total[ALL], state.n_classes)
    n = shared_of(total[ALL]).n
    for k in of_classes:
        stated, variance, count = map(float, classes[:, k])
        found.append(Gap.of(class_name(state, k), n, stated, count, variance, alpha))
    return tuple(sorted(found, key=lambda gap: -abs(gap.gap) / (gap.high - gap.low or 1.0)))
