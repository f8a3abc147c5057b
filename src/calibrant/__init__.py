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
    mce,
    nll,
)

__all__ = [
    "METRICS",
    "__version__",
    "ada_ece",
    "brier",
    "classwise_ece",
    "ece",
    "error_rate",
    "focal",
    "mce",
    "metrics",
    "nll",
]
