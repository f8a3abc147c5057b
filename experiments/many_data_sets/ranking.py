"""Methods compared over many data sets: average ranks, and how far apart they must be.

Demsar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7, Sec. 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """How methods rank over data sets, the smallest error first.

    Attributes:
        methods: In the order of ``average``.
        average: Mean rank of each method; 1 is best, equal errors share their ranks.
        chi_square: Friedman's statistic, corrected for shared ranks.
        p_value: Of Iman and Davenport's F, where all methods are alike.
        critical_difference: Mean ranks that are further apart differ, by Nemenyi's test.
        alpha: The share of such tests that are wrong about some pair where all are alike.
    """

    methods: tuple[str, ...]
    average: Floats
    chi_square: float
    p_value: float
    critical_difference: float
    alpha: float

    def order(self) -> list[int]:
        """Indices of the methods, best first."""
        return [int(place) for place in np.argsort(self.average, kind="stable")]

    def alike(self) -> list[tuple[int, int]]:
        """Longest runs (first, last) in :meth:`order` without significant differences."""
        ranks = self.average[self.order()]
        runs: list[tuple[int, int]] = []
        for first, rank in enumerate(ranks):
            last = int(np.flatnonzero(ranks - rank <= self.critical_difference)[-1])
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return runs


def ranking(methods: Sequence[str], errors: Floats, *, alpha: float = 0.05) -> Ranking:
    """Rank methods by ``errors`` (data sets, methods)."""
    n, k = errors.shape
    average = np.asarray(stats.rankdata(errors, axis=1)).mean(axis=0)
    chi_square = float(stats.friedmanchisquare(*errors.T).statistic)
    # The largest the statistic can be is n (k - 1): all data sets rank alike.
    f = (n - 1) * chi_square / (n * (k - 1) - chi_square)
    return Ranking(
        methods=tuple(methods),
        average=average,
        chi_square=chi_square,
        p_value=float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))),
        critical_difference=critical_difference(k, n, alpha=alpha),
        alpha=alpha,
    )


def critical_difference(n_methods: int, n_sets: int, *, alpha: float = 0.05) -> float:
    r"""Difference of mean ranks from which on two methods differ (Nemenyi).

    .. math:: q_\alpha \sqrt{k (k + 1) / (6 n)}

    with the studentised range of k means and infinitely many degrees of freedom, over root 2.
    """
    q = float(stats.studentized_range.ppf(1.0 - alpha, n_methods, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets)))


@dataclass(frozen=True)
class Mean:
    """A mean over data sets with an interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def resampled_mean(
    values: Floats, groups: Sequence[int], *, level: float, resamples: int, seed: int = 0
) -> Mean:
    """The mean of ``values`` with the percentile interval of resampled groups.

    Data sets of one group are drawn together: views of the same objects are no news of each other.
    """
    members = np.asarray(groups)
    sums, sizes = np.bincount(members, weights=values), np.bincount(members)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Mean(float(values.mean()), float(low), float(high))
