"""The Stanford Sentiment Treebank: sentences as binary trees, a sentiment at every node."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training import checks
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.sources import (
    Files,
    Official,
    damaged,
    reading,
    text_lines,
    unlike_published,
)
from calibrant.training.datasets.splitting import Chance, limited
from calibrant.training.datasets.text import embeddings_for, vocabulary_of
from calibrant.training.datasets.trees import Tree, TreePart, leaf_words, parse_tree

ARCHIVE = Official("trainDevTestTrees_PTB.zip", "https://nlp.stanford.edu/sentiment")
FINE = ("very negative", "negative", "neutral", "positive", "very positive")
_NEUTRAL = 2
_CLASSES: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "fine": (FINE, (0, 1, 2, 3, 4)),
    "left-out": (("negative", "positive"), (0, 0, -1, 1, 1)),
    "class": (("negative", "neutral", "positive"), (0, 0, 1, 2, 2)),
}
"""The names of the classes, and the class of each of the five labels; -1 for none."""
_PARTS = {"train": "train", "val": "dev", "test": "test"}


def read_sst_binary(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    neutral: str = "left-out",
    embeddings: str | Path | None = None,
) -> DataSet:
    """Negative or positive: 6920 / 872 / 1821 sentences, those with a neutral root left out.

    Training asks for every labelled node, validation and test for the root. Inner nodes may be
    neutral (paper 1, App. C): they are ``"left-out"`` of the targets, or with ``neutral="class"`` a
    third class between the two, which only training sees.

    The folder holds ``trees/train.txt``, ``dev.txt``, ``test.txt``, or the archive they come in, or
    ``sst_trees_train.txt.gz`` and the like. Words are in lower case; the vocabulary is that of the
    training part. ``embeddings``: a file of word vectors, GloVe's text or an ``.npz``.

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

    Everything else is as in ``sst-binary``.
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
    files = Files(checks.folder_of(folder, name, ARCHIVE.page), name)
    published = _parts(files)
    sizes = [len(trees) for trees in published.values()]
    found: dict[str, list[tuple[str, Tree]]] = {}
    for part, trees in published.items():
        kept = [(place, t) for place, t in trees if not binary or t.labels[-1] != _NEUTRAL]
        if not kept:
            raise damaged(files.folder, f"has no sentence to use in {_PARTS[part]}")
        found[part] = kept
    order = limited(Chance(seed).order(len(found["train"])), limit)
    found["train"] = [found["train"][row] for row in order]
    vocabulary = vocabulary_of(leaf_words([tree for _, tree in found["train"]]), None)
    numbers = {word: i for i, word in enumerate(vocabulary) if i > 1}
    parts = {
        part: TreePart(
            [tree for _, tree in trees],
            classes=classes,
            numbers=numbers,
            ids=[place for place, _ in trees],
            every_node=part == "train",
        )
        for part, trees in found.items()
    }
    vectors, said = None, None
    if embeddings is not None:
        vectors, said = embeddings_for(vocabulary, embeddings, seed, files)
    targets = parts["train"].targets
    return DataSet(
        name=name,
        kind="trees",
        input_shape=(),
        class_names=class_names,
        train=parts["train"],
        val=parts["val"],
        test=parts["test"],
        record={
            "name": name,
            "seed": seed,
            "files": files.read,
            "split": "as published; the seed orders the training part",
            "notes": [*notes, *unlike_published(sizes, (8544, 1101, 2210))],
            "limit": limit,
            "sizes": {part: len(made) for part, made in parts.items()},
            "training_nodes": {"all": len(targets), "with_a_target": int(np.sum(targets >= 0))},
            "vocabulary": {
                "words": len(vocabulary),
                "from": "all words of the training part; 0 padding, 1 unknown",
            },
            "embeddings": said,
            "augmentation": "none",
        },
        vocabulary=vocabulary,
        embeddings=vectors,
    )


def _parts(files: Files) -> dict[str, list[tuple[str, Tree]]]:
    """The trees of each part with their ids, ``train/0`` being the first line of the file."""
    archive = files.find(ARCHIVE.name)
    if archive is not None:
        files.note(archive, ARCHIVE)
        with reading(archive, "a .zip archive"), zipfile.ZipFile(archive) as opened:
            texts = {p: opened.read(f"trees/{s}.txt").decode("utf-8") for p, s in _PARTS.items()}
        lines = {p: [line for line in t.split("\n") if line.strip()] for p, t in texts.items()}
        return {part: _parsed(archive, _PARTS[part], held) for part, held in lines.items()}
    found = {}
    for part, stem in _PARTS.items():
        names = [
            f"{start}{stem}.txt{end}"
            for start in ("trees/", "", "sst_trees_")
            for end in ("", ".gz")
        ]
        path = files.find(*names)
        if path is None:
            raise FileNotFoundError(files.missing([ARCHIVE.name, f"trees/{stem}.txt"], ARCHIVE))
        files.note(path)
        found[part] = _parsed(path, stem, text_lines(path))
    return found


def _parsed(path: Path, stem: str, lines: list[str]) -> list[tuple[str, Tree]]:
    trees: list[tuple[str, Any]] = []
    for i, line in enumerate(lines):
        with reading(path, f"trees, in line {i + 1} of {stem}"):
            tree = parse_tree(line)
            if not 0 <= min(tree.labels) <= max(tree.labels) <= 4:
                raise CalibrantError("a label is not 0 to 4")
        trees.append((f"{stem}/{i}", tree))
    return trees
