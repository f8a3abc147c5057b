"""Parquet data sets as parts that can be read anywhere: footers first, then rows in batches.

A data set is a Parquet file, or a folder of them with any folders inside, in the order of their
paths. A :class:`Part` is one row group; a *bundle* is about a million rows of them, the work of one
task. Which rows are in which bundle depends on the files alone, so sums are added in the same
order on any number of workers.

What is wrong with a file or a row is refused in one line that names the file and the row group, or
left out and counted, where that was asked for.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.files.columns import Columns, arrow
from calibrant.files.layout import Layout, find_layout, listed
from calibrant.files.parquet import (
    KIND,
    Named,
    agreed_names,
    class_names_of,
    common_dtype,
    n_classes_of,
    opened_file,
    parquet_files,
    refuse_class_names,
)
from calibrant.files.predictions import cleaned, decoding

Result = TypeVar("Result")

BATCH_ROWS = 1 << 16
BATCH_NUMBERS = 1 << 20
"""Rows, and numbers in them, that are held at a time."""
BUNDLE_ROWS, BUNDLE_NUMBERS = 1 << 20, 1 << 24
"""Rows of one task, and numbers in them: about a second's work."""
MOST_BUNDLES = 8192
"""More tasks than this would keep a scheduler busy; bundles grow instead."""
FOOTERS_AT_A_TIME = 16
MANY_COLUMNS, LARGEST_PAGE, COLUMN_BUFFERS = 500, 1 << 20, 1 << 17
"""From how many columns on their pages count, and what each takes: bytes, as measured."""
MOST_REASONS = 5
ROWS_TO_SEE_WIDTH = 32
"""Rows, perhaps of very many numbers, that are looked at to see how many."""


@dataclass
class Skipped:
    """What was left out, and the first reasons."""

    files: int = 0
    groups: int = 0
    """Row groups of which the rest could not be decoded."""
    rows: int = 0
    """Rows left out, those of the files and row groups among them."""
    reasons: list[str] = field(default_factory=list)

    def add(self, reason: str, *, files: int = 0, groups: int = 0, rows: int = 0) -> None:
        """Count one more refusal."""
        self.merge(Skipped(files, groups, rows, [reason]))

    def merge(self, other: Skipped) -> None:
        """Add what another part has left out."""
        self.files += other.files
        self.groups += other.groups
        self.rows += other.rows
        self.reasons = [*self.reasons, *other.reasons][:MOST_REASONS]

    def __bool__(self) -> bool:
        return self.files + self.groups + self.rows > 0

    def __str__(self) -> str:
        counts = f"{self.rows} rows, {self.files} whole files, {self.groups} damaged row groups"
        reasons = "; ".join(reason.rstrip(".") for reason in self.reasons)
        return f"Left out: {counts}. {reasons}" if self else "Nothing was left out"


@dataclass(frozen=True)
class Part:
    """One row group of one file."""

    file: str
    """Its path as it was given, which may be relative."""
    group: int
    rows: int
    first_row: int
    """Its first row in the file."""
    first_in_set: int
    """And in the data set."""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.file}, row group {self.group}"


