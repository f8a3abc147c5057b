"""The Tree-LSTM against a plain recursion that takes one node at a time."""

from __future__ import annotations

import gzip
import re
import sys
from contextlib import contextmanager
from itertools import islice

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, strategies as st

from calibrant.training.datasets import TreeBatch
from calibrant.training.models import TreeLSTM

# A tree is a token id, or a pair of trees.


def batch_of(trees: list, *, rows: list[int] | None = None) -> tuple[TreeBatch, list[int]]:
    """Trees side by side, and for each node in post-order, tree by tree, its number there."""
    height, token, children, roots = [], [], [], []
    for tree in trees:
        done: list[int] = []
        to_do = [(tree, False)]
        while to_do:
            node, ready = to_do.pop()
            if isinstance(node, int):
                done.append(len(height))
                height.append(0)
                token.append(node)
                children.append((-1, -1))
            elif ready:
                right, left = done.pop(), done.pop()
                done.append(len(height))
                height.append(1 + max(height[left], height[right]))
                token.append(-1)
                children.append((left, right))
            else:
                to_do += [(node, True), (node[1], False), (node[0], False)]
        roots.append(done[0])
    order = sorted(range(len(height)), key=lambda node: height[node])
    number = {node: place for place, node in enumerate(order)} | {-1: -1}
    sizes = [height.count(level) for level in range(max(height) + 1)]
    places = [number[node] for node in range(len(height))]
    batch = TreeBatch(
        tokens=torch.tensor([token[node] for node in order if token[node] >= 0]),
        children=torch.tensor([[number[child] for child in children[node]] for node in order]),
        levels=torch.arange(len(height)).split(sizes),
        roots=torch.tensor([number[root] for root in roots]),
        rows=torch.tensor(places if rows is None else rows),
    )
    return batch, places


def one_by_one(network: TreeLSTM, trees: list) -> torch.Tensor:
    """Logits of all nodes in post-order, from the equations, gate by gate."""
    size = network.memory
    leaf_c, leaf_o = network.leaf.weight.split(size)
    bias_c, bias_o = network.leaf.bias.split(size)
    weights = [rows.split(size, dim=1) for rows in network.inner.weight.split(size)]
    biases = network.inner.bias.split(size)
    logits = []

    def gate(index, left, right):
        to_left, to_right = weights[index]
        return to_left @ left + to_right @ right + biases[index]

    def state(tree):
        if isinstance(tree, int):
            x = network.words.weight[tree]
            c = leaf_c @ x + bias_c
            h = torch.sigmoid(leaf_o @ x + bias_o) * torch.tanh(c)
        else:
            (c_left, left), (c_right, right) = state(tree[0]), state(tree[1])
            c = torch.sigmoid(gate(0, left, right)) * torch.tanh(gate(3, left, right))
            c = c + torch.sigmoid(gate(1, left, right)) * c_left
            c = c + torch.sigmoid(gate(2, left, right)) * c_right
            h = torch.tanh(c)
            if len(weights) == 5:
                h = torch.sigmoid(gate(4, left, right)) * h
        logits.append(network.classifier.weight @ h + network.classifier.bias)
        return c, h

    with deep_recursion():
        for tree in trees:
            state(tree)
    return torch.stack(logits)


@contextmanager
def deep_recursion():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def network_of(**options) -> TreeLSTM:
    torch.manual_seed(0)
    options = {"n_words": 30, "n_dimensions": 5, "memory": 7, "dropout": 0.0} | options
    return TreeLSTM(3, **options).double()


def chain(length: int, *, to_left: bool) -> object:
    tree: object = 1
    for index in range(length):
        word = 1 + index % 29
        tree = (tree, word) if to_left else (word, tree)
    return tree


