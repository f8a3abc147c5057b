"""Checks of multi-label arrays: one probability and one 0/1 label for every sample and label."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._inputs.arrays import (
    as_array,
    as_numpy,
    booleans,
    dense,
    floating,
    refuse,
    sum_tolerance,
    unit_interval,
)
from calibrant._inputs.forms import (
    Classes,
    Scores,
    class_names,
    frame_scores,
    is_of_frames,
    narwhal,
    without_prefix,
)
from calibrant._inputs.values import described, one_of, shown
from calibrant.errors import CalibrantError

LABEL = re.compile(r"(?:labels?|target|y|y_true)_(.+)")
"""A column named for its label: ``label_cat``."""
MANY = 20
"""Fewer logits than this may all be between 0 and 1 by chance."""


def label_scores(
    logits: Any, probs: Any, *, positional: Any = None, fitted: Classes | None = None
) -> Scores:
    """Checked scores: labels on the last axis, finite or in [0, 1].

    Scores without a name are logits, and refused if there are many and all could be probabilities.
    The columns of a frame are matched by name to ``fitted``, the labels of a calibrator.
    """
    if positional is not None:
        one_of(**{"scores by position": positional, "logits": logits, "probs": probs})
        logits = positional
    kind, given = one_of(logits=logits, probs=probs)
    found = frame_scores(kind, given, fitted) if _is_frame(given) else None
    given = given if found is None else found.values
    dense(given, kind)
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
    return Scores(kind, array) if found is None else replace(found, values=array)


def _is_frame(given: Any) -> bool:
    """Whether an object comes from a library of frames and is no series."""
    return is_of_frames(given) and not hasattr(narwhal(given), "to_list")


def label_matrix(values: Any, of: Scores) -> tuple[npt.NDArray[np.bool_], Classes | None]:
    """0 or 1 for every sample and label, and what the labels are called in a frame.

    The columns of a frame are matched by name to those of the scores. One-hot labels of exclusive
    classes are refused.
    """
    if values is None:
        raise CalibrantError("labels are needed; found none. Pass 0 or 1 for each sample and label")
    kind, scores, names = of.kind, of.values, of.names
    if _is_frame(values):
        data: Any = narwhal(values)
        if not hasattr(data, "iter_columns"):
            raise CalibrantError(
                f"labels must be an array or a frame in memory; found {described(values)}. "
                "Collect it first"
            )
        columns = tuple(data.columns)
        order = _order_of_labels(columns, of)
        if names is None:
            plain = class_names(without_prefix(columns, LABEL))
            names = None if plain is None else tuple(plain[i] for i in order)
        arrays = [column.to_numpy() for column in data.iter_columns()]
        values = np.column_stack([arrays[i] for i in order])
    values, shape = as_array(values, "labels"), tuple(scores.shape)
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
    return matrix, names


def _order_of_labels(columns: Classes, of: Scores) -> list[int]:
    """The column of labels for each label of the scores: by name, or as they come if the columns of
    either have no names.
    """
    found = [list(map(str, each)) for each in (columns, without_prefix(columns, LABEL))]
    known = of.names or tuple(range(of.values.shape[-1]))
    for names in (of.columns or known, known):
        own = list(map(str, names))
        for each in found:
            if sorted(each) == sorted(own):
                return [each.index(name) for name in own]
    numbered = class_names(without_prefix(columns, LABEL)) is None
    if of.names is not None and not numbered:
        raise CalibrantError(
            f"the columns of labels must be those of {of.kind}, {shown(of.names)}; found "
            f"{shown(columns)}. Rename them, or pass arrays in the same order"
        )
    return list(range(len(columns)))


def same_label_names(fitted: Any, found: Any) -> None:
    """Refuse label names that differ from those of the fit, or come in another order."""
    if fitted is not None and found is not None and tuple(fitted) != tuple(found):
        k = next((k for k, (a, b) in enumerate(zip(fitted, found, strict=False)) if a != b), 0)
        raise CalibrantError(
            f"labels must have the names and the order of the fit; found {found[k]!r} where "
            f"{fitted[k]!r} was. Reorder the columns"
        )
