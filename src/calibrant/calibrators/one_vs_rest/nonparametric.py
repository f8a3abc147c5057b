"""Histogram binning, isotonic regression and Bayesian binning: g_k is looked up in a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import sigmoid
from calibrant._types import Array
from calibrant.calibrators.base import State
from calibrant.calibrators.data import Floats
from calibrant.calibrators.one_vs_rest.tables import (
    Curve,
    Indices,
    PooledSamples,
    Table,
    between,
    taken,
)
from calibrant.metrics.binning import all_whole

MOST_BINS = range(1, 10_001)
HISTOGRAM_BINS = 20
"""Chosen on halves of validation parts (``python -m experiments one-vs-rest-constants``): 15 is
worse on most networks; 30 is better with many samples and worse with few."""

BBQ_RANGE = 10.0
"""The paper's C: from n^(1/3) / C to C n^(1/3) bins."""
BBQ_MOST_BINS = 1000
"""C n^(1/3) for a million samples; more bins are not needed."""
BBQ_PRIOR = 2.0
"""Number of samples that the prior of a bin counts as, from the paper. On halves of validation
parts 4 and 8 have a lower NLL and a higher calibration error."""
BBQ_PRIOR_RANGE = (0.005, 0.995)
"""Range of the prior mean of a bin, as in the authors' code."""
BBQ_LEAST_SHARE = 1e-6
"""Binnings whose posterior is below this fraction of the best one's are left out of the average."""
BBQ_RESOLUTION = 2.0**-8
"""The average is rounded to this, in log-odds, and equal steps are joined. This costs at most 0.002
of a probability and makes the table five times shorter."""
AVERAGED_AT_ONCE = 1 << 18
"""Numbers of the binnings that are averaged at a time."""


class HistogramBinning(Table):
    r"""Histogram binning of each class: the frequency of the class in equal-mass bins of q_k.

    .. math:: g_k = \frac{h_b + 1/K}{n_b + 1}

    for a bin b with n_b samples, h_b of them of class k. One sample, divided equally among the
    classes, is added to each bin, so that no bin gives 0 or 1. Bins hold equal numbers of samples
    as far as ties in q_k allow, which are never divided. Edges are halfway between samples, in
    log-odds; the outermost bins extend to infinity.

    Args:
        n_bins: Number of bins; fewer if there are fewer samples. The default was chosen on halves
            of validation parts alone (``python -m experiments one-vs-rest-constants``).

    Reference: B. Zadrozny, C. Elkan, Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers (ICML 2001).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.nonparametric import HistogramBinning
        >>> probs = np.repeat([[0.9, 0.1], [0.2, 0.8]], 60, axis=0)
        >>> labels = np.repeat([0, 1, 0, 1], [51, 9, 21, 39])  # 9 of 60, then 39 of 60
        >>> binned = HistogramBinning(n_bins=2).fit(probs=probs, labels=labels)
        >>> binned.predict_proba(probs=[[0.99, 0.01], [0.2, 0.8]])[:, 1].round(4)
        array([0.1557, 0.6475])
    """

    NAME = "histogram"

    def __init__(self, *, n_bins: int = HISTOGRAM_BINS) -> None:
        self.n_bins = n_bins

    def _check_params(self) -> None:
        _inputs.whole_number(self.n_bins, "n_bins", allowed=MOST_BINS)

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        starts = np.unique(groups.above(np.arange(self.n_bins) / self.n_bins))
        starts = starts[starts < len(groups)]
        hits, misses = groups.sums(starts)
        share = 1.0 / n_classes
        values = np.log((hits + share) / (misses + (1.0 - share)))
        return Curve(groups.edges(starts), {"values": values}, len(values))


