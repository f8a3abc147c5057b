"""The methods of a report, chosen so that it is ready within a minute."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.registry import make_calibrators

BEFORE = "identity"
"""The model as it is, the reference of all comparisons."""

NANOSECONDS = {
    "histogram": 450.0,
    "isotonic": 600.0,
    "bias-corrected-temperature": 700.0,
    "platt": 850.0,
    "beta": 1000.0,
    "vector": 1150.0,
    "spline": 1200.0,
    "venn-abers": 1500.0,
    "bbq": 2600.0,
    "matrix": 9000.0,
    "dirichlet": 12000.0,
}
"""Time of a fit per score (samples times classes), measured on two cores with 10,000 samples of
1000 classes. Methods not listed are fast enough for any file that fits into memory."""
PATIENCE = 20.0
"""Seconds that the slow methods may take in total."""


def methods_to_fit(
    methods: Iterable[str] | Mapping[str, Calibrator] | None,
    gamma: float | None,
    n: int,
    n_classes: int,
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """The methods, with ``identity`` first, and the reasons why others were left out, by name.

    ``n`` is the number of samples to fit on. Methods requested by name are never left out.
    """
    if isinstance(methods, Mapping):
        chosen = dict(methods)
    else:
        names = [methods] if isinstance(methods, str) else methods
        chosen = make_calibrators(names, gamma=gamma)
    left_out = too_slow(chosen, n, n_classes) if methods is None else {}
    kept = {name: each for name, each in chosen.items() if name not in {*left_out, BEFORE}}
    return make_calibrators([BEFORE]) | kept, left_out


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


def too_slow(chosen: Mapping[str, Any], n: int, n_classes: int) -> dict[str, str]:
    """The slowest methods, left out so that the others finish in time, with the reasons.

    Examples:
        >>> too_slow({"temperature": None, "matrix": None}, 10_000, 1000)
        {'matrix': 'left out: its fit would take about 2 minutes. Request it by name to include it'}
    """
    spent, reasons = 0.0, {}
    # Many classes take time even with few samples, because each has parameters.
    numbers = max(n, n_classes) * n_classes
    for name in sorted(set(chosen) & set(NANOSECONDS), key=NANOSECONDS.__getitem__):
        seconds = 1e-9 * NANOSECONDS[name] * numbers
        if spent + seconds > PATIENCE:
            reasons[name] = (
                f"left out: its fit would take about {_duration(seconds)}. "
                "Request it by name to include it"
            )
        else:
            spent += seconds
    return reasons


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90.0 else f"{seconds / 60.0:.0f} minutes"
