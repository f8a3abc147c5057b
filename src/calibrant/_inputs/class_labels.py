"""Labels of any type as class indices, and the classes that they name."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace, is_array_api_obj
from calibrant._inputs.arrays import as_array, as_numpy, labels, refuse
from calibrant._inputs.forms import Classes, Scores, is_of_frames, narwhal
from calibrant._inputs.values import described, is_missing, shown
from calibrant._types import Array
from calibrant.errors import CalibrantError

WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
"""Text that is a whole number."""
CORRECTNESS = ("wrong", "correct")
"""The classes of a confidence: whether the answer is wrong or correct."""


def class_indices(
    given: Any,
    of: Scores,
    *,
    classes: Any = None,
    positive: Any = None,
    ignored: int | None = None,
) -> tuple[Array, Classes]:
    """Labels of any type as indices into the classes, and the classes.

    Whole numbers are indices, unless ``classes`` or the columns of a frame name the classes: all
    labels are such names, or the columns are called after numbers, other than 0, 1, ... in order.
    Other labels are the names of columns, or, if those have no names, are sorted, as in
    scikit-learn.
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
        classes = distinct_classes(classes, n_classes)
    found = _label_array(given)
    whole = _is_whole(found)
    if whole:
        found = _whole_numbers(found)
    if of.one_column and positive is not None and classes is not None:
        _check_positive(positive, classes)
        classes = (next(each for each in classes if each != positive), positive)
    elif of.one_column and (positive is not None or classes is None):
        classes = _classes_of_one_column(found, positive, ignored)
    elif classes is None and of.names is not None:
        numbered = whole and _are_numbers(of.names)
        if numbered and _is_bool(found):
            found = found.astype(np.int64)
        fitting = [names for names in (of.names, of.columns) if names and _among(found, names)]
        if not fitting and _is_bool(found):
            raise CalibrantError(
                f"labels must be names of the columns, {shown(of.names)}; found truth values. Name "
                "the columns False and True, or pass the label of each row"
            )
        classes = fitting[0] if fitting else (None if whole and not numbered else of.names)
    elif classes is None and n_classes == 2 and _is_bool(found):
        classes = (False, True)
    elif classes is None and not whole:
        classes = sorted_classes(_distinct_labels(found, None), n_classes)
    if classes is None or classes == tuple(range(n_classes)):
        numbers = found.astype(np.int64, copy=False) if whole else found
        return labels(numbers, of.values, ignored=ignored), (
            of.names or classes or tuple(range(n_classes))
        )
    indices = _places(found, classes, ignored)
    return labels(indices, of.values, ignored=ignored), classes


def _label_array(given: Any) -> Array:
    """Labels as an array of numbers, text, or (hashable) objects of one type."""
    if is_of_frames(given):
        import narwhals.stable.v2 as nw

        series = narwhal(given)
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
    if isinstance(given, np.ma.MaskedArray):
        given = as_array(given, "labels")  # which refuses it
    array = given if is_array_api_obj(given) else _listed(given)
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


def _refuse_mixture(values: npt.NDArray[Any]) -> None:
    for row, value in enumerate(values):
        if not isinstance(value, Hashable):
            raise CalibrantError(
                f"labels must be hashable; found {described(value)} in row {row}. "
                "Pass numbers or names"
            )
        if is_missing(value):
            raise CalibrantError(
                f"labels must not be missing; found {value} in row {row}. Drop the rows without one"
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


def _whole_numbers(values: Array) -> npt.NDArray[Any]:
    """Whole numbers as int64; booleans as they are."""
    array = as_numpy(values)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind == "f" or array.dtype == np.uint64:
        refuse(
            np.abs(array) >= np.float64(2**63),
            "labels must be whole numbers of 64 bits, or names; found {found:g} in {where}. "
            "Pass class indices 0..K-1, and drop rows without a label",
            found=array,
        )
    return array.astype(np.int64, copy=False)


def _are_numbers(names: Classes) -> bool:
    """Whether every class is called after a whole number."""
    return all(WHOLE_NUMBER.fullmatch(str(name)) for name in names)


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
            f"one column of scores needs labels of two classes; found {shown(found)}. "
            "Correct the labels, or pass one column for each class"
        )
    kind = bool if found and isinstance(found[0], bool) else int
    if positive is None:
        if set(found) <= {0, 1}:
            return (False, True) if kind is bool else None
        if set(found) <= {-1, 1}:
            return (-1, 1)
        raise CalibrantError(
            f"the positive class is not known; found the labels {shown(found)}. "
            f"Name it: positive={found[-1]!r} (--positive on the command line)"
        )
    if isinstance(positive, Hashable) and positive in (0, 1) and set(found) <= {0, 1}:
        return (kind(1 - positive), kind(positive))
    _check_positive(positive, found)
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


def _check_positive(positive: Any, found: Sequence[Any]) -> None:
    """Refuse a positive class that is not among the labels."""
    if not isinstance(positive, Hashable) or positive not in found:
        raise CalibrantError(
            f"positive must be one of the labels, {shown(found)}; found {described(positive)}. "
            "Check its spelling and type"
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
        remedy = "or name the columns in order: classes=[...]"
        if array.dtype.kind == "i" and _are_numbers(classes):
            remedy = f"or, if labels are positions of columns, pass classes=range({len(classes)})"
        raise CalibrantError(
            f"labels must be among the classes {shown(classes)}; found {entries[row]!r} in row "
            f"{row}. Correct it, {remedy}"
        ) from None
    return np.array(indices, dtype=np.int64).reshape(array.shape)


def distinct_classes(classes: Any, n_classes: int) -> Classes:
    """One different label for each column."""
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
