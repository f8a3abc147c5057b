"""Groups of rows: columns such as country and sex, whose values divide the samples."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._inputs.arrays import as_array, as_numpy
from calibrant._inputs.forms import is_of_frames, narwhal
from calibrant._inputs.values import described, is_missing, refusing, shown
from calibrant.errors import CalibrantError

MISSING_GROUP = "missing"
"""The group of the rows without a value."""
MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "null", "NULL", "None")
"""Texts of a missing label or score in a file; not nan, which is a number."""
ONE_COLUMN_NAME = "group"
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""Text that is sorted as a number."""
MOST_CELLS = 2**62
"""Combinations that can be numbered."""

Key = tuple[str, ...]
"""One value for each column."""


@dataclass(frozen=True)
class GroupColumn:
    """One column of groups."""

    name: str
    values: Key
    """Those that occur, in order: numbers by size, then text, then ``missing``."""
    index: npt.NDArray[np.intp]
    """The place of each row's value among them."""

    def __getitem__(self, which: Any) -> GroupColumn:
        return replace(self, index=self.index[which])


@dataclass(frozen=True)
class Groups:
    """The groups of some rows, by one or more columns."""

    columns: tuple[GroupColumn, ...]

    def __len__(self) -> int:
        return len(self.columns[0].index)

    def __getitem__(self, which: Any) -> Groups:
        return Groups(tuple(column[which] for column in self.columns))

    @property
    def names(self) -> Key:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def only(self, names: Sequence[str]) -> Groups:
        """The columns called ``names``, in their order."""
        by_name = {column.name: column for column in self.columns}
        _check_known(names, self.names)
        return Groups(tuple(by_name[name] for name in names))

    def cells(self) -> Iterator[tuple[Key, npt.NDArray[np.intp]]]:
        """The combinations of values that occur, in order, with the rows of each."""
        place, n_cells = np.zeros(len(self), dtype=np.int64), 1
        for column in self.columns:
            if n_cells * len(column.values) > MOST_CELLS:  # number only those that occur
                place, n_cells = np.unique(place, return_inverse=True)[1], len(self)
            place, n_cells = place * len(column.values) + column.index, n_cells * len(column.values)
        order = np.argsort(place, kind="stable")
        _, first = np.unique(place[order], return_index=True)
        for rows in np.split(order, first[1:]):
            yield tuple(column.values[column.index[rows[0]]] for column in self.columns), rows

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """The rows of all parts, concatenated."""
        return cls(
            tuple(
                _column(columns[0].name, np.concatenate([_texts(each) for each in columns]))
                for columns in zip(*(part.columns for part in parts), strict=True)
            )
        )


def groups(given: Any, n_rows: int, *, from_file: bool = False) -> Groups:
    """Check groups: a frame or a dict of columns, or one column, with ``n_rows`` entries.

    ``from_file`` says that blank text is no value.
    """
    if isinstance(given, Groups):
        found = given
    else:
        columns = _columns(given)
        found = Groups(tuple(_column_of(*each, from_file=from_file) for each in columns))
    if not found.columns:
        raise CalibrantError("groups must have at least one column; found none. Name one")
    for column in found.columns:
        if len(column.index) != n_rows:
            raise CalibrantError(
                f"groups must have one value for each of the {n_rows} rows; found "
                f"{len(column.index)} in {column.name}. Select the same rows"
            )
    return found


def groups_of_columns(columns: Mapping[str, Any], names: Sequence[str], n_rows: int) -> Groups:
    """The columns called ``names`` out of those of a file."""
    _check_known(names, list(columns))
    return groups({name: columns[name] for name in names}, n_rows, from_file=True)


