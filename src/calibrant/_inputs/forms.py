"""The forms in which scores come: one column, all classes, and frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._inputs.arrays import (
    as_array,
    dense,
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
    dense(array, kind)
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

    data, index = narwhal(given), _row_index(given)
    if isinstance(data, nw.Series):
        series = data

        def as_series(values: Array) -> Any:
            own = nw.new_series(series.name, values[:, 1], backend=series.implementation)
            return _with_index(own.to_native(), given)

        return replace(_positive(kind, series.to_numpy(), as_series), index=index)
    found = frame_scores(kind, given, classes)
    if found.columns is not None and len(found.columns) == 1:
        return replace(_positive(kind, found.values[:, 0], found.restored), index=index)
    return replace(found, values=unchecked_scores(found.values, kind))


def frame_scores(kind: str, given: Any, classes: Sequence[Any] | None) -> Scores:
    """The numbers of a frame, in the order of the ``classes`` of a fitted calibrator."""
    import narwhals.stable.v2 as nw

    data = narwhal(given)
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
    names = class_names(columns)
    order = None if len(columns) == 1 or classes is None else column_order(columns, classes)

    def as_frame(values: Array) -> Any:
        shown = values if order is None else values[:, np.argsort(order)]
        shown = shown[:, -len(columns) :]
        new = {name: shown[:, i] for i, name in enumerate(columns)}
        return _with_index(nw.from_dict(new, backend=data.implementation).to_native(), given)

    values = array if order is None else array[:, order]
    return Scores(kind, values, names, tuple(columns), _row_index(given), restored=as_frame)


def _with_index(made: Any, like: Any) -> Any:
    """``made`` with the row index of ``like``, which only pandas has."""
    if hasattr(like, "index") and hasattr(made, "set_axis"):
        return made.set_axis(like.index, axis=0)
    return made


def same_rows(scores: Any, **others: Any) -> None:
    """Refuse pandas objects whose row index is not that of the scores.

    The first of ``others`` with an index takes their place if they have none. A dict of columns has
    the indices of its columns.
    """
    name, index = "scores", scores.index if isinstance(scores, Scores) else _row_index(scores)
    for other, given in others.items():
        for column in given.values() if isinstance(given, Mapping) else [given]:
            own = _row_index(column)
            if index is None:
                name, index = other, own
            elif own is not None and not own.equals(index):
                raise CalibrantError(
                    f"{other} must have the row index of the {name}; found another. Align them, "
                    f"such as {other}.loc[{name}.index], or pass arrays"
                )


def _row_index(given: Any) -> Any:
    """The row index of a frame or series of pandas, else None."""
    index = getattr(given, "index", None)
    return index if hasattr(index, "equals") else None


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
    plain = without_prefix(columns)
    numbered = all(str(name) == str(i) for i, name in enumerate(plain))
    return None if numbered else plain


def without_prefix(columns: Sequence[Hashable], prefixed: re.Pattern[str] = PREFIXED) -> Classes:
    """Names of columns without a prefix such as ``prob_``, if all of them have it."""
    matches = [prefixed.fullmatch(str(name)) for name in columns]
    names = tuple(m[1] for m in matches if m)
    return names if len(names) == len(columns) else tuple(columns)


def column_order(columns: Sequence[Hashable], classes: Sequence[Any]) -> npt.NDArray[np.intp]:
    """The position of each class among ``columns``; their own order if no name is a class."""
    named = without_prefix(columns)
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
