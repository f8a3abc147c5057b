"""Which gamma a sample gets: by epoch, by thresholds, by AdaFocal's bins; and how it is kept."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from calibrant.focal import gamma_for_threshold
from calibrant.losses import (
    LOSSES,
    AdaFocal,
    FocalLoss,
    GammaPolicy,
    SampleGamma,
    ScheduledGamma,
)
from tests.reference import losses_slow as slow, metrics_slow

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def logits_of_confidence(confidence: list[float]) -> torch.Tensor:
    """Two-class rows whose top class, the first, has these probabilities."""
    c = torch.tensor(confidence, dtype=torch.float64)
    return torch.stack([torch.log(c), torch.log1p(-c)], dim=1)


# --- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "last"), [("fls-531", 1.0), ("fls-532", 2.0)])
def test_the_schedule_of_the_papers(name, last):
    loss = LOSSES[name]()
    seen = []
    for epoch in range(350):
        loss.start_epoch(epoch, 350)
        seen.append(loss.gamma.gamma.item())
    assert seen == [5.0] * 100 + [3.0] * 150 + [last] * 100


@pytest.mark.parametrize("n_epochs", [7, 35, 70, 700, 3500])
def test_fractions_change_at_the_same_part_of_any_run(n_epochs):
    policy = ScheduledGamma()
    changes = []
    for epoch in range(n_epochs):
        before = policy.gamma.item()
        policy.start_epoch(epoch, n_epochs)
        if policy.gamma.item() != before:
            changes.append(epoch)
    assert changes == [n_epochs * 2 // 7, n_epochs * 5 // 7]


def test_a_schedule_in_epochs():
    policy = ScheduledGamma((4.0, 0.5), epochs=(3,))
    seen = []
    for epoch in range(5):
        policy.start_epoch(epoch)
        seen.append(policy.gamma.item())
    assert seen == [4.0, 4.0, 4.0, 0.5, 0.5]
    assert policy.epoch.item() == 4


@BOTH
def test_a_scheduled_loss_is_that_of_its_gamma(dtype):
    logits = torch.randn(6, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    loss = FocalLoss(gamma=ScheduledGamma((5.0, 0.3), epochs=(2,)))
    for epoch, gamma in ((0, 5.0), (2, 0.3)):
        loss.start_epoch(epoch)
        value = loss(logits, labels)
        assert value.dtype == dtype
        torch.testing.assert_close(value, FocalLoss(gamma=gamma)(logits, labels))


# --- thresholds ----------------------------------------------------------------------------------


@BOTH
def test_thresholds_are_on_the_side_the_papers_say(dtype):
    values = [0.0, 0.1899, 0.19, 0.1901, 0.1999, 0.2, 0.2001, 0.5, 0.5001, 1.0]
    p = torch.tensor(values, dtype=dtype)
    rules = {
        "fla-53": [5, 5, 5, 3, 3, 3, 3, 3, 3, 3],
        "flsd-53": [5, 5, 5, 5, 5, 3, 3, 3, 3, 3],
        "fla-532": [5, 5, 5, 3, 3, 3, 3, 3, 2, 2],
    }
    for name, expected in rules.items():
        assert LOSSES[name]().gamma(p).tolist() == expected


@BOTH
@pytest.mark.parametrize(
    ("name", "p", "gamma"),
    [
        ("fla-53", 0.19, 5.0),
        ("fla-53", 0.2, 3.0),
        ("flsd-53", 0.2, 3.0),
        ("flsd-53", 0.19, 5.0),
        ("fla-532", 0.19, 5.0),
        ("fla-532", 0.5, 3.0),
    ],
)
def test_thresholds_hold_from_the_logits_on(name, p, gamma, dtype):
    """p comes out of logits with a rounding, and is still on the stated side of its threshold."""
    found = 0
    for shift in np.linspace(-30.0, 30.0, 41):
        odds = math.log(p) - math.log1p(-p)
        logits = torch.tensor([[odds + shift, shift]], dtype=torch.float64).to(dtype)
        # The logits are rounded too; only where p is still the same is the side known.
        exact = torch.softmax(logits.double(), dim=1)[0, 0].item()
        if abs(exact - p) > 2 * torch.finfo(dtype).eps * p:
            continue
        value = LOSSES[name]()(logits, torch.tensor([0]))
        expected = FocalLoss(gamma=gamma)(logits, torch.tensor([0]))
        torch.testing.assert_close(value, expected)
        found += 1
    assert found > 0


@BOTH
def test_even_shares_are_on_a_threshold(dtype):
    for n_classes, name, gamma in ((2, "fla-532", 3.0), (5, "flsd-53", 3.0), (6, "flsd-53", 5.0)):
        logits = torch.full((3, n_classes), 1.7, dtype=dtype)
        value = LOSSES[name]()(logits, torch.tensor([0, 1, 1]))
        torch.testing.assert_close(value, FocalLoss(gamma=gamma)(logits, torch.tensor([0, 1, 1])))


def test_thresholds_from_the_theory():
    policy = SampleGamma.for_thresholds((0.2, 0.25, 0.5), rest=0.0)
    assert policy.gammas == (*map(gamma_for_threshold, (0.2, 0.25, 0.5)), 0.0)
    assert policy.gammas[0] == pytest.approx(4.8506, abs=5e-5)
    assert policy.gammas[2] == 0.0


def test_each_sample_has_its_own_gamma_and_it_carries_no_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(40, 6, dtype=torch.float64, generator=generator)
    labels = torch.randint(6, (40,), generator=generator)
    p = torch.softmax(logits, 1)[torch.arange(40), labels]
    gammas = [5.0 if q <= 0.19 else 3.0 if q <= 0.5 else 2.0 for q in p.tolist()]
    assert len(set(gammas)) == 3
    loss = LOSSES["fla-532"](reduction="none")
    expected = slow.of_labels(logits.tolist(), labels.tolist(), gammas, reduction="none")
    np.testing.assert_allclose(loss(logits, labels), expected, rtol=1e-12)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits, labels).sum(), logits)
    for row, label, gamma, ours in zip(logits.tolist(), labels, gammas, gradient, strict=True):
        exact = [float(g) for g in slow.gradient(row, int(label), gamma)]
        np.testing.assert_allclose(ours, exact, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_targets_have_one_gamma_a_row(smoothing):
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(30, 4, dtype=torch.float64, generator=generator)
    soft = torch.softmax(2 * torch.randn(30, 4, dtype=torch.float64, generator=generator), 1)
    p = (soft * torch.softmax(logits, 1)).sum(1).tolist()
    gammas = [5.0 if q < 0.2 else 3.0 for q in p]
    assert len(set(gammas)) == 2
    value = LOSSES["flsd-53"](label_smoothing=smoothing)(logits, soft)
    expected = slow.of_probabilities(logits.tolist(), soft.tolist(), gammas, None, smoothing)
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_smoothed_labels_take_the_gamma_of_the_label():
    generator = torch.Generator().manual_seed(2)
    logits = 2 * torch.randn(30, 4, dtype=torch.float64, generator=generator)
    labels = torch.randint(4, (30,), generator=generator)
    p = torch.softmax(logits, 1)[torch.arange(30), labels].tolist()
    gammas = [5.0 if q < 0.2 else 3.0 for q in p]
    assert len(set(gammas)) == 2
    value = LOSSES["flsd-53"](label_smoothing=0.1)(logits, labels)
    expected = slow.of_labels(logits.tolist(), labels.tolist(), gammas, smoothing=0.1)
    assert value.item() == pytest.approx(expected, rel=1e-12)


# --- AdaFocal ------------------------------------------------------------------------------------


def test_adafocal_by_hand_over_three_epochs():
    """Two bins, four validation samples; worked out with a pocket calculator.

    Epoch 1: bins {.6, .7} both right: gap .65 - 1 = -.35; {.8, .9} one right: .85 - .5 = +.35.
    Epoch 2: bins {.55, .65} right: .6 - 1 = -.4; {.95, .99} one right: .97 - .5 = +.47.
    Epoch 3: bins {.5, .52} right: -.49; {.9, .96} none right: +.93.
        1 e^-.35 = .70469, e^-.75 = .47237, e^-1.24 = .28938
        1 e^+.35 = 1.41907, e^.82 = 2.27050, e^1.75 = 5.75460
    """
    epochs = [
        ([0.6, 0.7, 0.8, 0.9], [1, 1, 1, 0], [0.70469, 1.41907], 0.7),
        ([0.99, 0.55, 0.95, 0.65], [1, 1, 0, 1], [0.47237, 2.27050], 0.65),
        ([0.52, 0.96, 0.9, 0.5], [1, 0, 0, 1], [0.28938, 5.75460], 0.52),
    ]
    loss = FocalLoss(gamma=AdaFocal(n_bins=2), reduction="none")
    for number, (confidence, correct, gammas, edge) in enumerate(epochs, 1):
        loss.update(logits_of_confidence(confidence), 1 - torch.tensor(correct))
        np.testing.assert_allclose(loss.gamma.gammas, gammas, atol=1e-5)
        assert loss.gamma.edges.item() == pytest.approx(edge, abs=1e-7)
        assert loss.gamma.n_updates.item() == number
        # Training samples below, on and above the edge, and far outside all confidences.
        p = [0.01, edge - 1e-4, edge + 1e-4, 0.999]
        chosen = [gammas[0], gammas[0], gammas[1], gammas[1]]
        value = loss(logits_of_confidence(p), torch.zeros(4, dtype=torch.int64))
        expected = [(1 - q) ** g * -math.log(q) for q, g in zip(p, chosen, strict=True)]
        np.testing.assert_allclose(value, expected, rtol=1e-4)
    # A fourth update takes .28938 e^-.49 = .17728 below .2: it becomes -.2, the inverse loss.
    loss.update(logits_of_confidence([0.5, 0.52, 0.9, 0.96]), torch.tensor([0, 0, 1, 1]))
    assert loss.gamma.gammas.tolist() == pytest.approx([-0.2, 5.7546 * math.exp(0.93)], rel=1e-5)
    value = loss(logits_of_confidence([0.3]), torch.tensor([0]))
    assert value.item() == pytest.approx(1.3**0.2 * -math.log(0.3), rel=1e-6)
    # Below 0 the exponent changes its sign: the gap -.49 makes it -.2 e^.49 = -.32646.
    loss.update(logits_of_confidence([0.5, 0.52, 0.9, 0.96]), torch.tensor([0, 0, 1, 1]))
    assert loss.gamma.gammas.tolist() == pytest.approx([-0.326463, 20.0], rel=1e-5)


def test_adafocal_stays_within_its_limits_and_comes_back():
    loss = FocalLoss(gamma=AdaFocal(n_bins=1))
    under = logits_of_confidence([0.5001, 0.51]), torch.tensor([0, 0])
    over = logits_of_confidence([0.98, 0.99]), torch.tensor([1, 1])
    for _ in range(20):
        loss.update(*under)
    assert loss.gamma.gammas.item() == -2.0
    loss.update(*over)
    assert loss.gamma.gammas.item() == pytest.approx(-2 * math.exp(-0.985), rel=1e-6)
    for _ in range(20):
        loss.update(*over)
    assert loss.gamma.gammas.item() == 20.0


@pytest.mark.parametrize("n", [15, 16, 29, 200, 1001])
def test_adafocal_agrees_with_the_slow_rule(n):
    rng = np.random.default_rng(n)
    loss = LOSSES["adafocal"]()
    gammas = [1.0] * 15
    for _ in range(6):
        logits = torch.from_numpy(2 * rng.standard_normal((n, 5)))
        labels = torch.from_numpy(np.where(rng.random(n) < 0.5, logits.argmax(1), 0))
        confidence, correct = metrics_slow.top_label(torch.softmax(logits, 1).tolist(), labels)
        edges, gammas = slow.adafocal(gammas, confidence, correct)
        loss.update(logits, labels)
        np.testing.assert_allclose(loss.gamma.edges, edges, rtol=1e-6)
        np.testing.assert_allclose(loss.gamma.gammas, gammas, rtol=1e-5)
    assert loss.gamma.gammas.unique().numel() > 10


def test_bins_that_coincide_are_one():
    """Most confidences the same: their bins share one gap, and the sample finds its gamma."""
    confidence = [0.6] + [0.9] * 8 + [0.95]
    correct = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0, 0, 1])
    loss = FocalLoss(gamma=AdaFocal(n_bins=5), reduction="none")
    loss.update(logits_of_confidence(confidence), 1 - correct)
    # Ranks: {.6, .9}, {.9, .9}, {.9, .9}, {.9, .9}, {.9, .95}. The edges are .9 four times, so
    # that the first bin holds .6 and all .9 (gap .86667 - 3/9), the last .95 alone (-.05).
    gap = (0.6 + 8 * 0.9) / 9 - 3 / 9
    expected = [math.exp(gap)] * 4 + [math.exp(-0.05)]
    np.testing.assert_allclose(loss.gamma.gammas, expected, rtol=1e-6)
    assert loss.gamma(torch.tensor([0.1, 0.89, 0.93, 1.0])).tolist() == pytest.approx(
        [expected[0]] * 2 + [expected[4]] * 2, rel=1e-6
    )
    # All of them at 1: one bin, and it is reached.
    certain = torch.tensor([[1e4, 0.0]] * 20)
    loss.update(certain, torch.tensor([0, 1] * 10))
    assert loss.gamma.gammas[0].item() == pytest.approx(expected[0] * math.exp(0.5), rel=1e-6)
    assert loss.gamma(torch.tensor([0.3, 1.0])).tolist() == [loss.gamma.gammas[0].item()] * 2


def test_fewer_samples_than_bins():
    loss = LOSSES["adafocal"]()
    loss.update(logits_of_confidence([0.7, 0.8, 0.9]), torch.tensor([0, 0, 1]))
    expected = [math.exp(-0.3), math.exp(-0.2)] + [math.exp(0.9)] * 13
    np.testing.assert_allclose(loss.gamma.gammas, expected, rtol=1e-6)
    p = torch.tensor([0.1, 0.7, 0.75, 0.8, 0.85, 0.9])
    chosen = [expected[i] for i in (0, 0, 1, 1, 2, 2)]
    assert loss.gamma(p).tolist() == pytest.approx(chosen, rel=1e-6)


def test_adafocal_does_not_care_for_the_order_or_shape_of_the_validation_set():
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(2 * rng.standard_normal((4, 5, 6, 10)))
    labels = torch.from_numpy(rng.integers(0, 5, (4, 6, 10)))
    labels[0, 0, :4] = 255
    images, rows = LOSSES["adafocal"](ignore_index=255), LOSSES["adafocal"]()
    images.update(logits, labels)
    kept = labels.reshape(-1) != 255
    order = torch.from_numpy(rng.permutation(int(kept.sum())))
    flat = torch.movedim(logits, 1, -1).reshape(-1, 5)[kept][order]
    rows.update(flat, labels.reshape(-1)[kept][order])
    assert torch.equal(images.gamma.gammas, rows.gamma.gammas)
    assert torch.equal(images.gamma.edges, rows.gamma.edges)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_edge_belongs_to_the_bin_below_it(dtype):
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        policy = AdaFocal(n_bins=2)
        confidence = torch.rand(9, generator=rng, dtype=torch.float64)
        policy.update(confidence, torch.zeros(9))
        policy.gammas.copy_(torch.tensor([1.0, 2.0]))
        below = torch.sort(confidence).values[:5].to(dtype)
        assert policy(below)[:4].tolist() == [1.0] * 4
        assert (policy(confidence.to(dtype)) == 1.0).sum() in (4, 5)


def test_a_gap_of_nothing_leaves_gamma_where_it_is():
    policy = AdaFocal(n_bins=1, switch=0.7, start=0.7)
    for _ in range(3):
        policy.update(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
        assert policy.gammas.tolist() == pytest.approx([0.7])


@pytest.mark.parametrize("name", ["flsd-53", "fls-531", "adafocal"])
def test_a_loss_may_begin_without_memory(name):
    """Deferred initialisation: a module on the meta device gets its memory, then its state."""
    logits, labels = (
        torch.randn(8, 3, generator=torch.Generator().manual_seed(0)),
        torch.arange(8) % 3,
    )
    ready = LOSSES[name]()
    with torch.device("meta"):
        late = LOSSES[name]()
    late = late.to_empty(device="cpu")
    late.load_state_dict(ready.state_dict())
    assert torch.equal(late(logits, labels), ready(logits, labels))


class Own(GammaPolicy):
    def __init__(self, rule):
        super().__init__()
        self.rule = rule

    def forward(self, p):
        return self.rule(p)


@pytest.mark.parametrize(
    "rule", [lambda p: 2, lambda p: torch.tensor(2.0), lambda p: torch.full_like(p, 2.0).double()]
)
def test_a_policy_may_return_a_number_or_another_type(rule):
    logits, labels = (
        torch.randn(8, 3, generator=torch.Generator().manual_seed(0)),
        torch.arange(8) % 3,
    )
    for target in (labels, torch.nn.functional.one_hot(labels, 3).float()):
        value = FocalLoss(gamma=Own(rule))(logits, target)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, FocalLoss(gamma=2.0)(logits, target))


@pytest.mark.parametrize("rule", [lambda p: p.unsqueeze(-1), lambda p: p[:3], lambda p: None])
def test_a_policy_of_another_shape_is_refused(rule):
    with pytest.raises(ValueError, match="one gamma for each p, or one number for all; found"):
        FocalLoss(gamma=Own(rule))(torch.zeros(8, 3), torch.arange(8) % 3)


def test_the_state_survives_half_precision():
    loss = LOSSES["adafocal"]()
    logits = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    loss.update(logits, torch.arange(100) % 4)
    before = copy.deepcopy(loss.state_dict())
    for cast in (loss.half, loss.bfloat16, lambda: loss.to(torch.float16), loss.double):
        cast()
        for key, value in loss.state_dict().items():
            assert value.dtype == before[key].dtype
            assert torch.equal(value, before[key])


# --- a run that stops and goes on ----------------------------------------------------------------


def train(name: str, epochs: range, state: dict | None = None) -> tuple[list[float], dict]:
    """A small linear network; the losses of its steps, and everything a checkpoint holds."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(240, 8, generator=generator)
    labels = (data[:, :3] + 0.7 * torch.randn(240, 3, generator=generator)).argmax(1)
    torch.manual_seed(1)
    network = torch.nn.Linear(8, 3)
    loss = LOSSES[name]()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    parts = {"network": network, "loss": loss, "optimiser": optimiser}
    if state is not None:
        for key, part in parts.items():
            part.load_state_dict(state[key])
    steps = []
    for epoch in epochs:
        loss.start_epoch(epoch, 8)
        for start in range(0, 160, 40):
            rows = slice(start, start + 40)
            value = loss(network(data[rows]), labels[rows])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            steps.append(value.item())
        loss.update(network(data[160:]), labels[160:])
    return steps, {key: copy.deepcopy(part.state_dict()) for key, part in parts.items()}


