"""The compiled passes of small batches against the torch operations of large ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from calibrant.losses import LOSSES, AdaFocal, FocalLoss, GammaPolicy, SampleGamma, step


def both(monkeypatch, loss, logits, target):
    """(loss, gradient) by compiled passes, and by torch."""
    results = []
    for most in (step.SMALL, 0):
        monkeypatch.setattr(step, "SMALL", most)
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, target)
        weights = torch.linspace(-1.0, 2.0, value.numel(), dtype=value.dtype).reshape(value.shape)
        (gradient,) = torch.autograd.grad(value, leaf, weights)
        results.append((value.detach(), gradient))
    monkeypatch.undo()
    return results


def problem(n=40, n_classes=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    logits = 6.0 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    logits[0, 1:] = -torch.inf
    logits[1] = 1e4 * logits[1]
    logits[2] = 0.0
    target = torch.randint(1, n_classes, (n,), generator=generator)
    target[0] = 0
    return logits.to(dtype), target


def adapted():
    policy = AdaFocal()
    policy.state_dict()["gammas"].copy_(torch.linspace(-2.0, 4.0, 15))
    return policy


GAMMAS = {
    "0": 0.0,
    "0.3": 0.3,
    "1": 1.0,
    "5": 5.0,
    "sample": SampleGamma([0.2], [5.0, 3.0]),
    "negative": adapted(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("gamma", GAMMAS.values(), ids=GAMMAS.keys())
def test_passes_agree(monkeypatch, gamma, reduction, dtype):
    loss = FocalLoss(gamma=gamma, reduction=reduction)
    compiled, native = both(monkeypatch, loss, *problem(dtype=dtype))
    for found, expected in zip(compiled, native, strict=True):
        assert found.dtype == expected.dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(found, expected, rtol=300 * eps, atol=30 * eps)


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=6),
    st.floats(0.0, 8.0),
    st.integers(0, 1),
)
def test_any_row(row, gamma, label):
    with pytest.MonkeyPatch.context() as monkeypatch:
        logits, target = torch.tensor([row], dtype=torch.float64), torch.tensor([label])
        compiled, native = both(monkeypatch, FocalLoss(gamma=gamma), logits, target)
    for found, expected in zip(compiled, native, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 3])
def test_what_is_not_finite_shows(monkeypatch, bad, place):
    logits, target = problem()
    logits[5, place] = bad
    compiled, native = both(monkeypatch, FocalLoss(gamma=2.0, reduction="none"), logits, target)
    for found, expected in zip(compiled, native, strict=True):
        assert torch.equal(found.isnan(), expected.isnan())
        assert found.isnan().any()


def test_an_impossible_label_has_an_infinite_loss(monkeypatch):
    logits, target = problem()
    target[0] = 1
    compiled, native = both(monkeypatch, FocalLoss(gamma=2.0, reduction="none"), logits, target)
    assert compiled[0][0] == native[0][0] == torch.inf
    assert compiled[1].isfinite().all()
    torch.testing.assert_close(compiled[1], native[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda logits, target: (logits, torch.where(target == 2, -100, target)),
        lambda logits, target: (logits.T.contiguous().T, target),
        lambda logits, target: (logits, target.to(torch.uint8)),
        lambda logits, target: (logits[:, :, None], target[:, None]),
        lambda logits, target: (logits[0], target[0]),
    ],
    ids=["ignored", "not contiguous", "bytes", "pixels", "one row"],
)
def test_others_are_left_to_torch(monkeypatch, change):
    inputs = change(*problem())
    compiled, native = both(monkeypatch, FocalLoss(gamma=2.0), *inputs)
    for found, expected in zip(compiled, native, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_label_that_is_no_class_is_refused():
    logits, target = problem()
    target[3] = 7
    with pytest.raises(Exception, match="7"):
        FocalLoss(gamma=2.0)(logits, target)


def test_backward_twice_gives_the_gradient_twice():
    logits, target = problem()
    logits.requires_grad_()
    loss = LOSSES["fl-3"]()(logits, target)
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward()
    torch.testing.assert_close(logits.grad, 2.0 * once)


def test_a_policy_sees_the_probability_of_the_label():
    class Seen(GammaPolicy):
        def forward(self, p):
            self.p = p
            return torch.full_like(p, 2.0)

    logits, target = problem()
    policy = Seen()
    FocalLoss(gamma=policy)(logits, target)
    expected = logits.softmax(1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(policy.p, expected)
