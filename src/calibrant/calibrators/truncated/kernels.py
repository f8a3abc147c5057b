"""Compiled passes over truncated rows, by the estimate.

A few stand-ins enter every sum for the unknown classes, each of them several times (see ``rows``).
They are the last entries of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.compiled import copy_to, kernel, max_of, over_rows
from calibrant.calibrators.row_kernels import (
    difference,
    exponentials,
    log_one_plus_exp,
    moments,
    relative_to,
)
from calibrant.calibrators.temperature.kernels import (
    cross_entropy_derivatives,
    log_against_top,
    map_row,
)

Floats = npt.NDArray[np.float64]


@kernel(inline="always")
def join(known: Floats, stand_ins: Floats, row: Floats) -> None:
    """Write the known log-probabilities and those of the stand-ins into ``row``."""
    copy_to(row, known)
    copy_to(row[len(known) :], stand_ins)


@over_rows
def map_truncated_rows(
    start: int,
    stop: int,
    known: Floats,
    stand_ins: Floats,
    counts: Floats,
    labels: Any,
    inverse_temperature: float,
    gamma: float,
    log_odds: Floats,
    true_log_prob: Floats,
    log_probs: Floats,
) -> None:
    """Log-odds of the top class and log-probability of the label after the map, per row.

    The log-probabilities of the known classes are written into ``log_probs``, unless it is empty.
    """
    width = known.shape[1] + stand_ins.shape[1]
    row, x, e, g = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for i in range(start, stop):
        y = labels[i]
        join(known[i], stand_ins[i], row)
        m, _, log_phi, against = map_row(row, inverse_temperature, gamma, counts[i], x, e, g)
        log_odds[i] = -against
        true_log_prob[i] = -log_one_plus_exp(against)
        if y != m:
            true_log_prob[i] += log_against_top(y, m, row, inverse_temperature, log_phi, e, g)
        for j in range(log_probs.shape[1]):
            log_probs[i, j] = -log_one_plus_exp(against)
            if row[j] == -np.inf:
                log_probs[i, j] = -np.inf
            elif row[j] < row[m]:
                below = log_against_top(j, m, row, inverse_temperature, log_phi, e, g)
                log_probs[i, j] += min(below, 0.0)


@over_rows
def truncated_cross_entropy_rows(
    start: int,
    stop: int,
    known: Floats,
    stand_ins: Floats,
    counts: Floats,
    labels: Any,
    inverse_temperature: float,
    out: Floats,
) -> None:
    """:func:`cross_entropy_derivatives` of softmax(b s), per row: (4, n)."""
    k = known.shape[1]
    width = k + stand_ins.shape[1]
    row, x, e = np.empty(width), np.empty(width), np.empty(width)
    for i in range(start, stop):
        join(known[i], stand_ins[i], row)
        top = max_of(row)
        relative_to(row, top, inverse_temperature, x)
        exponentials(x, e)
        for j in range(width - k):
            e[k + j] *= counts[i, j]
        total, first, second, third = moments(x, e)
        of_label = difference(row[labels[i]], top, inverse_temperature)
        cross_entropy_derivatives(total, first, second, third, of_label, out[:, i])
