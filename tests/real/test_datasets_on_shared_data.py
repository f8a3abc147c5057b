"""The data sets that are on this machine have the papers' sizes, and what is in them is right."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.training.datasets import load

FASHION = Path("/usr/share/datasets/fashion-mnist")


def sizes(data):
    return len(data.train), len(data.val), len(data.test)


def test_fashion_mnist():
    if not FASHION.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    data = load("fashion-mnist")
    assert sizes(data) == (55000, 5000, 10000)
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    mean, sd = data.record["normalisation"]["mean"][0], data.record["normalisation"]["sd"][0]
    # 0.2860 and 0.3530 of 255 are what is stated everywhere for the 60000 training images
    assert abs(mean / 255 - 0.2860) < 0.002
    assert abs(sd / 255 - 0.3530) < 0.002
    inputs, targets = data.test.batch(torch.arange(3))
    assert [data.class_names[k] for k in targets] == ["Ankle boot", "Pullover", "Trouser"]
    assert inputs.shape == (3, 1, 28, 28)
    assert data.record["notes"] == []


def test_svhn_subset(shared_data):
    data = load("svhn-subset", shared_data / "images")
    assert sizes(data) == (9814, 3278, 4954)
    with np.load(shared_data / "images" / "svhn32_subset.npz") as stored:
        row = int(data.train.ids[0].partition("/")[2])
        image, label = stored["train_x"][row], stored["train_y"][row]
    inputs, targets = data.train.batch(torch.tensor([0]))
    constants = data.record["normalisation"]
    pixels = inputs[0].permute(1, 2, 0).numpy() * constants["sd"] + constants["mean"]
    np.testing.assert_allclose(pixels, image, atol=1e-3)
    assert targets[0] == label
    everything, _ = data.train.batch(torch.arange(len(data.train)))
    np.testing.assert_allclose(everything.mean(dim=(0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(everything.std(dim=(0, 2, 3)), 1, atol=1e-4)


def test_cifar10_in_jpeg(shared_data):
    data = load("cifar10-jpeg", shared_data / "images", random_state=1)
    assert sizes(data) == (45000, 5000, 10000)
    counts = np.bincount(data.train.labels) + np.bincount(data.val.labels)
    assert counts.tolist() == [5000] * 10
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    assert set(data.train.ids).isdisjoint(data.val.ids)
    assert "JPEG-compressed, not the lossless original" in data.record["notes"]
    # what is stated everywhere for the lossless training images, which JPEG hardly moves
    constants = data.record["normalisation"]
    np.testing.assert_allclose(
        np.array(constants["mean"]) / 255, [0.4914, 0.4822, 0.4465], atol=2e-3
    )
    np.testing.assert_allclose(np.array(constants["sd"]) / 255, [0.2470, 0.2435, 0.2616], atol=3e-3)


def test_newsgroups(shared_data):
    vectors = shared_data / "text" / "glove6B_100d_subset_float16.npz"
    data = load("20newsgroups", shared_data / "text", embeddings=vectors)
    assert sizes(data) == (10414, 900, 7532)
    assert data.n_classes == 20
    assert data.class_names[:2] == ("alt.atheism", "comp.graphics")
    assert data.embeddings.shape == (len(data.vocabulary), 100)
    assert data.record["embeddings"]["with_a_vector"] > 0.8 * len(data.vocabulary)
    with np.load(vectors) as stored:
        row = stored["words"].tolist().index("space")
        vector = stored["vectors"][row].astype(np.float32)
    assert np.array_equal(data.embeddings[data.vocabulary.index("space")].numpy(), vector)
    tokens, _ = data.train.batch(torch.arange(len(data.train)))
    known = tokens[tokens > 0]
    assert (known == 1).float().mean() < 0.1
    divided = load("20newsgroups", shared_data / "text", split="random")
    assert sizes(divided) == (14177, 900, 3769)
    assert tokens.shape[1] == 1000


@pytest.mark.parametrize(
    ("name", "expected"), [("sst-binary", (6920, 872, 1821)), ("sst-fine", (8544, 1101, 2210))]
)
def test_treebank(shared_data, name, expected):
    data = load(name, shared_data / "text")
    assert sizes(data) == expected
    for part in (data.train.evaluation(), data.val, data.test):
        batch, targets = part.batch(torch.arange(len(part)))
        assert torch.equal(targets, part.labels)
        assert batch.n_nodes == 2 * len(batch.tokens) - len(part)  # binary trees
        assert torch.cat(batch.levels).tolist() == list(range(batch.n_nodes))
    _, targets = data.train.batch(torch.arange(len(data.train)))
    assert len(targets) == data.record["training_nodes"]["with_a_target"]
    assert len(targets) > len(data.train)


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_binary_sentences_are_those_of_sst2(shared_data, part):
    """The same sentences with the same labels as in the published list of binary sentences."""
    data = load("sst-binary", shared_data / "text")
    read = {"train": data.train, "dev": data.val, "test": data.test}[part]
    with gzip.open(shared_data / "text" / f"sst_trees_{part}.txt.gz", "rt") as file:
        trees = list(file)
    with gzip.open(shared_data / "text" / f"sst2_binary_{part}.txt.gz", "rt") as file:
        listed = Counter(line.rstrip("\n").lower() for line in file)
    found = Counter()
    for name, label in zip(read.ids, read.labels.tolist(), strict=True):
        words = re.findall(r"\(\d ([^() ]+)\)", trees[int(name.partition("/")[2])])
        found[f"{label} {' '.join(words).lower()}"] += 1
    assert (found - listed).total() == 0
    assert (listed - found).total() == 0


def test_every_table(shared_data):
    files = sorted((shared_data / "tabular").glob("*.npz"))
    assert len(files) > 50
    for file in files:
        data = load("tabular", file)
        with np.load(file) as stored:
            assert sum(sizes(data)) == len(stored["y"]), file.stem
            assert set(data.train.labels.tolist()) == set(stored["y"].tolist()), file.stem
        for part in (data.train, data.val, data.test):
            inputs, _ = part.batch(torch.arange(len(part)))
            assert torch.isfinite(inputs).all(), file.stem
