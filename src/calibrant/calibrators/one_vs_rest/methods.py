"""Calibrators that ask of each class alone "is it this one?", and divide by the sum.

    p_k = g_k(q_k) / sum_i g_i(q_i),    q = softmax(s)

Each g_k is fitted on its own: the samples of class k against all others. Everything is a function
of the log-odds x = log(q_k / (1 - q_k)), which keep their resolution where q_k is close to 0 or 1.

What holds for all of them:

- For two classes there is one problem, that of class 1, and class 0 is its complement: the binary
  method of the textbook.
- A q_k below 2^-52 (or above 1 - 2^-52) counts as that: what lies beyond is a rounded zero, or a
  mask made of a large negative number, and must not tilt a curve. g_k is kept within the same
  bounds, so that no class that is possible ever gets the probability 0.
- A class ruled out by -inf stays at 0. A row in which it is ruled out, or certain because all
  others are, does not count in its problem; where no row is left, all of them count.
- Weights count samples: a row of weight 2 is that row twice.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from calibrant import _inputs
from calibrant._numerics.logspace import softplus, split_top
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, Shapes, State
from calibrant.calibrators.data import FitData, Floats, Samples, row_blocks

MOST_LOG_ODDS = 52 * math.log(2.0)
"""Bound of the log-odds that go in and come out: 36, a probability of 2e-16."""
LARGEST_NUMBER = 1e30
"""No fit comes near it; a file that holds more could overflow."""
RIDGE = 0.3
"""Weight of the squared distance to the identity, in samples: see ``_Logistic``. Chosen on halves
of validation parts (``python -m experiments one-vs-rest-constants``), where less is better with
many samples of some networks, and more with few."""
LEAST_SPREAD = 1e-6
"""Part of the ridge of a slope that is left where all samples have the same q."""
RIDGES = (1e-10, 1e10)
"""Bounds of its weight beside the mean loss: less is lost to rounding, more changes nothing."""
LEAST_TARGET = 2.0**-52
MOST_STEPS = 100
"""Bound of Newton's loop, far above the 5 to 20 steps that a problem needs."""
MOST_HALVINGS = 50
SMALL_DECREMENT = 1e-11
"""Where the criterion can fall by no more than this, the next step is the last."""


def class_log_odds(logits: Array) -> Array:
    """log(q_k / (1 - q_k)) of every class, within the bounds that the module states."""
    xp = array_namespace(logits)
    split = split_top(logits)
    lower = split.log_q - xp.log1p(-split.q)
    log_odds = xp.where(split.is_top, -split.log_odds, lower)
    return xp.clip(log_odds, min=-MOST_LOG_ODDS, max=MOST_LOG_ODDS)


def log_softmax(logits: Array) -> Array:
    """Log-probabilities, exact close to 0 and 1; -inf stays -inf."""
    split = split_top(logits)
    return array_namespace(logits).where(split.is_top, split.log_top, split.z + split.log_top)


@dataclass(frozen=True)
class Problems:
    """The P binary problems of a fit, one for each class; for two classes that of class 1."""

    log_odds: Floats
    """(P, n)"""
    hits: npt.NDArray[np.bool_]
    """(P, n): whether the sample is of the class."""
    weight: Floats
    """(P, n), 0 where the row does not count."""
    n_classes: int

    @classmethod
    def of(cls, data: FitData) -> Problems:
        """Those of checked samples."""
        classes = np.arange(1 if data.n_classes == 2 else 0, data.n_classes)
        log_odds = np.empty((len(classes), len(data)))
        counts = np.empty(log_odds.shape, dtype=np.bool_)
        for block in data.blocks():
            logits = data.logits[block].astype(np.float64)
            possible = logits > -np.inf
            undecided = possible.sum(axis=1, keepdims=True) > 1
            counts[:, block] = (possible & undecided)[:, classes].T
            with np.errstate(over="ignore"):
                log_odds[:, block] = class_log_odds(logits)[:, classes].T
        counts[~counts.any(axis=1)] = True
        weight = np.ones(len(data)) if data.weight is None else data.weight
        weight = np.broadcast_to(weight, log_odds.shape)
        return cls(
            log_odds=log_odds,
            hits=data.labels == classes[:, np.newaxis],
            weight=weight if counts.all() else np.where(counts, weight, 0.0),
            n_classes=data.n_classes,
        )

    def __len__(self) -> int:
        return len(self.log_odds)

    def blocks(self) -> Iterator[slice]:
        """Problems in parts small enough for the processor's cache."""
        return row_blocks(len(self), self.log_odds.shape[1])


