"""A Parquet folder opened for sums over rows, and the bundles of rows that tasks process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calibrant import _inputs, _thresholds
from calibrant.errors import CalibrantError
from calibrant.files.parquet import ParquetFolder, Ranges, RowRange, Skipped, files_at, open_folder
from calibrant.files.parquet.footer import check_number_of_names
from calibrant.files.reading import asked_for


def open_data_set(
    path: Path,
    *,
    skip_bad: bool = False,
    n_classes: int | None = None,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    keep: bool | Sequence[str] = False,
    where: str | None = None,
) -> ParquetFolder:
    """Open a Parquet file, or a folder of them with any subfolders.

    ``n_classes`` is needed for truncated rows whose files do not say it. ``label`` and ``score``
    name columns, and ``positive`` the label of the positive class. With ``keep``, the other columns
    that all files have are read too, or those that it names. Rows must meet ``where``.
    """
    folder = open_folder(
        str(path),
        files_at(path),
        asked=asked_for(label, score, keep=keep, where=where),
        skip_bad=skip_bad,
        most_page_bytes=_thresholds.MOST_PAGE_BYTES,
    )
    if folder.truncated or n_classes is not None:
        known = _inputs.number_of_classes(folder.n_classes, n_classes, folder.where)
        check_number_of_names(folder.class_names, known, folder.where)
        folder = replace(folder, n_classes=known)
    return folder if positive is None else folder.with_positive(positive)


def bundles(folder: ParquetFolder) -> list[Ranges]:
    """The row groups in order, divided into tasks.

    The division depends on the files alone, so that sums are added in the same order on any number
    of workers.
    """
    usual = min(_thresholds.BUNDLE_ROWS, _thresholds.BUNDLE_NUMBERS // (folder.width or 1))
    most = max(usual, folder.rows // _thresholds.MOST_BUNDLES)
    found: list[list[RowRange]] = [[]]
    held = 0
    for group in folder.ranges:
        if held and held + group.rows > most:
            found.append([])
            held = 0
        found[-1].append(group)
        held += group.rows
    return [tuple(bundle) for bundle in found]


def check_some_rows_left(where: str, n_rows: int, skipped: Skipped) -> None:
    """Refuse a folder without a usable row."""
    if n_rows == 0:
        raise CalibrantError(f"{where} has no usable row. {skipped}")
