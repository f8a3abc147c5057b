"""Training with :mod:`calibrant.training` against the plain PyTorch loop.

The same network, loss, optimiser, batches and number of threads; random images, which cost what
others do. After each step of ours the plain loop takes one, so that noise hits both alike. A step
of ours is all that passes from one to the next: batch, forward, backward, optimiser, Lightning.
What the module adds is the median over pairs of neighbouring steps. It adds the same milliseconds
whatever the network, so they are measured with a network that takes none as well: on a machine that
others use too, that is the figure to trust.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.losses import LOSSES
from calibrant.training import Recipe, train
from calibrant.training.datasets import DataSet, Split
from calibrant.training.models import build

N_TRAIN, N_REST, BATCH, EPOCHS = 128 * 20, 64, 128, 2
PLAIN, OURS = "plain PyTorch", "calibrant"
TARGET = 3.0
"""Percent that the module may add."""


class Images(Split):
    """Random 32 x 32 images, normalised batch by batch."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.pixels = torch.randint(256, (n, 3, 32, 32), generator=generator, dtype=torch.uint8)
        self.labels = torch.randint(10, (n,), generator=generator)
        self.ids = np.array([f"{seed}/{row}" for row in range(n)], dtype=np.str_)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Images and labels."""
        return self.pixels[indices].float().sub_(127.5).div_(73.9), self.labels[indices]


class PlainLoop:
    """Training as one writes it by hand."""

    def __init__(self, part: Images, network: nn.Module) -> None:
        self.part = part
        self.network = network
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss = LOSSES["fl-3"]()
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4
        )
        self.at = 0

    def step(self) -> None:
        """One batch."""
        start = self.at % len(self.part)
        if start == 0:
            self.order = torch.randperm(len(self.part))
        inputs, targets = self.part.batch(self.order[start : start + BATCH])
        self.optimizer.zero_grad()
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        loss = self.loss(self.network(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.at += BATCH


class Turns:
    """Called before each step of ours: takes a plain one, and the time of both."""

    def __init__(self, plain: PlainLoop) -> None:
        self.plain = plain
        self.left = 0.0
        self.seconds: dict[str, list[float]] = {PLAIN: [], OURS: []}

    def __call__(self, epoch: int, step: int, n_steps: int) -> None:
        """The first steps of an epoch do not count."""
        come = time.perf_counter()
        torch.use_deterministic_algorithms(False)  # as a plain loop is run
        start = time.perf_counter()
        self.plain.step()
        end = time.perf_counter()
        torch.use_deterministic_algorithms(True)
        if step > 1:
            self.seconds[OURS].append(come - self.left)
            self.seconds[PLAIN].append(end - start)
        self.left = time.perf_counter()


def nearly_nothing() -> nn.Module:
    """A network whose step takes next to no time."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))


def measured(threads: int, make: Callable[[], nn.Module]) -> dict[str, list[float]]:
    """Seconds of the steps of both."""
    parts = [Images(n, seed) for seed, n in enumerate((N_TRAIN, N_REST, N_REST))]
    data = DataSet(
        name="random",
        kind="images",
        input_shape=(3, 32, 32),
        class_names=tuple("0123456789"),
        train=parts[0],
        val=parts[1],
        test=parts[2],
        record={},
    )
    recipe = Recipe(
        data="random",
        model="resnet8",
        loss="fl-3",
        epochs=EPOCHS,
        batch_size=BATCH,
        weight_decay=5e-4,
        observed=0,
    )
    turns = Turns(PlainLoop(parts[0], make()))
    with tempfile.TemporaryDirectory() as folder:
        train(
            recipe,
            f"{folder}/run",
            data=data,
            network=make(),
            accelerator="cpu",
            threads=threads,
            on_step=turns,
        )
    return turns.seconds


def main() -> None:
    """Print images a second, and what the module adds."""
    print(f"\nTraining ResNet-8, 32 x 32 images, batches of {BATCH}; target: at most {TARGET:g}%")
    for threads in sorted({1, torch.get_num_threads()}):
        seconds = measured(threads, lambda: build("resnet8", 10))
        for name, taken in seconds.items():
            print(f"  {threads} threads, {name:<13} {BATCH / median(taken):6.0f} images/s")
        pairs = zip(seconds[OURS], seconds[PLAIN], strict=True)
        added = median(ours / plain for ours, plain in pairs)
        print(f"  {threads} threads, module adds {100 * (added - 1):+.1f}%")
        empty = measured(threads, nearly_nothing)
        cost = median(empty[OURS]) - median(empty[PLAIN])
        share = 100 * cost / median(seconds[PLAIN])
        print(f"  {threads} threads, without a network {1e3 * cost:.2f} ms a step: {share:+.1f}%")


if __name__ == "__main__":
    main()
