"""Data sets larger than memory: their options, and where a command processes them."""

from __future__ import annotations

from pathlib import Path

import click

from calibrant import _inputs, _thresholds
from calibrant.files.condition import Condition
from calibrant.files.parquet import count_rows_in, is_truncated

LOCAL = "local"
"""All cores of this machine, as in `scale`."""
IN_PROCESS = "in process"
"""This process, which reads the data set in parts."""


scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Where to process Parquet files and folders: 'local' for all cores of this machine (the "
    "default for large folders), or the address of a Dask scheduler.",
)
skip_bad_option = click.option(
    "--skip-bad",
    is_flag=True,
    help="Skip files and rows of a Parquet data set, or lines of a .jsonl file, that cannot be "
    "used, and count them.",
)
classes_option = click.option(
    "--classes",
    type=click.IntRange(min=2),
    metavar="K",
    help="Number of classes, if Parquet files hold only the largest logits of each row "
    "(top_logits, top_classes, normaliser) and do not state it.",
)


def is_log(file: str) -> bool:
    """Whether a file is the log of a language model, which is never read in parts."""
    return Path(file).suffix.lower() == ".jsonl"


def check_classes(where: str, found: int, classes: int | None) -> None:
    """Refuse ``--classes`` that differs from what the file shows."""
    if classes is not None:
        _inputs.number_of_classes(found, classes, where)


def scheduler_of(
    file: str,
    scheduler: str | None,
    *,
    skip_bad: bool,
    rows_in_memory: int,
    where: str | None = None,
) -> str | None:
    """The scheduler for ``file``; None where this process reads it like any other file.

    Only rows that may meet the condition ``where`` count.
    """
    if scheduler is not None:
        return scheduler
    in_parts = (skip_bad and not is_log(file)) or is_truncated(Path(file))
    if not in_parts and not Path(file).is_dir():
        return None
    rows = count_rows_in(Path(file), None if where is None else Condition.parsed(where))
    if in_parts:
        return LOCAL if rows > _thresholds.ROWS_IN_ONE_PROCESS else IN_PROCESS
    return LOCAL if rows > rows_in_memory else None


def scheduler_argument(where: str) -> str | None:
    """What ``scale`` takes for the result of :func:`scheduler_of`."""
    return None if where == IN_PROCESS else where
