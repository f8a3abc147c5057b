"""Post-hoc calibrators: from logits and labels to honest probabilities.

A new method is one class (see ``base``) and one line in ``CALIBRATORS``.
"""

from typing import TYPE_CHECKING, Any

from calibrant import _checks
from calibrant.calibrators.auto import AutoCalibration
from calibrant.calibrators.base import Calibrator, NotFittedError
from calibrant.calibrators.binned import BayesianBinning, HistogramBinning, IsotonicCalibration
from calibrant.calibrators.comparison import ComparedMethod, MethodComparison, compare
from calibrant.calibrators.linear import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    VectorScaling,
)
from calibrant.calibrators.one_vs_rest import BetaCalibration, PlattScaling
from calibrant.calibrators.report import CalibrationWarning, Evidence, FitReport
from calibrant.calibrators.saving import load
from calibrant.calibrators.scaling import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.top_bounds import TailBounds, fit_top_rows
from calibrant.calibrators.top_rest import TopRestScaling
from calibrant.calibrators.top_rows import TopRows

if TYPE_CHECKING:
    from calibrant.calibrators.classifier import CalibratedClassifier

CALIBRATORS: dict[str, type[Calibrator]] = {
    method.NAME: method
    for method in (
        AutoCalibration,
        Identity,
        TemperatureScaling,
        FocalCalibration,
        FocalTemperatureScaling,
        TopRestScaling,
        VectorScaling,
        MatrixScaling,
        BiasCorrectedTemperatureScaling,
        DirichletCalibration,
        PlattScaling,
        BetaCalibration,
        IsotonicCalibration,
        HistogramBinning,
        BayesianBinning,
    )
}
"""Every calibrator by its name."""

__all__ = [
    "CALIBRATORS",
    "AutoCalibration",
    "BayesianBinning",
    "BetaCalibration",
    "BiasCorrectedTemperatureScaling",
    "CalibratedClassifier",
    "CalibrationWarning",
    "Calibrator",
    "ComparedMethod",
    "DirichletCalibration",
    "Evidence",
    "FitReport",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "MatrixScaling",
    "MethodComparison",
    "NotFittedError",
    "PlattScaling",
    "TailBounds",
    "TemperatureScaling",
    "TopRestScaling",
    "TopRows",
    "VectorScaling",
    "compare",
    "fit_top_rows",
    "load",
]


def __getattr__(name: str) -> Any:
    # The one name that needs scikit-learn, which is imported when it is asked for.
    if name == "CalibratedClassifier":
        _checks.installed("sklearn", extra="sklearn", purpose=name)
        from calibrant.calibrators.classifier import CalibratedClassifier

        return CalibratedClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
