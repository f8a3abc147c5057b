"""The fit of top-rest scaling: the samples at their best temperature, and two regressions on them.

See ``map`` for the map, and ``regressions`` for what is minimised.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import singledispatch
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.base import Fitted
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.fit_report import LIMITS
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.calibrators.temperature.solver import (
    BestTemperature,
    best_temperature,
)
from calibrant.calibrators.top_rest.map import LARGEST_ODDS, MOST_STRETCH, pieces
from calibrant.calibrators.top_rest.regressions import (
    FIRST_STRENGTH,
    LAST_STEP,
    N_SLOPES,
    REST_BOUND,
    START,
    RestLoss,
    StrengthSearch,
    TopRegression,
    TopSamples,
    TopSamplesInMemory,
)

MOST_ROUNDS = 10
MOST_ENTRIES = 1 << 21
"""Largest number of logits of mistakes for the fit of the rest; if there are more, every second row
or so is used."""
MOST_ODDS = 100.0
"""Larger log-odds are reduced to this in the fit, where one mistake would outweigh all samples."""


@dataclass(frozen=True)
class TopRest:
    """The fitted parameters besides T."""

    weights: Floats
    """Slopes, offset, contest."""
    class_offsets: Floats
    offset_strength: float
    log_rest_inverse_temperature: float
    """-log T'."""
    rest_biases: Floats
    bias_strength: float
    gradient: float = 0.0
    """Largest remaining entry of the gradient of the mean loss."""
    evaluations: int = 0

    @classmethod
    def unchanged(cls, n_classes: int) -> TopRest:
        """Temperature scaling."""
        nothing = np.zeros(n_classes)
        return cls(START, nothing, FIRST_STRENGTH, 0.0, nothing, FIRST_STRENGTH)


class Losses(NamedTuple):
    """The log-loss and the log-odds of the predicted class, per sample."""

    loss: Floats
    odds: Floats
    free_odds: Floats
    """The log-odds before the bounds that keep the predicted class."""


class AtTemperature(ABC):
    """Samples at their best temperature, in memory or elsewhere, as the fit needs them."""

    data: Samples
    best: BestTemperature

    @property
    def inverse_temperature(self) -> float:
        """1/T."""
        return 1.0 / self.best.temperature

    @property
    @abstractmethod
    def n_counted(self) -> float:
        """How many samples the rows count for."""

    @abstractmethod
    def top_samples(self, *, classes: bool) -> TopSamples:
        """What the top part is fitted on, with class terms or without."""

    @abstractmethod
    def mistakes(self) -> FitData | None:
        """The rows that the rest is fitted on, if any; ``weight`` is what they count for."""

    @abstractmethod
    def nlls(self, found: TopRest) -> tuple[float, float, float]:
        """The NLL without calibration, under temperature scaling, and as found."""

    def state(self, found: TopRest) -> dict[str, Any]:
        """The state of the calibrator."""
        return {
            "temperature": self.best.temperature,
            "slopes": found.weights[:N_SLOPES].copy(),
            "offset": float(found.weights[N_SLOPES]),
            "contest": float(found.weights[N_SLOPES + 1]),
            "class_offsets": found.class_offsets,
            "rest_temperature": math.exp(-found.log_rest_inverse_temperature),
            "rest_biases": found.rest_biases,
        }

    def fitted(self, found: TopRest) -> Fitted:
        """The fit, with the NLL before and after; temperature scaling if its NLL is lower."""
        before, plain, after = self.nlls(found)
        if not after <= plain:
            found, after = TopRest.unchanged(self.data.n_classes), plain
        doubts = () if self.best.limit is None else (LIMITS[self.best.limit],)
        return Fitted(
            state=self.state(found),
            criterion="nll",
            before=before,
            after=after,
            gradient=found.gradient,
            at_bound=self.best.limit,
            evaluations=self.best.evaluations + found.evaluations + 3,
            n_parameters=2 + len(START),  # the samples decide how many class terms count
            warnings=doubts,
        )


def temperature_of_both(data: Samples) -> BestTemperature:
    """The temperature of temperature scaling.

    If no label is below the top it is 0, which says only that there is no mistake: T stays 1.
    """
    best = best_temperature(data, "nll", 0.0)
    return replace(best, temperature=1.0) if best.limit == "T -> 0" else best


@singledispatch
def problem_of(data: Samples) -> AtTemperature:
    """The samples, as top-rest scaling is fitted on them."""
    return Problem.of(data.in_memory())


