"""The calibrator for those who do not want to choose one.

Temperature scaling, and top-rest scaling without and with class terms, are three steps of one
family: each holds the one before. ``auto`` takes a step only where held-out samples say so.
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
"""From so many samples on two folds say the same, in less time."""
N_BINS = 15
MOST_MOVED = 0.02
"""By how much class terms may raise ``moved_confidence``. Chosen on validation rows of every second
network: 0.013 and 0.015 in the two where class terms pay most, 0.022 and far above where they
harm."""
FEWEST = 20
"""Below this many samples nothing is compared: temperature scaling it is."""

TEMPERATURE = "temperature"
STEPS = {"top-rest, classes=False": False, "top-rest": True}
"""Names of what may follow temperature scaling, in order; whether with class terms."""


class AutoCalibration(TopAndRest):
    """The most elaborate of three methods that held-out samples speak for.

    Temperature scaling, top-rest scaling without class terms, and top-rest scaling are compared on
    samples that they were not fitted on (five folds, two from 10,000 samples on; T, T' where there
    are no class terms, and the variance of those, are of all samples). From the
    simplest on, a step is taken where it

    - lowers the mean log-loss by more than its standard error over samples, and
    - does not raise the equal-mass calibration error of temperature scaling by more than two
      standard errors, and
    - has no class terms that would move the confidence by more than 2 points, on average, to keep
      the predicted class: where the model is wrong about whole classes.

    Otherwise the simpler one stays; below 20 samples that is temperature scaling. The chosen one is
    then fitted on all samples. None of them changes the predicted class. ``report_.evidence`` has
    what was seen.

    Attributes:
        chosen_: Name of the method that was chosen.

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
        """Name of the method that was chosen."""
        return next(each.method for each in self.report_.evidence if each.chosen)

    def _fit(self, data: Samples) -> Fitted:
        problem = Problem.of(data.in_memory())
        pieces, fold_of = _in_folds(problem)
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
        doubts = (*fitted.warnings, *_refused(evidence))
        return replace(fitted, warnings=doubts, evidence=tuple(evidence))


def _in_folds(problem: Problem) -> tuple[Problem, npt.NDArray[np.intp]]:
    """The samples, and the fold of each: in turns, in the order of their lead.

    A row that counts for several samples is cut into pieces, one for each fold. So neither the
    order of the rows matters, nor whether a sample is there twice or has a weight of 2.
    """
    n_folds = FOLDS if _n_samples(problem) < MANY else 2
    labels = problem.data.labels
    order = np.lexsort((labels, problem.top, problem.of_label, problem.level, problem.lead))
    problem = problem.rows(order)
    size = np.ones(len(problem), dtype=np.int64)
    if all_whole(problem.count):
        size = problem.count.astype(np.int64)
    # Samples before + 0, 1, ... size - 1 are in folds of the same numbers, by turns.
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
    """What each sample loses under a fit on the other folds; passes over the samples that took."""
    loss, odds, free_odds = (np.empty(len(problem)) for _ in range(3))
    evaluations = 0
    for fold in range(fold_of.max() + 1):
        held_out = np.flatnonzero(fold_of == fold)
        others = problem.rows(np.flatnonzero(fold_of != fold))
        found = refit(others, whole, classes=classes)
        there = problem.rows(held_out).losses(found)
        loss[held_out], odds[held_out] = there.loss, there.odds
        free_odds[held_out] = there.free_odds
        evaluations += found.evaluations + 1
    return Losses(loss, odds, free_odds), evaluations


def _evidence(
    problem: Problem, name: str, losses: Losses, simpler: Losses | None = None
) -> Evidence:
    """The held-out log-loss and calibration error, and the gain over what is simpler."""
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
        # That of the mean of confidence - correctness; no sum over bins moves more.
        ada_ece_error=math.sqrt(share @ (confidence - problem.correct) ** 2 / n),
        moved_confidence=float(share @ np.abs(confidence - sigmoid(losses.free_odds))),
    )


def _refused(evidence: list[Evidence]) -> Iterator[str]:
    """Why class terms that would help were not taken."""
    last = evidence[-1]
    if last.method in STEPS and not last.chosen and _gains(last):
        yield (
            f"classes differ, and terms for them would lower the nll by {last.gain:.3g}, but only "
            "at a higher calibration error while the predicted class has to stay; take top-rest "
            "if the nll matters more, or compare with vector, which may change the class."
        )


def _gains(step: Evidence) -> bool:
    return step.gain is not None and step.gain_error is not None and step.gain > step.gain_error


def _is_better(step: Evidence, simpler: list[Evidence]) -> bool:
    temperature, before = simpler[0], simpler[-1]
    safe = step.ada_ece <= temperature.ada_ece + 2.0 * step.ada_ece_error
    # The first step may be bound as much as it likes: so is temperature scaling, by its form.
    bound = before is not temperature and (
        step.moved_confidence > before.moved_confidence + MOST_MOVED
    )
    return _gains(step) and safe and not bound


def _n_samples(problem: Problem) -> int:
    """How many samples the rows count for."""
    return round(float(problem.count.sum()))
