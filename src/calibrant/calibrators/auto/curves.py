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
from calibrant.calibrators.folds import Folds, mean_and_error, standard_errors
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
    """By how many of them it must lower the log-loss of many samples."""
    fewest: int = FEWEST
    """Below this many samples it is not tried."""


MANY_FOR_T = 1000
"""From this many samples on, T of all samples is used in every fold: it differs too little."""
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
    from 10,000 samples on. (From 1,000 on, T is that of all samples.) Starting with temperature
    scaling, a step to a more complex curve is taken if it

    - lowers the mean log-loss of the best so far by more than 1 + 100 / n standard errors over the
      n samples (for the spline, which shrinks itself, 100 / n), and
    - does not raise the equal-mass calibration error of P(class 1) under temperature scaling by
      more than two standard errors.

    Below 20 samples nothing is compared, and below 500 no lookup table (isotonic, Venn-Abers). If
    every sample is classified correctly, T -> 0 would make every prediction certain, and Platt
    scaling takes the place of temperature scaling.

    Returns:
        The fitted calibrator, without a report, and the evidence, in which one entry is ``chosen``;
        ``ada_ece`` is that of P(class 1).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.data import FitData
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=2000)
        >>> labels = (rng.random(2000) < 1 / (1 + np.exp(3 - x))).astype(int)  # 8% positives
        >>> balanced = np.stack([np.zeros(2000), x], axis=1)
        >>> calibrator, evidence = choose_curve(FitData(balanced, labels, None))
        >>> calibrator.NAME, calibrator.predict_proba(balanced)[:, 1].mean().round(3)
        ('platt', np.float64(0.066))
    """
    samples = _InFolds.of(data)
    fitted = TemperatureScaling()._fit(data)
    simplest: Calibrator = TemperatureScaling().with_state(fitted.state, data.n_classes)
    best = samples.by_temperature(fitted.state["temperature"])
    steps = [step for step in STEPS if samples.n >= step.fewest]
    if fitted.at_bound == "T -> 0":
        simplest, steps = samples.fitted(PlattScaling()), steps[1:]
        best = samples.by_curve(PlattScaling())
    chosen, evidence = 0, [samples.evidence(simplest.NAME, best)]
    for step in steps:
        held_out = samples.by_curve(step.curve())
        found = samples.evidence(step.curve.NAME, held_out, simpler=best)
        errors = standard_errors(samples.n, step.standard_errors)
        if _is_better(found, evidence[0], errors):
            chosen, best = len(evidence), held_out
        evidence.append(found)
    evidence[chosen] = replace(evidence[chosen], chosen=True)
    return samples.fitted(steps[chosen - 1].curve()) if chosen else simplest, evidence


def _is_better(found: Evidence, simplest: Evidence, errors: float) -> bool:
    assert found.gain is not None
    assert found.gain_error is not None
    calibrated = found.ada_ece <= simplest.ada_ece + 2.0 * found.ada_ece_error
    return found.gain > errors * found.gain_error and calibrated


@dataclass(frozen=True)
class _InFolds:
    """The samples, and the same in n pieces, each in one fold."""

    whole: Problems
    """All samples: one problem."""
    outside: Problems
    """One problem for each fold: the pieces outside, with weight 0 for those inside."""
    members: npt.NDArray[np.intp]
    """(m, F): the pieces inside each fold; the last is repeated if there are fewer than m."""
    count: Floats
    """(n,): how many samples each piece counts for."""
    gap: Floats
    """(n,): the logit of class 1 minus that of class 0."""

    @classmethod
    def of(cls, data: FitData) -> _InFolds:
        """The samples that count; see ``one_vs_rest``."""
        whole = Problems.of(data)
        x, hits, weight = whole.log_odds[0], whole.hits[0], whole.weight[0]
        # By |x| and whether x says the label, so that the classes can be swapped.
        order = np.lexsort((x, (x > 0.0) == hits, np.abs(x)))
        folds = Folds.of(weight, order[weight[order] > 0.0])
        inside = folds.of_piece == np.arange(folds.n)[:, np.newaxis]
        lists = [np.flatnonzero(each) for each in inside]
        longest = max(map(len, lists))
        weight = np.broadcast_to(folds.count, inside.shape)
        rows = np.broadcast_to(folds.row, inside.shape)
        with np.errstate(over="ignore"):
            gap = np.subtract(*data.logits[folds.row].astype(np.float64).T[::-1])
        return cls(
            whole=whole,
            outside=Problems(
                log_odds=x[rows],
                hits=hits[rows],
                weight=np.where(inside, 0.0, weight) if folds.n > 1 else weight,
                n_classes=2,
            ),
            members=np.stack([np.pad(each, (0, longest - len(each)), "edge") for each in lists]).T,
            count=folds.count,
            gap=gap,
        )

    @property
    def hits(self) -> npt.NDArray[np.bool_]:
        """(n,): whether the label is class 1."""
        return np.asarray(self.outside.hits[0])

    @property
    def n(self) -> int:
        """Number of samples."""
        return round(float(self.count.sum()))

    def fitted(self, curve: OneVsRest) -> OneVsRest:
        """A curve fitted on all samples."""
        return curve.with_state(curve._fit_problems(self.whole)["state"], 2)

    def by_curve(self, curve: OneVsRest) -> Floats:
        """Log-odds of class 1 of each piece, by a curve fitted without its fold."""
        state = curve._fit_problems(self.outside)["state"]
        return self._gathered(curve._calibrated(self.outside.log_odds[0, self.members], state))

    def by_temperature(self, of_all: float) -> Floats:
        """Log-odds of class 1 of each piece, by temperature scaling fitted without its fold.

        ``of_all`` is T of all samples.
        """
        temperatures = [of_all] * len(self.outside)
        if self.n < MANY_FOR_T:
            temperatures = [self._temperature(weight) for weight in self.outside.weight]
        with np.errstate(over="ignore"):
            return self._gathered(self.gap[self.members] / np.array(temperatures))

    def _temperature(self, weight: Floats) -> float:
        some = np.flatnonzero(weight)
        logits = np.stack([np.zeros(len(some)), self.gap[some]], axis=1)
        data = FitData(logits, self.hits[some].astype(np.int64), weight[some])
        return float(TemperatureScaling()._fit(data).state["temperature"])

    def _gathered(self, log_odds: Floats) -> Floats:
        """(n,), from one value for each of the members of the folds."""
        gathered = np.empty(len(self.count))
        gathered[self.members] = np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)
        return gathered

    def evidence(self, name: str, log_odds: Floats, simpler: Floats | None = None) -> Evidence:
        """Held-out results of a curve, and its gain over ``simpler``."""
        n, hits, probability = self.count.sum(), self.hits, sigmoid(log_odds)
        share = self.count / n
        table = equal_mass_table(probability, hits, N_BINS, self.count)
        evidence = Evidence(
            method=name,
            nll=float(share @ self._loss(log_odds)),
            gain=None,
            gain_error=None,
            ada_ece=error_of_table(table, "l1"),
            # The standard error of mean(probability - hits), which bounds that of a sum over bins.
            ada_ece_error=math.sqrt(share @ (probability - hits) ** 2 / n),
            moved_confidence=0.0,
        )
        if simpler is None:
            return evidence
        gain, gain_error = mean_and_error(self._loss(simpler) - self._loss(log_odds), self.count)
        before, after = self.gap > 0.0, log_odds > 0.0
        correct = (after == hits).astype(np.float64) - (before == hits)
        accuracy_gain, accuracy_error = mean_and_error(correct, self.count)
        return replace(
            evidence,
            gain=gain,
            gain_error=gain_error,
            changed=float(share @ (before != after)),
            accuracy_gain=accuracy_gain,
            accuracy_gain_error=accuracy_error,
        )

    def _loss(self, log_odds: Floats) -> Floats:
        return np.asarray(softplus(np.where(self.hits, -log_odds, log_odds)))
