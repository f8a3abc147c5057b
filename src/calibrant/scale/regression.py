"""The regression of vector and bias-corrected scaling, over files.

The criterion of ``calibrators.linear.loss`` is a sum over rows and a penalty. Rows are put into its
units as they are read, so these are found first, from all samples: a median, which is exact because
the leading bits of the sizes are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant import _thresholds
from calibrant.calibrators.batched_search import Search, run_together
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.linear.loss import (
    FAR,
    LEAST_SIZE,
    LossInMemory,
    Penalty,
    RegressionLoss,
    RowsInMemory,
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
from calibrant.scale.samples import SamplesInFiles, SomeValues

DIGIT = 16
"""Bits that are counted in one pass."""


Question: TypeAlias = Callable[[FitData], Any]
"""A sum over the rows of a batch."""


class RowsInFiles:
    """``RowsInMemory`` for samples in files."""

    level = None

    def __init__(self, samples: SamplesInFiles, *, log_probs: bool) -> None:
        assert not log_probs  # no method in METHODS has them as features
        self.data = samples
        search = nll_search(samples)
        # Together, so that the number of passes is that of the longest search.
        distance, size, gaps, *best = search_together(
            samples,
            median(distances_below_top),
            median(partial(row_sizes, far=math.inf)),
            _once(_gaps),
            *([] if search is None else [_over_files(search, len(samples))]),
        )
        self.all_uniform = gaps.n_rows == 0
        self.best = best[0] if best else best_temperature(samples, "nll", 0.0)
        self.n_masked = 0
        far = math.inf if distance is None else FAR * distance
        if not gaps.largest < far * (1.0 - 1e-9):  # there are masks, or nearly
            size, self.n_masked = search_together(
                samples,
                median(partial(row_sizes, far=far)),
                _once(partial(masked_rows, far=far)),
            )
        self.size = size or 1.0
        self.feature_size = self.size

    def loss(
        self, inverse_temperature: float, shape: tuple[int, ...], penalty: Penalty
    ) -> LossInFiles:
        """The criterion on all rows."""
        return LossInFiles(self, inverse_temperature, shape, penalty)


regression_rows.register(SamplesInFiles, RowsInFiles)


class LossInFiles(RegressionLoss):
    """The criterion over files: each value, with its derivatives, is one pass."""

    def nll_and_gradient(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, and its gradients by N and by b."""
        nll, by_correction, by_bias = self._summed(LossInMemory.nll_and_gradient, parameters)
        return float(nll), by_correction, by_bias

    def nll_and_hessian(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Without the penalties: the NLL, its gradient, and its second derivatives."""
        nll, gradient, seconds = self._summed(LossInMemory.nll_and_hessian, parameters)
        return float(nll), gradient, seconds

    def nll_curvatures(self, parameters: Floats) -> Floats:
        """Of the NLL alone, along each parameter; approximate if N is one number."""
        return np.asarray(self._summed(LossInMemory.nll_curvatures, parameters))

    def _summed(self, method: Callable[[LossInMemory, Floats], Any], parameters: Floats) -> Any:
        samples = self.rows.data
        like = self.rows.size, len(samples), self.inverse_temperature, self.shape
        return samples.summed(_loss_of_batch, method, like, parameters)


def _loss_of_batch(
    data: FitData,
    method: Callable[[LossInMemory, Floats], Any],
    like: tuple[float, int, float, tuple[int, ...]],
    parameters: Floats,
) -> Any:
    size, n, inverse_temperature, shape = like
    rows = RowsInMemory.part_of(data, size=size, n=n)
    return method(LossInMemory(rows, inverse_temperature, shape, Penalty(0.0, 0.0)), parameters)


def search_together(samples: SamplesInFiles, *walks: Search[Question, Any, Any]) -> list[Any]:
    """The results of searches over files; each pass answers the questions of all of them."""
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
    """The search for the best temperature, with its means computed from sums over ``n`` rows."""
    asked = next(search)
    while True:
        (sums,) = yield [partial(_nll_sums, inverse_temperatures=tuple(asked))]
        try:
            asked = search.send([Derivatives(*each) for each in sums / n])
        except StopIteration as end:
            best: BestTemperature = end.value
            return best


def _nll_sums(data: FitData, inverse_temperatures: tuple[float, ...]) -> Floats:
    return np.array(
        [[np.sum(rows) for rows in NLL.rows_of(data, each)] for each in inverse_temperatures]
    )


def median(values_of: Callable[[FitData], Floats]) -> Search[Question, Any, float | None]:
    """The exact lower median of one value per row; None if none is above ``LEAST_SIZE``.

    Positive floats are ordered as their bits are. Each pass counts the next bits of the values that
    agree with the median so far, until few enough are left to gather them.
    """
    leading, known, rank = 0, 0, -1
    while True:
        (counts,) = yield [
            partial(_digit_counts, values_of=values_of, leading=leading, known=known)
        ]
        if rank < 0:
            rank = (int(counts.sum()) + 1) // 2 - 1
            if rank < 0:
                return None
        digit = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
        rank -= int(counts[:digit].sum())
        leading, known = (leading << DIGIT) | digit, known + DIGIT
        if counts[digit] <= _thresholds.MOST_GATHERED_VALUES or known == 64:
            agreeing = partial(_agreeing, values_of=values_of, leading=leading, known=known)
            (left,) = yield [partial(SomeValues.of, values_of=agreeing)]
            return float(np.sort(left.values)[min(rank, len(left.values) - 1)])


def _agreeing(
    data: FitData, values_of: Callable[[FitData], Floats], leading: int, known: int
) -> Floats:
    """The values whose first ``known`` bits are ``leading``."""
    values = values_of(data)
    values = values[values > LEAST_SIZE]
    if known == 0:
        return values
    agree = values.view(np.uint64) >> np.uint64(64 - known) == np.uint64(leading)
    return np.asarray(values[agree])


def _digit_counts(
    data: FitData, values_of: Callable[[FitData], Floats], leading: int, known: int
) -> npt.NDArray[np.int64]:
    """How many of these values have each next digit."""
    bits = _agreeing(data, values_of, leading, known).view(np.uint64)
    digits = bits >> np.uint64(64 - known - DIGIT) & np.uint64((1 << DIGIT) - 1)
    return np.bincount(digits.astype(np.int64), minlength=1 << DIGIT)


@dataclass
class _Gaps:
    """Differences between the largest and the smallest finite logit of a row."""

    largest: float
    n_rows: int
    """Rows in which it is above 0."""

    def merge(self, other: _Gaps) -> None:
        self.largest = max(self.largest, other.largest)
        self.n_rows += other.n_rows


@np.errstate(over="ignore")
def _gaps(data: FitData) -> _Gaps:
    logits = data.logits.astype(np.float64)
    lowest = np.min(logits, axis=1, where=logits > -np.inf, initial=np.inf)
    gaps = logits.max(axis=1) - lowest
    return _Gaps(float(gaps.max()), int((gaps > 0.0).sum()))
