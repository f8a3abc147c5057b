"""Recipes and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from calibrant._checks.values import whole_number


def finite_loss(loss: float, epoch: int) -> None:
    """A training loss that is still a number."""
    if not math.isfinite(loss):
        raise ArithmeticError(
            f"the training loss must stay finite; found {loss} in epoch {epoch}. Take a smaller "
            "learning rate, or shorten gradients with clip_norm"
        )


def rising_epochs(steps: Sequence[Any], epochs: int) -> None:
    """Epochs at which something changes, in order and within the run."""
    for step in steps:
        whole_number(step, "steps", allowed=range(1, 2**31))
    if any(a >= b for a, b in pairwise(steps)) or (steps and steps[-1] >= epochs):
        raise ValueError(
            f"steps must rise and stay below the {epochs} epochs of the run; found "
            f"{', '.join(map(str, steps))}. Leave out those that never come"
        )
