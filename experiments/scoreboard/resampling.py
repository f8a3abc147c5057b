"""Error bars of means over networks: images are resampled, for all networks that saw them at once.

Networks are not independent samples: those of one family were measured on the same images. So a
resample is a number of repetitions for each *image*, and every network and method that saw these
images is measured on the same repetitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.metrics.binning import equal_mass_table, mass_membership, width_index

Floats = npt.NDArray[np.float64]

SEED = 0
RESAMPLES = 200
LEVEL = 0.95
BINNED = ("ada_ece", "ece")
"""Metrics with a second kind of draws, ``_noise``."""
RESAMPLED = (*BINNED, *(f"{metric}_noise" for metric in BINNED), "nll", "brier")


def draws(images: str, n: int) -> Floats:
    """(resamples, n): how often each image is drawn; the same for the same images."""
    rng = np.random.default_rng([SEED, int(images, 16)])
    rows = [np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(RESAMPLES)]
    return np.array(rows, dtype=np.float64)


def resampled_mean(rows: Floats, counts: Floats) -> Floats:
    """Mean of rows in every resample; infinite if a drawn row is."""
    infinite = np.isinf(rows)
    means: Floats = counts @ np.where(infinite, 0.0, rows) / rows.size
    means[(counts[:, infinite] > 0).any(axis=1)] = np.inf
    return means


def resampled_ada_ece(
    confidence: Floats, correct: npt.NDArray[np.bool_], counts: Floats, n_bins: int
) -> dict[str, Floats]:
    """Equal-mass ECE of every resample, with bins of its own; and that of its noise alone.

    The second is the error that the resampled bin sums would show if those seen were 0: how far
    noise lifts the error of a calibrated model.
    """
    errors, noise = np.empty(len(counts)), np.empty(len(counts))
    order = np.argsort(confidence)  # once: each table would sort them again
    confidence, correct, counts = confidence[order], correct[order], counts[:, order]
    gap = confidence - correct
    sample, index, share = mass_membership(confidence, n_bins)
    seen = np.bincount(index, weights=share * gap[sample])
    for r, count in enumerate(counts):
        table = equal_mass_table(confidence, correct, n_bins, count)
        errors[r] = (table.share * np.abs(table.gap)).sum()
        sums = np.bincount(index, weights=share * (gap * count)[sample])
        noise[r] = np.abs(sums - seen).sum() / gap.size
    return {"ada_ece": errors, "ada_ece_noise": noise}


def resampled_ece(
    confidence: Floats, correct: npt.NDArray[np.bool_], counts: Floats, n_bins: int
) -> dict[str, Floats]:
    """The same with bins of equal width."""
    gaps = np.zeros((len(confidence), n_bins))
    gaps[np.arange(len(gaps)), width_index(confidence, n_bins)] = confidence - correct
    sums = counts @ gaps
    errors = np.abs(sums).sum(axis=1) / len(gaps)
    return {"ece": errors, "ece_noise": np.abs(sums - gaps.sum(axis=0)).sum(axis=1) / len(gaps)}


class Interval(NamedTuple):
    """A difference and its interval."""

    value: float
    low: float | None
    high: float | None

    @property
    def better(self) -> bool:
        """Whether the difference is significantly below 0."""
        return self.high is not None and self.high < 0.0

    @property
    def worse(self) -> bool:
        """Whether it is significantly above 0."""
        return self.low is not None and self.low > 0.0

    def named(self, name: str) -> dict[str, float]:
        """The value under this name, and the ends of its interval."""
        ends = {"from": self.low, "to": self.high}
        return {
            name: self.value,
            **{f"{name}: 95% {end}": at for end, at in ends.items() if at is not None},
        }


def interval(seen: float, off: list[Floats]) -> Interval:
    """[d - q_0.975, d - q_0.025] for a difference d and draws of how far off it is.

    With several kinds of draws it spans the intervals of all: noise lifts a calibration error by
    an amount that depends on the truth, and ``off`` holds both extremes, models as far from
    calibrated as what was seen, and calibrated ones (as in ``calibrant.paired_difference``).
    """
    if not np.isfinite(seen) or not all(np.isfinite(draw).all() for draw in off):
        return Interval(seen, None, None)
    tail = (1.0 - LEVEL) / 2.0
    ends = [np.quantile(draw, [tail, 1.0 - tail]) for draw in off]
    low = seen - max(float(most) for _, most in ends)
    high = seen - min(float(least) for least, _ in ends)
    return Interval(seen, low, high)
