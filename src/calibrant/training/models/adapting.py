"""An adapter for networks of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training import checks


class Adapted(nn.Module):
    """Any ``nn.Module`` with the interface that training needs: logits, and ``classifier``.

    Args:
        network: The network. It may return logits, an object with an attribute or key ``logits``,
            or a tuple whose first entry is the logits.
        n_classes: Number of classes.
        classifier: Name of the last linear layer in ``network.named_modules()``. Default: the last
            ``nn.Linear`` with ``n_classes`` outputs.
        call: ``call(network, inputs)``, for a network that is not called as ``network(inputs)``.

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
        _inputs.instance(network, nn.Module, "network")
        n_classes = checks.n_classes(n_classes)
        linear = {
            name: layer.out_features
            for name, layer in network.named_modules()
            if isinstance(layer, nn.Linear)
        }
        self.network = network
        self._classifier = _name_of_logit_layer(linear, n_classes, classifier)
        self._call = call

    @property
    def classifier(self) -> nn.Module:
        """The last linear layer, in its place inside the network."""
        return self.network.get_submodule(self._classifier)

    def forward(self, inputs: Any) -> Tensor:
        """Logits for the network's inputs."""
        output = self.network(inputs) if self._call is None else self._call(self.network, inputs)
        logits: Tensor = _inputs.logits_of_network(output)
        return logits


def _name_of_logit_layer(sizes: Mapping[str, int], n_classes: int, wanted: str | None) -> str:
    """Name of the layer that computes the logits, among linear layers with these output sizes."""
    if wanted is not None:
        if wanted not in sizes:
            raise CalibrantError(
                f"classifier must name a linear layer of the network; found {wanted!r}. It has "
                f"{', '.join(sizes) or 'none'}"
            )
        return wanted
    fitting = [name for name, size in sizes.items() if size == n_classes]
    if not fitting:
        found = ", ".join(f"{name} ({size})" for name, size in list(sizes.items())[-3:])
        raise CalibrantError(
            f"the network has no linear layer of {n_classes} outputs; found {found or 'none'} at "
            "its end. Build it for that many classes, or name the layer with classifier="
        )
    return fitting[-1]
