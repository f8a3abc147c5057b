"""Each class against the rest, with the map of one class in Platt scaling."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

SLOPE = np.ones(3)
SHIFT = np.zeros(3)


def log_odds(s: Floats) -> Floats:
    """log(q / (1 - q)) of q = softmax(s), within the bounds that a double can tell from 0 and 1."""
    top = s.argmax(axis=-1)[..., np.newaxis]
    is_top = np.arange(N_CLASSES) == top
    with np.errstate(over="ignore"):
        z = np.maximum(s - np.take_along_axis(s, top, axis=-1), -1e300)
    # The top class from the logits of the others, as 1 - q would round to 0.
    others = np.where(is_top, -np.inf, z)
    second: Floats = others.max(axis=-1, keepdims=True)
    rest: Floats = second + np.log(np.exp(others - second).sum(axis=-1, keepdims=True))
    log_q = z - np.logaddexp(0.0, rest)
    lower = log_q - np.log1p(-np.where(is_top, 0.0, np.exp(log_q)))
    return np.where(is_top, -rest, lower).clip(-52 * np.log(2), 52 * np.log(2))


def calibrated(x: Floats) -> Floats:
    """Log-odds of one class against the rest, from those of the softmax."""
    return SLOPE * x + SHIFT


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """The calibrated probability of each class against the rest, divided by their sum."""
    s, dtype = checked(logits)
    x = log_odds(s)
    if N_CLASSES == 2:  # a single map; the log-odds of the other class are its negative
        y = calibrated(x[..., 1:])
        y = np.concatenate([-y, y], axis=-1)
    else:
        y = calibrated(x)
    y = y.clip(-52 * np.log(2), 52 * np.log(2))
    g = np.where(s == -np.inf, -np.inf, -np.logaddexp(0.0, -y))  # log-probabilities
    p: Floats = np.exp(g - g.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
