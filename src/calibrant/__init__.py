"""calibrant makes a classifier's probabilities mean what they say."""

from calibrant import calibrators, focal, metrics
from calibrant._version import __version__
from calibrant.calibrators import (
    CALIBRATORS,
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
    load,
)
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
from calibrant.reliability import reliability_curve

__all__ = [
    "CALIBRATORS",
    "METRICS",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "Identity",
    "TemperatureScaling",
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
