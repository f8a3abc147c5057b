"""Checks of multi-label arrays: one probability and one 0/1 label for every sample and label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._inputs.arrays import (
    as_numpy,
    booleans,
    floating,
    refuse,
    sum_tolerance,
    unit_interval,
)
from calibrant._inputs.values import one_of
from calibrant._types import Array
from calibrant.errors import CalibrantError

MANY = 20
"""Fewer logits than this may all be between 0 and 1 by chance."""


def label_scores(logits: Any, probs: Any, *, positional: Any = None) -> tuple[str, Array]:
    """``"logits"`` or ``"probs"``, and the array: labels on the last axis, finite or in [0, 1].

    Scores without a name are logits, and refused if there are many and all could be probabilities.
    """
    if positional is not None:
        one_of(**{"scores by position": positional, "logits": logits, "probs": probs})
        logits = positional
    kind, given = one_of(logits=logits, probs=probs)
    array = unit_interval(given, kind) if kind == "probs" else floating(given, kind)
    if len(array.shape) < 2 or array.shape[-1] == 0:
        raise CalibrantError(
            f"{kind} must have the labels on the last axis, shape (samples, labels); found shape "
            f"{tuple(array.shape)}. Add an axis: {kind}[:, None] for a single label"
        )
    if kind == "logits":
        xp = array_namespace(array)
        refuse(
            ~xp.isfinite(array),
            "logits of labels must be finite; found {found} in {where}. "
            "Look for a division by zero or an overflow in the model, or pass probs=",
            found=array,
        )
        many = positional is not None and math.prod(array.shape) >= MANY
        if many and bool(xp.all((array >= 0) & (array <= 1))):
            raise CalibrantError(
                "logits must be scores before the sigmoid; found only numbers between 0 and 1, "
                "which look like probabilities. Pass them by name: probs=, or logits= if they "
                "really are logits"
            )
    return kind, array


def label_matrix(values: Any, kind: str, scores: Array) -> npt.NDArray[np.bool_]:
    """0 or 1 for every sample and label; one-hot labels of exclusive classes are refused."""
    if values is None:
        raise CalibrantError("labels are needed; found none. Pass 0 or 1 for each sample and label")
    shape = tuple(scores.shape)
    found = tuple(np.shape(as_numpy(values)))
    if found != shape:
        raise CalibrantError(
            f"labels must have the shape of {kind}, {shape}: 0 or 1 for each sample and label; "
            f"found shape {found}. Pass one column for each label, in the order of {kind}"
        )
    matrix = booleans(values, "labels")
    numbers = as_numpy(scores)
    one_hot = shape[-1] > 1 and bool((matrix.sum(axis=-1) == 1).all())
    if kind == "probs" and one_hot:
        off = np.abs(numbers.sum(axis=-1) - 1.0)
        if bool((off <= sum_tolerance(scores)).all()):
            raise CalibrantError(
                "labels must be independent of each other; found rows of probs that sum to 1 and "
                "labels with a single 1. These are classes: pass labels.argmax(axis=1)"
            )
    return matrix


def same_label_names(fitted: Any, found: Any) -> None:
    """Refuse label names that differ from those of the fit, or come in another order."""
    if fitted is not None and found is not None and tuple(fitted) != tuple(found):
        k = next((k for k, (a, b) in enumerate(zip(fitted, found, strict=False)) if a != b), 0)
        raise CalibrantError(
            f"labels must have the names and the order of the fit; found {found[k]!r} where "
            f"{fitted[k]!r} was. Reorder the columns"
        )
