"""Calibrators of one temperature, of the focal map, and of both.

    softmax(s / T),    Psi^gamma(softmax(s)),    Psi^gamma(softmax(s / T))

All of them are one map with one or the other number fixed, and keep the predicted class.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from calibrant import _checks
from calibrant._logspace import keep_argmax, split_top
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, FitData, Fitted, Shapes, State
from calibrant.focal.calibration_map import map_log_probs


class _MapAndTemperature(Calibrator):
    """Psi^gamma(softmax(s / T)); a number that a subclass does not have is 0 or 1."""

    KEEPS_ARGMAX = True
    PER_CLASS = False

    def _log_probs(self, logits: Array, state: State) -> Array:
        split = split_top(logits, state.get("temperature", 1.0))
        return keep_argmax(map_log_probs(split, state.get("gamma", 0.0)), split)

    def _probs(self, logits: Array, state: State) -> Array:
        split = split_top(logits, state.get("temperature", 1.0))
        log_probs = map_log_probs(split, state.get("gamma", 0.0))
        return keep_argmax(array_namespace(logits).exp(log_probs), split)

    def _refuse_state(self, state: State) -> str | None:
        if state.get("temperature", 1.0) <= 0.0:
            return f"its temperature is {state['temperature']:g}, not above 0"
        if state.get("gamma", 0.0) < -1.0:
            return f"its gamma is {state['gamma']:g}, below -1"
        return None


class Identity(_MapAndTemperature):
    """The probabilities as they are: what the others are compared with."""

    NAME = "identity"
    STATE: ClassVar[Shapes] = {}

    def _fit(self, data: FitData) -> Fitted:
        nll = _nll(data, {})
        return Fitted(state={}, criterion="nll", before=nll, after=nll)


class FocalCalibration(_MapAndTemperature):
    """The focal map alone, with the gamma that the model was trained with."""

    NAME = "focal"
    STATE: ClassVar[Shapes] = {"gamma": ()}

    def __init__(self, *, gamma: float) -> None:
        self.gamma = gamma

    def _check_params(self) -> None:
        _checks.gamma(self.gamma, lowest=-1.0)

    def _fit(self, data: FitData) -> Fitted:
        state: dict[str, Any] = {"gamma": float(self.gamma)}
        return Fitted(state=state, criterion="nll", before=_nll(data, {}), after=_nll(data, state))


class TemperatureScaling(_MapAndTemperature):
    """One temperature."""

    NAME = "temperature"
    STATE: ClassVar[Shapes] = {"temperature": ()}

    def __init__(self, *, criterion: str = "nll") -> None:
        self.criterion = criterion

    @property
    def temperature_(self) -> float:
        """The fitted temperature."""
        return float(self.state_["temperature"])

    def _fit(self, data: FitData) -> Fitted:
        from scipy.optimize import minimize_scalar

        best = minimize_scalar(lambda x: _nll(data, {"temperature": np.exp(x)}))
        state: dict[str, Any] = {"temperature": float(np.exp(best.x))}
        return Fitted(
            state=state,
            criterion="nll",
            before=_nll(data, {}),
            after=_nll(data, state),
            n_parameters=1,
        )


def _nll(data: FitData, state: State) -> float:
    log_probs = Identity()._log_probs(data.logits, state)
    return -data.mean(log_probs[np.arange(len(data)), data.labels])
