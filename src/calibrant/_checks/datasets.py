"""Data sets: their folders and how they are split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrant._checks.files import path
from calibrant._checks.values import finite_number
from calibrant.errors import CalibrantError


def shares_of_parts(val_share: Any, test_share: Any) -> tuple[float, float]:
    """(test, val) shares of a data set that leave something to train on."""
    val, test = finite_number(val_share, "val_share"), finite_number(test_share, "test_share")
    if not (val > 0.0 and test > 0.0 and val + test < 1.0):
        raise CalibrantError(
            f"val_share and test_share must be above 0 and below 1 together; found {val:g} and "
            f"{test:g}. Pass 0.2 and 0.2, say"
        )
    return test, val


def no_empty_part(n_rows: int, sizes: Sequence[int]) -> None:
    """Enough rows for a test, a validation and a training part."""
    if min(sizes) < 1:
        raise CalibrantError(
            f"each part must have a row; found {n_rows} rows in all, which give {sizes[2]} for "
            f"training, {sizes[1]} for validation and {sizes[0]} for testing. Use more rows or "
            "other shares"
        )


def folder_of(value: Any, name: str, page: str) -> Path:
    """The folder (or file) that a data set is read from."""
    if value is None:
        raise CalibrantError(
            f"{name} is read from files; found no folder. Get them from {page} and pass the folder"
        )
    return path(value, f"the folder of {name}")


def label_of_each_row(n_missing: int, n_rows: int, name: str) -> None:
    """A class in every row of a table."""
    if n_missing:
        raise CalibrantError(
            f"every row must have a class in the column {name!r}; found none in {n_missing} of "
            f"{n_rows} rows. Leave these rows out"
        )


def fewer_classes_than_rows(n_classes: int, n_rows: int) -> None:
    """Classes, and not measurements: most have more than one row."""
    if 2 * n_classes > n_rows:
        raise CalibrantError(
            f"there must be two or more rows a class on average; found {n_classes} classes in "
            f"{n_rows} rows. Choose the column of the class, or group its values"
        )


def words_of_column(n_words: int, name: str, most: int) -> None:
    """A column of words that can be learnt from; one of names or dates has too many."""
    if n_words > most:
        raise CalibrantError(
            f"a column of words may have {most} different ones; found {n_words} in {name!r}. "
            "Leave the column out, or group its words"
        )
