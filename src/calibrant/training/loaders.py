"""Batches in an order that the seed and the epoch decide, each sample once, over all processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibrant.training.datasets import Augment, Part


class World(NamedTuple):
    """Which of how many processes this is."""

    rank: int
    size: int


ALONE = World(0, 1)


class TrainBatch(NamedTuple):
    """What a step takes."""

    inputs: Any
    targets: Tensor
    share: float
    """What the mean over these targets counts in the mean over the whole batch, times the number
    of processes: averaged over all processes, gradients are those of the whole batch."""


class EpochBatches:
    """The training part in one epoch, as this process sees it.

    The order and the augmentation follow from seed, epoch and rank alone: an epoch that is run
    again has the same batches, whatever was run before it. Every process takes its part of each
    batch, so that all make as many steps and each sample is seen once. A remainder with fewer than
    two samples for each process joins the batch before it.

    Args:
        part: What to learn from.
        augment: What changes the inputs; None for nothing.
        batch_size: Samples in a step, of all processes together.
        seed: Of the run.
        epoch: Counted from 0.
        world: Which of how many processes this is.

    Examples:
        >>> import torch
        >>> from calibrant.training.datasets import load
        >>> from calibrant.training.loaders import EpochBatches, World
        >>> train = load("digits", limit=100).train
        >>> halves = [
        ...     EpochBatches(train, None, batch_size=32, seed=0, epoch=3, world=World(rank, 2))
        ...     for rank in (0, 1)
        ... ]
        >>> [len(batch.targets) for batch in halves[0]]
        [16, 16, 16, 2]
        >>> seen = torch.cat([places for half in halves for places in half.places()])
        >>> bool((seen.sort().values == torch.arange(100)).all())
        True
    """

    def __init__(
        self,
        part: Part,
        augment: Augment | None,
        *,
        batch_size: int,
        seed: int,
        epoch: int,
        world: World = ALONE,
    ) -> None:
        self.part = part
        self.augment = augment
        self.seed = seed
        self.epoch = epoch
        self.world = world
        least = 2 * world.size
        order = torch.randperm(len(part), generator=generator_of(seed, epoch, "order"))
        ends = list(range(batch_size, len(part), batch_size))
        if ends and len(part) - ends[-1] < least:
            ends.pop()
        self.batches = [batch.contiguous() for batch in torch.tensor_split(order, ends)]

    def __len__(self) -> int:
        return len(self.batches)

    def places(self) -> Iterator[Tensor]:
        """The places in the part that this process takes, batch by batch."""
        for batch in self.batches:
            yield batch[self.world.rank :: self.world.size]

    def __iter__(self) -> Iterator[TrainBatch]:
        chance = generator_of(self.seed, self.epoch, "augment", self.world.rank)
        for batch, own in zip(self.batches, self.places(), strict=True):
            inputs, targets = self.part.batch(own)
            if self.augment is not None:
                inputs = self.augment(inputs, chance)
            share = 1.0
            if self.world.size > 1:  # targets, and not items: a tree has many
                share = self.part.n_targets(own) * self.world.size / self.part.n_targets(batch)
            yield TrainBatch(channels_last(inputs), targets, share)


def channels_last(inputs: Any) -> Any:
    """Images with their channels side by side in memory, which convolutions read faster."""
    if isinstance(inputs, Tensor) and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def generator_of(seed: int, epoch: int, purpose: str, rank: int = 0) -> torch.Generator:
    """Chance for one purpose in one epoch of one process."""
    return torch.Generator().manual_seed(seed_of(seed, epoch, purpose, rank))


def seed_of(seed: int, epoch: int, purpose: str, rank: int = 0) -> int:
    """A seed of its own for one purpose in one epoch of one process.

    Examples:
        >>> from calibrant.training.loaders import seed_of
        >>> len({seed_of(0, epoch, "order", rank) for epoch in range(9) for rank in (0, 1)})
        18
    """
    words = [seed, epoch, rank, *purpose.encode()]
    (state,) = np.random.SeedSequence(words).generate_state(1, np.uint64)
    return int(state) >> 1  # torch takes what fits into a signed number


def drawn(n: int, wanted: int | None, seed: int) -> Tensor:
    """``wanted`` of ``n`` places, drawn by the seed, in rising order; None is all of them."""
    if wanted is None or wanted >= n:
        return torch.arange(n)
    return torch.randperm(n, generator=generator_of(seed, 0, "observed"))[:wanted].sort().values
