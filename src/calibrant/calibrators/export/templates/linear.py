"""Maps that are linear in the centred logits: vector, matrix."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import Floats, checked

TEMPERATURE = 1.0
MATRIX = np.zeros((3, 3))
BIAS = np.zeros(3)


def centred(s: Floats) -> Floats:
    """Logits minus the mean of the finite ones of their row; 0 where the class is masked."""
    possible = s > -np.inf
    with np.errstate(over="ignore"):
        z = np.where(possible, np.maximum(s - s.max(axis=-1, keepdims=True), -8e307), 0.0)
    mean = (z / possible.sum(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)
    return np.where(possible, z - mean, 0.0)


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """softmax(scores(s) + BIAS) of the centred logits s."""
    s, dtype = checked(logits)
    x = centred(s)
    size = np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1e-300)
    # Rows are scaled to size 1, so that nothing overflows before the largest is subtracted.
    y = np.where(s == -np.inf, -np.inf, scores(x / size))
    with np.errstate(over="ignore"):
        y = (y - y.max(axis=-1, keepdims=True)) * size + BIAS
    p: Floats = np.exp(y - y.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)


def scores(x: Floats) -> Floats:
    """A matrix close to that of one temperature: the temperature plus a correction."""
    return x / TEMPERATURE + x @ MATRIX.T
