"""Rows of Parquet files, read in batches, one row group after the other.

The footers of all files are read first. Files and rows that cannot be read or used are refused in
one line that names the file and the row group. With ``skip_bad`` they are skipped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs, _thresholds
from calibrant._inputs.skipped import Skipped
from calibrant.errors import CalibrantError
from calibrant.files.columns import Columns, arrow
from calibrant.files.condition import Condition
from calibrant.files.layout import Asked, Layout
from calibrant.files.meaning import Meaning, meaning_of, settled
from calibrant.files.parquet.footer import (
    FORMAT,
    Footer,
    check_number_of_names,
    check_page_bytes,
    check_same_class_names,
    check_same_columns,
    common_dtype,
    open_file,
    read_footers,
    rows_or_zero,
)
from calibrant.files.parquet.listing import files_at
from calibrant.files.predictions import Block, Predictions, cleaned, decoding

Result = TypeVar("Result")

ROWS_TO_SEE_WIDTH = 32
"""Rows, perhaps of very many numbers, that show how long lists are."""


@dataclass(frozen=True)
class RowRange:
    """The rows of one row group, or of a whole file."""

    file: str
    """The path as it was given, which may be relative."""
    group: int | None
    """The number of the row group; None for all of them."""
    rows: int
    first_row: int
    """Index of the first row in the file."""
    first_in_folder: int
    """Index of the first row in the folder."""
    of_path: tuple[tuple[str, Any], ...] = ()
    """Columns that the folders of the file are named after, and their values."""
    condition: Condition | None = None
    """What rows must meet to be read; messages then count only these."""

    @property
    def where(self) -> str:
        """The name in messages."""
        group = "" if self.group is None else f", row group {self.group}"
        some = "" if self.condition is None else f" (rows where {self.condition.text})"
        return f"{self.file}{group}{some}"


Ranges: TypeAlias = tuple[RowRange, ...]
Accepted: TypeAlias = Iterator[tuple[Predictions, Result]]
"""Batches of rows that a check has accepted, and its results."""


@dataclass(frozen=True)
class ParquetFolder:
    """A Parquet file, or a folder of them: what they have in common, and where their rows are."""

    where: str
    base: str
    """The current folder, which relative paths start from: workers may have another."""
    layout: Layout
    dtype: np.dtype[Any]
    n_classes: int | None
    """None if the files hold only confidences, or truncated rows without their class count."""
    width: int | None
    """Scores per row: one for each class, or those of the largest logits."""
    class_names: tuple[str, ...] | None
    files: tuple[str, ...]
    """In order, including files without rows, excluding skipped files."""
    ranges: Ranges
    """In order: the row groups, or whole files."""
    rows: int
    """By the footers; with a condition, of the row groups that may meet it."""
    skip_bad: bool
    skipped: Skipped
    """Files that were skipped when the footers were read."""
    meaning: Meaning | None = None
    """What the labels mean, if the positive class was named; None if the names say it."""

    @property
    def truncated(self) -> bool:
        """Whether only the largest logits of each row are known."""
        return self.layout.kind == "top_logits"

    @property
    def batch_rows(self) -> int:
        """Rows that are held at a time."""
        most = _thresholds.BATCH_NUMBERS // (self.width or 1)
        return max(1, min(_thresholds.BATCH_ROWS, most))

    def without_ranges(self) -> ParquetFolder:
        """What a task needs besides its own ranges."""
        return replace(self, files=(), ranges=())

    def with_positive(self, positive: str) -> ParquetFolder:
        """The same with the label of the positive class; the other is in the first rows."""
        settled(self.layout, self.class_names, self.where)  # refuses what it takes all rows to know
        label, found = self.layout.roles.get("labels"), set[Any]()
        if label is not None:
            labels = replace(self, layout=Layout(self.layout.kind, roles={"labels": label}))
            for _, _, batch in labels.batches(self.ranges, Skipped()):
                found |= set(batch.column(label).unique().drop_null().to_pylist())
                if len(found) > 1:
                    break
        meaning = meaning_of(
            [{self.layout.kind: np.empty((0, self.width or 0)), "labels": np.array(sorted(found))}],
            self.layout,
            class_names=self.class_names,
            positive=positive,
            where=self.where,
        )
        return replace(self, meaning=meaning, class_names=meaning.class_names)

    def batches(
        self, ranges: Ranges, skipped: Skipped, batch_rows: int | None = None
    ) -> Iterator[tuple[RowRange, int, Any]]:
        """(range, index of the first row in the file, Arrow columns) of each batch."""
        for file, of_file in groupby(ranges, key=lambda each: each.file):
            in_file = list(of_file)
            with _reopened(Path(self.base, file), in_file[0].where) as opened:
                for rows in in_file:
                    yield from self._batches_of(rows, opened, skipped, batch_rows)

    def _batches_of(
        self, rows: RowRange, opened: Any, skipped: Skipped, batch_rows: int | None
    ) -> Iterator[tuple[RowRange, int, Any]]:
        _check_same_count(rows, opened.metadata)
        left, n_met = rows.rows, 0
        of_path = dict(rows.of_path)
        try:
            batches = opened.iter_batches(
                batch_size=batch_rows or self.batch_rows,
                row_groups=None if rows.group is None else [rows.group],
                columns=[name for name in self.layout.names if name not in of_path],
            )
            while True:
                with decoding(rows.where, FORMAT):
                    batch = next(batches, None)
                    if left > 0 if batch is None else batch.num_rows > left:
                        raise CalibrantError("row count does not match the footer")
                if batch is None:
                    return
                first_row = rows.first_row + rows.rows - left
                left -= batch.num_rows
                for name in of_path.keys() & set(self.layout.names):
                    column = arrow().repeat(of_path[name], batch.num_rows)
                    batch = batch.append_column(name, column)
                if rows.condition is not None:
                    batch = batch.filter(rows.condition.over(batch.column, batch.schema))
                    first_row, n_met = n_met, n_met + batch.num_rows
                if batch.num_rows:
                    yield rows, first_row, batch
        except ValueError as refusal:
            if not self.skip_bad:
                raise
            skipped.add(str(refusal), groups=1, rows=left)

    def decode(self, rows: RowRange, first_row: int, batch: Any) -> Block:
        """The fields of :class:`Predictions` out of the columns of a batch."""
        named = {name: batch.column(name) for name in self.layout.names}
        columns = Columns(named, where=rows.where, first_row=first_row)
        raw = columns.by_role(self.layout, self.dtype, self.width)
        return cleaned(raw, self.layout, where=rows.where, first_row=first_row)

    def checked_batches(
        self,
        ranges: Ranges,
        check: Callable[[Predictions], Result],
        skipped: Skipped,
        choose: Callable[[Any], Any] | None = None,
    ) -> Accepted[Result]:
        """Batches of rows, each with the result of ``check``.

        ``choose`` gives the rows of a batch of Arrow columns that count; None are all. If bad rows
        are skipped and a refusal does not name them, the batch is halved until they are isolated.
        """
        for rows, first_row, batch in self.batches(ranges, skipped):
            chosen = batch if choose is None else choose(batch)
            if chosen.num_rows:
                yield from self._accepted(rows, first_row, chosen, check, skipped)

    def _accepted(
        self,
        rows: RowRange,
        first_row: int,
        batch: Any,
        check: Callable[[Predictions], Result],
        skipped: Skipped,
    ) -> Accepted[Result]:
        try:
            meaning = self.meaning or settled(self.layout, self.class_names, rows.where)
            block = self.decode(rows, first_row, batch)
            predictions = meaning.predictions(block, self.n_classes)
            with _inputs.naming(f"{rows.where}, counting from row {first_row}"):
                result = check(predictions)
        except (ValueError, TypeError) as refusal:
            if not self.skip_bad:
                raise
            for start, rest in _without_bad_rows(batch, refusal, skipped):
                yield from self._accepted(rows, first_row + start, rest, check, skipped)
        else:
            yield predictions, result

    def _most_common_width(self) -> int:
        """The usual length of the lists in the first rows that can be read."""
        for rows, first_row, batch in self.batches(self.ranges, Skipped(), ROWS_TO_SEE_WIDTH):
            widths = Counter[int]()
            for row in range(batch.num_rows):
                try:
                    fields = self.decode(rows, first_row + row, batch.slice(row, 1))
                except (ValueError, TypeError):
                    if not self.skip_bad:
                        raise
                    continue
                widths[fields[self.layout.kind].shape[1]] += 1
            if widths:
                return widths.most_common(1)[0][0]
        raise _no_rows(self.where, 0, self.ranges[0].condition)


def open_folder(
    where: str,
    files: list[Path],
    *,
    part: str | None = None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    skip_bad: bool = False,
    most_page_bytes: int | None = None,
    whole_files: bool = False,
) -> ParquetFolder:
    """Read the footers of ``files``, and refuse or skip those that do not agree with the first.

    Args:
        where: The path that was given, for messages.
        files: In the order of their rows.
        part: The ``val`` of ``FILE::val``.
        asked: The columns that a user names.
        skip_bad: Skip and count files, row groups and rows that cannot be used.
        most_page_bytes: Refuse files of which one page of every column takes more.
        whole_files: Read each file as one range, which is faster if row groups are small. Messages
            then do not name the row group.
    """
    if asked.where is not None:
        where = f"{where} (rows where {asked.where.text})"
    skipped = Skipped()
    footers: list[Footer] = []
    usable: list[str] = []
    named: Footer | None = None
    for file, footer in zip(files, read_footers(files, part, asked), strict=True):
        try:
            if isinstance(footer, Exception):
                raise footer
            if footer.rows:  # parallel writers leave files without rows, often without types
                if most_page_bytes is not None:
                    check_page_bytes(footer, most_page_bytes)
                check_same_columns(footer, footers[0] if footers else footer)
                if footer.class_names is not None:
                    check_same_class_names(footer, named or footer)
                    named = named or footer
                footers.append(footer)
            usable.append(str(file))
        except (ValueError, TypeError, OSError) as refusal:
            if not skip_bad:
                raise
            skipped.add(str(refusal), files=1, rows=rows_or_zero(file))
    if not footers:
        raise _no_rows(where, skipped.files, asked.where)
    kept = set.intersection(*(set(footer.layout.kept) for footer in footers))
    layout = replace(
        footers[0].layout,
        kept=tuple(name for name in footers[0].layout.kept if name in kept),
    )
    ranges: list[RowRange] = []
    n_rows = 0
    for footer in footers:
        if whole_files and asked.where is None:
            ranges.append(RowRange(footer.file, None, footer.rows, 0, n_rows, footer.of_path))
            n_rows += footer.rows
            continue
        first_rows = [0, *accumulate(footer.group_rows)]
        for group in footer.groups:
            place = (footer.group_rows[group], first_rows[group], n_rows)
            ranges.append(RowRange(footer.file, group, *place, footer.of_path, asked.where))
            n_rows += footer.group_rows[group]
    width = len(layout.scores) if layout.numbered else None
    folder = ParquetFolder(
        where=where,
        base=str(Path.cwd()),
        layout=layout,
        dtype=common_dtype(footers),
        n_classes=2 if layout.single else width,
        width=width,
        class_names=layout.column_classes if named is None else named.class_names,
        files=tuple(usable),
        ranges=tuple(ranges),
        rows=n_rows,
        skip_bad=skip_bad,
        skipped=skipped,
    )
    if layout.scores and not layout.numbered:
        width = folder._most_common_width()
        n_classes = footers[0].n_classes if folder.truncated else width
        folder = replace(folder, width=width, n_classes=n_classes)
    check_number_of_names(folder.class_names, folder.n_classes, where)
    return folder


class ParquetSource:
    """A Parquet file or a folder of them, for :func:`calibrant.files.read_predictions`."""

    def __init__(self, path: Path, part: str | None, where: str, asked: Asked) -> None:
        self.where = where
        files = files_at(path)
        self.folder = open_folder(where, files, part=part, asked=asked, whole_files=True)
        self.rows: int | None = self.folder.rows
        self.layout = self.folder.layout
        self.class_names = self.folder.class_names
        self.n_classes = self.folder.n_classes if self.folder.truncated else None

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order; a block does not cross the end of a file."""
        most = min(rows or _thresholds.READ_ROWS, _thresholds.READ_ROWS)
        found = False
        for batch in self.folder.batches(self.folder.ranges, Skipped(), most):
            found = True
            yield self.folder.decode(*batch)
        if not found:
            raise _no_rows(self.folder.where, 0, self.folder.ranges[0].condition)


