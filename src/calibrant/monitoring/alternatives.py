r"""Alternatives to calibrated probabilities, and the evidence of labels for each of them.

A calibrated model's label is drawn from its stated probabilities p. An alternative tilts them,

.. math:: q_k \propto p_k e^{h_k(p)},

and its evidence is the likelihood ratio :math:`q_y / p_y` of the label y. Its mean is 1 if the
model is calibrated, whatever the tilt h. Logarithms of ratios are added over samples, so evidence
of batches, files and workers is merged by addition.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from calibrant.metrics.samples import Floats

SHIFTS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Shifts of the log-odds, both ways: from half a point to tens of points of confidence."""
CLASS_SHIFTS = (0.2, 0.8)
"""Shifts of one class of many, both ways. Few, because every class has its own sums."""
FACTORS = (1.05, 1.1, 1.2, 1.4, 2.0)
"""Factors of all logits, and their inverses."""
BOTH_WAYS = tuple(sign * shift for shift in SHIFTS for sign in (1.0, -1.0))
SMALLEST_LOG_PROB = -30.0
"""Smaller log-probabilities count as this one, so that nothing is infinite."""


@dataclass(frozen=True)
class Alternative:
    """One way in which probabilities can be wrong."""

    what: str
    """``"confidence"``, ``"temperature"`` or ``"class"``."""
    amount: float
    """The shift of log-odds that would correct it, or the factor of the logits."""
    of: int | None = None
    """The class."""


@cache
def alternatives(n_classes: int) -> tuple[Alternative, ...]:
    """The alternatives of a model with this many classes.

    Examples:
        >>> len(alternatives(2)), len(alternatives(10))
        (30, 60)
    """
    of_many = tuple(sign * shift for shift in CLASS_SHIFTS for sign in (1.0, -1.0))
    classes, shifts = ([1], BOTH_WAYS) if n_classes == 2 else (range(n_classes), of_many)
    return (
        *(Alternative("confidence", shift) for shift in BOTH_WAYS),
        *(Alternative("temperature", f) for factor in FACTORS for f in (factor, 1.0 / factor)),
        *(Alternative("class", shift, k) for k in classes for shift in shifts),
    )


def log_weights(n_classes: int) -> Floats:
    """The logarithm of each alternative's share: a third for each kind."""
    kinds = [each.what for each in alternatives(n_classes)]
    count = Counter(kinds)
    return np.array([-np.log(3.0 * count[kind]) for kind in kinds])


def log_ratios(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """The log likelihood ratios of every alternative, summed over samples.

    Args:
        log_probs: (N, K) normalised log-probabilities, finite.
        labels: (N,) classes.

    Examples:
        >>> import numpy as np
        >>> sure = np.log(np.full((100, 2), [0.1, 0.9]))
        >>> found = log_ratios(sure, np.repeat([0, 1], 50))  # right half of the time, not 90%
        >>> alternatives(2)[found.argmax()].amount < 1
        True
    """
    n_classes = log_probs.shape[1]
    probs = np.exp(log_probs)
    top = log_probs.argmax(axis=1)
    confidence = probs[np.arange(len(probs)), top]
    of_labels = log_probs[np.arange(len(probs)), labels].sum()
    counts = np.bincount(labels, minlength=n_classes)
    found = []
    for each in alternatives(n_classes):
        if each.what == "confidence":
            found.append(shifted(each.amount, confidence, labels == top).sum())
        elif each.what == "temperature":
            power = each.amount - 1.0
            normaliser = np.log((probs * np.exp(power * log_probs)).sum(axis=1))
            found.append(power * of_labels - normaliser.sum())
        else:
            scale = np.log1p(probs[:, each.of] * np.expm1(each.amount)).sum()
            found.append(each.amount * counts[each.of] - scale)
    return np.array(found)


def shifted(shift: float, prob: Floats, happened: npt.NDArray[np.bool_]) -> Floats:
    """The log likelihood ratio of each event if its log-odds are shifted."""
    ratio: Floats = shift * happened - np.log1p(prob * np.expm1(shift))
    return ratio
