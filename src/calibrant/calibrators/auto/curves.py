"""The choice of a curve for two classes, where one probability says everything.

The candidates are curves of the log-odds x of class 1, from the simplest on: x / T, a x + b
(Platt), beta calibration, a spline, isotonic regression and Venn-Abers. All of them rise, so the
order of the samples is kept; all but the first may move the predicted class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid, softplus
from calibrant.calibrators.auto.keeping import FEWEST, N_BINS, is_better
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.fit_report import Evidence
from calibrant.calibrators.folds import Folds, order_by, standard_errors, with_gain
from calibrant.calibrators.one_vs_rest.base import MOST_LOG_ODDS, OneVsRest, Problems
from calibrant.calibrators.one_vs_rest.nonparametric import IsotonicCalibration
from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration, PlattScaling
from calibrant.calibrators.one_vs_rest.spline import SplineCalibration
from calibrant.calibrators.one_vs_rest.tables import PooledSamples, Table, padded
from calibrant.calibrators.one_vs_rest.venn_abers import VennAbers
from calibrant.calibrators.temperature.methods import TemperatureScaling
from calibrant.metrics.binning import equal_mass_table
from calibrant.metrics.calibration import error_of_table


class CurveStep(NamedTuple):
    """A curve, and what it takes to choose it over a simpler one."""

    curve: type[OneVsRest]
    standard_errors: float = 1.0
    """By how many of them it must lower the log-loss of many samples."""
    fewest: int = FEWEST
    """Below this many samples it is not tried."""


MANY_FOR_T = 1000
"""From this many samples on, T of all samples is used in every fold: it differs too little."""
MOST_SLOPE = 1e3
"""A search starts at a slope of 1/T or this, whose square does not overflow."""
MANY_FOR_A_TABLE = 500
"""On halves of validation parts of 95 models, lookup tables are often chosen by luck below this."""
STEPS = (
    CurveStep(PlattScaling),
    CurveStep(BetaCalibration),
    # It turns into Platt scaling by itself where the samples do not ask for more.
    CurveStep(SplineCalibration, standard_errors=0.0),
    CurveStep(IsotonicCalibration, fewest=MANY_FOR_A_TABLE),
    CurveStep(VennAbers, fewest=MANY_FOR_A_TABLE),
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
    steps = [step for step in STEPS if samples.n >= step.fewest]
    if fitted.at_bound == "T -> 0":
        simplest, steps = samples.fitted(PlattScaling()), steps[1:]
        held_out, lines = samples.by_curve(PlattScaling())
    else:
        temperature = fitted.state["temperature"]
        held_out = samples.by_temperature(temperature)
        lines = np.tile([min(1.0 / temperature, MOST_SLOPE), 0.0], (len(samples.outside), 1))
    best = samples.losses(held_out)
    chosen, evidence = 0, [samples.evidence(simplest.NAME, held_out, best)]
    for step in steps:
        held_out, lines = samples.by_curve(step.curve(), lines)
        losses = samples.losses(held_out)
        found = samples.evidence(step.curve.NAME, held_out, losses, simpler=best)
        errors = standard_errors(samples.n, step.standard_errors)
        if is_better(found, evidence[0], errors):
            chosen, best = len(evidence), losses
        evidence.append(found)
    evidence[chosen] = replace(evidence[chosen], chosen=True)
    return samples.fitted(steps[chosen - 1].curve()) if chosen else simplest, evidence


@dataclass(frozen=True)
class _InFolds:
    """The samples, and the same in n pieces, each in one fold."""

    whole: Problems
    """All samples: one problem."""
    others: list[npt.NDArray[np.intp]]
    """The pieces outside each fold."""
    outside: Problems
    """A problem of each of these; a piece is repeated with weight 0 if there are fewer of them."""
    members: npt.NDArray[np.intp]
    """(m, F): the pieces inside each fold; the last is repeated if there are fewer than m."""
    log_odds: Floats
    """(n,)"""
    hits: npt.NDArray[np.bool_]
    """(n,): whether the label is class 1."""
    count: Floats
    """(n,): how many samples each piece counts for."""
    gap: Floats
    """(n,): the logit of class 1 minus that of class 0."""

    @classmethod
    def of(cls, data: FitData) -> _InFolds:
        """The samples that count; see ``one_vs_rest``."""
        whole = Problems.of(data)
        x, hits, weight = whole.log_odds[0], whole.hits[0], whole.weight[0]
        # By |x| and whether x says the label, ties by x towards the rarer class: so the classes can
        # be swapped, and so can rows.
        towards_class_1 = ((0.5 - hits) @ weight or -(x @ weight)) >= 0.0
        order = order_by(x if towards_class_1 else -x, (x > 0.0) == hits, np.abs(x))
        folds = Folds.of(weight, order[weight[order] > 0.0])
        others = [np.flatnonzero(folds.of_piece != fold) for fold in range(folds.n)]
        others = others if folds.n > 1 else folds.members  # one sample
        outside = padded(others)
        counts = np.arange(outside.shape[1]) < np.array([[len(each)] for each in others])
        rows = folds.row[outside]
        with np.errstate(over="ignore"):
            gap = np.subtract(*data.logits[folds.row].astype(np.float64).T[::-1])
        return cls(
            whole=whole,
            others=others,
            outside=Problems(
                log_odds=x[rows],
                hits=hits[rows],
                weight=np.where(counts, folds.count[outside], 0.0),
                n_classes=2,
            ),
            members=padded(folds.members).T,
            log_odds=x[folds.row],
            hits=hits[folds.row],
            count=folds.count,
            gap=gap,
        )

    @property
    def n(self) -> int:
        """Number of samples."""
        return round(float(self.count.sum()))

    def fitted(self, curve: OneVsRest) -> OneVsRest:
        """A curve fitted on all samples."""
        return curve.with_state(curve._fit_problems(self.whole)["state"], 2)

    @cached_property
    def groups(self) -> list[PooledSamples]:
        """The pieces outside each fold, as lookup tables take them."""
        return list(PooledSamples.of(self.outside))

    def by_curve(
        self, curve: OneVsRest, lines: Floats | None = None
    ) -> tuple[Floats, Floats | None]:
        """Log-odds of class 1 of each piece, by a curve fitted without its fold.

        ``lines`` are where its search starts. Second result: those for the curves after this one.
        """
        if isinstance(curve, Table):
            state = curve._fit_groups(self.groups, 2, lines)["state"]
        else:
            state = curve._fit_problems(self.outside, lines)["state"]
        if isinstance(curve, PlattScaling):
            lines = np.stack([state["slope"], state["shift"]], axis=1)
        log_odds = curve._calibrated(self.log_odds[self.members], state)
        return self._gathered(log_odds), lines

    def by_temperature(self, of_all: float) -> Floats:
        """Log-odds of class 1 of each piece, by temperature scaling fitted without its fold.

        ``of_all`` is T of all samples.
        """
        temperatures = [of_all] * len(self.outside)
        if self.n < MANY_FOR_T:
            temperatures = [self._temperature(pieces) for pieces in self.others]
        with np.errstate(over="ignore"):
            return self._gathered(self.gap[self.members] / np.array(temperatures))

    def _temperature(self, pieces: npt.NDArray[np.intp]) -> float:
        logits = np.stack([np.zeros(len(pieces)), self.gap[pieces]], axis=1)
        data = FitData(logits, self.hits[pieces].astype(np.int64), self.count[pieces])
        return float(TemperatureScaling()._fit(data).state["temperature"])

    def _gathered(self, log_odds: Floats) -> Floats:
        """(n,), from one value for each of the members of the folds."""
        gathered = np.empty(len(self.count))
        gathered[self.members] = np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)
        return gathered

    def evidence(
        self, name: str, log_odds: Floats, losses: Floats, simpler: Floats | None = None
    ) -> Evidence:
        """Held-out results of a curve, and its gain over a simpler one with other losses."""
        n, hits, probability = self.count.sum(), self.hits, sigmoid(log_odds)
        share = self.count / n
        table = equal_mass_table(probability, hits, N_BINS, self.count)
        evidence = Evidence(
            method=name,
            nll=float(share @ losses),
            gain=None,
            gain_error=None,
            ada_ece=error_of_table(table, "l1"),
            # The standard error of mean(probability - hits), which bounds that of a sum over bins.
            ada_ece_error=math.sqrt(share @ (probability - hits) ** 2 / n),
            moved_confidence=0.0,
        )
        if simpler is None:
            return evidence
        before, after = self.gap > 0.0, log_odds > 0.0
        corrected = (after == hits).astype(np.float64) - (before == hits)
        return with_gain(evidence, simpler - losses, before != after, corrected, self.count)

    def losses(self, log_odds: Floats) -> Floats:
        """The log-loss of each piece."""
        return np.asarray(softplus(np.where(self.hits, -log_odds, log_odds)))
