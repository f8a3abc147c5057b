"""calibrant makes a classifier's probabilities mean what they say."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibrant import _inputs, calibrators, focal, metrics
from calibrant._version import __version__
from calibrant.calibrators import (
    CALIBRATORS,
    AutoCalibration,
    BayesianBinning,
    BetaCalibration,
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    FocalCalibration,
    FocalTemperatureScaling,
    GroupedCalibration,
    HistogramBinning,
    Identity,
    IsotonicCalibration,
    MatrixScaling,
    MultiLabelCalibration,
    PlattScaling,
    PriorShift,
    SplineCalibration,
    StructuredScaling,
    TemperatureScaling,
    TopRestScaling,
    VectorScaling,
    VennAbers,
    compare,
    estimate_prevalence,
    load,
)
from calibrant.errors import CalibrantError
from calibrant.metrics import (
    METRICS,
    ada_ece,
    brier,
    classwise_ece,
    decide,
    ece,
    error_rate,
    evaluate,
    evaluate_multilabel,
    mce,
    nll,
    paired_difference,
    worst_slices,
)
from calibrant.metrics.reliability import reliability_curve

if TYPE_CHECKING:
    from calibrant import report
    from calibrant.calibrators.export import export
    from calibrant.integrations.pytorch import calibrate
    from calibrant.integrations.scikit_learn import CalibratedClassifier

ON_FIRST_USE = ("files", "integrations", "losses", "plots", "report", "scale", "training")
"""Packages that are imported on first use."""

__all__ = [
    "CALIBRATORS",
    "METRICS",
    "AutoCalibration",
    "BayesianBinning",
    "BetaCalibration",
    "BiasCorrectedTemperatureScaling",
    "CalibrantError",
    "CalibratedClassifier",
    "DirichletCalibration",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "GroupedCalibration",
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "MatrixScaling",
    "MultiLabelCalibration",
    "PlattScaling",
    "PriorShift",
    "SplineCalibration",
    "StructuredScaling",
    "TemperatureScaling",
    "TopRestScaling",
    "VectorScaling",
    "VennAbers",
    "__version__",
    "ada_ece",
    "brier",
    "calibrate",
    "calibrators",
    "classwise_ece",
    "compare",
    "decide",
    "ece",
    "error_rate",
    "estimate_prevalence",
    "evaluate",
    "evaluate_multilabel",
    "export",
    "focal",
    "load",
    "mce",
    "metrics",
    "nll",
    "paired_difference",
    "reliability_curve",
    "report",
    "worst_slices",
]


def __getattr__(name: str) -> Any:
    # Names that need optional packages, or take long to import, are loaded on first use.
    if name == "CalibratedClassifier":
        _inputs.installed("sklearn", extra="sklearn", purpose=name)
        from calibrant.integrations.scikit_learn import CalibratedClassifier

        return CalibratedClassifier
    if name == "calibrate":
        from calibrant.integrations.pytorch import calibrate

        return calibrate
    if name == "export":
        from calibrant.calibrators.export import export

        return export
    if name in ON_FIRST_USE:
        return import_module(f"calibrant.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
