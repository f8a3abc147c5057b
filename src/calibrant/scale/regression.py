"""The regression behind vector and bias-corrected scaling, over files.

The criterion of ``calibrators.linear.loss`` is a sum over rows and a penalty. Rows are put into its
units as they are read, so all samples must have told what these are first: a median, which is found
exactly by counting the leading bits of the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.batched_search import Search, run_together
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.linear.loss import (
    FAR,
    LEAST_SIZE,
    LossInMemory,
    Penalty,
    RegressionLoss,
    Rows,
    masked_rows,
    regression_rows,
    row_sizes,
)
from calibrant.calibrators.temperature.rows import distances_below_top
from calibrant.calibrators.temperature.solver import (
    NLL,
    BestTemperature,
    Derivatives,
    best_temperature,
    nll_search,
)
from calibrant.scale.samples import MOST_VALUES, FilesOfSamples, Values

DIGIT = 16
"""Bits that are counted in one pass."""


Question: TypeAlias = Callable[[FitData], Any]
"""A sum over the rows of a batch."""


class RowsOfFiles:
    """Stands in for ``Rows`` where they are in files."""

    level = None

    def __init__(self, samples: FilesOfSamples) -> None:
        self.data = samples
        search = nll_search(samples)
        # Side by side, so that the files are read as often as the longest of them asks.
        distance, size, gaps, *best = together(
            samples,
            median(distances_below_top),
            median(partial(_sizes, math.inf)),
            _once(_gaps),
            *([] if search is None else [_over_files(search, len(samples))]),
        )
        self.all_uniform = gaps.n_rows == 0
        self.best = best[0] if best else best_temperature(samples, "nll", 0.0)
        self.n_masked = 0
        far = math.inf if distance is None else FAR * distance
        if not gaps.largest < far * (1.0 - 1e-9):  # there are masks, or nearly
            size, self.n_masked = together(
                samples, median(partial(_sizes, far)), _once(partial(_masked, far))
            )
        self.size = size or 1.0
        self.feature_size = self.size

    def loss(
        self, inverse_temperature: float, shape: tuple[int, ...], penalty: Penalty
    ) -> LossOfFiles:
        """The criterion on all rows."""
        return LossOfFiles(self, inverse_temperature, shape, penalty)


@regression_rows.register
def _rows_of_files(data: FilesOfSamples, *, log_probs: bool) -> RowsOfFiles:
    assert not log_probs  # no method in METHODS asks for them
    return RowsOfFiles(data)


class LossOfFiles(RegressionLoss):
    """Each value, with its gradient, is one pass over the files."""

    def nll_and_gradient(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, and its gradient by N and by b."""
        nll, by_correction, by_bias = self._summed_over_files(_nll_and_gradient, parameters)
        return float(nll), by_correction, by_bias

    def nll_and_hessian(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, its gradient, and its second derivatives."""
        nll, gradient, hessian = self._summed_over_files(_nll_and_hessian, parameters)
        return float(nll), gradient, hessian

    def nll_curvatures(self, parameters: Floats) -> Floats:
        """Of the NLL alone, along each parameter; that along one number for N roughly."""
        return np.asarray(self._summed_over_files(_nll_curvatures, parameters))

    def _summed_over_files(self, of: Callable[..., Any], parameters: Floats) -> Any:
        samples = self.rows.data
        return samples.summed(
            of, self.rows.size, len(samples), self.inverse_temperature, self.shape, parameters
        )


def together(samples: FilesOfSamples, *walks: Search[Question, Any, Any]) -> list[Any]:
    """Where searches end that are answered from files, all of their questions by the same pass."""
    return run_together(
        walks, lambda questions: samples.summed(_answers, questions) if questions else []
    )


def _answers(data: FitData, questions: list[Question]) -> list[Any]:
    return [question(data) for question in questions]


def _once(question: Question) -> Search[Question, Any, Any]:
    (answer,) = yield [question]
    return answer


def _over_files(
    search: Search[float, Derivatives, BestTemperature], n: int
) -> Search[Question, Any, BestTemperature]:
    """The search for the best temperature, which asks for means, by sums over ``n`` rows."""
    inverse_temperatures = next(search)
    while True:
        (sums,) = yield [partial(_nll_sums, tuple(inverse_temperatures))]
        try:
            inverse_temperatures = search.send([Derivatives(*each) for each in sums / n])
        except StopIteration as end:
            best: BestTemperature = end.value
            return best


def _nll_sums(inverse_temperatures: tuple[float, ...], data: FitData) -> Floats:
    return np.array(
        [
            [np.sum(rows) for rows in NLL.rows_of(data, inverse_temperature)]
            for inverse_temperature in inverse_temperatures
        ]
    )


def median(values_of: Callable[[FitData], Floats]) -> Search[Question, Any, float | None]:
    """The lower median of one value a row, exactly; None where none is above ``LEAST_SIZE``.

    Positive floats are in the order of their bits. Each pass counts the next bits of those that
    agree with the median so far, until so few are left that they can be brought to one place.
    """
    leading, known, rank = 0, 0, -1
    while True:
        (counts,) = yield [partial(_counts, values_of, leading, known)]
        if rank < 0:
            rank = (int(counts.sum()) + 1) // 2 - 1
            if rank < 0:
                return None
        digit = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
        rank -= int(counts[:digit].sum())
        leading, known = (leading << DIGIT) | digit, known + DIGIT
        if counts[digit] <= MOST_VALUES or known == 64:
            agreeing = partial(_agreeing, values_of, leading, known)
            (left,) = yield [partial(Values.of, values_of=agreeing)]
            return float(np.sort(left.values)[min(rank, len(left.values) - 1)])


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
    values_of: Callable[[FitData], Floats], leading: int, known: int, data: FitData
) -> npt.NDArray[np.int64]:
    """How many of these values have each of the next digits."""
    bits = _agreeing(values_of, leading, known, data).view(np.uint64)
    digits = bits >> np.uint64(64 - known - DIGIT) & np.uint64((1 << DIGIT) - 1)
    return np.bincount(digits.astype(np.int64), minlength=1 << DIGIT)


def _sizes(far: float, data: FitData) -> Floats:
    return row_sizes(data, far)


def _masked(far: float, data: FitData) -> int:
    return masked_rows(data, far)


@dataclass
class _Gaps:
    """How far the finite logits of a row lie apart."""

    largest: float
    n_rows: int
    """Rows in which they lie apart at all."""

    def merge(self, other: _Gaps) -> None:
        self.largest = max(self.largest, other.largest)
        self.n_rows += other.n_rows


@np.errstate(over="ignore")
def _gaps(data: FitData) -> _Gaps:
    logits = data.logits.astype(np.float64)
    lowest = np.min(logits, axis=1, where=logits > -np.inf, initial=np.inf)
    gaps = logits.max(axis=1) - lowest
    return _Gaps(float(gaps.max()), int((gaps > 0.0).sum()))


def _part(
    data: FitData, size: float, n: int, inverse_temperature: float, shape: tuple[int, ...]
) -> LossInMemory:
    return LossInMemory(
        Rows.part_of(data, size=size, n=n), inverse_temperature, shape, Penalty(0.0, 0.0)
    )


def _nll_and_gradient(
    data: FitData,
    size: float,
    n: int,
    inverse_temperature: float,
    shape: tuple[int, ...],
    parameters: Floats,
) -> tuple[float, Floats, Floats]:
    return _part(data, size, n, inverse_temperature, shape).nll_and_gradient(parameters)


def _nll_and_hessian(
    data: FitData,
    size: float,
    n: int,
    inverse_temperature: float,
    shape: tuple[int, ...],
    parameters: Floats,
) -> tuple[float, Floats, Floats]:
    return _part(data, size, n, inverse_temperature, shape).nll_and_hessian(parameters)


def _nll_curvatures(
    data: FitData,
    size: float,
    n: int,
    inverse_temperature: float,
    shape: tuple[int, ...],
    parameters: Floats,
) -> Floats:
    return _part(data, size, n, inverse_temperature, shape).nll_curvatures(parameters)
