"""The regression behind vector and bias-corrected scaling, over files.

The criterion of ``calibrators.linear_fit`` is a sum over rows and a penalty. Rows are put into its
units as they are read, so all samples must have told what these are first: a median, which is found
exactly by counting the leading bits of the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.base import FitData, Floats
from calibrant.calibrators.linear_fit import (
    FAR,
    LEAST_SIZE,
    Criterion,
    Penalty,
    Rows,
    distances_below_top,
    masked_rows,
    row_sizes,
)
from calibrant.scale.samples import MOST_VALUES, FilesOfSamples

DIGIT = 16
"""Bits that are counted in one pass."""


class RowsOfFiles:
    """Stands in for ``Rows`` where they are in files."""

    level = None

    def __init__(self, samples: FilesOfSamples) -> None:
        self.data = samples
        distance = typical(samples, distances_below_top)
        far = math.inf if distance is None else FAR * distance
        self.size = typical(samples, partial(_sizes, far)) or 1.0
        self.feature_size = self.size
        self.n_masked = int(samples.summed(masked_rows, far))
        self.say_nothing = not samples.summed(_some_difference)

    def criterion(self, factor: float, shape: tuple[int, ...], penalty: Penalty) -> Criterion:
        """The criterion on all rows."""
        return CriterionOfFiles(cast(Rows, self), factor, shape, penalty)


class CriterionOfFiles(Criterion):
    """Each value, with its slopes, is one pass over the files."""

    def sums(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, and its slopes by N and by b."""
        nll, by_correction, by_bias = self._over_files(_sums, parameters)
        return float(nll), by_correction, by_bias

    def seconds(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, its slopes, and its second derivatives."""
        nll, slopes, seconds = self._over_files(_seconds, parameters)
        return float(nll), slopes, seconds

    def curvatures(self, parameters: Floats) -> Floats:
        """Of the NLL alone, along each parameter; that along one number for N roughly."""
        return np.asarray(self._over_files(_curvatures, parameters))

    def _over_files(self, of: Callable[..., Any], parameters: Floats) -> Any:
        samples = self.rows.data
        return samples.summed(of, self.rows.size, len(samples), self.factor, self.shape, parameters)


def typical(samples: FilesOfSamples, values_of: Callable[[FitData], Floats]) -> float | None:
    """The lower median of one value a row, exactly; None where none is above ``LEAST_SIZE``.

    Positive floats are in the order of their bits. Each pass counts the next bits of those that
    agree with the median so far, until so few are left that they can be brought to one place.
    """
    leading, known, rank = 0, 0, -1
    while True:
        counts = samples.summed(_counts, values_of, leading, known)
        if rank < 0:
            rank = (int(counts.sum()) + 1) // 2 - 1
            if rank < 0:
                return None
        digit = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
        rank -= int(counts[:digit].sum())
        leading, known = (leading << DIGIT) | digit, known + DIGIT
        if counts[digit] <= MOST_VALUES or known == 64:
            left = samples.listed(partial(_agreeing, values_of, leading, known))
            return float(np.sort(left)[min(rank, len(left) - 1)])


def _agreeing(
    values_of: Callable[[FitData], Floats], leading: int, known: int, data: FitData
) -> Floats:
    """The values whose first ``known`` bits are ``leading``."""
    values = values_of(data)
    values = values[values > LEAST_SIZE]
    if known == 0:
        return values
    agree = values.view(np.uint64) >> np.uint64(64 - known) == np.uint64(leading)
    return np.asarray(values[agree])


def _counts(
    data: FitData, values_of: Callable[[FitData], Floats], leading: int, known: int
) -> npt.NDArray[np.int64]:
    """How many of these values have each of the next digits."""
    bits = _agreeing(values_of, leading, known, data).view(np.uint64)
    digits = bits >> np.uint64(64 - known - DIGIT) & np.uint64((1 << DIGIT) - 1)
    return np.bincount(digits.astype(np.int64), minlength=1 << DIGIT)


def _sizes(far: float, data: FitData) -> Floats:
    return row_sizes(data, far)


def _some_difference(data: FitData) -> int:
    """How many rows say something of their classes."""
    lowest = np.min(data.logits, axis=1, where=data.logits > -np.inf, initial=np.inf)
    return int((lowest < data.logits.max(axis=1)).sum())


def _part(data: FitData, size: float, n: int, factor: float, shape: tuple[int, ...]) -> Criterion:
    return Criterion(Rows.part_of(data, size=size, n=n), factor, shape, Penalty(0.0, 0.0))


def _sums(
    data: FitData, size: float, n: int, factor: float, shape: tuple[int, ...], parameters: Floats
) -> tuple[float, Floats, Floats]:
    return _part(data, size, n, factor, shape).sums(parameters)


def _seconds(
    data: FitData, size: float, n: int, factor: float, shape: tuple[int, ...], parameters: Floats
) -> tuple[float, Floats, Floats]:
    return _part(data, size, n, factor, shape).seconds(parameters)


def _curvatures(
    data: FitData, size: float, n: int, factor: float, shape: tuple[int, ...], parameters: Floats
) -> Floats:
    return _part(data, size, n, factor, shape).curvatures(parameters)
