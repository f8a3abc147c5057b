"""Parquet: one file, or a folder of them taken in the order of their names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from calibrant.errors import CalibrantError
from calibrant.files.columns import Columns, arrow, is_list
from calibrant.files.layout import Layout, find_layout, listed
from calibrant.files.predictions import Block, cleaned, decoding

CLASS_NAMES = b"calibrant.class_names"
"""The key of the file's metadata that holds the class names, as a JSON list."""

N_CLASSES = b"calibrant.n_classes"
"""The key that holds the number of classes, where the columns do not show it."""

KIND = "Parquet"
_MOST_ROWS = 1 << 14  # decoded at once
_COLUMN_BUFFER = 1 << 16  # bytes read at once for each column


class ParquetSource:
    """The columns of all files are checked here, from their footers; ``blocks`` reads the rows."""

    def __init__(self, path: Path, part: str | None, where: str) -> None:
        folder = path.is_dir()
        self.files = [
            (file, str(file) if folder else where) for file in (_inside(path) if folder else [path])
        ]
        self.layout, self.class_names, self.dtype, count, self.n_classes = _agreed(self.files, part)
        self.rows: int | None = count
        if count == 0:
            raise CalibrantError(f"{where} has no rows. Write at least one")

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order; a block does not reach over the end of a file."""
        most = min(rows or _MOST_ROWS, _MOST_ROWS)
        width: int | None = None
        for file, where in self.files:
            start = 0
            for batch in _batches(file, where, most, list(self.layout.names)):
                named = {name: batch.column(name) for name in self.layout.names}
                columns = Columns(named, where=where, first_row=start)
                raw = columns.by_role(self.layout, self.dtype, width)
                if "scores" in raw:
                    width = raw["scores"].shape[1]
                    if self.layout.kind != "top_logits":
                        refuse_class_names(self.class_names, width, where)
                yield cleaned(raw, self.layout, where=where, first_row=start)
                start += batch.num_rows


def _inside(folder: Path) -> list[Path]:
    found = parquet_files(folder)
    files = [file for file in found if file.parent == folder]
    if not files:
        raise CalibrantError(
            f"{folder} is a folder without .parquet files. Name a file, or a folder that has "
            "Parquet files directly in it"
        )
    deeper = next((file for file in found if file.parent != folder), None)
    if deeper is not None:
        raise CalibrantError(
            f"{folder} has Parquet files in folders inside it too, which are not read here; found "
            f"{deeper}. Use calibrant.scale, or name a folder without"
        )
    return files


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files in a folder and the folders inside, but for hidden and temporary ones.

    Links are followed, and a file is listed once whatever the number of its names, so that no row
    counts twice. Links to nowhere that were to lead to such a file, or to a folder, are listed
    too, so that reading refuses them.
    """
    found: dict[object, Path] = {}
    for inside in _folders(folder):
        for path in sorted(_shown(inside), key=lambda path: (path.is_symlink(), path)):
            if path.suffix.lower() == ".parquet" and path.is_file():
                found.setdefault(_identity(path), path)
            elif path.suffix.lower() in (".parquet", "") and _leads_nowhere(path):
                found[path] = path
    return sorted(found.values())