class OneVsRest(Calibrator):
    """A calibrated probability of each class by itself, divided by their sum.

    Subclasses write ``_fit_problems`` and ``_calibrated``.
    """

    @abstractmethod
    def _fit_problems(self, problems: Problems) -> dict[str, Any]:
        """The state, and what else :class:`Fitted` takes, by name."""

    @abstractmethod
    def _calibrated(self, log_odds: Array, state: State) -> Array:
        """The log-odds of g_k from those of q_k; the problems are on the last axis."""

    def _fit(self, data: Samples) -> Fitted:
        rows = data.in_memory()
        found = self._fit_problems(Problems.of(rows))
        before = _nll(rows, log_softmax)
        after = _nll(rows, lambda logits: self._log_probs(logits, found["state"]))
        worse = (
            f"the nll rose from {before:.4g} to {after:.4g} on the samples of the fit itself, as "
            "each class is fitted apart and the sum is divided out afterwards; compare with "
            "temperature.",
        )
        return Fitted(
            criterion="nll",
            before=before,
            after=after,
            warnings=worse if after > before else (),
            **found,
        )

    def _log_probs(self, logits: Array, state: State) -> Array:
        xp = array_namespace(logits)
        log_odds = class_log_odds(logits)
        if logits.shape[-1] == 2:
            one = self._calibrated(log_odds[..., 1:], state)
            calibrated = xp.concat([-one, one], axis=-1)
        else:
            calibrated = self._calibrated(log_odds, state)
        bounded = xp.clip(calibrated, min=-MOST_LOG_ODDS, max=MOST_LOG_ODDS)
        absent = logits == -float("inf")
        return log_softmax(xp.where(absent, -float("inf"), -softplus(-bounded)))

    def _refuse_state(self, state: State) -> str | None:
        expected = 1 if self.n_classes_ == 2 else self.n_classes_
        for name, values in state.items():
            if len(values) != expected:
                return f"{name!r} is for {len(values)} problems, not {expected}"
            if np.abs(values).max() > LARGEST_NUMBER:
                return f"{name!r} holds a number beyond {LARGEST_NUMBER:g}"
        return None


def _nll(data: FitData, log_probs: Callable[[Array], Array]) -> float:
    losses = np.empty(len(data))
    with np.errstate(over="ignore"):
        for block in data.blocks():
            labels = data.labels[block]
            wide = data.logits[block].astype(np.float64)
            losses[block] = -log_probs(wide)[np.arange(len(labels)), labels]
    return data.mean(losses)


