"""The candidates with a first part before temperature or top-rest scaling.

Logits with huge gaps may be floored. A map that may change the predicted class may come first:
structured scaling, or for many classes a bias for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.auto.keeping import (
    BestOfSteps,
    best_of_steps,
    changed_data,
    pieces_of,
)
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.folds import Folds, mean_and_error, standard_errors
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
from calibrant.calibrators.linear.structured import (
    MOST_CLASSES,
    NEAR,
    Regression,
    StructuredScaling,
)
from calibrant.calibrators.temperature import floored as floor
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.calibrators.temperature.solver import NLL, SMALLEST
from calibrant.calibrators.top_rest.solver import Problem
from calibrant.metrics.calibration import class_sums
from calibrant.metrics.samples import ScoredSamples

Tried: TypeAlias = tuple[Calibrator, npt.NDArray[Any]]
"""A fitted first part, and its outputs for each sample by a fit without the fold of the sample."""

HUGE_GAP = 8.0
"""A floor is tried if the largest gap of a mistake is this many times the median gap."""
STRENGTHS = (1.0, 0.1)
"""Strengths of the penalties that are tried, in units of K / n, the simpler first."""
SUSPECT = 3.0
"""Biases of many classes are tried if a chi-squared statistic of the class frequencies is this many
standard deviations above what a calibrated model would show."""

MOST_ENTRIES = 1 << 21
"""Logits on which this is looked at; if there are more, every second row or so is used."""


def with_floor(best: BestOfSteps, folds: Folds) -> BestOfSteps | None:
    """The same on floored logits, if some mistakes have huge gaps and the floor helps."""
    samples = best.problem.data
    gap = floor.typical_gap(samples)
    if floor.label_gaps(samples).max() <= HUGE_GAP * gap:
        return None
    with np.errstate(over="ignore"):
        raised = replace(samples, logits=floor.floored(samples.logits, floor.floor_of(gap)))
    here = NLL(raised, best.problem.inverse_temperature)
    # Newton's method for T lowers this by half as much.
    if here.value - here.gradient**2 / max(here.curvature, SMALLEST) >= best.steps[0].nll:
        return None
    part = floor.FlooredTemperatureScaling()
    part = part.with_state(part._fit(samples).state, samples.n_classes)
    raised = changed_data(samples, part)
    losses = temperature_rows(raised, 1.0)[0][folds.row]
    gain, error = mean_and_error(best.temperature_losses() - losses, folds.count)
    if gain <= standard_errors(folds.count.sum()) * error:
        return None
    problem = Problem.of(raised)
    return best_of_steps(problem, pieces_of(problem, folds), folds, first=(part,))


def class_changing(best: BestOfSteps, folds: Folds) -> BestOfSteps | None:
    """The same after a map that may change the predicted class, if that helps."""
    samples = best.problem.data
    if samples.n_classes <= MOST_CLASSES:
        tried = _structured(best, folds)
    elif _frequencies_are_off(samples, best.problem.best.temperature):
        tried = _biases(best, folds)
    else:
        return None
    chosen, before = None, None
    for part, outputs in tried:
        before = best.temperature_losses() if before is None else before
        losses = _losses(outputs, samples, folds)
        gain, error = mean_and_error(before - losses, folds.count)
        if gain <= standard_errors(folds.count.sum()) * error:
            break
        chosen, before = (part, outputs), losses
    if chosen is None:
        return None
    # What comes after is fitted on held-out outputs, which are what it will be applied to. The
    # terms for the classes come before it.
    part, held_out = chosen
    problem = Problem.of(folds.data(samples, held_out))
    return best_of_steps(problem, problem, folds, first=(*best.first, part), classes=False)


def _structured(best: BestOfSteps, folds: Folds) -> Iterator[Tried]:
    """Structured scaling by strength."""
    samples, found = best.problem.data, None
    for strength in STRENGTHS:
        regression = Regression.of(samples, best.problem.best.temperature, strength)
        start = None if found is None else regression.at(found.weights)
        found = regression.minimise(start, close=NEAR)
        if regression.least_held_out_loss(found, folds) >= best.steps[0].nll:
            return
        found = regression.minimise(found)
        part = StructuredScaling(strength=strength)
        fitted = part.with_state(regression.state(found.weights), samples.n_classes)
        yield fitted, regression.cross_fitted(found, folds)


def _biases(best: BestOfSteps, folds: Folds) -> Iterator[Tried]:
    """A temperature and a bias for each class, by strength of the ridge."""
    samples = best.problem.data
    for strength in STRENGTHS:
        ridge = strength * samples.n_classes / float(folds.count.sum())
        part = BiasCorrectedTemperatureScaling(ridge=ridge)
        fitted = part.with_state(part._fit(samples).state, samples.n_classes)
        yield fitted, folds.held_out_log_probs(part, samples)


def _losses(log_probs: npt.NDArray[Any], samples: FitData, folds: Folds) -> Floats:
    labels = samples.labels[folds.row]
    return -log_probs[np.arange(len(labels)), labels].astype(np.float64)


def _frequencies_are_off(samples: FitData, temperature: float) -> bool:
    """Whether the classes are clearly more or less frequent than their mean probabilities say."""
    samples = samples.some_rows(MOST_ENTRIES // samples.n_classes)
    logits = samples.logits / np.asarray(temperature, dtype=samples.logits.dtype)
    scored = ScoredSamples(
        confidence=np.empty(0),
        correct=samples.correct,
        weight=samples.weight,
        scores=logits,
        labels=samples.labels,
        from_logits=True,
    )
    gap = class_sums(scored, 1).gaps[:, 0]
    observed = np.bincount(samples.labels, samples.weight, minlength=samples.n_classes)
    expected = np.maximum(gap + observed, 1e-12)
    n_classes = samples.n_classes
    # The variance of a count is below its mean, so this asks for more than it says.
    return float((gap**2 / expected).sum()) > n_classes + SUSPECT * math.sqrt(2.0 * n_classes)
