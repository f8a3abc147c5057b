"""What the commands share that also work on data sets beyond one machine's memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from calibrant import _inputs, _thresholds
from calibrant.files import count_rows
from calibrant.files.parquet import count_rows_in, is_truncated, parquet_files

LOCAL = "local"
"""All cores of this machine, as `scale` names them."""
IN_PROCESS = "in process"
"""This process, which reads a data set in parts."""


def scheduler_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--scheduler``: where to work."""
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Where to process Parquet files in any folders: 'local' for all cores of this "
        "machine, the default for large folders, or the address of a Dask scheduler.",
    )(command)


def skip_bad_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--skip-bad``: what to do with what cannot be used."""
    return click.option(
        "--skip-bad",
        is_flag=True,
        help="Leave out files and rows of a Parquet data set that cannot be used, and count them.",
    )(command)


def classes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--classes``: how many there are, where the files do not show it."""
    return click.option(
        "--classes",
        type=click.IntRange(min=2),
        metavar="K",
        help="How many classes there are, where Parquet files have the largest logits of each row "
        "only (top_logits, top_classes, normaliser) and do not say it.",
    )(command)


def refuse_other_number(where: str, found: int, classes: int | None) -> None:
    """``--classes`` that is not what the file itself shows."""
    if classes is not None:
        _inputs.number_of_classes(found, classes, where)


@contextmanager
def passes_bar(label: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar, where there is a terminal, that begins anew with each pass over a data set.

    Call it with the number of the pass, how many of its tasks are done, and how many there are.
    """
    with click.progressbar(
        length=1,
        label=label,
        show_eta=False,
        show_pos=True,
        item_show_func=lambda text: text or "",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as bar:
        current = 0

        def show(number: int, done: int, of: int) -> None:
            nonlocal current
            if number < current:  # of a cluster, news may come late
                return
            if number > current:
                current, bar.length, bar.pos, bar.finished = number, of, 0, False
            bar.update(done - bar.pos, f"pass {number}")

        yield show


def scheduler_of(
    file: str, scheduler: str | None, *, skip_bad: bool, rows_in_memory: int
) -> str | None:
    """The scheduler for ``file``; None where this process reads it as any other file."""
    if scheduler is not None:
        return scheduler
    if skip_bad or _holds_folders(file) or is_truncated(Path(file)):
        many = count_rows_in(Path(file)) > _thresholds.ROWS_IN_ONE_PROCESS
        return LOCAL if many else IN_PROCESS
    many = Path(file).is_dir() and (count_rows(file) or 0) > rows_in_memory
    return LOCAL if many else None


def scheduler_argument(where: str) -> str | None:
    """What ``scale`` takes for the result of :func:`scheduler_of`."""
    return None if where == IN_PROCESS else where


def _holds_folders(file: str) -> bool:
    """Whether some Parquet files of a folder lie in folders of it, which no other reader enters."""
    folder = Path(file)
    return folder.is_dir() and any(each.parent != folder for each in parquet_files(folder))
