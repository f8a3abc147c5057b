"""The table of calibrators, and calibrators made by name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from typing import Any

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant.calibrators.auto.method import AutoCalibration
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.linear.methods import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    VectorScaling,
)
from calibrant.calibrators.linear.structured import StructuredScaling
from calibrant.calibrators.one_vs_rest.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
)
from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration, PlattScaling
from calibrant.calibrators.one_vs_rest.spline import SplineCalibration
from calibrant.calibrators.one_vs_rest.venn_abers import VennAbers
from calibrant.calibrators.origin import PLUGINS
from calibrant.calibrators.temperature.floored import FlooredTemperatureScaling
from calibrant.calibrators.temperature.methods import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.top_rest.methods import TopRestScaling
from calibrant.errors import CalibrantError

__all__ = [
    "CALIBRATORS",
    "AutoCalibration",
    "BayesianBinning",
    "BetaCalibration",
    "BiasCorrectedTemperatureScaling",
    "DirichletCalibration",
    "FlooredTemperatureScaling",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "HistogramBinning",
    "Identity",
    "IsotonicCalibration",
    "MatrixScaling",
    "PlattScaling",
    "SplineCalibration",
    "StructuredScaling",
    "TemperatureScaling",
    "TopRestScaling",
    "VectorScaling",
    "VennAbers",
]


def check_calibrator(name: str, entry: Any) -> None:
    """Refuse what is not a calibrator class of this name."""
    if not (isinstance(entry, type) and issubclass(entry, Calibrator)):
        raise CalibrantError(
            f"expected a subclass of Calibrator, got {_inputs.described(entry)}. Name the class"
        )
    if getattr(entry, "NAME", None) != name:
        raise CalibrantError(
            f"expected a calibrator whose NAME is {name!r}, got {getattr(entry, 'NAME', None)!r}. "
            "Files are read by that name"
        )


CALIBRATORS: Registry[type[Calibrator]] = Registry(
    "method",
    {
        method.NAME: method
        for method in (
            AutoCalibration,
            Identity,
            TemperatureScaling,
            FlooredTemperatureScaling,
            FocalCalibration,
            FocalTemperatureScaling,
            TopRestScaling,
            VectorScaling,
            MatrixScaling,
            BiasCorrectedTemperatureScaling,
            StructuredScaling,
            DirichletCalibration,
            PlattScaling,
            BetaCalibration,
            SplineCalibration,
            IsotonicCalibration,
            HistogramBinning,
            BayesianBinning,
            VennAbers,
        )
    },
    plugins=PLUGINS,
    check=check_calibrator,
)
"""Every calibrator class by its name."""


def make_calibrators(
    names: Iterable[str] | None = None, *, gamma: float | None = None
) -> dict[str, Calibrator]:
    """Make unfitted calibrators by name; without names, all that need no parameter but ``gamma``.

    Examples:
        >>> from calibrant.calibrators.registry import make_calibrators
        >>> "focal" in make_calibrators(), "focal" in make_calibrators(gamma=3.0)
        (False, True)
    """
    known = {} if gamma is None else {"gamma": gamma}
    if names is None:
        methods = CALIBRATORS.with_plugins()
        names = [n for n, cls in methods.items() if known.keys() >= set(required_params(cls))]
    chosen = {}
    for name in names:
        name = CALIBRATORS.key(name, "methods")
        cls = CALIBRATORS[name]
        missing = [needed for needed in required_params(cls) if needed not in known]
        if missing:
            raise CalibrantError(
                f"{name} needs {' and '.join(missing)}. "
                f"Pass {missing[0]}= (on the command line --{missing[0]}, in fit --set)"
            )
        chosen[name] = cls(**{needed: known[needed] for needed in required_params(cls)})
    return chosen


def new_calibrator(method: str | Calibrator) -> Calibrator:
    """A new, unfitted calibrator: of a name, or with the parameters of another one."""
    if isinstance(method, Calibrator):
        return type(method)(**copy.deepcopy(method.get_params()))
    kind = CALIBRATORS[method]
    missing = required_params(kind)
    if missing:
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise CalibrantError(
            f"{kind.NAME} needs {' and '.join(missing)}; found only the name {method!r}. "
            f"Pass a calibrator: method={kind.__name__}({arguments})"
        )
    return kind()


def required_params(method: type[Calibrator]) -> list[str]:
    """Parameters of the constructor that have no default."""
    parameters = inspect.signature(method).parameters.values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]