class _Logistic(OneVsRest):
    """g = sigmoid(z), with z a sum of slopes (not below 0) times features of x, and a shift.

    The criterion is the log loss, which is convex. Two things keep its minimum finite and unique
    for every input:

    - Platt's targets in place of 1 and 0: of two samples, the part 2/K stands on the other side.
      With N+ samples of the class and N- others they are 1 - (2/K) / (N+ + 2) and
      (2/K) / (N- + 2), for two classes those of the paper. So a class that a threshold tells
      apart without an error gets no infinite slope, and one without samples gets a small g. On
      halves of validation parts the paper's part, 1 for any K, has a higher mean NLL, above all
      with many classes or few samples.
    - A ridge towards the identity: that of 0.3 is as if the slopes were drawn around 1, and z at
      q = 1/K around its log-odds, with deviation 1.8. It decides where a class has a few samples
      and is lost among a hundred. The slopes count less where x varies by less than 1, so that
      logits in small units can still be made large.

    The last name in ``STATE`` is the shift.
    """

    def __init__(self, *, ridge: float = RIDGE) -> None:
        self.ridge = ridge

    def _check_params(self) -> None:
        _inputs.strength(self.ridge, "ridge")

    @abstractmethod
    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        """What the slopes multiply, in the order of ``STATE``."""

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        *slopes, z = (state[name] for name in self.STATE)
        for slope, feature in zip(slopes, self._features(log_odds), strict=True):
            z = z + slope * feature
        return z

    def _fit_problems(self, problems: Problems) -> dict[str, Any]:
        even = -math.log(problems.n_classes - 1)  # the log-odds of 1/K
        at_even = np.array([float(feature) for feature in self._features(np.asarray(even))])
        parts = [
            _bounded_minimum(self._losses(problems, block, even, at_even))
            for block in problems.blocks()
        ]
        parameters = np.concatenate([part.parameters for part in parts])
        parameters[:, -1] -= parameters[:, :-1] @ at_even
        n_held = (parameters[:, :-1] == 0.0).sum(axis=0)
        held = [
            f"{name} = 0 in {count} of {len(problems)} problems"
            for name, count in zip(self.STATE, n_held, strict=False)
            if count
        ]
        return {
            "state": dict(zip(self.STATE, parameters.T.copy(), strict=True)),
            "gradient": max(part.gradient for part in parts),
            "at_bound": ", ".join(held) or None,
            "evaluations": max(part.steps for part in parts),
            "n_parameters": parameters.size,
        }

    def _losses(
        self, problems: Problems, block: slice, even: float, at_even: Floats
    ) -> _LogisticLosses:
        """The criterion with features that are 0 at ``even``, so that the shift is z there."""
        log_odds, hits = problems.log_odds[block], problems.hits[block]
        weight = problems.weight[block]
        total = weight.sum(axis=1, keepdims=True)
        n_hits = (weight * hits).sum(axis=1, keepdims=True)
        share = 2.0 / problems.n_classes
        other_side = share / (np.where(hits, n_hits, total - n_hits) + 2.0)
        other_side = np.maximum(other_side, LEAST_TARGET)
        features = [
            feature - here for feature, here in zip(self._features(log_odds), at_even, strict=True)
        ]
        shape = _ridge_shape(log_odds, weight / total, len(features))
        ridge = min(float(self.ridge), LARGEST_NUMBER) * shape / np.maximum(total, 1.0)
        return _LogisticLosses(
            features=np.stack([*features, np.ones_like(log_odds)], axis=1),
            targets=np.where(hits, 1.0 - other_side, other_side),
            weight=weight / np.maximum(total, 1.0),
            ridge=np.clip(ridge, *RIDGES),
            identity=np.array([1.0] * len(features) + [even]),
        )

    def _refuse_state(self, state: State) -> str | None:
        for name in list(self.STATE)[:-1]:
            if (state[name] < 0.0).any():
                return f"{name!r} holds {state[name].min():g}, below 0"
        return super()._refuse_state(state)


def _ridge_shape(log_odds: Floats, share: Floats, n_features: int) -> Floats:
    """(P, D): the part of the ridge that each parameter gets: 1, or less for a slope."""
    mean = (share * log_odds).sum(axis=1, keepdims=True)
    spread = (share * (log_odds - mean) ** 2).sum(axis=1)
    slopes = np.clip(spread, LEAST_SPREAD, 1.0)
    return np.stack([slopes] * n_features + [np.ones_like(slopes)], axis=1)


class PlattScaling(_Logistic):
    r"""Platt scaling of each class: a logistic curve of its log-odds.

    .. math:: g_k = \sigma(a_k \log\frac{q_k}{1 - q_k} + b_k), \quad a_k \ge 0

    With a slope not below 0 the samples keep their order within a class; the predicted class can
    change. Slope 1 and shift 0 change nothing. Two numbers a class are fitted, by Newton's method.

    Targets are smoothed as in the paper: 1 - (2/K) / (N+ + 2) for the N+ samples of the class and
    (2/K) / (N- + 2) for the others. A ridge pulls towards the identity: it settles classes with
    hardly any samples, and can hardly be seen in the others.

    Args:
        ridge: Its weight in samples, above 0. The default was chosen on halves of validation parts
            alone (``python -m experiments one-vs-rest-constants``).

    Attributes:
        slope_: a_k of each class; for two classes that of class 1 alone.
        shift_: b_k.

    Reference: J. Platt, Probabilistic outputs for support vector machines (1999).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.methods import PlattScaling
        >>> rng = np.random.default_rng(0)
        >>> log_odds = rng.normal(scale=2.0, size=5000)
        >>> labels = (rng.random(5000) < 1 / (1 + np.exp(-log_odds))).astype(int)
        >>> overconfident = np.stack([np.zeros(5000), 4 * log_odds + 2], axis=1)
        >>> platt = PlattScaling().fit(overconfident, labels)
        >>> platt.slope_.round(2), platt.shift_.round(1)  # the exact inverse: 1/4 and -1/2
        (array([0.25]), array([-0.5]))
    """

    NAME = "platt"
    STATE: ClassVar[Shapes] = {"slope": ("P",), "shift": ("P",)}

    @property
    def slope_(self) -> Floats:
        """The fitted slopes."""
        return np.asarray(self.state_["slope"])

    @property
    def shift_(self) -> Floats:
        """The fitted shifts."""
        return np.asarray(self.state_["shift"])

    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        return (log_odds,)