class IsotonicCalibration(Table):
    r"""Isotonic regression of each class: the best non-decreasing curve.

    The curve minimises :math:`\sum_i w_i (g_k(q_{ik}) - [y_i = k])^2` among all non-decreasing
    curves: frequencies in blocks of samples, each higher than the previous one. It is linear
    between the last sample of a block and the first of the next, and constant beyond the outermost
    samples. It is linear in the log-odds of q_k, as scikit-learn's is in scores: in q_k itself,
    everything below 0.01 would be one step. Values are kept within 1 / (n + 2) and
    1 - 1 / (n + 2), where n is the number of samples.

    Reference: B. Zadrozny, C. Elkan, Transforming classifier scores into accurate multiclass
    probability estimates (KDD 2002).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.nonparametric import IsotonicCalibration
        >>> probs = np.repeat([[0.9, 0.1], [0.2, 0.8]], 60, axis=0)
        >>> labels = np.repeat([0, 1, 0, 1], [51, 9, 21, 39])  # 9 of 60, then 39 of 60
        >>> isotonic = IsotonicCalibration().fit(probs=probs, labels=labels)
        >>> isotonic.predict_proba(probs=[[0.99, 0.01], [0.4, 0.6], [0.2, 0.8]])[:, 1].round(4)
        array([0.15  , 0.5131, 0.65  ])
    """

    NAME = "isotonic"

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        from scipy.optimize import isotonic_regression

        weight = groups.weight
        blocks = isotonic_regression(groups.hits / weight, weights=weight).blocks
        first, last = blocks[:-1], blocks[1:] - 1
        hits, misses = groups.sums(first)
        with np.errstate(divide="ignore"):
            levels = groups.bounded(np.log(hits) - np.log(misses))
        ends = np.unique(np.concatenate([first, last]))
        block = np.searchsorted(first, ends, side="right") - 1
        values = np.maximum.accumulate(levels)[block]
        return Curve(groups.log_odds[ends], {"values": values}, len(levels))

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        xp = array_namespace(log_odds)
        low, high, part = between(log_odds, state["knots"])
        left, right = taken(state["values"], low), taken(state["values"], high)
        hit = (1.0 - part) * sigmoid(left) + part * sigmoid(right)
        miss = (1.0 - part) * sigmoid(-left) + part * sigmoid(-right)
        return xp.log(hit) - xp.log(miss)


class BayesianBinning(Table):
    r"""BBQ of each class: equal-mass binnings of many sizes, averaged by their posterior.

    .. math:: P(D \mid M) = \prod_b \frac{B(h_b + \alpha_b,\; n_b - h_b + \beta_b)}
                                         {B(\alpha_b,\; \beta_b)}, \qquad
              g_k = \sum_M P(M \mid D)\, \frac{h_b + \alpha_b}{n_b + 2}

    with n_b samples in bin b of the binning M, h_b of them of class k, and a prior that counts as
    two samples at the middle m_b of the bin: alpha_b = 2 m_b and beta_b = 2 (1 - m_b), with m_b
    between 0.005 and 0.995, as in the authors' code. There is one binning for each number of bins
    from n^(1/3) / 10 to 10 n^(1/3) (at most n / 5, and at most 1000), all equally probable a
    priori.

    Bins are those of :class:`HistogramBinning`. The average is constant between the edges of all
    binnings, so one table holds it. Binnings with less than a millionth of the best one's posterior
    are left out. Values are rounded to 1/256 in log-odds and kept within 1 / (n + 2) and
    1 - 1 / (n + 2).

    Reference: M. P. Naeini, G. F. Cooper, M. Hauskrecht, Obtaining well calibrated probabilities
    using Bayesian binning (AAAI 2015).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.nonparametric import BayesianBinning
        >>> probs = np.repeat([[0.9, 0.1], [0.2, 0.8]], 60, axis=0)
        >>> labels = np.repeat([0, 1, 0, 1], [51, 9, 21, 39])  # 9 of 60, then 39 of 60
        >>> binned = BayesianBinning().fit(probs=probs, labels=labels)
        >>> binned.predict_proba(probs=[[0.99, 0.01], [0.2, 0.8]])[:, 1].round(3)
        array([0.152, 0.651])
    """

    NAME = "bbq"

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        bins = _Binnings.of(groups)
        hits, misses = bins.sums(groups.hits), bins.sums(groups.misses)
        prior_hits, prior_misses = bins.prior(groups)
        share = bins.posterior(hits, misses, prior_hits, prior_misses)
        # Both add up to 1, but only the smaller one is exact if the other is close to 1.
        size = hits + misses + BBQ_PRIOR
        hit = bins.average(share, (hits + prior_hits) / size)
        miss = bins.average(share, (misses + prior_misses) / size)
        log_odds = np.round(np.log(hit / miss) / BBQ_RESOLUTION) * BBQ_RESOLUTION
        values = groups.bounded(log_odds)
        starts = np.flatnonzero(np.diff(values, prepend=np.nan))
        n_bins = float(share @ np.bincount(bins.model))
        return Curve(groups.edges(starts), {"values": values[starts]}, n_bins)


