"""Checks that several losses share."""

from __future__ import annotations

from typing import Any

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError


def label_smoothing(value: Any) -> float:
    """Check a fraction of a target's mass."""
    number = _inputs.finite_number(value, "label_smoothing")
    if not 0.0 <= number <= 1.0:
        raise CalibrantError(
            f"label_smoothing must lie between 0 and 1; found {number:g}. The papers use 0.1"
        )
    return number


def soft_targets(logits: Array, target: Array, ignored: int) -> None:
    """Check targets that are probabilities, which ``ignore_index`` cannot mark."""
    if tuple(logits.shape) != tuple(target.shape):
        raise CalibrantError(
            f"targets that are probabilities must have the shape of the logits, "
            f"{tuple(logits.shape)}; found {tuple(target.shape)}. "
            "Pass class indices as integers: target.long()"
        )
    if ignored >= 0:
        raise CalibrantError(
            "ignore_index cannot be combined with targets that are probabilities; found "
            f"{ignored}. Leave ignore_index out, and give ignored rows no mass"
        )
