"""What every data set is: three parts that give batches, and a record of how they were made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Inputs of a training batch, and where chance comes from -> the inputs to train on."""


class Part(ABC):
    """The training, validation or test part of a data set.

    Attributes:
        labels: (n,) int64, the class each item is judged by.
        ids: (n,) strings, which item of the files it is, such as ``"train/17"``; no two items of
            a data set share one.
    """

    labels: Tensor
    ids: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batch(self, indices: Tensor) -> tuple[Any, Tensor]:
        """What the network takes for these items, and the target of each row it gives back.

        Args:
            indices: (m,) int64 places in this part, in any order.

        Returns:
            tuple: the inputs, and int64 targets. One target an item, in the order of ``indices``;
            for trees in training there is one for every labelled node.
        """

    def n_targets(self, indices: Tensor) -> int:
        """How many targets :meth:`batch` gives for these items; trees have several an item."""
        return len(indices)

    def evaluation(self) -> Part:
        """The same items with one target each, for measuring; trees differ here, others do not."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """A data set in three disjoint parts.

    Attributes:
        name: its name in ``DATASETS``.
        kind: what a network takes: ``"images"`` float32 (m, channels, height, width),
            ``"features"`` float32 (m, columns), ``"tokens"`` int64 (m, length) with 0 for padding,
            or ``"trees"``, a :class:`TreeBatch`.
        input_shape: the shape of one input, (channels, height, width), (columns,) or (length,);
            () for trees.
        class_names: one name a class.
        train: the part to learn from, in the seeded order.
        val: the part to choose and calibrate on.
        test: the part to report.
        record: how this came about, as JSON can hold it: seed, sizes, files with their SHA-256,
            split, normalisation, notes.
        augment: what changes training inputs, anew for each batch; None for nothing.
        vocabulary: the words of text by token id (0 is padding, 1 any word not listed); None
            for other kinds.
        embeddings: (words, size) float32 vectors of the vocabulary; None without a file of them.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    train: Part
    val: Part
    test: Part
    record: dict[str, Any]
    augment: Augment | None = None
    vocabulary: tuple[str, ...] | None = None
    embeddings: Tensor | None = None

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    def __repr__(self) -> str:
        sizes = f"{len(self.train)} train, {len(self.val)} val, {len(self.test)} test"
        return f"DataSet({self.name}: {sizes}, {self.n_classes} classes)"


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """Binary trees side by side, their nodes numbered by height: leaves first, then upwards.

    A node's height is 0 for a leaf, else one more than that of its higher child. All nodes of one
    height can be computed at once, for their children come earlier in the numbering.

    Attributes:
        tokens: (leaves,) int64 token ids; leaf ``i`` is node ``i``.
        children: (nodes, 2) int64, the left and the right child; -1 for leaves.
        levels: the node numbers of each height from 0 upwards, int64, rising and without gaps:
            ``torch.cat(levels)`` is 0, 1, ..., nodes - 1.
        roots: (trees,) int64, the root of each tree, in the order asked for.
        rows: (m,) int64, the nodes whose logits are wanted, in the order of the targets.

    Examples:
        The tree (a (b c)): leaves a, b, c are nodes 0, 1, 2; (b c) is node 3, the whole node 4.

        >>> import torch
        >>> batch = TreeBatch(
        ...     tokens=torch.tensor([7, 8, 9]),
        ...     children=torch.tensor([[-1, -1], [-1, -1], [-1, -1], [1, 2], [0, 3]]),
        ...     levels=(torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4])),
        ...     roots=torch.tensor([4]),
        ...     rows=torch.tensor([4]),
        ... )
        >>> len(batch), batch.n_nodes, batch.to("cpu").roots
        (1, 5, tensor([4]))
    """

    tokens: Tensor
    children: Tensor
    levels: tuple[Tensor, ...]
    roots: Tensor
    rows: Tensor

    def __len__(self) -> int:
        """How many trees there are."""
        return len(self.roots)

    @property
    def n_nodes(self) -> int:
        """How many nodes all trees have together."""
        return len(self.children)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> TreeBatch:
        """The same trees on ``device``."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        return TreeBatch(
            tokens=moved(self.tokens),
            children=moved(self.children),
            levels=tuple(moved(level) for level in self.levels),
            roots=moved(self.roots),
            rows=moved(self.rows),
        )