@pytest.mark.parametrize("name", ["adafocal", "fls-531", "fla-53"])
def test_a_resumed_run_is_the_same_bit_for_bit(name, tmp_path):
    whole, end = train(name, range(8))
    first, middle = train(name, range(4))
    torch.save(middle, tmp_path / "checkpoint.pt")
    second, resumed = train(name, range(4, 8), torch.load(tmp_path / "checkpoint.pt"))
    assert whole == first + second
    for key, value in end["loss"].items():
        assert torch.equal(value, resumed["loss"][key])
    for key, value in end["network"].items():
        assert torch.equal(value, resumed["network"][key])
    if name == "adafocal":
        assert end["loss"]["gamma.n_updates"].item() == 8
        assert end["loss"]["gamma.gammas"].unique().numel() > 1


def test_a_named_schedule_may_change_at_other_epochs():
    """The authors' code for SST changes gamma after 3 and 7 of 25 epochs, not in proportion."""
    usual, theirs = LOSSES["fls-531"](), LOSSES["fls-531"](epochs=[3, 7], reduction="sum")
    gammas = []
    for epoch in range(25):
        for loss in (usual, theirs):
            loss.start_epoch(epoch, 25)
        gammas.append((usual.gamma.gamma.item(), theirs.gamma.gamma.item()))
    assert [usual for usual, _ in gammas] == [5.0] * 8 + [3.0] * 10 + [1.0] * 7
    assert [theirs for _, theirs in gammas] == [5.0] * 3 + [3.0] * 4 + [1.0] * 18
    assert theirs.reduction == "sum"