@dataclass(frozen=True)
class _Binnings:
    """The non-empty bins of all equal-mass binnings of one problem, one binning after the other."""

    model: Indices
    """The binning that a bin belongs to."""
    start: Indices
    """The first group of a bin."""
    stop: Indices
    """The group after its last."""

    @classmethod
    def of(cls, groups: PooledSamples) -> _Binnings:
        """The binnings of every size that the method uses."""
        root = math.cbrt(groups.total)
        most = min(math.ceil(groups.total / 5.0), math.ceil(root * BBQ_RANGE), BBQ_MOST_BINS)
        fewest = min(max(1, math.floor(root / BBQ_RANGE)), most)
        n_bins = np.arange(fewest, most + 1)
        model = np.repeat(np.arange(len(n_bins)), n_bins)
        first = np.cumsum(n_bins) - n_bins
        start = groups.above((np.arange(len(model)) - first[model]) / n_bins[model])
        stop = np.append(start[1:], 0)
        stop[first + n_bins - 1] = len(groups)
        filled = start < stop
        return cls(model[filled], start[filled], stop[filled])

    def sums(self, values: Floats) -> Floats:
        """``values`` of the groups, summed over each bin."""
        if all_whole(values):
            up_to = np.append(0.0, np.cumsum(values))
            return np.asarray(up_to[self.stop] - up_to[self.start])
        # reduceat sums up to the next index, so the last bin of a binning needs one at its end.
        is_last = self.stop == len(values)
        place = np.arange(len(is_last)) + np.cumsum(is_last) - is_last
        indices = np.full(len(is_last) + int(is_last.sum()), len(values))
        indices[place] = self.start
        return np.asarray(np.add.reduceat(np.append(values, 0.0), indices)[place])

    def prior(self, groups: PooledSamples) -> tuple[Floats, Floats]:
        """Prior samples of each bin: of the class, and of others."""
        edges = np.concatenate([[0.0], sigmoid(groups.edges(np.arange(len(groups)))[1:]), [1.0]])
        middle = np.clip((edges[self.start] + edges[self.stop]) / 2.0, *BBQ_PRIOR_RANGE)
        return BBQ_PRIOR * middle, BBQ_PRIOR * (1.0 - middle)

    def posterior(
        self, hits: Floats, misses: Floats, prior_hits: Floats, prior_misses: Floats
    ) -> Floats:
        """The posterior of each binning, its weight in the average."""
        from scipy.special import gammaln

        # Most bins have no sample of the class: for them the first difference is 0.
        some = np.flatnonzero(hits)
        evidence = np.zeros(len(hits))
        evidence[some] = gammaln(hits[some] + prior_hits[some]) - gammaln(prior_hits[some])
        evidence += gammaln(misses + prior_misses)
        evidence -= gammaln(prior_misses)
        size = hits + misses
        if size.max() <= len(size) and all_whole(size):
            evidence -= gammaln(np.arange(size.max() + 1) + BBQ_PRIOR)[size.astype(np.intp)]
        else:
            evidence -= gammaln(size + BBQ_PRIOR)
        evidence += gammaln(BBQ_PRIOR)
        score = np.bincount(self.model, weights=evidence)
        share = np.exp(score - score.max())
        share[share < BBQ_LEAST_SHARE] = 0.0
        return np.asarray(share / share.sum())

    def average(self, share: Floats, values: Floats) -> Floats:
        """The average of the binnings for each group."""
        n, first = int(self.stop.max()), np.searchsorted(self.model, np.arange(len(share) + 1))
        models = np.flatnonzero(share)
        at_once = max(1, AVERAGED_AT_ONCE // n)
        total = np.zeros((1, n))
        for chunk in (models[i : i + at_once] for i in range(0, len(models), at_once)):
            rows = slice(first[chunk[0]], first[chunk[-1] + 1])
            of_bins = share[self.model[rows]]
            kept = of_bins > 0.0
            lengths = (self.stop[rows] - self.start[rows])[kept]
            parts = np.repeat((of_bins * values[rows])[kept], lengths).reshape(-1, n)
            total = np.concatenate([total, parts]).sum(axis=0, keepdims=True)
        return np.asarray(total[0])
