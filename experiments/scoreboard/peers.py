"""Calibrators of other packages behind one interface: logits in, probabilities out.

Each is given what suits it best: float64, and probabilities where it takes no logits. (Given
float32 probabilities, netcal finds T = 1 whatever they are: ``tests/peers``.)
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Apply = Callable[[Floats], Floats]
Fit = Callable[[Floats, Labels], Apply]


def softmax(logits: Floats) -> Floats:
    """Probabilities in float64."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def probmetrics(name: str) -> Fit:
    """A calibrator of ``probmetrics.calibrators.get_calibrator``."""

    def fit(logits: Floats, labels: Labels) -> Apply:
        calibrator = import_module("probmetrics.calibrators").get_calibrator(name)
        calibrator.fit(softmax(logits), labels)
        return lambda new: np.asarray(calibrator.predict_proba(softmax(new)), dtype=np.float64)

    return fit


def netcal(module: str, name: str, **options: Any) -> Fit:
    """A calibrator of netcal; two classes are the probability of the second one."""

    def given(logits: Floats) -> Floats:
        probs = softmax(logits)
        return probs[:, 1] if probs.shape[1] == 2 else probs

    def fit(logits: Floats, labels: Labels) -> Apply:
        calibrator = getattr(import_module(f"netcal.{module}"), name)(**options)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            calibrator.fit(given(logits), labels)  # with its progress bars

        def apply(new: Floats) -> Floats:
            probs = np.asarray(calibrator.transform(given(new)), dtype=np.float64)
            return np.stack([1.0 - probs, probs], axis=-1) if probs.ndim == 1 else probs

        return apply

    return fit


def scikit_learn(method: str) -> Fit:
    """``CalibratedClassifierCV`` around a classifier whose decision function is the logits."""

    def fit(logits: Floats, labels: Labels) -> Apply:
        calibration = import_module("sklearn.calibration").CalibratedClassifierCV
        frozen = import_module("sklearn.frozen").FrozenEstimator
        classifier = frozen(given_logits(logits.shape[1]))
        fitted = calibration(classifier, method=method).fit(logits, labels)
        return lambda new: np.asarray(fitted.predict_proba(new), dtype=np.float64)

    return fit


def given_logits(n_classes: int) -> Any:
    """A classifier of scikit-learn whose features are the logits themselves."""
    base = import_module("sklearn.base")

    def decision_function(self: Any, features: Floats) -> Floats:
        # One score x is for scikit-learn the pair of logits (-x, x).
        return (features[:, 1] - features[:, 0]) / 2.0 if n_classes == 2 else features

    kind = type(
        "GivenLogits",
        (base.ClassifierMixin, base.BaseEstimator),
        {
            "classes_": np.arange(n_classes),
            "__sklearn_is_fitted__": lambda self: True,
            "fit": lambda self, features, labels: self,
            "decision_function": decision_function,
            "predict": lambda self, features: features.argmax(axis=1),
        },
    )
    return kind()
