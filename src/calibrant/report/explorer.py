"""Bin statistics of Psi^gamma(softmax(s / T)) on a grid, for the sliders of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, LabelledScores
from calibrant.calibrators.temperature.rows import log_odds_of_gammas
from calibrant.metrics.binning import EqualWidthBins
from calibrant.report.samples import Floats, spread_rows

GAMMAS = tuple(i / 2 for i in range(-1, 10))
"""-0.5, 0, ..., 4.5; the fitted gamma is added."""
N_TEMPERATURES = 41
OCTAVES = 2.0
"""The temperatures run from 2^-2 to 2^2 in equal ratios, further if a fitted one is outside; the
fitted temperatures are added."""
MOST_OCTAVES = 12.0
MOST_NUMBERS = 1_500_000
"""Scores to compute the statistics of; larger files are reduced to evenly spread rows."""
DIGITS = 6
"""Decimals of the sums of confidences on the page."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explorer:
    """Sums over equal-width bins at every point of a grid of gamma and T."""

    gammas: tuple[float, ...]
    temperatures: tuple[float, ...]
    n: int
    """Number of samples counted."""
    n_all: int
    """Number of all samples."""
    count: Floats
    """(gammas, temperatures, bins): number of samples in the bin."""
    confidence: Floats
    """Sum of their confidences; for two classes, of P(class 1)."""
    correct: Floats
    """Number of correct ones; for two classes, of those of class 1."""
    marks: Mapping[str, tuple[int, int]]
    """Points by name: the model as it is, and the fitted methods."""

    @property
    def start(self) -> tuple[int, int]:
        """The point shown at first: temperature scaling, the one that readers know best."""
        return self.marks.get("temperature", self.marks["as it is"])

    @property
    def ticks(self) -> tuple[int, ...]:
        """Indices of the temperatures to label: both ends, 1/2, 1 and 2."""
        last = len(self.temperatures) - 1
        known = {self.temperatures.index(t) for t in (0.5, 1.0, 2.0) if t in self.temperatures}
        apart = len(self.temperatures) // 8
        return (0, *(t for t in sorted(known) if apart < t < last - apart), last)

    @property
    def errors(self) -> Floats:
        """The calibration error of every point, (gammas, temperatures)."""
        errors: Floats = np.abs(self.confidence - self.correct).sum(axis=-1) / self.n
        return errors

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "gammas": list(self.gammas),
            "temperatures": list(self.temperatures),
            "n": self.n,
            "n_all": self.n_all,
            "count": self.count.astype(int).tolist(),
            "confidence": self.confidence.round(DIGITS).tolist(),
            "correct": self.correct.astype(int).tolist(),
            "marks": {name: list(point) for name, point in self.marks.items()},
        }


def explore(test: LabelledScores, fitted: Mapping[str, Calibrator], n_bins: int) -> Explorer:
    """Compute the bins of ``test`` at every point; ``fitted`` are methods by name."""
    data = _rows(test)
    found = fitted_points(fitted)
    gammas = tuple(sorted({*GAMMAS, *(gamma for gamma, _ in found.values())}))
    temperatures = temperature_grid([t for _, t in found.values()])
    two = data.n_classes == 2
    top_sign = np.where(data.logits.argmax(axis=1) == 1, 1.0, -1.0) if two else 1.0
    correct = data.labels == 1 if two else data.correct
    sums = np.empty((3, len(gammas), len(temperatures), n_bins))
    for t, temperature in enumerate(temperatures):
        log_odds = log_odds_of_gammas(data, gammas, 1.0 / temperature)
        for g in range(len(gammas)):
            bins = EqualWidthBins(n_bins)
            bins.update(sigmoid(top_sign * log_odds[g]), correct)
            table = bins.table()
            sums[:, g, t] = table.weight, table.confidence_sum, table.correct_sum
    points = {"as it is": (0.0, 1.0), **found}
    return Explorer(
        gammas=gammas,
        temperatures=temperatures,
        n=len(data),
        n_all=len(test.labels),
        count=sums[0],
        confidence=sums[1],
        correct=sums[2],
        marks={
            name: (_nearest(gamma, gammas), _nearest(temperature, temperatures))
            for name, (gamma, temperature) in points.items()
            if temperatures[0] <= temperature <= temperatures[-1]
        },
    )


def fitted_points(fitted: Mapping[str, Calibrator]) -> dict[str, tuple[float, float]]:
    """(gamma, T) of the methods that are a point of the grid, rounded."""
    points = {}
    for name in ("temperature", "focal-temperature"):
        if name in fitted:
            state = fitted[name].state_
            points[name] = few_digits(state.get("gamma", 0.0)), few_digits(state["temperature"])
    return points


def temperature_grid(wanted: list[float]) -> tuple[float, ...]:
    """Temperatures in equal ratios around 1, and those wanted, with a margin on both sides.

    Examples:
        >>> grid = temperature_grid([1.5])
        >>> len(grid), grid[0], grid[20], grid[26], grid[41]
        (42, 0.25, 1.0, 1.5, 4.0)
        >>> temperature_grid([30.0])[-1] > 30.0
        True
    """
    octaves = [min(max(math.log2(t), -MOST_OCTAVES), MOST_OCTAVES) for t in wanted if t > 0.0]
    low = min([-OCTAVES, *(octave - 0.5 for octave in octaves)])
    high = max([OCTAVES, *(octave + 0.5 for octave in octaves)])
    step = (high - low) / (N_TEMPERATURES - 1)
    below = round(-low / step)
    even = [few_digits(2.0 ** (step * (i - below))) for i in range(N_TEMPERATURES)]
    inside = [t for t in wanted if even[0] <= t <= even[-1]]
    return tuple(sorted({*even, *inside}))


def few_digits(value: float) -> float:
    """Four digits: the page shows the values that the statistics were computed for."""
    return float(f"{value:.4g}")


def _nearest(value: float, values: tuple[float, ...]) -> int:
    return int(np.abs(np.array(values) - value).argmin())


def _rows(test: LabelledScores) -> FitData:
    """The rows to count, as logits."""
    rows = spread_rows(test, MOST_NUMBERS)
    kept = LabelledScores(test.kind, test.scores[rows].astype(np.float64), test.labels[rows])
    return kept.fit_data()