class BetaCalibration(_Logistic):
    r"""Beta calibration of each class: a slope of its own at either end.

    .. math:: g_k = \sigma(a_k \log q_k - b_k \log(1 - q_k) + c_k), \quad a_k, b_k \ge 0

    The right map where q_k is beta-distributed both among the samples of class k and among the
    others. a = b is Platt scaling, a = b = 1 and c = 0 change nothing. Three numbers a class are
    fitted, with the same targets and the same ridge as in :class:`PlattScaling`; where the best
    a or b would be below 0, the best curve with 0 in its place is taken.

    Args:
        ridge: As in :class:`PlattScaling`.

    Attributes:
        a_: Slope at small q_k, of each class; for two classes that of class 1 alone.
        b_: Slope at large q_k.
        c_: Shift.

    Reference: M. Kull, T. Silva Filho, P. Flach, Beta calibration (AISTATS 2017).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.methods import BetaCalibration
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, size=5000)
        >>> q = np.where(labels == 1, rng.beta(4, 2, size=5000), rng.beta(2, 5, size=5000))
        >>> beta = BetaCalibration().fit(probs=np.stack([1 - q, q], axis=1), labels=labels)
        >>> beta.a_.round(1), beta.b_.round(1)  # in the limit 4 - 2 and 5 - 2
        (array([2.1]), array([2.9]))
    """

    NAME = "beta"
    STATE: ClassVar[Shapes] = {"a": ("P",), "b": ("P",), "c": ("P",)}

    @property
    def a_(self) -> Floats:
        """The fitted slopes at small q_k."""
        return np.asarray(self.state_["a"])

    @property
    def b_(self) -> Floats:
        """The fitted slopes at large q_k."""
        return np.asarray(self.state_["b"])

    @property
    def c_(self) -> Floats:
        """The fitted shifts."""
        return np.asarray(self.state_["c"])

    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        return -softplus(-log_odds), softplus(log_odds)


