"""Post-hoc calibrators: from logits and labels to honest probabilities.

A new method is one class (see ``base``) and one line in ``CALIBRATORS``.
"""

from calibrant.calibrators.base import Calibrator, NotFittedError
from calibrant.calibrators.report import CalibrationWarning, FitReport
from calibrant.calibrators.saving import load
from calibrant.calibrators.scaling import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)

CALIBRATORS: dict[str, type[Calibrator]] = {
    method.NAME: method
    for method in (
        Identity,
        TemperatureScaling,
        FocalCalibration,
        FocalTemperatureScaling,
    )
}
"""Every calibrator by its name."""

__all__ = [
    "CALIBRATORS",
    "CalibrationWarning",
    "Calibrator",
    "FitReport",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "Identity",
    "NotFittedError",
    "TemperatureScaling",
    "load",
]
