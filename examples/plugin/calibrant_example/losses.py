"""A gamma policy, in a module of its own: only a loss needs torch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calibrant.losses import LOSSES, FocalLoss, GammaPolicy


class LinearGamma(GammaPolicy):
    """Gamma falls linearly with the probability of the true class, from ``highest`` to 0."""

    signed = False

    def __init__(self, highest: float = 4.0) -> None:
        super().__init__()
        self.highest = highest

    def forward(self, p: Tensor) -> Tensor:
        """Gamma for each probability."""
        return self.highest * (1.0 - p)


def linear_focal_loss(**options: Any) -> FocalLoss:
    """The focal loss with this policy; policies have state, so each loss gets a new one."""
    return FocalLoss(gamma=LinearGamma(), **options)


LOSSES.register("fl-linear", linear_focal_loss)
