"""A criterion of Psi^gamma(softmax(s / T)) on all samples, computed exactly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.temperature.rows import log_odds_of, mapped_rows
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import ScoredSamples

BINNED = ("ece", "ada_ece")
"""Criteria that bin the confidences and use nothing else of the probabilities."""


@dataclass(frozen=True)
class Point:
    """A point (gamma, T) and the criterion there."""

    gamma: float
    temperature: float
    value: float
    at_bound: str | None = None
    """The bounds of the search that the point lies at."""

    def __post_init__(self) -> None:
        if math.isnan(self.value):  # every comparison with it would be false
            raise FloatingPointError(
                f"the criterion is not a number at gamma = {self.gamma:g}, T = {self.temperature:g}"
            )

    @property
    def rank(self) -> tuple[float, float, float]:
        """Smaller is better; ties, to rounding, go to the smallest change of the probabilities."""
        return round(self.value, 12), abs(self.gamma), abs(math.log(self.temperature))


class Evaluator(ABC):
    """Computes one criterion at any (gamma, T), and counts the evaluations."""

    def __init__(self, data: Samples, criterion: str, *, n_bins: int, focal_gamma: float) -> None:
        self.data = data
        self.criterion = criterion
        self.n_bins = n_bins
        self.focal_gamma = focal_gamma
        self.evaluations = 0

    def on(self, data: Samples) -> Evaluator:
        """The same criterion on other samples."""
        return evaluator_of(data, self.criterion, n_bins=self.n_bins, focal_gamma=self.focal_gamma)

    def __call__(self, gamma: float, temperature: float) -> float:
        """The criterion at one point."""
        return self.at([(gamma, temperature)])[0]

    @cached_property
    def unchanged(self) -> float:
        """The criterion of the uncalibrated probabilities: gamma = 0, T = 1."""
        return self(0.0, 1.0)

    @abstractmethod
    def at(self, points: Sequence[tuple[float, float]]) -> list[float]:
        """The criterion at each point (gamma, T)."""


class EvaluatorInMemory(Evaluator):
    """The criterion on samples in memory."""

    data: FitData

    def at(self, points: Sequence[tuple[float, float]]) -> list[float]:
        """The criterion at each point (gamma, T)."""
        if self.criterion in BINNED:
            return [self.binned(self.log_odds(*point)) for point in points]
        self.evaluations += len(points)
        return [self.data.mean(self.loss_rows(*point)) for point in points]

    def loss_rows(self, gamma: float, temperature: float) -> Floats:
        """The loss of each row, for a criterion that is a mean of losses."""
        _, true_log_prob, distances = mapped_rows(self.data, gamma, 1.0 / temperature)
        if self.criterion == "nll":
            return -true_log_prob
        if self.criterion == "brier":
            return distances
        return np.asarray(focal_of_cross_entropy(-true_log_prob, self.focal_gamma))

    def log_odds(self, gamma: float, temperature: float) -> Floats:
        """Log-odds of the top class of each row."""
        return log_odds_of(self.data, gamma, 1.0 / temperature)

    def binned(self, log_odds: Floats) -> float:
        """The calibration error of confidences, given as log-odds."""
        self.evaluations += 1
        samples = ScoredSamples(sigmoid(log_odds), self.data.correct, self.data.weight)
        return METRICS[self.criterion].of(samples, n_bins=self.n_bins)


@singledispatch
def evaluator_of(data: Samples, criterion: str, *, n_bins: int, focal_gamma: float) -> Evaluator:
    """The evaluator of a criterion on samples, in memory or elsewhere."""
    raise TypeError(f"no criterion is defined on {type(data).__name__}")


@evaluator_of.register
def in_memory(
    data: FitData, criterion: str, *, n_bins: int, focal_gamma: float
) -> EvaluatorInMemory:
    """The evaluator on samples in memory."""
    return EvaluatorInMemory(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)