def assert_same(network: TreeLSTM, trees: list, *, tolerance: float = 1e-12) -> None:
    """Values of every node, and gradients of a loss that sees them all, word vectors included."""
    batch, _ = batch_of(trees)
    labels = torch.arange(len(batch.rows)) % 3
    gradients, values = [], []
    for logits in (network(batch), one_by_one(network, trees)):
        network.zero_grad()
        (F.cross_entropy(logits, labels) + logits.square().mean()).backward()
        values.append(logits.detach())
        gradients.append([_gradient(p) for p in network.parameters()])
    torch.testing.assert_close(*values, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(*gradients, rtol=1e3 * tolerance, atol=tolerance)


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Words alone leave the gates of inner nodes out."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


words = st.integers(min_value=1, max_value=29)
some_trees = st.recursive(words, lambda tree: st.tuples(tree, tree), max_leaves=20)


@given(st.lists(some_trees, min_size=1, max_size=6), st.booleans())
def test_values_and_gradients(trees, output_gate):
    assert_same(network_of(output_gate=output_gate), trees)


@pytest.mark.parametrize(
    "trees",
    [
        [4],
        [4, 4, 9],
        [(1, 2)],
        [4, ((1, 2), (3, (4, 5))), (6, 7)],
        [chain(500, to_left=True)],
        [chain(500, to_left=False), 3, chain(20, to_left=True), ((1, 2), (3, 4))],
    ],
    ids=["a word", "words", "two words", "mixed", "deep", "deep and shallow"],
)
def test_shapes_of_trees(trees):
    assert_same(network_of(), trees)


def test_rows_decide_what_comes_back():
    network = network_of()
    trees = [((1, 2), 3), (4, 5), 6]
    everything, places = batch_of(trees)
    logits = network(everything)[torch.tensor(places).argsort()]
    for rows in ([0], [5, 2, 2], everything.roots.tolist(), []):
        chosen = torch.tensor(rows, dtype=torch.int64)
        batch = TreeBatch(
            tokens=everything.tokens,
            children=everything.children,
            levels=everything.levels,
            roots=everything.roots,
            rows=chosen,
        )
        torch.testing.assert_close(network(batch), logits[chosen])


def test_trees_do_not_touch_each_other():
    network = network_of()
    trees = [((1, 2), 3), (4, (5, (6, 7))), 8]
    together = network(batch_of(trees)[0])
    alone = torch.cat([network(batch_of([tree])[0]) for tree in trees])
    torch.testing.assert_close(together, alone)


def test_left_and_right_are_told_apart():
    network = network_of()
    one, other = (network(batch_of([tree])[0])[-1] for tree in ((1, 2), (2, 1)))
    assert not torch.allclose(one, other)


def test_word_vectors_are_trained_unless_told_otherwise():
    vectors = torch.randn(30, 5)
    batch, _ = batch_of([(1, (2, 1))])
    for train in (True, False):
        network = TreeLSTM(2, embeddings=vectors, train_words=train)
        network(batch).sum().backward()
        assert network.words.weight.requires_grad is train
        if train:
            touched = network.words.weight.grad.any(1).nonzero().flatten()
            assert touched.tolist() == [1, 2]
    assert TreeLSTM(2, n_words=30).words.weight.shape == (30, 300)


def test_dropout_is_for_training():
    batch, _ = batch_of([((1, 2), 3)])
    network = network_of(dropout=0.5)
    assert not torch.equal(network(batch), network(batch))
    network.eval()
    assert torch.equal(network(batch), network(batch))


def test_initial_weights():
    """Each child's map as if drawn for itself: uniform up to 1 / sqrt(memory)."""
    torch.manual_seed(0)
    weight = TreeLSTM(2, n_words=5, memory=64).inner.weight.detach()
    assert weight.abs().max().item() == pytest.approx(1 / 8, rel=1e-3)
    assert weight.var().item() == pytest.approx(1 / (3 * 64), rel=0.02)


def test_unknown_words_are_refused():
    with pytest.raises(ValueError, match=r"token ids must be from 0 to 29.*found 30"):
        network_of()(batch_of([(1, 30)])[0])


def test_a_batch_is_learnt():
    torch.manual_seed(0)
    network = TreeLSTM(2, n_words=30, n_dimensions=20, memory=20, dropout=0.0)
    batch, _ = batch_of([((1, 2), 3), (4, (5, 6)), (7, 8), 9])
    labels = torch.arange(len(batch.rows)) % 2
    optimiser = torch.optim.Adagrad(network.parameters(), lr=0.1)
    for _ in range(60):
        loss = F.cross_entropy(network(batch), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.05


def test_on_real_trees(shared_data):
    """Sentences of the Stanford Sentiment Treebank, side by side in one batch."""
    known: dict[str, int] = {}

    def parsed(line: str):
        stack: list[list] = [[]]
        for piece in re.findall(r"[()]|[^\s()]+", line):
            if piece == "(":
                stack.append([])
            elif piece == ")":
                _, *inside = stack.pop()
                word = inside[0] if len(inside) == 1 else tuple(inside)
                if isinstance(word, str):
                    word = known.setdefault(word, len(known) + 1)
                stack[-1].append(word)
            else:
                stack[-1].append(piece)
        return stack[0][0]

    with gzip.open(shared_data / "text" / "sst_trees_train.txt.gz", "rt") as file:
        trees = [parsed(line) for line in islice(file, 25)]
    assert_same(network_of(n_words=len(known) + 1), trees)
