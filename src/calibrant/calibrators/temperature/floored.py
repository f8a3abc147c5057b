"""Temperature scaling of floored logits, for models with huge gaps between logits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import below_top, exact_log_softmax
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, Shapes, State, fitted_number
from calibrant.calibrators.data import FitData, Floats, Samples, weighted_median
from calibrant.calibrators.temperature.solver import SMALLEST, best_temperature, uncalibrated

TYPICAL_GAPS = 4.0
"""The floor, in multiples of the median gap of the mistakes. Between 2 and 8 the NLL of naive Bayes
models on digits changes by 5%; without a floor it is three times as high."""
NO_FLOOR = 1e30
"""The floor if there is no mistake."""


class FlooredTemperatureScaling(Calibrator):
    r"""Temperature scaling of logits that are raised to a floor below the largest of their row.

    .. math:: \mathrm{softmax}(\max(s - \max_k s_k, -F) / T)

    F is four times the median gap of the mistakes, from the largest logit to that of the label.
    Some models (naive Bayes) have mistakes with gaps of thousands: a few of them decide T, and the
    probabilities of all other rows become uniform. With the floor no row counts for more than a few
    typical mistakes. The predicted class never changes.

    Attributes:
        floor_: F.
        temperature_: T.

    Examples:
        >>> import numpy as np
        >>> from calibrant import TemperatureScaling
        >>> from calibrant.calibrators import FlooredTemperatureScaling
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3))
        >>> labels = (2 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> logits[:20] *= 1e4
        >>> [round(method.fit(logits, labels).temperature_, 1)
        ...  for method in (TemperatureScaling(), FlooredTemperatureScaling())]
        [2662.1, 0.5]
    """

    NAME = "floored-temperature"
    STATE: ClassVar[Shapes] = {"floor": (), "temperature": ()}
    floor_: float = fitted_number("floor")
    temperature_: float = fitted_number("temperature")
    KEEPS_ARGMAX = True
    PER_CLASS = False

    def _log_probs(self, logits: Array, state: State) -> Array:
        xp = array_namespace(logits)
        log_probs = exact_log_softmax(
            floored(logits, state["floor"]), state["temperature"], finite=True
        )
        return xp.where(logits == -float("inf"), -float("inf"), log_probs)

    def _row_scores(self, row: Floats, state: State) -> Floats:
        temperature = state["temperature"]
        scores: Floats = np.maximum(below_top(row, temperature), -state["floor"] / temperature)
        return scores

    def _fit(self, data: Samples) -> Fitted:
        samples = data.in_memory()
        floor = floor_of(typical_gap(samples))
        logits = np.empty(samples.logits.shape)
        with np.errstate(over="ignore"):
            for block in samples.blocks():
                logits[block] = floored(samples.logits[block].astype(np.float64), floor)
        raised = replace(samples, logits=logits)
        best = best_temperature(raised, "nll", 0.0)
        return Fitted(
            state={"floor": floor, "temperature": best.temperature},
            criterion="nll",
            before=uncalibrated(samples),
            after=best.value,
            at_bound=best.limit,
            evaluations=best.evaluations + 1,
            n_parameters=2,
        )

    def _refuse_state(self, state: State) -> str | None:
        if not 0.0 < state["floor"] <= NO_FLOOR:
            return f"its floor is {state['floor']:g}, not above 0 and at most {NO_FLOOR:g}"
        if not SMALLEST <= state["temperature"] <= 1.0 / SMALLEST:
            return f"its temperature is {state['temperature']:g}, not between 1e-300 and 1e300"
        return None


def floored(logits: Array, floor: float) -> Array:
    """Logits minus the largest of their row, raised to ``-floor``; -inf stays."""
    xp = array_namespace(logits)
    below = logits - xp.max(logits, axis=-1, keepdims=True)
    return xp.where(logits == -float("inf"), -float("inf"), xp.clip(below, min=-floor))


def floor_of(gap: float) -> float:
    """F, if this is the typical gap."""
    return min(TYPICAL_GAPS * gap, NO_FLOOR)


def label_gaps(data: FitData) -> Floats:
    """How far below the largest logit of its row each label is; at most 1e30."""
    top, label = data.logits.max(axis=1), data.logits[np.arange(len(data)), data.labels]
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(top.astype(np.float64) - label, NO_FLOOR))


def typical_gap(data: FitData) -> float:
    """The median gap of the mistakes; infinite if there is none."""
    gaps = label_gaps(data)
    wrong = gaps > 0.0
    return weighted_median(gaps[wrong], data.counts[wrong]) if wrong.any() else math.inf
