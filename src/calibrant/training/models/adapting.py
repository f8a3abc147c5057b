"""Networks of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from calibrant import _checks


class Adapted(nn.Module):
    """Any ``nn.Module`` with what training asks of a network: logits, and ``classifier``.

    Args:
        network: The network. It may return logits, or what has them: an attribute or a key
            ``logits``, or a tuple with them first.
        n_classes: Number of classes.
        classifier: Where the last linear layer is, as ``network.named_modules()`` calls it.
            Default: the last ``nn.Linear`` that has ``n_classes`` outputs.
        call: ``call(network, inputs)``, where the network takes its inputs in another way than
            ``network(inputs)``.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from calibrant.training.models import Adapted
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        >>> adapted = Adapted(network, 10)
        >>> adapted.classifier
        Linear(in_features=64, out_features=10, bias=True)
        >>> adapted(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        network: nn.Module,
        n_classes: int,
        *,
        classifier: str | None = None,
        call: Callable[[nn.Module, Any], Any] | None = None,
    ) -> None:
        super().__init__()
        _checks.instance(network, nn.Module, "network")
        n_classes = _checks.n_classes(n_classes)
        linear = {
            name: layer.out_features
            for name, layer in network.named_modules()
            if isinstance(layer, nn.Linear)
        }
        self.network = network
        self._classifier = _checks.last_linear_layer(linear, n_classes, classifier)
        self._call = call

    @property
    def classifier(self) -> nn.Module:
        """The last linear layer, which stays where the network has it."""
        return self.network.get_submodule(self._classifier)

    def forward(self, inputs: Any) -> Tensor:
        """Logits of whatever the network takes."""
        output = self.network(inputs) if self._call is None else self._call(self.network, inputs)
        logits: Tensor = _checks.logits_of_network(output)
        return logits
