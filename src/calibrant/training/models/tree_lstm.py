"""The Tree-LSTM over binary trees."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from calibrant._types import Array
from calibrant.training import checks
from calibrant.training.datasets import TreeBatch
from calibrant.training.models.words import looked_up, word_vectors

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward
"""The gradient of the input from that of the output, and the output."""


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

    def forward(self, trees: TreeBatch) -> Tensor:
        """Logits (m, classes) of the nodes ``trees.rows``."""
        hidden = self._states(trees)[:, self.memory :]
        logits: Tensor = self.classifier(self.dropout(hidden[trees.rows]))
        return logits

    def _states(self, trees: TreeBatch) -> Tensor:
        """c and h of every node, concatenated."""
        cell, gate = self.leaf(looked_up(self.words, trees.tokens)).chunk(2, 1)
        leaves = torch.cat((cell, gate.sigmoid() * cell.tanh()), 1)
        sizes = [len(level) for level in trees.levels]
        states: Tensor = _InnerNodes.apply(  # type: ignore[no-untyped-call]
            leaves, self.inner.weight, self.inner.bias, trees.children, sizes
        )
        return states


class _InnerNodes(torch.autograd.Function):
    """The states of all nodes from those of the leaves, level by level.

    Its own backward pass, because that of torch has many small steps for each level, and adds up
    a gradient of the weights for each; here they are one product over all nodes.
    """

    @staticmethod
    def forward(
        ctx: Any, leaves: Tensor, weight: Tensor, bias: Tensor, children: Tensor, sizes: list[int]
    ) -> Tensor:
        """Nodes are sorted by level, of which ``sizes`` has the numbers."""
        memory = leaves.shape[1] // 2
        states = leaves.new_empty(len(children), 2 * memory)
        states[: sizes[0]] = leaves
        gates = leaves.new_empty(len(children), len(weight))  # those of leaves are not used
        for rows in _levels(sizes):
            cells, hidden = _below(states, children[rows])
            gate = torch.addmm(bias, hidden.flatten(1), weight.t(), out=gates[rows])
            gate = gate.view(len(gate), -1, memory)
            gate[:, :3].sigmoid_()
            gate[:, 3].tanh_()
            gate[:, 4:].sigmoid_()
            cell = gate[:, 0] * gate[:, 3] + (gate[:, 1:3] * cells).sum(1)
            states[rows, :memory] = cell
            states[rows, memory:] = _times_output(gate, cell.tanh())
        ctx.save_for_backward(states, gates, weight, children)
        ctx.sizes = sizes
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """From the roots down: every node gives its gradient to its gates and its children."""
        states, gates, weight, children = ctx.saved_tensors
        memory = states.shape[1] // 2
        gradient, of_gates = gradient.clone(), torch.empty_like(gates)
        for rows in reversed(_levels(ctx.sizes)):
            cells, _ = _below(states, children[rows])
            gate, of_gate = (each[rows].view(len(cells), -1, memory) for each in (gates, of_gates))
            squashed = states[rows, :memory].tanh()
            of_cell, of_hidden = gradient[rows].chunk(2, 1)
            of_gate[:, 4:] = sigmoid_backward((of_hidden * squashed)[:, None], gate[:, 4:])
            of_cell = of_cell + tanh_backward(_times_output(gate, of_hidden), squashed)
            of_gate[:, 0] = of_cell * gate[:, 3]
            of_gate[:, 1:3] = of_cell[:, None] * cells
            of_gate[:, :3] = sigmoid_backward(of_gate[:, :3], gate[:, :3])
            of_gate[:, 3] = tanh_backward(of_cell * gate[:, 0], gate[:, 3])
            of_cells = of_cell[:, None] * gate[:, 1:3]
            of_pairs = (of_gates[rows] @ weight).view(len(cells), 2, memory)
            given = torch.cat((of_cells, of_pairs), 2).flatten(0, 1)
            gradient.index_add_(0, children[rows].flatten(), given)
        inner = slice(ctx.sizes[0], None)
        hidden = _below(states, children[inner])[1].flatten(1)
        of_weight = of_gates[inner].t() @ hidden
        return gradient[: ctx.sizes[0]], of_weight, of_gates[inner].sum(0), None, None


def _levels(sizes: list[int]) -> list[slice]:
    """The rows of each level above the leaves."""
    ends = list(accumulate(sizes))
    return [slice(*each) for each in pairwise(ends)]


def _below(states: Tensor, children: Tensor) -> tuple[Tensor, Tensor]:
    """c and h of the children of some nodes, each (nodes, 2, memory)."""
    pairs = states.index_select(0, children.flatten()).view(len(children), 2, states.shape[1])
    cells, hidden = pairs.chunk(2, 2)
    return cells, hidden


def _times_output(gate: Tensor, values: Tensor) -> Tensor:
    """Values after the output gate, if there is one."""
    return values * gate[:, 4] if gate.shape[1] == 5 else values
