"""Spline calibration: a rising curve, as far from a logistic one as the samples ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant._types import Array
from calibrant.calibrators.base import State
from calibrant.calibrators.data import Floats
from calibrant.calibrators.one_vs_rest.logistic import (
    RIDGES,
    LogisticLosses,
    free_minimum,
    ridge_shape,
    smoothing,
)
from calibrant.calibrators.one_vs_rest.parametric import RIDGE
from calibrant.calibrators.one_vs_rest.tables import (
    PADDING,
    Curve,
    PooledSamples,
    Table,
    between,
    taken,
)

MOST_CELLS = 32
"""On halves of validation parts, 24 to 128 differ by less than 0.001 in NLL."""
VARIANCES = np.array([0.001, 0.1, 1.0, 10.0, 100.0])
"""Variances v that are compared. With the first, the curve is logistic. On the same samples a finer
grid is no better."""
LEAST_FRACTION = 1e-12
"""Cells closer than this fraction of the samples get this variance, so that it is not 0."""


class SplineCalibration(Table):
    r"""A rising curve of the log-odds of each class, shrunk towards a logistic one.

    .. math:: \log\frac{g_k}{1 - g_k} = a x + b + \sum_{j < c} e_j \quad
              \text{at the mean } x \text{ of cell } c, \qquad e_j \sim N(0, v\, m_j)

    There are up to 32 cells, with about equal numbers of samples; between their means, and beyond
    them, the curve is linear. a and b are as in :class:`PlattScaling`. The e_j are a random walk
    over the samples: m_j is the fraction of samples between the middles of cells j and j + 1, so
    that the curve bends where samples can show it. Of a few variances v, the one with the highest
    marginal likelihood (by Laplace's approximation) is used. The smallest, which few samples
    choose, is Platt scaling. Where the curve falls, cells are pooled, so that samples keep their
    order.

    A value that occurs many times, such as a stated confidence of exactly 0.9, is a cell of its
    own: it keeps the frequency of its samples as far as their number supports it.

    Examples:
        >>> import numpy as np
        >>> from calibrant import SplineCalibration
        >>> stated = np.repeat([0.8, 0.9, 0.95, 1.0], 400)
        >>> correct = np.arange(1600) % 20 < np.repeat([8, 8, 14, 15], 400)
        >>> probs = np.stack([1 - stated, stated], axis=1)
        >>> spline = SplineCalibration().fit(probs=probs, labels=correct.astype(int))
        >>> spline.predict_proba(probs=probs[::400])[:, 1].round(2)
        array([0.4 , 0.4 , 0.7 , 0.75])
    """

    NAME = "spline"

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        cells = _Cells.of(groups)
        found = cells.most_probable(n_classes, line)
        x, z = cells.log_odds, cells.rising(found.log_odds)
        first, last = z[0] - found.slope * (x[0] + PADDING), z[-1] + found.slope * (PADDING - x[-1])
        return Curve(
            knots=np.concatenate([[-PADDING], x, [PADDING]]),
            columns={"values": np.concatenate([[first], z, [last]])},
            n_parameters=found.n_parameters,
        )

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        low, high, part = between(log_odds, state["knots"])
        left, right = taken(state["values"], low), taken(state["values"], high)
        return left + part * (right - left)


class _Fit(NamedTuple):
    log_odds: Floats
    """(C,): calibrated, at the mean of each cell."""
    slope: float
    """a, or 0 if that is below 0."""
    n_parameters: float
    """Effective number of parameters."""


@dataclass(frozen=True)
class _Cells:
    """C runs of groups with about equal numbers of samples, as far as ties allow."""

    log_odds: Floats
    """(C,): the mean of each cell."""
    hits: Floats
    """(C,)"""
    misses: Floats
    """(C,)"""

    @classmethod
    def of(cls, groups: PooledSamples) -> _Cells:
        """The cells of one problem: its groups, if these are few."""
        starts = np.arange(len(groups))
        if len(groups) > MOST_CELLS:
            starts = np.unique(groups.above(np.arange(MOST_CELLS) / MOST_CELLS))
            starts = starts[starts < len(groups)]
        hits, misses = groups.sums(starts)
        share = groups.weight / np.repeat(hits + misses, np.diff(starts, append=len(groups)))
        return cls(np.add.reduceat(share * groups.log_odds, starts), hits, misses)

    @property
    def weight(self) -> Floats:
        """(C,)"""
        return self.hits + self.misses

    @property
    def share(self) -> Floats:
        """(C,): the fraction of samples in each cell."""
        return np.asarray(self.weight / self.weight.sum())

    def most_probable(self, n_classes: int, line: Floats | None = None) -> _Fit:
        """The fit with the variance of the highest marginal likelihood; ``line`` is a start."""
        losses, start = self._losses(n_classes), None
        if line is not None:
            start = np.zeros(losses.ridge.shape)
            start[:, 0], start[:, -1] = line[0], line @ [-math.log(n_classes - 1), 1.0]
        found = free_minimum(losses, start)
        hessian = found.hessian
        scale = max(self.weight.sum(), 1.0)
        log_det = np.linalg.slogdet(hessian).logabsdet
        log_evidence = (np.log(losses.ridge).sum(axis=1) - log_det) / 2.0 - scale * found.value
        best = int(log_evidence.argmax())
        from_prior = np.diag(np.linalg.solve(hessian[best], np.diag(losses.ridge[best]))).sum()
        return _Fit(
            log_odds=found.parameters[best] @ losses.features[best],
            slope=max(float(found.parameters[best, 0]), 0.0),
            n_parameters=float(len(hessian[best]) - from_prior),
        )

    def _losses(self, n_classes: int) -> LogisticLosses:
        """The criterion for each variance, as a function of a, the e_j, and z where q = 1/K."""
        share, scale = self.share, max(self.weight.sum(), 1.0)
        even = -math.log(n_classes - 1)  # the log-odds of 1/K
        # e_j moves the cells above it, less the mean over all samples: b is about their level.
        walk = np.tri(len(share), len(share) - 1, -1)
        walk -= share @ walk
        features = np.stack([self.log_odds - even, *walk.T, np.ones_like(share)])
        identity = np.concatenate([[1.0], np.zeros(len(share) - 1), [even]])
        hit, miss = (smoothing(n.sum(), n_classes) for n in (self.hits, self.misses))
        targets = (self.hits * (1.0 - hit) + self.misses * miss) / self.weight
        between_middles = np.maximum((share[1:] + share[:-1]) / 2.0, LEAST_FRACTION)
        slope, shift = RIDGE * ridge_shape(self.log_odds[np.newaxis], share[np.newaxis], 1)[0]
        ridge = np.stack(
            [
                np.concatenate([[slope], 1.0 / (variance * between_middles), [shift]])
                for variance in VARIANCES
            ]
        )
        n = len(VARIANCES)
        return LogisticLosses(
            features=np.broadcast_to(features, (n, *features.shape)),
            targets=np.broadcast_to(targets, (n, len(targets))),
            weight=np.broadcast_to(self.weight / scale, (n, len(targets))),
            ridge=np.clip(ridge / scale, *RIDGES),
            identity=np.broadcast_to(identity, (n, len(identity))),
        )

    def rising(self, z: Floats) -> Floats:
        """The curve with neighbouring cells pooled where it falls."""
        from scipy.optimize import isotonic_regression

        blocks = isotonic_regression(sigmoid(z), weights=self.share).blocks
        hits, misses = (
            np.add.reduceat(self.share * sigmoid(side), blocks[:-1]) for side in (z, -z)
        )
        pooled = np.repeat(np.log(hits) - np.log(misses), np.diff(blocks))
        return np.maximum.accumulate(pooled)  # rising, but for rounding
