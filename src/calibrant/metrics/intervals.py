"""Bootstrap intervals of metrics: what a metric would be on other samples of the same kind.

Samples are resampled with replacement. The interval of a metric that is a mean over rows is given
by the quantiles of the resampled means. A calibration error over bins is a sum of absolute values:
noise alone makes it positive, and each resample adds noise of its own, so the quantiles of
resampled errors are too high (they cover a true error of 1% in *none* of 300 simulated cases of 500
samples). Therefore only the noise of the bin sums S is resampled. The interval holds the true
errors for which an error as small, or as large, as the observed one is not surprising:

    error(r) = sum_b |r D_b + noise_b|,    r from 0 (calibrated) upwards

Noise raises the error most if the true error is in few bins, and least if it is in all of them.
Which it is, the samples tell only for sums well above their noise. The lower end therefore supposes
few bins: D leaves out sums that noise explains. The upper end supposes many: D has no very small
sums. Its coverage is measured in `experiments/interval_coverage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.metrics.binning import mass_membership, width_index
from calibrant.metrics.samples import Floats, ScoredSamples

Counts = npt.NDArray[np.uint8]
CHUNK_NUMBERS = 1_000_000
"""Numbers held in memory at once while resampling."""
HELD_COUNTS = 16_000_000
"""Largest number of counts, of a byte each, that are held for the next metrics."""
MOST_DRAWS = 200_000_000
"""Largest number of draws for one metric: very large samples get fewer resamples."""
FEWEST_RESAMPLES = 100
DOUBTFUL, CERTAIN = 1.0, 3.0
"""For the lower end of the interval of an error over bins, a bin sum counts as 0 up to DOUBTFUL
standard deviations of its noise and in full from CERTAIN; its share grows linearly in between."""
HIDDEN = 0.6
"""For the upper end, a bin sum is at least this many standard deviations of its noise. The three
were chosen together, on normal bin sums of which one to all are off; docs/measuring.md has the
coverage."""
WIDENING_OF_DIFFERENCE = 1.15
"""How much the interval of the difference of two models is widened, because the direction of the
true sums is itself only estimated from the samples. Chosen on simulated pairs of equally
over-confident models (300 samples, 10 classes), where it takes false alarms at the 5% level from 3
to 9% of pairs to 1 to 5%. One setting of 600 samples kept 7 to 8% (11% before)."""
NORMAL_FROM = 20_000
"""Number of samples from which bin sums are treated as normally distributed."""


def allowed_resamples(wanted: int, rows: int) -> int:
    """``wanted``, or as many resamples of ``rows`` numbers as the limit on draws allows."""
    return min(wanted, max(FEWEST_RESAMPLES, MOST_DRAWS // max(rows, 1)))


def resample_counts(n: int, n_resamples: int, seed: int) -> Iterator[Counts]:
    """How often each sample is drawn, in chunks of (n, resamples); the seed decides all.

    The counts of the last call are held, so that methods compared on the same samples share them.
    """
    few = n * n_resamples <= HELD_COUNTS
    yield from (_held_counts if few else _drawn_counts)(n, n_resamples, seed)


@lru_cache(maxsize=1)
def _held_counts(n: int, n_resamples: int, seed: int) -> tuple[Counts, ...]:
    return tuple(_drawn_counts(n, n_resamples, seed))


def _drawn_counts(n: int, n_resamples: int, seed: int) -> Iterator[Counts]:
    rng = np.random.default_rng(seed)
    for size in chunks(n_resamples, n, CHUNK_NUMBERS):
        # No sample is drawn more than 255 times: the probability is below 1e-480.
        counts = np.empty((size, n), dtype=np.uint8)
        for row in counts:
            row[:] = np.bincount(rng.integers(0, n, n), minlength=n)
        yield np.ascontiguousarray(counts.T)


def chunks(n_resamples: int, numbers: int, held: int) -> list[int]:
    """How many resamples, of so many numbers each, to compute at a time."""
    most = max(1, held // numbers)
    return [min(most, n_resamples - start) for start in range(0, n_resamples, most)]


def weighted_means(matrix: Any, weight: Floats) -> Floats:
    """Means of the columns of a matrix, dense or sparse, (n, columns)."""
    return np.asarray(matrix.T @ weight / weight.sum())


def resampled_means(
    matrices: Sequence[Any], weight: Floats, n_resamples: int, seed: int
) -> list[Floats]:
    """:func:`weighted_means` of every resample, (resamples, columns), for each of the matrices.

    One product of all columns with the counts of all resamples.
    """
    from scipy.sparse import csr_array, hstack

    each = [csr_array(matrix) for matrix in (*matrices, np.ones((len(weight), 1)))]
    columns = hstack(each, format="csr").multiply(weight[:, None]).tocsr().T
    sums = [
        columns @ counts.astype(np.float64)
        for counts in resample_counts(len(weight), n_resamples, seed)
    ]
    *means, total = np.split(np.hstack(sums), np.cumsum([one.shape[1] for one in each])[:-1])
    return [(part / total).T for part in means]


def width_bins_of(samples: ScoredSamples, n_bins: int) -> Any:
    """(n, bins): 1 where a sample is in an equal-width bin."""
    index = width_index(samples.confidence, n_bins)
    return _sparse(np.arange(len(samples)), index, np.ones(len(samples)))


def mass_bins_of(samples: ScoredSamples, n_bins: int) -> Any:
    """(n, bins): the share of each sample that is in an equal-mass bin; kept with the samples."""
    kept: dict[int, Any] = vars(samples).setdefault("mass_bins", {})
    if n_bins not in kept:
        kept[n_bins] = _sparse(*mass_membership(samples.confidence, n_bins, samples.weight))
    return kept[n_bins]


def gap_columns(samples: ScoredSamples, bins: Any) -> Any:
    """(n, bins): confidence - correct, in the bins of each sample."""
    return bins.multiply(samples.gap[:, None]).tocsr()


def class_columns(samples: ScoredSamples, n_bins: int) -> Any:
    """(n, bins of all classes): (p_k - [label is k]) / K, in the equal-width bin of p_k."""
    gap = samples.probs()
    n, n_classes = gap.shape
    column = np.arange(n_classes) * n_bins + width_index(gap.ravel(), n_bins).reshape(gap.shape)
    gap[np.arange(n), samples.need_labels()] -= 1.0
    sample = np.repeat(np.arange(n), n_classes)
    return _sparse(sample, column.ravel(), gap.ravel() / n_classes)


def _sparse(row: Any, column: Any, value: Any) -> Any:
    """A sparse matrix with one column for each bin that is not empty."""
    from scipy.sparse import csr_array

    full, place = np.unique(column, return_inverse=True)
    return csr_array((value, (row, place)), shape=(int(row.max()) + 1, len(full)))


def total_error(sums: Floats) -> Floats:
    """l1 norm of bin sums: the calibration error."""
    return np.asarray(np.abs(sums).sum(axis=-1))


def largest_error(share: Floats) -> Callable[[Floats], Floats]:
    """A function from bin sums to the largest gap, for bins with these shares of the samples."""
    full = share > 0

    def largest_gap(sums: Floats) -> Floats:
        return np.asarray((np.abs(sums[..., full]) / share[full]).max(axis=-1))

    return largest_gap


def error_interval(
    observed: Floats, resampled: Floats, error: Callable[[Floats], Floats], level: float
) -> tuple[float, float]:
    """Interval for the true error of bins, from their ``observed`` and ``resampled`` sums.

    The observed error includes noise and the interval does not, so it can lie below the error.
    """
    noise = resampled - observed
    value = float(error(observed))
    size, deviation = np.abs(observed), noise.std(axis=0)
    multiple = np.divide(size, deviation, out=np.full_like(size, CERTAIN), where=deviation > 0.0)
    few = observed * np.interp(multiple, [DOUBTFUL, CERTAIN], [0.0, 1.0])
    many = np.copysign(np.maximum(size, HIDDEN * deviation), observed)
    tail = (1.0 - level) / 2.0
    low = error_at_quantile(few, noise, value, error, 1.0 - tail)
    high = error_at_quantile(many, noise, value, error, tail)
    return min(low, high, 1.0), min(high, 1.0)


def largest_error_interval(
    observed: Floats, resampled: Floats, error: Callable[[Floats], Floats], level: float
) -> tuple[float, float]:
    """Interval for the true error of the worst bin, which is ``error`` of the sums.

    The worst bin is never better than the average one, so both ends are at least those of the
    interval for the calibration error over the same bins.
    """
    worst = error_interval(observed, resampled, error, level)
    average = error_interval(observed, resampled, total_error, level)
    return max(worst[0], average[0]), max(worst[1], average[1])


def error_at_quantile(
    direction: Floats,
    noise: Floats,
    value: float,
    error: Callable[[Floats], Floats],
    quantile: float,
) -> float:
    """The error of r * direction, for the r that makes ``value`` this quantile once noise is added.

    0 if there is no such r.
    """

    def quantile_at(r: float) -> float:
        return _quantile(error(r * direction + noise), quantile)

    low, high = 0.0, 2.0
    if not direction.any() or quantile_at(low) >= value:
        return 0.0
    while quantile_at(high) < value:
        high *= 2.0
    for _ in range(24):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if quantile_at(middle) < value else (low, middle)
    return float(error(0.5 * (low + high) * direction))


def _quantile(values: Floats, quantile: float) -> float:
    """``np.quantile`` by the method "weibull", of which most of the time is not computation.

    This method is right on average; the default would make tails of 2.5% 2.8% (300 resamples).
    """
    place = min(max(quantile * (len(values) + 1) - 1.0, 0.0), len(values) - 1.0)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    found = np.partition(values, (low, high))
    return float(found[low] + (place - low) * (found[high] - found[low]))


def deviations(
    observed: Floats, resampled: Floats, error: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """Resampled deviations of an error over bins from the truth, for two possible truths.

    If the model is calibrated, noise raises the error by the noise floor. If it is as miscalibrated
    as observed, noise raises the error by very little.
    """
    return error(resampled - observed), error(resampled) - error(observed)


def mean_interval(resampled: Floats, level: float) -> tuple[float, float]:
    """Percentile interval of a mean, from its resampled values."""
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(resampled, [tail, 1.0 - tail])
    return float(low), float(high)


def calibrated_errors(samples: ScoredSamples, bins: Any, n_resamples: int, seed: int) -> Floats:
    """Errors over ``bins`` that a perfectly calibrated model with these confidences would show.

    Correctness is drawn with the claimed probability. For large samples the bin sums are drawn
    directly, from the normal distribution that they then have.
    """
    rng = np.random.default_rng(seed)
    confidence, weight = samples.confidence, samples.weights
    share = weight / weight.sum()
    if len(samples) > NORMAL_FROM:
        variance = bins.power(2).T @ (share**2 * confidence * (1.0 - confidence))
        return total_error(rng.standard_normal((n_resamples, bins.shape[1])) * np.sqrt(variance))
    bins = bins.multiply(share[:, None]).toarray()
    errors = []
    for size in chunks(n_resamples, len(samples), CHUNK_NUMBERS):
        drawn = rng.random((size, len(samples)))
        hits = np.less(drawn, confidence, out=drawn)
        errors.append(total_error(confidence @ bins - hits @ bins))
    return np.concatenate(errors)
