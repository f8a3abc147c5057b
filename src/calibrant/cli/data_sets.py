"""What the commands share that also work on data sets beyond one machine's memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from calibrant.files import count_rows

LOCAL = "local"
"""A cluster on this machine, as `scale` names it."""


def scheduler_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--scheduler``: where to work."""
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Work on a Dask cluster, through Parquet files in any folders: the address of its "
        "scheduler, or 'local' for all cores of this machine, which large folders take anyway.",
    )(command)


def skip_bad_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--skip-bad``: what to do with what cannot be used."""
    return click.option(
        "--skip-bad",
        is_flag=True,
        help="Leave out files and rows of a Parquet data set that cannot be used, and count them.",
    )(command)


def scheduler_of(
    file: str, scheduler: str | None, *, skip_bad: bool, rows_in_memory: int
) -> str | None:
    """The scheduler for ``file``; None where this process reads it as any other file."""
    if scheduler is not None or skip_bad:
        return scheduler or LOCAL
    folder = Path(file)
    if not folder.is_dir():
        return None
    if not any(inside.suffix.lower() == ".parquet" for inside in folder.iterdir()):
        return LOCAL if any(folder.rglob("*.parquet")) else None
    return LOCAL if (count_rows(file) or 0) > rows_in_memory else None
