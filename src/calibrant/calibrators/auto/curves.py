"""The choice of a curve for two classes, where one probability says everything.

The candidates are curves of the log-odds x of class 1, from the simplest on: x / T, a x + b
(Platt), beta calibration, a spline, isotonic regression and Venn-Abers. All of them rise, so the
order of the samples is kept; all but the first may move the predicted class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid, softplus
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.fit_report import Evidence
from calibrant.calibrators.folds import Folds, mean_and_error
from calibrant.calibrators.one_vs_rest.base import MOST_LOG_ODDS, OneVsRest, Problems
from calibrant.calibrators.one_vs_rest.nonparametric import IsotonicCalibration
from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration, PlattScaling
from calibrant.calibrators.one_vs_rest.spline import SplineCalibration
from calibrant.calibrators.one_vs_rest.venn_abers import VennAbers
from calibrant.calibrators.temperature.methods import TemperatureScaling
from calibrant.metrics.binning import equal_mass_table
from calibrant.metrics.calibration import error_of_table

FEWEST = 20
"""Below this many samples nothing is compared."""
N_BINS = 15


class Step(NamedTuple):
    """A curve, and what it takes to choose it over a simpler one."""

    curve: type[OneVsRest]
    standard_errors: float = 1.0
    """By how many of them it must lower the log-loss."""
    fewest: int = FEWEST
    """Below this many samples it is not tried."""


MANY_FOR_A_TABLE = 500
"""On halves of validation parts of 95 models, lookup tables are often chosen by luck below this."""
STEPS = (
    Step(PlattScaling),
    Step(BetaCalibration),
    # It turns into Platt scaling by itself where the samples do not ask for more.
    Step(SplineCalibration, standard_errors=0.0),
    Step(IsotonicCalibration, fewest=MANY_FOR_A_TABLE),
    Step(VennAbers, fewest=MANY_FOR_A_TABLE),
)
"""The candidates after temperature scaling, simplest first."""


def choose_curve(data: FitData) -> tuple[Calibrator, list[Evidence]]:
    """The calibrator for two classes that held-out samples support, fitted on all samples.

    Each curve is fitted on the samples outside a fold and judged on those inside: five folds, two
    from 10,000 samples on. Starting with temperature scaling, a step to a more complex curve is
    taken if it

    - lowers the mean log-loss of the best so far by more than its standard error over samples (for
      the spline, which shrinks itself, at all), and
    - does not raise the equal-mass calibration error of P(class 1) under temperature scaling by
      more than two standard errors.

    Below 20 samples nothing is compared, and below 500 no lookup table (isotonic, Venn-Abers). If
    every sample is classified correctly, T -> 0 would make every prediction certain, and Platt
    scaling takes the place of temperature scaling.

    Returns:
        The fitted calibrator, whose warnings are in its ``report_`` only, and the evidence:
        ``ada_ece`` is that of P(class 1), and one entry is ``chosen``.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.data import checked_samples
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=2000)
        >>> labels = (rng.random(2000) < 1 / (1 + np.exp(3 - x))).astype(int)  # 8% positives
        >>> balanced = np.stack([np.zeros(2000), x], axis=1)
        >>> calibrator, evidence = choose_curve(checked_samples(balanced, labels))
        >>> calibrator.NAME, calibrator.predict_proba(balanced)[:, 1].mean().round(3)
        ('platt', np.float64(0.066))
    """
    samples = _HeldOut.of(data)
    simplest: Calibrator = TemperatureScaling().fit_silently(data)
    steps = [step for step in STEPS if samples.n >= step.fewest]
    if simplest.report_.at_bound == "T -> 0":
        simplest, steps = PlattScaling().fit_silently(data), steps[1:]
    best = samples.cross_fitted(simplest)
    chosen, evidence = 0, [samples.evidence(simplest.NAME, best)]
    for step in steps:
        held_out = samples.cross_fitted(step.curve())
        found = samples.evidence(step.curve.NAME, held_out, simpler=best)
        if _is_better(found, evidence[0], step.standard_errors):
            chosen, best = len(evidence), held_out
        evidence.append(found)
    evidence[chosen] = replace(evidence[chosen], chosen=True)
    return steps[chosen - 1].curve().fit_silently(data) if chosen else simplest, evidence


def _is_better(found: Evidence, simplest: Evidence, standard_errors: float) -> bool:
    assert found.gain is not None
    assert found.gain_error is not None
    calibrated = found.ada_ece <= simplest.ada_ece + 2.0 * found.ada_ece_error
    return found.gain > standard_errors * found.gain_error and calibrated


@dataclass(frozen=True)
class _HeldOut:
    """The samples, each in one fold."""

    problems: Problems
    """The one problem of two classes."""
    fold: npt.NDArray[np.intp]
    logits: Floats
    """(n, 2), for temperature scaling, whose log-odds have no bound."""

    @classmethod
    def of(cls, data: FitData) -> _HeldOut:
        """The samples that count; see ``one_vs_rest``."""
        problems = Problems.of(data)
        x, hits = problems.log_odds[0], problems.hits[0]
        # By |x| and whether x says the label, so that the classes can be swapped.
        order = np.lexsort((x, (x > 0.0) == hits, np.abs(x)))
        order = order[problems.weight[0, order] > 0.0]
        folds = Folds.of(problems.weight[0], order)
        problems = _rows(problems, folds.row)
        return cls(
            replace(problems, weight=problems.weight * folds.share),
            folds.of_piece,
            data.logits[folds.row].astype(np.float64),
        )

    @property
    def hits(self) -> npt.NDArray[np.bool_]:
        """(n,): whether the label is class 1."""
        return np.asarray(self.problems.hits[0])

    @property
    def count(self) -> Floats:
        """(n,): how many samples each row stands for."""
        return np.asarray(self.problems.weight[0])

    @property
    def n(self) -> int:
        """Number of samples."""
        return round(float(self.count.sum()))

    def cross_fitted(self, method: Calibrator) -> Floats:
        """Log-odds of class 1 of each sample, by a fit without its fold."""
        log_odds = np.empty(len(self.fold))
        for fold in range(self.fold.max() + 1):
            inside = self.fold == fold
            fitted_on = ~inside if not inside.all() else inside  # a single sample has one fold
            if isinstance(method, OneVsRest):
                state = method._fit_problems(_rows(self.problems, fitted_on))["state"]
                x = self.problems.log_odds[:, inside].T
                log_odds[inside] = method._calibrated(x, state)[:, 0]
            else:
                state = method._fit(self._data(fitted_on)).state
                log_probs = method._log_probs(self.logits[inside], state)
                log_odds[inside] = log_probs[:, 1] - log_probs[:, 0]
        return np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)

    def _data(self, which: npt.NDArray[np.bool_]) -> FitData:
        labels = self.hits[which].astype(np.int64)
        return FitData(self.logits[which], labels, self.count[which])

    def evidence(self, name: str, log_odds: Floats, simpler: Floats | None = None) -> Evidence:
        """Held-out log-loss and calibration error, and the gain over ``simpler``."""
        share = self.count / self.count.sum()
        probability = sigmoid(log_odds)
        table = equal_mass_table(probability, self.hits, N_BINS, self.count)
        loss = self._loss(log_odds)
        evidence = Evidence(
            method=name,
            nll=float(share @ loss),
            gain=None,
            gain_error=None,
            ada_ece=error_of_table(table, "l1"),
            # The standard error of mean(probability - hits), which bounds that of a sum over bins.
            ada_ece_error=math.sqrt(share @ (probability - self.hits) ** 2 / self.count.sum()),
            moved_confidence=0.0,
        )
        if simpler is None:
            return evidence
        gain, gain_error = mean_and_error(self._loss(simpler) - loss, self.count)
        now, before = (log_odds > 0.0), (simpler > 0.0)
        better = (now == self.hits).astype(np.float64) - (before == self.hits)
        accuracy_gain, accuracy_error = mean_and_error(better, self.count)
        return replace(
            evidence,
            gain=gain,
            gain_error=gain_error,
            changed=float(share @ (now != before)),
            accuracy_gain=accuracy_gain,
            accuracy_gain_error=accuracy_error,
        )

    def _loss(self, log_odds: Floats) -> Floats:
        return np.asarray(softplus(np.where(self.hits, -log_odds, log_odds)))


def _rows(problems: Problems, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Problems:
    return replace(
        problems,
        log_odds=problems.log_odds[:, which],
        hits=problems.hits[:, which],
        weight=problems.weight[:, which],
    )
