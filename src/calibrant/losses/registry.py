"""The table of losses, by their names in the papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant.errors import CalibrantError
from calibrant.losses.adafocal import AdaFocal
from calibrant.losses.base import Loss
from calibrant.losses.focal import FocalLoss
from calibrant.losses.mmce import MMCELoss
from calibrant.losses.plain import BrierLoss, CrossEntropyLoss
from calibrant.losses.policies import GammaPolicy, SampleGamma, ScheduledGamma
from calibrant.losses.proper import ProperFocalLoss


def _focal_with(policy: Callable[[], GammaPolicy]) -> Callable[..., Loss]:
    """A factory of focal losses, each with a new policy: policies have state."""

    def make(**options: Any) -> Loss:
        return FocalLoss(gamma=policy(), **options)

    return make


def _scheduled(gammas: tuple[float, ...]) -> Callable[..., Loss]:
    """A factory of focal losses with scheduled gammas, changed at ``fractions`` or ``epochs``."""

    def make(
        *,
        fractions: Sequence[float] | None = None,
        epochs: Sequence[int] | None = None,
        **options: Any,
    ) -> Loss:
        return FocalLoss(
            gamma=ScheduledGamma(gammas, fractions=fractions, epochs=epochs), **options
        )

    return make


def check_loss(name: str, entry: Any) -> None:
    """Refuse what does not make losses; a gamma policy is only a part of one."""
    if not callable(entry) or (isinstance(entry, type) and issubclass(entry, GammaPolicy)):
        raise CalibrantError(
            f"expected a function or class that makes a Loss, got {_inputs.described(entry)}. "
            "Write a function that returns FocalLoss(gamma=...) for a policy"
        )


LOSSES: Registry[Callable[..., Loss]] = Registry(
    "loss",
    {
        "ce": CrossEntropyLoss,
        "label-smoothing": partial(CrossEntropyLoss, label_smoothing=0.1),
        "brier": BrierLoss,
        "mmce": MMCELoss,
        "mmce-weighted": partial(MMCELoss, weighted=True),
        "mmce-published": partial(MMCELoss, published=True),
        "fl-1": partial(FocalLoss, gamma=1.0),
        "fl-2": partial(FocalLoss, gamma=2.0),
        "fl-3": partial(FocalLoss, gamma=3.0),
        "fl-5": partial(FocalLoss, gamma=5.0),
        "fl-7": partial(FocalLoss, gamma=7.0),
        "fls-531": _scheduled((5.0, 3.0, 1.0)),
        "fls-532": _scheduled((5.0, 3.0, 2.0)),
        "fla-53": _focal_with(partial(SampleGamma, (0.19,), (5.0, 3.0))),
        "flsd-53": _focal_with(partial(SampleGamma, (0.2,), (5.0, 3.0), inclusive=False)),
        "fla-532": _focal_with(partial(SampleGamma, (0.19, 0.5), (5.0, 3.0, 2.0))),
        "adafocal": _focal_with(AdaFocal),
        "proper-focal": partial(ProperFocalLoss, gamma=2.0),
    },
    plugins="calibrant.losses",
    check=check_loss,
)
"""Factories of losses by name; they take options of the loss such as ``reduction`` and ``weight``.

>>> from calibrant.losses import LOSSES
>>> LOSSES["fla-53"](reduction="sum")
FocalLoss(
  reduction='sum'
  (gamma): SampleGamma(5 for p <= 0.19, else 3)
)
"""
