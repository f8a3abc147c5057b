"""Error bars: what a metric would have been on other samples of the same kind.

Samples are redrawn with replacement. A metric that is a mean of rows takes the quantiles of the
redrawn means. A calibration error over bins needs more care, because it is a sum of absolute
values: noise alone makes it positive, and a redrawn sample adds its own noise on top, so that the
quantiles of redrawn errors lie too high (they cover a true error of 1% in *none* of 300 simulated
cases of 500 samples). What is redrawn here is the noise of the bin sums S. The interval holds the
true values r * |S| for which an error as small, or as large, as the one seen is not surprising:

    error(r) = sum_b |r S_b + noise_b|,    r from 0 (calibrated) upwards

Its coverage is measured in `experiments/interval_coverage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.metrics.binning import mass_membership, width_index
from calibrant.metrics.samples import Floats, ScoredSamples

CHUNK_NUMBERS = 2_000_000
"""Numbers held in memory at once while redrawing."""
MOST_DRAWS = 200_000_000
"""Work allowed for the resamples of one metric: fewer are drawn of a very large sample."""
FEWEST = 100
WIDENING = 1.1
"""How much wider the interval of an error over bins is made, because the direction in which the
true sums lie is itself only known from the samples. Chosen on simulated models; on others, 95%
intervals then covered in 85 to 96% of cases (docs/measuring.md)."""
WIDENING_OF_DIFFERENCE = 1.15
"""The same for the difference of two models. Chosen on simulated pairs of equally over-confident
models (300 samples, 10 classes), where it takes false alarms at the 5% level from 3 to 9% of pairs
to 1 to 5%. One setting of 600 samples kept 7 to 8% (11% before)."""
LARGE = 20_000
"""ScoredSamples from which on the sums of bins are as good as normal."""


def allowed_resamples(wanted: int, rows: int) -> int:
    """``wanted``, or as many as the work allowed on ``rows`` numbers."""
    return min(wanted, max(FEWEST, MOST_DRAWS // max(rows, 1)))


def redraws(n: int, n_resamples: int, seed: int) -> Iterator[npt.NDArray[np.float64]]:
    """Chunks of (resamples, n): how often each sample is drawn. The same for the same seed."""
    rng = np.random.default_rng(seed)
    for size in _chunks(n_resamples, n):
        counts = np.empty((size, n))
        for row in counts:
            row[:] = np.bincount(rng.integers(0, n, n), minlength=n)
        yield counts


def _chunks(n_resamples: int, n: int) -> list[int]:
    """How many resamples of ``n`` to take at a time."""
    most = max(1, CHUNK_NUMBERS // n)
    return [min(most, n_resamples - start) for start in range(0, n_resamples, most)]


class LinearStatistic:
    """Weighted means of columns of numbers, redrawn: S = (w' A) / (w' 1)."""

    def __init__(self, matrix: Any, samples: ScoredSamples) -> None:
        self.matrix = matrix  # (n, columns), dense or sparse
        self.weight = samples.weights

    def at(self, counts: Floats) -> Floats:
        """S for each row of counts, (resamples, columns)."""
        weight = counts * self.weight
        sums = np.asarray((self.matrix.T @ weight.T).T)
        return np.asarray(sums / weight.sum(axis=1, keepdims=True))

    def seen(self) -> Floats:
        """S of the samples as they are."""
        seen: Floats = self.at(np.ones((1, len(self.weight))))[0]
        return seen


def redrawn(
    statistics: Mapping[str, LinearStatistic], n: int, n_resamples: int, seed: int
) -> dict[str, Floats]:
    """S of every resample for each of the statistics of the same ``n`` samples."""
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for counts in redraws(n, n_resamples, seed):
        for name, statistic in statistics.items():
            parts[name].append(statistic.at(counts))
    return {name: np.concatenate(chunks) for name, chunks in parts.items()}


def width_bins_of(samples: ScoredSamples, n_bins: int) -> Any:
    """(n, bins): 1 where a sample is in an equal-width bin."""
    index = width_index(samples.confidence, n_bins)
    return _sparse(np.arange(len(samples)), index, np.ones(len(samples)))


def mass_bins_of(samples: ScoredSamples, n_bins: int) -> Any:
    """(n, bins): the share of each sample that is in an equal-mass bin."""
    sample, index, share = mass_membership(samples.confidence, n_bins, samples.weight)
    return _sparse(sample, index, share)


def gap_statistic(samples: ScoredSamples, bins: Any) -> LinearStatistic:
    """Sums of (confidence - correct) over bins."""
    return LinearStatistic(bins.multiply(samples.gap[:, None]).tocsr(), samples)


def class_statistic(samples: ScoredSamples, n_bins: int) -> LinearStatistic:
    """Sums of (p_k - [label is k]) / K over equal-width bins of each class's probability."""
    gap = samples.probs()
    n, n_classes = gap.shape
    column = np.arange(n_classes) * n_bins + width_index(gap.ravel(), n_bins).reshape(gap.shape)
    gap[np.arange(n), samples.need_labels()] -= 1.0
    sample = np.repeat(np.arange(n), n_classes)
    matrix = _sparse(sample, column.ravel(), gap.ravel() / n_classes)
    return LinearStatistic(matrix, samples)


