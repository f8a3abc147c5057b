"""Weights to start from, drawn with torch's own generator: the seed decides them."""

from __future__ import annotations

from torch import nn

from calibrant import _inputs

INITIALISATIONS = ("he", "torch")


def initialise(network: nn.Module, initialisation: str) -> None:
    """Draw the convolutions anew, normal with variance 2 / fan-out, or leave torch's own.

    ``"he"`` is that of He et al. (2015), which keeps the size of gradients through ReLUs;
    ``"torch"`` keeps what ``nn.Conv2d`` has drawn already. Linear layers keep torch's in both, and
    batch normalisations begin as the identity.
    """
    _inputs.choice(initialisation, "initialisation", INITIALISATIONS)
    if initialisation == "torch":
        return
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
