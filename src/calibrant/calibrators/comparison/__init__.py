"""Every calibrator on the same predictions: fitted on one part, measured on another."""

from calibrant.calibrators.comparison.advice import POSITIVE, Recommendation
from calibrant.calibrators.comparison.result import ComparedMethod, MethodComparison
from calibrant.calibrators.comparison.run import REFERENCE, compare, compare_samples
from calibrant.calibrators.comparison.table import PERCENT, SORTABLE, columns

__all__ = [
    "PERCENT",
    "POSITIVE",
    "REFERENCE",
    "SORTABLE",
    "ComparedMethod",
    "MethodComparison",
    "Recommendation",
    "columns",
    "compare",
    "compare_samples",
]
