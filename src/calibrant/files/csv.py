"""CSV with a header line, plain or gzipped, parsed a few megabytes at a time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.errors import CalibrantError
from calibrant.files.columns import Columns, arrow
from calibrant.files.layout import Asked, find_layout
from calibrant.files.predictions import OTHER, Block, cleaned, decoding, refuse_rows

_BLOCK = 1 << 22  # bytes parsed at once; a line must fit into it
_MISSING = ["", "NA", "N/A", "#N/A", "null", "NULL", "None"]  # not nan: it is a number
_TRUE = ("true", "1", "1.0")
_FALSE = ("false", "0", "0.0")
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


class CsvSource:
    """A CSV file: the constructor checks the header, ``blocks`` reads the rows."""

    rows: int | None = None  # known only at the end
    class_names: tuple[str, ...] | None = None  # no place for them
    n_classes: int | None = None

    def __init__(self, path: Path, part: str | None, where: str, asked: Asked) -> None:
        arrow()
        self.path = path
        self.where = where
        self.header: list[str] = []
        with self._explained(), self._reader([], {}) as reader:
            self.header = list(reader.schema.names)
        self.layout = find_layout(self.header, part=part, where=where, table=True, asked=asked)

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order, a few megabytes of text at a time."""
        names, roles = list(self.layout.names), self.layout.roles
        types = dict.fromkeys(names, arrow().float64())
        in_text = ("ids", "correct") if "confidence" in roles else ("ids", "correct", "labels")
        as_text = [roles[role] for role in in_text if role in roles]
        lists = "" if self.layout.numbered else "".join(self.layout.scores)
        text = [*self.layout.kept, *as_text, *filter(None, [lists])]
        types |= dict.fromkeys(text, arrow().string())
        whole_ids = "ids" in roles and self._all_whole_numbers(roles["ids"])
        width: int | None = None
        start = 0
        for batch in self._batches(names, types):
            columns = {name: batch.column(name) for name in names}
            if lists:
                columns[lists] = self._lists(columns[lists], lists, start)
            if "correct" in roles:
                columns[roles["correct"]] = self._truth(columns[roles["correct"]], start)
            if whole_ids:
                columns[roles["ids"]] = columns[roles["ids"]].cast(arrow().int64())
            given = Columns(columns, where=self.where, first_row=start)
            raw = given.by_role(self.layout, np.dtype(np.float64), width)
            raw |= {OTHER + name: batch.column(name) for name in self.layout.kept}  # as text
            width = raw["scores"].shape[1] if "scores" in raw else None
            yield cleaned(raw, self.layout, where=self.where, first_row=start)
            start += batch.num_rows
        if start == 0:
            raise CalibrantError(f"{self.where} has a header line but no rows. Write at least one")

    def _reader(self, columns: list[str], types: dict[str, Any]) -> Any:
        csv = arrow().csv
        # One thread is as fast here as many, and its errors say which row.
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types, include_columns=columns, null_values=_MISSING
            ),
        )

    def _batches(self, columns: list[str], types: dict[str, Any]) -> Iterator[Any]:
        with self._explained():
            reader = self._reader(columns, types)
        with reader:
            while True:
                with self._explained():
                    batch = next(reader, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield batch

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Explain the two most common mistakes in CSV files; rows count from 0."""
        try:
            with decoding(self.where, "CSV"):
                yield
        except ValueError as error:
            text = str(error.__cause__)
            cell = re.search(r"column #(\d+): Row #(\d+): .*invalid value '(.*)'", text, re.DOTALL)
            if cell and self.header:
                column = self.header[int(cell[1])]
                raise CalibrantError(
                    f"{self.where}: the column {column} must hold numbers; found "
                    f"{cell[3][:40]!r} in row {int(cell[2]) - 2}. Correct it or drop the row"
                ) from error
            cells = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text)
            if cells:
                raise CalibrantError(
                    f"{self.where}: every row must have as many cells as the header, {cells[2]}; "
                    f"found {cells[3]} in row {int(cells[1]) - 2}. Correct it or drop the row"
                ) from error
            raise

    def _all_whole_numbers(self, column: str) -> bool:
        """CSV has no types: ids are numbers if all of them are written as numbers."""
        pc = arrow().compute
        return all(
            pc.all(pc.match_substring_regex(batch.column(0), _WHOLE_NUMBER)).as_py()
            for batch in self._batches([column], {column: arrow().string()})
        )

    def _lists(self, text: Any, name: str, first_row: int) -> Any:
        """Lists written as ``[0.1, 0.9]``, or ``[0.1 0.9]`` as NumPy prints them."""
        pc = arrow().compute
        plain = pc.replace_substring_regex(text, r"[\[\](),;\s]+", " ")
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(plain))
        try:
            return words.cast(arrow().list_(arrow().float64()))
        except ValueError as error:
            for row, entries in enumerate(words.to_pylist()):
                for entry in entries:
                    if not _is_number(entry):
                        raise CalibrantError(
                            f"{self.where}: the column {name} must hold lists of numbers; found "
                            f"{entry[:40]!r} in row {first_row + row}. Correct it or drop the row"
                        ) from error
            raise

    def _truth(self, text: Any, first_row: int) -> Any:
        pa = arrow()
        plain = pa.compute.utf8_lower(pa.compute.utf8_trim_whitespace(text))
        true = pa.compute.is_in(plain, value_set=pa.array(_TRUE))
        false = pa.compute.is_in(plain, value_set=pa.array(_FALSE))
        bad = pa.compute.invert(pa.compute.or_(true, false)).to_numpy(zero_copy_only=False)
        refuse_rows(
            bad,
            [repr(cell) for cell in text.to_pylist()] if bad.any() else (),
            f"{self.where}: the column {self.layout.roles['correct']} must be true or false",
            "Correct it or drop the row",
            first_row,
        )
        return true


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
