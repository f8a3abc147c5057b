"""What the commands share that also work on data sets beyond one machine's memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    if scheduler is not None or skip_bad:
        return scheduler or LOCAL
    folder = Path(file)
    if not folder.is_dir():
        return None
    if not any(inside.suffix.lower() == ".parquet" for inside in folder.iterdir()):
        return LOCAL if any(folder.rglob("*.parquet")) else None
    return LOCAL if (count_rows(file) or 0) > rows_in_memory else None
