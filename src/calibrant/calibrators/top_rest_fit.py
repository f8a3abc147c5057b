"""The two regressions of top-rest scaling; see ``top_rest`` for the map.

Both minimise a log-loss plus half a sum of squares, the most probable values under normal priors.
The top part is a logistic regression: convex, solved by Newton's method with bounds that keep its
slopes from falling below 0. The rest is convex in its biases and smooth in log T'.

The variance of the class terms is the one that makes the samples most probable, by MacKay's fixed
point: the squares of the terms against how many of them the samples determine. Where the classes do
not differ it shrinks to nothing, and so do they.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.binning import all_whole
from calibrant.calibrators.base import FitData, Fitted, Floats
from calibrant.calibrators.limits import LIMITS
from calibrant.calibrators.temperature import BestTemperature, best_temperature
from calibrant.calibrators.top_rest import KNOTS, LARGEST_ODDS, MOST_STRETCH, pieces, sigmoid

STRENGTH = 1.0
"""Of the squares of slopes, offset and contest: a prior of variance 1 around temperature scaling.
Chosen on validation rows of every second network; 0.5 to 5 do about as well."""
REST_STRENGTH = 5.0
"""Of the square of log T'. Mistakes are few."""
FIRST_STRENGTH = 20.0
STRENGTHS = (0.05, 1e3)
"""Of the squares of class terms: where the estimate starts, and its bounds."""
SETTLED = 0.25
"""Step of the logarithm of a strength that is not worth another round."""
LARGEST_STEP = 2.0
MOST_ROUNDS = 10
MOST_STEPS = 60
LENGTHS = (1.0, 0.5, 0.25, 0.125)
"""Parts of a step that are tried."""
CLOSE, REST_CLOSE = 1e-3, 0.05
"""A search stops about this many standard errors of a parameter from the minimum."""
MOST_ENTRIES = 1 << 21
"""Logits of mistakes that the rest is fitted on; where there are more, every second row or so."""
MOST_ODDS = 100.0
"""Log-odds beyond this count as this in the fit, where a mistake would drown all other samples."""
REST_BOUND = 3.0
"""Bound of |log T'|: a factor of 20."""

N_SLOPES = len(KNOTS) + 1
START = np.array([1.0] * N_SLOPES + [0.0, 0.0])
"""Slopes, offset and contest of temperature scaling."""
LOWEST_WEIGHTS = np.array([0.0] * N_SLOPES + [-np.inf, -np.inf])


@dataclass(frozen=True)
class TopRest:
    """What is fitted besides T."""

    weights: Floats
    """Slopes, offset, contest."""
    class_offsets: Floats
    offset_strength: float
    log_sharpness: float
    """-log T'."""
    rest_biases: Floats
    bias_strength: float
    gradient: float = 0.0
    """Largest slope of the mean loss left, per parameter."""
    evaluations: int = 0

    @classmethod
    def unchanged(cls, n_classes: int) -> TopRest:
        """Temperature scaling."""
        nothing = np.zeros(n_classes)
        return cls(START, nothing, FIRST_STRENGTH, 0.0, nothing, FIRST_STRENGTH)


@dataclass(frozen=True)
class Losses:
    """Of each sample: the log-loss, and the log-odds of the predicted class."""

    loss: Floats
    odds: Floats
    free_odds: Floats
    """The log-odds before the bounds that keep the predicted class."""


