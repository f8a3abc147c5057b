"""What the footer of a Parquet file says: columns, row groups, class names."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.files.columns import arrow, is_list
from calibrant.files.condition import Condition
from calibrant.files.layout import Asked, Layout, find_layout, listed
from calibrant.files.parquet.listing import files_at, partitions_of
from calibrant.files.predictions import WHOLE_NUMBER, decoding

CLASS_NAMES = b"calibrant.class_names"
"""Key of the file's metadata for the class names, a JSON list."""
N_CLASSES = b"calibrant.n_classes"
"""Key for the number of classes, where the columns do not show it."""
CALIBRATOR = b"calibrant.calibrator"
"""Key for the SHA-256 of the calibrator file that made the probabilities."""

FORMAT = "Parquet"
COLUMN_BUFFER = 1 << 16
"""Bytes read at once for each column."""
FOOTERS_AT_A_TIME = 16
"""Footers read concurrently: on remote storage most of the time is latency."""
MANY_COLUMNS, LARGEST_PAGE, BUFFERS_OF_COLUMN = 500, 1 << 20, 1 << 17
"""Number of columns from which their pages add up, and bytes per column (measured)."""


@dataclass(frozen=True)
class Footer:
    """What the end of one file says about it."""

    file: str
    layout: Layout
    score_types: tuple[Any, ...] = ()
    """Arrow types of the score columns."""
    group_rows: tuple[int, ...] = ()
    """Rows of each row group."""
    groups: tuple[int, ...] = ()
    """The row groups that may have rows that meet the condition, or all that have rows."""
    of_path: tuple[tuple[str, Any], ...] = ()
    """Columns that the folders of the file are named after, unless it has them itself: the value
    of each, as an Arrow scalar."""
    class_names: tuple[str, ...] | None = None
    n_classes: int | None = None
    page_bytes: int = 0
    """Bytes of one page of every column, which a reader holds; 0 for few columns."""

    @property
    def rows(self) -> int:
        """Rows of the row groups to read."""
        return sum(self.group_rows[group] for group in self.groups)


def open_file(file: Path) -> Any:
    """A Parquet file, ready to be read a little at a time."""
    # Buffered and not read ahead, so that a row group need not fit into memory.
    try:
        return arrow().parquet.ParquetFile(
            file, buffer_size=COLUMN_BUFFER, pre_buffer=False, page_checksum_verification=True
        )
    except FileNotFoundError as error:
        link = f" is a link to {os.readlink(file)}, which" if file.is_symlink() else ""
        raise FileNotFoundError(
            f"{file}{link} does not exist. Restore it, or remove it from the folder"
        ) from error


def read_footer(
    file: Path,
    part: str | None = None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    of_path: Mapping[str, Any] = MappingProxyType({}),
) -> Footer:
    """The footer of one file; of a file with several parts, what concerns ``part``."""
    where = str(file) if part is None else f"{file}::{part}"
    with decoding(where, FORMAT), open_file(file) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        names = list(schema.names)  # decoded here, where damage becomes one line
        group_rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
        page_bytes = _page_bytes(metadata)
    if not sum(group_rows):
        return Footer(str(file), Layout("confidence"))
    of_path = {name: value for name, value in of_path.items() if name not in names}
    layout = find_layout(
        names, part=part, where=where, table=True, asked=asked, of_path=list(of_path)
    )
    noted = schema.metadata or {}
    with decoding(where, FORMAT):
        class_names = json.loads(noted[CLASS_NAMES]) if CLASS_NAMES in noted else None
        if not isinstance(class_names, list | None):
            raise CalibrantError("the class names are not a JSON list")
        n_classes = int(noted[N_CLASSES]) if N_CLASSES in noted else None
    groups: Sequence[int] = range(len(group_rows))
    if asked.where is not None:
        with _inputs.naming(where):
            groups = _groups_to_read(asked.where, file, schema, of_path)
    return Footer(
        str(file),
        layout,
        tuple(schema.field(name).type for name in layout.scores),
        group_rows,
        tuple(group for group in groups if group_rows[group]),
        tuple(of_path.items()),
        None if class_names is None else tuple(str(name) for name in class_names),
        n_classes,
        page_bytes,
    )


def read_footers(files: list[Path], part: str | None, asked: Asked) -> Iterator[Footer | Exception]:
    """The footer of each file, or why it cannot be read; several files at a time."""
    arrow()
    of_paths = _columns_of_paths(files)

    def footer_or_refusal(file: Path, of_path: Mapping[str, Any]) -> Footer | Exception:
        try:
            return read_footer(file, part, asked, of_path)
        except (ValueError, TypeError, OSError) as refusal:
            return refusal

    if len(files) == 1:
        yield footer_or_refusal(files[0], of_paths[0])
        return
    with ThreadPoolExecutor(FOOTERS_AT_A_TIME) as pool:
        yield from pool.map(footer_or_refusal, files, of_paths)


def _columns_of_paths(files: list[Path]) -> list[dict[str, Any]]:
    """The columns that the folders of each file are named after: numbers if all values are."""
    texts = [partitions_of(file) for file in files]
    words = {
        name
        for of_path in texts
        for name, text in of_path.items()
        if text is not None and not WHOLE_NUMBER.fullmatch(text)
    }

    def scalar(name: str, text: str | None) -> Any:
        if name in words:
            return arrow().scalar(text, arrow().string())
        return arrow().scalar(None if text is None else int(text), arrow().int64())

    return [{name: scalar(name, text) for name, text in each.items()} for each in texts]


