"""The verdict on a set of predictions: one word, and a sentence with the sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrant._inputs import CORRECTNESS, Classes
from calibrant.metrics.calibration_test import (
    MOST_LABELS,
    CalibrationTest,
    ClassMeans,
    class_test,
    column_test,
    simulations_for,
)
from calibrant.metrics.positive import (
    BOTH,
    SCALE,
    SHIFT,
    is_one_column,
    log_odds,
    positive,
    recalibration,
)
from calibrant.metrics.samples import Floats, ScoredSamples

SIDES = (
    "calibrated",
    "over-confident",
    "under-confident",
    "prevalence off",
    "classes off",
    "miscalibrated",
    "undecided",
)
NAMES = {"ece": "ECE", "positive_ece": "ECE of P({})", "classwise_ece": "classwise ECE"}
MOST_NAMED = 3
"""Most classes that the sentence names."""


class ClassOff(NamedTuple):
    """A class whose mean probability is significantly above or below its rate."""

    class_index: int
    predicted: float
    """Mean predicted probability."""
    observed: float
    """Share of the samples with this label."""
    p_value: float
    """Adjusted for all classes and the other tests."""


@dataclass(frozen=True)
class Verdict:
    """Whether predictions are calibrated, and if not, what is off."""

    side: str
    """One of ``SIDES``."""
    p_value: float
    """Of all tests together: the probability that a calibrated model looks as bad."""
    sentence: str
    classes_off: tuple[ClassOff, ...] = ()
    """Worst first, for more than two classes."""


def judge(
    samples: ScoredSamples,
    n_bins: int,
    n_resamples: int,
    seed: int,
    level: float,
    n_tests: int = 1,
) -> tuple[Verdict, CalibrationTest]:
    """The verdict on samples in memory, and the test behind it, which is one of ``n_tests``."""
    n, fewest = len(samples), simulations_for(level, n_tests)
    if is_one_column(samples):
        evidence = column_evidence(samples, n_bins, max(n_resamples, fewest), seed)
        if samples.scores is None:
            return judge_confidence(evidence, n, level), evidence.test
        return judge_positive(evidence, n, level, samples.classes), evidence.test
    n_simulations = max(min(n_resamples, MOST_LABELS // n), fewest)
    test, means = class_test(samples, n_bins, n_simulations, seed)
    gap = samples.mean(samples.gap)
    return judge_classes(test, means, gap, n, level, samples.classes), test


@dataclass(frozen=True)
class ColumnEvidence:
    """What the verdict on one column of probabilities is based on."""

    error: str
    """Name of the error over bins."""
    test: CalibrationTest
    mean: float
    """Mean probability."""
    rate: float
    """Rate of positive samples."""
    slope: float
    """Of the logistic recalibration."""
    by_scale: bool
    """Whether a change of the slope alone explains more than a change of the intercept alone."""


def column_evidence(
    samples: ScoredSamples, n_bins: int, n_simulations: int, seed: int
) -> ColumnEvidence:
    """Evidence from samples with one probability each."""
    view, odds = positive(samples), log_odds(samples)
    name = "ece" if samples.scores is None else "positive_ece"
    test = column_test(name, view, odds, n_bins, n_simulations, seed)
    weight = view.weights
    return evidence_of(test, odds, weight, weight * view.correct, mean=view.mean(view.confidence))


def evidence_of(
    test: CalibrationTest, odds: Floats, weight: Floats, positives: Floats, *, mean: float
) -> ColumnEvidence:
    """Evidence from rows, or groups of rows with the same log-odds."""
    shift, scale, both = (
        recalibration(odds, weight, positives, free=free) for free in (SHIFT, SCALE, BOTH)
    )
    return ColumnEvidence(
        error=next(iter(test.observed)),
        test=test,
        mean=mean,
        rate=float(positives.sum() / weight.sum()),
        slope=1.0 + float(both.change[1]),
        by_scale=scale.value < shift.value,
    )


def judge_positive(
    evidence: ColumnEvidence, n: int, level: float, classes: Classes | None = None
) -> Verdict:
    """Two classes: over- or under-confident by the slope, prevalence off by the mean.

    Of answers that are wrong or correct, the mean decides as for confidences.
    """
    test, alpha, name = evidence.test, 1.0 - level, called(1, classes)
    if test.overall >= alpha:
        return _calibrated(test, evidence.error, n, name)
    predicted, observed = percentages(evidence.mean, evidence.rate)
    if classes == CORRECTNESS:
        side = _side_of_gap(test, evidence.mean - evidence.rate, alpha)
        mean = f"the mean confidence is {predicted}, where {observed} of the answers are correct"
        return _found(side, test, f"{mean}; {_error(test, evidence.error, name)}")
    slope_off = test.adjusted_p_value("slope") < alpha
    mean_off = test.adjusted_p_value("mean") < alpha
    as_usual = predicted == f"{evidence.mean:.1%}" and observed == f"{evidence.rate:.1%}"
    mean = (
        f"the mean P({name}) is {f'{evidence.mean:.3f}' if as_usual else predicted}, where "
        f"{observed} of the samples are of {'' if name.startswith('class ') else 'class '}{name}"
    )
    if mean_off and not (slope_off and evidence.by_scale):
        return _found("prevalence off", test, f"{mean} (p = {test.overall:.2g})")
    slope = f"slope {evidence.slope:.2f} (1 is calibrated), {_error(test, evidence.error, name)}"
    side = "miscalibrated"
    if slope_off:
        side = "over-confident" if evidence.slope < 1.0 else "under-confident"
    return _found(side, test, f"{slope}; {mean}" if mean_off else slope)


def judge_confidence(evidence: ColumnEvidence, n: int, level: float) -> Verdict:
    """Confidences of being correct: over- or under-confident by the mean."""
    test, alpha = evidence.test, 1.0 - level
    if test.overall >= alpha:
        return _calibrated(test, evidence.error, n)
    side = _side_of_gap(test, evidence.mean - evidence.rate, alpha)
    return _found(side, test, _error(test, evidence.error))


def judge_classes(
    test: CalibrationTest,
    means: ClassMeans,
    confidence_gap: float,
    n: int,
    level: float,
    classes: Classes | None = None,
) -> Verdict:
    """More than two classes: the confidence first, then every class."""
    alpha = 1.0 - level
    if test.overall >= alpha:
        return _calibrated(test, "ece", n)
    off = _classes_off(test, means, alpha)
    named = _named(off, classes)
    if test.adjusted_p_value("ece", "mean") < alpha:
        side = _side_of_gap(test, confidence_gap, alpha)
        words = _error(test, "ece")
        return _found(side, test, f"{words}. Wrong about {named}" if off else words, off)
    words = f"Right on the whole, but wrong about {named}"
    if not off:
        words = f"Right on the whole, but not about the classes: {_error(test, 'classwise_ece')}"
    return Verdict("classes off", test.overall, f"{words}.", off)


def _side_of_gap(test: CalibrationTest, gap: float, alpha: float) -> str:
    if test.p_value("mean") >= alpha:
        return "miscalibrated"  # over-confident in some bins, under-confident in others
    return "over-confident" if gap > 0 else "under-confident"


def _classes_off(test: CalibrationTest, means: ClassMeans, alpha: float) -> tuple[ClassOff, ...]:
    order = np.argsort(-means.z, kind="stable")
    found = []
    for k in order.tolist():
        p_value = test.adjusted(test.p_value("classes", float(means.z[k])))
        if p_value >= alpha:
            break
        found.append(ClassOff(k, float(means.predicted[k]), float(means.observed[k]), p_value))
    return tuple(found)


def called(k: int, classes: Classes | None) -> str:
    """What class ``k`` is called in a sentence.

    Examples:
        >>> called(1, None), called(1, ("cat", "dog")), called(1, (False, True))
        ('class 1', 'dog', 'class True')
    """
    name = k if classes is None else classes[k]
    return name if isinstance(name, str) else f"class {name}"


def percentages(predicted: float, observed: float) -> tuple[str, str]:
    """Two shares that differ, with two significant digits, also of what is missing to 100%.

    Examples:
        >>> percentages(0.492, 0.375), percentages(0.0021, 0.00015), percentages(0.9962, 1.0)
        (('49.2%', '37.5%'), ('0.21%', '0.015%'), ('99.62%', '100.0%'))
        >>> percentages(0.01234, 0.01231), percentages(1e-12, 0.0)
        (('1.234%', '1.231%'), ('1e-10%', '0.0%'))
    """
    for decimals in range(1, 16 if predicted != observed else 2):
        texts = _percentage(predicted, decimals), _percentage(observed, decimals)
        if float(texts[0][:-1]) != float(texts[1][:-1]):
            break
    return texts


def _percentage(share: float, decimals: int) -> str:
    small = 100.0 * min(share, 1.0 - share)
    if 0.0 < small < 1e-5 and share < 0.5:
        return f"{small:.2g}%"
    if small > 0.0:
        decimals = max(decimals, 1 - math.floor(math.log10(small)))
    return f"{share:.{decimals}%}"


def _named(off: tuple[ClassOff, ...], classes: Classes | None) -> str:
    named = []
    for each in off[:MOST_NAMED]:
        predicted, observed = f"{each.predicted:.1%}", f"{each.observed:.1%}"
        if predicted == observed:
            predicted, observed = percentages(each.predicted, each.observed)
        named.append(
            f"{called(each.class_index, classes)} (mean probability {predicted}, rate {observed}, "
            f"p = {each.p_value:.2g})"
        )
    more = len(off) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _error(test: CalibrationTest, name: str, positive: str = "") -> str:
    return (
        f"{NAMES[name].format(positive)} {test.observed[name]:.2%}, where a calibrated model "
        f"would show {test.floor(name).expected:.2%} (p = {test.overall:.2g})"
    )


def _calibrated(test: CalibrationTest, name: str, n: int, positive: str = "") -> Verdict:
    words = NAMES[name].format(positive)
    sentence = (
        f"No miscalibration that {n} samples can show: {words} {test.observed[name]:.2%}, and a "
        f"calibrated model would show {test.floor(name).expected:.2%}."
    )
    return Verdict("calibrated", test.overall, sentence)


def _found(side: str, test: CalibrationTest, words: str, off: tuple[ClassOff, ...] = ()) -> Verdict:
    return Verdict(side, test.overall, f"{side.capitalize()}: {words}.", off)
