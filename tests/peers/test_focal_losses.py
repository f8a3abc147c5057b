"""Focal losses of kornia, monai, pytorch-focalloss, focal-loss-torch and balanced-loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from calibrant.losses import FocalLoss, SigmoidFocalLoss
from tests.peers.cases import REASON
from tests.reference import focal_mpmath as oracle, losses_slow as slow

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

kornia = pytest.importorskip("kornia.losses", reason=REASON)
monai = pytest.importorskip("monai.losses", reason=REASON)
torch_focalloss = pytest.importorskip("torch_focalloss", reason=REASON)
focal_loss = pytest.importorskip("focal_loss", reason=REASON)
balanced_loss = pytest.importorskip("balanced_loss.losses", reason=REASON)


def of_kornia(gamma: float) -> Loss:
    loss = kornia.FocalLoss(alpha=None, gamma=gamma, reduction="sum")
    return lambda x, y: loss(x, y) / len(y)


def of_monai(gamma: float) -> Loss:
    loss = monai.FocalLoss(gamma=gamma, to_onehot_y=True, use_softmax=True, reduction="none")
    return lambda x, y: loss(x, y.unsqueeze(1)).sum() / len(y)


def of_pytorch_focalloss(gamma: float) -> Loss:
    return torch_focalloss.MultiClassFocalLoss(gamma=gamma)


def of_focal_loss_torch(gamma: float) -> Loss:
    loss = focal_loss.FocalLoss(gamma=gamma)
    return lambda x, y: loss(torch.softmax(x, dim=1), y)


def of_balanced_loss(gamma: float) -> Loss:
    return lambda x, y: balanced_loss.focal_loss(x, y, gamma=gamma) * y.sum() / len(y)


PEERS = {
    "kornia": of_kornia,
    "monai": of_monai,
    "pytorch-focalloss": of_pytorch_focalloss,
    "focal-loss-torch": of_focal_loss_torch,
}
BINARY = {
    "kornia": lambda gamma: kornia.BinaryFocalLossWithLogits(None, gamma, reduction="mean"),
    "monai": lambda gamma: monai.FocalLoss(gamma=gamma),
    "pytorch-focalloss": lambda gamma: torch_focalloss.BinaryFocalLoss(gamma=gamma),
    "balanced-loss": of_balanced_loss,
}


def found(loss: Loss, logits: torch.Tensor, target: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Value and gradient."""
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.item(), gradient


