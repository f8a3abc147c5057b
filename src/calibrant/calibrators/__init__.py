"""Post-hoc calibrators: from logits and labels to honest probabilities.

A new method is one class (see ``base``) and one line in ``CALIBRATORS``.
"""

from calibrant.calibrators.auto import AutoCalibration
from calibrant.calibrators.base import Calibrator, NotFittedError
from calibrant.calibrators.comparison import ComparedMethod, MethodComparison, compare
from calibrant.calibrators.fit_report import (
    CalibrationWarning,
    Evidence,
    FitReport,
    SearchBounds,
    TailBounds,
)
from calibrant.calibrators.linear.methods import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    VectorScaling,
)
from calibrant.calibrators.loading import load
from calibrant.calibrators.one_vs_rest.binned import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
)
from calibrant.calibrators.one_vs_rest.methods import BetaCalibration, PlattScaling
from calibrant.calibrators.registry import CALIBRATORS
from calibrant.calibrators.temperature.methods import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.top_rest.methods import TopRestScaling
from calibrant.calibrators.truncated.bounds import fit_top_rows
from calibrant.calibrators.truncated.rows import TruncatedRows

__all__ = [
    "CALIBRATORS",
    "AutoCalibration",
    "BayesianBinning",
    "BetaCalibration",
    "BiasCorrectedTemperatureScaling",
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
    "SearchBounds",
    "TailBounds",
    "TemperatureScaling",
    "TopRestScaling",
    "TruncatedRows",
    "VectorScaling",
    "compare",
    "fit_top_rows",
    "load",
]
