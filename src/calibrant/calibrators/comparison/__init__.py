"""Every calibrator on the same predictions: fitted on one part, measured on another."""

from calibrant.calibrators.comparison.result import ComparedMethod, MethodComparison
from calibrant.calibrators.comparison.run import REFERENCE, compare, compare_samples
from calibrant.calibrators.comparison.table import SORTABLE

__all__ = [
    "REFERENCE",
    "SORTABLE",
    "ComparedMethod",
    "MethodComparison",
    "compare",
    "compare_samples",
]