class ChangedFileError(OSError):
    """A file that has changed since its footer was read.

    It is never skipped, as a bad row is: earlier passes have counted its rows.
    """


def _reopened(file: Path, where: str) -> Any:
    """A file whose footer was read before."""
    try:
        with decoding(where, FORMAT):
            return open_file(file)
    except (ValueError, OSError) as error:
        gone = isinstance(error, FileNotFoundError)
        reason = "the file is gone" if gone else "its footer cannot be read any more"
        raise ChangedFileError(
            f"{where} has changed while it was being read: {reason}. Start again when the file is "
            "complete, and let workers see the same folders as this process"
        ) from error


def _check_same_count(rows: RowRange, metadata: Any) -> None:
    if rows.group is None:
        found = metadata.num_rows
    else:
        there = rows.group < metadata.num_row_groups
        found = metadata.row_group(rows.group).num_rows if there else 0
    if found != rows.rows:
        raise ChangedFileError(
            f"{rows.where} has changed while it was being read: it had {rows.rows} rows; found "
            f"{found}. Wait until it is written, and start again"
        )


def _without_bad_rows(
    batch: Any, refusal: Exception, skipped: Skipped
) -> Iterator[tuple[int, Any]]:
    """The parts of a refused batch to check again, and the offset of each."""
    rows = batch.num_rows
    bad = _bad_rows(refusal)
    if isinstance(refusal, TypeError) or rows == 1:  # a type is wrong in every row
        bad = np.arange(rows)
    if bad is None:
        yield 0, batch.slice(0, rows // 2)
        yield rows // 2, batch.slice(rows // 2)
        return
    skipped.add(str(refusal), rows=len(bad))
    if len(bad) < rows:
        yield 0, batch.take(np.delete(np.arange(rows), bad))


def _bad_rows(refusal: BaseException | None) -> npt.NDArray[np.intp] | None:
    """The rows that a refusal, or its cause, is about; None if it does not say."""
    while refusal is not None:
        if isinstance(refusal, _inputs.BadRowsError):
            return refusal.rows
        refusal = refusal.__cause__
    return None


def _no_rows(where: str, n_skipped: int, condition: Condition | None) -> CalibrantError:
    besides = f" besides {n_skipped} skipped files" if n_skipped else ""
    fix = "Write at least one" if condition is None else "Change the condition"
    return CalibrantError(f"{where} has no rows{besides}. {fix}")
