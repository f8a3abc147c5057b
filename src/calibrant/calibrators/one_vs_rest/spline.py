"""Spline calibration: a rising curve, as far from a logistic one as the samples ask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
FITTED_AT_ONCE = 16
"""Problems that are fitted together: their numbers stay in the processor's cache."""
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

    def _curves(
        self, groups: Iterable[PooledSamples], n_classes: int, lines: Floats | None
    ) -> list[Curve]:
        cells = [_Cells.of(each) for each in groups]
        curves: dict[int, Curve] = {}
        for size in {len(each.hits) for each in cells}:
            alike = [k for k, each in enumerate(cells) if len(each.hits) == size]
            for start in range(0, len(alike), FITTED_AT_ONCE):
                some = alike[start : start + FITTED_AT_ONCE]
                started = None if lines is None else lines[some]
                fits = most_probable([cells[k] for k in some], n_classes, started)
                curves |= {k: cells[k].curve(fit) for k, fit in zip(some, fits, strict=True)}
        return [curves[k] for k in range(len(cells))]

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        (curve,) = self._curves([groups], n_classes, None if line is None else line[np.newaxis])
        return curve

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

    def curve(self, fit: _Fit) -> Curve:
        """The table of a fit."""
        x, z = self.log_odds, self.rising(fit.log_odds)
        first, last = z[0] - fit.slope * (x[0] + PADDING), z[-1] + fit.slope * (PADDING - x[-1])
        return Curve(
            knots=np.concatenate([[-PADDING], x, [PADDING]]),
            columns={"values": np.concatenate([[first], z, [last]])},
            n_parameters=fit.n_parameters,
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


def most_probable(cells: list[_Cells], n_classes: int, lines: Floats | None) -> Iterator[_Fit]:
    """The fit of each problem with the variance of the highest marginal likelihood.

    All problems have as many cells; ``lines`` are where their searches start.
    """
    even = -math.log(n_classes - 1)  # the log-odds of 1/K
    losses, start = _losses(cells, n_classes), None
    if lines is not None:
        start = np.zeros(losses.ridge.shape)
        start[:, 0] = np.repeat(lines[:, 0], len(VARIANCES))
        start[:, -1] = np.repeat(lines @ [even, 1.0], len(VARIANCES))
    found = free_minimum(losses, start)
    scale = np.repeat([max(each.weight.sum(), 1.0) for each in cells], len(VARIANCES))
    log_det = np.linalg.slogdet(found.hessian).logabsdet
    log_evidence = (np.log(losses.ridge).sum(axis=1) - log_det) / 2.0 - scale * found.value
    best = log_evidence.reshape(-1, len(VARIANCES)).argmax(axis=1)
    for k in np.arange(len(cells)) * len(VARIANCES) + best:
        hessian = found.hessian[k]
        from_prior = np.diag(np.linalg.solve(hessian, np.diag(losses.ridge[k]))).sum()
        yield _Fit(
            log_odds=found.parameters[k] @ losses.features[k],
            slope=max(float(found.parameters[k, 0]), 0.0),
            n_parameters=float(len(hessian) - from_prior),
        )


def _losses(cells: list[_Cells], n_classes: int) -> LogisticLosses:
    """The criteria, for each variance in turn, as functions of a, the e_j, and z where q = 1/K."""
    even = -math.log(n_classes - 1)
    hits, misses = (
        np.stack([getattr(each, name) for each in cells]) for name in ("hits", "misses")
    )
    log_odds, share = np.stack([c.log_odds for c in cells]), np.stack([c.share for c in cells])
    weight = hits + misses
    scale = np.maximum(weight.sum(axis=1, keepdims=True), 1.0)
    # e_j moves the cells above it, less the mean over all samples: b is about their level.
    n_cells = share.shape[1]
    walk = np.tri(n_cells, n_cells - 1, -1)
    features = np.empty((len(cells), n_cells + 1, n_cells))
    features[:, 0] = log_odds - even
    features[:, 1:-1] = walk.T - (share @ walk)[:, :, np.newaxis]
    features[:, -1] = 1.0
    identity = np.concatenate([[1.0], np.zeros(n_cells - 1), [even]])
    hit, miss = (smoothing(n.sum(axis=1, keepdims=True), n_classes) for n in (hits, misses))
    targets = (hits * (1.0 - hit) + misses * miss) / weight
    between_middles = np.maximum((share[:, 1:] + share[:, :-1]) / 2.0, LEAST_FRACTION)
    slope, shift = RIDGE * ridge_shape(log_odds, share, 1).T
    n = len(VARIANCES)
    ridge = np.empty((len(cells), n, n_cells + 1))
    ridge[:, :, 0], ridge[:, :, -1] = slope[:, np.newaxis], shift[:, np.newaxis]
    ridge[:, :, 1:-1] = 1.0 / (VARIANCES[:, np.newaxis] * between_middles[:, np.newaxis])
    ridge /= scale[:, np.newaxis]
    return LogisticLosses(
        features=np.repeat(features, n, axis=0),
        targets=np.repeat(targets, n, axis=0),
        weight=np.repeat(weight / scale, n, axis=0),
        ridge=np.clip(ridge.reshape(-1, n_cells + 1), *RIDGES),
        identity=np.tile(identity, (n * len(cells), 1)),
    )
