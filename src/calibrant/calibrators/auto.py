"""The default calibrator: it selects a method by cross-validation.

Temperature scaling, top-rest scaling without class terms and top-rest scaling with them are nested:
each contains the one before. ``auto`` takes a step to the next where held-out samples support it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.base import Fitted
from calibrant.calibrators.data import Samples
from calibrant.calibrators.fit_report import Evidence
from calibrant.calibrators.top_rest.map import TopAndRest
from calibrant.calibrators.top_rest.solver import Losses, Problem, TopRest, fit, refit
from calibrant.metrics.binning import all_whole
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import ScoredSamples

FOLDS = 5
MANY = 10_000
"""From this many samples on there are two folds: they lead to the same choice in less time."""
N_BINS = 15
MOST_MOVED = 0.02
"""How much class terms may raise ``moved_confidence``. Chosen on validation rows of every second
network: 0.013 and 0.015 in the two where class terms help most, 0.022 and far above where they
harm."""
FEWEST = 20
"""Below this many samples nothing is compared, and temperature scaling is used."""

TEMPERATURE = "temperature"
STEPS = {"top-rest, classes=False": False, "top-rest": True}
"""The steps after temperature scaling, in order: name, and whether there are class terms."""


class AutoCalibration(TopAndRest):
    """Temperature or top-rest scaling, selected by cross-validation.

    Temperature scaling, top-rest scaling without class terms and top-rest scaling are compared on
    samples that they were not fitted on: five folds, two from 10,000 samples on. (T, T' without
    class terms, and the variance of the class terms are those of all samples.) Starting with the
    simplest method, a step to the next is taken if it

    - lowers the mean log-loss by more than its standard error over samples,
    - does not raise the equal-mass calibration error of temperature scaling by more than two
      standard errors, and
    - has no class terms that move the confidence by more than 2 points, on average, to keep the
      predicted class. They do so where the model is wrong about whole classes.

    Otherwise the simpler method is kept. Below 20 samples it is temperature scaling. The selected
    method is fitted on all samples. None of the three changes the predicted class.
    ``report_.evidence`` lists the results on held-out samples.

    Attributes:
        chosen_: Name of the selected method.

    Examples:
        >>> import numpy as np
        >>> from calibrant import AutoCalibration
        >>> rng = np.random.default_rng(0)
        >>> truth = 3 * rng.normal(size=(4000, 10))
        >>> labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        >>> AutoCalibration().fit(2 * truth, labels).chosen_
        'temperature'
        >>> shouted = np.where(truth == truth.max(axis=1, keepdims=True), truth + 2, truth)
        >>> auto = AutoCalibration().fit(shouted, labels)
        >>> auto.chosen_
        'top-rest, classes=False'
        >>> print(auto.report_.evidence[1])
        top-rest, classes=False: nll 0.9384, gains 0.0669 +- 0.0054; ada_ece 2.21%; chosen
    """

    NAME = "auto"
    CHOOSES = True

    @property
    def chosen_(self) -> str:
        """Name of the selected method."""
        return next(each.method for each in self.report_.evidence if each.chosen)

    def _fit(self, data: Samples) -> Fitted:
        problem = Problem.of(data.in_memory())
        pieces, fold_of = _split_into_folds(problem)
        chosen = TopRest.unchanged(data.n_classes)
        seen = pieces.losses(chosen)
        evidence = [_evidence(pieces, TEMPERATURE, seen)]
        best, evaluations = 0, 1
        for name, classes in STEPS.items() if _n_samples(problem) >= FEWEST else ():
            whole = fit(problem, classes=classes)
            held_out, spent = _cross_fitted(pieces, fold_of, whole, classes=classes)
            evaluations += whole.evaluations + spent
            step = _evidence(pieces, name, held_out, seen)
            if _is_better(step, evidence):
                best, chosen, seen = len(evidence), whole, held_out
            evidence.append(step)
        evidence[best] = replace(evidence[best], chosen=True)
        fitted = problem.fitted(replace(chosen, evaluations=evaluations))
        warnings = (*fitted.warnings, *_warnings(evidence))
        return replace(fitted, warnings=warnings, evidence=tuple(evidence))


def _split_into_folds(problem: Problem) -> tuple[Problem, npt.NDArray[np.intp]]:
    """The samples, and the fold of each: samples are sorted by lead and dealt out in turn.

    A row with a weight of several samples is split among the folds. So the result depends neither
    on the order of the rows nor on whether a sample occurs twice or has weight 2.
    """
    n_folds = FOLDS if _n_samples(problem) < MANY else 2
    labels = problem.data.labels
    order = np.lexsort((labels, problem.top, problem.of_label, problem.level, problem.lead))
    problem = problem.rows(order)
    size = np.ones(len(problem), dtype=np.int64)
    if all_whole(problem.count):
        size = problem.count.astype(np.int64)
    # Samples before + 0, 1, ... size - 1 are in the folds of these numbers modulo n_folds.
    before = (np.cumsum(size) - size)[:, np.newaxis] - np.arange(n_folds)
    in_fold = (before + size[:, np.newaxis] - 1) // n_folds - (before - 1) // n_folds
    row, fold_of = np.nonzero(in_fold)
    share = in_fold[row, fold_of] / size[row]
    pieces = problem.rows(row)
    return replace(
        pieces, count=share * pieces.count, mistake_count=share * pieces.mistake_count
    ), fold_of


def _cross_fitted(
    problem: Problem, fold_of: npt.NDArray[np.intp], whole: TopRest, *, classes: bool
) -> tuple[Losses, int]:
    """The loss of each sample under a fit on the other folds, and the passes over samples."""
    loss, odds, free_odds = (np.empty(len(problem)) for _ in range(3))
    evaluations = 0
    for fold in range(fold_of.max() + 1):
        held_out = np.flatnonzero(fold_of == fold)
        others = problem.rows(np.flatnonzero(fold_of != fold))
        found = refit(others, whole, classes=classes)
        losses = problem.rows(held_out).losses(found)
        loss[held_out], odds[held_out] = losses.loss, losses.odds
        free_odds[held_out] = losses.free_odds
        evaluations += found.evaluations + 1
    return Losses(loss, odds, free_odds), evaluations


def _evidence(
    problem: Problem, name: str, losses: Losses, simpler: Losses | None = None
) -> Evidence:
    """Held-out log-loss and calibration error of a method, and its gain over ``simpler``."""
    n = problem.count.sum()
    share = problem.count / n
    confidence = sigmoid(losses.odds)
    weight = None if problem.data.weight is None else problem.count
    samples = ScoredSamples(confidence, problem.correct, weight)
    gain = error = None
    if simpler is not None:
        difference = simpler.loss - losses.loss
        gain = float(share @ difference)
        error = math.sqrt(share @ (difference - gain) ** 2 / n)
    return Evidence(
        method=name,
        nll=float(share @ losses.loss),
        gain=gain,
        gain_error=error,
        ada_ece=METRICS["ada_ece"].of(samples, n_bins=N_BINS),
        # The standard error of mean(confidence - correct), which bounds that of a sum over bins.
        ada_ece_error=math.sqrt(share @ (confidence - problem.correct) ** 2 / n),
        moved_confidence=float(share @ np.abs(confidence - sigmoid(losses.free_odds))),
    )


def _warnings(evidence: list[Evidence]) -> Iterator[str]:
    """Why class terms that lower the log-loss were not selected."""
    last = evidence[-1]
    if last.method in STEPS and not last.chosen and _gains(last):
        yield (
            f"class terms would lower the nll by {last.gain:.3g} but raise the calibration error, "
            "because the predicted class must not change; use top-rest if the nll matters more, or "
            "compare with vector, which may change the class."
        )


def _gains(step: Evidence) -> bool:
    return step.gain is not None and step.gain_error is not None and step.gain > step.gain_error


def _is_better(step: Evidence, simpler: list[Evidence]) -> bool:
    temperature, before = simpler[0], simpler[-1]
    calibrated = step.ada_ece <= temperature.ada_ece + 2.0 * step.ada_ece_error
    # No limit for the first step: temperature scaling keeps the predicted class by its form.
    moved = before is not temperature and (
        step.moved_confidence > before.moved_confidence + MOST_MOVED
    )
    return _gains(step) and calibrated and not moved


def _n_samples(problem: Problem) -> int:
    """Number of samples: the total weight of the rows."""
    return round(float(problem.count.sum()))
