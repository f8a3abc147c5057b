"""Post-hoc calibrators: from logits and labels to honest probabilities.

A new method is one class (see ``base``) and one line in ``registry``.
"""

from calibrant.calibrators import registry
from calibrant.calibrators.base import Calibrator, Fitted, NotFittedError, State
from calibrant.calibrators.comparison import (
    ComparedMethod,
    MethodComparison,
    Recommendation,
    compare,
)
from calibrant.calibrators.data import FitData, Samples
from calibrant.calibrators.fit_report import (
    CalibrationWarning,
    Evidence,
    FitReport,
    SearchBounds,
    TailBounds,
)
from calibrant.calibrators.grouped.method import GroupedCalibration
from calibrant.calibrators.loading import load
from calibrant.calibrators.multilabel.method import MultiLabelCalibration
from calibrant.calibrators.origin import Fingerprint, Origin, Plugin
from calibrant.calibrators.prior_shift.estimation import PrevalenceEstimate, estimate_prevalence
from calibrant.calibrators.prior_shift.method import PriorShift
from calibrant.calibrators.registry import *  # noqa: F403
from calibrant.calibrators.truncated.bounds import fit_truncated_rows
from calibrant.calibrators.truncated.rows import TruncatedRows

__all__ = [
    "CalibrationWarning",
    "Calibrator",
    "ComparedMethod",
    "Evidence",
    "Fingerprint",
    "FitData",
    "FitReport",
    "Fitted",
    "GroupedCalibration",
    "MethodComparison",
    "MultiLabelCalibration",
    "NotFittedError",
    "Origin",
    "Plugin",
    "PrevalenceEstimate",
    "PriorShift",
    "Recommendation",
    "Samples",
    "SearchBounds",
    "State",
    "TailBounds",
    "TruncatedRows",
    "compare",
    "estimate_prevalence",
    "fit_truncated_rows",
    "load",
]
__all__ += registry.__all__