def batch(n: int = 200, n_classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2.0 * torch.randn(n, n_classes, dtype=torch.float64, generator=generator)
    return logits, torch.randint(n_classes, (n,), generator=generator)


def assert_right(loss: Loss, row: list[float], label: int, gamma: float) -> None:
    """Value and gradient of one row are those of exact arithmetic, to single precision."""
    value, gradient = found(loss, torch.tensor([row]), torch.tensor([label]))
    exact = float(oracle.stable(slow.loss, row, label, gamma))
    assert value == pytest.approx(exact, rel=1e-5, abs=1e-6)
    slopes = [float(slope) for slope in oracle.stable(slow.gradient, row, label, gamma)]
    assert gradient[0].tolist() == pytest.approx(slopes, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", PEERS)
def test_values_and_gradients_agree(name, gamma):
    """monai computes in single precision whatever it is given; focal-loss-torch adds 1e-16 to p."""
    logits, labels = batch()
    value, gradient = found(FocalLoss(gamma=gamma), logits, labels)
    said, slope = found(PEERS[name](gamma), logits, labels)
    precision = {"monai": 1e-6, "focal-loss-torch": 1e-9}.get(name, 1e-12)
    assert said == pytest.approx(value, rel=precision)
    torch.testing.assert_close(slope, gradient, rtol=precision, atol=precision / len(labels))


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("name", BINARY)
def test_binary_values_and_gradients_agree_for_moderate_logits(name, gamma):
    logits = batch(n_classes=1)[0]
    target = (torch.arange(len(logits)) % 2).double().unsqueeze(1)
    value, gradient = found(SigmoidFocalLoss(gamma=gamma), logits, target)
    said, slope = found(BINARY[name](gamma), logits, target)
    precision = 1e-6 if name == "monai" else 1e-12
    assert said == pytest.approx(value, rel=precision)
    torch.testing.assert_close(slope, gradient, rtol=precision, atol=precision / len(target))


@pytest.mark.parametrize("gap", [17.0, 30.0, 120.0])
@pytest.mark.parametrize("name", ["monai", "pytorch-focalloss", "focal-loss-torch"])
def test_a_right_and_certain_row_has_a_nan_gradient_for_gamma_below_1(name, gap):
    """(1 - p)^0.5 has an infinite slope where 1 - p has been rounded to 0."""
    row, label = torch.tensor([[gap, 0.0, 0.0]]), torch.tensor([0])
    assert torch.isnan(found(PEERS[name](0.5), row, label)[1]).all()
    assert_right(FocalLoss(gamma=0.5), row[0].tolist(), 0, 0.5)


def test_monai_has_it_in_wrong_rows_too():
    """It takes the power of every class, also of those that are then multiplied by 0."""
    row, label = torch.tensor([[17.0, 0.0, 0.0]]), torch.tensor([1])
    assert torch.isnan(found(of_monai(0.5), row, label)[1]).all()
    assert_right(FocalLoss(gamma=0.5), [17.0, 0.0, 0.0], 1, 0.5)


def test_one_certain_row_spoils_the_gradient_of_shared_weights():
    """As in training: a NaN in one row of the logits is a NaN in every weight of the layer."""
    features = torch.tensor([[30.0, 0.0], [0.1, 0.2]])
    for make, spoilt in ((of_pytorch_focalloss(0.5), True), (FocalLoss(gamma=0.5), False)):
        weight = torch.eye(2).requires_grad_()
        make(features @ weight, torch.tensor([0, 1])).backward()
        assert bool(torch.isnan(weight.grad).any()) == spoilt


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_focal_loss_torch_stops_learning_where_it_is_wrong_and_certain(gamma):
    """-log(1e-16 + p) is 36.8 at most, and then without a slope."""
    row = [120.0, 0.0, 0.0]
    value, gradient = found(of_focal_loss_torch(gamma), torch.tensor([row]), torch.tensor([1]))
    assert value == pytest.approx(36.84, abs=0.01)
    assert (gradient == 0).all()
    assert_right(FocalLoss(gamma=gamma), row, 1, gamma)


@pytest.mark.parametrize("gap", [17.0, 30.0, 120.0, 1e4])
@pytest.mark.parametrize("gamma", [0.5, 3.0])
@pytest.mark.parametrize("label", [0, 1])
def test_kornia_is_finite_as_ours_is(gap, gamma, label):
    for loss in (of_kornia(gamma), FocalLoss(gamma=gamma)):
        assert_right(loss, [gap, 0.0, 0.0], label, gamma)


def test_binary_losses_beyond_moderate_logits():
    """Certain and right: a NaN from |v - q|^0.5. Certain and wrong: e^120 is infinite."""
    one = torch.ones(1, 1)
    sure, wrong = torch.tensor([[17.0]]), torch.tensor([[-120.0]])
    assert torch.isnan(found(BINARY["pytorch-focalloss"](0.5), sure, one)[1]).all()
    value, gradient = found(BINARY["balanced-loss"](2.0), wrong, one)
    assert value == 0.0
    assert torch.isnan(gradient).all()
    value, gradient = found(SigmoidFocalLoss(gamma=2.0), wrong, one)
    assert (value, gradient.item()) == (120.0, -1.0)
    value, gradient = found(SigmoidFocalLoss(gamma=0.5), sure, one)
    assert value == pytest.approx(8.4235e-12, rel=1e-4)
    assert gradient.item() == pytest.approx(-1.2635e-11, rel=1e-4)


def test_a_masked_class_is_nan_in_monai():
    """0 times the infinite loss of a class that cannot occur."""
    row, label = torch.tensor([[1.0, 0.0, -float("inf")]]), torch.tensor([0])
    value, gradient = found(of_monai(2.0), row, label)
    assert value != value
    assert torch.isnan(gradient).all()
    ours, _ = found(FocalLoss(gamma=2.0), row, label)
    assert ours == pytest.approx(found(FocalLoss(gamma=2.0), row[:, :2], label)[0], rel=1e-6)


@pytest.mark.parametrize("name", ["kornia", "monai"])
def test_their_mean_is_over_every_entry_of_the_logits(name):
    logits, labels = batch()
    if name == "kornia":
        said = kornia.FocalLoss(alpha=None, gamma=2.0, reduction="mean")(logits, labels)
    else:
        mean = monai.FocalLoss(gamma=2.0, to_onehot_y=True, use_softmax=True)
        said = mean(logits, labels.unsqueeze(1))
    ours = FocalLoss(gamma=2.0)(logits, labels).item()
    assert said.item() == pytest.approx(ours / logits.shape[1], rel=1e-6)


def test_kornia_divides_by_ignored_rows_too():
    logits, labels = batch()
    labels[::2] = -100
    said = kornia.FocalLoss(alpha=None, gamma=2.0, reduction="mean")(logits, labels).item()
    ours = FocalLoss(gamma=2.0)(logits, labels).item()
    assert said * logits.shape[1] == pytest.approx(ours / 2.0, rel=1e-9)


def test_alpha_of_kornia_is_a_weight_of_all_classes_but_the_first():
    logits, labels = batch(n_classes=3)
    said = kornia.FocalLoss(alpha=0.25, gamma=2.0, reduction="sum")(logits, labels).item()
    weight = torch.tensor([0.75, 0.25, 0.25], dtype=torch.float64)
    ours = FocalLoss(gamma=2.0, weight=weight, reduction="sum")(logits, labels).item()
    assert said == pytest.approx(ours, rel=1e-12)


def test_monai_without_use_softmax_is_the_binary_loss_of_every_class():
    logits, labels = batch()
    one_hot = F.one_hot(labels, 10).double()
    said = monai.FocalLoss(gamma=2.0, to_onehot_y=True)(logits, labels.unsqueeze(1)).item()
    ours = SigmoidFocalLoss(gamma=2.0)(logits, one_hot).item()
    assert said == pytest.approx(ours, rel=1e-6)
    assert said != pytest.approx(FocalLoss(gamma=2.0)(logits, labels).item(), rel=0.1)


def test_pytorch_focalloss_stumbles_over_its_own_default_of_ignore_index():
    logits, labels = batch()
    labels[0] = -100
    with pytest.raises(IndexError, match="-100 is out of bounds"):
        of_pytorch_focalloss(2.0)(logits, labels)
    rest = FocalLoss(gamma=2.0)(logits[1:], labels[1:]).item()
    assert FocalLoss(gamma=2.0)(logits, labels).item() == pytest.approx(rest, rel=1e-12)


def test_soft_targets_of_pytorch_focalloss_have_one_factor_for_a_row():
    """Ours is the expected loss of a label that is drawn; theirs has |v - q| of the top class."""
    logits, _ = batch(n_classes=3)
    target = torch.softmax(logits.flip(0), dim=1)
    said = of_pytorch_focalloss(2.0)(logits, target).item()
    drawn = sum(
        (target[:, k] * FocalLoss(gamma=2.0, reduction="none")(logits, torch.full((200,), k)))
        for k in range(3)
    )
    assert FocalLoss(gamma=2.0)(logits, target).item() == pytest.approx(drawn.mean().item())
    assert said != pytest.approx(drawn.mean().item(), rel=0.1)


def test_nothing_to_count_is_nan_in_focal_loss_torch():
    logits = torch.zeros(2, 3)
    ignored = torch.full((2,), -100)
    assert torch.isnan(of_focal_loss_torch(2.0)(logits, ignored))
    assert FocalLoss(gamma=2.0)(logits, ignored).item() == 0.0
