"""What the fits of this family compute of each sample; truncated rows have their own way."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from calibrant.calibrators.data import FitData, Floats


@singledispatch
def log_odds_of(data: FitData, gamma: float, beta: float) -> Floats:
    """Log odds of the top class of each row after Psi^gamma(softmax(b s))."""
    from calibrant.calibrators.temperature.kernels import log_odds_of_rows

    log_odds = np.empty(len(data))
    log_odds_of_rows(data.logits, beta, gamma, log_odds)
    return log_odds


@singledispatch
def mapped_rows(data: FitData, gamma: float, beta: float) -> tuple[Floats, Floats, Floats]:
    """Of Psi^gamma(softmax(b s)), per row: log odds of the top class, log-probability of the label.

    And the squared distance to the one-hot label.
    """
    from calibrant.calibrators.temperature.kernels import map_rows

    log_odds, true_log_prob, distances = (np.empty(len(data)) for _ in range(3))
    map_rows(data.logits, data.labels, beta, gamma, log_odds, true_log_prob, distances)
    return log_odds, true_log_prob, distances


@singledispatch
def temperature_rows(data: FitData, beta: float) -> Floats:
    """Cross-entropy of softmax(b s), its gradient, curvature and third derivative by log b."""
    from calibrant.calibrators.temperature.kernels import temperature_rows

    out = np.empty((4, len(data)))
    temperature_rows(data.logits, data.labels, beta, out)
    return out
