"""Word vectors, given or random."""

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
"""Token id of padding; its vector is and stays 0."""


def word_vectors(
    embeddings: Array | None, n_words: int | None, n_dimensions: int, *, trained: bool
) -> nn.Embedding:
    """A table with one vector per token id: ``embeddings``, or normal with deviation 0.1.

    ``embeddings`` set the size of the table. Vectors that are not ``trained`` take no part in
    optimisation but are saved with the network.
    """
    given = _checked_embeddings(embeddings, n_words)
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
    # On a GPU the check would wait for everything under way.
    if tokens.device.type == "cpu" and tokens.numel():
        low, high, n_words = int(tokens.min()), int(tokens.max()), words.num_embeddings
        if low < 0 or high >= n_words:
            raise CalibrantError(
                f"token ids must be from 0 to {n_words - 1}, one per row of the word vectors; "
                f"found {low if low < 0 else high}. Build the network with the vocabulary of the "
                "data"
            )
    vectors: Tensor = words(tokens)
    return vectors


def _checked_embeddings(values: Any, n_words: Any) -> npt.NDArray[np.float32] | None:
    """``embeddings`` as float32, or None if ``n_words`` is given instead."""
    if (values is None) == (n_words is None):
        raise CalibrantError(
            "exactly one of embeddings and n_words is needed; found "
            f"{'neither' if values is None else 'both'}. Pass the word vectors, or the number of "
            "token ids for vectors to be learnt"
        )
    if values is None:
        return None
    array = np.asarray(_inputs.rectangular(values, "embeddings"), dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise CalibrantError(
            f"embeddings must have the shape (words, dimensions); found {array.shape}. Pass one "
            "row per token id, row 0 for padding"
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise CalibrantError(
            f"embeddings must be finite; found NaN or infinity in row {row}. Use zeros or small "
            "noise for a word without a vector"
        )
    return array
