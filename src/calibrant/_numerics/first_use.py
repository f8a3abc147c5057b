"""The first use of compiled functions: how it is avoided, and announced.

A compiled pass is up to four times as fast as one in NumPy, but takes about a second to compile the
first time, and tens of milliseconds to load later. A program that calls it again and again soon
gains from it, a command that calls it a few times does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

IN_A_PROGRAM = 1 << 14
IN_A_COMMAND = 1 << 19

_most: ContextVar[int] = ContextVar("few_numbers", default=IN_A_PROGRAM)
_repeated: ContextVar[bool] = ContextVar("repeated", default=False)


def are_few(numbers: int) -> bool:
    """Whether a pass over so many numbers is computed in NumPy."""
    return numbers <= _most.get()


def are_few_and_once(numbers: int) -> bool:
    """Whether a command computes a pass only once, so that even slow NumPy beats compiling.

    A program may come back for it.
    """
    return _most.get() > IN_A_PROGRAM and are_few(numbers) and not _repeated.get()


@contextmanager
def repeated() -> Iterator[None]:
    """What is computed in this block is computed for many models, or groups of samples."""
    token = _repeated.set(True)
    try:
        yield
    finally:
        _repeated.reset(token)


class Announcement:
    """Says once that functions are being compiled, if a command has asked for it."""

    say: Callable[[], None] | None = None

    @classmethod
    def make(cls) -> None:
        """Compilation begins."""
        say, cls.say = cls.say, None
        if say is not None:
            say()


@contextmanager
def few_up_to(numbers: int) -> Iterator[None]:
    """Compute passes over up to so many numbers in NumPy."""
    token = _most.set(numbers)
    try:
        yield
    finally:
        _most.reset(token)
