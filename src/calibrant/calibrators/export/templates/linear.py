"""Maps that are linear in the logits or in the log-probabilities."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import Floats, checked

TEMPERATURE = 1.0
WEIGHTS = np.ones(3)
MATRIX = np.eye(3)
BIAS = np.zeros(3)


def centred(s: Floats) -> Floats:
    """Logits minus the mean of the finite ones of their row; 0 where the class is masked."""
    possible = s > -np.inf
    with np.errstate(over="ignore"):
        z = np.where(possible, np.maximum(s - s.max(axis=-1, keepdims=True), -8e307), 0.0)
    mean = (z / possible.sum(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)
    return np.where(possible, z - mean, 0.0)


def of_matrix(x: Floats) -> Floats:
    """A matrix close to that of one temperature: the temperature plus a correction."""
    return x / TEMPERATURE + x @ MATRIX.T


def of_vector(x: Floats) -> Floats:
    """The logits times the weight of their class."""
    return x * WEIGHTS


scores = of_matrix  # or of_vector


def linear(logits: ArrayLike) -> np.ndarray:
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


def bias_corrected(logits: ArrayLike) -> np.ndarray:
    """softmax(s / TEMPERATURE + BIAS)."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = (s - s.max(axis=-1, keepdims=True)) / TEMPERATURE + BIAS
    p: Floats = np.exp(z - z.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)


def dirichlet(logits: ArrayLike) -> np.ndarray:
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


def structured(logits: ArrayLike) -> np.ndarray:
    """softmax(MATRIX g + BIAS) with g = max(log(softmax(s / TEMPERATURE)), -10), centred."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = (s - s.max(axis=-1, keepdims=True)) / TEMPERATURE
    log_q = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    g = centred(np.where(s == -np.inf, -np.inf, np.maximum(log_q, -10.0)))
    scores = (g[..., np.newaxis, :] * MATRIX).sum(axis=-1) + BIAS
    y = np.where(s == -np.inf, -np.inf, scores)
    p: Floats = np.exp(y - y.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
