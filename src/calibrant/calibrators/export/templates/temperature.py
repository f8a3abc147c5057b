"""Identity, temperature, floored temperature and the focal map."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

TEMPERATURE = 1.0
FLOOR = 1.0
GAMMA = 0.0


def tempered(logits: ArrayLike) -> np.ndarray:
    """softmax(logits / TEMPERATURE)."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = (s - s.max(axis=-1, keepdims=True)) / TEMPERATURE
    p: Floats = np.exp(z)
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)


def floored(logits: ArrayLike) -> np.ndarray:
    """softmax(max(s - max(s), -FLOOR) / TEMPERATURE)."""
    s, dtype = checked(logits)
    with np.errstate(over="ignore"):
        z = np.maximum(s - s.max(axis=-1, keepdims=True), -FLOOR) / TEMPERATURE
    p: Floats = np.where(s == -np.inf, 0.0, np.exp(z))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)


def focal(logits: ArrayLike) -> np.ndarray:
    """h(q) / sum(h(q)) with q = softmax(logits / TEMPERATURE), h(q) = q / phi(q) and
    phi(q) = (1 - q)^GAMMA (1 + GAMMA u), u = -q log(q) / (1 - q); in log space.
    """
    s, dtype = checked(logits)
    top = s.argmax(axis=-1)[..., np.newaxis]
    is_top = np.arange(N_CLASSES) == top
    with np.errstate(over="ignore"):
        z = (s - np.take_along_axis(s, top, axis=-1)) / TEMPERATURE
    z = np.maximum(z, -1e300)  # log(q / q_top)
    # The top class: log((1 - q) / q) from the logits of the others, as 1 - q would round to 0.
    others = np.where(is_top, -np.inf, z)
    second: Floats = others.max(axis=-1, keepdims=True)
    log_odds: Floats = second + np.log(np.exp(others - second).sum(axis=-1, keepdims=True))
    log_top, log_rest = -np.logaddexp(0.0, log_odds), -np.logaddexp(0.0, -log_odds)
    x = np.maximum(np.exp(log_odds), 1e-300)
    rest_of_u = np.where(x < 1e-4, x / 2 - x**2 / 3 + x**3 / 4, 1 - np.log1p(x) / x)  # 1 - u
    if GAMMA == -1.0:
        log_phi_top = np.log(rest_of_u * (1 + x) / x)
    else:
        log_phi_top = GAMMA * log_rest + np.log((1 + GAMMA) - GAMMA * rest_of_u)
    # The others, whose q is at most 1/2.
    log_q = z + log_top
    q = np.where(is_top, 0.0, np.exp(log_q))
    log_phi = GAMMA * np.log1p(-q) + np.log1p(-GAMMA * q * log_q / (1 - q))
    p: Floats = np.exp(np.where(is_top, 0.0, np.minimum(z + (log_phi_top - log_phi), 0.0)))
    p /= p.sum(axis=-1, keepdims=True)
    return p.astype(dtype)
