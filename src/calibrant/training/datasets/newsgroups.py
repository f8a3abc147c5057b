"""20 Newsgroups, split by date: the published folders or archive, or JSON lines."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant.training import checks
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.sources import (
    Files,
    PublishedFile,
    damaged,
    reading,
    size_notes,
    tar_members,
    text_lines,
)
from calibrant.training.datasets.splitting import hold_out
from calibrant.training.datasets.text import (
    TokenSplit,
    build_vocabulary,
    read_embeddings,
    token_ids,
    words_in,
)

ARCHIVE = PublishedFile(
    "20news-bydate.tar.gz",
    "http://qwone.com/~jason/20Newsgroups",
    sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
)


SPLITS = {
    "by-date": "by date, as published",
    "random": "at random, a fifth for testing, drawn by the seed",
}


class Message(NamedTuple):
    """One message; ``part`` is the published one, for its id."""

    part: str
    group: str
    name: str
    text: str


def read_newsgroups(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 900,
    length: int = 1000,
    n_words: int = 20000,
    headers: bool = False,
    embeddings: str | Path | None = None,
    split: str = "by-date",
) -> DataSet:
    """20 Newsgroups by date: 10414 / 900 / 7532 messages; at random: 14177 / 900 / 3769.

    The folder holds ``20news-bydate-train/<group>/<number>`` and ``20news-bydate-test``, their
    archive, or ``20news_bydate_train.jsonl`` and ``_test`` (or ``.gz``) with ``group``, ``id`` and
    ``text`` in each line. Words are runs of letters and digits in lower case; the vocabulary is the
    ``n_words`` most frequent ones of the training split. A message is truncated to ``length`` words
    and starts after its header, unless ``headers`` is true.

    ``split="random"`` divides as the code of paper 1 does: all messages are shuffled by the seed,
    a fifth is for testing and ``val_size`` are for validation. The paper's 15098 / 900 / 3999 are
    that division of the first copy with 19997 messages; as published by date, without duplicates,
    there are 18846. A message and the replies that quote it may then be in different splits.

    ``embeddings``: a file of word vectors, GloVe's text format or an ``.npz``.

    Reference: K. Lang, NewsWeeder: learning to filter netnews (1995).
    """
    files = Files.of("20newsgroups", folder, ARCHIVE.page)
    checks.check_bool(headers, "headers")
    _inputs.choice(split, "split", tuple(SPLITS))
    length = _inputs.whole_number(length, "length", allowed=range(1, 2**31))
    n_words = _inputs.whole_number(n_words, "n_words", allowed=range(1, 2**31))
    train, test = _messages(files)
    groups = sorted({message.group for message in train})
    for message in test:
        if message.group not in groups:
            raise damaged(files.folder, f"has the group {message.group} in its test messages only")
    published = (len(train), len(test))
    if split == "random":
        train, test = _divided([*train, *test], seed)
    rows, held = hold_out(len(train), val_size, seed)
    chosen = {
        "train": [train[row] for row in rows[:limit]],
        "val": [train[row] for row in held],
        "test": test,
    }
    words = {
        name: [words_in(message.text if headers else _body(message.text)) for message in messages]
        for name, messages in chosen.items()
    }
    vocabulary = build_vocabulary((document[:length] for document in words["train"]), n_words)
    splits: dict[str, Any] = {
        name: TokenSplit(
            token_ids(words[name], vocabulary),
            np.array([groups.index(message.group) for message in messages], dtype=np.int64),
            [f"{m.part}/{m.group}/{m.name}" for m in messages],
            length,
        )
        for name, messages in chosen.items()
    }
    vectors, about = read_embeddings(vocabulary, embeddings, seed, files)
    return DataSet(
        name="20newsgroups",
        kind="tokens",
        input_shape=(length,),
        class_names=tuple(groups),
        **splits,
        record={
            "files": files.read,
            "split": f"{SPLITS[split]}; val: {len(held)} training messages drawn by the seed",
            "notes": [
                "paper 1 used another copy, 15098 / 900 / 3999 messages",
                "with headers" if headers else "without headers",
                *size_notes(published, (11314, 7532)),
            ],
            "vocabulary": {
                "words": len(vocabulary),
                "from": f"the {n_words} most frequent of the training split; 0 padding, 1 unknown",
            },
            "length": length,
            "embeddings": about,
            "augmentation": "none",
        },
        vocabulary=vocabulary,
        embeddings=vectors,
    )


def _divided(messages: list[Message], seed: int) -> tuple[list[Message], list[Message]]:
    """(training and validation, test): a fifth of all messages is for testing."""
    rest, test = hold_out(len(messages), len(messages) // 5, seed)
    return [messages[row] for row in rest], [messages[row] for row in test]


def _body(text: str) -> str:
    """The text after the first empty line; all of it if there is none."""
    _, found, body = text.partition("\n\n")
    return body if found else text


def _messages(files: Files) -> tuple[list[Message], list[Message]]:
    names = [[f"20news_bydate_{part}.jsonl{end}" for end in (".gz", "")] for part in _PARTS]
    lines = [files.find(*spelled) for spelled in names]
    if lines[0] is not None and lines[1] is not None:
        found = [
            _from_lines(files, part, path)
            for part, path in zip(_PARTS, lines, strict=True)
            if path is not None
        ]
    elif all((files.folder / f"20news-bydate-{part}").is_dir() for part in _PARTS):
        found = [_from_folder(files, part) for part in _PARTS]
    else:
        others = [f"20news-bydate-{part}" for part in _PARTS]
        path = files.need([ARCHIVE.name, *others], ARCHIVE)
        if path.is_dir():
            raise files.missing(others, ARCHIVE)
        found = _from_archive(files, path)
    for part, messages in zip(_PARTS, found, strict=True):
        if not messages:
            raise damaged(files.folder, f"has no messages of 20news-bydate-{part}")
        if len({message[:3] for message in messages}) < len(messages):
            raise damaged(files.folder, f"has messages of 20news-bydate-{part} with the same id")
    return found[0], found[1]


_PARTS = ("train", "test")


def _from_lines(files: Files, part: str, path: Path) -> list[Message]:
    files.note(path)
    messages = []
    for i, (number, line) in enumerate(text_lines(path)):
        with reading(path, f"JSON with group, id and text in line {number}"):
            held: dict[str, Any] = json.loads(line)
            text = held["text"]
            if not isinstance(text, str):
                raise TypeError("text is not a string")
            messages.append(Message(part, str(held["group"]), str(held.get("id", i)), text))
    return messages


def _from_folder(files: Files, part: str) -> list[Message]:
    root = files.folder / f"20news-bydate-{part}"
    paths = sorted(path for path in root.glob("*/*") if path.is_file())
    digest = hashlib.sha256()
    messages = []
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
        messages.append(Message(part, path.parent.name, path.name, content.decode("latin-1")))
    files.note_folder(root, digest.hexdigest(), len(paths))
    return messages


def _from_archive(files: Files, path: Path) -> list[list[Message]]:
    files.note(path, ARCHIVE)
    found: dict[str, list[Message]] = {part: [] for part in _PARTS}
    for name, content in tar_members(path, lambda name: len(Path(name).parts) >= 3):
        part, group, number = Path(name).parts[-3:]
        if (part := part.removeprefix("20news-bydate-")) in found:
            found[part].append(Message(part, group, number, content.decode("latin-1")))
    return [sorted(found[part], key=lambda message: message[:3]) for part in _PARTS]
