"""Exceptions for wrong input. Any other exception is a bug of calibrant."""

from __future__ import annotations


class CalibrantError(ValueError):
    """The input cannot be used.

    The message is one line: what was expected, what was found, what to do. The command line prints
    it and exits with status 2. Any other exception is a bug: the command line prints a traceback
    and exits with status 1.
    """


class MissingExtraError(CalibrantError, ImportError):
    """A package that an optional part of calibrant needs is not installed."""


class PluginWarning(UserWarning):
    """A plug-in that is installed cannot be loaded."""


class UnknownNameError(CalibrantError, KeyError):
    """A name that is not in a registry."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print it in quotes
