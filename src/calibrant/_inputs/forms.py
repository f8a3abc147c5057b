"""The forms in which scores come: one column, all classes, and frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._inputs.arrays import (
    as_array,
    floating,
    logits,
    probs,
    refuse,
    sum_tolerance,
    unchecked_scores,
)
from calibrant._inputs.values import described, refusing, shown
from calibrant._types import Array
from calibrant.errors import CalibrantError

Classes: TypeAlias = tuple[Hashable, ...]
"""The label of each class, in the order of the columns."""

FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")
"""Libraries whose frames and series narwhals reads."""
SUM_TOLERANCE = 1e-3
"""How far from 1 rows may sum to look like probabilities."""
PREFIXED = re.compile(r"(?:probs?|probability|logits?|scores?|p)_(.+)")
"""A column named for its class: ``prob_cat``."""


@dataclass(frozen=True)
class Scores:
    """Scores of every class, and the form in which they came."""

    kind: str
    """``"logits"`` or ``"probs"``"""
    values: Array
    """Classes on the last axis; not checked."""
    names: Classes | None = None
    """What the columns are called, if they are called after classes."""
    columns: Classes | None = None
    """The names of the columns of a frame, as they are."""
    index: Any = None
    """The row index of a frame or series of pandas."""
    one_column: bool = False
    """Whether only the score of the positive class was given."""
    given: Array = None
    """The array before its conversion, whose type says how far a sum may be from 1."""
    restored: Callable[[Array], Any] = lambda values: values
    """Results for ``values`` in the form in which the scores came."""

    def checked(self) -> Array:
        """The values, if they can be used."""
        if self.one_column and self.kind == "probs":
            refuse(
                ~((self.values[..., 1] >= 0) & (self.values[..., 1] <= 1)),
                "probs of the positive class must be between 0 and 1; found {found:.4g} in "
                "{where}. If these are scores before the sigmoid, pass logits=",
                found=self.values[..., 1],
            )
        if self.kind == "logits":
            return logits(self.values)
        return probs(self.values, tolerance=self.tolerance)

    @property
    def tolerance(self) -> float:
        """How far the sum of a row of probabilities may be from 1."""
        return sum_tolerance(self.values if self.given is None else self.given)


def scores(kind: str, given: Any, classes: Any = None) -> Scores:
    """``given`` with one column for each class.

    A one-dimensional array, a series, or a single column holds the positive class. ``classes`` are
    those of a fitted calibrator, to which the columns of a frame are matched by name; a
    one-dimensional array is then a single row if there are more than two.
    """
    if is_of_frames(given):
        return _from_narwhals(kind, given, classes)
    array = as_array(given, kind)
    if array.ndim == 1 and (classes is None or len(classes) == 2):
        return _positive(kind, array, lambda values: values[..., 1])
    if array.ndim == 2 and array.shape[1] == 1:
        return _positive(kind, array[:, 0], lambda values: values[..., 1:])
    return Scores(kind, unchecked_scores(array, kind), given=array)


def look_like_probs(values: Array, *, one_column: bool = False) -> bool:
    """Whether every row could be probabilities: between 0 and 1, and a sum of 1."""
    xp = array_namespace(values)
    inside = bool(xp.all((values >= 0) & (values <= 1)))
    if one_column or not inside:
        return inside
    return bool(xp.all(xp.abs(xp.sum(values, axis=-1) - 1) <= SUM_TOLERANCE))


def refuse_probabilities(
    given: Scores, remedy: str = "Pass them by name: probs=, or logits= if they really are logits"
) -> None:
    """Refuse logits that look like probabilities."""
    if given.values.ndim == 0 or min(given.values.shape) == 0:
        return
    column = given.values[..., 1] if given.one_column else given.values
    first = column[(*[0] * (given.values.ndim - 1), ...)]
    # The first row settles it for most logits, without a pass over all.
    if look_like_probs(first, one_column=given.one_column) and look_like_probs(
        column, one_column=given.one_column
    ):
        found = "one column between 0 and 1" if given.one_column else "rows that sum to 1"
        raise CalibrantError(
            f"logits must be scores before the softmax; found {found}, which look like "
            f"probabilities. {remedy}"
        )


def _positive(kind: str, column: Array, restored: Callable[[Array], Any]) -> Scores:
    """Two columns from the score of the positive class."""
    column = floating(column, kind)
    xp = array_namespace(column)
    other = 1 - column if kind == "probs" else xp.zeros_like(column)
    both = unchecked_scores(xp.stack([other, column], axis=-1), kind)
    return Scores(kind, both, one_column=True, restored=restored)


def narwhal(given: Any) -> Any:
    """A frame or series of narwhals; anything else as it is."""
    import narwhals.stable.v2 as nw

    if hasattr(given, "to_pylist") and not hasattr(given, "num_columns"):  # PyArrow's arrays
        import pyarrow as pa

        given = given if isinstance(given, pa.ChunkedArray) else pa.chunked_array([given])
    with refusing("the frame cannot be read", "Give every column a name of its own"):
        return nw.from_native(given, allow_series=True, pass_through=True)


def is_of_frames(given: Any) -> bool:
    """Whether an object comes from a library of frames."""
    return type(given).__module__.partition(".")[0] in FRAMES


def _from_narwhals(kind: str, given: Any, classes: Sequence[Any] | None) -> Scores:
    import narwhals.stable.v2 as nw

    data, index = narwhal(given), getattr(given, "index", None)
    if isinstance(data, nw.Series):
        series = data

        def as_series(values: Array) -> Any:
            own = nw.new_series(series.name, values[:, 1], backend=series.implementation)
            return _with_index(own.to_native(), given)

        return replace(_positive(kind, series.to_numpy(), as_series), index=index)
    if not isinstance(data, nw.DataFrame):
        raise CalibrantError(
            f"{kind} must be an array or a frame in memory; found {described(given)}. "
            "Collect or convert it first"
        )
    columns = list(data.columns)
    if not columns:
        raise CalibrantError(f"{kind} must have a column for each class; found none. Add them")
    _refuse_text(data, kind)
    array = np.column_stack([column.to_numpy() for column in data.iter_columns()])
    single = len(columns) == 1
    order = None if single or classes is None else column_order(columns, classes)

    def as_frame(values: Array) -> Any:
        shown = values if order is None else values[:, np.argsort(order)]
        shown = shown[:, -len(columns) :]
        new = {name: shown[:, i] for i, name in enumerate(columns)}
        return _with_index(nw.from_dict(new, backend=data.implementation).to_native(), given)

    if single:
        return replace(_positive(kind, array[:, 0], as_frame), index=index)
    values = unchecked_scores(array if order is None else array[:, order], kind)
    return Scores(kind, values, class_names(columns), tuple(columns), index, restored=as_frame)


def _with_index(made: Any, like: Any) -> Any:
    """``made`` with the row index of ``like``, which only pandas has."""
    if hasattr(like, "index") and hasattr(made, "set_axis"):
        return made.set_axis(like.index, axis=0)
    return made


def _refuse_text(data: Any, kind: str) -> None:
    for column in data.iter_columns():
        if not column.dtype.is_numeric():
            raise CalibrantError(
                f"{kind} must be a frame of numbers, one column for each class; found the column "
                f"{column.name!r} of {column.dtype}. Select the columns of the scores"
            )


def class_names(columns: Sequence[Hashable]) -> Classes | None:
    """The classes that columns are named after: cat, dog, or prob_cat, prob_dog.

    None if they are only numbered: prob_0, prob_1.

    Examples:
        >>> class_names(["prob_cat", "prob_dog"]), class_names(["logit_0", "logit_1"])
        (('cat', 'dog'), None)
    """
    if len(set(map(str, columns))) < len(columns):
        twice = next(name for name in columns if list(map(str, columns)).count(str(name)) > 1)
        raise CalibrantError(
            f"columns must have different names; found {str(twice)!r} twice. Keep one of them"
        )
    plain = _without_prefix(columns)
    numbered = all(str(name) == str(i) for i, name in enumerate(plain))
    return None if numbered else plain


def _without_prefix(columns: Sequence[Hashable]) -> Classes:
    """Names of columns without ``prob_``, if all of them have it."""
    matches = [PREFIXED.fullmatch(str(name)) for name in columns]
    names = tuple(m[1] for m in matches if m)
    return names if len(names) == len(columns) else tuple(columns)


def column_order(columns: Sequence[Hashable], classes: Sequence[Any]) -> npt.NDArray[np.intp]:
    """The position of each class among ``columns``; their own order if no name is a class."""
    named = _without_prefix(columns)
    place = {str(name): i for i, name in enumerate(named)}
    known = [place.get(str(each)) for each in classes]
    numbers = all(isinstance(each, int) for each in classes) or class_names(columns) is None
    if all(i is None for i in known) and numbers:
        return np.arange(len(columns))
    missing = [each for each, i in zip(classes, known, strict=True) if i is None]
    if missing or len(columns) != len(classes):
        raise CalibrantError(
            f"the columns must be the classes {shown(classes)}; found {shown(columns)}. "
            "Pass one column for each class"
        )
    return np.array(known, dtype=np.intp)
