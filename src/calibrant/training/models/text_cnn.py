"""The global-pooling convolutional network for text."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor, nn

from calibrant._types import Array
from calibrant.training import checks
from calibrant.training.models.words import PADDING, looked_up, word_vectors

SPAN = 5
# Receptive field, in words, before the global maximum: three convolutions and two maxima.
FIELD = 5 * (SPAN - 1) + 1


class TextCNN(nn.Module):
    """Convolutions over word vectors, followed by the maximum of each channel over the text.

    Three convolutions over five words with ReLU, a running maximum over five positions after the
    first and the second, the maximum over all positions, a hidden layer with dropout,
    ``classifier``.

    Padding has no effect: the logits of a text do not depend on the other texts of its batch, nor
    on the side of the padding. For this, every text is padded on both sides by the receptive field
    of the network. (The reference pads all texts to 1000 words, before the text; the two differ in
    what the last convolution sees beyond the end.)

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
        # One position sees only padding, and each word is seen at every position of the field.
        tokens = F.pad(tokens, (FIELD, FIELD - 1), value=PADDING)
        features = looked_up(self.words, tokens).permute(0, 2, 1)[:, :, None]  # channels last
        features = _running_maximum(F.relu(_convolve(features, self.conv1)))
        features = _running_maximum(F.relu(_convolve(features, self.conv2)))
        features = F.relu(_convolve(features, self.conv3)).amax(dim=(2, 3))
        features = self.dropout(F.relu(self.hidden(features)))
        logits: Tensor = self.classifier(features)
        return logits


def _convolve(features: Tensor, layer: nn.Conv1d) -> Tensor:
    """A convolution over the positions of (n, channels, 1, positions).

    In two dimensions, channels last, training takes just over half the time on a CPU.
    """
    return F.conv2d(features, layer.weight[:, :, None], layer.bias)


def _running_maximum(features: Tensor) -> Tensor:
    return F.max_pool2d(features, (1, SPAN), stride=1)
