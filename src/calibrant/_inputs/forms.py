"""The forms in which scores and labels come: one column, frames, and labels of any type."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace, is_array_api_obj
from calibrant._inputs.arrays import (
    as_array,
    as_numpy,
    floating,
    labels,
    logits,
    probs,
    refuse,
    sum_tolerance,
    unchecked_scores,
)
from calibrant._inputs.values import described, refusing
from calibrant._types import Array
from calibrant.errors import CalibrantError

Classes: TypeAlias = tuple[Hashable, ...]
"""The label of each class, in the order of the columns."""

FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")
"""Libraries whose frames and series narwhals reads."""
SHOWN = 5
"""Most names in a message."""
PREFIXED = re.compile(r"(?:probs?|probability|logits?|scores?|p)_(.+)")
"""A column named for its class: ``prob_cat``."""


# --- scores ---


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
    if _is_of_frames(given):
        return _from_narwhals(kind, given, classes)
    array = as_array(given, kind)
    if array.ndim == 1 and (classes is None or len(classes) == 2):
        return _positive(kind, array, lambda values: values[..., 1])
    if array.ndim == 2 and array.shape[1] == 1:
        return _positive(kind, array[:, 0], lambda values: values[..., 1:])
    return Scores(kind, unchecked_scores(array, kind), given=array)


def refuse_probabilities(
    given: Scores, remedy: str = "Pass them by name: probs=, or logits= if they really are logits"
) -> None:
    """Refuse logits that are surely probabilities."""
    values = given.values
    xp = array_namespace(values)
    if values.ndim == 0 or min(values.shape) == 0:
        return
    column = values[..., 1] if given.one_column else values
    first = column[(*[0] * (values.ndim - 1), ...)]
    if not bool(xp.all((first >= 0) & (first <= 1))):
        return  # the usual case, without a pass over all rows
    inside = bool(xp.all((column >= 0) & (column <= 1)))
    if inside and (given.one_column or bool(xp.all(xp.abs(xp.sum(column, axis=-1) - 1) <= 1e-3))):
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


def _narwhals(given: Any) -> Any:
    """A frame or series of narwhals; anything else as it is."""
    import narwhals.stable.v2 as nw

    if hasattr(given, "to_pylist") and not hasattr(given, "num_columns"):  # PyArrow's arrays
        import pyarrow as pa

        given = given if isinstance(given, pa.ChunkedArray) else pa.chunked_array([given])
    with refusing("the frame cannot be read", "Give every column a name of its own"):
        return nw.from_native(given, allow_series=True, pass_through=True)


def _is_of_frames(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] in FRAMES


def _from_narwhals(kind: str, given: Any, classes: Sequence[Any] | None) -> Scores:
    import narwhals.stable.v2 as nw

    data = _narwhals(given)
    if isinstance(data, nw.Series):
        series = data

        def as_series(values: Array) -> Any:
            own = nw.new_series(series.name, values[:, 1], backend=series.implementation)
            return _with_index(own.to_native(), given)

        index = getattr(given, "index", None)
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
        index = getattr(given, "index", None)
        return replace(_positive(kind, array[:, 0], as_frame), index=index)
    values = unchecked_scores(array if order is None else array[:, order], kind)
    index = getattr(given, "index", None)
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


# --- labels ---


def class_indices(
    given: Any,
    of: Scores,
    *,
    classes: Any = None,
    positive: Any = None,
    ignored: int | None = None,
) -> tuple[Array, Classes]:
    """Labels of any type as indices into the classes, and the classes.

    Whole numbers are indices, unless ``classes`` or the columns of a frame name the classes. Other
    labels are the names of columns, or, if those have no names, are sorted, as in scikit-learn.
    """
    n_classes = of.values.shape[-1]
    if given is None:
        raise CalibrantError("labels are needed; found none. Pass one label for each row")
    if positive is not None and not of.one_column:
        raise CalibrantError(
            f"positive= is for one column of scores; found {n_classes} columns. Leave it out, or "
            "pass the scores of the positive class alone"
        )
    if classes is not None:
        classes = _distinct(classes, n_classes)
    _refuse_other_index(given, of)
    found = _label_array(given)
    whole = _is_whole(found)
    if of.one_column and positive is not None and classes is not None:
        others = [each for each in classes if each != positive]
        classes = (others[0], _one_of_labels(positive, classes)) if len(others) == 1 else None
        _one_of_labels(positive, () if classes is None else classes)
    elif of.one_column and (positive is not None or classes is None):
        classes = _classes_of_one_column(found, positive, ignored)
    elif classes is None and of.names is not None:
        fitting = [names for names in (of.names, of.columns) if names and _among(found, names)]
        classes = fitting[0] if fitting else (None if whole else of.names)
    elif classes is None and n_classes == 2 and _is_bool(found):
        classes = (False, True)
    elif classes is None and not whole:
        classes = sorted_classes(_distinct_labels(found, None), n_classes)
    if classes is None or classes == tuple(range(n_classes)):
        numbers = as_numpy(found).astype(np.int64) if whole else found
        return labels(numbers, of.values, ignored=ignored), (
            of.names or classes or tuple(range(n_classes))
        )
    indices = _places(found, classes, ignored)
    return labels(indices, of.values, ignored=ignored), classes


def _label_array(given: Any) -> Array:
    """Labels as an array of numbers, text, or (hashable) objects of one type."""
    if _is_of_frames(given):
        import narwhals.stable.v2 as nw

        series = _narwhals(given)
        if isinstance(series, nw.DataFrame):
            if len(series.columns) != 1:
                raise CalibrantError(
                    f"labels must be one column; found {len(series.columns)} columns "
                    f"({shown(series.columns)}). Select the column of the labels"
                )
            series = series[series.columns[0]]
        if isinstance(series, nw.Series):
            given = series.to_list() if series.is_null().any() else series.to_numpy()
        else:  # such as a pandas Index
            given = np.asarray(given)
    if is_array_api_obj(given) and not isinstance(given, np.ma.MaskedArray):
        array = given
    elif isinstance(given, np.ma.MaskedArray):
        array = as_array(given, "labels")
    else:
        array = _listed(given)
    if isinstance(array, np.ndarray) and array.dtype == object:
        _refuse_mixture(array.reshape(-1))
        if array.size and isinstance(array.flat[0], bool | np.bool_):
            array = array.astype(np.bool_)
    return array


def _listed(given: Any) -> npt.NDArray[Any]:
    """A list of labels, whose types NumPy would hide: it turns [1, "a"] into text."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty((), dtype=object)
    if array.dtype.kind in "US" or array.ndim == 0 or array.dtype == object:
        entries = list(given) if isinstance(given, list | tuple) else []
        array = np.empty(len(entries), dtype=object)
        array[:] = entries
    return array


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):  # pandas.NA is neither equal nor unequal to itself
        return True


