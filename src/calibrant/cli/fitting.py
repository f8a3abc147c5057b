"""What the commands that fit many methods share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from calibrant.calibrators import CALIBRATORS, Calibrator
from calibrant.calibrators.registry import make_calibrators, required_params
from calibrant.errors import CalibrantError


def named_methods(
    options: Iterable[str], gamma: float | None, *, against: str | None = None
) -> dict[str, Calibrator]:
    """Methods by names that may be joined by commas; without any, every one that can be made.

    ``against`` is there in any case.
    """
    wanted = [name.strip() for given in options for name in given.split(",")] or None
    chosen = make_calibrators(wanted, gamma=gamma)
    if against is not None and against not in chosen:
        chosen |= make_calibrators([against], gamma=gamma)
    if gamma is not None and not any(
        "gamma" in required_params(CALIBRATORS[name]) for name in chosen
    ):
        raise CalibrantError(
            "--gamma is for methods that need it (focal); found none among those to compare. "
            "Leave it out"
        )
    return chosen


@contextmanager
def fitting_bar(val: str, n_steps: int) -> Iterator[Callable[[str], None]]:
    """A bar, where there is a terminal; call it with the name of each step that begins."""
    with click.progressbar(
        length=n_steps,
        label=f"fitting on {Path(val).name}",
        item_show_func=lambda name: name or "",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as bar:

        def show(name: str) -> None:
            bar.update(0 if bar.current_item is None else 1, name)

        yield show
        bar.update(1)
