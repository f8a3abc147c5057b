"""The candidates that keep the predicted class: temperature and top-rest scaling, by cross-fitting.

Each contains the one before. A step to the next is taken where held-out samples support it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.fit_report import Evidence
from calibrant.calibrators.folds import Folds, order_by, standard_errors, with_gain
from calibrant.calibrators.top_rest.solver import Losses, Problem, TopRest, cross_fit, fit_top_rest
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import ScoredSamples

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


@dataclass(frozen=True)
class HeldOut:
    """Samples in folds, and their losses under a method fitted without their fold."""

    pieces: Problem
    losses: Losses


@dataclass(frozen=True)
class BestOfSteps:
    """The best of temperature and top-rest scaling after some first parts."""

    first: tuple[Calibrator, ...]
    problem: Problem
    """What temperature and top-rest scaling were fitted on."""
    found: TopRest
    classes: bool
    held_out: HeldOut
    steps: tuple[Evidence, ...]
    """Temperature scaling and the steps after it; one is chosen."""

    @property
    def name(self) -> str:
        """The names of its parts."""
        chosen = next(step.method for step in self.steps if step.chosen)
        return ", then ".join([*(part.NAME for part in self.first), chosen])

    def temperature_losses(self) -> Floats:
        """The loss of each sample in the folds under temperature scaling."""
        unchanged = TopRest.unchanged(self.problem.data.n_classes)
        return self.held_out.pieces.losses(unchanged).loss


def pieces_of(problem: Problem, folds: Folds) -> Problem:
    """The samples of a problem, in folds."""
    pieces = problem.rows(folds.row)
    return replace(
        pieces, count=folds.share * pieces.count, mistake_count=folds.share * pieces.mistake_count
    )


def best_of_steps(
    problem: Problem,
    pieces: Problem,
    folds: Folds,
    *,
    first: tuple[Calibrator, ...] = (),
    classes: bool = True,
) -> BestOfSteps:
    """Step from temperature scaling to top-rest scaling where held-out samples support it.

    ``classes`` says whether class terms are tried.
    """
    found, has_classes = TopRest.unchanged(problem.data.n_classes), False
    held_out = HeldOut(pieces, pieces.losses(found))
    steps = [held_out_evidence(TEMPERATURE, held_out)]
    best, evaluations = 0, 1
    parts = [pieces.rows(members) for members in folds.members]
    for name, with_classes in STEPS.items():
        if round(problem.n_counted) < FEWEST or (with_classes and not classes):
            break
        whole = fit_top_rest(problem, classes=with_classes)
        fits = list(cross_fit(pieces, folds.of_piece, whole, classes=with_classes))
        losses = _in_one([part.losses(fit) for part, fit in zip(parts, fits, strict=True)], folds)
        evaluations += whole.evaluations + sum(fit.evaluations + 1 for fit in fits)
        step = held_out_evidence(name, HeldOut(pieces, losses), held_out)
        if is_better(step, steps[0], standard_errors(problem.n_counted), before=steps[-1]):
            best, found, has_classes = len(steps), whole, with_classes
            held_out = HeldOut(pieces, losses)
        steps.append(step)
    steps[best] = replace(steps[best], chosen=True)
    found = replace(found, evaluations=evaluations)
    return BestOfSteps(first, problem, found, has_classes, held_out, tuple(steps))


def _in_one(losses: list[Losses], folds: Folds) -> Losses:
    """The losses of all pieces, from those of each fold."""
    back = np.argsort(np.concatenate(folds.members))
    return Losses(*(np.concatenate(each)[back] for each in zip(*losses, strict=True)))


def held_out_evidence(name: str, method: HeldOut, simpler: HeldOut | None = None) -> Evidence:
    """Held-out results of a method, and its gain over ``simpler``."""
    pieces, losses = method.pieces, method.losses
    n = pieces.count.sum()
    share = pieces.count / n
    confidence = sigmoid(losses.odds)
    weight = None if pieces.data.weight is None else pieces.count
    evidence = Evidence(
        method=name,
        nll=float(share @ losses.loss),
        gain=None,
        gain_error=None,
        ada_ece=METRICS["ada_ece"].of(
            ScoredSamples(confidence, pieces.correct, weight), n_bins=N_BINS
        ),
        # The standard error of mean(confidence - correct), which bounds that of a sum over bins.
        ada_ece_error=math.sqrt(share @ (confidence - pieces.correct) ** 2 / n),
        moved_confidence=float(share @ np.abs(confidence - sigmoid(losses.free_odds))),
    )
    if simpler is None:
        return evidence
    before = simpler.pieces
    gained, changed = simpler.losses.loss - losses.loss, pieces.top != before.top
    corrected = pieces.correct.astype(np.float64) - before.correct
    return with_gain(evidence, gained, changed, corrected, pieces.count)


def gains(step: Evidence, errors: float) -> bool:
    """Whether a step lowers the log-loss by more than so many standard errors."""
    if step.gain is None or step.gain_error is None:
        return False
    return step.gain > errors * step.gain_error


def is_better(
    step: Evidence, temperature: Evidence, errors: float, before: Evidence | None = None
) -> bool:
    """Whether held-out samples support a step away from the simpler methods.

    ``errors`` is the number of standard errors that a gain must exceed, ``before`` the step before
    it, if both keep the predicted class.
    """
    calibrated = step.ada_ece <= temperature.ada_ece + 2.0 * step.ada_ece_error
    # No limit for the first step: temperature scaling keeps the predicted class by its form.
    moved = (
        before is not None
        and before is not temperature
        and step.moved_confidence > before.moved_confidence + MOST_MOVED
    )
    return gains(step, errors) and calibrated and not moved


def folds_of(problem: Problem) -> Folds:
    """Folds in the order of the lead."""
    labels = problem.data.labels
    keys = labels, problem.top, problem.of_label, problem.level, problem.lead
    return Folds.of(problem.count, order_by(*keys))


def changed_data(samples: FitData, part: Calibrator) -> FitData:
    """The samples after a calibrator."""
    return replace(samples, logits=part._apply(part._log_probs, samples.logits))
