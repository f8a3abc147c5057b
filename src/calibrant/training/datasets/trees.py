"""Binary trees with a label at every node: parsing and batching."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import CalibrantError
from calibrant.training.datasets.base import Split, TreeBatch

_TOKEN = re.compile(r"[()]|[^() \t\r\n]+")
_ESCAPED = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}


@dataclass(frozen=True)
class Tree:
    """One tree; children precede their parents, and the root is the last node.

    Attributes:
        labels: Label of each node.
        children: (left, right) of each node, (-1, -1) for a leaf.
        words: Word of each node, None for an inner node.
    """

    labels: list[int]
    children: list[tuple[int, int]]
    words: list[str | None]


def parse_tree(line: str) -> Tree:
    """Parse a tree in the Penn Treebank's format, ``(3 (2 not) (4 bad))``, of any depth.

    Every node is a label with a word, or a label with two nodes.

    Examples:
        >>> tree = parse_tree("(3 (2 Not) (1 bad))")
        >>> tree.labels, tree.children, tree.words
        ([2, 1, 3], [(-1, -1), (-1, -1), (0, 1)], ['Not', 'bad', None])
    """
    tree = Tree([], [], [])
    open_nodes: list[_Open] = []
    root = False
    for token in _TOKEN.findall(line):
        if root:
            raise CalibrantError(f"{token!r} follows the end of the tree")
        if token == "(":
            open_nodes.append(_Open())
        elif not open_nodes:
            raise CalibrantError(f"{token!r} is outside the tree")
        elif token != ")":
            open_nodes[-1].take(token)
        else:
            node = open_nodes.pop()
            label, children = node.finished()
            tree.labels.append(label)
            tree.children.append(children)
            tree.words.append(node.word)
            if open_nodes:
                open_nodes[-1].children.append(len(tree.labels) - 1)
            root = not open_nodes
    if not root:
        raise CalibrantError("a bracket is not closed")
    return tree


class _Open:
    """A node whose bracket is not closed yet."""

    def __init__(self) -> None:
        self.label: int | None = None
        self.word: str | None = None
        self.children: list[int] = []

    def take(self, token: str) -> None:
        if self.label is None:
            if not (token.isascii() and token.isdigit() and len(token) < 10):
                raise CalibrantError(f"expected a label, got {token!r}")
            self.label = int(token)
        elif self.word is None:
            self.word = token
        else:
            raise CalibrantError(f"a node has two words, {self.word!r} and {token!r}")

    def finished(self) -> tuple[int, tuple[int, int]]:
        if self.label is None:
            raise CalibrantError("a node has no label")
        if self.word is not None and not self.children:
            return self.label, (-1, -1)
        if self.word is None and len(self.children) == 2:
            return self.label, (self.children[0], self.children[1])
        has = f"{len(self.children)} nodes" + (" and a word" if self.word is not None else "")
        raise CalibrantError(f"a node has {has}, not one word or two nodes")


def plain_word(word: str) -> str:
    r"""A leaf's word as files of word vectors spell it: lower case, without treebank escapes.

    Examples:
        >>> plain_word("-LRB-"), plain_word(r"and\/or"), plain_word("Rock")
        ('(', 'and/or', 'rock')
    """
    lower = word.lower()
    return _ESCAPED.get(lower, lower.replace("\\/", "/").replace("\\*", "*"))


class TreeSplit(Split):
    """Trees whose targets are the labels of all labelled nodes, or of the root only.

    Args:
        trees: The trees; each root has a label.
        classes: Class of each label; -1 for labels without a target.
        numbers: Word -> token id; other words have id 1.
        ids: One per tree.
        every_node: Whether all labelled nodes have targets.
    """

    def __init__(
        self,
        trees: Sequence[Tree],
        *,
        classes: Sequence[int],
        numbers: dict[str, int],
        ids: Sequence[str],
        every_node: bool,
    ) -> None:
        sizes = np.array([len(tree.labels) for tree in trees], dtype=np.int64)
        labels = np.fromiter((label for tree in trees for label in tree.labels), dtype=np.int64)
        self.sizes = sizes
        self.starts = np.cumsum(sizes) - sizes
        self.children = np.array(
            [pair for tree in trees for pair in tree.children], dtype=np.int32
        ).reshape(-1, 2)
        words = (word for tree in trees for word in tree.words)
        tokens = [0 if word is None else numbers.get(plain_word(word), 1) for word in words]
        self.tokens = np.array(tokens, dtype=np.int32)
        self.targets = np.array(classes, dtype=np.int64)[labels]
        counted = np.concatenate([[0], np.cumsum(self.targets >= 0)])
        self.labelled = counted[self.starts + sizes] - counted[self.starts]
        self.heights = np.array([h for tree in trees for h in _heights(tree)], dtype=np.int32)
        self.labels = torch.from_numpy(self.targets[self.starts + sizes - 1])
        self.ids = np.array(ids, dtype=np.str_)
        self.every_node = every_node

    def n_targets(self, indices: Tensor) -> int:
        """Number of labelled nodes of these trees, or of their roots."""
        return int(self.labelled[indices.numpy()].sum()) if self.every_node else len(indices)

    def evaluation(self) -> TreeSplit:
        """The same trees with targets for the roots only."""
        twin = object.__new__(TreeSplit)
        twin.__dict__.update(self.__dict__, every_node=False)
        return twin

    def batch(self, indices: Tensor) -> tuple[TreeBatch, Tensor]:
        """The trees as one batch, and the targets of its ``rows``."""
        wanted = indices.numpy()
        sizes = self.sizes[wanted]
        first = np.cumsum(sizes) - sizes  # of each tree, in the batch
        base = np.repeat(first, sizes)
        nodes = np.arange(len(base)) - base + np.repeat(self.starts[wanted], sizes)
        heights = self.heights[nodes]
        order = np.argsort(heights, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        children = self.children[nodes]
        children = np.where(children < 0, -1, number[np.maximum(children + base[:, None], 0)])
        counts = np.bincount(heights, minlength=1)
        roots = torch.from_numpy(number[first + sizes - 1])
        targets = self.targets[nodes[order]]
        rows = torch.from_numpy(np.flatnonzero(targets >= 0)) if self.every_node else roots
        batch = TreeBatch(
            tokens=torch.from_numpy(self.tokens[nodes[order[: counts[0]]]].astype(np.int64)),
            children=torch.from_numpy(children[order]),
            levels=torch.split(torch.arange(len(order)), counts.tolist()),
            roots=roots,
            rows=rows,
        )
        return batch, torch.from_numpy(targets)[rows]


def _heights(tree: Tree) -> list[int]:
    heights: list[int] = []
    for left, right in tree.children:
        heights.append(0 if left < 0 else 1 + max(heights[left], heights[right]))
    return heights


def leaf_words(trees: Sequence[Tree]) -> list[list[str]]:
    """Words of each tree, spelled as in files of word vectors."""
    return [[plain_word(word) for word in tree.words if word is not None] for tree in trees]
