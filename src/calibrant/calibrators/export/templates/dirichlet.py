"""Dirichlet calibration: linear in the log-probabilities."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import Floats, checked
from calibrant.calibrators.export.templates.linear import centred

TEMPERATURE = 1.0
MATRIX = np.zeros((3, 3))
BIAS = np.zeros(3)


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """softmax(s / TEMPERATURE + MATRIX log(softmax(s)) + BIAS) of the centred logits s."""
    s, dtype = checked(logits)
    absent = s == -np.inf
    x = centred(s)
    z = np.where(absent, -np.inf, x - np.where(absent, -np.inf, x).max(axis=-1, keepdims=True))
    log_q = np.where(absent, 0.0, z - np.log(np.exp(z).sum(axis=-1, keepdims=True)))
    size = np.maximum(np.abs(log_q).max(axis=-1, keepdims=True), 1e-300)
    # Rows are scaled to size 1, so that nothing overflows before the largest is subtracted.
    y = np.where(absent, -np.inf, x / size / TEMPERATURE + log_q / size @ MATRIX.T)
    with np.errstate(over="ignore"):
        y = (y - y.max(axis=-1, keepdims=True)) * size + BIAS
    p: Floats = np.exp(y - y.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
