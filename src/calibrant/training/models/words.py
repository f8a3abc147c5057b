"""Vectors of words, given or drawn."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant import _checks
from calibrant._types import Array

PADDING = 0
"""The token id that stands for no word; its vector is 0 and stays so."""


def word_vectors(
    embeddings: Array | None, n_words: int | None, n_dimensions: int, *, trained: bool
) -> nn.Embedding:
    """A table of one vector for each token id: those given, or normal with deviation 0.1.

    Vectors that are given set the size of the table. Those that are not trained take no part in
    optimisation, and are saved with the network all the same.
    """
    given = _checks.embeddings(embeddings, n_words)
    if given is None:
        size = (
            _checks.layer_size(n_words, "n_words"),
            _checks.layer_size(n_dimensions, "n_dimensions"),
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
    _checks.token_ids(tokens, words.num_embeddings)
    vectors: Tensor = words(tokens)
    return vectors
