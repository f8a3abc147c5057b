"""Tests of calibration: are the errors more than labels drawn from the probabilities would show?

A calibrated model's labels are drawn from its probabilities. One simulation of such labels gives
the distribution of every statistic at once: of the calibration errors (their noise floors), of the
mean confidence, and of the class whose mean probability is furthest from its rate. A test of
several statistics at one level is the test of the smallest of their p-values, whose own
distribution comes from the same simulation (Westfall and Young 1993).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calibrant._numerics.first_use import are_few_and_once
from calibrant._numerics.logspace import probs_of
from calibrant.metrics import intervals
from calibrant.metrics.binning import BinTable, width_edges, width_index
from calibrant.metrics.calibration import ClassSums, class_sums
from calibrant.metrics.samples import Floats, ScoredSamples

MOST_LABELS = 2_500_000
"""Number of labels to draw for one test: large samples get fewer simulations."""
MOST_NEEDED = 10_000
"""Largest number of simulations that a level may ask for."""
CHUNK_CELLS = 4_000_000
"""Bins of all classes, in all simulations, that are held in memory at once."""
DECIMALS = 12
"""Statistics that differ only by rounding count as equal."""


def simulations_for(level: float, n_tests: int = 1) -> int:
    """Number of simulations from which on p-values well below 1 - level are possible.

    Of several tests, the smallest p-value must stay below it when it is multiplied by their number.
    That of the three or four statistics of one test is at least so many simulations.
    """
    one = min(MOST_NEEDED, math.ceil(round(10.0 / (1.0 - level), 6)))
    return one if n_tests == 1 else max(one, math.ceil(round(6.0 * n_tests / (1.0 - level), 6)))


@dataclass(frozen=True)
class NoiseFloor:
    """The error that a perfectly calibrated model with the same probabilities would show."""

    name: str
    expected: float
    """Mean error of the calibrated model."""
    usual_up_to: float
    """95% quantile of its error."""
    p_value: float
    """Probability that its error is at least as large as the observed one."""

    @classmethod
    def of(cls, name: str, observed: float, errors: Floats) -> NoiseFloor:
        """From the observed error and those of simulated calibrated models."""
        at_least = int((errors >= observed).sum())
        return cls(
            name=name,
            expected=float(errors.mean()),
            usual_up_to=float(np.quantile(errors, 0.95)),
            p_value=(at_least + 1) / (len(errors) + 1),
        )


@dataclass(frozen=True)
class CalibrationTest:
    """Statistics of the samples, and of simulated samples of a calibrated model."""

    observed: Mapping[str, float]
    simulated: Mapping[str, Floats]
    """(simulations,) for each statistic; the same simulations for all."""
    untested: tuple[str, ...] = ()
    """Statistics that have a noise floor only."""

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """Every statistic of the samples, followed by those of the simulations."""
        return {
            name: np.round(np.append(self.observed[name], values), DECIMALS)
            for name, values in self.simulated.items()
            if name not in self.untested
        }

    @cached_property
    def _smallest(self) -> Floats:
        """The smallest p-value of the samples, followed by those of the simulations."""
        p_values = [
            1.0 - np.searchsorted(np.sort(values), values, side="left") / len(values)
            for values in self._values.values()
        ]
        return np.asarray(np.min(p_values, axis=0))

    def p_value(self, name: str, value: float | None = None) -> float:
        """Share of calibrated models with a statistic at least as large (as ``value``)."""
        values = self._values[name]
        value = values[0] if value is None else round(value, DECIMALS)
        return float((values >= value).mean())

    def adjusted(self, p_value: float) -> float:
        """Share of calibrated models any of whose p-values is as small."""
        return float((self._smallest <= p_value + 1e-12).mean())

    def adjusted_p_value(self, *names: str) -> float:
        """:meth:`adjusted` p-value of the most surprising of these statistics."""
        return self.adjusted(min(self.p_value(name) for name in names))

    @property
    def overall(self) -> float:
        """The p-value of all statistics together."""
        return self.adjusted_p_value(*self._values)

    def floor(self, name: str) -> NoiseFloor:
        """The noise floor of a statistic that is an error."""
        return NoiseFloor.of(name, self.observed[name], self.simulated[name])


# --- one column: P(positive), or the confidence of a prediction ---


def column_test(
    name: str, samples: ScoredSamples, odds: Floats, n_bins: int, n_simulations: int, seed: int
) -> CalibrationTest:
    """Test the error over bins, the mean and the slope of one column of probabilities.

    Args:
        name: Name of the error over bins.
        samples: The probabilities as confidences, the positive samples as correct ones.
        odds: Log-odds of the probabilities.
        n_bins: Number of equal-width bins.
        n_simulations: Number of simulations.
        seed: Seed of the simulations.
    """
    share = samples.weights / samples.total
    variance = share**2 * samples.confidence * (1.0 - samples.confidence)
    cells = _Cells(samples.confidence, odds, share * samples.gap, variance, n_bins)
    rng = np.random.default_rng(seed)
    if len(samples) > intervals.NORMAL_FROM:
        sums, tilts = cells.normal_sums(n_simulations, rng)
    else:
        sums, tilts = cells.drawn_sums(samples.confidence, share, n_simulations, rng)
    return cells.test(name, sums, tilts)


def column_test_of_cells(
    name: str, table: BinTable, odds: Floats, n_bins: int, n_simulations: int, rng: Any
) -> CalibrationTest:
    """:func:`column_test` of many samples that were counted in narrow cells."""
    gap = (table.confidence_sum - table.correct_sum) / table.total
    variance = table.claimed_variance_sum / table.total**2
    cells = _Cells(table.confidence, odds, gap, variance, n_bins)
    return cells.test(name, *cells.normal_sums(n_simulations, rng))


class _Cells:
    """Sums of (probability - positive) over cells: single samples, or narrow ranges of them."""

    def __init__(
        self, probability: Floats, odds: Floats, gap: Floats, variance: Floats, n_bins: int
    ) -> None:
        self.gap, self.variance = gap, variance
        _, self.bins = np.unique(width_index(probability, n_bins), return_inverse=True)
        whole = float(variance.sum())
        # Orthogonal to a change of all log-odds by the same amount.
        self.tilt = odds - (float(variance @ odds) / whole if whole > 0 else 0.0)

    def _by_bin(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self.bins, weights=values))

    def normal_sums(self, n_simulations: int, rng: Any) -> tuple[Floats, Floats]:
        """Sums over bins, and tilted sums, of simulations: normally distributed."""
        variance, tilted = self._by_bin(self.variance), self._by_bin(self.variance * self.tilt)
        per_sum = np.divide(tilted, variance, out=np.zeros(len(variance)), where=variance > 0)
        left = float(self.variance @ self.tilt**2) - float(per_sum @ tilted)
        sums = rng.standard_normal((n_simulations, len(variance))) * np.sqrt(variance)
        noise = rng.standard_normal(n_simulations) * np.sqrt(max(left, 0.0))
        return sums, sums @ per_sum + noise

    def drawn_sums(
        self, probability: Floats, share: Floats, n_simulations: int, rng: Any
    ) -> tuple[Floats, Floats]:
        """The same with labels drawn for each sample."""
        from scipy.sparse import csr_array

        n = len(probability)
        bins = csr_array((share, (self.bins, np.arange(n))))
        sums, tilts = [], []
        for size in intervals.chunks(n_simulations, n, intervals.CHUNK_NUMBERS):
            gap = probability - (rng.random((size, n)) < probability)
            sums.append((bins @ gap.T).T)
            tilts.append(gap @ (share * self.tilt))
        return np.concatenate(sums), np.concatenate(tilts)

    def test(self, name: str, sums: Floats, tilts: Floats) -> CalibrationTest:
        spread = _nonzero(np.sqrt(self.variance.sum()))
        tilt_spread = _nonzero(np.sqrt(self.variance @ self.tilt**2))

        def statistics(sums: Floats, tilts: Any) -> dict[str, Any]:
            return {
                name: intervals.total_error(sums),
                "mean": np.abs(sums.sum(axis=-1)) / spread,
                "slope": np.abs(tilts) / tilt_spread,
            }

        observed = statistics(self._by_bin(self.gap), self.gap @ self.tilt)
        return CalibrationTest(observed, statistics(sums, tilts))


def _nonzero(spread: Any) -> float:
    """A spread to divide by; certain predictions have none, and any deviation is too large."""
    return float(spread) or 1.0


# --- more than two classes ---


@dataclass(frozen=True)
class ClassMeans:
    """Mean probability and rate of each class, and how surprising their difference is."""

    predicted: Floats
    observed: Floats
    z: Floats
    """Absolute difference in standard errors of a calibrated model."""


def class_means(sums: ClassSums, n: float, unit: float = 1.0) -> ClassMeans:
    """From sums over ``n`` samples; ``unit`` is the mean of their squared weights."""
    return ClassMeans(
        sums.predicted.sum(axis=1) / n,
        sums.observed.sum(axis=1) / n,
        class_z(sums.gaps.sum(axis=1), sums.variance, unit),
    )


def class_z(gaps: Floats, variance: Floats, unit: float = 1.0) -> Floats:
    """Sums of (p_k - [label is k]) over the samples in standard errors of a calibrated model.

    The variance of one sample is added. Otherwise a single sample of a class that was all but
    excluded would be a large deviation, and the largest of many classes nearly always such a one.
    """
    return np.asarray(np.abs(gaps) / np.sqrt(variance + unit))


def class_test(
    samples: ScoredSamples, n_bins: int, n_simulations: int, seed: int
) -> tuple[CalibrationTest, ClassMeans]:
    """Test the confidence (``ece``, ``mean``) and the classes (``classwise_ece``, ``classes``).

    The same simulations give ``ada_ece`` its noise floor, unless there are so many samples that
    its sums are normal.
    """
    n = len(samples)
    weight = samples.weights * (n / samples.total)
    scaled = samples if samples.weight is None else samples.weighted_by(weight)
    sums = class_sums(scaled, n_bins)
    bins = {"ece": intervals.width_bins_of(scaled, n_bins)}
    if n <= intervals.NORMAL_FROM:
        bins["ada_ece"] = intervals.mass_bins_of(scaled, n_bins)
    columns = _weighted_columns(bins.values(), weight)
    stops = np.cumsum([each.shape[1] for each in bins.values()])[:-1]
    claimed = columns.T @ scaled.confidence
    unit = float((weight**2).mean())
    spread = _nonzero(np.sqrt(weight**2 @ (scaled.confidence * (1.0 - scaled.confidence))))

    def statistics(gaps: Floats, class_gaps: Floats) -> dict[str, Any]:
        by_bins = np.split(gaps, stops)
        of_classes = class_z(class_gaps.sum(axis=1).T, sums.variance, unit)
        errors = [np.abs(each).sum(axis=0) / n for each in by_bins]
        return {
            **dict(zip(bins, errors, strict=True)),
            "mean": np.abs(by_bins[0].sum(axis=0)) / spread,
            "classwise_ece": np.abs(class_gaps).sum(axis=1).mean(axis=0) / n,
            "classes": of_classes.max(axis=-1),
        }

    observed = statistics(columns.T @ scaled.gap, sums.gaps)
    parts = [
        statistics(claimed[:, None] - hits, sums.predicted[..., None] - drawn)
        for hits, drawn in _drawn_labels(scaled, columns, n_bins, n_simulations, seed)
    ]
    simulated = {name: np.concatenate([part[name] for part in parts]) for name in observed}
    return CalibrationTest(observed, simulated, ("ada_ece",)), class_means(sums, n, unit)


def _weighted_columns(bins: Iterable[Any], weight: Floats) -> Any:
    """(n, columns): the weights of the samples in each of several sets of bins."""
    from scipy.sparse import hstack

    return hstack(list(bins), format="csr").multiply(weight[:, None]).tocsr()


def _drawn_labels(
    samples: ScoredSamples, columns: Any, n_bins: int, n_simulations: int, seed: int
) -> Iterator[tuple[Floats, Any]]:
    """Labels drawn from the probabilities, counted in chunks of simulations.

    Yields correct samples by column, (columns, simulations), and labels by class and bin of its
    probability, (classes, bins, simulations).
    """
    from calibrant.metrics.few_draws import count_few_drawn_labels
    from calibrant.metrics.kernels import count_drawn_labels

    in_numpy = are_few_and_once(samples.need_scores().size) and bool((samples.weights == 1.0).all())
    n, n_cells = len(samples), samples.n_classes * n_bins
    first = np.random.default_rng(seed).integers(2**62, dtype=np.uint64)
    for size in intervals.chunks(n_simulations, n_cells, CHUNK_CELLS):
        hits = np.zeros((columns.shape[1], size))
        drawn = np.zeros((n_cells, size), dtype=np.float32)  # half the cache
        rows = min(n, max(1, intervals.CHUNK_NUMBERS // (samples.n_classes + size)))
        correct = np.empty((rows, size))
        for start in range(0, n, rows):  # Ctrl-C takes effect between two calls
            block = slice(start, min(start + rows, n))
            counter = first + np.uint64(start * size)
            # Probabilities of one type, so that this is compiled once.
            probs = probs_of(samples.need_scores()[block], from_logits=samples.from_logits)
            edges = width_edges(n_bins)
            if in_numpy:
                count_few_drawn_labels(probs, edges, counter, correct[: len(probs)], drawn)
            else:
                count_drawn_labels(probs, samples.weights[block], edges, counter, correct, drawn)
            hits += columns[block].T @ correct[: len(probs)]
        first += np.uint64(n * size)
        yield hits, drawn.reshape(samples.n_classes, n_bins, size)


def class_test_of_sums(
    table: BinTable, means: ClassMeans, n_simulations: int, rng: Any
) -> CalibrationTest:
    """:func:`class_test` of many samples: sums are normal, and taken for independent.

    Args:
        table: Bins of confidence.
        means: Of the classes.
        n_simulations: Number of simulations.
        rng: Source of random numbers.
    """
    from scipy.special import ndtri

    sums = table.confidence_sum - table.correct_sum
    spread = _nonzero(np.sqrt(table.claimed_variance_sum.sum()))
    draws = rng.standard_normal((n_simulations, len(sums))) * np.sqrt(table.claimed_variance_sum)
    # The largest of K independent numbers. Those of classes are negatively correlated, and their
    # largest is no larger (Sidak 1967).
    largest = -ndtri(-np.expm1(np.log(rng.random(n_simulations)) / len(means.z)) / 2.0)
    statistics = [
        (intervals.total_error(each) / table.total, np.abs(each.sum(axis=-1)) / spread)
        for each in (sums, draws)
    ]
    (ece, mean), simulated = statistics
    return CalibrationTest(
        {"ece": float(ece), "mean": float(mean), "classes": float(means.z.max())},
        {"ece": simulated[0], "mean": simulated[1], "classes": largest},
    )
