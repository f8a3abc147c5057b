"""Arrow columns as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError, MissingExtraError
from calibrant.files.layout import BFLOAT16, OTHER, Layout
from calibrant.files.predictions import Block, decoding


def arrow(doing: str = "reading") -> Any:
    """The pyarrow package and the modules used here, imported on first use."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            f"{doing} Parquet needs pyarrow: pip install 'calibrant[files]'"
        ) from error
    return pyarrow


class Columns:
    """The columns of one batch of rows; missing values and unsuitable types are refused.

    ``first_row`` is the index of its first row in the file, for messages.
    """

    def __init__(self, columns: dict[str, Any], *, where: str, first_row: int) -> None:
        self.columns = columns
        self.where = where
        self.first_row = first_row

    def by_role(self, layout: Layout, dtype: np.dtype[Any], width: int | None) -> Block:
        """The arrays of ``layout``; the scores have this ``dtype`` and ``width`` (None: any)."""
        raw: Block = {}
        if layout.numbered:
            columns = [self._numbers(name) for name in layout.scores]
            raw["scores"] = np.empty((len(columns[0]), len(columns)), dtype=dtype)
            for number, column in enumerate(columns):
                raw["scores"][:, number] = column
        elif layout.scores:
            raw["scores"] = self._joined_lists(layout, dtype, width)
        if layout.label_columns:
            columns = [self._numbers(name, truth=True) for name in layout.label_columns]
            raw["labels"] = np.stack(columns, axis=1)
        for role, name in layout.roles.items():
            if role == "ids" or (role in ("labels", "predicted") and self._is_text(name)):
                raw[role] = self._ids(name)
            elif role == "classes":
                raw[role] = self._lists(name, raw["scores"].shape[1])
            elif role == "label_logits":
                raw[role] = self._numbers_or_nan(name)
            else:
                raw[role] = self._numbers(name, truth=True)
        return raw | {OTHER + name: self.columns[name] for name in layout.kept}

    def _joined_lists(
        self, layout: Layout, dtype: np.dtype[Any], width: int | None
    ) -> NDArray[Any]:
        """The lists of all chunks, concatenated in writable memory.

        Arrow's memory is read-only, and compiled passes would be compiled again for it. Truncated
        rows keep their stored type, which determines the precision of their sums.
        """
        only = width if len(layout.scores) == 1 else None
        chunks = [self._lists(name, only) for name in layout.scores]
        found = sum(chunk.shape[1] for chunk in chunks)
        if width is not None and found != width:
            raise CalibrantError(
                f"{self.where}: the lists of a row must have one number per class, {width} in all; "
                f"found {found} in row {self.first_row}. Write all chunks of every row"
            )
        if layout.bfloat16:
            chunks = [self._from_bits(c, n) for c, n in zip(chunks, layout.scores, strict=True)]
        stored = layout.kind == "top_logits"
        return np.concatenate(chunks, axis=1, dtype=None if stored else dtype)

    def _from_bits(self, bits: NDArray[Any], name: str) -> NDArray[np.float32]:
        """float32 numbers from the bits of bfloat16, which are the first half of theirs."""
        if bits.dtype not in (np.uint16, np.int16):
            raise CalibrantError(
                f"{self.where}: {name} must hold the bits of bfloat16 numbers as uint16; found "
                f"{bits.dtype}. Write tensor.view(torch.uint16).numpy(), or name the column "
                f"{name.replace(BFLOAT16, '')}"
            )
        wide = bits.view(np.uint16).astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32)

    def _plain(self, name: str) -> Any:
        """The column without dictionary encoding and extension type; nulls are refused."""
        column = self.columns[name]
        if isinstance(column, arrow().ExtensionArray):
            column = column.storage
        if arrow().types.is_dictionary(column.type):
            column = column.dictionary_decode()
        self._refuse_nulls(column, f"the column {name} must have a value in every row", 1)
        return column

    def _is_text(self, name: str) -> bool:
        types, kind = arrow().types, self.columns[name].type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def _numbers(self, name: str, *, truth: bool = False) -> NDArray[Any]:
        return _to_numpy(self._plain(name), f"{self.where}: the column {name}", truth=truth)

    def _numbers_or_nan(self, name: str) -> NDArray[Any]:
        """Numbers, with NaN for missing ones."""
        column = self.columns[name]
        if arrow().types.is_null(column.type):
            return np.full(len(column), np.nan, dtype=np.float32)
        kind = column.type if arrow().types.is_floating(column.type) else arrow().float64()
        missing = column.is_null().to_numpy(zero_copy_only=False)
        filled = arrow().compute.fill_null(
            column.cast(kind), arrow().scalar(0.0, arrow().float64()).cast(kind)
        )
        numbers = _to_numpy(filled, f"{self.where}: the column {name}", truth=False)
        return np.where(missing, np.array(np.nan, dtype=numbers.dtype), numbers)

    def _lists(self, name: str, width: int | None) -> NDArray[Any]:
        column = self._plain(name)
        if not is_list(column.type):
            stem = name.removesuffix("s")
            raise CalibrantError(
                f"{self.where}: the column {name} must hold one list of numbers per row; found the "
                f"type {column.type}. For one column per class, name them {stem}_0, {stem}_1, ..."
            )
        lengths = arrow().compute.list_value_length(column).to_numpy(zero_copy_only=False)
        width = int(lengths[0]) if width is None else width
        other = lengths != width
        if other.any():
            row = int(other.argmax())
            raise CalibrantError(
                f"{self.where}: the lists of {name} must be of one length; expected {width} "
                f"numbers, found {lengths[row]} in row {self.first_row + row}. "
                "Write one number per class"
            )
        flat = column.flatten()
        self._refuse_nulls(flat, f"the lists of {name} must have a value at every position", width)
        flat = _to_numpy(flat, f"{self.where}: the lists of {name}", truth=False)
        return flat.reshape(len(column), width)

    def _ids(self, name: str) -> NDArray[Any]:
        types = arrow().types
        column = self._plain(name)
        if types.is_string(column.type) or types.is_large_string(column.type):
            with decoding(f"{self.where}: the column {name}", "text"):
                return np.array(column.to_pylist(), dtype=str)
        ids: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if ids.dtype == object:
            raise CalibrantError(
                f"{self.where}: the column {name} must hold whole numbers or strings; found the "
                f"type {column.type}. Convert it to strings"
            )
        return ids

    def _refuse_nulls(self, column: Any, what: str, entries_a_row: int) -> None:
        if column.null_count:
            first = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise CalibrantError(
                f"{self.where}: {what}; found none in row "
                f"{self.first_row + first // entries_a_row}. Fill it in or drop the row"
            )


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list type."""
    types = arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _to_numpy(column: Any, what: str, *, truth: bool) -> NDArray[Any]:
    types = arrow().types
    if types.is_decimal(column.type):
        column = column.cast(arrow().float64())
    if not (
        types.is_floating(column.type)
        or types.is_integer(column.type)
        or (truth and types.is_boolean(column.type))
    ):
        raise CalibrantError(
            f"{what} must hold numbers; found the type {column.type}. Convert it; if these are "
            "names of classes, number them 0, 1, ..."
        )
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array
