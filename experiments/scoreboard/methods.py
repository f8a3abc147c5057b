"""The methods: every calibrator of calibrant, and the best of other packages."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import calibrant
from calibrant.calibrators import CalibrationWarning, Calibrator
from experiments.scoreboard import peers
from experiments.scoreboard.peers import Apply, Fit, Floats, Labels

OURS = "calibrant"
BY_NLL = "temperature by nll"
BY_ADA_ECE = "temperature by ada_ece"
AUTO = "auto"
KEEP_CLASS = "auto, keep_class=True"
MODULES = {"netcal": "netcal", "probmetrics": "probmetrics", "scikit-learn": "sklearn"}
"""Module to import for each package."""


@dataclass(frozen=True)
class Fitted:
    """A fitted method: its map of new logits, and facts about the fit."""

    apply: Apply
    facts: dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One row of the tables."""

    name: str
    package: str
    fit: Callable[[Floats, Labels], Fitted]
    most_classes: int = 10**9
    too_slow: str = ""
    """Reason for the limit of classes."""

    @property
    def title(self) -> str:
        """The name, with its package in front if it is not ours."""
        return self.name if self.package == OURS else f"{self.package} {self.name}"

    def fingerprint(self) -> str:
        """Version of the measured code, so that outdated results are not reused."""
        if self.package == OURS:
            return _source_digest()
        adapter = hashlib.sha256(Path(peers.__file__).read_bytes()).hexdigest()[:16]
        return f"{self.package} {version(self.package)} {adapter}"


def all_methods() -> list[Method]:
    """Every method that can be run here."""
    return [*_ours(), *(m for m in _peers() if importlib.util.find_spec(MODULES[m.package]))]


def missing_packages() -> list[str]:
    """Packages to compare that are not installed."""
    return [name for name, module in MODULES.items() if not importlib.util.find_spec(module)]


def left_out() -> dict[str, str]:
    """Our calibrators without a row, and the reason."""
    return {
        name: f"needs {', '.join(needed)}, which nothing here says: the networks were not trained "
        "with a focal loss, as far as their sources tell"
        for name, kind in calibrant.CALIBRATORS.items()
        if (needed := _required(kind))
    }


def calibrant_method(name: str, make: Callable[[], Calibrator]) -> Method:
    """One of our calibrators as a method."""

    def fit(logits: Floats, labels: Labels) -> Fitted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # they stand in the report
            fitted = make().fit(logits, labels)
        report = fitted.report_
        facts = {
            "criterion": report.criterion,
            "after": report.after,
            "evaluations": report.evaluations,
            "warnings": list(report.warnings),
            "chosen": getattr(fitted, "chosen_", None),
            **{key: value for key, value in fitted.state_.items() if isinstance(value, float)},
        }
        return Fitted(fitted.predict_proba, facts)

    return Method(name, OURS, fit)


def _ours() -> Iterator[Method]:
    """Both criteria of the temperatures, restrictions of auto and top-rest; others by default."""
    variants: dict[str, dict[str, dict[str, Any]]] = {
        "auto": {AUTO: {}, KEEP_CLASS: {"keep_class": True}},
        "temperature": {
            BY_NLL: {"criterion": "nll"},
            BY_ADA_ECE: {"criterion": "ada_ece"},
        },
        "focal-temperature": {
            "focal-temperature by nll": {"criterion": "nll"},
            "focal-temperature by ada_ece": {"criterion": "ada_ece"},
        },
        "top-rest": {"top-rest": {}, "top-rest, classes=False": {"classes": False}},
    }
    for name, kind in calibrant.CALIBRATORS.items():
        if _required(kind):
            continue
        for title, params in variants.get(name, {name: {}}).items():
            yield calibrant_method(title, _maker(kind, params))


def _maker(kind: type[Calibrator], params: dict[str, Any]) -> Callable[[], Calibrator]:
    return lambda: kind(**params)


def _peers() -> Iterator[Method]:
    for name in ("svs", "sms"):
        yield _peer(name, "probmetrics", peers.probmetrics(name))
    for name in ("temperature", "sigmoid", "isotonic"):
        yield _peer(name, "scikit-learn", peers.scikit_learn(name))
    scaling = {
        "LogisticCalibration": "finite differences over 2K numbers, two minutes a network at 100",
        "BetaCalibration": "finite differences over 3K numbers, six minutes a network at 100",
    }
    for name, reason in scaling.items():
        fit = peers.netcal("scaling", name)
        yield _peer(name, "netcal", fit, most_classes=26, too_slow=reason)


def _peer(name: str, package: str, fit: Fit, **limits: Any) -> Method:
    return Method(name, package, lambda logits, labels: Fitted(fit(logits, labels), {}), **limits)


def _required(kind: type[Calibrator]) -> list[str]:
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]


@cache
def _source_digest() -> str:
    """Digest of the calibrators' code."""
    root = Path(calibrant.__file__).parent
    files = sorted(
        [*root.glob("*.py"), *root.glob("calibrators/**/*.py"), *root.glob("focal/*.py")]
    )
    whole = b"".join(file.read_bytes() for file in files)
    return f"{OURS} {hashlib.sha256(whole).hexdigest()[:16]}"
