"""The temperature that comes closest to the focal map on a network's own outputs.

``calibrant.focal.closest_temperature`` looks at the whole simplex, for up to four classes. Here
the largest difference is over the outputs that a network gives, for any number of classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from calibrant import FocalCalibration
from experiments.temperature_line.lines import Floats

LARGEST = 2.0
"""Upper end of the search, in multiples of gamma + 1, the largest 1/T of two classes."""


def closest_before(logits: Floats, gamma: float) -> float:
    """The T with the smallest largest difference of Psi(softmax(s / T)) to softmax(s).

    What temperature scaling has to become when the map follows it.
    """
    mapped, plain = probabilities(logits, gamma), probabilities(logits, 0.0)
    wanted = plain(1.0)
    return _least(lambda t: mapped(t) - wanted, 1.0 / LARGEST, LARGEST * (gamma + 1.0))


def closest_after(logits: Floats, gamma: float) -> float:
    """The T with the smallest largest difference of softmax(s / T) to Psi(softmax(s)).

    The temperature that the map stands for, as ``closest_temperature`` has it on the simplex.
    """
    mapped, plain = probabilities(logits, gamma), probabilities(logits, 0.0)
    wanted = mapped(1.0)
    return _least(lambda t: plain(t) - wanted, 1.0 / (LARGEST * (gamma + 1.0)), LARGEST)


def probabilities(logits: Floats, gamma: float) -> Callable[[float], Floats]:
    """Psi(softmax(s / T)) as a function of T."""
    # The map has nothing to fit, so any labels will do.
    mapping = FocalCalibration(gamma=gamma).fit(logits, logits.argmax(axis=1))
    return lambda t: np.asarray(mapping.predict_proba(logits / t))


def _least(difference: Callable[[float], Floats], low: float, high: float) -> float:
    """The T between ``low`` and ``high`` at which the largest difference is smallest."""
    found = minimize_scalar(
        lambda log_t: np.abs(difference(float(np.exp(log_t)))).max(),
        bounds=(np.log(low), np.log(high)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(np.exp(found.x))
