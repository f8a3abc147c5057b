"""Double precision inside, the type of the logits outside.

A step, a steep curve or a large coefficient of a logit amplifies the rounding errors of single
precision: two ways to sum the same row would give different probabilities. So most maps are
computed in double precision and rounded once, at the end.
"""

from __future__ import annotations

from calibrant._array_api import array_namespace, device
from calibrant._types import Array

WITHOUT_FLOAT64 = ("mps",)
"""Devices without double precision."""


def has_float64(array: Array) -> bool:
    """Whether the device that ``array`` is on has double precision."""
    return getattr(device(array), "type", None) not in WITHOUT_FLOAT64


def widened(logits: Array) -> Array:
    """Logits in at least double precision, if their device has it."""
    xp = array_namespace(logits)
    if xp.finfo(logits.dtype).bits >= 64 or not has_float64(logits):
        return logits
    return xp.astype(logits, xp.float64)


def narrowed(values: Array, like: Array) -> Array:
    """Probabilities or their logarithms in the type of ``like``; finite values stay finite."""
    if values.dtype == like.dtype:
        return values
    xp = array_namespace(values)
    lowest = float(xp.finfo(like.dtype).min)
    bounded = xp.where(values == -float("inf"), values, xp.clip(values, min=lowest))
    return xp.astype(bounded, like.dtype)
