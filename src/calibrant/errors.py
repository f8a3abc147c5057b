"""What is raised where the input is wrong: everything else is a bug of calibrant."""

from __future__ import annotations


class CalibrantError(ValueError):
    """The input cannot be used.

    The message has one line: what was expected, what was found, what to do. The command line prints
    it and ends with status 2. Any other exception is a bug, which it shows with a traceback and
    status 1.
    """


class MissingExtraError(CalibrantError, ImportError):
    """A package that an optional part of calibrant needs is not installed."""


class UnknownNameError(CalibrantError, KeyError):
    """A name that a registry does not have."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show it in quotes
