"""calibrant makes a classifier's probabilities mean what they say."""

from calibrant import focal, metrics
from calibrant._version import __version__
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
    "METRICS",
    "__version__",
    "ada_ece",
    "brier",
    "classwise_ece",
    "ece",
    "error_rate",
    "evaluate",
    "focal",
    "mce",
    "metrics",
    "nll",
    "paired_difference",
    "reliability_curve",
]
