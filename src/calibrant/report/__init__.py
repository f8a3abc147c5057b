"""One HTML page about a model: can it be trusted, what to do, and what calibration gains.

``summarise`` computes plain data, ``render`` turns it into HTML, and ``page`` writes the file.
The page needs no network and no server, and most of it needs no JavaScript.
"""

import sys
from types import ModuleType
from typing import Any

from calibrant.report.multilabel import MultiLabelSummary, write_multilabel_report
from calibrant.report.page import write_report
from calibrant.report.summary import Summary

__all__ = ["MultiLabelSummary", "Summary", "write_multilabel_report", "write_report"]


class _Callable(ModuleType):
    """A package that can be called: ``calibrant.report(val, test, path)`` writes the page."""

    def __call__(self, *arguments: Any, **options: Any) -> Summary:
        return write_report(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
