"""calibrant makes a classifier's probabilities mean what they say."""

from typing import TYPE_CHECKING, Any

from calibrant import _checks, calibrators, focal, metrics
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
    HistogramBinning,
    Identity,
    IsotonicCalibration,
    MatrixScaling,
    PlattScaling,
    TemperatureScaling,
    TopRestScaling,
    VectorScaling,
    load,
)
from calibrant.errors import CalibrantError
from calibrant.metrics import (
    METRICS,
    ada_ece,
    brier,
    classwise_ece,
    ece,
    error_rate,
    evaluate,
    mce,
    nll,
    paired_difference,
)
from calibrant.metrics.reliability import reliability_curve

if TYPE_CHECKING:
    from calibrant.integrations.scikit_learn import CalibratedClassifier

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
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "MatrixScaling",
    "PlattScaling",
    "TemperatureScaling",
    "TopRestScaling",
    "VectorScaling",
    "__version__",
    "ada_ece",
    "brier",
    "calibrators",
    "classwise_ece",
    "ece",
    "error_rate",
    "evaluate",
    "focal",
    "load",
    "mce",
    "metrics",
    "nll",
    "paired_difference",
    "reliability_curve",
]


def __getattr__(name: str) -> Any:
    # The one name that needs scikit-learn, which is imported when it is asked for.
    if name == "CalibratedClassifier":
        _checks.installed("sklearn", extra="sklearn", purpose=name)
        from calibrant.integrations.scikit_learn import CalibratedClassifier

        return CalibratedClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