@dataclass(frozen=True)
class Problem:
    """Checked samples at their best temperature, and what both regressions need of them."""

    data: FitData
    best: BestTemperature
    chosen: npt.NDArray[np.intp]
    """(n,): which rows of ``data`` these are; the arrays below have one value for each of them."""
    count: Floats
    """How many samples a row counts for. Whole-number weights are repetitions; others are scaled so
    that their sum is the number of equal weights that would be as exact."""
    top: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    lead: Floats
    """(s_m - s_r) / T."""
    level: Floats
    """Log-probability of the runner-up among the rest, at T."""
    of_label: Floats
    """That of the label; 0 where it is on top itself."""
    mistake_count: Floats
    """What a row counts for in the fit of the rest: 0 where it is right, or a mistake too many."""

    @classmethod
    def of(cls, data: FitData) -> Problem:
        """The samples at the temperature of temperature scaling.

        Where no label lies below the top that temperature is 0, and says only that there was no
        mistake: the model's own, 1, is kept.
        """
        from calibrant._compiled import threads_for
        from calibrant.calibrators._kernels import lead_rows

        best = best_temperature(data, "nll", 0.0)
        if best.limit == "T -> 0":
            best = replace(best, temperature=1.0)
        top = np.empty(len(data), dtype=np.int64)
        lead, level, of_label = (np.empty(len(data)) for _ in range(3))
        beta = 1.0 / best.temperature
        with threads_for(data.logits.size):
            lead_rows(data.logits, data.labels, beta, top, lead, level, of_label)
        count, right = _counts(data), top == data.labels
        wrong = np.flatnonzero(~right)
        stride = max(1, -(-len(wrong) * data.n_classes // MOST_ENTRIES))
        mistake_count = np.zeros(len(data))
        mistake_count[wrong[::stride]] = stride * count[wrong[::stride]]
        return cls(
            data=data,
            best=best,
            chosen=np.arange(len(data)),
            count=count,
            top=top,
            right=right,
            mistake_count=mistake_count,
            lead=np.minimum(lead, LARGEST_ODDS),
            level=level,
            of_label=of_label,
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, part: npt.NDArray[np.intp]) -> Problem:
        """The same at the same temperature, of some rows."""
        of_rows = [each.name for each in fields(self) if each.name not in ("data", "best")]
        return replace(self, **{name: getattr(self, name)[part] for name in of_rows})

    @property
    def beta(self) -> float:
        """1/T."""
        return 1.0 / self.best.temperature

    @property
    def odds(self) -> Floats:
        """Log-odds of the top class at T."""
        return self.lead + self.level

    def features(self, most_odds: float = LARGEST_ODDS) -> Floats:
        """(n, 7): what slopes, offset and contest are the factors of."""
        columns = [*pieces(np.minimum(self.odds, most_odds)), np.ones(len(self)), self.level]
        return np.stack(columns, axis=1)

    def mistakes(self) -> FitData:
        """The rows that the rest is fitted on; ``weight`` is what they count for."""
        wrong = np.flatnonzero(self.mistake_count)
        rows = self.chosen[wrong]
        return FitData(self.data.logits[rows], self.data.labels[rows], self.mistake_count[wrong])

    def losses(self, found: TopRest) -> Losses:
        """Of every sample under the map with these numbers."""
        free_odds = self.features() @ found.weights + found.class_offsets[self.top]
        level, of_label = self._rest(found, free_odds)
        odds = np.maximum(free_odds, level + self.lead / MOST_STRETCH)
        odds = np.minimum(odds, level + self.lead * MOST_STRETCH)
        of_top = np.logaddexp(0.0, np.where(self.right, -odds, odds))
        return Losses(of_top - of_label, odds, free_odds)

    def _rest(self, found: TopRest, odds: Floats) -> tuple[Floats, Floats]:
        """Log-probabilities among the rest: the largest, and that of the label (0 if on top).

        The largest is only used to bound ``odds``, and only computed where it may.
        """
        from calibrant._compiled import threads_for
        from calibrant.calibrators._kernels import rest_rows

        # At T itself both follow from what is there.
        level, of_label = self.level.copy(), self.of_label.copy()
        if found.log_sharpness == 0.0 and not found.rest_biases.any():
            return level, of_label
        # The largest of K - 1 probabilities is at least 1 / (K - 1).
        lowest = -math.log(self.data.n_classes - 1)
        bounded = odds > self.lead * MOST_STRETCH + lowest
        needed = np.flatnonzero(~self.right | (odds < self.lead / MOST_STRETCH) | bounded)
        rows = self.chosen[needed]
        logits, labels = self.data.logits[rows], self.data.labels[rows]
        levels, of_labels = np.empty(len(rows)), np.empty(len(rows))
        sharpness = math.exp(found.log_sharpness)
        with threads_for(logits.size):
            rest_rows(logits, labels, self.beta, sharpness, found.rest_biases, levels, of_labels)
        level[needed], of_label[needed] = levels, of_labels
        return level, of_label

    def state(self, found: TopRest) -> dict[str, Any]:
        """As the calibrator keeps it."""
        return {
            "temperature": self.best.temperature,
            "slopes": found.weights[:N_SLOPES].copy(),
            "offset": float(found.weights[N_SLOPES]),
            "contest": float(found.weights[N_SLOPES + 1]),
            "class_offsets": found.class_offsets,
            "rest_temperature": math.exp(-found.log_sharpness),
            "rest_biases": found.rest_biases,
        }

    def fitted(self, found: TopRest) -> Fitted:
        """With the NLL before and after; temperature scaling where that is not above it."""
        data, unchanged = self.data, TopRest.unchanged(self.data.n_classes)
        after, plain = (data.mean(self.losses(each).loss) for each in (found, unchanged))
        if not after <= plain:
            found, after = unchanged, plain
        doubts = () if self.best.limit is None else (LIMITS[self.best.limit],)
        return Fitted(
            state=self.state(found),
            criterion="nll",
            before=_nll_as_given(data),
            after=after,
            gradient=found.gradient,
            at_bound=self.best.limit,
            evaluations=self.best.evaluations + found.evaluations + 3,
            n_parameters=2 + len(START),  # class terms are as many as the samples determine
            warnings=doubts,
        )


def fit(problem: Problem, *, classes: bool) -> TopRest:
    """Both regressions; the strengths of class terms are estimated."""
    start = TopRest.unchanged(problem.data.n_classes)
    top = _fit_top(problem, start, classes=classes, estimate=classes)
    return _fit_rest(problem, top, classes=classes, estimate=classes)


def refit(problem: Problem, like: TopRest, *, classes: bool) -> TopRest:
    """The same on other samples, with the strengths of ``like``, which is where the search starts.

    Without class terms only the top part is fitted: T', like T, is one number of all samples.
    """
    top = _fit_top(problem, replace(like, evaluations=0), classes=classes, estimate=False)
    return _fit_rest(problem, top, classes=True, estimate=False) if classes else top


def _fit_top(problem: Problem, start: TopRest, *, classes: bool, estimate: bool) -> TopRest:
    """Slopes, offset, contest and class offsets, from whether the predicted class is right."""
    order = np.argsort(problem.top, kind="stable")
    regression = _Logistic(
        problem.features(MOST_ODDS)[order],
        problem.right[order],
        problem.count[order],
        problem.top[order],
        problem.data.n_classes if classes else 0,
    )
    weights, offsets, strength = start.weights, start.class_offsets, start.offset_strength
    search, gradient = _StrengthSearch(), 0.0
    for _ in range(MOST_ROUNDS):
        weights, offsets, gradient = regression.minimise(weights, offsets, strength)
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
        gradient=gradient / problem.count.sum(),
        evaluations=start.evaluations + regression.evaluations,
    )


class _Logistic:
    """A logistic regression with one more term for each class, rows sorted by class."""

    def __init__(
        self,
        features: Floats,
        right: npt.NDArray[np.bool_],
        count: Floats,
        top: npt.NDArray[np.int64],
        n_classes: int,
    ) -> None:
        self.features = features
        self.right = right
        self.count = count
        self.top = top
        self.n_classes = n_classes
        """0 where there are no class terms."""
        self.present, self.first = np.unique(top, return_index=True)
        self.evaluations = 0

    def minimise(
        self, weights: Floats, offsets: Floats, strength: float
    ) -> tuple[Floats, Floats, float]:
        """Weights, class offsets, and the largest slope left, from a start.

        Where a step of Newton's method goes far too far, as the loss is straight where it starts
        and bends on the way, a cautious one follows: on a parabola that lies above the loss.
        """
        from scipy.optimize import lsq_linear

        value = self._value(weights, offsets, strength)
        slope, cautious = math.inf, False
        for _ in range(MOST_STEPS):
            by_weights, by_offsets, system, mixed, bend = self._derivatives(
                weights, offsets, strength, cautious=cautious
            )
            at_bound = (weights <= LOWEST_WEIGHTS) & (by_weights > 0.0)
            slope = float(
                np.abs(np.concatenate([np.where(at_bound, 0.0, by_weights), by_offsets])).max()
            )
            # The class offsets are eliminated: given the weights, each is on its own.
            reduced = system - mixed.T @ (mixed / bend[:, np.newaxis])
            target = by_weights - mixed.T @ (by_offsets / bend)
            root = np.linalg.cholesky(reduced).T
            wanted = root @ weights - np.linalg.solve(root.T, target)
            bounded = lsq_linear(root, wanted, bounds=(LOWEST_WEIGHTS, np.inf), method="bvls")
            step = bounded.x - weights
            offset_step = -(by_offsets + mixed @ step) / bend
            decrease = -(by_weights @ step + by_offsets @ offset_step)
            if decrease <= CLOSE**2 and not cautious:
                break
            for length in LENGTHS:
                nearby = weights + length * step, offsets + length * offset_step
                there = self._value(*nearby, strength)
                if there <= value - 1e-4 * length * decrease:
                    (weights, offsets), value, cautious = nearby, there, False
                    break
            else:
                if cautious:  # nothing is left but rounding
                    break
                cautious = True
        return weights, offsets, slope

    def curvature_of_classes(self, weights: Floats, offsets: Floats) -> Floats:
        """How sharply the loss alone bends along each class offset."""
        p = sigmoid(self._odds(weights, offsets))
        return self._by_class(self.count * p * (1.0 - p))

    def _odds(self, weights: Floats, offsets: Floats) -> Floats:
        odds = self.features @ weights
        return odds + offsets[self.top] if self.n_classes else odds

    def _value(self, weights: Floats, offsets: Floats, strength: float) -> float:
        self.evaluations += 1
        odds = self._odds(weights, offsets)
        loss = float(self.count @ np.logaddexp(0.0, np.where(self.right, -odds, odds)))
        away = weights - START
        return loss + 0.5 * float(STRENGTH * (away @ away) + strength * (offsets @ offsets))

    def _derivatives(
        self, weights: Floats, offsets: Floats, strength: float, *, cautious: bool
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Slopes by weights and offsets; second derivatives by weights, both, and offsets.

        The cautious second derivatives are those of a parabola that touches the loss and is
        nowhere below it (Jaakkola and Jordan, 2000).
        """
        odds = self._odds(weights, offsets)
        p = sigmoid(odds)
        excess = self.count * (p - self.right)
        bend = self.count * p * (1.0 - p)
        if cautious:
            size = np.maximum(np.abs(odds), 1e-6)
            bend = self.count * np.tanh(size / 2.0) / (2.0 * size)
        bent = bend[:, np.newaxis] * self.features
        by_weights = self.features.T @ excess + STRENGTH * (weights - START)
        system = self.features.T @ bent + STRENGTH * np.eye(len(START))
        if not self.n_classes:
            nothing = np.zeros(len(offsets))
            mixed = np.zeros((len(offsets), len(START)))
            return by_weights, nothing, system, mixed, np.ones(len(offsets))
        by_offsets = self._by_class(excess) + strength * offsets
        return by_weights, by_offsets, system, self._by_class(bent), self._by_class(bend) + strength

    def _by_class(self, values: Floats) -> Floats:
        sums = np.zeros((self.n_classes, *values.shape[1:]))
        sums[self.present] = np.add.reduceat(values, self.first, axis=0)
        return sums


def _fit_rest(problem: Problem, start: TopRest, *, classes: bool, estimate: bool) -> TopRest:
    """T' and the biases, from the rows whose label is not the top class."""
    from scipy.optimize import Bounds, minimize

    wrong = problem.mistakes()
    n_classes = wrong.n_classes
    if len(wrong) == 0 or n_classes == 2:  # the rest is empty, or of one class
        return start
    parameters = np.concatenate([[start.log_sharpness], start.rest_biases if classes else []])
    strength = start.bias_strength
    total = float(problem.count.sum())
    loss = _RestLoss(problem, wrong)
    search, slope = _StrengthSearch(), 0.0
    for _ in range(MOST_ROUNDS):
        strengths = np.full(len(parameters), strength)
        strengths[0] = REST_STRENGTH
        unit = 1.0 / np.sqrt(loss.curvatures(parameters) + strengths)
        bounds = np.full(len(parameters), np.inf)
        bounds[0] = REST_BOUND
        found = minimize(
            loss.in_units,
            parameters / unit,
            args=(unit, strengths),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(-bounds / unit, bounds / unit),
            options={"ftol": 0.0, "gtol": REST_CLOSE, "maxiter": MOST_STEPS},
        )
        parameters = found.x * unit
        inside = (np.abs(found.x) < bounds / unit) | (found.x * found.jac > 0.0)
        slope = float(np.abs(np.where(inside, found.jac / unit, 0.0)).max()) / total
        if not estimate:
            break
        curvature = loss.curvatures(parameters)[1:]
        strength, settled = search.following(strength, parameters[1:], curvature)
        if settled:
            break
    return replace(
        start,
        log_sharpness=float(parameters[0]),
        rest_biases=parameters[1:] if classes else start.rest_biases,
        bias_strength=strength,
        gradient=max(start.gradient, slope),
        evaluations=start.evaluations + loss.evaluations,
    )


class _RestLoss:
    """The log-loss of the labels of mistakes among the classes that are not on top."""

    def __init__(self, problem: Problem, wrong: FitData) -> None:
        from calibrant._compiled import threads_for
        from calibrant.calibrators._kernels import exponents_of_rest

        self.labels, self.weight = wrong.labels, wrong.weight
        self.x: Floats = np.empty(wrong.logits.shape)
        self.top = np.empty(len(wrong), dtype=np.int64)
        with threads_for(wrong.logits.size):
            exponents_of_rest(wrong.logits, problem.beta, self.top, self.x)
        self.evaluations = 0
        self.last: tuple[Floats, tuple[float, Floats, Floats]] | None = None

    def in_units(self, inner: Floats, unit: Floats, strengths: Floats) -> tuple[float, Floats]:
        """The penalised loss and its slopes, parameters in these units."""
        parameters = inner * unit
        loss, slopes, _ = self._slopes(parameters)
        value = loss + 0.5 * float(strengths @ parameters**2)
        return value, (slopes + strengths * parameters) * unit

    def curvatures(self, parameters: Floats) -> Floats:
        """How sharply the loss alone bends along each parameter."""
        return self._slopes(parameters)[2]

    def _slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        if self.last is None or not np.array_equal(self.last[0], parameters):
            self.last = parameters.copy(), self._computed(parameters)
        return self.last[1]

    def _computed(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The loss, its slopes, and its second derivatives along each parameter."""
        from calibrant._compiled import threads_for
        from calibrant.calibrators._kernels import BLOCK, rest_slopes

        self.evaluations += 1
        n, n_classes = self.x.shape
        bias = parameters[1:] if len(parameters) > 1 else np.zeros(n_classes)
        n_blocks = -(-n // BLOCK)
        by_class, curvature = np.zeros((n_blocks, n_classes)), np.zeros((n_blocks, n_classes))
        sums = np.zeros((n_blocks, 3))
        sharpness = math.exp(parameters[0])
        with threads_for(self.x.size):
            rest_slopes(
                self.x,
                self.top,
                self.labels,
                self.weight,
                sharpness,
                bias,
                by_class,
                curvature,
                sums,
            )
        loss, slope, bend = sums.sum(axis=0)
        n_biases = len(parameters) - 1
        slopes = np.concatenate([[slope], by_class.sum(axis=0)[:n_biases]])
        return float(loss), slopes, np.concatenate([[bend], curvature.sum(axis=0)[:n_biases]])


class _StrengthSearch:
    """The search for MacKay's fixed point by the secant method, on the logarithm of a strength.

    Iterating the fixed point itself would take hundreds of rounds where it is close to a limit.
    """

    def __init__(self) -> None:
        self.last: tuple[float, float] | None = None

    def following(self, strength: float, terms: Floats, curvature: Floats) -> tuple[float, bool]:
        """The next strength, and whether it is close enough to the one before."""
        determined = float((curvature / (curvature + strength)).sum())
        squares = max(float(terms @ terms), 1e-12)
        here, change = math.log(strength), math.log(max(determined, 1e-12) / squares / strength)
        # Near a limit the fixed point moves by next to nothing, however far away the limit is.
        step = math.copysign(LARGEST_STEP, change)
        if self.last is not None and self.last[1] != change:
            secant = change * (self.last[0] - here) / (change - self.last[1])
            step = min(max(secant, -LARGEST_STEP), LARGEST_STEP) if secant * change > 0.0 else step
        self.last = here, change
        low, high = map(math.log, STRENGTHS)
        there = min(max(here + step, low), high)
        return math.exp(there), abs(there - here) <= SETTLED


def _counts(data: FitData) -> Floats:
    if data.weight is None:
        return np.ones(len(data))
    if all_whole(data.weight):
        return data.weight
    share = data.weight / data.weight.max()
    return np.asarray(share * (share.sum() / (share @ share)))


def _nll_as_given(data: FitData) -> float:
    from calibrant.calibrators.temperature import criterion_by_name

    return criterion_by_name("nll", 0.0)(data, 1.0).value