def _leads_nowhere(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _identity(file: Path) -> object:
    """What all names of one file have in common."""
    status = file.stat()
    # Not every file system has numbers of its own for files, but those with hard links do.
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 else file.resolve()


def _folders(root: Path) -> Iterator[Path]:
    """A folder and those inside, also through links: each once, by its own name if that is inside.

    So links that lead back, or to a neighbour, neither go round for ever nor count rows twice.
    """
    seen: set[Path] = set()
    own, linked = [root], list[Path]()
    while own or linked:
        folder = (own or linked).pop()
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        yield folder
        for path in sorted(_shown(folder), reverse=True):
            if path.is_dir():
                (linked if path.is_symlink() else own).append(path)


def _shown(folder: Path) -> Iterator[Path]:
    """What is directly in a folder, but for hidden and temporary things."""
    return (path for path in folder.iterdir() if not path.name.startswith((".", "_")))


def opened_file(file: Path) -> Any:
    """A Parquet file, ready to be read a little at a time."""
    # Buffered and not read ahead, so that a row group need not fit into memory.
    try:
        return arrow().parquet.ParquetFile(
            file, buffer_size=_COLUMN_BUFFER, pre_buffer=False, page_checksum_verification=True
        )
    except FileNotFoundError as error:
        check_file_there(file, error)


def _agreed(
    files: list[tuple[Path, str]], part: str | None
) -> tuple[Layout, tuple[str, ...] | None, np.dtype[Any], int, int | None]:
    """(layout, class names, type of the scores, rows, classes) of all files together."""
    arrow()
    footers = []
    for file, where in files:
        with decoding(where, KIND), opened_file(file) as opened:
            schema = opened.schema_arrow
            names = list(schema.names)  # decoded here, where damage becomes one line
            footers.append((where, names, schema, opened.metadata.num_rows))
    # Parallel writers leave files without rows, often without types: they have no say.
    filled = [footer for footer in footers if footer[-1] > 0] or footers[:1]
    layouts = [
        find_layout(names, part=part, where=where, table=True) for where, names, _, _ in filled
    ]
    for layout, (where, *_) in zip(layouts, filled, strict=True):
        if layout != layouts[0]:
            raise CalibrantError(
                f"{where}: the files of a folder must have the same columns; found "
                f"{listed(layout.names)} here and {listed(layouts[0].names)} in {filled[0][0]}. "
                "Write them alike"
            )
    kinds = [schema.field(name).type for _, _, schema, _ in filled for name in layouts[0].scores]
    named: Named | None = None
    for where, _, schema, _ in filled:
        named = agreed_names(named, where, class_names_of(schema.metadata, where))
    n_classes = n_classes_of(filled[0][2].metadata, filled[0][0])
    rows = sum(rows for *_, rows in filled)
    return layouts[0], named and named[1], common_dtype(kinds, layouts[0]), rows, n_classes


def _batches(file: Path, where: str, rows: int, columns: list[str]) -> Iterator[Any]:
    with decoding(where, KIND):
        opened = opened_file(file)
    with opened:
        batches = opened.iter_batches(batch_size=rows, columns=columns)
        left = opened.metadata.num_rows
        while True:
            with decoding(where, KIND):
                batch = next(batches, None)
                left -= 0 if batch is None else batch.num_rows
                if left < 0 or (batch is None and left > 0):
                    raise CalibrantError("it has not as many rows as its footer says")
            if batch is None:
                return
            if batch.num_rows:
                yield batch


def common_dtype(kinds: list[Any], layout: Layout) -> np.dtype[Any]:
    """A float type that holds every column of scores; columns of no number are refused later."""
    if layout.bfloat16:
        return np.dtype(np.float32)
    dtypes = []
    for kind in kinds:
        if isinstance(kind, arrow().BaseExtensionType):
            kind = kind.storage_type
        if is_list(kind):
            kind = kind.value_type
        floating = arrow().types.is_floating(kind)
        dtypes.append(np.dtype(f"float{kind.bit_width if floating else 64}"))
    return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)


def class_names_of(metadata: Any, where: str) -> tuple[str, ...] | None:
    """What ``write_predictions`` has noted in the footer."""
    if not metadata or CLASS_NAMES not in metadata:
        return None
    with decoding(where, KIND):
        names = json.loads(metadata[CLASS_NAMES])
        if not isinstance(names, list):
            raise CalibrantError("the class names are not a JSON list")
    return tuple(str(name) for name in names)


Named: TypeAlias = tuple[str, tuple[str, ...]]
"""A file, and its class names."""


def agreed_names(agreed: Named | None, file: str, names: tuple[str, ...] | None) -> Named | None:
    """The first file that has class names; one more file must have the same, or none."""
    if names is None:
        return agreed
    if agreed is not None:
        check_same_class_names(file, names, *agreed)
    return agreed or (file, names)


def n_classes_of(metadata: Any, where: str) -> int | None:
    """How many classes there are, as ``write_top_predictions`` has noted it in the footer."""
    if not metadata or N_CLASSES not in metadata:
        return None
    with decoding(where, KIND):
        return int(metadata[N_CLASSES])


def refuse_class_names(names: tuple[str, ...] | None, width: int, where: str) -> None:
    """Names that are not as many as the classes."""
    if names is not None and len(names) != width:
        raise CalibrantError(
            f"{where}: there must be one class name a class, {width} in all; found {len(names)}. "
            "Write the file again with write_predictions"
        )


def check_same_class_names(
    file: str, found: Sequence[str], other_file: str, expected: Sequence[str]
) -> None:
    """Files that name the same classes in the same order."""
    if len(found) != len(expected):
        differ = f"found {len(found)} names here and {len(expected)}"
    else:
        pairs = enumerate(zip(found, expected, strict=True))
        number, pair = next((each for each in pairs if each[1][0] != each[1][1]), (None, None))
        if pair is None:
            return
        differ = f"found {pair[0]!r} for class {number} here and {pair[1]!r}"
    raise CalibrantError(
        f"{file}: the files of a folder must name their classes alike, in one order; {differ} in "
        f"{other_file}. Write them alike"
    )


def check_file_there(file: Path, error: FileNotFoundError) -> NoReturn:
    """Refuse a file of a folder that is not there, or a link to one that is not."""
    link = f" is a link to {os.readlink(file)}, which" if file.is_symlink() else ""
    raise FileNotFoundError(f"{file}{link} is not there. Put it there, or remove it") from error