def _refuse_mixture(values: npt.NDArray[Any]) -> None:
    for row, value in enumerate(values):
        if _is_missing(value):
            raise CalibrantError(
                f"labels must not be missing; found {value} in row {row}. Drop the rows without one"
            )
        if not isinstance(value, Hashable):
            raise CalibrantError(
                f"labels must be hashable; found {described(value)} in row {row}. "
                "Pass numbers or names"
            )
    kinds = sorted({type(value).__name__ for value in values})
    if len(kinds) > 1:
        raise CalibrantError(
            f"labels must be of one type; found {' and '.join(kinds)}. Convert them to one"
        )


def _is_whole(values: Array) -> bool:
    """Whether labels are whole numbers or booleans, of any dtype; fractions are refused."""
    xp = array_namespace(values) if is_array_api_obj(values) else np
    if isinstance(values, np.ndarray) and values.dtype.kind not in "fiub":
        missing = values.dtype.kind == "M" and bool(np.isnat(values).any())
        if values.dtype.kind == "c" or missing:
            raise CalibrantError(
                f"labels must be whole numbers or names, and not missing; found {values.dtype}. "
                "Drop the rows without a label"
            )
        return False
    if xp.isdtype(values.dtype, "real floating"):
        refuse(
            values != xp.round(values),  # NaN too
            "labels must be whole numbers or names; found {found:g} in {where}. "
            "Pass class indices 0..K-1, and drop rows without a label",
            found=values,
        )
        return True
    return bool(xp.isdtype(values.dtype, ("integral", "bool")))


def _distinct_labels(values: Array, ignored: int | None) -> list[Any]:
    flat = as_numpy(values).reshape(-1)
    found = list(dict.fromkeys(flat.tolist())) if flat.dtype == object else np.unique(flat).tolist()
    kept = [each for each in found if ignored is None or each != ignored]
    try:
        return sorted(kept)
    except TypeError:  # hashable, but without an order
        return sorted(kept, key=str)


def _classes_of_one_column(values: Array, positive: Any, ignored: int | None) -> Classes | None:
    numbers = as_numpy(values)
    small = numbers.dtype.kind in "iuf" and numbers.size > 0 and numbers.min() >= 0
    if positive is None and small and numbers.max() <= 1:
        return None
    return two_classes(_distinct_labels(values, ignored), positive)


