"""The default metrics of predictions that are larger than memory or distributed over processes.

It keeps sums over bins, over rows and over squares of rows. Sums can be merged, so batches and
processes are counted separately. Instead of samples, the sums themselves are resampled, from the
normal distribution of sums of many samples.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from calibrant import _inputs
from calibrant._inputs.groups import Key, order_of_key
from calibrant._types import Array, RandomState
from calibrant.metrics import intervals
from calibrant.metrics.binning import BinTable, EqualMassSketch, EqualWidthBins
from calibrant.metrics.calibration import MOST_BINS, ClassSums, class_sums, error_of_table
from calibrant.metrics.calibration_test import (
    CalibrationTest,
    NoiseFloor,
    class_means,
    class_test_of_sums,
    column_test_of_cells,
    simulations_for,
)
from calibrant.metrics.evaluation import Evaluation, Measured, default_metrics
from calibrant.metrics.groups import (
    By,
    GroupedEvaluation,
    adjusted,
    check_number,
    combinations_of,
)
from calibrant.metrics.positive import COEFFICIENTS, clipped_log_odds, coefficient, positive
from calibrant.metrics.resampling import RESAMPLES, ROWS
from calibrant.metrics.samples import Floats, ScoredSamples, samples_from_scores
from calibrant.metrics.verdict import (
    Verdict,
    evidence_of,
    judge_classes,
    judge_confidence,
    judge_positive,
)

RANGES = {
    "nll": (0.0, math.inf),
    "brier": (0.0, 2.0),
    "error_rate": (0.0, 1.0),
    "confidence_gap": (-1.0, 1.0),
    "prevalence_gap": (-1.0, 1.0),
    "s99": (0.0, 1.0),
}
"""Metrics that are means over rows, with their smallest and largest possible values."""
MEANS = tuple(RANGES)
DIGITS_OF_GROUPS = 5
"""Of the sketch of a group, which then takes 0.1 MB: there may be hundreds."""


class StreamedEvaluation:
    """:func:`calibrant.evaluate` over batches: ``update``, ``merge``, then ``result``.

    Equal-width errors and means are exact. The equal-mass error comes from a sketch of bounded
    memory, and the result states a bound on its error.

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import StreamedEvaluation
        >>> rng = np.random.default_rng(0)
        >>> stream = StreamedEvaluation()
        >>> for _ in range(3):
        ...     probs = rng.dirichlet(np.ones(4), size=1000)
        ...     stream.update(probs, rng.integers(0, 4, 1000))
        >>> stream.result().n
        3000
    """

    def __init__(self, *, n_bins: int = 15, digits: int = EqualMassSketch.DIGITS) -> None:
        self.n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        self.width = EqualWidthBins(self.n_bins)
        self.mass = EqualMassSketch(digits)
        self.n = 0
        self.n_impossible = 0
        self.means: Floats = np.zeros((len(MEANS), 2))  # sums, and sums of squares
        self.positive_width = EqualWidthBins(self.n_bins)
        self.positive_mass = EqualMassSketch(digits)
        """Bins of P(class 1) of two classes."""
        self.class_sums: ClassSums | None = None
        self.n_classes: int | None = None
        self.knows_labels = False
        """Whether the probability of the label is known although those of all classes are not."""
        self.group_columns: Key = ()
        self.by_group: dict[Key, StreamedEvaluation] = {}
        """The sums of each combination of the values of these columns."""

    def update(
        self,
        probs: Array = None,
        labels: Array = None,
        *,
        logits: Array = None,
        ignore_label: int | None = None,
        positive: Any = None,
        classes: Any = None,
        groups: Any = None,
    ) -> None:
        """Count one more batch; a batch without labels to count is allowed."""
        if not _inputs.all_ignored(labels, ignore_label):
            samples = samples_from_scores(
                probs,
                labels,
                logits=logits,
                ignore_label=ignore_label,
                positive=positive,
                classes=classes,
                groups=groups,
            )
            self.count(samples)

    def count(self, samples: ScoredSamples) -> None:
        """Count samples that are already checked."""
        known = samples.n_classes if samples.scores is not None else None
        if self.n > 0:
            _inputs.same_count("classes", self.n_classes, known)
        self.n_classes = known
        self.knows_labels = samples.label_log_prob is not None
        self.n += len(samples)
        self.width.update(samples.confidence, samples.correct)
        self.mass.update(samples.confidence, samples.correct)
        for total, name in zip(self.means, MEANS, strict=True):
            if name not in self._names:
                continue
            rows = np.asarray(ROWS[name](samples), dtype=np.float64)
            if name == "nll":
                self.n_impossible += int(np.isinf(rows).sum())
            total += rows.sum(), (rows**2).sum()
        if known == 2:
            column = positive(samples)
            for bins in (self.positive_width, self.positive_mass):
                bins.update(column.confidence, column.correct)
        if known is not None:
            sums = class_sums(samples, self.n_bins)
            self.class_sums = sums if self.class_sums is None else self.class_sums + sums
        if samples.groups is not None:
            self.group_columns = samples.groups.names
            for key, which in samples.groups.cells():
                self._group(key).count(replace(samples.rows(which), groups=None))

    def _group(self, key: Key) -> StreamedEvaluation:
        if key not in self.by_group:
            check_number(len(self.by_group) + 1)
            self.by_group[key] = StreamedEvaluation(n_bins=self.n_bins, digits=DIGITS_OF_GROUPS)
        return self.by_group[key]

    @property
    def _names(self) -> tuple[str, ...]:
        """The metrics that the samples allow."""
        extra = ("nll",) if self.n_classes is None and self.knows_labels else ()
        return (*default_metrics(self.n_classes), *extra)

    def merge(self, other: Self) -> None:
        """Add the counts of another object."""
        if other.n == 0:
            return
        if self.n > 0:
            _inputs.same_count("classes", self.n_classes, other.n_classes)
        self.width.merge(
            other.width
        )  # raises, before anything changes, if the numbers of bins differ
        self.n_classes = other.n_classes
        self.knows_labels = other.knows_labels
        self.n += other.n
        self.n_impossible += other.n_impossible
        self.mass.merge(other.mass)
        self.positive_width.merge(other.positive_width)
        self.positive_mass.merge(other.positive_mass)
        self.means += other.means
        if other.class_sums is not None:
            mine = self.class_sums
            self.class_sums = other.class_sums if mine is None else mine + other.class_sums
        self.group_columns = other.group_columns
        for key, group in other.by_group.items():
            self._group(key).merge(group)

    def result(
        self,
        *,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: RandomState = 0,
        n_tests: int = 1,
    ) -> Evaluation:
        """The metrics of everything counted so far; the verdict is one of ``n_tests``."""
        _inputs.something_to_measure(self.n)
        level = _inputs.level(level)
        n_resamples = _inputs.whole_number(n_resamples, "n_resamples", allowed=RESAMPLES)
        seed = _inputs.seed_of(random_state)
        rng = np.random.default_rng(seed)
        tables = {"ece": self.width.table(), "ada_ece": self.mass.table(self.n_bins)}
        if self.n_classes == 2:
            tables["positive_ece"] = self.positive_width.table()
            tables["positive_ada_ece"] = self.positive_mass.table(self.n_bins)
        measured: dict[str, Measured] = {}
        for name, table in tables.items():
            observed, resampled = _resampled(table, n_resamples, rng)
            total_error, worst = intervals.total_error, intervals.largest_error(table.share)
            ends = intervals.error_interval(observed, resampled, total_error, level)
            measured[name] = Measured(name, float(total_error(observed)), *ends)
            if name == "ece":
                ends = intervals.largest_error_interval(observed, resampled, worst, level)
                measured["mce"] = Measured("mce", float(worst(observed)), *ends)
        if self.class_sums is not None and self.n_classes is not None:
            value = float(np.abs(self.class_sums.gaps).sum()) / (self.n * self.n_classes)
            measured["classwise_ece"] = Measured("classwise_ece", value, None, None)
        z = NormalDist().inv_cdf(0.5 + level / 2.0)
        for name, (total, squares) in zip(MEANS, self.means.tolist(), strict=True):
            mean = total / self.n
            reach = z * math.sqrt(max(0.0, squares / self.n - mean**2) / self.n)
            if math.isfinite(mean):
                lowest, highest = RANGES[name]
                low, high = max(mean - reach, lowest), min(mean + reach, highest)
                measured[name] = Measured(name, mean, low, high)
            else:
                measured[name] = Measured(name, mean, None, None)
        cells = self._cells
        if cells is not None:
            odds, square_share = _log_odds(cells), cells.weight / float(self.n) ** 2
            for name in COEFFICIENTS:
                found = coefficient(
                    name, odds, cells.weight, cells.correct_sum, square_share, level
                )
                measured[name] = Measured(name, *found)
        judged, test = self._judged(max(n_resamples, simulations_for(level, n_tests)), rng, level)
        bound = self.mass.error_bound(self.n_bins)
        return Evaluation(
            n=self.n,
            n_classes=self.n_classes,
            level=level,
            n_resamples=n_resamples,
            seed=seed,
            measured=tuple(measured[name] for name in self._names),
            noise_floors=tuple(
                test.floor(name) if name in test.observed else _floor(name, table, n_resamples, rng)
                for name, table in tables.items()
            ),
            judged=judged,
            n_impossible=self.n_impossible,
            notes=(f"ada_ece is computed on a fine grid: its error is at most {bound:.2g}.",),
            by_group=self._grouped(level, n_resamples, seed) if self.by_group else None,
        )

    def _grouped(self, level: float, n_resamples: int, seed: int) -> GroupedEvaluation:
        """The groups of each column, and their crossing."""
        found: dict[By, StreamedEvaluation] = {}
        for places in combinations_of(self.group_columns):
            whole = StreamedEvaluation(n_bins=self.n_bins)
            for key, group in self.by_group.items():
                whole._group(tuple(key[i] for i in places)).merge(group)
            names = [self.group_columns[i] for i in places]
            for key in sorted(whole.by_group, key=order_of_key):
                found[tuple(zip(names, key, strict=True))] = whole.by_group[key]
        check_number(len(found))
        return adjusted(
            self.group_columns,
            {
                by: group.result(
                    level=level, n_resamples=n_resamples, random_state=seed, n_tests=len(found)
                )
                for by, group in found.items()
            },
        )

    @property
    def _cells(self) -> BinTable | None:
        """Narrow ranges of the one probability that each sample has; None for more classes."""
        if self.n_classes is None:
            return self.mass.cells()
        return self.positive_mass.cells() if self.n_classes == 2 else None

    def _judged(
        self, n_simulations: int, rng: Any, level: float
    ) -> tuple[Verdict, CalibrationTest]:
        cells = self._cells
        if cells is not None:
            name = "ece" if self.n_classes is None else "positive_ece"
            odds = _log_odds(cells)
            test = column_test_of_cells(name, cells, odds, self.n_bins, n_simulations, rng)
            mean = float(cells.confidence_sum.sum()) / self.n
            evidence = evidence_of(test, odds, cells.weight, cells.correct_sum, mean=mean)
            judge_column = judge_confidence if self.n_classes is None else judge_positive
            return judge_column(evidence, self.n, level), test
        assert self.class_sums is not None
        table, means = self.width.table(), class_means(self.class_sums, self.n)
        test = class_test_of_sums(table, means, n_simulations, rng)
        gap = float((table.confidence_sum - table.correct_sum).sum())
        return judge_classes(test, means, gap, self.n, level), test


def _log_odds(cells: BinTable) -> Floats:
    return clipped_log_odds(cells.confidence, 1.0 - cells.confidence)


def _resampled(table: BinTable, n_resamples: int, rng: Any) -> tuple[Floats, Floats]:
    """Bin sums, and resamples of them."""
    sums = table.gap * table.share
    variance = np.maximum(table.square_sum / table.total - sums**2, 0.0) / table.total
    return sums, sums + rng.standard_normal((n_resamples, len(sums))) * np.sqrt(variance)


def _floor(name: str, table: BinTable, n_resamples: int, rng: Any) -> NoiseFloor:
    spread = np.sqrt(table.claimed_variance_sum) / table.total
    errors = intervals.total_error(rng.standard_normal((n_resamples, len(spread))) * spread)
    return NoiseFloor.of(name, error_of_table(table, "l1"), errors)
