"""Tables of objects by name: ``CALIBRATORS``, ``METRICS``, ``LOSSES`` and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from calibrant import _inputs
from calibrant.errors import CalibrantError, UnknownNameError

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """A dict that treats hyphen and underscore alike and suggests a name for a typo.

    Examples:
        >>> methods = Registry("method", {"top-rest": 1, "temperature": 2})
        >>> methods["top_rest"], methods.key("top_rest")
        (1, 'top-rest')
        >>> methods["temprature"]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        calibrant.errors.UnknownNameError: method must be one of ... Did you mean 'temperature'?
    """

    def __init__(self, what: str, entries: Mapping[str, Entry] | None = None) -> None:
        super().__init__(entries or {})
        self.what = what

    def __missing__(self, name: str) -> Entry:
        return self[self.key(name)]

    def key(self, name: str, what: str | None = None) -> str:
        """The name as spelled in the registry; ``what`` names it in the error message."""
        for known in (name, str(name).replace("_", "-"), str(name).replace("-", "_")):
            if known in self:
                return known
        try:
            return _inputs.choice(name, what or self.what, tuple(self))
        except CalibrantError as refusal:
            raise UnknownNameError(str(refusal)) from None
