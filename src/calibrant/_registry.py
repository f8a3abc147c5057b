"""Tables of objects by name: ``CALIBRATORS``, ``METRICS``, ``LOSSES`` and others.

Other packages add entries as plug-ins: entry points of a group, loaded when they are asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from calibrant import _inputs
from calibrant.errors import CalibrantError, PluginWarning, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """A dict that treats hyphen and underscore alike and suggests a name for a typo.

    Args:
        what: What an entry is, for messages.
        entries: The entries of calibrant itself.
        plugins: Group of entry points in which other packages add entries. They are looked up only
            if a name is missing, or by :meth:`with_plugins`.
        check: Called with the name and the entry of a plug-in; raises if it cannot be used.

    Examples:
        >>> methods = Registry("method", {"top-rest": 1, "temperature": 2})
        >>> methods["top_rest"], methods.key("top_rest")
        (1, 'top-rest')
        >>> methods["temprature"]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        calibrant.errors.UnknownNameError: method must be one of ... Did you mean 'temperature'?
    """

    def __init__(
        self,
        what: str,
        entries: Mapping[str, Entry] | None = None,
        *,
        plugins: str | None = None,
        check: Callable[[str, Any], None] | None = None,
    ) -> None:
        super().__init__(entries or {})
        self.what = what
        self.plugins = plugins
        self.check = check

    def __missing__(self, name: str) -> Entry:
        return self[self.key(name)]

    def key(self, name: str, what: str | None = None) -> str:
        """The name as spelled in the registry; ``what`` names it in the error message."""
        spellings = (name, str(name).replace("_", "-"), str(name).replace("-", "_"))
        for known in spellings:
            if known in self:
                return known
        for known in spellings:
            if self.has(known):
                return known
        try:
            names = (*self, *(each for each in entry_points(self.plugins) if each not in self))
            return _inputs.choice(name, what or self.what, names)
        except CalibrantError as refusal:
            raise UnknownNameError(str(refusal)) from None

    def has(self, name: str) -> bool:
        """Whether there is an entry of exactly this name; that of a plug-in is loaded."""
        found = entry_points(self.plugins)
        if name not in self and name in found:
            where = f"the plug-in {name!r} of {package_of(found[name])} cannot be loaded"
            with _inputs.refusing(where, "Repair it, or uninstall it"):
                self.register(name, found[name].load())
        return name in self

    def register(self, name: str, entry: Entry) -> None:
        """Add an entry. A name that another module has taken is refused."""
        if self.check is not None:
            self.check(name, entry)
        taken = self.get(name, entry)
        if taken is not entry and taken.__module__ != entry.__module__:
            raise CalibrantError(
                f"the {self.what} {name!r} is that of {taken.__module__}; found another in "
                f"{entry.__module__}. Choose another name"
            )
        self[name] = entry

    def with_plugins(self) -> Self:
        """This registry with every plug-in loaded; one that cannot be loaded gives a warning."""
        for name in entry_points(self.plugins):
            try:
                self.has(name)
            except CalibrantError as refusal:
                warnings.warn(str(refusal), PluginWarning, stacklevel=2)
        return self


@cache
def entry_points(group: str | None) -> dict[str, EntryPoint]:
    """The entry points of a group by name; the installed packages are searched once."""
    if group is None:
        return {}
    from importlib import metadata  # it takes longer than all of this module

    return {each.name: each for each in metadata.entry_points(group=group)}


def package_of(found: EntryPoint) -> str:
    """Name and version of the package that an entry point belongs to."""
    return "an unknown package" if found.dist is None else f"{found.dist.name} {found.dist.version}"
