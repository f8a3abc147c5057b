"""Evaluation of multi-label predictions: every label is a probability of its own.

A label is called off if its mean or its slope is further from that of a calibrated model than the
worst of all labels is in 95% of simulations of calibrated models (Westfall and Young, 1993). So in
95% of calibrated models no label is called off, however many there are. The simulated labels are
independent, given the probabilities.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import sigmoid, softplus
from calibrant._tables import html_table, json_value, score_text, text_table
from calibrant._types import Array, RandomState
from calibrant.errors import CalibrantError
from calibrant.metrics.calibration_test import (
    DECIMALS,
    MOST_LABELS,
    CalibrationTest,
    column_test,
    simulations_for,
)
from calibrant.metrics.positive import LARGEST_LOG_ODDS, SHIFT, clipped_log_odds, recalibration
from calibrant.metrics.resampling import plan
from calibrant.metrics.samples import Floats, ScoredSamples
from calibrant.metrics.verdict import evidence_of

MOST_SHOWN, MOST_NAMED = 12, 3
"""Labels in the table, and in the verdict."""
HEAD = ("label", "positive", "mean prob", "rate", "ECE", "floor", "slope", "p-value", "")


@dataclass(frozen=True)
class LabelCalibration:
    """The calibration of one label."""

    name: str
    n_positive: int
    mean_prob: float
    rate: float
    """Share of the samples that have the label."""
    ece: float
    """Calibration error of its probability, over equal-width bins."""
    noise_floor: float
    """The same error of a calibrated model."""
    slope: float
    """Of the logistic recalibration: 1 if calibrated, below 1 if over-confident."""
    intercept: float
    """Of the recalibration with slope 1: below 0 if the probability is too high on the whole."""
    p_value: float
    """Probability that any label of a calibrated model is as far off."""
    side: str
    """``calibrated``, ``over-confident``, ``under-confident`` or ``prevalence off``."""

    @property
    def off(self) -> bool:
        """Whether it is significantly off."""
        return self.side != "calibrated"

    def cells(self) -> tuple[str, ...]:
        """One row of a table, with the columns ``HEAD``."""
        shares = (self.mean_prob, self.rate, self.ece, self.noise_floor)
        return (
            self.name,
            f"{self.n_positive}",
            *(f"{share:.2%}" for share in shares),
            f"{self.slope:.2f}",
            f"{self.p_value:.2g}",
            self.side if self.off else "",
        )


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """The result of :func:`evaluate_multilabel`: print it, or take ``to_dict``."""

    n: int
    level: float
    n_simulations: int
    seed: int
    labels: tuple[LabelCalibration, ...]
    """In the order of the columns."""
    nll: float
    """Mean over samples and labels."""
    brier: float
    """Mean over samples and labels of (p - y)^2."""
    n_impossible: int
    """Pairs of a sample and a label that the probability, 0 or 1, excludes."""

    @property
    def macro_ece(self) -> float:
        """Mean ECE of the labels."""
        return float(np.mean([each.ece for each in self.labels]))

    @property
    def macro_noise_floor(self) -> float:
        """Mean ECE of the labels of a calibrated model."""
        return float(np.mean([each.noise_floor for each in self.labels]))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Columns of the labels that are off, then of the others; the largest error first."""
        place = range(len(self.labels))
        return tuple(sorted(place, key=lambda i: (not self.labels[i].off, -self.labels[i].ece)))

    @property
    def worst_first(self) -> tuple[LabelCalibration, ...]:
        """The labels in that order."""
        return tuple(self.labels[i] for i in self.order)

    @property
    def off(self) -> tuple[LabelCalibration, ...]:
        """The labels that are significantly off, worst first."""
        return tuple(each for each in self.worst_first if each.off)

    def verdict(self) -> str:
        """One or two sentences: how many labels are off, and which."""
        errors = (
            f"mean ECE {self.macro_ece:.2%}, where a calibrated model would show "
            f"{self.macro_noise_floor:.2%}"
        )
        count = len(self.labels)
        labels = f"{count} label{'s' if count > 1 else ''}"
        if not self.off:
            return f"No miscalibration that {self.n} samples can show in {labels}: {errors}."
        named = [
            f"{each.name} ({each.side}: mean probability {each.mean_prob:.1%}, "
            f"rate {each.rate:.1%})"
            for each in self.off[:MOST_NAMED]
        ]
        more = len(self.off) - len(named)
        return (
            f"{len(self.off)} of {labels} {'are' if len(self.off) > 1 else 'is'} off: "
            f"{', '.join(named)}{f' and {more} more' if more else ''}. M{errors[1:]}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with None for infinities and NaN; the worst labels first."""
        return {
            "n": self.n,
            "n_labels": len(self.labels),
            "level": self.level,
            "n_simulations": self.n_simulations,
            "seed": self.seed,
            "nll": json_value(self.nll),
            "brier": self.brier,
            "n_impossible": self.n_impossible,
            "macro_ece": self.macro_ece,
            "macro_noise_floor": self.macro_noise_floor,
            "n_off": len(self.off),
            "labels": [asdict(each) for each in self.worst_first],
            "verdict": self.verdict(),
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def _scores(self) -> str:
        impossible = f", {self.n_impossible} pairs excluded" if self.n_impossible else ""
        return f"nll {score_text(self.nll)}, Brier score {score_text(self.brier)}{impossible}"

    def __str__(self) -> str:
        table = [HEAD, *(each.cells() for each in self.worst_first[:MOST_SHOWN])]
        more = len(self.labels) - MOST_SHOWN
        lines = [
            f"{self.n} samples, {len(self.labels)} labels; {self._scores()}",
            "",
            *text_table(table, "<" + ">" * (len(HEAD) - 2) + "<"),
            *([f"and {more} more"] if more > 0 else []),
        ]
        return "\n".join([*lines, "", self.verdict()])

    def _repr_html_(self) -> str:
        rows = [each.cells() for each in self.worst_first]
        below = [f"{self._scores()}.", self.verdict()]
        return html_table([HEAD], rows, below=below, most_rows=MOST_SHOWN)


def evaluate_multilabel(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    label_names: Sequence[str] | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    n_simulations: int = 500,
    random_state: RandomState = 0,
) -> MultiLabelEvaluation:
    """Evaluate the probabilities of a multi-label model, label by label.

    Each label gets its calibration error with the noise floor, slope and intercept, and a p-value
    that allows for the number of labels.

    Args:
        probs: Probability of each label, (samples, labels).
        labels: 0 or 1 for each sample and label. The columns of two frames are matched by name.
        logits: Scores before the sigmoid, instead of ``probs``.
        label_names: One name per label; by default those of the columns of a frame, or numbers.
        n_bins: Number of equal-width bins of the calibration errors.
        level: 1 minus the probability that any label of a calibrated model is called off.
        n_simulations: Number of simulated calibrated models; fewer for very many samples.
        random_state: Seed of the simulations: an int, a NumPy Generator or None.

    References:
        Westfall and Young, Resampling-based multiple testing (1993).

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import evaluate_multilabel
        >>> rng = np.random.default_rng(0)
        >>> probs = rng.beta(0.5, 4.0, size=(2000, 10))
        >>> labels = (rng.random(probs.shape) < probs).astype(int)
        >>> probs[:, 3] = probs[:, 3] ** 0.5  # too high
        >>> result = evaluate_multilabel(probs, labels)
        >>> [(each.name, each.side) for each in result.off]
        [('3', 'prevalence off')]
    """
    of = _inputs.label_scores(logits, probs)
    _inputs.same_rows(of, labels=labels)
    positives, columns_called = _inputs.label_matrix(labels, of)
    kind, scores = of.kind, of.values
    n_labels = scores.shape[-1]
    given = _inputs.as_numpy(scores).astype(np.float64).reshape(-1, n_labels)
    positives = positives.reshape(-1, n_labels)
    _inputs.something_to_measure(len(given))
    names = _names(columns_called if label_names is None else label_names, n_labels)
    todo = plan((), n_bins, level, n_simulations, random_state, len(given))
    p = given if kind == "probs" else sigmoid(given)
    if kind == "probs":
        odds = clipped_log_odds(given, 1.0 - given)
        with np.errstate(divide="ignore"):
            losses = -np.log(np.where(positives, p, 1.0 - p))
    else:
        odds = np.clip(given, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        losses = softplus(np.where(positives, -given, given))
    fewest = simulations_for(todo.level)
    n_drawn = max(min(todo.n_resamples, MOST_LABELS // len(given)), fewest)
    columns = label_columns(p, positives)
    tests = [
        column_test("ece", column, odds[:, i], todo.n_bins, n_drawn, todo.seed + i)
        for i, column in enumerate(columns)
    ]
    p_values = _adjusted([_statistics(test, p[:, i]) for i, test in enumerate(tests)])
    return MultiLabelEvaluation(
        n=len(given),
        level=todo.level,
        n_simulations=n_drawn,
        seed=todo.seed,
        labels=tuple(
            _label(names[i], tests[i], columns[i], odds[:, i], p_values[i], todo.level)
            for i in range(n_labels)
        ),
        nll=float(losses.mean()),
        brier=float(((p - positives) ** 2).mean()),
        n_impossible=int(np.isinf(losses).sum()),
    )


def label_columns(probs: Floats, positives: npt.NDArray[np.bool_]) -> list[ScoredSamples]:
    """The probability of each label as the confidence; its positives count as correct."""
    columns = zip(probs.T.copy(), positives.T.copy(), strict=True)
    return [ScoredSamples(p, y, None) for p, y in columns]


def _names(names: Sequence[Any] | None, n_labels: int) -> list[str]:
    if names is not None and len(names) != n_labels:
        raise CalibrantError(
            f"label_names must have one name for each of the {n_labels} labels; found "
            f"{len(names)}. Name all of them or none"
        )
    found = [str(name) for name in (range(n_labels) if names is None else names)]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise CalibrantError(
            f"label_names must be different; found {twice!r} twice. Give every label its own name"
        )
    return found


def _statistics(test: CalibrationTest, p: Floats) -> tuple[float, Floats]:
    """The larger of mean and slope in standard errors: observed, and in each simulation.

    As in ``class_z``, the variance of one sample is added, so that a single positive of a label
    that was all but excluded is no large deviation.
    """
    variance = float((p * (1.0 - p)).sum())
    scale = math.sqrt(variance / (variance + 1.0)) if variance > 0.0 else float(len(p))
    observed, simulated = (
        np.round(scale * np.maximum(each["mean"], each["slope"]), DECIMALS)
        for each in (test.observed, test.simulated)
    )
    return float(observed), np.asarray(simulated)


def _adjusted(statistics: Sequence[tuple[float, Floats]]) -> list[float]:
    """Share of simulations in which the largest statistic of all labels is at least as large."""
    largest = np.max([simulated for _, simulated in statistics], axis=0)
    return [
        float(((largest >= observed).sum() + 1) / (len(largest) + 1)) for observed, _ in statistics
    ]


def _label(
    name: str,
    test: CalibrationTest,
    column: ScoredSamples,
    odds: Floats,
    p_value: float,
    level: float,
) -> LabelCalibration:
    weight, positives = column.weights, column.correct.astype(np.float64)
    mean = column.mean(column.confidence)
    evidence = evidence_of(test, odds, weight, positives, mean=mean)
    side = "calibrated"
    if p_value < 1.0 - level:
        by_slope = "over-confident" if evidence.slope < 1.0 else "under-confident"
        side = by_slope if evidence.by_scale else "prevalence off"
    return LabelCalibration(
        name=name,
        n_positive=int(column.correct.sum()),
        mean_prob=mean,
        rate=evidence.rate,
        ece=float(test.observed["ece"]),
        noise_floor=test.floor("ece").expected,
        slope=evidence.slope,
        intercept=float(recalibration(odds, weight, positives, free=SHIFT).change[0]),
        p_value=p_value,
        side=side,
    )
