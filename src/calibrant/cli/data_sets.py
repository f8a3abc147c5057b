"""Data sets larger than memory: their options, and where a command processes them."""

from __future__ import annotations

from pathlib import Path

import click

from calibrant import _inputs
from calibrant.files.parquet import parquet_files

LOCAL = "local"
"""All cores of this machine, as in `scale`."""
IN_PROCESS = "in process"
"""This process, which reads the data set in parts."""

ROWS_ALONE = 200_000
"""Rows of a data set up to which starting workers takes longer than the work."""


scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Where to process Parquet files and folders: 'local' for all cores of this machine (the "
    "default for large folders), or the address of a Dask scheduler.",
)
skip_bad_option = click.option(
    "--skip-bad",
    is_flag=True,
    help="Skip files and rows of a Parquet data set that cannot be used, and count them.",
)
classes_option = click.option(
    "--classes",
    type=click.IntRange(min=2),
    metavar="K",
    help="Number of classes, if Parquet files hold only the largest logits of each row "
    "(top_logits, top_classes, normaliser) and do not state it.",
)


def check_classes(where: str, found: int, classes: int | None) -> None:
    """Refuse ``--classes`` that differs from what the file shows."""
    if classes is not None:
        _inputs.number_of_classes(found, classes, where)


def scheduler_of(
    file: str, scheduler: str | None, *, skip_bad: bool, rows_in_memory: int
) -> str | None:
    """The scheduler for ``file``; None where this process reads it like any other file."""
    if scheduler is not None:
        return scheduler
    in_parts = skip_bad or _holds_folders(file) or holds_truncated_rows(file)
    if not in_parts and not Path(file).is_dir():
        return None
    from calibrant.scale import source

    rows = source.rows_in(Path(file))
    if in_parts:
        return LOCAL if rows > ROWS_ALONE else IN_PROCESS
    return LOCAL if rows > rows_in_memory else None


def scheduler_argument(where: str) -> str | None:
    """What ``scale`` takes for the result of :func:`scheduler_of`."""
    return None if where == IN_PROCESS else where


def holds_truncated_rows(file: str) -> bool:
    """Whether ``file`` has the largest logits of each row."""
    if not (Path(file).is_dir() or file.lower().endswith(".parquet")):
        return False
    from calibrant.scale import source

    return source.holds_truncated_rows(Path(file))


def _holds_folders(file: str) -> bool:
    """Whether a folder has Parquet files in subfolders, which only ``scale`` reads."""
    folder = Path(file)
    return folder.is_dir() and any(each.parent != folder for each in parquet_files(folder))
