"""Identity and temperature."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import Floats, checked

TEMPERATURE = 1.0


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """softmax(logits / TEMPERATURE)."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = (s - s.max(axis=-1, keepdims=True)) / TEMPERATURE
    p: Floats = np.exp(z)
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
