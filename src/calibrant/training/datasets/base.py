"""Data sets: three splits that give batches, and a record of how they were made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

Augment: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""(Inputs of a training batch, random generator) -> inputs to train on."""


class Split(ABC):
    """The training, validation or test split of a data set.

    Attributes:
        labels: (n,) int64, the class that evaluation uses for each item.
        ids: (n,) strings such as ``"train/17"`` that locate each item in the files; unique within
            the data set.
    """

    labels: Tensor
    ids: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batch(self, indices: Tensor) -> tuple[Any, Tensor]:
        """The network's inputs for these items, and the target of each row of its output.

        Args:
            indices: (m,) int64 positions in this split, in any order.

        Returns:
            tuple: the inputs, and int64 targets. One target per item, in the order of ``indices``;
            trees in training have one for every labelled node.
        """

    def n_targets(self, indices: Tensor) -> int:
        """Number of targets that :meth:`batch` gives for these items; a tree has several."""
        return len(indices)

    def evaluation(self) -> Split:
        """The same items with one target each, for evaluation; only trees differ here."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """A data set in three disjoint splits.

    Attributes:
        name: Name in ``DATASETS``.
        kind: What a network takes: ``"images"`` float32 (m, channels, height, width),
            ``"features"`` float32 (m, columns), ``"tokens"`` int64 (m, length) with 0 for padding,
            or ``"trees"``, a :class:`TreeBatch`.
        input_shape: Shape of one input: (channels, height, width), (columns,) or (length,); () for
            trees.
        class_names: One name per class.
        train: Split to train on, shuffled by the seed.
        val: Split to select and calibrate on.
        test: Split to report on.
        record: How the data set was made, as JSON can hold it: seed, sizes, files with their
            SHA-256, split, normalisation, notes.
        augment: Random change of the training inputs, drawn for each batch; None for none.
        vocabulary: Words of text by token id (0 is padding, 1 any word not listed); None for other
            kinds.
        embeddings: (words, size) float32 vectors of the vocabulary; None without a file of them.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    record: dict[str, Any]
    augment: Augment | None = None
    vocabulary: tuple[str, ...] | None = None
    embeddings: Tensor | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def __repr__(self) -> str:
        sizes = f"{len(self.train)} train, {len(self.val)} val, {len(self.test)} test"
        return f"DataSet({self.name}: {sizes}, {self.n_classes} classes)"


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """A batch of binary trees, their nodes numbered by height: leaves first, then upwards.

    The height of a leaf is 0, that of another node one more than its higher child's. Children
    precede their parents, so all nodes of one height can be computed at once.

    Attributes:
        tokens: (leaves,) int64 token ids; leaf ``i`` is node ``i``.
        children: (nodes, 2) int64, left and right child; -1 for leaves.
        levels: Node numbers of each height from 0 upwards, int64; ``torch.cat(levels)`` is
            0, 1, ..., nodes - 1.
        roots: (trees,) int64, root of each tree, in the requested order.
        rows: (m,) int64, nodes whose logits are wanted, in the order of the targets.

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
        """Number of trees."""
        return len(self.roots)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all trees."""
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
