"""The rules by which counts and intervals decide a claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import mean, stdev

from scipy.stats import binomtest, t as student

HOLDS = "holds here"
FAILS = "does not hold here"
PARTLY = "holds in part here"
OPEN = "not decided here"
UNTESTED = "cannot be tested here"

LEVEL = 0.95
SURE_ENOUGH = 2
"""Number of significant networks on both sides from which a claim holds in part, and of networks
or data sets from which it can hold at all."""

Verdict = tuple[str, str]
"""One of the five verdicts, and its evidence."""


def by_counts(better: float, worse: float) -> str:
    """Judge a claim by the numbers of networks for and against it.

    It holds if the interval of the share (Clopper and Pearson) is above one half.
    """
    low, high = share_interval(better, better + worse)
    return HOLDS if low > 0.5 else FAILS if high < 0.5 else OPEN


def by_networks(better: Sequence[str], worse: Sequence[str]) -> str:
    """By the networks for and against a claim, "data set, network", if their data sets agree.

    Networks on one data set are not quite independent: it counts for the side of most of them.
    """
    sides = Counter(data_of(place) for place in better)
    sides.subtract(data_of(place) for place in worse)
    of_data = by_counts(*(sum(sign * n > 0 for n in sides.values()) for sign in (1, -1)))
    verdict = by_counts(len(better), len(worse))
    return verdict if verdict == of_data else OPEN


def data_of(place: str) -> str:
    """The data set of a network."""
    return place.split(", ")[0]


def share_interval(count: float, n: float) -> tuple[float, float]:
    """The exact interval of a share, observed as ``count`` of ``n``."""
    if n == 0:
        return 0.0, 1.0
    found = binomtest(round(count), round(n)).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)


def counted(count: float, n: float) -> str:
    """A count with the interval of its share."""
    low, high = share_interval(count, n)
    return f"{count:.0f} of {n:.0f} ({low:.0%} to {high:.0%})"


def by_interval(low: float, high: float) -> str:
    """Judge a claim that a value is above 0 by its interval."""
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def by_parts(verdicts: Sequence[str]) -> str:
    """Judge a claim by the verdicts on its parts."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return PARTLY if {HOLDS, FAILS} <= set(verdicts) else OPEN


def by_panels(intervals: Sequence[tuple[float, float]], clusters: int) -> str:
    """Judge a claim that several values are above 0, each by its interval over seeds.

    Of a single network on a single data set nothing follows for others.
    """
    if clusters < SURE_ENOUGH:
        return OPEN
    return by_parts([by_interval(*each) for each in intervals])


def by_sources(better: float, worse: float, repeated: int) -> str:
    """By counts that survive if ``repeated`` tables, views of others, are taken from one side."""
    for verdict, counts in (
        (HOLDS, (better - repeated, worse)),
        (FAILS, (better, worse - repeated)),
    ):
        if min(counts) >= 0 and by_counts(*counts) == verdict:
            return verdict
    return OPEN


def t_interval(values: Sequence[float], least_deviation: float = 0.0) -> tuple[float, float]:
    """Interval of the mean of independent values; infinite for a single one.

    Args:
        values: Seen once each.
        least_deviation: Their standard deviation is at least this, however alike they look.
    """
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    deviation = max(stdev(values), least_deviation)
    reach = float(student.ppf((1 + LEVEL) / 2, n - 1)) * deviation / math.sqrt(n)
    return mean(values) - reach, mean(values) + reach


def minus(interval: tuple[float, float]) -> tuple[float, float]:
    """The interval of the negative value."""
    return -interval[1], -interval[0]
