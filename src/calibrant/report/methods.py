"""The reference of a report, and how its methods are described."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from calibrant.calibrators.base import Calibrator

BEFORE = "identity"
"""The model as it is, the reference of all comparisons."""


def changed_params(calibrator: Calibrator) -> dict[str, Any]:
    """The parameters that differ from their defaults.

    Examples:
        >>> from calibrant import FocalCalibration, TemperatureScaling
        >>> changed_params(TemperatureScaling()), changed_params(FocalCalibration(gamma=2.0))
        ({}, {'gamma': 2.0})
    """
    defaults = inspect.signature(type(calibrator)).parameters
    given = calibrator.get_params()
    return {
        name: value
        for name, value in given.items()
        if not np.array_equal(value, defaults[name].default)  # a value may be an array
    }
