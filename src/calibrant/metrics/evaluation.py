"""Evaluation of a set of predictions: metrics with error bars, and a verdict in words."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibrant._numerics.first_use import repeated
from calibrant._tables import html_table, json_value, text_table
from calibrant._types import Array, RandomState
from calibrant.metrics import intervals
from calibrant.metrics.calibration_test import CalibrationTest, NoiseFloor
from calibrant.metrics.groups import GroupedEvaluation, evaluate_groups
from calibrant.metrics.missing_options import Ends, judge_ends
from calibrant.metrics.positive import COEFFICIENTS, coefficient_of
from calibrant.metrics.registry import METRICS
from calibrant.metrics.resampling import BINNED, ResampledMetrics, binned_column, plan
from calibrant.metrics.samples import ScoredSamples, samples_from_scores
from calibrant.metrics.verdict import ClassOff, Verdict, judge

DEFAULT_METRICS = (
    "ece",
    "ada_ece",
    "mce",
    "classwise_ece",
    "nll",
    "brier",
    "error_rate",
    "confidence_gap",
    "s99",
)
POSITIVE_METRICS = (
    "positive_ece",
    "positive_ada_ece",
    "calibration_slope",
    "calibration_intercept",
    "prevalence_gap",
)
"""For two classes, these come first."""
CONFIDENCE_METRICS = (
    "ece",
    "ada_ece",
    "mce",
    "calibration_slope",
    "calibration_intercept",
    "error_rate",
    "confidence_gap",
    "s99",
)
"""Default metrics if only confidence and correctness are known."""
WITHOUT_NOISE = "An interval below its value is of the error without noise (see the noise floor)."
TESTED = ("ece", "ada_ece", "classwise_ece", "positive_ece", "positive_ada_ece")
"""Metrics with a noise floor."""


def default_metrics(n_classes: int | None) -> tuple[str, ...]:
    """The default metrics; ``n_classes`` is None if only the confidence is known."""
    if n_classes is None:
        return CONFIDENCE_METRICS
    return (*POSITIVE_METRICS, *DEFAULT_METRICS) if n_classes == 2 else DEFAULT_METRICS


@dataclass(frozen=True)
class Measured:
    """One metric with its interval; ``low`` and ``high`` are None where there is none."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate`: print it, index it by name, or take ``to_dict``."""

    n: int
    n_classes: int | None
    level: float
    n_resamples: int
    seed: int
    measured: tuple[Measured, ...]
    noise_floors: tuple[NoiseFloor, ...]
    judged: Verdict
    n_impossible: int
    """Rows whose true class has probability 0, which makes the NLL infinite."""
    notes: tuple[str, ...] = ()
    """Remarks on how the numbers were computed."""
    ends: Ends | None = None
    """The verdicts at both ends of what the options can be that a log leaves out."""
    by_group: GroupedEvaluation | None = None
    """The same for every group of the samples, if groups were given."""

    def __getitem__(self, name: str) -> Measured:
        for row in self.measured:
            if row.name == name:
                return row
        raise KeyError(
            f"{name} was not measured; there are {', '.join(r.name for r in self.measured)}"
        )

    @property
    def side(self) -> str:
        """What is off, in a word: ``calibrated`` if there is no evidence that anything is.

        ``over-confident``, ``under-confident``, ``prevalence off`` (two classes), ``classes off``
        (right on the whole, but not about single classes) or ``miscalibrated``; ``undecided`` if it
        depends on options that a log leaves out. All tests together have the level of the
        intervals: a calibrated model is called something else in 5%.
        """
        return self.judged.side

    @property
    def classes_off(self) -> tuple[ClassOff, ...]:
        """For more than two classes, those that are significantly off, worst first."""
        return self.judged.classes_off

    def verdict(self) -> str:
        """One sentence: whether it is calibrated, and if not, what is off and by how much."""
        return self.judged.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with None for infinities and NaN."""
        return {
            "n": self.n,
            "n_classes": self.n_classes,
            "level": self.level,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "n_impossible": self.n_impossible,
            "notes": list(self.notes),
            "metrics": {
                row.name: {k: json_value(getattr(row, k)) for k in ("value", "low", "high")}
                for row in self.measured
            },
            "noise_floor": {
                floor.name: {
                    "expected": floor.expected,
                    "usual_up_to": floor.usual_up_to,
                    "p_value": floor.p_value,
                }
                for floor in self.noise_floors
            },
            "side": self.side,
            "p_value": self.judged.p_value,
            "classes_off": [each._asdict() for each in self.classes_off],
            "missing_options": None if self.ends is None else self.ends.to_dict(),
            "verdict": self.verdict(),
        } | ({} if self.by_group is None else {"by_group": self.by_group.to_dict()})

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def _head(self) -> tuple[str, str, str, str]:
        return "", "value", f"{100 * self.level:g}% interval", "noise floor"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        floors = {floor.name: floor for floor in self.noise_floors}
        rows = []
        for row in self.measured:
            low_high = "" if row.low is None else f"{row.low:.4f} to {row.high:.4f}"
            floor = floors.get(row.name)
            rows.append(
                (row.name, f"{row.value:.4f}", low_high, f"{floor.expected:.4f}" if floor else "")
            )
        return rows

    def __str__(self) -> str:
        classes = "" if self.n_classes is None else f", {self.n_classes} classes"
        lines = [f"{self.n} samples{classes}", ""]
        table = [self._head(), *self._rows()]
        lines += text_table(table, "<><>", gap="   ", widths=(16, 6, 17, 11))
        if any(row.high is not None and row.high < row.value for row in self.measured):
            lines.append(WITHOUT_NOISE)
        if self.n_impossible:
            lines += ["", f"{self.n_impossible} rows give their true class probability 0."]
        if self.ends is not None:
            lines += ["", str(self.ends)]
        groups = [] if self.by_group is None else ["", str(self.by_group)]
        return "\n".join([*lines, *self.notes, "", self.verdict(), *groups])

    def _repr_html_(self) -> str:
        whole = html_table([self._head()], self._rows(), below=[self.verdict()])
        return whole if self.by_group is None else whole + self.by_group._repr_html_()


def evaluate(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    upper_logits: Array = None,
    metrics: Sequence[str] | None = None,
    n_bins: int = 15,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    groups: Any = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
) -> Evaluation:
    r"""Evaluate predictions, with error bars and the error that noise alone would show.

    Intervals come from a bootstrap over samples (see ``metrics/intervals.py`` for the calibration
    errors, whose bins stay fixed). The noise floor of ECE and equal-mass ECE is what a perfectly
    calibrated model with the same confidences would show at this sample size; an ECE of 1.2% means
    nothing if the floor is 1.1%.

    Args:
        probs: Probabilities, classes on the last axis; one column is the positive class.
        labels: One per row: class indices, or names.
        logits: Scores before the softmax, instead of ``probs``.
        upper_logits: Largest possible logits, if a language model's log leaves out options: the
            verdict is also given at both ends of what these can be.
        metrics: Names of ``METRICS``; by default ``DEFAULT_METRICS``, and for two classes measures
            of P(class 1) before them.
        n_bins: Number of bins of the calibration errors.
        sample_weight: Weight of each row.
        ignore_label: Rows with this label are left out.
        positive: The positive class, if the scores are one column and the labels not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        groups: Columns that divide the samples: a frame, a dict of columns or one column. Each of
            their values, and each combination of several, is evaluated too: ``by_group`` of the
            result. A missing value is a group of its own.
        level: Confidence level of the intervals.
        n_resamples: Number of bootstrap resamples; fewer are used for very large samples.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.

    Examples:
        >>> import numpy as np
        >>> import calibrant
        >>> rng = np.random.default_rng(0)
        >>> p = rng.uniform(0.5, 1.0, 2000)
        >>> labels = (rng.random(2000) > p - 0.1).astype(int)
        >>> result = calibrant.evaluate(np.stack([p, 1 - p], axis=-1), labels, metrics=["ece"])
        >>> result["ece"].low < 0.1 < result["ece"].high
        True
        >>> where = np.where(np.arange(2000) < 500, "north", "south")
        >>> by = calibrant.evaluate(1 - p, labels, groups={"place": where}).by_group
        >>> [(group.name, group.evaluation.n, group.side) for group in by.groups]
        [('place=north', 500, 'over-confident'), ('place=south', 1500, 'over-confident')]
    """
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
        groups=groups,
        upper_logits=upper_logits,
    )
    return evaluate_samples(
        samples,
        metrics=metrics,
        n_bins=n_bins,
        level=level,
        n_resamples=n_resamples,
        random_state=random_state,
    )


def evaluate_samples(
    samples: ScoredSamples,
    *,
    metrics: Sequence[str] | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    n_tests: int = 1,
) -> Evaluation:
    """:func:`evaluate` for samples that are already checked; the verdict is one of ``n_tests``."""
    n_classes = None if samples.scores is None else samples.n_classes
    names = default_metrics(n_classes) if metrics is None else metrics
    todo = plan(names, n_bins, level, n_resamples, random_state, len(samples))
    found = evaluate_resampled(ResampledMetrics(samples, todo), n_tests)

    def evaluate_group(group: ScoredSamples, n_groups: int) -> Evaluation:
        return evaluate_samples(
            replace(group, groups=None),
            metrics=todo.names,
            n_bins=todo.n_bins,
            level=todo.level,
            n_resamples=n_resamples,
            random_state=todo.seed,
            n_tests=n_groups,
        )

    if samples.groups is None:
        return found
    with repeated():
        return replace(found, by_group=evaluate_groups(samples, evaluate_group))


def evaluate_resampled(resampled: ResampledMetrics, n_tests: int = 1) -> Evaluation:
    """:func:`evaluate_samples` of metrics that are already resampled, without the groups."""
    samples, todo = resampled.samples, resampled.todo
    known = samples.scores is not None
    n_classes = samples.n_classes if known else None
    judged, test = judge(samples, todo.n_bins, todo.n_resamples, todo.seed, todo.level, n_tests)
    ends = judge_ends(samples, judged, todo.n_bins, todo.n_resamples, todo.seed, todo.level)
    return Evaluation(
        n=len(samples),
        n_classes=n_classes,
        level=todo.level,
        n_resamples=todo.n_resamples,
        seed=todo.seed,
        measured=tuple(_measure(name, resampled, test) for name in todo.names),
        noise_floors=tuple(
            _floor(name, resampled, test)
            for name in todo.names
            if name in TESTED and not (name == "classwise_ece" and n_classes == 2)
        ),
        judged=judged if ends is None else ends.verdict,
        ends=ends,
        n_impossible=int(METRICS["n_impossible"].of(samples)) if known else 0,
    )


def _measure(name: str, resampled: ResampledMetrics, test: CalibrationTest) -> Measured:
    samples, level = resampled.samples, resampled.todo.level
    if name == "classwise_ece" and name in test.observed:
        value = float(test.observed[name])  # another pass over all probabilities would be slow
    else:
        value = resampled.value(name)
    if len(samples) < 2 or not math.isfinite(value) or not resampled.has_interval(name):
        return Measured(name, value, None, None)
    if name in COEFFICIENTS:
        _, low, high = coefficient_of(name, samples, level)
    elif name == "mce":
        low, high = intervals.largest_error_interval(*resampled.sums[name], level)
    elif name in BINNED:
        low, high = intervals.error_interval(*resampled.sums[name], level)
    else:
        low, high = intervals.mean_interval(resampled.resampled(name), level)
    usable = math.isfinite(low) and math.isfinite(high)
    return Measured(name, value, low if usable else None, high if usable else None)


def _floor(name: str, resampled: ResampledMetrics, test: CalibrationTest) -> NoiseFloor:
    if name in test.observed:
        return test.floor(name)
    todo = resampled.todo
    column, bins = binned_column(name, resampled.samples, todo.n_bins)
    errors = intervals.calibrated_errors(column, bins, todo.n_resamples, todo.seed)
    return NoiseFloor.of(name, resampled.value(name), errors)