def _groups_to_read(
    condition: Condition, file: Path, schema: Any, of_path: Mapping[str, Any]
) -> list[int]:
    """The row groups that may have rows that meet a condition, by their statistics and path."""
    from pyarrow import dataset, fs

    field, every = arrow().compute.field, arrow().compute.scalar(True)
    for name, value in of_path.items():
        if name in schema.names:
            continue
        schema = schema.append(arrow().field(name, value.type))
        every &= field(name) == value if value.is_valid else field(name).is_null()
    fragment = dataset.ParquetFileFormat().make_fragment(
        str(file), filesystem=fs.LocalFileSystem(), partition_expression=every
    )
    parts = fragment.split_by_row_group(condition.over(field, schema), schema)
    return [group.id for part in parts for group in part.row_groups]


def rows_or_zero(
    file: Path,
    where: Condition | None = None,
    of_path: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """The number of rows by the footer that may meet a condition; 0 if it cannot be read."""
    try:
        with open_file(file) as opened:
            if where is None:
                return int(opened.metadata.num_rows)
            groups = _groups_to_read(where, file, opened.schema_arrow, of_path)
            return sum(opened.metadata.row_group(group).num_rows for group in groups)
    except Exception:  # damaged bytes raise anything
        return 0


def is_empty(file: Path) -> bool:
    """Whether a file can be read and has no rows."""
    try:
        with open_file(file) as opened:
            return int(opened.metadata.num_rows) == 0
    except Exception:  # damaged bytes raise anything
        return False


def count_rows_in(path: Path, where: Condition | None = None) -> int:
    """The number of rows of a file or folder by the footers; a damaged file counts as empty.

    With a condition, only row groups that may meet it count.
    """
    files = files_at(path)
    of_paths = _columns_of_paths(files) if where is not None else [{}] * len(files)
    return sum(
        rows_or_zero(file, where, of_path) for file, of_path in zip(files, of_paths, strict=True)
    )


def is_truncated(path: Path) -> bool:
    """Whether these are Parquet files with only the largest logits of each row."""
    if not path.is_dir() and (path.suffix.lower() != ".parquet" or not path.exists()):
        return False
    with contextlib.suppress(ValueError, OSError):  # refused when they are read
        for file in files_at(path):
            with contextlib.suppress(ValueError, TypeError, OSError):
                footer = read_footer(file)
                if footer.rows:
                    return footer.layout.kind == "top_logits"
    return False


def common_dtype(footers: list[Footer]) -> np.dtype[Any]:
    """A float type that holds every score column; columns without numbers are refused later."""
    if footers[0].layout.bfloat16:
        return np.dtype(np.float32)
    dtypes = []
    for kind in {kind for footer in footers for kind in footer.score_types}:
        if isinstance(kind, arrow().BaseExtensionType):
            kind = kind.storage_type
        if is_list(kind):
            kind = kind.value_type
        floating = arrow().types.is_floating(kind)
        dtypes.append(np.dtype(f"float{kind.bit_width if floating else 64}"))
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)


def check_same_columns(footer: Footer, first: Footer) -> None:
    """Refuse a file with other columns, or another number of classes, than the first."""
    if replace(footer.layout, kept=()) != replace(first.layout, kept=()):
        found, expected = listed(footer.layout.names), listed(first.layout.names)
    elif footer.n_classes != first.n_classes:
        found, expected = f"{footer.n_classes} classes", f"{first.n_classes} classes"
    else:
        return
    raise CalibrantError(
        f"{footer.file}: the files of a folder must have the same columns; found {found} here and "
        f"{expected} in {first.file}. Write all files with the same columns"
    )


def check_same_class_names(footer: Footer, first: Footer) -> None:
    """Refuse a file that names its classes differently, or in another order, than the first."""
    found, expected = footer.class_names or (), first.class_names or ()
    if found == expected:
        return
    if len(found) != len(expected):
        differ = f"found {len(found)} names here and {len(expected)}"
    else:
        pairs = enumerate(zip(found, expected, strict=True))
        number, (here, there) = next(each for each in pairs if each[1][0] != each[1][1])
        differ = f"found {here!r} for class {number} here and {there!r}"
    raise CalibrantError(
        f"{footer.file}: the files of a folder must have the same class names in the same order; "
        f"{differ} in {first.file}. Write all files with the same class names"
    )


def check_number_of_names(names: tuple[str, ...] | None, n_classes: int | None, where: str) -> None:
    """Refuse class names that are more or fewer than the classes."""
    if names is not None and n_classes is not None and len(names) != n_classes:
        raise CalibrantError(
            f"{where}: expected one class name per class, {n_classes} in all; found {len(names)}. "
            "Write the file again with write_predictions"
        )


def check_page_bytes(footer: Footer, most: int) -> None:
    """Refuse so many columns that one page of each leaves no memory for the work."""
    if footer.page_bytes > most:
        raise CalibrantError(
            f"{footer.file}: a reader holds one page of every column, which is "
            f"{footer.page_bytes / 1e9:.1f} GB for {len(footer.layout.scores)} score columns. "
            "Write the scores as one column of lists, named logits or probs, or write smaller row "
            "groups"
        )


def _page_bytes(metadata: Any) -> int:
    if metadata.num_row_groups == 0 or metadata.num_columns < MANY_COLUMNS:
        return 0
    group = metadata.row_group(0)
    sizes = (group.column(c).total_uncompressed_size for c in range(metadata.num_columns))
    return sum(min(size, LARGEST_PAGE) + BUFFERS_OF_COLUMN for size in sizes)