def mistake_stride(n_wrong: int, n_classes: int) -> int:
    """The rest is fitted on one in this many mistakes."""
    return max(1, -(-n_wrong * n_classes // MOST_ENTRIES))


@dataclass(frozen=True)
class Problem(AtTemperature):
    """Samples in memory at their best temperature, and what both regressions need of them."""

    data: FitData
    best: BestTemperature
    chosen: npt.NDArray[np.intp]
    """(n,): indices of these rows in ``data``; the arrays below have one value for each of them."""
    count: Floats
    """How many samples a row counts for. Whole-number weights are repetitions; others are scaled so
    that their sum is the effective number of samples."""
    top: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    lead: Floats
    """(s_m - s_r) / T."""
    level: Floats
    """Log-probability of the runner-up among the rest, at T."""
    of_label: Floats
    """Log-probability of the label among the rest, at T; 0 if it is the top class."""
    mistake_count: Floats
    """What a row counts for in the fit of the rest: 0 if it is correct, or a mistake left out."""
    features: Floats
    """(n, 7): the features that slopes, offset and contest multiply."""

    @classmethod
    def of(cls, data: FitData) -> Problem:
        """The samples at their best temperature."""
        return cls.at(data, temperature_of_both(data))

    @classmethod
    def at(cls, data: FitData, best: BestTemperature) -> Problem:
        """The samples at a known temperature."""
        from calibrant.calibrators.top_rest.kernels import rest_rows

        every, top = np.arange(len(data)), np.empty(len(data), dtype=np.int64)
        lead, level, of_label = (np.empty(len(data)) for _ in range(3))
        samples, no_biases = (every, data.logits, data.labels), np.empty(0)
        out = top, lead, level, of_label
        rest_rows(
            every, *samples, 1.0 / best.temperature, 1.0, no_biases, *out, times=data.n_classes
        )
        count, correct = data.counts, top == data.labels
        wrong = np.flatnonzero(~correct)
        stride = mistake_stride(len(wrong), data.n_classes)
        mistake_count = np.zeros(len(data))
        mistake_count[wrong[::stride]] = stride * count[wrong[::stride]]
        lead = np.minimum(lead, LARGEST_ODDS)
        return cls(
            data=data,
            best=best,
            chosen=every,
            count=count,
            top=top,
            correct=correct,
            mistake_count=mistake_count,
            lead=lead,
            level=level,
            of_label=of_label,
            features=_features(lead + level, level),
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, part: npt.NDArray[np.intp]) -> Problem:
        """Some of the rows, at the same temperature."""
        of_rows = [each.name for each in fields(self) if each.name not in ("data", "best")]
        return replace(self, **{name: getattr(self, name)[part] for name in of_rows})

    @property
    def odds(self) -> Floats:
        """Log-odds of the top class at T."""
        return self.lead + self.level

    @property
    def n_counted(self) -> float:
        """How many samples the rows count for."""
        return float(self.count.sum())

    def top_samples(self, *, classes: bool) -> TopSamplesInMemory:
        """What the top part is fitted on, with class terms or without."""
        odds, features = self.odds, self.features
        if len(odds) and odds.max() > MOST_ODDS:
            features = _features(np.minimum(odds, MOST_ODDS), self.level)
        return TopSamplesInMemory(features, self.correct, self.count, self.top, classes=classes)

    def mistakes(self) -> FitData | None:
        """The rows that the rest is fitted on, if any; ``weight`` is what they count for."""
        wrong = np.flatnonzero(self.mistake_count)
        if len(wrong) == 0:
            return None
        rows = self.chosen[wrong]
        return FitData(self.data.logits[rows], self.data.labels[rows], self.mistake_count[wrong])

    def nlls(self, found: TopRest) -> tuple[float, float, float]:
        """The NLL without calibration, under temperature scaling, and as found."""
        given, plain, after = map(self.data.mean, self.loss_rows(found))
        return given, plain, after

    def loss_rows(self, found: TopRest) -> tuple[Floats, Floats, Floats]:
        """The NLL of each row without calibration, under temperature scaling, and as found."""
        unchanged = TopRest.unchanged(self.data.n_classes)
        given = temperature_rows(self.data, 1.0)[0]
        return given, self.losses(unchanged).loss, self.losses(found).loss

    def losses(self, found: TopRest) -> Losses:
        """The losses of every sample under the map with these parameters."""
        free_odds = self.features @ found.weights + found.class_offsets[self.top]
        level, of_label = self._rest(found, free_odds)
        odds = np.maximum(free_odds, level + self.lead / MOST_STRETCH)
        odds = np.minimum(odds, level + self.lead * MOST_STRETCH)
        of_top = np.logaddexp(0.0, np.where(self.correct, -odds, odds))
        return Losses(of_top - of_label, odds, free_odds)

    def _rest(self, found: TopRest, odds: Floats) -> tuple[Floats, Floats]:
        """Largest log-probability among the rest, and that of the label (0 if it is the top class).

        The largest only bounds ``odds``, and is only computed where the bound may apply.
        """
        from calibrant.calibrators.top_rest.kernels import rest_rows

        if found.log_rest_inverse_temperature == 0.0 and not found.rest_biases.any():
            return self.level, self.of_label  # at T itself both are known
        # The largest of K - 1 probabilities is at least 1 / (K - 1).
        lowest = -math.log(self.data.n_classes - 1)
        bounded = odds > self.lead * MOST_STRETCH + lowest
        needed = np.flatnonzero(~self.correct | (odds < self.lead / MOST_STRETCH) | bounded)
        samples = self.chosen, self.data.logits, self.data.labels
        at = self.inverse_temperature, math.exp(found.log_rest_inverse_temperature)
        level, of_label = self.level.copy(), self.of_label.copy()
        out = self.top.copy(), self.lead.copy(), level, of_label
        rest_rows(needed, *samples, *at, found.rest_biases, *out, times=self.data.n_classes)
        return level, of_label


def _features(odds: Floats, level: Floats) -> Floats:
    return np.stack([*pieces(np.minimum(odds, LARGEST_ODDS)), np.ones(len(odds)), level], axis=1)


def fit_top_rest(problem: AtTemperature, *, classes: bool) -> TopRest:
    """Both regressions, with estimated strengths of the class terms."""
    start = TopRest.unchanged(problem.data.n_classes)
    top = _fit_top(problem, start, classes=classes, estimate=classes)
    return _fit_rest(problem, top, classes=classes, estimate=classes)


def cross_fit(
    problem: Problem, fold: npt.NDArray[np.intp], whole: TopRest, *, classes: bool
) -> Iterator[TopRest]:
    """The fit without each fold, with the strengths of ``whole``, where the search starts.

    Without class terms only the top part is fitted: T', like T, is one number for all samples.
    """
    samples = problem.top_samples(classes=classes)
    outside = [fold != each for each in range(int(fold.max()) + 1)]
    rest = _rest_without(problem, outside, whole) if classes else repeat(whole, len(outside))
    for others, found in zip(outside, rest, strict=True):
        regression = TopRegression(samples.counting(problem.count * others))
        weights, offsets, step = regression.minimise(
            whole.weights, whole.class_offsets, whole.offset_strength, close=LAST_STEP
        )
        yield replace(
            found,
            weights=weights + step.weights,
            class_offsets=offsets + step.offsets,
            evaluations=regression.evaluations,
        )


def _rest_without(
    problem: Problem, outside: Sequence[npt.NDArray[np.bool_]], whole: TopRest
) -> Iterator[TopRest]:
    """``whole`` with T' and the biases of a fit without each fold.

    A step of Newton's method from ``whole`` is mostly all it takes.
    """
    wrong = problem.mistakes() if problem.data.n_classes > 2 else None
    if wrong is None:
        yield from repeat(whole, len(outside))
        return
    loss = RestLoss(wrong, problem.inverse_temperature)
    at = np.append(whole.log_rest_inverse_temperature, whole.rest_biases)
    rows = np.flatnonzero(problem.mistake_count)
    weights = problem.mistake_count[rows] * np.stack([others[rows] for others in outside])
    steps = loss.newton_steps(at, whole.bias_strength, weights)
    for weight, start in zip(weights, at + steps, strict=True):
        start[0] = min(max(start[0], -REST_BOUND), REST_BOUND)
        found, _ = loss.counting(weight).minimise(start, whole.bias_strength)
        yield replace(whole, log_rest_inverse_temperature=float(found[0]), rest_biases=found[1:])


def _fit_top(problem: AtTemperature, start: TopRest, *, classes: bool, estimate: bool) -> TopRest:
    """Slopes, offset, contest and class offsets, from whether the predicted class is correct."""
    regression = TopRegression(problem.top_samples(classes=classes))
    weights, offsets, strength = start.weights, start.class_offsets, start.offset_strength
    search, gradient = StrengthSearch(), 0.0
    for _ in range(MOST_ROUNDS):
        weights, offsets, step = regression.minimise(weights, offsets, strength)
        gradient = step.gradient
        if not estimate:
            break
        curvature = regression.curvature_of_classes(weights, offsets)
        strength, settled = search.following(strength, offsets, curvature)
        if settled:
            break
    return replace(
        start,
        weights=weights,
        class_offsets=offsets,
        offset_strength=strength,
        gradient=gradient / problem.n_counted,
        evaluations=start.evaluations + regression.evaluations,
    )


def _fit_rest(problem: AtTemperature, start: TopRest, *, classes: bool, estimate: bool) -> TopRest:
    """T' and the biases, from the rows whose label is not the top class."""
    # With two classes the rest is one class: nothing to fit.
    wrong = problem.mistakes() if problem.data.n_classes > 2 else None
    if wrong is None:
        return start
    parameters = np.concatenate(
        [[start.log_rest_inverse_temperature], start.rest_biases if classes else []]
    )
    strength = start.bias_strength
    loss = RestLoss(wrong, problem.inverse_temperature)
    search, gradient = StrengthSearch(), 0.0
    for _ in range(MOST_ROUNDS):
        parameters, gradient = loss.minimise(parameters, strength)
        if not estimate:
            break
        curvature = loss.curvatures(parameters)[1:]
        strength, settled = search.following(strength, parameters[1:], curvature)
        if settled:
            break
    return replace(
        start,
        log_rest_inverse_temperature=float(parameters[0]),
        rest_biases=parameters[1:] if classes else start.rest_biases,
        bias_strength=strength,
        gradient=max(start.gradient, gradient / problem.n_counted),
        evaluations=start.evaluations + loss.evaluations,
    )
