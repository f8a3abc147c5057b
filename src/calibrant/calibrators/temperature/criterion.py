"""A criterion of Psi^gamma(softmax(s / T)) on all samples, computed exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibrant.calibrators.base import FitData, Floats
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import Samples

if TYPE_CHECKING:
    from calibrant.calibrators.temperature.grid_pruning import Point

BINNED = ("ece", "ada_ece")
"""Criteria that look at the confidence alone, through bins."""


def confidences(log_odds: Floats) -> Floats:
    """The probabilities of log odds."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))


class Evaluator:
    """Computes one criterion at any (gamma, T), and counts how often it did."""

    def __init__(self, data: FitData, criterion: str, *, n_bins: int, focal_gamma: float) -> None:
        self.data = data
        self.criterion = criterion
        self.n_bins = n_bins
        self.focal_gamma = focal_gamma
        self.evaluations = 0

    def on(self, data: FitData) -> Evaluator:
        """The same criterion on other samples."""
        return data.evaluator(self.criterion, n_bins=self.n_bins, focal_gamma=self.focal_gamma)

    def __call__(self, gamma: float, temperature: float) -> float:
        """The criterion at one point."""
        return self.at([(gamma, temperature)])[0]

    def at(self, points: Sequence[tuple[float, float]]) -> list[float]:
        """The criterion at each point (gamma, T)."""
        if self.criterion in BINNED:
            return [self.binned(self.log_odds(*point)) for point in points]
        self.evaluations += len(points)
        return [self.data.mean(self.loss_rows(*point)) for point in points]

    def smallest_on_grid(self, gammas: Floats, temperatures: Floats) -> Point:
        """The best point of a full grid, by a calibration error."""
        from calibrant.calibrators.temperature.grid_pruning import smallest_on_grid

        return smallest_on_grid(self, gammas, temperatures)

    def smallest_on_line(self, gammas: Floats, temperatures: Floats, best: Point) -> Point:
        """The best of ``best`` and of points on a line, by a calibration error."""
        from calibrant.calibrators.temperature.grid_pruning import smallest_on_line

        return smallest_on_line(self, gammas, temperatures, best)

    def loss_rows(self, gamma: float, temperature: float) -> Floats:
        """The loss of each row, by a criterion that is a mean of losses."""
        _, true_log_prob, distances = self._rows(gamma, temperature)
        if self.criterion == "nll":
            return -true_log_prob
        if self.criterion == "brier":
            return distances
        return np.asarray(focal_of_cross_entropy(-true_log_prob, self.focal_gamma))

    def log_odds(self, gamma: float, temperature: float) -> Floats:
        """Log odds of the top class of each row."""
        return self.data.log_odds(gamma, 1.0 / temperature)

    def binned(self, log_odds: Floats) -> float:
        """The calibration error of confidences given by their log odds."""
        self.evaluations += 1
        samples = Samples(confidences(log_odds), self.data.right, self.data.weight)
        return METRICS[self.criterion].of(samples, n_bins=self.n_bins)

    def _rows(self, gamma: float, temperature: float) -> tuple[Floats, Floats, Floats]:
        """Log odds of the top class, log-probability of the label, squared distance to it."""
        return self.data.mapped_rows(gamma, 1.0 / temperature)
