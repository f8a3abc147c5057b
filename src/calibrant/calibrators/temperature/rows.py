"""What the fits of this family compute for each sample; truncated rows register their own way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

from calibrant._numerics.first_use import are_few_and_once
from calibrant.calibrators.data import FitData, Floats

LARGEST_DISTANCE = 2.0**1022
"""Larger distances between logits are reduced to this."""


@singledispatch
def log_odds_of(data: FitData, gamma: float, inverse_temperature: float) -> Floats:
    """Log-odds of the top class after Psi^gamma(softmax(b s)), per row."""
    (log_odds,) = log_odds_of_gammas(data, (gamma,), inverse_temperature)
    return np.asarray(log_odds)


def log_odds_of_gammas(
    data: FitData, gammas: Sequence[float], inverse_temperature: float
) -> Floats:
    """:func:`log_odds_of` for many gammas, which share the softmax: (gammas, rows)."""
    from calibrant.calibrators.temperature.kernels import log_odds_of_rows
    from calibrant.calibrators.temperature.search_in_numpy import few_log_odds

    each = np.array(gammas, dtype=np.float64)
    if are_few_and_once(data.logits.size):
        return few_log_odds(data.logits, inverse_temperature, each)
    log_odds = np.empty((len(gammas), len(data)))
    log_odds_of_rows(data.logits, inverse_temperature, each, log_odds, times=len(each))
    return log_odds


@singledispatch
def mapped_rows(
    data: FitData, gamma: float, inverse_temperature: float
) -> tuple[Floats, Floats, Floats]:
    """Log-odds of the top class, log-probability of the label, squared distance to the label.

    All of Psi^gamma(softmax(b s)), per row.
    """
    from calibrant.calibrators.temperature.kernels import map_rows

    log_odds, true_log_prob, distances = found = tuple(np.empty(len(data)) for _ in range(3))
    map_rows(data.logits, data.labels, inverse_temperature, gamma, *found)
    return log_odds, true_log_prob, distances


@singledispatch
def temperature_rows(data: FitData, inverse_temperature: float) -> Floats:
    """Cross-entropy f of softmax(b s), and b f', b^2 f'' and b^3 f''', per row: (4, n)."""
    from calibrant.calibrators.temperature.kernels import cross_entropy_rows

    out = np.empty((4, len(data)))
    cross_entropy_rows(data.logits, data.labels, inverse_temperature, out)
    return out


def distances_below_top(data: FitData) -> Floats:
    """Distance from the largest logit to what competes with it, per row; 0 where nothing does.

    The competitor is the label where it is another class, else the largest logit below the top.
    """
    distance = np.empty(len(data))
    for block in data.blocks():
        logits = data.logits[block].astype(np.float64)
        top, label = logits.max(axis=1), logits[np.arange(len(logits)), data.labels[block]]
        runner_up = np.where(logits < top[:, np.newaxis], logits, -np.inf).max(axis=1)
        half = top / 2.0 - np.where(label < top, label, runner_up) / 2.0  # the whole may overflow
        half[half == np.inf] = 0.0
        distance[block] = 2.0 * np.minimum(half, LARGEST_DISTANCE / 2.0)
    return distance
