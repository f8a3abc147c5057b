"""The focal loss with a number for gamma: values, gradients, targets, weights and reductions."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, strategies as st

from calibrant.losses import (
    LOSSES,
    AdaFocal,
    CrossEntropyLoss,
    FocalLoss,
    GammaPolicy,
    MMCELoss,
    SampleGamma,
    ScheduledGamma,
    SigmoidFocalLoss,
)
from tests.reference import focal_mpmath as oracle, losses_slow as slow

NAMES = [
    *("ce", "label-smoothing", "brier", "mmce", "mmce-weighted", "mmce-published"),
    *("fl-1", "fl-2", "fl-3", "fl-5", "fl-7", "fls-531", "fls-532"),
    *("fla-53", "flsd-53", "fla-532", "adafocal", "proper-focal"),
]
GAMMAS = (0.0, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 20.0)
INVERSE = (-0.2, -0.5, -1.0, -2.0)
EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
GAPS = (17.0, 30.0, 120.0, 1e4)


def with_gamma(gamma: float, **options) -> FocalLoss:
    """A focal loss of this gamma; below 0 through a policy, which alone may say so."""
    if gamma >= 0:
        return FocalLoss(gamma=gamma, **options)
    return FocalLoss(gamma=SampleGamma((0.5,), (gamma, gamma)), **options)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64):
    """Logits with the classes on axis 1, and labels."""
    logits = 3.0 * torch.randn(shape, generator=generator(seed), dtype=torch.float64)
    labels = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator(seed + 1))
    return logits.to(dtype), labels


def two_class_logits(dtype: torch.dtype) -> torch.Tensor:
    """One logit against 0, for p of class 0 from 1e-30 to 1 and close to 1."""
    p = np.concatenate([10.0 ** np.arange(-30, 0, 0.5), np.linspace(0.1, 0.9, 17)])
    odds = np.concatenate([np.log(p) - np.log1p(-p), -np.log(10.0 ** np.arange(-16.0, 0.0))])
    s = torch.tensor(np.concatenate([odds, [0.0, 40.0, 500.0]]), dtype=dtype)
    return torch.stack([s, torch.zeros_like(s)], dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", GAMMAS + INVERSE)
def test_values_and_gradients_agree_with_the_oracle(gamma, dtype):
    logits = two_class_logits(dtype).requires_grad_()
    target = torch.zeros(len(logits), dtype=torch.int64)
    values = with_gamma(gamma, reduction="none")(logits, target)
    (gradients,) = torch.autograd.grad(values.sum(), logits)
    assert values.dtype == dtype
    bound = 16 * EPS[dtype] * (1 + abs(gamma))
    for row, value, gradient in zip(logits.tolist(), values, gradients, strict=True):
        exact = float(oracle.stable(slow.loss, row, 0, gamma))
        assert abs(value.item() - exact) <= bound * max(1.0, exact)
        expected = oracle.stable(slow.gradient, row, 0, gamma)
        for ours, theirs in zip(gradient.tolist(), expected, strict=True):
            assert abs(ours - float(theirs)) <= bound


@pytest.mark.parametrize("gamma", GAMMAS + INVERSE)
def test_first_and_second_derivatives(gamma):
    logits, labels = batch(5, 4)
    logits.requires_grad_()
    for reduction in ("mean", "none"):
        loss = with_gamma(gamma, reduction=reduction)
        assert torch.autograd.gradcheck(lambda s, f=loss: f(s, labels), logits)
        assert torch.autograd.gradgradcheck(lambda s, f=loss: f(s, labels), logits)
    soft = torch.softmax(torch.randn(5, 4, generator=generator(3), dtype=torch.float64), 1)
    assert torch.autograd.gradcheck(lambda s: with_gamma(gamma)(s, soft), logits)
    assert torch.autograd.gradgradcheck(lambda s: with_gamma(gamma)(s, soft), logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gamma", GAMMAS + INVERSE)
def test_gradients_are_finite_at_large_gaps(gamma, dtype):
    loss = with_gamma(gamma)
    soft = torch.tensor([[0.9, 0.1], [0.0, 1.0]])
    for gap in GAPS:
        for target in (torch.tensor([0, 1]), torch.tensor([1, 0]), soft, soft.flip(1)):
            logits = torch.tensor([[gap, 0.0], [0.0, -gap]], dtype=dtype).requires_grad_()
            value = loss(logits, target)
            value.backward()
            assert value.dtype == torch.float32
            assert torch.isfinite(value)
            assert torch.isfinite(logits.grad).all()
    smooth = with_gamma(gamma, label_smoothing=0.1)
    logits = torch.tensor([[1e4, 0.0], [0.0, 30.0]], dtype=dtype).requires_grad_()
    smooth(logits, torch.tensor([0, 0])).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e30])
def test_no_loss_is_ever_nan(name, scale):
    logits = (
        scale * torch.tensor([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-1.0, 1.0, 1.0]])
    ).requires_grad_()
    for labels in (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])):
        value = LOSSES[name]()(logits, labels)
        (gradient,) = torch.autograd.grad(value, logits)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, -1.0])
def test_a_masked_class_is_an_absent_class(gamma):
    logits, labels = batch(4, 3)
    masked = torch.cat([logits, torch.full((4, 1), -float("inf"))], dim=1).requires_grad_()
    loss = with_gamma(gamma)
    value = loss(masked, labels)
    value.backward()
    assert value.item() == pytest.approx(loss(logits, labels).item(), rel=1e-14)
    assert (masked.grad[:, 3] == 0).all()
    soft = F.one_hot(labels, 4).double()
    assert loss(masked, soft).item() == pytest.approx(value.item(), rel=1e-14)
    (gradient,) = torch.autograd.grad(loss(masked, soft), masked)
    torch.testing.assert_close(gradient, masked.grad)
    impossible = loss(masked, torch.tensor([3, 0, 0, 0]))
    assert impossible.item() == float("inf")
    assert torch.isfinite(torch.autograd.grad(impossible, masked)[0]).all()


@pytest.mark.parametrize("gamma", [0.2, 1.0, 3.0, -1.5])
def test_the_gradient_is_that_of_cross_entropy_times_phi_row_by_row(gamma):
    logits, labels = batch(50, 7)
    logits.requires_grad_()
    (focal,) = torch.autograd.grad(with_gamma(gamma, reduction="sum")(logits, labels), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), logits)
    for row in range(50):
        weights = [oracle.mp.exp(s) for s in logits[row].tolist()]
        factor = float(slow.slope(oracle.odds_against(weights)[labels[row]], gamma))
        torch.testing.assert_close(focal[row], factor * plain[row], rtol=1e-12, atol=1e-15)


# --- as torch.nn.CrossEntropyLoss ----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (1, 2), (3, 4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gamma_zero_is_torch_in_every_way(shape, reduction, weighted):
    for smoothing, ignored in itertools.product((0.0, 0.1), (-100, 1, 255)):
        check_as_torch(shape, reduction, weighted, smoothing, ignored)


def check_as_torch(shape, reduction, weighted, smoothing, ignored):
    logits, labels = batch(*shape)
    labels.view(-1)[::3] = ignored
    weight = torch.linspace(0.5, 2.0, shape[1], dtype=torch.float64) if weighted else None
    options = {
        "weight": weight,
        "ignore_index": ignored,
        "reduction": reduction,
        "label_smoothing": smoothing,
    }
    ours, theirs = FocalLoss(gamma=0.0, **options), torch.nn.CrossEntropyLoss(**options)
    thin = CrossEntropyLoss(**options)
    mine, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = ours(mine, labels), theirs(other, labels)
    if reduction == "mean" and (labels == ignored).all():
        assert value.item() == 0.0
        assert torch.isnan(expected)
        return
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(thin(logits, labels), expected)
    value.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(mine.grad, other.grad)
    assert ours.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_gamma_zero_is_torch_with_probabilities(shape, reduction, smoothing):
    logits, _ = batch(*shape)
    target = torch.softmax(batch(*shape, seed=5)[0], dim=1)
    for weight in (None, torch.linspace(0.5, 2.0, shape[1], dtype=torch.float64)):
        options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
        ours, theirs = FocalLoss(gamma=0.0, **options), torch.nn.CrossEntropyLoss(**options)
        torch.testing.assert_close(ours(logits, target), theirs(logits, target))


def test_a_single_row_needs_no_batch_axis():
    logits, labels = batch(1, 5)
    for gamma in (0.0, 2.0, -1.0):
        for smoothing in (0.0, 0.1):
            loss = with_gamma(gamma, label_smoothing=smoothing)
            one = logits[0].clone().requires_grad_()
            value = loss(one, labels[0])
            assert value.shape == ()
            assert value.item() == pytest.approx(loss(logits, labels).item(), rel=1e-14)
            value.backward()
            assert one.grad.shape == (5,)
        soft = torch.full((5,), 0.2, dtype=torch.float64)
        loss = with_gamma(gamma)
        assert loss(logits[0], soft).item() == pytest.approx(loss(logits, soft[None]).item())
        half = logits[0].bfloat16().requires_grad_()
        loss(half, labels[0]).backward()
        assert torch.isfinite(half.grad).all()


@pytest.mark.parametrize("gamma", [0.5, 3.0, -1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_batches_agree_with_the_written_out_sums(gamma, smoothing, reduction):
    logits, labels = batch(9, 4)
    labels[[2, 5]] = -1
    for weight in (None, [0.5, 1.0, 0.0, 2.0]):
        options = {"ignore_index": -1, "reduction": reduction, "label_smoothing": smoothing}
        tensor = None if weight is None else torch.tensor(weight, dtype=torch.float64)
        ours = with_gamma(gamma, weight=tensor, **options)(logits, labels)
        expected = slow.of_labels(
            logits.tolist(), labels.tolist(), [gamma] * 9, weight, -1, reduction, smoothing
        )
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-15)
        soft = torch.softmax(batch(9, 4, seed=8)[0], dim=1)
        soft[0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
        value = with_gamma(gamma, weight=tensor, label_smoothing=smoothing)(logits, soft)
        expected = slow.of_probabilities(
            logits.tolist(), soft.tolist(), [gamma] * 9, weight, smoothing
        )
        assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_places_are_rows(name):
    """(N, C, d1, d2) is the same as its rows, and so is what is ignored."""
    logits, labels = batch(3, 4, 2, 5)
    labels[0, 0, :3] = 255
    loss = LOSSES[name](ignore_index=255)
    flat = torch.movedim(logits, 1, -1).reshape(-1, 4)
    value = loss(logits, labels)
    assert value.item() == pytest.approx(loss(flat, labels.reshape(-1)).item(), rel=1e-12)
    kept = labels.reshape(-1) != 255
    dropped = loss(flat[kept], labels.reshape(-1)[kept])
    assert value.item() == pytest.approx(dropped.item(), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_one_hot_targets_are_class_indices(name):
    logits, labels = batch(20, 4)
    loss = LOSSES[name]()
    a, b = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    first, second = loss(a, labels), loss(b, F.one_hot(labels, 4).double())
    assert first.item() == pytest.approx(second.item(), rel=1e-12)
    first.backward()
    second.backward()
    torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_count_costs_nothing(name):
    logits, _ = batch(3, 4)
    logits.requires_grad_()
    for weight in (None, torch.ones(4, dtype=torch.float64)):
        for reduction in ("mean", "sum"):
            loss = LOSSES[name](reduction=reduction, weight=weight)
            value = loss(logits, torch.full((3,), -100))
            value.backward()
            assert value.item() == 0.0
            assert (logits.grad == 0).all()
    none = torch.zeros((0, 4), requires_grad=True)
    empty = LOSSES[name]()(none, torch.zeros(0, dtype=torch.int64))
    empty.backward()
    assert empty.item() == 0.0


def test_backward_can_be_called_twice():
    logits, labels = batch(6, 3)
    logits.requires_grad_()
    value = FocalLoss(gamma=2.0)(logits, labels)
    (first,) = torch.autograd.grad(value, logits, retain_graph=True)
    (second,) = torch.autograd.grad(value, logits)
    assert torch.equal(first, second)


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=8),
    st.floats(0.0, 20.0),
    st.integers(0, 7),
)
def test_any_row_agrees_with_the_oracle(row, gamma, label):
    label %= len(row)
    logits = torch.tensor([row], dtype=torch.float64)
    ours = FocalLoss(gamma=gamma)(logits, torch.tensor([label])).item()
    exact = float(oracle.stable(slow.loss, row, label, gamma))
    assert abs(ours - exact) <= 64 * EPS[torch.float64] * (1 + gamma) * max(1.0, exact)


# --- the registry and what is refused ------------------------------------------------------------


def test_the_registry_has_the_papers_names():
    assert list(LOSSES) == NAMES
    for name in NAMES:
        loss = LOSSES[name](reduction="sum")
        assert loss.reduction == "sum"
        loss.start_epoch(0, 10)
        loss.update(*batch(30, 3))
        assert "reduction='sum'" in repr(loss)
        copy.deepcopy(loss).load_state_dict(loss.state_dict())
    assert LOSSES["fl-3"]().gamma == 3.0
    assert LOSSES["adafocal"]().gamma is not LOSSES["adafocal"]().gamma


class NaNs(GammaPolicy):
    def forward(self, p):
        return p * float("nan")


X, Y = torch.zeros(2, 3), torch.tensor([0, 1])
REFUSED = {
    "negative gamma": (lambda: FocalLoss(gamma=-1.0), ValueError, "at least 0; found -1.0"),
    "nan gamma": (lambda: FocalLoss(gamma=float("nan")), ValueError, "gamma must be finite"),
    "text": (lambda: FocalLoss(gamma="3"), ValueError, "gamma must be a number; found str '3'"),
    "too large": (lambda: FocalLoss(gamma=1e39), ValueError, "range of the array's type"),
    "reduction": (
        lambda: FocalLoss(gamma=1.0, reduction="avg"),
        ValueError,
        "reduction must be one of mean, sum, none; found 'avg'",
    ),
    "a policy's nan": (
        lambda: FocalLoss(gamma=NaNs())(X, Y),
        ValueError,
        "must return finite gammas; found NaN or infinity from NaNs",
    ),
    "soft targets and ignore_index": (
        lambda: FocalLoss(gamma=1.0, ignore_index=2)(X, torch.ones(2, 3) / 3),
        ValueError,
        "targets that are probabilities; found 2",
    ),
    "soft targets of another shape": (
        lambda: FocalLoss(gamma=1.0)(X, torch.ones(2)),
        ValueError,
        r"shape of the logits, \(2, 3\); found \(2,\)",
    ),
    "target out of range": (
        lambda: FocalLoss(gamma=1.0)(X, torch.tensor([0, 3])),
        IndexError,
        "Target 3 is out of bounds",
    ),
    "smoothing": (
        lambda: FocalLoss(gamma=1.0, label_smoothing=1.5),
        ValueError,
        "label_smoothing must lie between 0 and 1; found 1.5",
    ),
    "weight as a list": (
        lambda: FocalLoss(gamma=1.0, weight=[1.0, 2.0]),
        ValueError,
        "weight must be a tensor of floats",
    ),
    "weight of two axes": (
        lambda: FocalLoss(gamma=1.0, weight=torch.ones(2, 2)),
        ValueError,
        r"found shape \(2, 2\)",
    ),
    "negative weight": (
        lambda: FocalLoss(gamma=1.0, weight=torch.tensor([1.0, -1.0])),
        ValueError,
        "finite and not negative; found -1.0 in row 1",
    ),
    "ignore_index": (
        lambda: FocalLoss(gamma=1.0, ignore_index=0.5),
        ValueError,
        "ignore_index must be a whole number",
    ),
    "thresholds that fall": (
        lambda: SampleGamma((0.5, 0.2), (1.0, 2.0, 3.0)),
        ValueError,
        r"thresholds must increase.*found \(0.5, 0.2\)",
    ),
    "a gamma missing": (
        lambda: SampleGamma((0.2,), (1.0,)),
        ValueError,
        "one more gamma than thresholds; found 1 gammas and 1 thresholds",
    ),
    "an infinite gamma": (
        lambda: SampleGamma((0.2,), (1.0, float("inf"))),
        ValueError,
        "gamma must be finite",
    ),
    "threshold without gamma": (
        lambda: SampleGamma.for_thresholds((0.6,), rest=1.0),
        ValueError,
        "between 1e-300 and 0.5; found 0.6",
    ),
    "fractions above 1": (
        lambda: ScheduledGamma(fractions=(0.5, 1.5)),
        ValueError,
        "fractions must increase and lie strictly between 0 and 1",
    ),
    "both ways": (
        lambda: ScheduledGamma(fractions=(0.2, 0.5), epochs=(2, 5)),
        ValueError,
        "found both",
    ),
    "negative in a schedule": (
        lambda: ScheduledGamma((1.0, -1.0), epochs=(2,)),
        ValueError,
        "at least 0; found -1.0",
    ),
    "no length": (lambda: ScheduledGamma().start_epoch(3), ValueError, "needs n_epochs"),
    "beyond the end": (
        lambda: ScheduledGamma().start_epoch(10, 10),
        ValueError,
        "found 10 of 10. Count epochs from 0",
    ),
    "half an epoch": (lambda: ScheduledGamma().start_epoch(0.5, 3), ValueError, "whole number"),
    "no bins": (lambda: AdaFocal(n_bins=0), ValueError, "n_bins must be from 1"),
    "start at 0": (lambda: AdaFocal(start=0.0), ValueError, "no closer to 0 than 0.2; found 0"),
    "limits": (lambda: AdaFocal(lowest=0.5), ValueError, "enclose -switch and switch"),
    "rate": (lambda: AdaFocal(rate=-1.0), ValueError, "rate must be above 0; found -1"),
    "no validation": (
        lambda: LOSSES["adafocal"]().update(X, torch.tensor([-100, -100])),
        ValueError,
        "at least one sample to measure",
    ),
    "nan in validation": (
        lambda: LOSSES["adafocal"]().update(X * float("nan"), Y),
        ValueError,
        "logits must not contain NaN",
    ),
    "strength": (lambda: MMCELoss(strength=-2.0), ValueError, "strength must be at least 0"),
    "binary shapes": (
        lambda: SigmoidFocalLoss(gamma=1.0)(torch.zeros(3), torch.zeros(3, 1)),
        ValueError,
        r"targets must have the shape of the logits, \(3,\); found \(3, 1\)",
    ),
    "binary validation": (
        lambda: SigmoidFocalLoss(gamma=AdaFocal()).update(torch.zeros(2), torch.tensor([1, 0.5])),
        ValueError,
        "val_labels must be 0 or 1; found 0.5 in row 1",
    ),
    "a map of a policy": (
        lambda: SigmoidFocalLoss(gamma=ScheduledGamma()).probs(torch.zeros(3)),
        ValueError,
        "needs a gamma that is a number",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_values_get_one_clear_line(case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
