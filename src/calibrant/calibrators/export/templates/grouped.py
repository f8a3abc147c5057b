"""A calibrator that all groups share, and a temperature and biases for each group."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

INVERSE_TEMPERATURE = np.ones(2)
BIAS = np.zeros((2, 3))
GROUPS: list[tuple[str, ...]] = [("f",), ("m",)]
BASE: tuple[Callable[[Floats], Floats], ...] = ()


def predict_proba(logits: ArrayLike, groups: list[tuple[str, ...]]) -> np.ndarray:
    """softmax(a l + b) with l the log-probabilities after BASE; ``groups`` has one of each row."""
    s, dtype = checked(logits)
    place = {group: i for i, group in enumerate(GROUPS)}
    at = np.array([place.get(tuple(group), len(place)) for group in groups])
    for part in BASE:
        with np.errstate(divide="ignore"):
            s = np.log(part(s))
    slopes, biases = np.append(INVERSE_TEMPERATURE, 1.0), np.vstack([BIAS, np.zeros(N_CLASSES)])
    z = slopes[at][:, np.newaxis] * s + biases[at]
    p: Floats = np.exp(z - z.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
