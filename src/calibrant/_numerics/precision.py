"""Double precision inside, the type of the logits outside.

A curve that jumps, a steep one, or a large factor of a logit makes the last digit of single
precision large again: two ways to sum the same row would give different probabilities. So most
maps are computed in double precision, and their result is rounded once, at the end.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from calibrant._types import Array

WITHOUT_FLOAT64 = ("mps",)
"""Devices that have no double precision."""


def has_float64(array: Array) -> bool:
    """Whether the device that ``array`` is on has double precision."""
    return getattr(device(array), "type", None) not in WITHOUT_FLOAT64


def widened(logits: Array) -> Array:
    """Logits of at least double precision, where their device has it."""
    xp = array_namespace(logits)
    if xp.finfo(logits.dtype).bits >= 64 or not has_float64(logits):
        return logits
    return xp.astype(logits, xp.float64)


def narrowed(values: Array, like: Array) -> Array:
    """Probabilities, or their logarithms, in the type of ``like``; what is finite stays so."""
    if values.dtype == like.dtype:
        return values
    xp = array_namespace(values)
    lowest = float(xp.finfo(like.dtype).min)
    bounded = xp.where(values == -float("inf"), values, xp.clip(values, min=lowest))
    return xp.astype(bounded, like.dtype)
