"""The inverse of the map, and the loss made proper by it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from calibrant.focal import focal_map, inverse_focal_map, proper_focal_loss
from tests.reference import focal_mpmath as oracle

GAMMAS = (0.0, 1e-8, 0.05, 0.5, 1.0, 2.0, 5.0, 20.0)


def posteriors(n_classes: int, seed: int) -> np.ndarray:
    """Even, peaked and saturated rows, with entries from 1e-300 to 1 - 1e-16."""
    rng = np.random.default_rng(seed)
    logs = np.concatenate(
        [scale * rng.standard_normal((4, n_classes)) for scale in (1e-6, 0.1, 1.0, 20.0, 200.0)]
        + [-rng.uniform(0, 690, (8, n_classes))]
    )
    eta = np.exp(logs - logs.max(-1, keepdims=True))
    eta = np.where(eta < 1e-300, 0.0, eta)
    eta[0] = 1.0  # all tied
    eta[1] = 1e-300
    eta[1, -1] = 1.0
    eta[2, :] = 1e-16 / n_classes
    eta[2, 0] = 1.0
    eta[3, : n_classes // 2] = 1e-300
    return eta / eta.sum(-1, keepdims=True)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_map_takes_the_inverse_back(gamma, n_classes):
    eta = posteriors(n_classes, seed=n_classes)
    output = inverse_focal_map(eta, gamma=gamma)
    np.testing.assert_allclose(output.sum(-1), 1.0, rtol=1e-13)
    np.testing.assert_array_equal(output.argmax(-1), eta.argmax(-1))
    np.testing.assert_array_equal(output == 0, eta == 0)
    np.testing.assert_allclose(focal_map(output, gamma=gamma), eta, rtol=1e-12)


@functools.cache
def exact_inverse(gamma):
    rows = posteriors(4, seed=9)[::2]
    exact = [oracle.stable(oracle.inverse_focal_map, row.tolist(), gamma) for row in rows]
    return rows, np.array(exact, dtype=float)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_inverse_agrees_with_the_oracle(library, gamma):
    eta, exact = exact_inverse(gamma)
    said = library.numpy(inverse_focal_map(library.make(eta), gamma=gamma))
    np.testing.assert_allclose(said, exact, rtol=1e-12)


@pytest.mark.parametrize("gamma", [0.05, 1.0, 5.0, 20.0, 100.0, 1000.0])
def test_float32_settles_too(gamma):
    eta = posteriors(10, seed=4).astype(np.float32)
    output = inverse_focal_map(eta, gamma=gamma)
    assert output.dtype == np.float32
    wide = inverse_focal_map(eta.astype(np.float64), gamma=gamma)
    np.testing.assert_allclose(output, wide, rtol=3e-5, atol=1e-45)


@pytest.mark.parametrize("gamma", [80.0, 140.0, 1e3, 1e6])
def test_large_gamma_settles(gamma):
    """Blocks of ties on which full Newton steps go round in circles."""
    rows = [np.r_[[282.0] * 13, [28.6] * 30, [1.0] * 57], np.r_[[1.0] * 8, [1e-6] * 92]]
    rng = np.random.default_rng(1)
    rows += [np.exp(rng.uniform(-25, 0, 3))[rng.integers(0, 3, 100)] for _ in range(200)]
    eta = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    output = inverse_focal_map(eta, gamma=gamma)
    np.testing.assert_allclose(focal_map(output, gamma=gamma), eta, rtol=1e-15 * (100 + gamma))
    inverse_focal_map(eta.astype(np.float32), gamma=gamma)


def test_printed_values():
    for gamma, q in ((1, 0.7744), (2, 0.6942), (3, 0.6471), (5, 0.5974)):
        assert inverse_focal_map([0.9, 0.1], gamma=gamma)[0] == pytest.approx(q, abs=5e-5)
    assert inverse_focal_map([0.8, 0.2], gamma=2)[0] == pytest.approx(0.6266, abs=5e-5)


@functools.cache
def exact_proper_losses(gamma):
    """Rows with every label, the labels, and the losses."""
    eta = np.repeat(posteriors(3, seed=1)[[4, 8, 12, 2]], 3, axis=0)
    labels = np.tile(np.arange(3), 4)
    exact = [
        oracle.stable(oracle.proper_focal_loss, row.tolist(), int(label), gamma)
        for row, label in zip(eta, labels, strict=True)
    ]
    return eta, labels, np.array(exact, dtype=float)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_proper_loss_agrees_with_the_oracle(library, gamma):
    eta, labels, exact = exact_proper_losses(gamma)
    said = proper_focal_loss(library.make(eta), library.make(labels), gamma=gamma)
    np.testing.assert_allclose(library.numpy(said), exact, rtol=1e-12 * (1 + gamma))


def test_proper_loss_of_an_impossible_class_is_infinite():
    assert proper_focal_loss([[1.0, 0.0]], [1], gamma=2.0)[0] == np.inf
    assert proper_focal_loss([[1.0, 0.0]], [0], gamma=2.0)[0] == 0.0


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 5.0])
def test_gradients_of_the_implicit_function(gamma):
    logits = torch.tensor(
        [[1.0, -2.0, 0.5], [3.0, 3.0, -1.0], [12.0, 0.0, -3.0]], dtype=torch.float64
    ).requires_grad_()
    labels = torch.tensor([2, 0, 1])
    assert torch.autograd.gradcheck(
        lambda s: inverse_focal_map(torch.softmax(s, dim=-1), gamma=gamma), logits
    )
    assert torch.autograd.gradcheck(
        lambda s: proper_focal_loss(torch.softmax(s, dim=-1), labels, gamma=gamma), logits
    )
    hard = torch.tensor(
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1e-310, 1.0, 1e-17]], dtype=torch.float64
    ).requires_grad_()
    inverse_focal_map(hard, gamma=gamma)[:, 0].sum().backward()
    assert torch.isfinite(hard.grad).all()