def _check_known(names: Sequence[str], columns: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise CalibrantError(
            f"there is no column {missing[0]!r} to group by; found {shown(columns)}. "
            "Name a column of the frame or of the file"
        )


def described_group(names: Sequence[str], key: Key) -> str:
    """``country=DE, sex=f``"""
    return ", ".join(f"{name}={value}" for name, value in zip(names, key, strict=True))


def _columns(given: Any) -> Iterator[tuple[str, Any]]:
    """The columns by name."""
    if isinstance(given, Mapping):
        yield from ((str(name), values) for name, values in given.items())
        return
    data: Any = narwhal(given) if is_of_frames(given) else None
    if hasattr(data, "iter_columns"):
        yield from ((series.name, series.to_native()) for series in data.iter_columns())
    else:
        yield str(getattr(data, "name", None) or ONE_COLUMN_NAME), given


def _column_of(name: str, values: Any, *, from_file: bool) -> GroupColumn:
    """A column of any library. Those of Arrow, which files have, are encoded without a Python
    object for each row.
    """
    if type(values).__module__.partition(".")[0] != "pyarrow":
        return _column(name, _array(values), from_file=from_file)
    with refusing(f"the column {name} has no groups", "Name one of text, numbers or dates"):
        whole = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        encoded = whole if hasattr(whole, "dictionary") else whole.dictionary_encode()
    distinct = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    codes = encoded.indices.cast("int64").fill_null(len(distinct) - 1).to_numpy()
    used = np.flatnonzero(np.bincount(codes, minlength=len(distinct)))
    plain = _column(name, distinct[used], from_file=from_file)
    place = np.zeros(len(distinct), dtype=np.intp)
    place[used] = plain.index
    return replace(plain, index=place[codes])


def _array(values: Any) -> npt.NDArray[Any]:
    if is_of_frames(values):
        # polars' and pandas' categories become plain values
        data = narwhal(values)
        return np.asarray(data.to_list() if hasattr(data, "to_list") else data, dtype=object)
    if isinstance(values, np.ma.MaskedArray):
        return np.array(values.tolist(), dtype=object)  # None where masked
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, Sequence):
        return np.fromiter(values, dtype=object, count=len(values))
    return as_numpy(as_array(values, "groups"))


def _texts(column: GroupColumn) -> npt.NDArray[Any]:
    return np.asarray(column.values, dtype=object)[column.index]


def _column(name: str, values: npt.NDArray[Any], *, from_file: bool = False) -> GroupColumn:
    if values.ndim != 1:
        raise CalibrantError(
            f"groups must have one value for each row; found shape {values.shape} in {name}. Pass "
            "a frame, a dict of columns or one column: groups={'country': ..., 'sex': ...}"
        )
    if values.dtype == object:
        rows = values.tolist()
        texts = _names_of(name, rows, from_file=from_file)
        known = sorted(set(texts.values()), key=_order)
        place = {text: i for i, text in enumerate(known)}
        index = np.fromiter((place[texts[value]] for value in rows), np.intp, len(rows))
        return GroupColumn(name, tuple(known), index)
    distinct, index = np.unique(values, return_inverse=True)
    plain = _column(name, distinct.astype(object), from_file=from_file)
    return replace(plain, index=plain.index[index])


def _names_of(name: str, rows: list[Any], *, from_file: bool) -> dict[Any, str]:
    """What the group of each value is called."""
    other = next((value for value in rows if not isinstance(value, Hashable)), None)
    if other is not None:
        raise CalibrantError(
            f"groups must be text, numbers or dates; found {described(other)} in {name}. Pass one "
            "value for each row"
        )
    distinct = dict.fromkeys(rows)
    missing = [each for each in distinct if is_missing(each) or (from_file and _is_blank(each))]
    texts = {value: _text(value) for value in distinct} | dict.fromkeys(missing, MISSING_GROUP)
    if missing and sum(text == MISSING_GROUP for text in texts.values()) > len(missing):
        raise CalibrantError(
            f"the rows without a value are the group {MISSING_GROUP!r}; found a group of that name "
            f"in {name} too. Rename it, or give these rows a value"
        )
    return texts


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _text(value: Any) -> str:
    """A value as text; whole numbers alike whether their column holds integers or floats."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return str(value)


def order_of_key(key: Key) -> tuple[Any, ...]:
    """What combinations of values are sorted by."""
    return tuple(map(_order, key))


def _order(text: str) -> tuple[bool, bool, int, str]:
    number = WHOLE_NUMBER.fullmatch(text) is not None
    return text == MISSING_GROUP, not number, int(text) if number else 0, text
