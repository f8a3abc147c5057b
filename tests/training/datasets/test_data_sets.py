"""Splits, augmentation, words and trees of the data sets."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from calibrant.training.datasets import CropAndFlip, DataSet, Split, TreeBatch, load
from calibrant.training.datasets.splitting import StableRandom, hold_out, stratified_split
from calibrant.training.datasets.text import TokenSplit, build_vocabulary
from calibrant.training.datasets.trees import TreeSplit, parse_tree
from tests.training.datasets.test_formats import cifar, newsgroups, svhn_subset, table, treebank

# Splits


@given(st.integers(2, 300), st.integers(0, 2**63 - 1), st.data())
def test_held_out_rows_are_a_partition(n, seed, data):
    size = data.draw(st.integers(1, n - 1))
    train, val = hold_out(n, size, seed)
    assert len(val) == size
    assert sorted([*train, *val]) == list(range(n))


def test_the_order_of_a_seed_is_for_ever():
    """The numbers are what this code drew when it was written: a change would move every split."""
    assert StableRandom(0).permutation(10).tolist() == ORDER_OF_SEED_0
    train, val = hold_out(50000, 5000, 0)
    assert val[:5].tolist() == HELD_OUT_OF_CIFAR
    assert len(train) == 45000


ORDER_OF_SEED_0 = [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
HELD_OUT_OF_CIFAR = [25556, 20554, 16026, 47310, 38162]


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=8),
    st.floats(0.05, 0.45),
    st.floats(0.05, 0.45),
    st.integers(0, 1000),
)
def test_classes_are_divided_in_equal_shares(counts, val_share, test_share, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    try:
        parts = stratified_split(labels, val_share, test_share, seed)
    except ValueError as refusal:
        text = str(refusal)
        parts = None
    if parts is None:
        assert "each split must have a row" in text
        assert len(labels) * min(val_share, test_share, 1 - val_share - test_share) < 1
        return
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    train, val, test = parts
    assert abs(len(val) - val_share * len(labels)) <= 1.01
    assert abs(len(test) - test_share * len(labels)) <= 1.01
    if len(counts) <= len(train):
        assert set(labels[train]) == set(range(len(counts)))
    for k, count in enumerate(counts):
        # one for rounding, one for each class that its last row pushes along
        off = abs((labels[test] == k).sum() - test_share * count)
        assert off <= 2 + len(counts) * count / len(labels)


# Augmentation


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("shape", [(64, 3, 8, 6), (64, 1, 5, 5)])
def test_every_image_is_one_of_its_shifts(flip, shape):
    """Compared with all shifts and mirrorings, made one by one with NumPy."""
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    fill = torch.arange(float(shape[1])) - 9.0
    change = CropAndFlip(fill=fill, padding=2, flip=flip)
    changed = change(images, torch.Generator().manual_seed(1)).numpy()
    seen = set()
    for before, after in zip(images.numpy(), changed, strict=True):
        channels, height, width = before.shape
        padded = np.empty((channels, height + 4, width + 4), dtype=np.float32)
        padded[:] = fill.numpy()[:, None, None]
        padded[:, 2:-2, 2:-2] = before
        found = [
            (i, j, mirrored)
            for i in range(5)
            for j in range(5)
            for mirrored in (False, True)
            if np.array_equal(
                padded[:, i : i + height, j : j + width][:, :, :: -1 if mirrored else 1], after
            )
        ]
        assert len(found) == 1
        seen.update(found)
    assert {i for i, _, _ in seen} == {j for _, j, _ in seen} == set(range(5))
    assert {mirrored for _, _, mirrored in seen} == ({True, False} if flip else {False})


def test_random_state_may_be_a_generator_or_none():
    drawn = load("digits", random_state=np.random.default_rng(3))
    other = load("digits", random_state=None)
    again = load("digits", random_state=drawn.record["seed"])
    assert again.train.ids.tolist() == drawn.train.ids.tolist()
    assert other.record["seed"] != drawn.record["seed"]
    assert other.train.ids.tolist() != drawn.train.ids.tolist()


def test_augmentation_is_seeded_and_redone_for_each_batch():
    change = CropAndFlip(fill=torch.zeros(3))
    images = torch.randn(32, 3, 32, 32)
    generator = torch.Generator().manual_seed(3)
    first, second = change(images, generator), change(images, generator)
    again = change(images, torch.Generator().manual_seed(3))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert change(images[:0], generator).shape == (0, 3, 32, 32)


def test_what_comes_in_at_the_edges_is_black(tmp_path):
    data = svhn_subset(tmp_path).load(augment="crop")
    inputs, _ = data.train.batch(torch.arange(20))
    changed = data.augment(inputs, torch.Generator().manual_seed(0))
    mean, sd = (torch.tensor(data.record["normalisation"][k]) for k in ("mean", "sd"))
    pixels = changed * sd.reshape(3, 1, 1) + mean.reshape(3, 1, 1)
    corners = pixels[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    black = (corners.abs() < 1e-3).all(dim=1).sum()
    assert black >= 20  # all but those few that were shifted by nothing
    assert pixels.min() > -1e-3
    assert data.augment is not None
    assert svhn_subset(tmp_path).load(augment="none").augment is None


def test_batches_do_not_share_memory():
    digits = load("digits")
    inputs, targets = digits.train.batch(torch.arange(4))
    inputs.zero_()
    targets.zero_()
    again, labels = digits.train.batch(torch.arange(4))
    assert again.abs().sum() > 0
    assert torch.equal(labels, digits.train.labels[:4])


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_share_of_the_labels_of_digits_is_drawn_at_random(share):
    """All classes and splits alike; neither splits nor images change with it."""
    clean, noisy = load("digits", random_state=1), load("digits", random_state=1, label_noise=share)
    n_changed = 0
    for part in ("train", "val", "test"):
        before, after = getattr(clean, part), getattr(noisy, part)
        assert before.ids.tolist() == after.ids.tolist()
        changed = before.labels != after.labels
        assert 0.3 * share < changed.double().mean() < 1.5 * share
        n_changed += int(changed.sum())
        if share == 0.5:
            counts = torch.bincount(after.labels[changed], minlength=10) / int(changed.sum())
            assert (counts - 0.1).abs().max() < 0.06
    assert noisy.record["label_noise"] == {"share": share, "changed": n_changed, "of": 1797}
    assert abs(n_changed - 0.9 * share * 1797) < 4 * (0.09 * share * 1797) ** 0.5
    again, other = (load("digits", random_state=seed, label_noise=share) for seed in (1, 2))
    assert torch.equal(noisy.train.labels, again.train.labels)
    assert not torch.equal(noisy.train.labels, other.train.labels)
    assert "label_noise" not in clean.record
    assert torch.equal(noisy.train.batch(torch.arange(9))[0], clean.train.batch(torch.arange(9))[0])


def test_a_channel_of_one_value():
    """It is centred, and divided by 1."""
    from calibrant.training.datasets.images import Pool, image_data_set

    pool = Pool("x", np.full((4, 1, 2, 2), 7, dtype=np.uint8), np.array([0, 1, 0, 1]))
    rows = {part: (pool, np.arange(4)) for part in ("train", "val", "test")}
    data = image_data_set("x", "ab", rows, limit=None, augment="none", record={})
    assert data.record["normalisation"]["sd"] == [1.0]
    assert torch.equal(data.train.batch(torch.arange(4))[0], torch.zeros(4, 1, 2, 2))


# Text


def test_the_vocabulary_is_the_training_splits(tmp_path):
    data = newsgroups(tmp_path, "folder").load(random_state=1)
    kept = {int(name.rpartition("/")[2]) - 1000 for name in data.train.ids}
    held = set(range(20)) - kept
    assert len(held) == 5
    for i in range(20):
        assert (str(i) in data.vocabulary) == (i in kept)
    assert "someone3" not in data.vocabulary
    assert {"the", "train", "orbit", "caf\xe9"} <= set(data.vocabulary)
    assert "test" not in data.vocabulary
    with_headers = newsgroups(tmp_path, "folder").load(random_state=1, headers=True)
    assert "subject" in with_headers.vocabulary


def test_a_share_of_each_class(tmp_path):
    whole = cifar(tmp_path, k=10, binary=True, archive=False).load(random_state=3)
    half = cifar(tmp_path, k=10, binary=True, archive=False).load(random_state=3, class_share=0.5)
    counts = [torch.bincount(data.train.labels, minlength=10) for data in (whole, half)]
    expected = [max(1, round(0.5 * n)) if n else 0 for n in counts[0].tolist()]
    assert counts[1].tolist() == expected
    places = {name: i for i, name in enumerate(whole.train.ids.tolist())}
    order = [places[name] for name in half.train.ids.tolist()]
    assert order == sorted(order)  # of each class, the first in the order of the seed
    for split in ("val", "test"):
        assert getattr(half, split).ids.tolist() == getattr(whole, split).ids.tolist()
    assert any("0.5 of the training images of each class" in n for n in half.record["notes"])
    for share in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="class_share must be"):
            cifar(tmp_path, k=10, binary=True, archive=False).load(class_share=share)


def test_messages_divided_at_random_are_those_of_both_published_parts(tmp_path):
    by_date, divided, again = (
        newsgroups(tmp_path, "folder").load(random_state=1, **options)
        for options in ({}, {"split": "random"}, {"split": "random"})
    )

    def ids(data):
        return [set(split.ids.tolist()) for split in (data.train, data.val, data.test)]

    total = sum(map(len, ids(by_date)))
    assert len(divided.val) == len(by_date.val)
    assert len(divided.test) == total // 5
    assert set.union(*ids(divided)) == set.union(*ids(by_date))
    assert sum(map(len, ids(divided))) == total
    assert ids(divided) == ids(again)
    assert {name.split("/")[0] for name in divided.train.ids} == {"train", "test"}
    assert "at random" in divided.record["split"]
    with pytest.raises(ValueError, match="split must be"):
        newsgroups(tmp_path, "folder").load(split="by date")


def test_text_comes_back_from_its_numbers(tmp_path):
    data = newsgroups(tmp_path, "lines").load()
    tokens, targets = data.test.batch(torch.tensor([0, 1]))
    words = [[data.vocabulary[i] for i in row] for row in tokens.tolist()]
    assert words[0][:6] == ["the", "<unknown>", "word0", "orbit", "s", "engine"]
    assert [data.class_names[i] for i in targets] == ["sci.space", "rec.autos"]
    assert data.test.ids[0] == "test/sci.space/1000"


def test_length_and_number_of_words(tmp_path):
    data = newsgroups(tmp_path, "lines").load(length=3, n_words=4)
    assert len(data.vocabulary) == 2 + 4
    assert data.train.batch(torch.arange(5))[0].shape == (5, 3)
    assert data.input_shape == (3,)


@given(st.lists(st.lists(st.integers(2, 50), max_size=12), min_size=1, max_size=8), st.data())
def test_documents_are_padded_with_0(documents, data):
    part = TokenSplit(
        [np.array(document, dtype=np.int32) for document in documents],
        np.zeros(len(documents), dtype=np.int64),
        [str(i) for i in range(len(documents))],
        length=10,
    )
    chosen = data.draw(st.lists(st.integers(0, len(documents) - 1), min_size=1, max_size=9))
    tokens, _ = part.batch(torch.tensor(chosen))
    longest = max(1, *(min(10, len(documents[i])) for i in chosen), 0)
    expected = [(documents[i][:10] + [0] * longest)[:longest] for i in chosen]
    assert tokens.tolist() == expected


def test_frequent_words_come_first():
    assert build_vocabulary([list("abcab"), list("bd")], None)[2:] == ("b", "a", "c", "d")
    assert build_vocabulary([], None) == ("<padding>", "<unknown>")


def test_word_vectors(tmp_path):
    data = newsgroups(tmp_path, "folder").load()
    table_, words = data.embeddings, data.vocabulary
    assert table_.shape == (len(words), 3)
    assert table_.dtype == torch.float32
    assert table_[0].tolist() == [0, 0, 0]
    assert table_[words.index("the")].tolist() == [1, 2, 3]
    assert table_[words.index("orbit")].tolist() == [0.5, -0.5, 0]
    others = [i for i, word in enumerate(words) if i > 0 and word not in ("the", "orbit")]
    assert 0.01 < table_[others].abs().max() <= 0.05
    said = data.record["embeddings"]
    assert said["words"] == len(words)
    assert said["with_a_vector"] == 2
    other = newsgroups(tmp_path, "folder").load(random_state=9).embeddings
    assert not torch.equal(other, table_)
    assert newsgroups(tmp_path, "folder").load(embeddings=None).embeddings is None


# Trees

Nested = tuple  # (label, word) or (label, left, right)
WORDS = st.text(
    st.characters(exclude_characters="() \t\r\n", codec="utf-8"), min_size=1, max_size=5
)
TREE = st.recursive(
    st.tuples(st.integers(0, 4), WORDS),
    lambda inner: st.tuples(st.integers(0, 4), inner, inner),
    max_leaves=12,
)


def written(tree: Nested) -> str:
    below = [branch if isinstance(branch, str) else written(branch) for branch in tree[1:]]
    return f"({tree[0]} {' '.join(below)})"


def rebuilt(tree: object, node: int = -1) -> Nested:
    node = node % len(tree.labels)
    left, right = tree.children[node]
    if left < 0:
        return tree.labels[node], tree.words[node]
    return tree.labels[node], rebuilt(tree, left), rebuilt(tree, right)


@given(TREE)
def test_trees_come_back_from_their_text(tree):
    assert rebuilt(parse_tree(written(tree))) == tree


def unfolded(batch: TreeBatch, node: int, labels: dict[int, int]) -> Nested:
    left, right = batch.children[node].tolist()
    label = labels.get(node, -1)
    if left < 0:
        return label, int(batch.tokens[node])
    return label, unfolded(batch, left, labels), unfolded(batch, right, labels)


def expected(tree: Nested, classes: tuple[int, ...], numbers: dict[str, int]) -> Nested:
    label = classes[tree[0]]
    if len(tree) == 2:
        return label, numbers.get(tree[1].lower(), 1)
    return label, expected(tree[1], classes, numbers), expected(tree[2], classes, numbers)


def height(tree: Nested) -> int:
    return 0 if len(tree) == 2 else 1 + max(height(tree[1]), height(tree[2]))


@given(st.lists(TREE, min_size=1, max_size=5), st.data())
def test_batches_hold_the_trees(trees, data):
    classes = (0, 0, -1, 1, 1)
    words = sorted({leaf for tree in trees for leaf in leaves(tree) if leaf.isalnum()})
    numbers = {word.lower(): i for i, word in enumerate(words, start=2)}
    part = TreeSplit(
        [parse_tree(written(tree)) for tree in trees],
        classes=classes,
        numbers=numbers,
        ids=[str(i) for i in range(len(trees))],
        every_node=True,
    )
    chosen = data.draw(st.lists(st.integers(0, len(trees) - 1), min_size=1, max_size=7))
    batch, targets = part.batch(torch.tensor(chosen))
    assert torch.cat(batch.levels).tolist() == list(range(batch.n_nodes))
    assert len(batch) == len(chosen)
    assert len(batch.tokens) == len(batch.levels[0])
    labels = dict(zip(batch.rows.tolist(), targets.tolist(), strict=True))
    assert -1 not in labels.values()
    for root, i in zip(batch.roots.tolist(), chosen, strict=True):
        wanted = expected(trees[i], classes, numbers)
        found = unfolded(batch, root, labels)
        if all(leaf.isalnum() for leaf in leaves(trees[i])):
            assert found == wanted
        assert height(found) == height(trees[i])
    for level, nodes in enumerate(batch.levels):
        assert all(height(unfolded(batch, node, labels)) == level for node in nodes.tolist())
    roots, judged = part.evaluation().batch(torch.tensor(chosen))
    assert torch.equal(roots.rows, roots.roots)
    assert torch.equal(judged, part.labels[torch.tensor(chosen)])
    assert part.every_node


def leaves(tree: Nested) -> list[str]:
    return [tree[1]] if len(tree) == 2 else [*leaves(tree[1]), *leaves(tree[2])]


def test_a_tree_deeper_than_the_recursion_limit():
    deep = 3 * sys.getrecursionlimit()
    line = "(3 " * deep + "(1 end)" + " (2 word))" * deep
    part = TreeSplit(
        [parse_tree(line)],
        classes=(0, 0, -1, 1, 1),
        numbers={"end": 2},
        ids=["a"],
        every_node=True,
    )
    batch, targets = part.batch(torch.tensor([0]))
    assert len(batch.levels) == deep + 1
    assert batch.n_nodes == 2 * deep + 1
    assert len(targets) == deep + 1


def test_neutral_nodes(tmp_path):
    """Left out of the targets, or a third class; the sentences stay the same."""
    made = treebank(tmp_path, "sst-binary", "folder")
    data = made.load()
    assert data.class_names == ("negative", "positive")
    assert (len(data.train), len(data.val), len(data.test)) == (4, 2, 2)
    assert sorted(data.train.ids) == ["train/0", "train/1", "train/3", "train/4"]
    assert data.record["training_nodes"] == {"all": 7 + 3 + 1 + 5, "with_a_target": 4 + 2 + 1 + 2}
    _, targets = data.train.batch(torch.arange(4))
    assert sorted(targets.tolist()) == [0] * 4 + [1] * 5
    three = made.load(neutral="class")
    assert three.class_names == ("negative", "neutral", "positive")
    assert three.train.ids.tolist() == data.train.ids.tolist()
    _, targets = three.train.batch(torch.arange(4))
    assert sorted(targets.tolist()) == [0] * 4 + [1] * 7 + [2] * 5
    assert set(three.test.labels.tolist()) == {0, 2}
    fine = treebank(tmp_path, "sst-fine", "folder").load()
    assert (len(fine.train), len(fine.val), len(fine.test)) == (5, 3, 2)
    assert fine.test.labels.tolist() == [1, 4]


def test_the_words_of_the_treebank(tmp_path):
    data = treebank(tmp_path, "sst-binary", "archive").load()
    assert "(" in data.vocabulary
    assert "-lrb-" not in data.vocabulary
    assert "unheard" not in data.vocabulary
    assert data.embeddings[data.vocabulary.index("(")].tolist() == [3, 4]
    batch, _ = data.val.batch(torch.tensor([1]))
    assert [data.vocabulary[i] for i in batch.tokens] == ["<unknown>", "bad"]


def test_trees_move_to_a_device(tmp_path):
    batch, _ = treebank(tmp_path, "sst-binary", "folder").load().train.batch(torch.arange(3))
    moved = batch.to("meta")
    assert all(t.device.type == "meta" for t in (moved.tokens, moved.children, *moved.levels))
    assert moved.roots.device.type == moved.rows.device.type == "meta"
    assert len(moved) == 3


# Tables


def test_a_table_is_standardised_by_its_training_split(tmp_path):
    data = table(tmp_path, "npz").load()
    inputs, _ = data.train.batch(torch.arange(len(data.train)))
    assert inputs.shape == (24, 3)
    np.testing.assert_allclose(inputs.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(inputs.std(0, correction=0), [1, 0, 1], atol=1e-6)
    assert data.class_names == ("low", "mid", "high")
    assert len(data.val) == len(data.test) == 8
    constants = data.record["normalisation"]
    with np.load(tmp_path / "a.npz") as stored:
        rows = [int(name.partition("/")[2]) for name in data.test.ids]
        raw, labels = stored["X"][rows], stored["y"][rows]
    found, targets = data.test.batch(torch.arange(8))
    np.testing.assert_allclose(
        found.numpy() * np.array(constants["sd"]) + constants["mean"], raw, rtol=1e-5
    )
    assert targets.tolist() == labels.tolist()


def test_words_and_gaps_in_a_table(tmp_path):
    data = table(tmp_path, "csv").load()
    assert data.class_names == ("a", "b", "c")
    assert data.input_shape == (5,)
    said = data.record["normalisation"]
    assert said["words"] == {"colour": ["blue", "red"]}
    assert said["missing_numbers_set_to_the_mean"] == 6
    assert said["mean"][1] == 7.0
    row = data.train.ids.tolist().index(next(i for i in data.train.ids if int(i[4:]) % 7 == 0))
    inputs, _ = data.train.batch(torch.tensor([row]))
    assert inputs[0, 2] == 0
    other = load("tabular", tmp_path / "a.csv", label="colour")
    assert other.class_names == ("blue", "red")


def test_a_word_that_training_never_saw(tmp_path):
    lines = ["x,label"] + [f"{'common' if i else 'rare'},{i % 2}" for i in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    for seed in range(20):
        data = load("tabular", tmp_path / "a.csv", random_state=seed)
        words = data.record["normalisation"]["words"]["x"]
        assert ("rare" in words) == ("row/0" in data.train.ids)
        for part in (data.train, data.val, data.test):
            assert torch.isfinite(part.batch(torch.arange(len(part)))[0]).all()


def test_numbers_of_any_size(tmp_path):
    column = np.array([1e300, -1e300, 1e-300, 0.0, np.nan] * 8)
    np.savez(tmp_path / "a.npz", X=np.column_stack([column, column * 0 + 3]), y=np.arange(40) % 2)
    data = load("tabular", tmp_path / "a.npz")
    for part in (data.train, data.val, data.test):
        inputs, _ = part.batch(torch.arange(len(part)))
        assert torch.isfinite(inputs).all()
        assert inputs.abs().max() < 10


# A data set of one's own


def test_a_split_of_ones_own():
    class Numbers(Split):
        def __init__(self, n):
            self.labels = torch.arange(n) % 2
            self.ids = np.array([str(i) for i in range(n)])

        def batch(self, indices):
            return indices[:, None].float(), self.labels[indices]

    data = DataSet("own", "features", (1,), ("even", "odd"), Numbers(8), Numbers(4), Numbers(4), {})
    assert repr(data) == "DataSet(own: 8 train, 4 val, 4 test, 2 classes)"
    assert data.train.evaluation() is data.train
    assert data.n_classes == 2
    assert data.augment is data.embeddings is data.vocabulary is None
