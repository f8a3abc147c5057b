"""Evaluation of a set of predictions: metrics with error bars, and a verdict in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._tables import html_table, json_value, text_table
from calibrant._types import Array, RandomState
from calibrant.metrics import intervals
from calibrant.metrics.registry import METRICS
from calibrant.metrics.resampling import (
    BINNED,
    Plan,
    ResampledSums,
    bins_of,
    has_interval,
    plan,
    resample,
    resampled_values,
    value_of,
)
from calibrant.metrics.samples import Floats, ScoredSamples, summarise

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
CONFIDENCE_METRICS = ("ece", "ada_ece", "mce", "error_rate", "confidence_gap", "s99")
"""Default metrics if only confidence and correctness are known."""


@dataclass(frozen=True)
class Measured:
    """One metric with its interval; ``low`` and ``high`` are None where there is none."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class NoiseFloor:
    """The error that a perfectly calibrated model with the same confidences would show."""

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
class Evaluation:
    """The result of :func:`evaluate`: print it, index it by name, or take ``to_dict``."""

    n: int
    n_classes: int | None
    level: float
    n_resamples: int
    seed: int
    measured: tuple[Measured, ...]
    noise_floors: tuple[NoiseFloor, ...]
    n_impossible: int
    """Rows whose true class has probability 0, which makes the NLL infinite."""
    notes: tuple[str, ...] = ()
    """Remarks on how the numbers were computed."""

    def __getitem__(self, name: str) -> Measured:
        for row in self.measured:
            if row.name == name:
                return row
        raise KeyError(
            f"{name} was not measured; there are {', '.join(r.name for r in self.measured)}"
        )

    @property
    def side(self) -> str:
        """``calibrated``, ``over-confident``, ``under-confident`` or ``miscalibrated``.

        Judged by the ECE against its noise floor and by the interval of the confidence gap;
        ``calibrated`` if there is no evidence against it.
        """
        floor = next((f for f in self.noise_floors if f.name == "ece"), None)
        if floor is None or floor.p_value >= 1.0 - self.level:
            return "calibrated"
        gap = next((r for r in self.measured if r.name == "confidence_gap"), None)
        if gap is not None and gap.low is not None and gap.high is not None:
            if gap.low > 0:
                return "over-confident"
            if gap.high < 0:
                return "under-confident"
        return "miscalibrated"  # over-confident in some bins, under-confident in others

    def verdict(self) -> str:
        """One sentence: whether it is calibrated, and if not, in which direction it is off."""
        floor = next((f for f in self.noise_floors if f.name == "ece"), None)
        if floor is None:
            return f"{self.n} samples."
        error = next(r.value for r in self.measured if r.name == "ece")
        if self.side == "calibrated":
            return (
                f"No miscalibration that {self.n} samples can show: ECE {error:.2%}, and a "
                f"calibrated model would show {floor.expected:.2%}."
            )
        return (
            f"{self.side.capitalize()}: ECE {error:.2%}, where a calibrated model would show "
            f"{floor.expected:.2%} (p = {floor.p_value:.2g})."
        )

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
            "verdict": self.verdict(),
        }

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
        if self.n_impossible:
            lines += ["", f"{self.n_impossible} rows give their true class probability 0."]
        return "\n".join([*lines, *self.notes, "", self.verdict()])

    def _repr_html_(self) -> str:
        return html_table([self._head()], self._rows(), below=[self.verdict()])


def evaluate(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    n_bins: int = 15,
    sample_weight: Array = None,
    ignore_label: int | None = None,
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
        probs: Probabilities, classes on the last axis.
        labels: Class indices, one per row.
        logits: Scores before the softmax, instead of ``probs``.
        metrics: Names of ``METRICS``.
        n_bins: Number of bins of the calibration errors.
        sample_weight: Weight of each row.
        ignore_label: Rows with this label are left out.
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
    """
    samples = summarise(
        probs, labels, logits=logits, sample_weight=sample_weight, ignore_label=ignore_label
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
    metrics: Sequence[str] = DEFAULT_METRICS,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
) -> Evaluation:
    """:func:`evaluate` for samples that are already checked."""
    todo = plan(metrics, n_bins, level, n_resamples, random_state, len(samples))
    drawn = resample(samples, todo)
    known = samples.scores is not None
    return Evaluation(
        n=len(samples),
        n_classes=samples.n_classes if known else None,
        level=todo.level,
        n_resamples=todo.n_resamples,
        seed=todo.seed,
        measured=tuple(_measure(name, samples, todo, drawn) for name in todo.names),
        noise_floors=tuple(
            _floor(name, samples, todo) for name in ("ece", "ada_ece") if name in todo.names
        ),
        n_impossible=int(METRICS["n_impossible"].of(samples)) if known else 0,
    )


def _measure(
    name: str, samples: ScoredSamples, todo: Plan, drawn: Mapping[str, ResampledSums]
) -> Measured:
    value = value_of(name, samples, todo.n_bins)
    if len(samples) < 2 or not math.isfinite(value) or not has_interval(name, drawn):
        return Measured(name, value, None, None)
    if name == "mce":
        low, high = intervals.largest_error_interval(*drawn[name], todo.level)
    elif name in BINNED:
        low, high = intervals.error_interval(*drawn[name], todo.level)
    else:
        resampled = resampled_values(name, samples, todo, drawn)
        low, high = intervals.mean_interval(resampled, todo.level)
    usable = math.isfinite(low) and math.isfinite(high)
    return Measured(name, value, low if usable else None, high if usable else None)


def _floor(name: str, samples: ScoredSamples, todo: Plan) -> NoiseFloor:
    bins = bins_of(name, samples, todo.n_bins)
    errors = intervals.calibrated_errors(samples, bins, todo.n_resamples, todo.seed)
    return NoiseFloor.of(name, value_of(name, samples, todo.n_bins), errors)
