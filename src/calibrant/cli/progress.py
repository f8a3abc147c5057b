"""Progress bars: on a terminal only, and on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from calibrant.files import count_rows


def progress_bar(label: str, length: int | None = None, **options: Any) -> Any:
    """A bar of ``length`` steps, which shows the item that each step is given."""
    return click.progressbar(
        length=length,
        label=label,
        item_show_func=lambda item: item or "",
        file=sys.stderr,
        **{"hidden": not sys.stderr.isatty(), **options},
    )


def batches_bar(label: str, batches: Iterable[Any], file: str, batch_rows: int) -> Any:
    """A bar over the batches of a file, whose rows are counted only if there is a terminal."""
    rows = count_rows(file) if sys.stderr.isatty() else None
    length = None if rows is None else -(-rows // batch_rows)
    return click.progressbar(
        batches, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    )


@contextmanager
def fitting_bar(val: str, n_steps: int) -> Iterator[Callable[[str], None]]:
    """A bar over named steps; call what it gives with the name of each step that begins."""
    with progress_bar(f"fitting on {Path(val).name}", n_steps) as bar:

        def show(name: str) -> None:
            bar.update(0 if bar.current_item is None else 1, name)

        yield show
        bar.update(1)


@contextmanager
def passes_bar(label: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar that starts again with each pass over a data set.

    Call what it gives with the number of the pass, the tasks done and the tasks of this pass.
    """
    with progress_bar(label, 1, show_eta=False, show_pos=True) as bar:
        current = 0

        def show(number: int, done: int, of: int) -> None:
            nonlocal current
            if number < current:  # news from a cluster may come late
                return
            if number > current:
                current, bar.length, bar.pos, bar.finished = number, of, 0, False
            bar.update(done - bar.pos, f"pass {number}")

        yield show
