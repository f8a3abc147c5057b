"""The candidates with a first part before temperature or top-rest scaling.

Logits with huge gaps may be floored. A map that may change the predicted class may come first:
structured scaling, or for many classes a bias for each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.auto.keeping import (
    Candidate,
    best_of_steps,
    changed_data,
    pieces_of,
)
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.folds import Folds, mean_and_error
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
from calibrant.calibrators.linear.structured import MOST_CLASSES, Regression, StructuredScaling
from calibrant.calibrators.temperature.floored import FlooredTemperatureScaling, mistake_gaps
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.calibrators.top_rest.solver import Problem
from calibrant.metrics.calibration import class_gap_sums
from calibrant.metrics.samples import ScoredSamples

HUGE_GAP = 8.0
"""A floor is tried if the largest gap of a mistake is this many times the median gap."""
STRENGTHS = (1.0, 0.1)
"""Strengths of structured scaling that are tried, the simpler first."""
SUSPECT = 3.0
"""Biases of many classes are tried if a chi-squared statistic of the class frequencies is this many
standard deviations above what a calibrated model would show."""

MOST_ENTRIES = 1 << 21
"""Logits on which this is looked at; if there are more, every second row or so is used."""


def floored(best: Candidate, folds: Folds) -> Candidate | None:
    """The same on floored logits, if some mistakes have huge gaps and the floor helps."""
    samples = best.problem.data
    gaps = mistake_gaps(samples)
    if len(gaps) == 0 or gaps.max() <= HUGE_GAP * np.median(gaps):
        return None
    part = FlooredTemperatureScaling()
    part = part.with_state(part._fit(samples).state, samples.n_classes)
    raised = changed_data(samples, part)
    losses = temperature_rows(raised, 1.0)[0][folds.row]
    gain, error = mean_and_error(best.temperature_losses() - losses, folds.count)
    if gain <= error:
        return None
    problem = Problem.of(raised)
    return best_of_steps(problem, pieces_of(problem, folds), folds, first=(part,))


def class_changing(best: Candidate, folds: Folds) -> Candidate | None:
    """The same after a map that may change the predicted class, if that helps."""
    samples = best.problem.data
    if samples.n_classes <= MOST_CLASSES:
        found = _structured(best, folds)
    elif _frequencies_are_off(samples, best.problem.best.temperature):
        found = _biases(best, folds)
    else:
        found = None
    if found is None:
        return None
    part, held_out = found
    # What comes after is fitted on held-out outputs, which are what it will be applied to. Terms
    # for the classes come before.
    problem = Problem.of(folds.data(samples, held_out))
    return best_of_steps(problem, problem, folds, first=(*best.first, part), classes=False)


def _structured(best: Candidate, folds: Folds) -> tuple[Calibrator, Floats] | None:
    """Structured scaling of the strength that held-out samples support; its held-out outputs."""
    samples, temperature = best.problem.data, best.problem.best.temperature
    chosen, weights, before = None, None, best.temperature_losses()
    for strength in STRENGTHS:
        regression = Regression.of(samples, temperature, strength)
        found = regression.minimise(weights)
        held_out = regression.cross_fitted(found, folds)
        losses = _losses(held_out, samples, folds)
        gain, error = mean_and_error(before - losses, folds.count)
        if gain <= error:
            break
        state = regression.state(found.weights)
        part = StructuredScaling(strength=strength).with_state(state, samples.n_classes)
        chosen, weights, before = (part, held_out), found.weights, losses
    return chosen


def _biases(best: Candidate, folds: Folds) -> tuple[Calibrator, npt.NDArray[Any]] | None:
    """A temperature and a bias for each class; their held-out outputs."""
    samples = best.problem.data
    ridge = samples.n_classes / float(folds.count.sum())
    part = BiasCorrectedTemperatureScaling(ridge=ridge)
    held_out = folds.held_out_log_probs(part, samples)
    gain, error = mean_and_error(
        best.temperature_losses() - _losses(held_out, samples, folds), folds.count
    )
    if gain <= error:
        return None
    return part.with_state(part._fit(samples).state, samples.n_classes), held_out


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
    gap = class_gap_sums(scored, 1)[:, 0]
    observed = np.bincount(samples.labels, samples.weight, minlength=samples.n_classes)
    expected = np.maximum(gap + observed, 1e-12)
    n_classes = samples.n_classes
    # The variance of a count is below its mean, so this asks for more than it says.
    return float((gap**2 / expected).sum()) > n_classes + SUSPECT * math.sqrt(2.0 * n_classes)
