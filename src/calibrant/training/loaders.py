"""Training batches, shuffled by seed and epoch and divided among the processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibrant.training.datasets import Augment, Split


class World(NamedTuple):
    """Rank of this process, and the number of processes."""

    rank: int
    size: int


ALONE = World(0, 1)


class TrainBatch(NamedTuple):
    """The batch of one training step."""

    inputs: Any
    targets: Tensor
    share: float
    """Weight of the mean over these targets in the mean over the whole batch, times the number of
    processes. Averaged over all processes, gradients are then those of the whole batch."""


class EpochBatches:
    """The batches of one epoch in this process.

    Order and augmentation depend only on seed, epoch and rank: a repeated epoch has the same
    batches, whatever ran before it. Every process takes its share of each batch, so all make the
    same number of steps and each sample is seen once. A remainder with fewer than two samples per
    process joins the batch before it.

    Args:
        split: Training split.
        augment: Random change of the inputs; None for none.
        batch_size: Samples per step, over all processes.
        seed: Seed of the run.
        epoch: Counted from 0.
        world: Rank of this process, and the number of processes.

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
        >>> seen = torch.cat([indices for half in halves for indices in half.own_indices()])
        >>> bool((seen.sort().values == torch.arange(100)).all())
        True
    """

    def __init__(
        self,
        split: Split,
        augment: Augment | None,
        *,
        batch_size: int,
        seed: int,
        epoch: int,
        world: World = ALONE,
    ) -> None:
        self.split = split
        self.augment = augment
        self.seed = seed
        self.epoch = epoch
        self.world = world
        least = 2 * world.size
        order = torch.randperm(len(split), generator=derived_generator(seed, epoch, "order"))
        ends = list(range(batch_size, len(split), batch_size))
        if ends and len(split) - ends[-1] < least:
            ends.pop()
        self.batches = [batch.contiguous() for batch in torch.tensor_split(order, ends)]

    def __len__(self) -> int:
        return len(self.batches)

    def own_indices(self) -> Iterator[Tensor]:
        """Indices into the split that this process takes, batch by batch."""
        for batch in self.batches:
            yield batch[self.world.rank :: self.world.size]

    def __iter__(self) -> Iterator[TrainBatch]:
        generator = derived_generator(self.seed, self.epoch, "augment", self.world.rank)
        for batch, own in zip(self.batches, self.own_indices(), strict=True):
            inputs, targets = self.split.batch(own)
            if self.augment is not None:
                inputs = self.augment(inputs, generator)
            share = 1.0
            if self.world.size > 1:  # targets rather than items: a tree has many
                share = self.split.n_targets(own) * self.world.size / self.split.n_targets(batch)
            yield TrainBatch(channels_last(inputs), targets, share)


def channels_last(inputs: Any) -> Any:
    """Images in channels-last memory format, which convolutions read faster."""
    if isinstance(inputs, Tensor) and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def derived_generator(seed: int, epoch: int, purpose: str, rank: int = 0) -> torch.Generator:
    """A random generator for one purpose in one epoch of one process."""
    return torch.Generator().manual_seed(derived_seed(seed, epoch, purpose, rank))


def derived_seed(seed: int, epoch: int, purpose: str, rank: int = 0) -> int:
    """A seed for one purpose in one epoch of one process.

    Examples:
        >>> from calibrant.training.loaders import derived_seed
        >>> len({derived_seed(0, epoch, "order", rank) for epoch in range(9) for rank in (0, 1)})
        18
    """
    words = [seed, epoch, rank, *purpose.encode()]
    (state,) = np.random.SeedSequence(words).generate_state(1, np.uint64)
    return int(state) >> 1  # torch takes a signed number


def random_subset(n: int, size: int | None, seed: int) -> Tensor:
    """``size`` of the indices 0 to n - 1, drawn by the seed and sorted; None gives all."""
    if size is None or size >= n:
        return torch.arange(n)
    order = torch.randperm(n, generator=derived_generator(seed, 0, "observed"))
    return order[:size].sort().values
