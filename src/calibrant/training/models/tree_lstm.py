"""The Tree-LSTM over binary trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor, nn

from calibrant._types import Array
from calibrant.training import checks
from calibrant.training.models.words import looked_up, word_vectors


class Trees(Protocol):
    """A batch of binary trees with nodes numbered by height, as in ``datasets.TreeBatch``.

    Leaves come first, then the nodes whose children are leaves, and so on: children have smaller
    numbers than their parents, and the numbers of a level are consecutive.
    """

    @property
    def tokens(self) -> Tensor:
        """(leaves,) token ids; leaf i is node i."""

    @property
    def children(self) -> Tensor:
        """(nodes, 2) left and right child of each node; -1 for leaves."""

    @property
    def levels(self) -> Sequence[Tensor]:
        """Node numbers of each height, from the leaves upwards."""

    @property
    def rows(self) -> Tensor:
        """(m,) nodes whose logits are wanted."""


class TreeLSTM(nn.Module):
    r"""The binary constituency Tree-LSTM: a node's state from its two children's, up to the root.

    With l and r the children, and every gate a linear map of :math:`(h_l, h_r)`,

    .. math::

        c &= \sigma(i) \tanh(u) + \sigma(f_l) c_l + \sigma(f_r) c_r \\
        h &= \tanh(c), \quad \text{or } \sigma(o) \tanh(c) \text{ with an output gate;}

    for a leaf with word vector x, :math:`c = W x + b` and :math:`h = \sigma(o(x)) \tanh(c)`.
    ``classifier`` takes h after dropout.

    All nodes of one height are computed at once, over all trees of a batch: the number of steps is
    that of the levels of the highest tree, not of the nodes.

    Args:
        n_classes: Number of classes.
        embeddings: Word vectors (words, dimensions), row 0 for padding; for instance GloVe's.
        n_words: Number of token ids, without ``embeddings``.
        n_dimensions: Length of the word vectors, without ``embeddings``.
        memory: Size of c and h.
        dropout: Dropout probability before ``classifier``.
        output_gate: Whether inner nodes have an output gate, as in Eqs. 9-14 of Tai et al. Neither
            their code for sentiment nor that of Mukhoti et al. has one.
        train_words: Whether the word vectors, ``words``, are trained. In the papers they are, at a
            separate learning rate.

    References:
        Tai et al. (2015), Improved semantic representations from tree-structured LSTM networks;
        as in Mukhoti et al. (2020) for the Stanford Sentiment Treebank. Their gates have two
        biases; these have their sum.

    Examples:
        >>> import torch
        >>> from calibrant.training.datasets import TreeBatch
        >>> from calibrant.training.models import TreeLSTM
        >>> tree = TreeBatch(  # (a (b c))
        ...     tokens=torch.tensor([7, 8, 9]),
        ...     children=torch.tensor([[-1, -1], [-1, -1], [-1, -1], [1, 2], [0, 3]]),
        ...     levels=(torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4])),
        ...     roots=torch.tensor([4]),
        ...     rows=torch.tensor([4, 3]),
        ... )
        >>> TreeLSTM(2, n_words=10)(tree).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        n_classes: int,
        *,
        embeddings: Array | None = None,
        n_words: int | None = None,
        n_dimensions: int = 300,
        memory: int = 150,
        dropout: float = 0.5,
        output_gate: bool = False,
        train_words: bool = True,
    ) -> None:
        super().__init__()
        self.memory = checks.layer_size(memory, "memory")
        self.words = word_vectors(embeddings, n_words, n_dimensions, trained=train_words)
        # Rows of the weights: c and o of a leaf; i, f_l, f_r, u (and o) of an inner node.
        self.leaf = nn.Linear(self.words.embedding_dim, 2 * memory)
        self.inner = nn.Linear(2 * memory, (5 if output_gate else 4) * memory)
        self.dropout = nn.Dropout(checks.fraction_below_one(dropout, "dropout"))
        self.classifier = nn.Linear(memory, checks.n_classes(n_classes))
        # The reference initialises the maps of the two children separately.
        for parameter in self.inner.parameters():
            nn.init.uniform_(parameter, -1.0 / math.sqrt(memory), 1.0 / math.sqrt(memory))

    def forward(self, trees: Trees) -> Tensor:
        """Logits (m, classes) of the nodes ``trees.rows``."""
        hidden = self._states(trees)[:, self.memory :]
        logits: Tensor = self.classifier(self.dropout(hidden[trees.rows]))
        return logits

    def _states(self, trees: Trees) -> Tensor:
        """c and h of every node, concatenated.

        Every state is passed only to the level of its parent: looking up the children among all
        nodes would cost a gradient of all nodes per level in the backward pass.
        """
        cell, gate = self.leaf(looked_up(self.words, trees.tokens)).chunk(2, 1)
        states = [torch.cat((cell, gate.sigmoid() * cell.tanh()), 1)]
        parcels, places = _deliveries(trees)
        arrived: dict[int, list[Tensor]] = {level: [] for level in range(len(trees.levels) + 1)}
        for level, (order, receivers, sizes) in enumerate(parcels):
            if level > 0:
                pairs = torch.cat(arrived.pop(level)).index_select(0, places[level])
                states.append(self._above(pairs.view(-1, 2, 2 * self.memory)))
            sent = states[-1].index_select(0, order).split_with_sizes(sizes)
            for receiver, parcel in zip(receivers, sent, strict=True):
                arrived[receiver].append(parcel)
        return torch.cat(states)

    def _above(self, children: Tensor) -> Tensor:
        """c and h of nodes whose children have the states (nodes, 2, c and h)."""
        cells, hidden = children.chunk(2, 2)
        gates = self.inner(hidden.flatten(1)).view(len(children), -1, self.memory)
        take = gates[:, :3].sigmoid()
        cell = take[:, 0] * gates[:, 3].tanh() + (take[:, 1:3] * cells).sum(1)
        out = cell.tanh()
        if gates.shape[1] == 5:
            out = gates[:, 4].sigmoid() * out
        return torch.cat((cell, out), 1)


