"""Compiled preparation of truncated rows.

A row is k known log-probabilities, perhaps that of its label, and a *tail*, the unknown classes:
their number, the largest probability each may have, and their total probability are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.compiled import exp_nonpositive, index_of, kernel, over_rows, sum_of
from calibrant.calibrators.row_kernels import exponentials

Floats = npt.NDArray[np.float64]

START, EXPONENT, COUNT, LARGEST, LEAST, MOST = 0, 1, 2, 3, 4, 5
"""Columns of a tail: the start of its power law, log min(c, R), and its exponent; n; log c; the
smallest and the largest log R that the rounding of the logits allows."""
OF_TAIL = 6
MOST_STEPS = 200
REACH = 1e5
"""Classes whose log-probability is below minus this have probability 0 at every temperature: they
are absent."""


@kernel(fastmath={"contract"})
def tilt(a: float, places: Floats, shares: Floats, e: Floats) -> None:
    """Write shares e^(-a (place - first place)) into ``e``."""
    for j in range(len(places)):
        e[j] = shares[j] * exp_nonpositive(-a * (places[j] - places[0]))


@kernel()
def power_law(log_share: float, places: Floats, shares: Floats, e: Floats) -> float:
    """The exponent a for which log sum of shares e^(-a places) is ``log_share``, at most 0.

    Newton's method from a = 0: the sum is convex and falls, so every step stays below the solution.
    """
    a = 0.0
    for _ in range(MOST_STEPS):
        tilt(a, places, shares, e)
        total = first = 0.0
        for j in range(len(places)):
            total += e[j]
            first += e[j] * places[j]
        step = (np.log(total) - a * places[0] - log_share) * total / first
        a = max(a + step, 0.0)
        if abs(step) <= 1e-14 * a:
            break
    return a


@kernel(error_model="numpy")
def prepared_row(
    logits: Any,
    classes: Any,
    normaliser: float,
    label: int,
    label_logit: float,
    n_classes: int,
    rounding: float,
    tolerance: float,
    seen: Any,
    stamp: int,
    places: Floats,
    shares: Floats,
    known: Floats,
    tail: Floats,
    e: Floats,
) -> tuple[int, int]:
    """Write the log-probabilities and the tail; return what is wrong and the column of the label.

    ``label`` is -1 if there is none. The column of a label that is not among the known classes is
    k. ``e`` is scratch space.
    """
    k = len(classes)
    place = -1
    for j in range(k):
        if not logits[j] < np.inf:
            return _inputs.NOT_A_NUMBER, place
        if not 0 <= classes[j] < n_classes:
            return _inputs.NO_SUCH_CLASS, place
        if seen[classes[j]] == stamp:
            return _inputs.CLASS_TWICE, place
        seen[classes[j]] = stamp
        if classes[j] == label:
            place = j
    if not abs(normaliser) < np.inf:
        return _inputs.NO_NORMALISER, place
    if label < -1 or label >= n_classes:
        return _inputs.NO_SUCH_LABEL, place
    top, least = -np.inf, np.inf
    for j in range(k):
        known[j] = np.float64(logits[j]) - normaliser
        if known[j] < -REACH:
            known[j] = -np.inf
        top, least = max(top, known[j]), min(least, known[j])
    if top == -np.inf:
        return _inputs.NOTHING_POSSIBLE, place
    # The relative error of e^logit is the logit times its precision; so is that of e^normaliser.
    size = abs(top + normaliser) + abs(normaliser) + np.log(n_classes) + 2.0
    slack = tolerance * size
    if top > slack:
        return _inputs.TOO_MUCH_KNOWN, place
    exponentials(known[:k], e)
    e[index_of(known[:k], top)] = 0.0
    rest = -np.expm1(top) - sum_of(e[:k])
    missing = n_classes - k
    known[k] = -np.inf
    if label >= 0 and place < 0:
        place = k
        of_label = label_logit - normaliser
        if np.isnan(of_label):
            return _inputs.LABEL_UNKNOWN, place
        if of_label > least + slack:
            return _inputs.LABEL_TOO_LARGE, place
        known[k] = of_label if of_label >= -REACH else -np.inf
        rest -= np.exp(known[k])
        missing -= 1
    if label >= 0 and known[place] == -np.inf:
        return _inputs.LABEL_IMPOSSIBLE, place
    if rest < -slack:
        return _inputs.TOO_MUCH_KNOWN, place
    most = missing * np.exp(least)
    if rest > most * (1.0 + slack) + slack:
        return _inputs.TOO_LITTLE_KNOWN, place
    tail[:] = -np.inf
    tail[EXPONENT] = tail[COUNT] = 0.0
    if most > 0.0:
        tail[COUNT], tail[LARGEST] = missing, least
        tail[LEAST] = np.log(min(max(rest - rounding * size, 0.0), most))
        tail[MOST] = np.log(min(max(rest + rounding * size, 0.0), most))
        if rest > 0.0:
            rest = min(rest, most)
            tail[START] = min(np.log(rest), least)
            log_share = np.log(rest) - tail[START] - np.log(missing)
            tail[EXPONENT] = power_law(min(log_share, 0.0), places, shares, e)
    return _inputs.FINE, place


@over_rows
def prepare_rows(
    start: int,
    stop: int,
    logits: Any,
    classes: Any,
    normaliser: Any,
    labels: Any,
    label_logits: Any,
    n_classes: int,
    rounding: float,
    tolerance: float,
    places: Floats,
    shares: Floats,
    known: Floats,
    tail: Floats,
    label_places: Any,
    verdicts: Any,
) -> None:
    """:func:`prepared_row` of each row; ``labels`` and ``label_logits`` may be empty."""
    seen = np.full(n_classes, -1, dtype=np.int64)
    e = np.empty(max(logits.shape[1], len(places)))
    for i in range(start, stop):
        verdicts[i], label_places[i] = prepared_row(
            logits[i],
            classes[i],
            normaliser[i],
            labels[i] if len(labels) > 0 else -1,
            label_logits[i] if len(label_logits) > 0 else np.nan,
            n_classes,
            rounding,
            tolerance,
            seen,
            i,
            places,
            shares,
            known[i],
            tail[i],
            e,
        )
