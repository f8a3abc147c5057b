"""Text as token ids: vocabularies, word vectors, and documents padded to one length."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import CalibrantError
from calibrant.files.meaning import is_number
from calibrant.training.datasets.base import Split
from calibrant.training.datasets.sources import (
    Files,
    PublishedFile,
    damaged,
    npz_arrays,
    opened,
    reading,
)
from calibrant.training.datasets.splitting import StableRandom

PADDING, UNKNOWN = "<padding>", "<unknown>"
GLOVE = PublishedFile("glove.6B.zip", "https://nlp.stanford.edu/projects/glove (unzip it)")
_WORD = re.compile(r"[^\W_]+")
_NOISE = 0.05  # largest entry in the random vector of a word without one


def words_in(text: str) -> list[str]:
    """Runs of letters and digits, in lower case.

    Examples:
        >>> words_in("Re: the X-11 server can't_start!")
        ['re', 'the', 'x', '11', 'server', 'can', 't', 'start']
    """
    return _WORD.findall(text.lower())


def build_vocabulary(documents: Iterable[Sequence[str]], largest: int | None) -> tuple[str, ...]:
    """Padding, unknown, then the words of ``documents``, most frequent first.

    Examples:
        >>> build_vocabulary([["b", "a", "b"], ["c", "a", "b"]], largest=2)
        ('<padding>', '<unknown>', 'b', 'a')
    """
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(document)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return (PADDING, UNKNOWN, *ranked[:largest])


def token_ids(documents: Iterable[Sequence[str]], vocabulary: Sequence[str]) -> list[Any]:
    """Token ids of each document, as int32 arrays."""
    number = {word: i for i, word in enumerate(vocabulary)}
    return [np.array([number.get(word, 1) for word in d], dtype=np.int32) for d in documents]


class TokenSplit(Split):
    """Documents as rows of at most ``length`` token ids, padded to the longest of a batch."""

    def __init__(
        self,
        documents: Sequence[NDArray[np.int32]],
        labels: NDArray[np.int64],
        ids: Sequence[str],
        length: int,
    ) -> None:
        documents = [document[:length] for document in documents]
        # Positions beyond a document read the padding at the end.
        self.tokens = torch.from_numpy(np.concatenate([*documents, np.zeros(1, dtype=np.int32)]))
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        self.lengths = torch.from_numpy(lengths)
        self.starts = torch.from_numpy(np.cumsum(lengths) - lengths)
        self.labels = torch.from_numpy(labels)
        self.ids = np.array(ids, dtype=np.str_)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """(m, longest) int64, with at least one column, and (m,) int64."""
        lengths = self.lengths[indices, None]
        columns = torch.arange(max(1, int(lengths.max(dim=0).values)) if len(lengths) else 1)
        places = self.starts[indices, None] + columns
        tokens = self.tokens[torch.where(columns < lengths, places, len(self.tokens) - 1)]
        return tokens.to(torch.int64), self.labels[indices]


def read_embeddings(
    vocabulary: Sequence[str], path: str | Path | None, seed: int, files: Files
) -> tuple[Tensor, dict[str, Any]] | tuple[None, None]:
    """(words, size) float32 vectors from a file; small seeded noise for words without one.

    The file is an ``.npz`` with ``words`` and ``vectors``, or GloVe's text format (``.txt``,
    ``.txt.gz``): a word and its numbers in each line. The vector of padding is 0.
    """
    if path is None:
        return None, None
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {path} of word vectors. Get them from {GLOVE.page} and pass, for "
            "example, the path of glove.6B.100d.txt as embeddings="
        )
    files.note(path)
    wanted = {word: i for i, word in enumerate(vocabulary) if i > 1}
    read = _vectors_npz if path.suffix == ".npz" else _vectors_text
    rows, vectors = read(path, wanted)
    if not len(rows):
        raise damaged(path, "has no vector for any word of the training split")
    shape = len(vocabulary), vectors.shape[1]
    noise = (2.0 * StableRandom(seed).uniform(math.prod(shape)) - 1.0) * _NOISE
    table = noise.astype(np.float32).reshape(shape)
    table[rows] = vectors
    table[0] = 0.0
    about = {
        "words": len(vocabulary),
        "with_a_vector": len(rows),
        "size": int(vectors.shape[1]),
        "others": f"uniform noise from -{_NOISE} to {_NOISE}, drawn by the seed; padding is 0",
    }
    return torch.from_numpy(table), about


Vectors = tuple[NDArray[np.int64], NDArray[np.float32]]


def _vectors_npz(path: Path, wanted: dict[str, int]) -> Vectors:
    stored = npz_arrays(path)
    with reading(path, "words and vectors"):
        words, vectors = stored["words"], stored["vectors"]
        if words.ndim != 1 or vectors.ndim != 2 or len(words) != len(vectors):
            raise CalibrantError(f"words {words.shape} and vectors {vectors.shape} do not match")
        if words.dtype.kind != "U" or vectors.dtype.kind != "f":
            raise CalibrantError("words must be strings and vectors numbers")
        if not np.isfinite(vectors).all():
            raise CalibrantError("a vector is not finite")
    rows = [(wanted[word], row) for row, word in enumerate(words.tolist()) if word in wanted]
    places = np.array([place for place, _ in rows], dtype=np.int64)
    return places, vectors[[row for _, row in rows]].astype(np.float32)


def _vectors_text(path: Path, wanted: dict[str, int]) -> Vectors:
    places: list[int] = []
    vectors: list[NDArray[np.float32]] = []
    with reading(path, "lines of a word and its numbers"), opened(path) as file:
        for line, content in enumerate(file, start=1):
            word, _, numbers = content.decode("utf-8").rstrip().partition(" ")
            if word not in wanted:
                continue
            values = numbers.split(" ")
            if vectors and len(values) > len(vectors[0]) and not is_number(values[0]):
                continue  # A word with spaces, such as ". . ." in GloVe's 840B vectors.
            vector = np.array(values, dtype=np.float32)
            if not np.isfinite(vector).all() or (vectors and len(vector) != len(vectors[0])):
                raise damaged(path, f"has {len(vector)} numbers, or one not finite, in line {line}")
            places.append(wanted[word])
            vectors.append(vector)
    table = np.stack(vectors) if vectors else np.zeros((0, 1), dtype=np.float32)
    return np.array(places, dtype=np.int64), table
