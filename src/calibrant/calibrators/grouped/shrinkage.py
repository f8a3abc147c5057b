"""An inverse temperature and class biases for each group, shrunk towards none.

    z_g = a_g l + b_g,    a_g ~ N(1, s^2),    b_gk ~ N(0, t^2)

with l the log-probabilities of the calibrator that all groups share. As for the labels of a
multi-label model (``multilabel/shrinkage``), the variances s^2 and t^2 are those with the highest
likelihood, with a_g and b_g integrated out: expectation-maximisation on parabolas that touch the
log-likelihood of each group at its most probable terms. So the groups themselves say how much they
differ, and one with few samples stays with the others.

One more group, which differs by small variances, counts in s^2 and t^2: it decides if the samples
tell little, and keeps the variances away from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.calibrators.data import Floats
from calibrant.calibrators.linear.loss import LossInMemory, loss_of_slope
from calibrant.calibrators.one_vs_rest.base import MOST_LOG_ODDS

FIRST_VARIANCES = np.array([0.01, 0.025])
"""Where the estimates of s^2 and t^2 start. For two classes the difference of two biases then has
the variance of a label's shift in ``multilabel/shrinkage``, 0.05."""
ONE_MORE_GROUP = FIRST_VARIANCES / 10.0
"""The variances of one more group: see above. Chosen on the reference year of
``experiments/census_groups``, fitted on 1,000, 5,000 and 30,000 rows in five groupings. Ten times
as much raises the mean NLL of other rows by 0.0002 if rows are few; a tenth as much gives away half
of what 30,000 rows gain."""
LEAST = 0.01
"""Smallest inverse temperature."""
MOST_ROUNDS, MOST_UPDATES, MOST_STEPS = 20, 500, 50
SETTLED = 0.001
"""If no variance changes by more than this fraction, the fit ends."""
CLOSE = 1e-9
"""The search for the terms of a group ends when a step lowers the loss by less."""
LENGTHS = tuple(0.5**i for i in range(12))


class GroupTerms(NamedTuple):
    """The fitted terms."""

    inverse_temperature: Floats
    """(G,)"""
    bias: Floats
    """(G, K)"""
    variances: Floats
    """s^2 and t^2."""
    gradient: float
    """Largest remaining entry of the gradient of the mean loss."""
    rounds: int


@dataclass(frozen=True)
class _Local:
    """The loss of one group at one point: minus the log-likelihood, plus the penalty."""

    terms: Floats
    """a, then the b_k."""
    value: float
    gradient: Floats
    slope_of_loss: Floats
    """The gradient without the penalty."""
    curvature: Floats
    """The Hessian without the penalty."""


def _at(loss: LossInMemory, terms: Floats, precision: Floats) -> _Local:
    terms = np.concatenate([[max(terms[0], LEAST)], terms[1:]])
    away = terms - _unchanged(len(terms))
    value, slope, curvature = loss.nll_and_hessian(terms)
    return _Local(
        terms=terms,
        value=float(value + 0.5 * precision @ away**2),
        gradient=slope + precision * away,
        slope_of_loss=slope,
        curvature=curvature,
    )


def _most_probable(loss: LossInMemory, start: Floats, precision: Floats) -> _Local:
    """The terms with the smallest loss; ``loss`` is minus the log-likelihood of a group."""

    def step_from(here: _Local) -> NewtonStep[_Local] | None:
        step = -np.linalg.solve(here.curvature + np.diag(precision), here.gradient)
        decrease = -float(step @ here.gradient)
        if decrease <= CLOSE:
            return None
        return NewtonStep(lambda f: _at(loss, here.terms + f * step, precision), decrease)

    first = _at(loss, start, precision)
    return damped_newton(first, step_from, lengths=LENGTHS, most_steps=MOST_STEPS)


def fit_group_terms(
    log_probs: Floats,
    labels: npt.NDArray[np.int64],
    count: Floats,
    rows: Sequence[npt.NDArray[np.intp]],
) -> GroupTerms:
    """Fit the terms of all groups.

    Args:
        log_probs: Log-probabilities of the calibrator that all groups share, (n, K).
        labels: (n,)
        count: How many samples each row counts for, (n,).
        rows: The rows of each group.
    """
    floored = np.maximum(log_probs, -MOST_LOG_ODDS)
    losses = [loss_of_slope(floored[which], labels[which], count[which]) for which in rows]
    n_terms = log_probs.shape[1] + 1
    found = [_unchanged(n_terms) for _ in losses]
    variances, settled, rounds = FIRST_VARIANCES, False, 0
    while not settled and rounds < MOST_ROUNDS:
        precision = 1.0 / _for_each_term(variances, n_terms)
        near = [_most_probable(*each, precision) for each in zip(losses, found, strict=True)]
        found = [each.terms for each in near]
        last, variances = variances, _most_likely(near, variances)
        rounds, settled = rounds + 1, _is_near(variances, last)
    terms = np.stack(found)
    gradient = max(float(np.abs(each.gradient[1:]).max()) for each in near) / float(count.sum())
    return GroupTerms(terms[:, 0].copy(), terms[:, 1:].copy(), variances, gradient, rounds)


def _most_likely(near: Sequence[_Local], variances: Floats) -> Floats:
    """The variances with the highest likelihood, under the parabolas."""
    curvature = np.stack([each.curvature for each in near])
    linear = np.stack([each.curvature @ each.terms - each.slope_of_loss for each in near])
    n_terms = linear.shape[1]
    unchanged = _unchanged(n_terms)
    for _ in range(MOST_UPDATES):
        precision = 1.0 / _for_each_term(variances, n_terms)
        covariances = np.linalg.inv(curvature + np.diag(precision))
        means = (covariances @ (linear + precision * unchanged)[..., np.newaxis])[..., 0]
        spread = (means - unchanged) ** 2 + np.diagonal(covariances, axis1=1, axis2=2)
        mean = (spread.sum(axis=0) + _for_each_term(ONE_MORE_GROUP, n_terms)) / (len(near) + 1)
        last, variances = variances, np.array([mean[0], mean[1:].mean()])
        if _is_near(variances, last):
            break
    return variances


def _for_each_term(variances: Floats, n_terms: int) -> Floats:
    return np.asarray(np.repeat(variances, [1, n_terms - 1]))


def _unchanged(n_terms: int) -> Floats:
    """The terms of a group that does not differ: a = 1, b = 0."""
    return np.asarray(np.eye(n_terms)[0])


def _is_near(variances: Floats, others: Floats) -> bool:
    return bool((np.abs(variances - others) <= SETTLED * others).all())
