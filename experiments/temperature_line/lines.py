"""The best temperature for each gamma of one network, and a straight line through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant import FocalCalibration, TemperatureScaling
from calibrant.metrics.binning import equal_mass_table

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

CRITERIA = ("ada_ece", "nll")
CALLED = {"ada_ece": "ECE", "nll": "NLL"}
N_BINS = 15
REACH = 0.4
"""How far the search goes, in log T, beyond T(0) and (1 + gamma) T(0): the map as a temperature
lies between these, the second for two classes and the first for very many."""
STEP, FINE_STEP, AROUND = 0.04, 0.005, 8
"""In log T; and the number of fine steps on each side of the best coarse one."""


@dataclass(frozen=True)
class Line:
    """The best temperatures of one network by one criterion.

    Attributes:
        gammas: Of the focal map.
        temperatures: The best for each; of gamma = 0 it is that of temperature scaling.
        at_edge: How many lie at an end of the search, so that they may not be the best.
    """

    gammas: Floats
    temperatures: Floats
    at_edge: int

    @property
    def at_zero(self) -> float:
        """T of plain temperature scaling."""
        return float(self.temperatures[self.gammas == 0.0][0])

    @property
    def relative(self) -> Floats:
        """T(gamma) / T(0), so that networks can be compared."""
        return self.temperatures / self.at_zero

    @property
    def slope_from_zero(self) -> float:
        """Slope of T(gamma) / T(0) over the gammas that a focal loss can have."""
        positive = self.gammas >= 0.0
        return float(np.polyfit(self.gammas[positive], self.relative[positive], deg=1)[0])

    @property
    def straightness(self) -> float:
        """R squared of T over gamma."""
        return r_squared(self.gammas, self.temperatures)

    @property
    def straightness_of_inverse(self) -> float:
        """R squared of 1/T over gamma."""
        return r_squared(self.gammas, 1.0 / self.temperatures)


def r_squared(x: Floats, y: Floats) -> float:
    """The share of the variance of ``y`` that a straight line in ``x`` explains."""
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def best_line(logits: Floats, labels: Labels, gammas: Sequence[float]) -> Mapping[str, Line]:
    """The best temperature for each gamma, by each of the criteria; ``gammas`` has 0."""
    plain = [TemperatureScaling(criterion=c).fit(logits, labels).temperature_ for c in CRITERIA]
    found = [best_temperatures(logits, labels, gamma, plain) for gamma in gammas]
    return {
        criterion: Line(
            gammas=np.array(gammas),
            temperatures=np.array([at[criterion][0] for at in found]),
            at_edge=sum(at[criterion][1] for at in found),
        )
        for criterion in CRITERIA
    }


def best_temperatures(
    logits: Floats, labels: Labels, gamma: float, plain: Sequence[float]
) -> dict[str, tuple[float, bool]]:
    """By each criterion the best T for one gamma, and whether it lies at an end of the search.

    Steps of 4% from well below those of gamma = 0, ``plain``, on; then of 0.5% around the best.
    """
    mapping = FocalCalibration(gamma=gamma).fit(logits, labels)
    known: dict[float, tuple[float, float]] = {}

    def at(log_t: float) -> tuple[float, float]:
        if log_t not in known:
            known[log_t] = both_criteria(mapping, logits / np.exp(log_t), labels)
        return known[log_t]

    ends = np.log(np.outer(plain, [1.0, 1.0 + gamma]))
    coarse = np.arange(ends.min() - REACH, ends.max() + REACH + STEP, STEP)
    best = {}
    for i, criterion in enumerate(CRITERIA):
        near = min(coarse, key=lambda log_t: at(float(log_t))[i])
        fine = near + FINE_STEP * np.arange(-AROUND, AROUND + 1)
        log_t = min(fine, key=lambda log_t: at(float(log_t))[i])
        best[criterion] = float(np.exp(log_t)), bool(near in (coarse[0], coarse[-1]))
    return best


def both_criteria(mapping: FocalCalibration, logits: Floats, labels: Labels) -> tuple[float, float]:
    """Equal-mass ECE and NLL of the mapped probabilities."""
    probs = np.asarray(mapping.predict_proba(logits))
    rows = np.arange(len(labels))
    table = equal_mass_table(probs.max(axis=1), probs.argmax(axis=1) == labels, N_BINS)
    with np.errstate(divide="ignore"):  # a temperature that gives a label no chance is never best
        nll = -np.log(probs[rows, labels]).mean()
    return float((table.share * np.abs(table.gap)).sum()), float(nll)