def _sparse(row: Any, column: Any, value: Any) -> Any:
    """A matrix with a column for each bin that is not empty, however many there could be."""
    from scipy.sparse import csr_array

    full, place = np.unique(column, return_inverse=True)
    return csr_array((value, (row, place)), shape=(int(row.max()) + 1, len(full)))


def total_error(sums: Floats) -> Floats:
    """l1 of bin sums: the calibration error."""
    return np.asarray(np.abs(sums).sum(axis=-1))


def largest_error(share: Floats) -> Callable[[Floats], Floats]:
    """The largest gap of a bin, for bins that hold these shares of the samples."""
    full = share > 0

    def of(sums: Floats) -> Floats:
        return np.asarray((np.abs(sums[..., full]) / share[full]).max(axis=-1))

    return of


def error_interval(
    seen: Floats, redrawn: Floats, error: Callable[[Floats], Floats], level: float
) -> tuple[float, float]:
    """Interval for the true error of bins with sums ``seen``, given ``redrawn`` sums.

    It is of the error without the noise that the error seen includes, so it can lie below it.
    """
    noise, value = redrawn - seen, float(error(seen))
    tail = (1.0 - level) / 2.0
    low, middle, high = (
        ratio_where_usual(seen, noise, error, quantile) for quantile in (1.0 - tail, 0.5, tail)
    )
    low = max(0.0, middle - WIDENING * (middle - low))
    high = middle + WIDENING * (high - middle)
    return min(value * low, 1.0), min(value * high, 1.0)


def largest_error_interval(
    seen: Floats, redrawn: Floats, error: Callable[[Floats], Floats], level: float
) -> tuple[float, float]:
    """Interval for the true error of the worst bin, ``error`` of the sums.

    The worst bin is never better than the average one, so both ends are at least those of the
    interval for the calibration error over the same bins.
    """
    worst = error_interval(seen, redrawn, error, level)
    average = error_interval(seen, redrawn, total_error, level)
    return max(worst[0], average[0]), max(worst[1], average[1])


def ratio_where_usual(
    seen: Floats, noise: Floats, error: Callable[[Floats], Floats], quantile: float
) -> float:
    """The r for which the error seen is this quantile of error(r seen + noise); 0 if none is."""
    value = float(error(seen))

    def usual(r: float) -> float:
        return float(np.quantile(error(r * seen + noise), quantile))

    low, high = 0.0, 2.0
    if usual(low) >= value:
        return 0.0
    while usual(high) < value:
        high *= 2.0
    for _ in range(24):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if usual(middle) < value else (low, middle)
    return 0.5 * (low + high)


def deviations(
    seen: Floats, redrawn: Floats, error: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """How far off an error over bins usually is, drawn for two truths.

    Noise lifts an error by its floor where the truth is calibrated, and hardly where the truth is
    as far from calibrated as what was seen.
    """
    return error(redrawn - seen), error(redrawn) - error(seen)


def mean_interval(redrawn: Floats, level: float) -> tuple[float, float]:
    """Interval for a mean, from its redrawn values."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(redrawn, [tail, 1.0 - tail])
    return float(low), float(high)


def calibrated_errors(samples: ScoredSamples, bins: Any, n_resamples: int, seed: int) -> Floats:
    """Errors over ``bins`` that a perfectly calibrated model with these confidences would show.

    Right answers are drawn with the claimed probability; of a large sample the bin sums are drawn
    from the normal distribution that they then have.
    """
    rng = np.random.default_rng(seed)
    confidence = samples.confidence
    weight = samples.weights
    share = weight / weight.sum()
    if len(samples) > LARGE:
        variance = bins.power(2).T @ (share**2 * confidence * (1.0 - confidence))
        return total_error(rng.standard_normal((n_resamples, bins.shape[1])) * np.sqrt(variance))
    errors = []
    for size in _chunks(n_resamples, len(samples)):
        gap = confidence - (rng.random((size, len(samples))) < confidence)
        errors.append(total_error(np.asarray(bins.T @ (share * gap).T).T))
    return np.concatenate(errors)
