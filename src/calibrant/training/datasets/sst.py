"""The Stanford Sentiment Treebank: sentences as binary trees with a sentiment at every node."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.sources import (
    Files,
    PublishedFile,
    damaged,
    numbered_lines,
    reading,
    size_notes,
    text_lines,
)
from calibrant.training.datasets.splitting import StableRandom
from calibrant.training.datasets.text import build_vocabulary, read_embeddings
from calibrant.training.datasets.trees import Tree, TreeSplit, leaf_words, parse_tree

ARCHIVE = PublishedFile("trainDevTestTrees_PTB.zip", "https://nlp.stanford.edu/sentiment")
FINE = ("very negative", "negative", "neutral", "positive", "very positive")
_NEUTRAL = 2
_CLASSES: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "fine": (FINE, (0, 1, 2, 3, 4)),
    "left-out": (("negative", "positive"), (0, 0, -1, 1, 1)),
    "class": (("negative", "neutral", "positive"), (0, 0, 1, 2, 2)),
}
"""Class names, and the class of each of the five labels; -1 for none."""
_STEMS = {"train": "train", "val": "dev", "test": "test"}


def read_sst_binary(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    neutral: str = "left-out",
    embeddings: str | Path | None = None,
) -> DataSet:
    """Negative or positive: 6920 / 872 / 1821 sentences, without those whose root is neutral.

    The targets are all labelled nodes in training and the roots in validation and test. Inner nodes
    may be neutral (paper 1, App. C): they are ``"left-out"`` of the targets, or with
    ``neutral="class"`` a third class between the two, which occurs only in training.

    The folder holds ``trees/train.txt``, ``dev.txt`` and ``test.txt``, their archive, or
    ``sst_trees_train.txt.gz`` and so on. Words are in lower case; the vocabulary is that of the
    training split. ``embeddings``: a file of word vectors, GloVe's text format or an ``.npz``.

    Reference: R. Socher et al., Recursive deep models for semantic compositionality over a
    sentiment treebank (2013).
    """
    neutral = _inputs.choice(neutral, "neutral", ("left-out", "class"))
    notes = [
        "training on every labelled node, evaluation at the root",
        "sentences with a neutral root left out",
        "neutral nodes are left out of the targets"
        if neutral == "left-out"
        else "neutral nodes are a third class in training",
    ]
    return _read("sst-binary", folder, _CLASSES[neutral], seed, limit, embeddings, notes)


def read_sst_fine(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    embeddings: str | Path | None = None,
) -> DataSet:
    """The five classes from very negative to very positive: 8544 / 1101 / 2210 sentences.

    Otherwise as ``sst-binary``.
    """
    notes = ["training on every node, evaluation at the root"]
    return _read("sst-fine", folder, _CLASSES["fine"], seed, limit, embeddings, notes)


def _read(
    name: str,
    folder: Path | None,
    meaning: tuple[tuple[str, ...], tuple[int, ...]],
    seed: int,
    limit: int | None,
    embeddings: str | Path | None,
    notes: list[str],
) -> DataSet:
    binary = name == "sst-binary"
    class_names, classes = meaning
    files = Files.of(name, folder, ARCHIVE.page)
    published = _published_trees(files)
    sizes = [len(trees) for trees in published.values()]
    found: dict[str, list[tuple[str, Tree]]] = {}
    for split, trees in published.items():
        found[split] = [(i, t) for i, t in trees if not binary or t.labels[-1] != _NEUTRAL]
        if not found[split]:
            raise damaged(files.folder, f"has no sentence to use in {_STEMS[split]}")
    order = StableRandom(seed).permutation(len(found["train"]))[:limit]
    found["train"] = [found["train"][row] for row in order]
    vocabulary = build_vocabulary(leaf_words([tree for _, tree in found["train"]]), None)
    numbers = {word: i for i, word in enumerate(vocabulary) if i > 1}
    splits: dict[str, Any] = {
        split: TreeSplit(
            [tree for _, tree in trees],
            classes=classes,
            numbers=numbers,
            ids=[id_ for id_, _ in trees],
            every_node=split == "train",
        )
        for split, trees in found.items()
    }
    vectors, about = read_embeddings(vocabulary, embeddings, seed, files)
    targets = splits["train"].targets
    return DataSet(
        name=name,
        kind="trees",
        input_shape=(),
        class_names=class_names,
        **splits,
        record={
            "files": files.read,
            "split": "as published; the seed shuffles the training split",
            "notes": [*notes, *size_notes(sizes, (8544, 1101, 2210))],
            "training_nodes": {"all": len(targets), "with_a_target": int(np.sum(targets >= 0))},
            "vocabulary": {
                "words": len(vocabulary),
                "from": "all words of the training split; 0 padding, 1 unknown",
            },
            "embeddings": about,
            "augmentation": "none",
        },
        vocabulary=vocabulary,
        embeddings=vectors,
    )


def _published_trees(files: Files) -> dict[str, list[tuple[str, Tree]]]:
    """The trees of each split with their ids; ``train/0`` is the first of the file."""
    archive = files.find(ARCHIVE.name)
    if archive is not None:
        files.note(archive, ARCHIVE)
        with reading(archive, "a .zip archive"), zipfile.ZipFile(archive) as opened:
            lines = {
                stem: numbered_lines(opened.read(f"trees/{stem}.txt").decode("utf-8"))
                for stem in _STEMS.values()
            }
        return {split: _parsed(archive, stem, lines[stem]) for split, stem in _STEMS.items()}
    found = {}
    for split, stem in _STEMS.items():
        starts = ("trees/", "", "sst_trees_")
        path = files.find(*(f"{start}{stem}.txt{end}" for start in starts for end in ("", ".gz")))
        if path is None:
            raise files.missing([ARCHIVE.name, f"trees/{stem}.txt"], ARCHIVE)
        files.note(path)
        found[split] = _parsed(path, stem, text_lines(path))
    return found


def _parsed(path: Path, stem: str, lines: list[tuple[int, str]]) -> list[tuple[str, Tree]]:
    trees: list[tuple[str, Any]] = []
    for i, (number, line) in enumerate(lines):
        with reading(path, f"trees, in line {number} of {stem}"):
            tree = parse_tree(line)
            if not 0 <= min(tree.labels) <= max(tree.labels) <= 4:
                raise CalibrantError("a label is not 0 to 4")
        trees.append((f"{stem}/{i}", tree))
    return trees
