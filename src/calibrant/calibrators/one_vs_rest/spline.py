"""Spline calibration: a rising curve, as far from a logistic one as the samples ask."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant._numerics.newton import Step, damped_newton
from calibrant._types import Array
from calibrant.calibrators.base import State
from calibrant.calibrators.data import Floats
from calibrant.calibrators.one_vs_rest.tables import (
    PADDING,
    Curve,
    Groups,
    Table,
    between,
    taken,
)

MOST_CELLS = 64
"""Chosen on halves of validation parts: 32 and 128 differ by less than 0.001 in NLL."""
VARIANCES = (0.001, 0.1, 1.0, 10.0, 100.0)
"""Variances v that are compared. With the first, the curve is logistic. On the same samples a finer
grid is no better."""
RIDGE = 0.3
"""Weight of the prior of slope and shift, in samples, as in Platt scaling."""
LEAST_SPREAD = 1e-6
"""Fraction of the ridge of the slope that remains if all samples have the same q."""
LEAST_FRACTION = 1e-12
"""Cells closer than this fraction of the samples get this variance, so that it is not 0."""
LEAST_TARGET = 2.0**-52
RIDGES = (1e-10, 1e10)
"""Bounds of a ridge relative to the mean loss: less is lost to rounding, more changes nothing."""
MOST_STEPS = 100
LENGTHS = tuple(0.5**i for i in range(50))
"""Fractions of a Newton step that are tried."""
SMALL_DECREASE = 1e-10
"""If the criterion can fall by no more than this, the next step is the last."""


class SplineCalibration(Table):
    r"""A rising curve of the log-odds of each class, shrunk towards a logistic one.

    .. math:: \log\frac{g_k}{1 - g_k} = a x + b + \sum_{j < c} e_j \quad
              \text{at the mean } x \text{ of cell } c, \qquad e_j \sim N(0, v\, m_j)

    There are up to 64 cells, with about equal numbers of samples; between their means, and beyond
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

    def _curve(self, groups: Groups, n_classes: int) -> Curve:
        cells = _Cells.of(groups)
        found = cells.most_probable(n_classes)
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
    log_evidence: float


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
    def of(cls, groups: Groups) -> _Cells:
        """The cells of one problem: its groups, if these are few."""
        starts = np.arange(len(groups))
        if len(groups) > MOST_CELLS:
            starts = np.unique(groups.above(np.arange(MOST_CELLS) / MOST_CELLS))
            starts = starts[starts < len(groups)]
        hits, misses = groups.sums(starts)
        share = groups.weight / np.repeat(hits + misses, np.diff(starts, append=len(groups)))
        return cls(np.add.reduceat(share * groups.log_odds, starts), hits, misses)

    @property
    def share(self) -> Floats:
        """(C,): the fraction of samples in each cell."""
        weight: Floats = self.hits + self.misses
        return np.asarray(weight / weight.sum())

    def most_probable(self, n_classes: int) -> _Fit:
        """The fit with the variance of the highest marginal likelihood."""
        share = self.share
        between_middles = np.maximum((share[1:] + share[:-1]) / 2.0, LEAST_FRACTION)
        loss = self._loss(n_classes)
        start, fits = loss.identity, []
        for variance in VARIANCES:
            loss = loss.with_ridge(1.0 / (variance * between_middles))
            found = loss.minimum(start)
            start = found.parameters
            fits.append(loss.fit(found))
        return max(fits, key=lambda each: each.log_evidence)

    def _loss(self, n_classes: int) -> _Loss:
        """The criterion, as yet without a ridge on the bends."""
        share, n_hits, n_misses = self.share, self.hits.sum(), self.misses.sum()
        # Platt's targets, see ``parametric``.
        of_hit = 1.0 - max(2.0 / n_classes / (n_hits + 2.0), LEAST_TARGET)
        of_miss = max(2.0 / n_classes / (n_misses + 2.0), LEAST_TARGET)
        even = -math.log(n_classes - 1)  # the log-odds of 1/K
        # A bend moves the cells above it, less the mean over all samples: b is about their level.
        bends = np.tri(len(share), len(share) - 1, -1)
        bends -= share @ bends
        spread = float(share @ (self.log_odds - share @ self.log_odds) ** 2)
        return _Loss(
            features=np.stack([self.log_odds - even, np.ones_like(share), *bends.T]),
            targets=(self.hits * of_hit + self.misses * of_miss) / (self.hits + self.misses),
            total=float(n_hits + n_misses),
            share=share,
            ridge=RIDGE * np.array([min(max(spread, LEAST_SPREAD), 1.0), 1.0]),
            identity=np.append([1.0, even], np.zeros(len(share) - 1)),
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


class _Local(NamedTuple):
    """The criterion and its derivatives at one point."""

    parameters: Floats
    value: float
    gradient: Floats
    hessian: Floats


@dataclass(frozen=True)
class _Loss:
    """The mean log-loss of the cells plus half the ridge, as a function of D parameters.

    The parameters are the slope, the log-odds at 1/K (but for the bends) and the bends.
    """

    features: Floats
    """(D, C)"""
    targets: Floats
    """(C,)"""
    total: float
    """Weight of all samples."""
    share: Floats
    """(C,)"""
    ridge: Floats
    """(D,), in samples: the precision of the prior."""
    identity: Floats
    """(D,): the mean of the prior."""

    def with_ridge(self, of_bends: Floats) -> _Loss:
        """The same with this ridge on the bends."""
        return replace(self, ridge=np.append(self.ridge[:2], of_bends))

    @property
    def _scale(self) -> float:
        """Samples less than one in total count as what they are, not as one."""
        return max(self.total, 1.0)

    @property
    def _mean_ridge(self) -> Floats:
        return np.clip(self.ridge / self._scale, *RIDGES)

    def at(self, parameters: Floats) -> _Local:
        """The criterion, its gradient and its Hessian."""
        ridge, weight = self._mean_ridge, self.share * (self.total / self._scale)
        z = parameters @ self.features
        g = sigmoid(z)
        losses = np.logaddexp(0.0, z) - self.targets * z
        away = parameters - self.identity
        hessian = (self.features * (weight * g * sigmoid(-z))) @ self.features.T
        hessian[np.diag_indices_from(hessian)] += ridge
        return _Local(
            parameters,
            float(weight @ losses + ridge @ away**2 / 2.0),
            self.features @ (weight * (g - self.targets)) + ridge * away,
            hessian,
        )

    def minimum(self, start: Floats) -> _Local:
        """The minimum, by Newton's method."""

        def step_from(here: _Local) -> Step[_Local] | None:
            direction = -np.linalg.solve(here.hessian, here.gradient)
            decrease = -float(here.gradient @ direction)
            if decrease <= SMALL_DECREASE:
                return None
            return Step(lambda length: self.at(here.parameters + length * direction), decrease)

        return damped_newton(self.at(start), step_from, lengths=LENGTHS, most_steps=MOST_STEPS)

    def fit(self, found: _Local) -> _Fit:
        """The fit at the minimum."""
        ridge = self._mean_ridge
        half_log_det = np.log(np.diag(np.linalg.cholesky(found.hessian))).sum()
        log_evidence = np.log(ridge).sum() / 2.0 - half_log_det - self._scale * found.value
        from_prior = np.trace(np.linalg.solve(found.hessian, np.diag(ridge)))
        return _Fit(
            log_odds=found.parameters @ self.features,
            slope=max(float(found.parameters[0]), 0.0),
            n_parameters=float(len(ridge) - from_prior),
            log_evidence=float(log_evidence),
        )
