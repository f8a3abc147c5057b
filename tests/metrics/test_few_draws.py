"""Labels drawn in NumPy: those that the compiled kernel draws."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.metrics import few_draws
from calibrant.metrics.binning import width_edges
from calibrant.metrics.kernels import count_drawn_labels


def probabilities(k: int) -> np.ndarray:
    rng = np.random.default_rng(k)
    rows = rng.dirichlet(np.full(k, 0.3), size=60)
    rows[0], rows[1], rows[2] = 1.0 / k, np.eye(k)[0], np.eye(k)[-1]
    rows[3] = 0.5 * (np.eye(k)[0] + np.eye(k)[-1])
    return rows


@pytest.mark.parametrize("k", [2, 3, 10, 100])
@pytest.mark.parametrize("at_once", [1 << 20, 100])
def test_the_same_labels_as_the_kernel(k, at_once, monkeypatch):
    monkeypatch.setattr(few_draws, "DRAWN_AT_ONCE", at_once)
    probs, edges, first = probabilities(k), width_edges(15), np.uint64(2**61 + 12345)
    found, expected = (
        (np.empty((len(probs), 40)), np.zeros((15 * k, 40), dtype=np.float32)) for _ in range(2)
    )
    few_draws.count_few_drawn_labels(probs, edges, first, *found)
    count_drawn_labels(probs, np.ones(len(probs)), edges, first, *expected)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_labels_have_their_probabilities():
    probs, n = probabilities(3)[4:8], 40_000
    correct, drawn = np.empty((4, n)), np.zeros((45, n), dtype=np.float32)
    few_draws.count_few_drawn_labels(probs, width_edges(15), np.uint64(7), correct, drawn)
    error = np.sqrt(0.25 / n)
    np.testing.assert_allclose(correct.mean(axis=1), probs.max(axis=1), atol=5 * error)
    counts = drawn.reshape(3, 15, n).sum(axis=1).mean(axis=1)
    np.testing.assert_allclose(counts, probs.sum(axis=0), atol=10 * error)
