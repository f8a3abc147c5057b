"""The calibrators by name."""

from __future__ import annotations

from calibrant._registry import Registry
from calibrant.calibrators.auto import AutoCalibration
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.linear.methods import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    VectorScaling,
)
from calibrant.calibrators.one_vs_rest.binned import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
)
from calibrant.calibrators.one_vs_rest.methods import BetaCalibration, PlattScaling
from calibrant.calibrators.temperature.methods import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.top_rest.methods import TopRestScaling

CALIBRATORS: Registry[type[Calibrator]] = Registry(
    "method",
    {
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
    },
)
"""Every calibrator by its name."""
