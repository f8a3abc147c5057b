"""CSV with a header line, plain or gzipped, a block of rows at a time."""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError
from calibrant.files.layout import OTHER, Asked, Layout, find_layout
from calibrant.files.meaning import is_number
from calibrant.files.predictions import MISSING, WHOLE_NUMBER, Block, cleaned, decoding

_BLOCK = 1 << 20  # bytes that the rows of a block take in memory; more is slower
_CELL = 64  # of them for each cell, besides its characters
_LONGEST_CELL = 1 << 26  # Python refuses more than 131072 characters, a list of 6000 numbers
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_BRACKETS = str.maketrans("[](),;", "      ")
_FIX = "Correct it or drop the row"
_SHA256 = re.compile(r"[0-9a-f]{64}")

CALIBRATOR = "calibrator"
"""Column of the SHA-256 of the calibrator file that made the probabilities."""


class CsvSource:
    """A CSV file: the constructor checks the header, ``blocks`` reads the rows."""

    rows: int | None = None  # known only at the end
    class_names: tuple[str, ...] | None = None  # no place for them
    n_classes: int | None = None

    def __init__(self, path: Path, part: str | None, where: str, asked: Asked) -> None:
        self.path = path
        self.where = where
        with contextlib.closing(self._parsed()) as parsed:
            self.header = next(parsed, [[]])[0]
        self.layout = find_layout(self.header, part=part, where=where, table=True, asked=asked)
        if self.layout.bfloat16:
            raise CalibrantError(
                f"{where}: CSV holds numbers, not the bits of bfloat16; found the column "
                f"{self.layout.scores[0]}. Write the numbers as {self.layout.kind}"
            )

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order, some megabytes at a time."""
        ids = self.layout.roles.get("ids")
        whole_ids = ids is not None and self._all_whole_numbers(ids)
        width: int | None = None
        start = 0
        for cells in self._cells():
            raw = cells.by_role(self.layout, width)
            if whole_ids:
                raw["ids"] = raw["ids"].astype(np.int64)
            width = raw["scores"].shape[1] if "scores" in raw else None
            yield cleaned(raw, self.layout, where=self.where, first_row=start)
            start += len(cells.rows)
        if start == 0:
            raise CalibrantError(f"{self.where} has a header line but no rows. Write at least one")

    def _all_whole_numbers(self, column: str) -> bool:
        """CSV has no types: ids are numbers if all of them are written as numbers."""
        return all(
            WHOLE_NUMBER.fullmatch(cell) for cells in self._cells() for cell in cells.text(column)
        )

    def _cells(self) -> Iterator[_Cells]:
        start = 0
        with contextlib.closing(self._parsed()) as parsed:
            next(parsed)  # the header
            for rows in parsed:
                yield _Cells(self.header, rows, self.where, start)
                start += len(rows)

    def _parsed(self) -> Generator[list[list[str]]]:
        """The header, and then the rows in blocks, without blank lines."""
        opened: Any = gzip.open if self.path.suffix.lower() == ".gz" else open
        with opened(self.path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = filter(None, csv.reader(file, strict=True))
            count = 1
            while block := self._next(rows, count):
                yield block
                size = sum(_CELL + len(cell) for cell in block[-1])
                count = max(1, min(16 * count, _BLOCK // size))  # rows may be longer than the first

    def _next(self, rows: Iterator[list[str]], count: int) -> list[list[str]]:
        usual = csv.field_size_limit(_LONGEST_CELL)  # of all readers, so it is put back
        try:
            with decoding(self.where, "CSV"):
                return list(itertools.islice(rows, count))
        finally:
            csv.field_size_limit(usual)


class _Cells:
    """Rows of text; what does not suit its column is refused.

    ``first_row`` is the index of the first one in the file, for messages.
    """

    def __init__(
        self, header: list[str], rows: list[list[str]], where: str, first_row: int
    ) -> None:
        self.header = header
        self.rows = rows
        self.where = where
        self.first_row = first_row
        self._check_lengths(
            rows, len(header), "every row must have as many cells as the header", _FIX
        )

    def by_role(self, layout: Layout, width: int | None) -> Block:
        """The arrays of ``layout``; the scores have this ``width`` (None: any)."""
        raw: Block = {}
        if layout.numbered:
            raw["scores"] = self._numbers(layout.scores)
        elif layout.scores:
            raw["scores"] = self._lists(layout.scores, width)
        if layout.label_columns:
            raw["labels"] = self._numbers(layout.label_columns)
        for role, name in layout.roles.items():
            if role == "ids":
                with decoding(f"{self.where}: the column {name}", "text"):
                    raw[role] = np.array(self.text(name), dtype=str)
            elif role in ("labels", "predicted"):
                raw[role] = self._labels(name)
            elif role == "correct":
                raw[role] = self._truth(name)
            elif role == "classes":
                raw[role] = self._lists([name], raw["scores"].shape[1])
            else:
                raw[role] = self._numbers([name])[:, 0]
        if "predicted" in raw:
            with contextlib.suppress(ValueError):  # names, not numbers
                raw |= {role: raw[role].astype(np.float64) for role in ("labels", "predicted")}
        return raw | {OTHER + n: np.array(self.text(n), dtype=object) for n in layout.kept}

    def text(self, name: str) -> list[str]:
        place = self.header.index(name)
        return [row[place] for row in self.rows]

    def _numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """(rows, columns) floats."""
        places = [self.header.index(name) for name in names]
        cells = list(map(itemgetter(*places), self.rows))
        try:
            return np.array(cells, dtype=np.float64).reshape(len(cells), len(names))
        except ValueError:
            for name in names:
                self._refuse_words([[cell] for cell in self.text(name)], name, "numbers")
            raise

    def _lists(self, names: Sequence[str], width: int | None) -> NDArray[np.float64]:
        """Lists written as ``[0.1, 0.9]``, or ``[0.1 0.9]`` as NumPy prints them, side by side."""
        rows = zip(*map(self.text, names), strict=True)
        lists = [" ".join(cells).translate(_BRACKETS).split() for cells in rows]
        name = ", ".join(names)
        what = f"the lists of {name} must be of one length"
        width = len(lists[0]) if width is None else width
        self._check_lengths(lists, width, what, "Write one number per class")
        try:
            return np.array(lists, dtype=np.float64)
        except ValueError:
            self._refuse_words(lists, name, "lists of numbers")
            raise

    def _labels(self, name: str) -> NDArray[Any]:
        """Numbers or names, as text."""
        labels = [cell.strip() for cell in self.text(name)]
        for row, label in enumerate(labels):
            if label in MISSING:
                raise self._no_value(name, row)
        return np.array(labels, dtype=str)

    def _truth(self, name: str) -> NDArray[np.bool_]:
        words = [cell.strip().lower() for cell in self.text(name)]
        for row, word in enumerate(words):
            if word not in _TRUTH:
                found = self.text(name)[row]
                raise self._refusal(f"the column {name} must be true or false", found, row)
        return np.array([_TRUTH[word] for word in words])

    def _refuse_words(self, rows: list[list[str]], name: str, what: str) -> None:
        for row, cells in enumerate(rows):
            for cell in cells:
                if cell.strip() in MISSING:
                    raise self._no_value(name, row)
                if not is_number(cell):
                    raise self._refusal(f"the column {name} must hold {what}", cell, row)

    def _check_lengths(self, rows: list[list[str]], expected: int, what: str, fix: str) -> None:
        if set(map(len, rows)) != {expected}:
            row, found = next((i, len(r)) for i, r in enumerate(rows) if len(r) != expected)
            raise CalibrantError(
                f"{self.where}: {what}, {expected}; found {found} in row {self.first_row + row}. "
                f"{fix}"
            )

    def _no_value(self, name: str, row: int) -> CalibrantError:
        return CalibrantError(
            f"{self.where}: the column {name} must have a value in every row; found none in row "
            f"{self.first_row + row}. Fill it in or drop the row"
        )

    def _refusal(self, what: str, found: str, row: int) -> CalibrantError:
        return CalibrantError(
            f"{self.where}: {what}; found {found[:40]!r} in row {self.first_row + row}. {_FIX}"
        )


def write_csv(
    target: Path, batches: Iterable[Mapping[str, Any]], *, calibrator: str | None = None
) -> None:
    """Write batches of columns: arrays by name, without those that are None.

    ``calibrator`` is the SHA-256 of the calibrator that made them, for a column of that name.

    Floats have the fewest digits that are read back as the same float64. Text is quoted, because
    before Python 3.13 the csv module leaves a carriage return in it unquoted otherwise.
    """
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        for number, columns in enumerate(batches):
            given = {name: array for name, array in columns.items() if array is not None}
            if calibrator is not None:
                _refuse_losing(given.get(CALIBRATOR, ()))
                rows = len(next(iter(given.values())))
                given[CALIBRATOR] = np.full(rows, calibrator)
            if number == 0:
                writer.writerow(given)
            writer.writerows(zip(*(array.tolist() for array in given.values()), strict=True))


def _refuse_losing(known: Iterable[Any]) -> None:
    """Refuse a column that the hash would replace, unless it holds such hashes already."""
    if not all(_SHA256.fullmatch(str(each)) for each in known):
        raise CalibrantError(
            f"the hash of the calibrator is written as {CALIBRATOR}, which the file has already. "
            "Rename or drop that column"
        )
