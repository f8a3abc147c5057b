"""Inputs for the comparison with other packages, and what it means to differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import softmax

from tests.reference import metrics_slow as slow

REASON = "other packages have an environment of their own: make peers"


def ordinary(n: int = 3000, n_classes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident predictions without ties, none on an edge of a bin, none certain."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_classes, 0.5), size=n)
    labels = np.array([rng.choice(n_classes, p=0.7 * p + 0.3 / n_classes) for p in probs])
    return probs, labels


def two_classes(confidence: list[float], correct: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows (c, 1 - c), and labels that make the first class right or wrong."""
    first = np.array(confidence)
    return np.stack([first, 1.0 - first], axis=-1), 1 - np.array(correct)


def three_classes(confidence: list[float], correct: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same with a third class, which is the label of the wrong rows."""
    first = np.array(confidence)
    rest = (1.0 - first) / 2.0
    return np.stack([first, rest, rest], axis=-1), 2 * (1 - np.array(correct))


def top(probs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness as arrays, for packages that take them."""
    confidence, correct = slow.top_label(probs, labels)
    return np.array(confidence), np.array(correct)


def assert_differ(*, reference: float, ours: float, theirs: float, stated: tuple) -> None:
    """Ours is the reference, theirs is not, and both are the values that docs/peers.md states."""
    assert ours == pytest.approx(reference, rel=1e-6, abs=1e-9)
    assert theirs != pytest.approx(reference, rel=1e-3, abs=1e-5)
    assert (ours, theirs) == pytest.approx(stated, abs=6e-4)


def scaled_logits(
    n: int = 3000, n_classes: int = 10, *, sign: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are twice too large; with ``sign`` -1, of a model that is worse than chance."""
    rng = np.random.default_rng(seed)
    honest = 2.0 * rng.normal(size=(n, n_classes))
    return 2.0 * honest, (sign * honest + rng.gumbel(size=honest.shape)).argmax(axis=1)


def reference_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Where the slope of the NLL over log(1/T) is 0."""
    logits = logits.astype(np.float64)
    rows = np.arange(len(labels))

    def slope(log_beta: float) -> float:
        q = softmax(np.exp(log_beta) * logits, axis=1)
        return float(((q * logits).sum(axis=1) - logits[rows, labels]).mean())

    return float(np.exp(-brentq(slope, -20.0, 20.0, xtol=1e-13)))
