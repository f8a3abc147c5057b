"""The multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from calibrant.errors import CalibrantError
from calibrant.training import checks


class MLP(nn.Module):
    """Linear layers with ReLU between them; inputs of any shape are flattened.

    Args:
        n_classes: Number of classes.
        n_features: Size of one input: columns of a table, or channels x height x width.
        hidden: Sizes of the hidden layers; an empty list makes a linear model.
        dropout: Dropout probability after each hidden layer.

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
        dropout = checks.fraction_below_one(dropout, "dropout")
        hidden = checks.as_tuple(hidden, "hidden")
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
        size = math.prod(inputs.shape[1:])
        if inputs.ndim < 2 or size != self.n_features:
            raise CalibrantError(
                f"the network takes inputs of {self.n_features} numbers; found the shape "
                f"{tuple(inputs.shape)}. Build it with n_features={size}"
            )
        logits: Tensor = self.classifier(self.hidden(inputs.flatten(1)))
        return logits