@dataclass(frozen=True)
class _LogisticLosses:
    """The criterion of each problem, as a function of its D parameters.

    The weighted mean of log(1 + e^z) - t z, with z the features times the parameters, and half
    the ridge.
    """

    features: Floats
    """(P, D, n), the last one 1."""
    targets: Floats
    """(P, n)"""
    weight: Floats
    """(P, n), summing to 1 (or to the weight of all samples, where that is less)."""
    ridge: Floats
    """(P, D)"""
    identity: Floats
    """(D,)"""

    def of(self, rows: npt.NDArray[np.intp]) -> _LogisticLosses:
        """Those of some problems."""
        if len(rows) == len(self.features):
            return self
        return replace(
            self,
            features=self.features[rows],
            targets=self.targets[rows],
            weight=self.weight[rows],
            ridge=self.ridge[rows],
        )

    def values(self, parameters: Floats) -> Floats:
        """(P,)"""
        z = self._sums(parameters)
        losses = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))) - self.targets * z
        ridge = self.ridge * (parameters - self.identity) ** 2
        return np.asarray((self.weight * losses).sum(axis=1) + ridge.sum(axis=1) / 2.0)

    def derivatives(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Gradient (P, D) and Hessian (P, D, D)."""
        z = self._sums(parameters)
        smaller = np.exp(-np.abs(z))
        g = np.where(z < 0.0, smaller, 1.0) / (1.0 + smaller)
        slope = self.weight * (g - self.targets)
        gradient = (self.features @ slope[:, :, np.newaxis])[:, :, 0]
        curvature = self.weight * (g * (1.0 - g))
        hessian = (self.features * curvature[:, np.newaxis, :]) @ self.features.transpose(0, 2, 1)
        return (
            gradient + self.ridge * (parameters - self.identity),
            hessian + self.ridge[:, :, np.newaxis] * np.eye(len(self.identity)),
        )

    def _sums(self, parameters: Floats) -> Floats:
        return (parameters[:, np.newaxis, :] @ self.features)[:, 0, :]


@dataclass(frozen=True)
class _Minimum:
    parameters: Floats
    """(P, D)"""
    gradient: float
    """Largest slope left, among the parameters that are not held at 0."""
    steps: int


def _bounded_minimum(losses: _LogisticLosses) -> _Minimum:
    """The minimum with no parameter but the last below 0.

    Where the free minimum breaks a bound, the answer lies on a face: some parameters are 0. There
    are at most three faces. Each is a free problem again, and the lowest minimum that keeps the
    bounds is the answer.
    """
    n_problems, n_parameters = losses.ridge.shape
    parameters = np.zeros((n_problems, n_parameters))
    gradient = np.zeros(n_problems)
    lowest = np.full(n_problems, np.inf)
    left = np.arange(n_problems)
    steps = 0
    for held in _faces(n_parameters):
        part = losses.of(left)
        found, slope, n_steps = _newton(part, held)
        steps += n_steps
        keeps_bounds = (found[:, :-1] >= 0.0).all(axis=1)
        values = np.where(keeps_bounds, part.values(found), np.inf)
        better = values < lowest[left]
        rows = left[better]
        parameters[rows], gradient[rows] = found[better], slope[better]
        lowest[rows] = values[better]
        if not held:
            left = left[~better]
        if len(left) == 0:
            break
    return _Minimum(parameters, float(gradient.max()), steps)


def _faces(n_parameters: int) -> Iterator[tuple[int, ...]]:
    """Which parameters are held at 0: none first, then every choice among all but the last."""
    for size in range(n_parameters):
        yield from combinations(range(n_parameters - 1), size)


def _newton(losses: _LogisticLosses, held: tuple[int, ...]) -> tuple[Floats, Floats, int]:
    """Parameters, the largest slope left, and the number of steps."""
    n_problems, n_parameters = losses.ridge.shape
    free = np.array([j not in held for j in range(n_parameters)])
    parameters = np.zeros((n_problems, n_parameters))
    mean = np.average(losses.targets, weights=losses.weight, axis=1)
    parameters[:, -1] = np.log(mean) - np.log1p(-mean)
    values = losses.values(parameters)
    moving = np.arange(n_problems)
    step = 0
    while len(moving) and step < MOST_STEPS:
        step += 1
        part, start = losses.of(moving), parameters[moving]
        gradient, hessian = part.derivatives(start)
        gradient = gradient * free
        hessian = np.where(free & free[:, np.newaxis], hessian, np.eye(n_parameters))
        direction = -np.linalg.solve(hessian, gradient[:, :, np.newaxis])[:, :, 0]
        decrement = -np.sum(gradient * direction, axis=1)
        move, values[moving] = _line_search(part, start, values[moving], direction, decrement)
        parameters[moving] = start + move
        moving = moving[decrement > SMALL_DECREMENT]
    slope = np.where(free, np.abs(losses.derivatives(parameters)[0]), 0.0).max(axis=1)
    return parameters, slope, step


def _line_search(
    losses: _LogisticLosses, start: Floats, value: Floats, direction: Floats, decrement: Floats
) -> tuple[Floats, Floats]:
    """The steps taken, and the criterion after them.

    The full step where the criterion falls as it should, else half of it, and so on. The last
    step of a problem is taken in full: by then the criterion is flat to rounding.
    """
    size = np.ones((len(start), 1))
    after = value.copy()
    searching = np.flatnonzero(decrement > SMALL_DECREMENT)
    for _ in range(MOST_HALVINGS):
        trial = start[searching] + size[searching] * direction[searching]
        after[searching] = losses.of(searching).values(trial)
        enough = value[searching] - 1e-4 * size[searching, 0] * decrement[searching]
        searching = searching[after[searching] > enough]
        if len(searching) == 0:
            break
        size[searching] *= 0.5
    return size * direction, after
