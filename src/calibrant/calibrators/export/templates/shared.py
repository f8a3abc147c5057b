"""A calibrator that all groups or labels share, and terms for each of them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

INVERSE_TEMPERATURE = np.ones(2)
BIAS = np.zeros((2, 3))
GROUPS: list[tuple[str, ...]] = [("f",), ("m",)]
BASE: tuple[Callable[[Floats], Floats], ...] = ()
SLOPE = np.ones(3)
SHIFT = np.zeros(3)
CURVE: tuple[Callable[[Floats], Floats], ...] = ()


def grouped(logits: ArrayLike, groups: list[tuple[str, ...]]) -> np.ndarray:
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


def multilabel(logits: ArrayLike) -> np.ndarray:
    """sigmoid(SLOPE x + SHIFT) with x the log-odds after the CURVE of two classes."""
    given = np.asarray(logits)
    s = given.astype(np.float64)
    if s.ndim == 0 or s.shape[-1] != len(SLOPE):
        raise ValueError(f"expected {len(SLOPE)} labels on the last axis; found shape {s.shape}")
    if not np.isfinite(s).all():
        raise ValueError("logits must be finite")
    both = np.stack([np.zeros_like(s), s], axis=-1)  # no, yes
    for part in CURVE:
        with np.errstate(divide="ignore"):
            both = np.log(part(both))
    most = 52 * np.log(2)
    x = (both[..., 1] - both[..., 0]).clip(-most, most)
    z = (SLOPE * x + SHIFT).clip(-most, most)
    p: Floats = np.exp(-np.logaddexp(0.0, -z))
    single = given.dtype.kind == "f" and given.dtype.itemsize <= 4
    return p.astype(np.float32 if single else np.float64)
