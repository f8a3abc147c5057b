"""The losses per sample: values, gradients, and the ends of the range."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from calibrant.focal import focal_loss, inverse_focal_loss
from tests.reference import focal_mpmath as oracle

GAMMAS = (0.0, 1e-8, 0.05, 0.5, 1.0, 2.0, 7.0, 100.0)
LOGITS = np.array(
    [
        [1.0, -2.0, 0.5],
        [0.0, 0.0, 0.0],
        [40.0, 0.0, -1.0],
        [0.0, 300.0, -5.0],
        [1e4, 1e4, -1e4],
        [1e-3, 2e-3, -3e-3],
    ]
)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("name", ["focal_loss", "inverse_focal_loss"])
def test_values_agree_with_the_oracle(library, name, gamma):
    ours = {"focal_loss": focal_loss, "inverse_focal_loss": inverse_focal_loss}[name]
    exactly = getattr(oracle, name)
    for label in range(3):
        labels = library.make(np.full(len(LOGITS), label))
        said = library.numpy(ours(library.make(LOGITS), labels, gamma=gamma))
        for row, value in zip(LOGITS, said, strict=True):
            exact = float(oracle.stable(exactly, row.tolist(), label, gamma))
            # A cross-entropy of e^-300 has its exponent, and (1 + gamma) times it, rounded.
            np.testing.assert_allclose(value, exact, rtol=1e-13 * (1 + gamma), atol=1e-300)


@pytest.mark.parametrize("gamma", [0.0, 0.05, 0.5, 0.999, 1.0, 2.0, 20.0])
def test_gradients_are_right_and_finite(gamma):
    logits = torch.tensor(
        [[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [25.0, 0.0, -1.0]], dtype=torch.float64
    ).requires_grad_()
    for loss in (focal_loss, inverse_focal_loss):
        for labels in (torch.tensor([0, 1, 0]), torch.tensor([2, 2, 1])):
            per_sample = functools.partial(loss, labels=labels, gamma=gamma)
            assert torch.autograd.gradcheck(per_sample, logits)
    for dtype in (torch.float32, torch.float64):
        saturated = torch.tensor(
            [[1e4, 0.0], [200.0, 0.0], [0.0, -float("inf")], [1e4, 0.0]], dtype=dtype
        ).requires_grad_()
        for loss in (focal_loss, inverse_focal_loss):
            (gradient,) = torch.autograd.grad(
                loss(saturated, torch.tensor([0, 0, 0, 1]), gamma=gamma).sum(), saturated
            )
            assert torch.isfinite(gradient).all()


def test_second_derivatives_are_those_of_the_loss():
    logits = torch.tensor([[0.3, -0.2, 1.0]], dtype=torch.float64).requires_grad_()
    for gamma in (0.5, 2.0):
        assert torch.autograd.gradgradcheck(
            lambda s, g=gamma: focal_loss(s, torch.tensor([1]), gamma=g), logits
        )


def test_a_masked_true_class_costs_infinity(library):
    logits = library.make(np.array([[0.0, -np.inf, 1.0]]))
    labels = library.make(np.array([1]))
    for loss in (focal_loss, inverse_focal_loss):
        assert library.numpy(loss(logits, labels, gamma=2.0))[0] == np.inf
    tensor = torch.tensor([[0.0, -float("inf"), 1.0]], requires_grad=True)
    focal_loss(tensor, torch.tensor([1]), gamma=2.0).sum().backward()
    assert torch.isfinite(tensor.grad).all()


def test_labels_may_come_from_another_library():
    tensor = torch.tensor([[1.0, 0.0]])
    np.testing.assert_allclose(
        focal_loss(tensor, np.array([1]), gamma=2.0), focal_loss(tensor, [1], gamma=2.0)
    )
