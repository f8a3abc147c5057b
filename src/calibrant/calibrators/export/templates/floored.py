"""Temperature scaling of floored logits."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import Floats, checked

FLOOR = 1.0
TEMPERATURE = 1.0


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """softmax(max(s - max(s), -FLOOR) / TEMPERATURE)."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = np.maximum(s - s.max(axis=-1, keepdims=True), -FLOOR) / TEMPERATURE
    p: Floats = np.where(s == -np.inf, 0.0, np.exp(z))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
