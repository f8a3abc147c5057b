"""Initial weights, drawn from torch's global generator."""

from __future__ import annotations

from torch import nn

from calibrant import _inputs

INITIALISATIONS = ("he", "torch")


def initialise(network: nn.Module, initialisation: str) -> None:
    """Initialise the convolutions: normal with variance 2 / fan-out, or torch's default.

    ``"he"`` is the initialisation of He et al. (2015), which preserves the scale of gradients
    through ReLUs; ``"torch"`` keeps the weights that ``nn.Conv2d`` has drawn. Linear layers keep
    torch's default in both cases, and batch normalisations start as the identity.
    """
    _inputs.choice(initialisation, "initialisation", INITIALISATIONS)
    if initialisation == "torch":
        return
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