def _deliveries(
    trees: Trees,
) -> tuple[list[tuple[Tensor, list[int], list[int]]], Sequence[Tensor]]:
    """Which states each level sends to which later level.

    Returns:
        For each level: the order that sorts its nodes by the level of their parents, those levels,
        and the number of nodes for each (roots go to an extra level above all). Then for each
        level: the positions of its left and right children among its arrivals, which are in the
        order of the levels they come from.
    """
    sizes = [len(level) for level in trees.levels]
    top, n_leaves, device = len(sizes), sizes[0], trees.children.device
    own = torch.repeat_interleave(torch.tensor(sizes, device=device))
    receiver = torch.full_like(own, top)
    receiver[trees.children[n_leaves:].flatten()] = own[n_leaves:].repeat_interleave(2)
    sending, order = (own * (top + 1) + receiver).sort(stable=True)
    parcels, counts = torch.unique_consecutive(sending, return_counts=True)
    addressed: list[tuple[list[int], list[int]]] = [([], []) for _ in sizes]
    for parcel, count in zip(parcels.tolist(), counts.tolist(), strict=True):
        receivers, numbers = addressed[parcel // (top + 1)]
        receivers.append(parcel % (top + 1))
        numbers.append(count)
    # All nodes sorted by the level they go to; each level counts its arrivals from its start.
    queue = receiver.sort(stable=True).indices
    arrivals = receiver.bincount(minlength=top + 1)
    place = torch.empty_like(queue)
    place[queue] = torch.arange(len(queue), device=device)
    place -= (arrivals.cumsum(0) - arrivals)[receiver]
    pairs = place[trees.children].flatten().split_with_sizes([2 * size for size in sizes])
    starts = list(accumulate(sizes, initial=0))[:-1]
    orders = [
        part - start for part, start in zip(order.split_with_sizes(sizes), starts, strict=True)
    ]
    return [(o, r, n) for o, (r, n) in zip(orders, addressed, strict=True)], pairs
