"""Training with :mod:`calibrant.training` against the plain PyTorch loop.

The same network, loss, optimiser, batches and number of threads; random images, which cost as much
as others. After each of our steps the plain loop takes one, so that noise affects both. Our step
includes everything: batch, forward, backward, optimiser, Lightning. The overhead is the median over
pairs of neighbouring steps. It is the same number of milliseconds for every network, so it is also
measured with a network that takes almost no time: on a shared machine, trust that figure.
"""

from __future__ import annotations

import subprocess
import sys
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
"""Allowed overhead in percent."""


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
    """A training loop as written by hand."""

    def __init__(self, split: Images, network: nn.Module) -> None:
        self.split = split
        self.network = network
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss = LOSSES["fl-3"]()
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4
        )
        self.at = 0

    def step(self) -> None:
        """One batch."""
        start = self.at % len(self.split)
        if start == 0:
            self.order = torch.randperm(len(self.split))
        inputs, targets = self.split.batch(self.order[start : start + BATCH])
        self.optimizer.zero_grad()
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        loss = self.loss(self.network(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.at += BATCH


class Turns:
    """Called before each of our steps: makes a plain step, and times both."""

    def __init__(self, plain: PlainLoop) -> None:
        self.plain = plain
        self.left = 0.0
        self.seconds: dict[str, list[float]] = {PLAIN: [], OURS: []}

    def __call__(self, epoch: int, step: int, n_steps: int) -> None:
        """Make a plain step; the first steps of an epoch are not timed."""
        come = time.perf_counter()
        torch.use_deterministic_algorithms(False)  # as in a plain loop
        start = time.perf_counter()
        self.plain.step()
        end = time.perf_counter()
        torch.use_deterministic_algorithms(True)
        if step > 1:
            self.seconds[OURS].append(come - self.left)
            self.seconds[PLAIN].append(end - start)
        self.left = time.perf_counter()


def nearly_nothing() -> nn.Module:
    """A network whose step takes almost no time."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))


def measured(threads: int, make: Callable[[], nn.Module]) -> dict[str, list[float]]:
    """Seconds of the steps of both."""
    splits = [Images(n, seed) for seed, n in enumerate((N_TRAIN, N_REST, N_REST))]
    data = DataSet(
        name="random",
        kind="images",
        input_shape=(3, 32, 32),
        class_names=tuple("0123456789"),
        train=splits[0],
        val=splits[1],
        test=splits[2],
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
    turns = Turns(PlainLoop(splits[0], make()))
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


KEPT = """
import sys, time, torch
from calibrant.training.models import build
from calibrant.training.run import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
torch.manual_seed(0)
torch.set_num_threads(1)
network = build("resnet8", 10).to(memory_format=torch.channels_last)
images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
labels = torch.randint(10, (128,))
taken = []
for _ in range(25):
    start = time.perf_counter()
    network.zero_grad()
    torch.nn.functional.cross_entropy(network(images), labels).backward()
    taken.append(time.perf_counter() - start)
print(sorted(taken[5:])[10])
"""


def print_freed_memory() -> None:
    """Print what it gains that ``calibrant train`` keeps the memory of freed tensors."""
    seconds: dict[str, list[float]] = {"returned": [], "kept": []}
    for _ in range(3):
        for memory, taken in seconds.items():
            child = [sys.executable, "-c", KEPT, memory]
            done = subprocess.run(child, check=True, capture_output=True, text=True)
            taken.append(float(done.stdout))
    rates = {memory: BATCH / min(taken) for memory, taken in seconds.items()}
    for memory, rate in rates.items():
        print(f"  1 thread, freed memory {memory:<8} {rate:6.0f} images/s")
    print(f"  kept memory trains {rates['kept'] / rates['returned']:.2f} times as fast")


def main() -> None:
    """Print images per second, and the overhead of the module."""
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
        print(f"  {threads} threads, without a network {1e3 * cost:.2f} ms per step: {share:+.1f}%")
    print_freed_memory()


if __name__ == "__main__":
    main()
