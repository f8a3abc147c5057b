"""MMCE, Brier, the properised focal loss and the binary one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, strategies as st

from calibrant import focal
from calibrant.losses import (
    LOSSES,
    BrierLoss,
    FocalLoss,
    MMCELoss,
    ProperFocalLoss,
    SampleGamma,
    SigmoidFocalLoss,
    step as step_module,
)
from tests.reference import focal_mpmath as oracle, losses_slow as slow, metrics_slow


def rows_of(confidence: list[float], correct: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Two-class logits with these top probabilities, and labels that make them right or wrong."""
    c = torch.tensor(confidence, dtype=torch.float64)
    logits = torch.stack([torch.log(c), torch.log1p(-c)], dim=1)
    return logits, 1 - torch.tensor(correct)


def sample(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 5, dtype=torch.float64, generator=generator)
    guess = torch.randint(5, (n,), generator=generator)
    right = torch.rand(n, generator=generator) < 0.5
    return logits, torch.where(right, logits.argmax(1), guess)


def double_sum(logits: torch.Tensor, labels: torch.Tensor, weighted: bool) -> float:
    confidence, correct = metrics_slow.top_label(torch.softmax(logits, 1).tolist(), labels.tolist())
    return (metrics_slow.mmce_weighted if weighted else metrics_slow.mmce)(confidence, correct)


BATCHES = {
    "mixed": ([0.9, 0.8, 0.55, 0.99, 0.7], [1, 0, 1, 1, 0]),
    "all right": ([0.9, 0.8, 0.55], [1, 1, 1]),
    "all wrong": ([0.9, 0.8, 0.55], [0, 0, 0]),
    "one, right": ([0.9], [1]),
    "one, wrong": ([0.9], [0]),
    "two, right": ([0.9, 0.7], [1, 1]),
    "two, wrong": ([0.9, 0.7], [0, 0]),
    "two, one of each": ([0.9, 0.7], [1, 0]),
    "two, tied": ([0.75, 0.75], [1, 0]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", BATCHES)
def test_mmce_is_the_double_sum(case, weighted):
    logits, labels = rows_of(*BATCHES[case])
    logits.requires_grad_()
    loss = MMCELoss(weighted=weighted, strength=3.0)
    expected = (metrics_slow.mmce_weighted if weighted else metrics_slow.mmce)(*BATCHES[case])
    value = loss.mmce(logits, labels)
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
    assert torch.isfinite(gradient).all()
    total = F.cross_entropy(logits, labels).item() + 3.0 * expected
    assert loss(logits, labels).item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [3, 50, 300])
def test_mmce_of_larger_batches_is_the_double_sum(n, weighted):
    logits, labels = sample(n, n)
    value = MMCELoss(weighted=weighted).mmce(logits, labels).item()
    assert value == pytest.approx(double_sum(logits, labels, weighted), rel=1e-9)
    single = MMCELoss(weighted=weighted).mmce(logits.float(), labels)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_has_its_derivatives(weighted):
    logits, labels = sample(4, 4)
    logits.requires_grad_()
    loss = MMCELoss(weighted=weighted)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), logits)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, labels), logits)


def test_mmce_of_soft_targets_counts_the_mass_of_the_predicted_class():
    logits, _ = sample(7, 5)
    target = torch.softmax(torch.roll(logits, 1, 0), 1)
    r, top = torch.softmax(logits, 1).max(1)
    off = target.gather(1, top.unsqueeze(1)).squeeze(1) - r
    kernel = torch.exp(-(r[:, None] - r[None]).abs() / 0.4)
    expected = torch.sqrt(off @ kernel @ off) / 7
    torch.testing.assert_close(MMCELoss().mmce(logits, target), expected)


