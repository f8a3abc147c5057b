"""The smallest repair that samples since a change support."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import log_softmax
from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.calibrators import AutoCalibration, Calibrator, TemperatureScaling
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.fit_report import CalibrationWarning
from calibrant.calibrators.folds import Folds, mean_and_error, order_by, standard_errors

FEWEST = 20
"""Samples below which nothing is fitted, as in ``auto``."""
MOST_ROWS, MOST_NUMBERS = 50_000, 2_000_000
"""Rows that are fitted, and numbers in them: a repair is chosen in seconds."""
SHORTENED = tuple(0.5**k for k in range(20))
MOST_STEPS = 50
CONVERGED = 1e-12
ENOUGH = 2.0
"""Standard errors that a gain must exceed on many samples. ``auto`` asks for one, but a repair has
to be deployed."""


@dataclass(frozen=True)
class Candidate:
    """What a repair gains on samples that it was not fitted on."""

    name: str
    gain: float
    """Reduction of the mean NLL against the best simpler candidate."""
    error: float
    """Standard error of the gain."""
    supported: bool


@dataclass(frozen=True)
class Repair:
    """The smallest repair that the samples support."""

    name: str
    """``"nothing"``, ``"offset"``, ``"temperature"`` or ``"fit"``."""
    n: int
    """Samples that it was chosen on."""
    candidates: tuple[Candidate, ...] = ()
    gain: float = 0.0
    """Reduction of the mean NLL against no repair, on samples that it was not fitted on."""
    error: float = 0.0
    """Standard error of the gain."""
    factors: tuple[float, ...] | None = None
    """Of an offset: the probability of each class is multiplied by its factor, and normalised."""
    temperature: float | None = None
    method: str | None = None
    """Of a fit: what ``auto`` chose."""


def smallest_repair(data: FitData) -> Repair:
    """Try repairs from the simplest on; each must gain enough over the best before it.

    A repair is judged by the NLL of samples that it was not fitted on, and taken if it gains more
    than 2 + 100 / n standard errors.

    Args:
        data: Samples since the change, with log-probabilities as logits.
    """
    n = len(data)
    if n < FEWEST:
        return Repair("nothing", n)
    before = _losses(data.logits, data.labels)
    best, losses = "nothing", before
    folds = Folds.of(data.counts, order_by(data.labels, before))
    tried = []
    for name, fit in REPAIRS.items():
        held_out = _held_out_losses(fit, data, folds)
        gain, error = mean_and_error(losses - held_out, data.counts)
        supported = gain > standard_errors(n, ENOUGH) * error
        tried.append(Candidate(name, gain, error, supported))
        if supported:
            best, losses = name, held_out
    if best == "nothing":
        return Repair(best, n, tuple(tried))
    total = mean_and_error(before - losses, data.counts)
    return Repair(best, n, tuple(tried), *total, **REPAIRS[best](data).described())


@dataclass(frozen=True)
class Offset:
    r"""A bias for each class, :math:`q_k \propto p_k e^{b_k}`.

    It maximises the likelihood, so that the mean probability of each class is its rate.
    """

    bias: Floats

    @classmethod
    def fit(cls, data: FitData) -> Offset:
        """Newton's method, with the weight of one sample on small biases.

        Examples:
            >>> import numpy as np
            >>> even = FitData(np.log(np.full((100, 2), 0.5)), np.repeat([0, 1], [20, 80]), None)
            >>> np.exp(Offset.fit(even).log_probs(even.logits[:1])).round(2)
            array([[0.21, 0.79]])
        """
        start = _OffsetLoss.at(np.zeros(data.n_classes), data)
        found = damped_newton(
            start, lambda here: here.step(data), lengths=SHORTENED, most_steps=MOST_STEPS
        )
        return cls(found.bias)

    def log_probs(self, logits: Floats) -> Floats:
        """The log-probabilities after the repair."""
        return np.asarray(log_softmax(logits + self.bias))

    def described(self) -> dict[str, Any]:
        """The fields of :class:`Repair`."""
        return {"factors": tuple(np.exp(self.bias - self.bias.mean()).tolist())}


@dataclass(frozen=True)
class _OffsetLoss:
    bias: Floats
    value: float
    gradient: Floats
    curvature: Floats

    @classmethod
    def at(cls, bias: Floats, data: FitData) -> _OffsetLoss:
        n, ridge = len(data), 1.0 / len(data)
        log_probs = Offset(bias).log_probs(data.logits)
        probs = np.exp(log_probs)
        mean = probs.mean(axis=0)
        rate = np.bincount(data.labels, minlength=len(bias)) / n
        value = float(_losses(log_probs, data.labels).mean() + 0.5 * ridge * bias @ bias)
        gradient = mean - rate + ridge * bias
        curvature = np.diag(mean + ridge) - probs.T @ probs / n
        return cls(bias, value, gradient, curvature)

    def step(self, data: FitData) -> NewtonStep[_OffsetLoss] | None:
        direction = np.linalg.solve(self.curvature, -self.gradient)
        decrease = float(-self.gradient @ direction)
        if not decrease > CONVERGED:
            return None
        return NewtonStep(lambda length: self.at(self.bias + length * direction, data), decrease)


@dataclass(frozen=True)
class Fit:
    """A calibrator."""

    calibrator: Calibrator

    @classmethod
    def of(cls, method: type[Calibrator], data: FitData) -> Fit:
        """A method with its default parameters."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            return cls(method().fit_samples(data))

    def log_probs(self, logits: Floats) -> Floats:
        """The log-probabilities after the repair."""
        return np.asarray(self.calibrator.predict_log_proba(logits=logits))

    def described(self) -> dict[str, Any]:
        """The fields of :class:`Repair`."""
        if isinstance(self.calibrator, AutoCalibration):
            return {"method": self.calibrator.chosen_}
        assert isinstance(self.calibrator, TemperatureScaling)
        return {"temperature": self.calibrator.temperature_}


REPAIRS: dict[str, Callable[[FitData], Offset | Fit]] = {
    "offset": Offset.fit,
    "temperature": partial(Fit.of, TemperatureScaling),
    "fit": partial(Fit.of, AutoCalibration),
}
"""From the simplest on."""


def rows_to_fit(n_classes: int) -> int:
    """How many rows a repair is chosen on, at most."""
    return min(MOST_ROWS, math.ceil(MOST_NUMBERS / n_classes))


def _held_out_losses(fit: Callable[[FitData], Offset | Fit], data: FitData, folds: Folds) -> Floats:
    """The NLL of each sample by a repair that was fitted on the other folds."""
    losses = np.empty(len(data))
    for fold in range(folds.n):
        rest, held_out = folds.row[folds.of_piece != fold], folds.row[folds.of_piece == fold]
        fitted = fit(FitData(data.logits[rest], data.labels[rest], None))
        losses[held_out] = _losses(fitted.log_probs(data.logits[held_out]), data.labels[held_out])
    return losses


def _losses(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    return np.asarray(-log_probs[np.arange(len(labels)), labels])