def two_classes(found: Sequence[Any], positive: Any) -> Classes | None:
    """The other class and the positive one of the labels ``found``; None for 0 and 1."""
    if len(found) > 2:
        raise CalibrantError(
            f"one column of scores needs labels of two classes; found {shown(found)}. Pass one "
            "column for each class"
        )
    if positive is None:
        if set(found) <= {0, 1}:
            return None
        if set(found) <= {-1, 1}:
            return (-1, 1)
        raise CalibrantError(
            f"the positive class is not known; found the labels {shown(found)}. "
            f"Name it: positive={found[-1]!r} (--positive on the command line)"
        )
    if isinstance(positive, Hashable) and positive in (0, 1) and set(found) <= {0, 1}:
        return (1 - int(positive), int(positive))
    _one_of_labels(positive, found)
    others = [each for each in found if each != positive]
    return (others[0] if others else f"not {positive}", positive)


def sorted_classes(found: Sequence[Any], n_classes: int) -> Classes:
    """The sorted labels ``found``, if there is one for each column."""
    if len(found) != n_classes:
        raise CalibrantError(
            f"{n_classes} columns need {n_classes} different labels to know which is which; found "
            f"{len(found)} ({shown(found)}). Name the columns after the classes, or in order: "
            "classes=[...]"
        )
    return tuple(found)


def _among(values: Array, names: Classes) -> bool:
    folded = str.lower if _is_bool(values) else str
    known = {folded(str(name)) for name in names}
    return all(folded(str(each)) in known for each in _distinct_labels(values, None))


def _is_bool(values: Array) -> bool:
    return "bool" in str(getattr(values, "dtype", ""))


def _one_of_labels(positive: Any, found: Sequence[Any]) -> Any:
    if not isinstance(positive, Hashable) or positive not in found:
        raise CalibrantError(
            f"positive must be one of the labels, {shown(found)}; found {described(positive)}. "
            "Check its spelling and type"
        )
    return positive


def _refuse_other_index(given: Any, of: Scores) -> None:
    """Refuse labels whose pandas index is not that of the scores."""
    index = getattr(given, "index", None)
    if index is None or of.index is None or not hasattr(index, "equals"):
        return
    if index.equals(of.index):
        return
    raise CalibrantError(
        "labels must have the row index of the scores; found another. Align them, such as "
        "labels.loc[scores.index], or pass arrays"
    )


def _places(values: Array, classes: Classes, ignored: int | None) -> npt.NDArray[np.int64]:
    array = as_numpy(values)
    entries = array.reshape(-1).tolist()
    place: dict[Any, int] = {each: i for i, each in enumerate(classes)}
    if not all(each in place for each in _distinct_labels(values, ignored)):
        # The columns of a frame are named in text, and their labels may be numbers.
        folded = str.lower if _is_bool(values) else str
        place |= {folded(str(each)): i for i, each in enumerate(classes)}
        entries = [each if each in place else folded(str(each)) for each in entries]
    if ignored is not None:
        place |= {ignored: ignored, str(ignored): ignored}
    try:
        indices = [place[each] for each in entries]
    except KeyError:
        row = next(row for row, each in enumerate(entries) if each not in place)
        raise CalibrantError(
            f"labels must be among the classes {shown(classes)}; found {entries[row]!r} in row "
            f"{row}. Correct it, or name the columns in order: classes=[...]"
        ) from None
    return np.array(indices, dtype=np.int64).reshape(array.shape)


def _distinct(classes: Sequence[Any], n_classes: int) -> Classes:
    try:
        given = tuple(as_numpy(classes).tolist() if is_array_api_obj(classes) else classes)
        distinct = len(set(given))
    except TypeError:
        given, distinct = (), 0
    if len(given) != n_classes or distinct != n_classes:
        raise CalibrantError(
            f"classes must be one different label for each of the {n_classes} columns; found "
            f"{shown(given)}. Name every column once, in order"
        )
    return given


def labels_of(classes: Classes, indices: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """The labels of class indices; of type object if they are no numbers or text."""
    table = np.empty(len(classes), dtype=object)
    table[:] = classes
    plain = all(isinstance(each, str | int | float) for each in classes)
    return (np.array(classes) if plain else table)[indices]


def shown(names: Sequence[Any]) -> str:
    """The first few names, for a message."""
    text = ", ".join(repr(name) for name in list(names)[:SHOWN])
    return text if len(names) <= SHOWN else f"{text}, ... ({len(names)} in all)"
