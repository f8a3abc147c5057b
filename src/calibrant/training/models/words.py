"""Vectors of words, given or drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.training import checks

PADDING = 0
"""The token id that stands for no word; its vector is 0 and stays so."""


def word_vectors(
    embeddings: Array | None, n_words: int | None, n_dimensions: int, *, trained: bool
) -> nn.Embedding:
    """A table of one vector for each token id: those given, or normal with deviation 0.1.

    Vectors that are given set the size of the table. Those that are not trained take no part in
    optimisation, and are saved with the network all the same.
    """
    given = check_embeddings(embeddings, n_words)
    if given is None:
        size = (
            checks.layer_size(n_words, "n_words"),
            checks.layer_size(n_dimensions, "n_dimensions"),
        )
        table = 0.1 * torch.randn(size)
    else:
        table = torch.tensor(given)
    table[PADDING] = 0.0
    words = nn.Embedding(len(table), table.shape[1], padding_idx=PADDING, _weight=table)
    words.requires_grad_(trained)
    return words


def looked_up(words: nn.Embedding, tokens: Tensor) -> Tensor:
    """The vectors of token ids, which must be in the table."""
    check_token_ids(tokens, words.num_embeddings)
    vectors: Tensor = words(tokens)
    return vectors


def check_embeddings(values: Any, n_words: Any) -> npt.NDArray[np.float32] | None:
    """One vector for each token id; None where ``n_words`` says how many there are."""
    if (values is None) == (n_words is None):
        raise CalibrantError(
            "exactly one of embeddings and n_words is needed; found "
            f"{'neither' if values is None else 'both'}. Pass the word vectors, or the number of "
            "token ids for vectors that are learnt from nothing"
        )
    if values is None:
        return None
    array = np.asarray(_inputs.rectangular(values, "embeddings"), dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise CalibrantError(
            f"embeddings must have the shape (words, dimensions); found {array.shape}. Give one "
            "row for each token id, row 0 for padding"
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise CalibrantError(
            f"embeddings must be finite; found NaN or infinity in row {row}. Put zeros, or small "
            "noise, where a word has no vector"
        )
    return array


def check_token_ids(tokens: Array, n_words: int) -> None:
    """Token ids that a table of words has."""
    # On a GPU the look would wait for all that is under way.
    if tokens.device.type != "cpu" or tokens.numel() == 0:
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= n_words:
        raise CalibrantError(
            f"token ids must be from 0 to {n_words - 1}, one row of the word vectors each; found "
            f"{low if low < 0 else high}. Build the network with the vocabulary of the data"
        )
