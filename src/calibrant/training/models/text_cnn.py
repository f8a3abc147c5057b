"""The global-pooling convolutional network for text."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor, nn

from calibrant._types import Array
from calibrant.training import checks
from calibrant.training.models.words import PADDING, looked_up, word_vectors

SPAN = 5
# Receptive field, in words, before the global maximum: three convolutions and two maxima.
FIELD = 5 * (SPAN - 1) + 1
LONGEST_PART = 500
"""Positions that are convolved as one sample: many short samples repeat more of their ends, one
long sample is slower than its parts."""


class TextCNN(nn.Module):
    """Convolutions over word vectors, followed by the maximum of each channel over the text.

    Three convolutions over five words with ReLU, a running maximum over five positions after the
    first and the second, the maximum over all positions, a hidden layer with dropout,
    ``classifier``.

    Padding has no effect: the logits of a text do not depend on the other texts of its batch, nor
    on the side of the padding, which takes no time. For this, all texts of a batch are joined to
    one, with the receptive field of the network between two of them. (The reference pads all texts
    to 1000 words, before the text; the two differ in what the last convolution sees beyond the
    end.)

    Args:
        n_classes: Number of classes.
        embeddings: Word vectors (words, dimensions), row 0 for padding; for instance GloVe's.
        n_words: Number of token ids, without ``embeddings``.
        n_dimensions: Length of the word vectors, without ``embeddings``.
        channels: Channels of each convolution, and size of the hidden layer.
        dropout: Dropout probability after the hidden layer.
        train_words: Whether word vectors are trained. By default, given ones are not, as in the
            reference.

    References:
        Lin et al. (2014), Network in network; as Mukhoti et al. (2020) have it for 20 Newsgroups.

    Examples:
        >>> import torch
        >>> from calibrant.training.models import TextCNN
        >>> network = TextCNN(20, n_words=1000).eval()
        >>> alone = network(torch.tensor([[5, 7]]))
        >>> padded = network(torch.tensor([[5, 7, 0, 0, 0]]))
        >>> alone.shape, torch.allclose(alone, padded, atol=1e-6)
        (torch.Size([1, 20]), True)
    """

    def __init__(
        self,
        n_classes: int,
        *,
        embeddings: Array | None = None,
        n_words: int | None = None,
        n_dimensions: int = 100,
        channels: int = 128,
        dropout: float = 0.3,
        train_words: bool | None = None,
    ) -> None:
        super().__init__()
        trained = embeddings is None if train_words is None else train_words
        channels = checks.layer_size(channels, "channels")
        self.words = word_vectors(embeddings, n_words, n_dimensions, trained=trained)
        self.conv1 = nn.Conv1d(self.words.embedding_dim, channels, SPAN)
        self.conv2 = nn.Conv1d(channels, channels, SPAN)
        self.conv3 = nn.Conv1d(channels, channels, SPAN)
        self.hidden = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(checks.fraction_below_one(dropout, "dropout"))
        self.classifier = nn.Linear(channels, checks.n_classes(n_classes))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (n, classes) of token ids (n, length), 0 where there is no word."""
        joined, texts = _join(tokens)
        features = looked_up(self.words, joined).permute(0, 2, 1)[:, :, None]  # channels last
        features = _running_maximum(F.relu(_convolve(features, self.conv1)))
        features = _running_maximum(F.relu(_convolve(features, self.conv2)))
        features = F.relu(_largest(features, self.conv3, texts))
        features = self.dropout(F.relu(self.hidden(features)))
        logits: Tensor = self.classifier(features)
        return logits


class _Texts(NamedTuple):
    """Where the texts of a batch are among the positions of the last convolution."""

    starts: Tensor
    lengths: Tensor
    part: int
    """Positions that are convolved as one sample."""


def _join(tokens: Tensor) -> tuple[Tensor, _Texts]:
    """All texts of a batch, without their padding, in one row of words cut into equal parts.

    The field of a position is padded on the left of each text, so that one position sees padding
    only, each word is seen from every place of the field, and no position sees two texts. The
    parts overlap, so that each position is in one of them.
    """
    tokens = F.pad(tokens, (0, 1), value=PADDING)  # there may be no column
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    is_word = tokens != PADDING
    ends = torch.where(is_word, columns + 1, 0).amax(dim=1)
    begins = torch.where(is_word, columns, tokens.shape[1]).amin(dim=1).minimum(ends)
    lengths = ends - begins + FIELD
    starts = lengths.cumsum(0) - lengths
    n_positions = int(lengths.sum())
    part = min(max(n_positions, 1), LONGEST_PART)
    n_parts = max(1, -(-n_positions // part))
    row = tokens.new_full((n_parts * part + FIELD - 1,), PADDING)
    inside = (columns >= begins[:, None]) & (columns < ends[:, None])
    places = (starts + FIELD - begins)[:, None] + columns
    row[places[inside]] = tokens[inside]
    return row.unfold(0, part + FIELD - 1, part), _Texts(starts, lengths, part)


def _convolve(features: Tensor, layer: nn.Conv1d) -> Tensor:
    """A convolution over the positions of (parts, channels, 1, positions).

    In two dimensions, channels last, training takes just over half the time on a CPU.
    """
    return F.conv2d(features, layer.weight[:, :, None], layer.bias)


def _running_maximum(features: Tensor) -> Tensor:
    return F.max_pool2d(features, (1, SPAN), stride=1)


def _largest(features: Tensor, layer: nn.Conv1d, texts: _Texts) -> Tensor:
    """The maximum of a convolution over the positions of each text: (texts, channels).

    Only one position of each text and channel has a gradient. The convolution finds it without a
    graph and is repeated there alone: a step on a CPU takes 0.31 instead of 0.37 s.
    """
    with torch.no_grad():
        outputs = _positions(_convolve(features, layer))
        longest = int(texts.lengths.max()) if len(texts.lengths) else 1
        columns = torch.arange(longest, device=outputs.device)
        columns = torch.where(columns < texts.lengths[:, None], columns, 0)
        found = F.embedding(texts.starts[:, None] + columns, outputs).argmax(dim=1)
        found += texts.starts[:, None]
        # Each part has SPAN - 1 more positions before the convolution than after it.
        seen = found + found // texts.part * (SPAN - 1)
        seen = seen[..., None] + torch.arange(SPAN, device=outputs.device)
    windows = F.embedding(seen, _positions(features)).flatten(2)
    weights = layer.weight.permute(0, 2, 1).flatten(1)
    largest = (windows * weights).sum(dim=2)
    return largest if layer.bias is None else largest + layer.bias


def _positions(features: Tensor) -> Tensor:
    """(parts, channels, 1, positions) as one row of channels per position."""
    return features[:, :, 0].permute(0, 2, 1).flatten(0, 1)
