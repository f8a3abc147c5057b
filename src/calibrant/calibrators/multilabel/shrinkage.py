"""A slope and a shift for each label, shrunk towards those of all labels.

    z_l = a_l x + b_l,        (a_l, b_l) ~ N(m, S)

m and S are those with the highest likelihood, with (a_l, b_l) integrated out: the expectation-
maximisation algorithm of random effects (Dempster, Laird and Rubin, 1977), on parabolas that touch
the log-likelihood of each label at its most probable (a_l, b_l). So the labels themselves say how
much they differ: with S = 0 all have the same map, and a label with few positives stays with the
others while one with many goes its own way.

One more label, with slope 1, shift 0 and a small covariance, counts in m and S: it decides if there
are one or two labels, and keeps S away from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import Floats, row_blocks
from calibrant.calibrators.one_vs_rest.logistic import LEAST_TARGET, LogisticLosses, bounded_minimum

IDENTITY = np.array([1.0, 0.0])
FIRST_COVARIANCE = np.diag([0.01, 0.05])
"""Where the estimate of S starts, and the covariance of one more label: see above."""
MOST_ROUNDS, MOST_UPDATES = 20, 500
SETTLED = 0.001
"""If nothing in m or S changes by more than this fraction of a standard deviation, the fit ends."""


@dataclass(frozen=True)
class Prior:
    """The normal distribution of slope and shift over labels."""

    mean: Floats
    covariance: Floats

    def is_near(self, other: Prior) -> bool:
        """Whether the difference does not matter."""
        spread = np.sqrt(np.diag(self.covariance))
        moved = np.abs(self.mean - other.mean) / spread
        widened = np.abs(self.covariance - other.covariance) / np.outer(spread, spread)
        return bool(max(moved.max(), widened.max()) <= SETTLED)


class LabelTerms(NamedTuple):
    """The fitted terms."""

    slope: Floats
    """(L,)"""
    shift: Floats
    """(L,)"""
    prior: Prior
    gradient: float
    """Largest remaining entry of the gradient of the mean loss."""
    rounds: int


class _Parabolas(NamedTuple):
    """The log-likelihood of each label near ``top``: linear @ t - t @ curvature @ t / 2."""

    top: Floats
    """(L, 2): the most probable slope and shift."""
    linear: Floats
    """(L, 2)"""
    curvature: Floats
    """(L, 2, 2)"""


def fit_label_terms(x: Floats, positives: npt.NDArray[np.bool_], count: Floats) -> LabelTerms:
    """Fit slopes and shifts of all labels.

    Args:
        x: Log-odds, (L, n).
        positives: Labels, (L, n).
        count: How many samples each column counts for, (n,).
    """
    prior = Prior(IDENTITY, FIRST_COVARIANCE)
    rounds, settled = 0, False
    while not settled and rounds < MOST_ROUNDS:
        near, gradient = _most_probable(x, positives, count, prior)
        last, prior = prior, _most_likely(near, prior)
        rounds, settled = rounds + 1, prior.is_near(last)
    slope, shift = near.top.T.copy()
    return LabelTerms(slope, shift, prior, gradient, rounds)


def _most_probable(
    x: Floats, positives: npt.NDArray[np.bool_], count: Floats, prior: Prior
) -> tuple[_Parabolas, float]:
    """The most probable terms of each label, and the parabolas there.

    In units of the prior, the penalty is the square of each coordinate. The slope is the first of
    them times a positive number, so that it can be bounded below by 0.
    """
    total = count.sum()
    units = np.linalg.cholesky(prior.covariance)
    centre = np.linalg.solve(units, prior.mean)
    found, gradient = [], 0.0
    for block in row_blocks(*x.shape):
        hits = positives[block].astype(np.float64)
        # The search starts at the log-odds of the mean target, which must be finite.
        targets = hits.clip(LEAST_TARGET, 1.0 - LEAST_TARGET)
        features = np.stack([x[block], np.ones_like(x[block])], axis=1)
        best = bounded_minimum(
            LogisticLosses(
                features=units.T @ features,
                targets=targets,
                weight=np.broadcast_to(count / total, hits.shape),
                ridge=np.full((len(hits), 2), 1.0 / total),
                identity=np.tile(centre, (len(hits), 1)),
            )
        )
        gradient = max(gradient, float(best.gradient.max()))
        top = best.parameters @ units.T
        p = sigmoid((top[:, np.newaxis] @ features)[:, 0])
        slope_of_loss = features @ (count * (p - hits))[..., np.newaxis]
        curvature = features * (count * p * (1.0 - p))[:, np.newaxis] @ features.transpose(0, 2, 1)
        found.append(_Parabolas(top, _times(curvature, top) - slope_of_loss[..., 0], curvature))
    return _Parabolas(*map(np.concatenate, zip(*found, strict=True))), gradient


def _most_likely(near: _Parabolas, prior: Prior) -> Prior:
    """The prior with the highest likelihood, under the parabolas."""
    for _ in range(MOST_UPDATES):
        precision = np.linalg.inv(prior.covariance)
        covariances = np.linalg.inv(near.curvature + precision)
        means = _times(covariances, near.linear + precision @ prior.mean)
        known = np.vstack([means, IDENTITY])
        away = known - known.mean(axis=0)
        spread = away.T @ away + covariances.sum(axis=0) + FIRST_COVARIANCE
        last, prior = prior, Prior(known.mean(axis=0), spread / len(known))
        if prior.is_near(last):
            break
    return prior


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Each matrix times its vector."""
    return np.asarray((matrices @ vectors[..., np.newaxis])[..., 0])
