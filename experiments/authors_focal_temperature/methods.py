"""The methods: temperature and focal temperature scaling by three criteria, and ``auto``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from calibrant import AutoCalibration, FocalTemperatureScaling, Identity, TemperatureScaling
from calibrant.calibrators import Calibrator
from experiments.scoreboard.methods import AUTO, Method, calibrant_method

AS_IT_IS = "as it is"
CRITERIA = {"ece": "ECE", "ada_ece": "AdaECE", "nll": "NLL"}
PLAIN = {criterion: f"temperature by {called}" for criterion, called in CRITERIA.items()}
FOCAL = {criterion: f"focal temperature by {called}" for criterion, called in CRITERIA.items()}
LINE = "focal temperature on a line, by AdaECE"
GAMMAS = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)
"""Those of Komisarenko and Kull (2024)."""


def compared() -> list[Method]:
    """Every method, on the paper's grid."""
    makers: dict[str, Callable[[], Calibrator]] = {AS_IT_IS: Identity}
    makers |= {PLAIN[c]: partial(TemperatureScaling, criterion=c) for c in CRITERIA}
    makers |= {
        FOCAL[c]: partial(FocalTemperatureScaling, criterion=c, gammas=GAMMAS) for c in CRITERIA
    }
    makers |= {LINE: partial(FocalTemperatureScaling, search="line"), AUTO: AutoCalibration}
    return [calibrant_method(name, make) for name, make in makers.items()]
