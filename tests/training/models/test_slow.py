"""The large networks in training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from calibrant.training.models import build

pytestmark = pytest.mark.slow

LARGE = ("resnet110", "resnet50", "resnet110-bottleneck", "wide-resnet-26-10", "densenet121")


def a_batch(n: int, pixels: int, n_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, pixels, pixels, generator=generator), torch.arange(n) % n_classes


@pytest.mark.parametrize("name", LARGE)
def test_one_step(name):
    """Every parameter has a gradient and moves, and all stays finite."""
    torch.manual_seed(0)
    network = build(name, 10)
    images, labels = a_batch(4, 32, 10)
    before = {key: p.detach().clone() for key, p in network.named_parameters()}
    F.cross_entropy(network(images), labels).backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    for key, parameter in network.named_parameters():
        assert parameter.isfinite().all(), key
        assert not torch.equal(parameter, before[key]), key


def test_one_step_on_64_pixels():
    torch.manual_seed(0)
    network = build("resnet50-tiny", 200)
    images, labels = a_batch(2, 64, 200)
    logits = network(images)
    assert logits.shape == (2, 200)
    F.cross_entropy(logits, labels).backward()
    assert all(p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("name", ["resnet50", "wide-resnet-26-10", "densenet121"])
def test_one_batch_is_learnt_by_heart(name):
    """Random labels of random images: all correct, with high confidence, within 30 steps."""
    torch.manual_seed(0)
    network = build(name, 4)
    images, labels = a_batch(8, 16, 4)
    labels = labels[torch.randperm(8, generator=torch.Generator().manual_seed(2))]
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    for _ in range(30):
        logits = network(images)
        loss = F.cross_entropy(logits, labels)
        if loss.item() < 0.02:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02
    assert torch.equal(logits.argmax(1), labels)
