"""One page that says whether a model can be trusted, what to do, and what is gained.

``summarise`` computes plain data, ``render`` turns them into HTML, and ``page`` writes the file.
The page needs no network and no server, and most of it no JavaScript.
"""

import sys
from types import ModuleType
from typing import Any

from calibrant.report.page import write_report
from calibrant.report.summary import Summary

__all__ = ["Summary", "write_report"]


class _Callable(ModuleType):
    """``calibrant.report(val, test, path)`` writes the page: the package is what it does."""

    def __call__(self, *arguments: Any, **options: Any) -> Summary:
        return write_report(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
