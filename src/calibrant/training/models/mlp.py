"""A network of linear layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.training import checks


class MLP(nn.Module):
    """Linear layers with ReLU between them; whatever an input's shape is, it is made flat.

    Args:
        n_classes: Number of classes.
        n_features: Numbers in one input: columns of a table, or channels x height x width.
        hidden: Sizes of the hidden layers; none makes a linear model.
        dropout: Share of each hidden layer that is left out in training.

    Examples:
        >>> import torch
        >>> from calibrant.training.models import MLP
        >>> network = MLP(3, n_features=64, hidden=(128, 128))
        >>> network(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        n_classes: int,
        *,
        n_features: int,
        hidden: Sequence[int] = (64, 64),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_features = checks.layer_size(n_features, "n_features")
        dropout = checks.share_left_out(dropout, "dropout")
        hidden = checks.several(hidden, "hidden")
        sizes = [self.n_features, *(checks.layer_size(size, "hidden") for size in hidden)]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.hidden = nn.Sequential(*layers)
        self.classifier = nn.Linear(sizes[-1], checks.n_classes(n_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, ...)."""
        check_inputs_of_size(inputs, self.n_features)
        logits: Tensor = self.classifier(self.hidden(inputs.flatten(1)))
        return logits


def check_inputs_of_size(values: Array, n_features: int) -> None:
    """Inputs (n, ...) of so many numbers each."""
    size = math.prod(values.shape[1:])
    if values.ndim < 2 or size != n_features:
        raise CalibrantError(
            f"the network takes inputs of {n_features} numbers; found the shape "
            f"{tuple(values.shape)}. Build it with n_features={size}"
        )
