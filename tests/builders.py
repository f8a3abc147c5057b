"""Calibrators, predictions and labels for the tests of several packages."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.calibrators import CALIBRATORS, Calibrator

REQUIRED = {"focal": {"gamma": 2.0}, "prior-shift": {"target": None, "base": "vector"}}
"""Arguments that a constructor has no default for."""


def build(name: str, **params: Any) -> Calibrator:
    """An unfitted calibrator."""
    return CALIBRATORS[name](**REQUIRED.get(name, {}), **params)


def draw_samples(
    n: int = 400,
    k: int = 3,
    seed: int = 0,
    *,
    spread: float = 2.0,
    margin: float = 2.0,
    every_class: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Noise of scale ``spread`` as logits, with ``margin`` added at the label; and the labels."""
    rng = np.random.default_rng(seed)
    if every_class:
        labels = np.concatenate([np.arange(k), rng.integers(0, k, size=max(n - k, 0))])[:n]
    else:
        labels = rng.integers(0, k, size=n)
    logits = spread * rng.normal(size=(n, k))
    logits[np.arange(n), labels] += margin
    return logits, labels


def draw_overconfident(
    n: int, k: int, seed: int = 0, *, excess: Any = 1.5
) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits with ``excess``, a number or one per class, added to the largest."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    top = logits.argmax(axis=1)
    logits[np.arange(n), top] += np.broadcast_to(excess, k)[top]
    return logits, labels


def draw_tilted(
    seed: int = 0, n: int = 600, k: int = 4, *, sharpness: float = 2.5, masked: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that is overconfident, favours some classes, and confuses two."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, k)) * np.linspace(0.8, 1.4, k)
    truth = scores + 0.5 * np.linspace(-1, 1, k)
    truth[:, 0] += 0.4 * scores[:, 1]
    logits = np.where(rng.random((n, k)) < masked, -np.inf, sharpness * scores)
    empty = ~np.isfinite(logits).any(axis=1)
    logits[empty, 0] = 0.0
    possible = np.where(np.isfinite(logits), truth, -np.inf)
    return logits, (possible + rng.gumbel(size=(n, k))).argmax(axis=1)


def draw_sharpened(
    n: int, sharpness: float, seed: int, n_classes: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors to the power ``sharpness``, normalised; and labels drawn from the posteriors."""
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.ones(n_classes), size=n)
    labels = (rng.random((n, 1)) > posterior.cumsum(axis=1)).sum(axis=1).clip(max=n_classes - 1)
    predicted = posterior**sharpness
    return predicted / predicted.sum(axis=1, keepdims=True), labels


def draw_mixed(
    n: int, n_classes: int, seed: int, *, digits: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident probabilities; with ``digits`` they are rounded, so that many are tied."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_classes, 0.4), size=n)
    labels = np.array([rng.choice(n_classes, p=0.7 * p + 0.3 / n_classes) for p in probs])
    if digits is not None:
        top = np.round(probs.max(axis=-1), digits)
        probs = (1 - top)[:, None] * np.full(n_classes, 1 / (n_classes - 1))
        probs[np.arange(n), labels] = top
        labels = (labels + rng.integers(0, 2, n)) % n_classes
        probs /= probs.sum(axis=-1, keepdims=True)
    return probs, labels