def test_tied_confidences_do_not_pull_at_each_other():
    """Two equal rows: |r - r'| has the derivative 0 there, in whichever order they come."""
    logits = torch.tensor([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(MMCELoss().mmce(logits, labels), logits)
    torch.testing.assert_close(gradient[0], gradient[1], rtol=1e-12, atol=0.0)
    even = torch.zeros((4, 3), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(MMCELoss().mmce(even, torch.zeros(4).long()), even)
    torch.testing.assert_close(gradient, gradient[:1].expand(4, 3))


def test_a_perfect_batch_has_no_mmce_and_no_gradient():
    logits = torch.tensor([[1e4, 0.0], [1e4, 0.0]], requires_grad=True)
    for weighted in (False, True):
        value = MMCELoss(weighted=weighted)(logits, torch.tensor([0, 0]))
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.item() == 0.0
        assert (gradient == 0).all()


def test_reductions_of_mmce():
    logits, labels = sample(10, 2)
    labels[3] = -100
    kept = labels != -100
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    for options in ({}, {"weight": weight}, {"label_smoothing": 0.1}):
        error = double_sum(logits[kept], labels[kept], False)
        plain = F.cross_entropy(logits, labels, **options).item()
        mean = MMCELoss(**options)(logits, labels).item()
        assert mean == pytest.approx(plain + 2 * error, rel=1e-9)
        plain = F.cross_entropy(logits, labels, reduction="sum", **options).item()
        total = MMCELoss(reduction="sum", **options)(logits, labels).item()
        assert total == pytest.approx(plain + 9 * 2 * error, rel=1e-9)
        each = MMCELoss(reduction="none", **options)(logits, labels)
        assert each.sum().item() == pytest.approx(total, rel=1e-9)
        assert each[3].item() == 0.0


def test_why_the_published_mmce_is_another_number():
    """The published code differs from the paper's formula in three ways, shown one by one.

    Plain: it returns the square, not the root. Weighted: it takes means over the pairs, which
    divide by n^2, (m-n)^2 and n(m-n), and then divides by the same numbers again; so the measure
    shrinks with the batch (here about tenfold) and its balance is lost where the groups differ in
    size. And where all are right or all are wrong it is 0, whatever the confidences.
    """
    confidence = [0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.99, 0.58]
    correct = [1, 0, 1, 1, 0, 1, 0, 1, 1, 1]
    logits, labels = rows_of(confidence, correct)
    plain, weighted = MMCELoss().mmce(logits, labels), MMCELoss(weighted=True).mmce(logits, labels)
    published = slow.published_mmce(confidence, correct)
    assert plain.item() == pytest.approx(math.sqrt(published), rel=1e-9)
    assert weighted.item() == pytest.approx(metrics_slow.mmce_weighted(confidence, correct))
    twice = MMCELoss(published=True).mmce(logits, labels).item()
    assert twice == pytest.approx(slow.published_mmce_weighted(confidence, correct), rel=1e-5)
    assert twice < weighted.item() / 2
    # The same samples ten times over are the same distribution: the formula says so, the code not.
    many = rows_of(confidence * 10, correct * 10)
    assert MMCELoss(weighted=True).mmce(*many).item() == pytest.approx(weighted.item(), rel=1e-9)
    assert MMCELoss(published=True).mmce(*many).item() < twice / 5
    assert MMCELoss(published=True).mmce(*rows_of([0.9, 0.6], [0, 0])).item() == 0.0
    assert MMCELoss(weighted=True).mmce(*rows_of([0.9, 0.6], [0, 0])).item() > 0.6


@pytest.mark.parametrize("case", BATCHES)
def test_the_published_mmce_is_that_of_the_published_code(case):
    logits, labels = rows_of(*BATCHES[case])
    logits.requires_grad_()
    loss = LOSSES["mmce-published"](strength=3.0)
    expected = slow.published_mmce_weighted(*BATCHES[case])
    # 1e-5 beside the number of pairs, which is 1 in the smallest groups.
    assert loss.mmce(logits, labels).item() == pytest.approx(expected, rel=2e-5)
    total = F.cross_entropy(logits, labels).item() + 3.0 * expected
    assert loss(logits, labels).item() == pytest.approx(total, rel=2e-5)
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
    assert torch.isfinite(gradient).all()


def test_the_published_mmce_has_its_derivatives():
    logits, labels = sample(4, 4)
    logits.requires_grad_()
    loss = MMCELoss(published=True)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), logits)


def gradient_ratio(share_wrong, seed, **other):
    """Norm of the gradient of another form, over that of the published one, in a batch of 128."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.51, 0.99, 128)
    correct = np.arange(128) >= round(128 * share_wrong)
    logits, labels = rows_of(confidence.tolist(), correct.astype(int).tolist())
    norms = []
    for options in (other, {"published": True}):
        s = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(MMCELoss(**options).mmce(s, labels), s)
        norms.append(gradient.norm().item())
    return norms[0] / norms[1]


@pytest.mark.parametrize("seed", range(5))
def test_the_published_gradient_is_many_times_smaller(seed):
    """So at the same strength it trains another network: half wrong as in a network that learns."""
    assert gradient_ratio(0.5, seed, weighted=True) == pytest.approx(64.0)
    assert all(11 < gradient_ratio(share, seed) < 49 for share in (0.3, 0.4, 0.5, 0.6))
    # Not so once hardly any are wrong: the few then count as much as all others.
    assert gradient_ratio(0.05, seed) < 2


@given(st.lists(st.tuples(st.floats(0.51, 0.999), st.booleans()), min_size=1, max_size=25))
def test_mmce_of_any_batch(pairs):
    confidence, correct = [c for c, _ in pairs], [int(right) for _, right in pairs]
    logits, labels = rows_of(confidence, correct)
    for weighted in (False, True):
        expected = double_sum(logits, labels, weighted)
        value = MMCELoss(weighted=weighted).mmce(logits, labels).item()
        # Where the sum cancels, what is left of it is the rounding of its terms.
        assert value**2 == pytest.approx(expected**2, rel=1e-9, abs=1e-14)


# --- Brier ---------------------------------------------------------------------------------------


def test_brier_is_the_sum_of_squares():
    logits, labels = sample(20, 1)
    probs = torch.softmax(logits, 1)
    expected = metrics_slow.brier(probs.tolist(), labels.tolist())
    assert BrierLoss()(logits, labels).item() == pytest.approx(expected, rel=1e-12)
    assert BrierLoss(reduction="sum")(logits, labels).item() == pytest.approx(20 * expected)
    each = BrierLoss(reduction="none")(logits, labels)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    own = weight[labels]
    by_hand = (each * own).sum() / own.sum()
    torch.testing.assert_close(BrierLoss(weight=weight)(logits, labels), by_hand)
    soft = torch.softmax(sample(20, 6)[0], 1)
    by_hand = ((probs - soft) ** 2).sum(1) * (soft * weight).sum(1)
    torch.testing.assert_close(BrierLoss(weight=weight)(logits, soft), by_hand.mean())
    few = logits[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: BrierLoss()(s, labels[:4]), few)
    assert torch.autograd.gradgradcheck(lambda s: BrierLoss()(s, labels[:4]), few)


# --- the properised focal loss -------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_the_proper_loss_agrees_with_the_oracle(gamma):
    logits = torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [12.0, 0.0, -1.0]]).double()
    for label in range(3):
        labels = torch.full((3,), label)
        ours = ProperFocalLoss(gamma=gamma, reduction="none")(logits, labels)
        for row, value in zip(torch.softmax(logits, 1).tolist(), ours.tolist(), strict=True):
            exact = float(oracle.stable(oracle.proper_focal_loss, row, label, gamma))
            assert value == pytest.approx(exact, rel=1e-9)
        through = focal.proper_focal_loss(torch.softmax(logits, 1), labels, gamma=gamma)
        torch.testing.assert_close(ours, through)


def test_the_proper_loss_has_its_gradient_and_is_proper():
    logits, labels = sample(6, 3)
    logits.requires_grad_()
    loss = ProperFocalLoss(gamma=2.0)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), logits)
    # Its expectation under a posterior is smallest at that posterior.
    posterior = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    at = torch.log(posterior).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(at, posterior), at)
    torch.testing.assert_close(gradient, torch.zeros(1, 3).double(), atol=1e-12, rtol=0.0)
    for step in torch.eye(3, dtype=torch.float64):
        assert loss(at + 0.1 * step, posterior) > loss(at, posterior)
    (biased,) = torch.autograd.grad(FocalLoss(gamma=2.0)(at, posterior), at)
    assert biased.abs().max() > 0.05


@pytest.mark.parametrize("gamma", [0.5, 3.0, 20.0])
def test_the_proper_loss_of_many_classes_in_pieces(gamma, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([0.0, 1e-3, 1.0, 4.0, 30.0, 1e3]).repeat_interleave(4).unsqueeze(-1)
    logits = scale * torch.randn(24, 300, generator=generator)
    labels = torch.randint(300, (24,), generator=generator)
    labels[::2] = logits[::2].argmax(1)
    logits[torch.arange(24), (labels + 1) % 300] = -math.inf
    loss = ProperFocalLoss(gamma=gamma, reduction="none")

    def found(rows: torch.Tensor) -> list[torch.Tensor]:
        leaf = rows.clone().requires_grad_()
        values = loss(leaf, labels)
        return [values.detach().double(), torch.autograd.grad(values.sum(), leaf)[0].double()]

    value, gradient = found(logits.double())
    leaf = logits.double().requires_grad_()
    (twice,) = torch.autograd.grad(loss(leaf, labels).sum(), leaf, create_graph=True)
    torch.testing.assert_close(gradient, twice.detach(), rtol=1e-10, atol=1e-13)
    monkeypatch.setattr(step_module, "AT_ONCE", 5 * 300)
    torch.testing.assert_close(found(logits.double()), [value, gradient], rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(found(logits), [value, gradient], rtol=1e-5, atol=1e-6)


GARBAGE = [float("nan"), float("inf"), -float("inf"), 1e30]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    "name", ["ce", "fl-3", "flsd-53", "adafocal", "brier", "mmce", "proper-focal"]
)
def test_what_an_ignored_row_holds_does_not_matter(name, garbage):
    loss = LOSSES[name]()
    logits, labels = sample(6, 3)
    labels[2] = -100
    expected = loss(logits, labels)
    spoilt = logits.clone()
    spoilt[2] = garbage
    spoilt.requires_grad_()
    value = loss(spoilt, labels)
    value.backward()
    torch.testing.assert_close(value, expected)
    others = torch.arange(6) != 2
    assert torch.isfinite(spoilt.grad[others]).all()


def test_a_row_of_nan_that_counts_is_not_passed_over():
    logits, labels = sample(6, 3)
    logits[1] = float("nan")
    for name in ("ce", "fl-3", "brier", "mmce", "mmce-weighted", "mmce-published"):
        assert torch.isnan(LOSSES[name]()(logits, labels))
    with pytest.raises(ValueError, match="logits must not contain NaN"):
        LOSSES["proper-focal"]()(logits, labels)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_class_weights_take_the_type_of_the_loss(name, dtype):
    logits, labels = sample(6, 3)
    logits = logits.to(dtype)
    weight = torch.tensor([1.0, 0.5, 2.0, 0.3, 1.7])
    single = LOSSES[name](weight=weight)(logits, labels)
    double = LOSSES[name](weight=weight.double())(logits, labels)
    assert (
        single.dtype == double.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    )
    torch.testing.assert_close(single, double)


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_class_weights_of_another_length_are_refused(name, n):
    logits, labels = sample(6, 3)
    with pytest.raises(ValueError, match=f"found {n} for logits of 5 classes"):
        LOSSES[name](weight=torch.ones(n))(logits, labels)


def test_a_class_of_weight_nothing_costs_nothing_though_it_is_impossible():
    logits = torch.tensor([[-float("inf"), 0.0, 1.0], [0.0, 1.0, 2.0]]).requires_grad_()
    weight = torch.tensor([0.0, 1.0, 1.0])
    value = FocalLoss(gamma=2.0, weight=weight)(logits, torch.tensor([0, 1]))
    value.backward()
    torch.testing.assert_close(value, FocalLoss(gamma=2.0)(logits[1:], torch.tensor([1])))
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("name", ["fl-3", "brier", "label-smoothing", "mmce"])
def test_labels_of_few_bits(name):
    logits, labels = sample(6, 3)
    loss = LOSSES[name]()
    torch.testing.assert_close(loss(logits, labels.to(torch.uint8)), loss(logits, labels))


# --- binary --------------------------------------------------------------------------------------


def policies():
    return [0.0, 0.5, 2.0, 5.0, SampleGamma((0.3,), (4.0, -1.5)), LOSSES["fla-532"]().gamma]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_binary_loss_is_the_two_class_loss(index, reduction):
    gamma = policies()[index]
    s = torch.tensor([-40.0, -20.1, -0.1, 0.0, 0.2, 21.0, 30.0, 1e4], dtype=torch.float64)
    two = torch.stack([torch.zeros_like(s), s], dim=1)
    binary = SigmoidFocalLoss(gamma=gamma, reduction=reduction)
    both = FocalLoss(gamma=gamma, reduction=reduction)
    for target in (torch.zeros(8).long(), torch.ones(8).long(), torch.arange(8) % 2):
        for kind in (target, target.double(), target.bool()):
            torch.testing.assert_close(binary(s, kind), both(two, target), rtol=1e-12, atol=1e-15)
    soft = torch.linspace(0, 1, 8, dtype=torch.float64)
    pair = torch.stack([1 - soft, soft], dim=1)
    torch.testing.assert_close(binary(s, soft), both(two, pair), rtol=1e-12, atol=1e-15)


def test_the_binary_loss_in_the_place_of_torch():
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    v = torch.rand(4, 3, dtype=torch.float64, generator=generator)
    for options in (
        {},
        {"pos_weight": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)},
        {"weight": torch.tensor([[1.0], [2.0], [0.0], [0.5]], dtype=torch.float64)},
    ):
        for reduction in ("mean", "sum", "none"):
            ours = SigmoidFocalLoss(gamma=0.0, reduction=reduction, **options)
            theirs = torch.nn.BCEWithLogitsLoss(reduction=reduction, **options)
            torch.testing.assert_close(ours(s, v), theirs(s, v))
            assert ours.state_dict().keys() == theirs.state_dict().keys()
    s.requires_grad_()
    for gamma in policies():
        loss = SigmoidFocalLoss(gamma=gamma)
        assert torch.autograd.gradcheck(lambda x, f=loss: f(x, v), s)
        assert torch.autograd.gradgradcheck(lambda x, f=loss: f(x, v), s)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_binary_gradients_are_finite(dtype):
    for gamma in policies():
        s = torch.tensor([0.0, 17.0, -30.0, 120.0, -1e4, 1e30], dtype=dtype).requires_grad_()
        for v in (torch.zeros(6), torch.ones(6), torch.full((6,), 0.3)):
            value = SigmoidFocalLoss(gamma=gamma)(s, v)
            (gradient,) = torch.autograd.grad(value, s)
            assert value.dtype == torch.float32
            assert torch.isfinite(value)
            assert torch.isfinite(gradient).all()


def test_the_binary_map_undoes_the_binary_loss():
    """Training on eta = .9 with gamma = 2 ends at q = .6942, and the map says .9 again."""
    loss = SigmoidFocalLoss(gamma=2.0)
    s = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([s], line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        value = loss(s, torch.tensor([0.9], dtype=torch.float64))
        value.backward()
        return value

    for _ in range(5):
        optimiser.step(closure)
    assert torch.sigmoid(s).item() == pytest.approx(0.6942, abs=5e-5)
    assert loss.probs(s).item() == pytest.approx(0.9, abs=1e-6)


def test_a_binary_adafocal_learns_from_validation():
    loss = SigmoidFocalLoss(gamma=LOSSES["adafocal"]().gamma)
    s = torch.tensor([2.0, -2.0, 1.0, -1.0])
    loss.update(s, torch.tensor([1.0, 1.0, 1.0, 0.0]))
    two = LOSSES["adafocal"]()
    two.update(torch.stack([torch.zeros(4), s], dim=1), torch.tensor([1, 1, 1, 0]))
    np.testing.assert_array_equal(loss.gamma.gammas, two.gamma.gammas)
    assert loss.gamma.gammas.unique().numel() > 1