@dataclass(frozen=True)
class DataSet:
    """What all files of a data set have in common, and where their rows are."""

    where: str
    base: str
    """The folder that paths of files start from where they are relative: workers have another."""
    layout: Layout
    dtype: np.dtype[Any]
    n_classes: int | None
    """None where there is only the confidence."""
    width: int | None
    """Scores in a row: of all classes, or of the largest."""
    class_names: tuple[str, ...] | None
    files: tuple[str, ...]
    """In order, those without rows among them, and without those that were left out."""
    parts: tuple[Part, ...]
    rows: int
    """As the footers say."""
    skip_bad: bool
    skipped: Skipped
    """Files that were left out when the footers were read."""

    def for_tasks(self) -> DataSet:
        """What every task is sent: without the files and parts of all the others."""
        return replace(self, files=(), parts=())

    @property
    def batch_rows(self) -> int:
        """Rows that are held at a time."""
        return max(1, min(BATCH_ROWS, BATCH_NUMBERS // (self.width or 1)))

    def bundles(self) -> list[tuple[Part, ...]]:
        """The parts, in order, cut into the work of one task each."""
        usual = min(BUNDLE_ROWS, BUNDLE_NUMBERS // (self.width or 1))
        most = max(usual, self.rows // MOST_BUNDLES)
        bundles: list[list[Part]] = [[]]
        held = 0
        for part in self.parts:
            if held and held + part.rows > most:
                bundles.append([])
                held = 0
            bundles[-1].append(part)
            held += part.rows
        return [tuple(bundle) for bundle in bundles]

    def checked(
        self,
        parts: tuple[Part, ...],
        check: Callable[[Predictions], Result],
        skipped: Skipped,
    ) -> Iterator[tuple[Predictions, Result]]:
        """Batches of rows, and ``check`` of them.

        A batch that ``check`` refuses is halved until the rows it refuses stand alone, where the
        refusal does not say which they are.
        """
        for file, of_file in groupby(parts, key=lambda part: part.file):
            with _OpenedOnce(Path(self.base, file)) as opened:
                for part in of_file:
                    for first, batch in _batches(part, opened, self, skipped):
                        yield from self._accepted(part, first, batch, check, skipped)

    def _accepted(
        self,
        part: Part,
        first: int,
        batch: Any,
        check: Callable[[Predictions], Result],
        skipped: Skipped,
    ) -> Iterator[tuple[Predictions, Result]]:
        try:
            predictions = self._decoded(part, first, batch)
            with _inputs.naming(f"{part.where}, counting from row {first}"):
                result = check(predictions)
        except (ValueError, TypeError) as refusal:
            if not self.skip_bad:
                raise
            for start, rest in _without_bad_rows(batch, refusal, skipped):
                yield from self._accepted(part, first + start, rest, check, skipped)
        else:
            yield predictions, result

    def _decoded(self, part: Part, first: int, batch: Any) -> Predictions:
        named = {name: batch.column(name) for name in self.layout.names}
        raw = Columns(named, where=part.where, first_row=first).by_role(
            self.layout, self.dtype, self.width
        )
        fields = cleaned(raw, self.layout, where=part.where, first_row=first)
        return Predictions(**fields, class_names=self.class_names, n_classes=self.n_classes)


def _without_bad_rows(
    batch: Any, refusal: Exception, skipped: Skipped
) -> Iterator[tuple[int, Any]]:
    """What is to be looked at again of a refused batch, and where in it that begins."""
    rows = batch.num_rows
    bad = bad_rows_of(refusal)
    if isinstance(refusal, TypeError) or rows == 1:  # a type is wrong in every row
        bad = np.arange(rows)
    if bad is None:  # the refusal does not say which: each half will
        yield 0, batch.slice(0, rows // 2)
        yield rows // 2, batch.slice(rows // 2)
        return
    skipped.add(str(refusal), rows=len(bad))
    if len(bad) < rows:
        yield 0, batch.take(np.delete(np.arange(rows), bad))


def open_data_set(path: Path, *, skip_bad: bool = False, n_classes: int | None = None) -> DataSet:
    """Read the footers of all files, and refuse or leave out those that do not agree.

    ``n_classes`` is needed where rows have their largest logits only, and files do not say it.
    """
    files = _files(path)
    skipped = Skipped()
    footers: list[_Footer] = []
    usable: list[str] = []
    named: Named | None = None
    for file, footer in zip(files, _footers(files), strict=True):
        try:
            if isinstance(footer, Exception):
                raise footer
            if footer.rows:  # parallel writers leave files without rows, often without types
                _refuse_other_columns(footer, footers)
                named = agreed_names(named, footer.file, footer.class_names)
                footers.append(footer)
            usable.append(str(file))
        except (ValueError, TypeError, OSError) as refusal:
            if not skip_bad:
                raise
            skipped.add(str(refusal), files=1, rows=_rows_or_none(file))
    check_some_rows_in(str(path), sum(footer.rows for footer in footers), skipped.files)
    layout = footers[0].layout
    parts: list[Part] = []
    place = 0
    for footer in footers:
        first = 0
        for group, rows in enumerate(footer.groups):
            if rows:
                parts.append(Part(footer.file, group, rows, first, place))
            first += rows
            place += rows
    data_set = DataSet(
        where=str(path),
        base=str(Path.cwd()),
        layout=layout,
        dtype=common_dtype([kind for footer in footers for kind in footer.kinds], layout),
        n_classes=len(layout.scores) if layout.numbered else None,
        width=len(layout.scores) if layout.numbered else None,
        class_names=named and named[1],
        files=tuple(usable),
        parts=tuple(parts),
        rows=place,
        skip_bad=skip_bad,
        skipped=skipped,
    )
    if layout.kind == "top_logits":
        known = _inputs.number_of_classes(footers[0].n_classes, n_classes, str(path))
        data_set = replace(data_set, n_classes=known)
    if layout.kind != "confidence" and not layout.numbered:
        width = _width(data_set)
        data_set = replace(data_set, width=width, n_classes=data_set.n_classes or width)
    if data_set.n_classes is not None:
        refuse_class_names(data_set.class_names, data_set.n_classes, str(path))
    if n_classes is not None:
        _inputs.number_of_classes(data_set.n_classes, n_classes, str(path))
    return data_set


def holds_truncated_rows(path: Path) -> bool:
    """Whether these are Parquet files with the largest logits of each row."""
    if not path.is_dir() and (path.suffix.lower() != ".parquet" or not path.exists()):
        return False
    for file in parquet_files(path) if path.is_dir() else [path]:
        with contextlib.suppress(ValueError, TypeError, OSError):  # refused where it is read
            footer = _footer(file)
            if footer.rows:
                return footer.layout.kind == "top_logits"
    return False


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [check_parquet_file(path)]
    files = parquet_files(path)
    check_some_files(path, len(files))
    return files


@dataclass(frozen=True)
class _Footer:
    """What the end of one file says of it."""

    file: str
    layout: Layout
    kinds: tuple[Any, ...]
    """Types of the columns of scores."""
    groups: tuple[int, ...]
    """Rows of each row group."""
    class_names: tuple[str, ...] | None
    n_classes: int | None

    @property
    def rows(self) -> int:
        return sum(self.groups)


def _footers(files: list[Path]) -> Iterator[_Footer | Exception]:
    """The footer of each file, or why there is none: many at a time, for files that lie far off."""
    arrow()
    with ThreadPoolExecutor(FOOTERS_AT_A_TIME) as pool:
        yield from pool.map(_footer_or_refusal, files)


def _footer_or_refusal(file: Path) -> _Footer | Exception:
    try:
        return _footer(file)
    except (ValueError, TypeError, OSError) as refusal:
        return refusal


def _footer(file: Path) -> _Footer:
    where = str(file)
    with decoding(where, KIND), opened_file(file) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        names = list(schema.names)
        groups = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
        held = _held_at_a_time(metadata)
    if not sum(groups):
        return _Footer(where, Layout("confidence"), (), (), None, None)
    layout = find_layout(names, part=None, where=where, table=True)
    check_columns_that_fit(where, len(layout.scores), held)
    kinds = tuple(schema.field(name).type for name in layout.scores)
    class_names = class_names_of(schema.metadata, where)
    return _Footer(where, layout, kinds, groups, class_names, n_classes_of(schema.metadata, where))


def _held_at_a_time(metadata: Any) -> int:
    """Bytes of a page of every column, which is what a reader holds; pages are up to 1 MB."""
    if metadata.num_row_groups == 0 or metadata.num_columns < MANY_COLUMNS:
        return 0
    group = metadata.row_group(0)
    sizes = (group.column(c).total_uncompressed_size for c in range(metadata.num_columns))
    return sum(min(size, LARGEST_PAGE) + COLUMN_BUFFERS for size in sizes)


def _refuse_other_columns(footer: _Footer, others: list[_Footer]) -> None:
    if others and footer.layout != others[0].layout:
        check_same_columns(
            footer.file,
            listed(footer.layout.names),
            others[0].file,
            listed(others[0].layout.names),
        )
    if others and footer.n_classes != others[0].n_classes:
        check_same_columns(
            footer.file,
            f"{footer.n_classes} classes",
            others[0].file,
            f"{others[0].n_classes} classes",
        )


def rows_in(path: Path) -> int:
    """How many rows the footers of a data set promise; a damaged file counts as empty."""
    return sum(_rows_or_none(file) for file in _files(path))


def _rows_or_none(file: Path) -> int:
    """How many rows a refused file has, 0 where it cannot be told."""
    try:
        with opened_file(file) as opened:
            return int(opened.metadata.num_rows)
    except Exception:  # damaged bytes raise anything
        return 0


def _width(data_set: DataSet) -> int:
    """How many numbers most lists have, of the first rows that can be read."""
    lenient = replace(data_set, skip_bad=True)
    for part in data_set.parts:
        with _OpenedOnce(Path(data_set.base, part.file)) as opened:
            for first, batch in _batches(part, opened, lenient, Skipped(), rows=ROWS_TO_SEE_WIDTH):
                widths = Counter(_widths(data_set, part, first, batch))
                if widths:
                    return widths.most_common(1)[0][0]
    return check_some_rows_in(data_set.where, 0, 0)


def _widths(data_set: DataSet, part: Part, first: int, batch: Any) -> Iterator[int]:
    """How many numbers the list of each row has, but for rows that are left out."""
    for row in range(batch.num_rows):
        try:
            predictions = data_set._decoded(part, first + row, batch.slice(row, 1))
        except (ValueError, TypeError):
            if not data_set.skip_bad:
                raise
            continue
        for scores in (predictions.logits, predictions.probs, predictions.top_logits):
            if scores is not None:
                yield int(scores.shape[1])


class _OpenedOnce:
    """A file that is opened, and its footer read, when its first row group is asked for."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.opened: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.opened is not None:
            self.opened.close()

    def for_part(self, part: Part) -> Any:
        """The open file, whose row group is as long as it was."""
        if self.opened is None:
            try:
                with decoding(part.where, KIND):
                    self.opened = opened_file(self.file)
            except (ValueError, OSError) as error:
                check_still_there(part.where, error)
        metadata = self.opened.metadata
        there = part.group < metadata.num_row_groups
        rows = metadata.row_group(part.group).num_rows if there else 0
        check_same_footer(part.where, part.rows, rows)
        return self.opened


def _batches(
    part: Part, opened: _OpenedOnce, data_set: DataSet, skipped: Skipped, rows: int | None = None
) -> Iterator[tuple[int, Any]]:
    """(first row in the file, columns) of batches of one row group."""
    left = part.rows
    try:
        batches = opened.for_part(part).iter_batches(
            batch_size=rows or data_set.batch_rows,
            row_groups=[part.group],
            columns=list(data_set.layout.names),
        )
        while left > 0:
            with decoding(part.where, KIND):
                batch = next(batches, None)
                if batch is None or batch.num_rows > left:
                    raise CalibrantError("it has not as many rows as its footer says")
            yield part.first_row + part.rows - left, batch
            left -= batch.num_rows
    except ValueError as refusal:
        if not data_set.skip_bad:
            raise
        skipped.add(str(refusal), groups=1, rows=left)


def check_parquet_file(path: Path) -> Path:
    """A Parquet file that is there."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}. Check the path")
    if path.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"data sets are Parquet, a .parquet file or a folder of them; found {str(path)!r}. "
            "Write it as Parquet"
        )
    return path


def check_some_files(folder: Path, n_files: int) -> None:
    """A folder that holds Parquet files, at any depth."""
    if n_files == 0:
        raise CalibrantError(
            f"{folder} holds no .parquet files, nor do the folders in it. Name another folder"
        )


def check_some_rows_in(where: str, n_rows: int, n_skipped: int) -> int:
    """A data set that has rows; ``n_skipped`` files of it were left out."""
    if n_rows == 0:
        left_out = f" besides {n_skipped} files that were left out" if n_skipped else ""
        raise CalibrantError(f"{where} has no rows{left_out}. Write at least one")
    return n_rows


def check_some_rows_left(where: str, n_rows: int, skipped: object) -> None:
    """Rows that are left after bad ones were left out."""
    if n_rows == 0:
        raise CalibrantError(f"{where} has no row that can be used. {skipped}")


def check_same_columns(file: str, found: str, other_file: str, expected: str) -> NoReturn:
    """Refuse a file with other columns, and so perhaps other classes, than the first."""
    raise CalibrantError(
        f"{file}: the files of a data set must have the same columns; found {found} here and "
        f"{expected} in {other_file}. Write them alike"
    )


MOST_HELD = 1 << 30


def check_columns_that_fit(where: str, n_columns: int, held: int) -> None:
    """Columns of which a page each, ``held`` bytes in all, leaves room for the work."""
    if held > MOST_HELD:
        raise CalibrantError(
            f"{where}: a reader holds a page of every column, which is {held / 1e9:.1f} GB for "
            f"{n_columns} columns of scores. Write them as one column of lists, called logits or "
            "probs, or in smaller row groups"
        )


class ChangedFileError(OSError):
    """A file that is not what it was when the data set was opened.

    It is never left out, as a bad row is: earlier passes have counted its rows.
    """


def check_same_footer(where: str, expected: int, found: int) -> None:
    """A row group that is as it was when the data set was opened."""
    if found != expected:
        raise ChangedFileError(
            f"{where} has changed while it was being read: it had {expected} rows; found {found}. "
            "Wait until it is written, and start again"
        )


def check_still_there(where: str, error: Exception) -> NoReturn:
    """Refuse a file whose footer was read, and which cannot be opened any more."""
    reason = (
        "found none" if isinstance(error, FileNotFoundError) else "its footer cannot be read again"
    )
    raise ChangedFileError(
        f"{where} has changed while it was being read: there was a file; {reason}. Start again "
        "when it is whole, and let workers see the same folders as this process"
    ) from error


def bad_rows_of(refusal: BaseException | None) -> npt.NDArray[np.intp] | None:
    """The rows that a refusal, or what it was made of, is about; None where it does not say."""
    while refusal is not None:
        if isinstance(refusal, _inputs.BadRowsError):
            return refusal.rows
        refusal = refusal.__cause__
    return None
