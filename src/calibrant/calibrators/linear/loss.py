"""The criterion of the linear calibrators: a regression with penalties, around one temperature.

    minimise over N, b:   mean of -log softmax(x / T + N f + b)_y
                          + sum of strength * N^2 + intercept * sum of b_k^2

x are the centred logits in units of their typical size, f the features (x itself, or the
log-probabilities in units of theirs), T the best temperature. The correction N is a matrix, a
vector (a diagonal), or one number. In these units nothing depends on the size of the logits.
N = 0, b = 0 is temperature scaling, towards which the penalties pull.

The criterion is convex in (N, b). If every entry has a penalty it is strictly convex, so there is
one minimum, and it is finite for every input.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import detach
from calibrant._types import Array
from calibrant.calibrators.data import FitData, Floats, Samples, weighted_median
from calibrant.calibrators.temperature.rows import distances_below_top
from calibrant.calibrators.temperature.solver import BestTemperature, best_temperature

LEAST_SIZE = 1e-30
"""Rows whose logits differ by less than this do not count for the typical size."""
MOST_FEATURE = 1e30
"""Larger entries of x and f are reduced to this: such a row is certain of its class either way."""
FAR = 1e3
"""A logit is taken for a mask if it is this many times farther below the largest of its row than a
typical competitor. On 43 real networks none is more than 15 times farther."""
Singles: TypeAlias = npt.NDArray[np.float32]
MOST_KEPT = 1 << 20
"""Largest number of features that are kept in single precision, in 4 bytes each."""
HELD = 0.5
"""If a Newton step on the NLL alone would move a score by more, the penalty decides."""


def centred_logits(logits: Array) -> Array:
    """Logits minus the mean of the finite logits of their row; 0 for absent classes.

    The largest logit is subtracted first, so that a large common offset costs no digits and nothing
    overflows.
    """
    xp = array_namespace(logits)
    possible = logits > -float("inf")
    top = detach(xp.max(logits, axis=-1, keepdims=True))
    below = xp.clip(logits - top, min=float(xp.finfo(logits.dtype).min) / 2.0)
    below = xp.where(possible, below, 0.0)
    count = xp.sum(xp.astype(possible, logits.dtype), axis=-1, keepdims=True)
    return xp.where(possible, below - xp.sum(below / count, axis=-1, keepdims=True), 0.0)


class RegressionRows(Protocol):
    """Samples in the units of the fit, in memory or elsewhere."""

    @property
    def data(self) -> Samples:
        """The samples themselves."""

    @property
    def size(self) -> float:
        """Typical size of the centred logits."""

    @property
    def feature_size(self) -> float:
        """Typical size of the features; its inverse is the unit of N."""

    @property
    def n_masked(self) -> int:
        """Number of rows with finite logits that seem to mark absent classes."""

    @property
    def best(self) -> BestTemperature:
        """The best temperature by NLL."""

    @property
    def all_uniform(self) -> bool:
        """Whether every row is uniform over its classes."""

    def loss(
        self, inverse_temperature: float, shape: tuple[int, ...], penalty: Penalty
    ) -> RegressionLoss:
        """The criterion on all rows."""


@singledispatch
def regression_rows(data: Samples, *, log_probs: bool) -> RegressionRows:
    """The samples, as the linear calibrators are fitted on them."""
    return RowsInMemory.of(data.in_memory(), log_probs=log_probs)


@dataclass(frozen=True)
class RowsInMemory:
    """Samples in memory, in the units of the fit."""

    x: Floats
    """(n, K): centred logits divided by ``size``; 0 for absent classes."""
    absent: npt.NDArray[np.bool_] | None
    """(n, K), or None if no class is absent from any row."""
    data: FitData
    share: Floats
    """(n,): the weights, divided by their sum."""
    size: float
    """Typical size of the centred logits."""
    level: Floats | None
    """(n,): if log-probabilities are the features, what is subtracted from the centred logits to
    get them, divided by ``feature_size``."""
    feature_size: float
    """Typical size of the features; its inverse is the unit of N."""
    n_masked: int
    """Number of rows with finite logits that seem to mark absent classes."""

    @classmethod
    @np.errstate(over="ignore")  # an overflowing difference is clipped below
    def of(cls, data: FitData, *, log_probs: bool) -> RowsInMemory:
        """The samples, with log-probabilities or centred logits as features."""
        weight = np.ones(len(data)) if data.weight is None else data.weight
        x, level = np.empty(data.logits.shape), np.zeros(len(data))
        size, feature_size = np.empty(len(data)), np.empty(len(data))
        far, n_masked = _mask_distance(data, weight), 0
        for block, logits, possible, counted in _counted_blocks(data, far):
            x[block] = centred_logits(logits)
            level[block] = _log_sum(x[block], possible) if log_probs else 0.0
            n_masked += _n_masked(counted, possible)
            centred = x[block]
            if not np.array_equal(counted, possible):
                centred = centred_logits(np.where(counted, logits, -np.inf))
            size[block] = _root_mean_square(centred, counted)
            if log_probs:
                log_q = centred - _log_sum(centred, counted)[:, np.newaxis]
                feature_size[block] = _root_mean_square(np.where(counted, log_q, 0.0), counted)
        unit = _typical(size, weight)
        feature_unit = _typical(feature_size, weight) if log_probs else unit
        for block in data.blocks():
            np.clip(x[block] / unit, -MOST_FEATURE, MOST_FEATURE, out=x[block])
        return cls(
            x=x,
            absent=_absent(data),
            data=data,
            share=weight / weight.sum(),
            size=unit,
            level=level / feature_unit if log_probs else None,
            feature_size=feature_unit,
            n_masked=n_masked,
        )

    @classmethod
    @np.errstate(over="ignore")
    def part_of(cls, data: FitData, *, size: float, n: int) -> RowsInMemory:
        """Some of ``n`` samples of known typical size; centred logits are the features."""
        x = np.empty(data.logits.shape)
        for block in data.blocks():
            centred = centred_logits(data.logits[block].astype(np.float64))
            np.clip(centred / size, -MOST_FEATURE, MOST_FEATURE, out=x[block])
        share = np.full(len(data), 1.0 / n)
        return cls(x, _absent(data), data, share, size, None, size, 0)

    def loss(
        self, inverse_temperature: float, shape: tuple[int, ...], penalty: Penalty
    ) -> LossInMemory:
        """The criterion on these rows."""
        return LossInMemory(self, inverse_temperature, shape, penalty)

    @property
    def best(self) -> BestTemperature:
        """The best temperature by NLL."""
        return best_temperature(self.data, "nll", 0.0)

    @property
    def all_uniform(self) -> bool:
        """Whether every row is uniform over its classes."""
        return not self.x.any()

    def features(self, block: slice) -> Floats:
        """The features, to which N is applied."""
        x = self.x[block]
        if self.level is None:
            return x
        features = np.maximum(
            x * (self.size / self.feature_size) - self.level[block, np.newaxis], -MOST_FEATURE
        )
        if self.absent is not None:
            features[self.absent[block]] = 0.0
        return features


def _absent(data: FitData) -> npt.NDArray[np.bool_] | None:
    return data.logits == -np.inf if data.logits.min() == -np.inf else None


def _counted_blocks(data: FitData, far: float) -> Iterator[tuple[slice, Floats, Any, Any]]:
    """Blocks of rows with their logits, the classes that are possible, and those that count.

    A possible class does not count if it seems to be masked by a large negative number.
    """
    for block in data.blocks():
        logits = data.logits[block].astype(np.float64)
        possible = logits > -np.inf
        yield (
            block,
            logits,
            possible,
            possible & (logits >= logits.max(axis=1, keepdims=True) - far),
        )


def _n_masked(counted: npt.NDArray[np.bool_], possible: npt.NDArray[np.bool_]) -> int:
    return int(((counted.sum(axis=1) > 1) & (counted != possible).any(axis=1)).sum())


@np.errstate(over="ignore")
def row_sizes(data: FitData, far: float) -> Floats:
    """Root mean square of the centred logits of each row."""
    sizes = np.empty(len(data))
    for block, logits, _, counted in _counted_blocks(data, far):
        centred = centred_logits(np.where(counted, logits, -np.inf))
        sizes[block] = _root_mean_square(centred, counted)
    return sizes


def masked_rows(data: FitData, far: float) -> int:
    """Number of rows with finite logits that seem to mark absent classes."""
    return sum(_n_masked(counted, possible) for *_, possible, counted in _counted_blocks(data, far))


def _mask_distance(data: FitData, weight: Floats) -> float:
    """Distance below the largest logit of a row beyond which a logit is taken for a mask."""
    distance = distances_below_top(data)
    return FAR * _typical(distance, weight) if distance.any() else math.inf


def _log_sum(values: Floats, possible: npt.NDArray[np.bool_]) -> Floats:
    """log of the sum of e^value over the possible classes, per row."""
    top = values.max(axis=1)
    odds = np.where(possible, np.exp(values - top[:, np.newaxis]), 0.0)
    return np.asarray(top + np.log(odds.sum(axis=1)))


def _root_mean_square(values: Floats, possible: npt.NDArray[np.bool_]) -> Floats:
    """Root mean square over the possible classes, per row, without overflow."""
    largest = np.maximum(np.abs(values).max(axis=1), LEAST_SIZE)
    squares = (values / largest[:, np.newaxis]) ** 2
    return np.asarray(largest * np.sqrt(squares.sum(axis=1) / possible.sum(axis=1)))


def _typical(sizes: Floats, weight: Floats) -> float:
    """Weighted median, which a few rows of another order of magnitude do not move."""
    counted = sizes > LEAST_SIZE
    return weighted_median(sizes, np.where(counted, weight, 0.0)) if counted.any() else 1.0


@dataclass(frozen=True)
class Penalty:
    """Strengths of the penalties on the squares of N and b."""

    correction: Floats | float
    """One for each entry of N, or one for all."""
    intercept: float
    """One for all entries of b."""


class RegressionLoss(ABC):
    """The criterion and its derivatives, as functions of one array of all parameters."""

    def __init__(
        self,
        rows: RegressionRows,
        inverse_temperature: float,
        shape: tuple[int, ...],
        penalty: Penalty,
    ) -> None:
        self.rows = rows
        self.inverse_temperature = inverse_temperature
        self.shape = shape
        self.penalty = penalty
        self.evaluations = 0
        self.last: tuple[Floats, Floats] | None = None
        """The last parameters of ``with_hessian``, and the curvatures of the NLL there."""

    def parts(self, parameters: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """N and b."""
        n_classes = self.rows.data.n_classes
        return parameters[:-n_classes].reshape(self.shape), parameters[-n_classes:]

    def penalty_curvatures(self) -> Floats:
        """Curvatures of the penalties alone, along each parameter."""
        entries = np.broadcast_to(2.0 * self.penalty.correction, self.shape).reshape(-1)
        n_classes = self.rows.data.n_classes
        return np.concatenate([entries, np.full(n_classes, 2.0 * self.penalty.intercept)])

    def __call__(self, parameters: Floats) -> tuple[float, Floats]:
        """The value and the gradient."""
        self.evaluations += 1
        correction, bias = self.parts(parameters)
        nll, by_correction, by_bias = self.nll_and_gradient(parameters)
        strength, intercept = self.penalty.correction, self.penalty.intercept
        by_correction = by_correction + 2.0 * strength * correction
        by_bias = by_bias + 2.0 * intercept * bias
        value = nll + float((strength * correction**2).sum() + intercept * (bias**2).sum())
        return value, np.concatenate([by_correction.reshape(-1), by_bias])

    def with_hessian(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The value, the gradient and the Hessian; N is not a matrix."""
        self.evaluations += 1
        nll, gradient, hessian = self.nll_and_hessian(parameters)
        self.last = parameters, np.diag(hessian).copy()
        curvatures = self.penalty_curvatures()
        value = nll + 0.5 * float(curvatures @ parameters**2)
        return value, gradient + curvatures * parameters, hessian + np.diag(curvatures)

    def n_held(self, parameters: Floats) -> int:
        """Number of classes whose weight or bias the penalty decides, not the NLL."""
        correction, bias = self.parts(parameters)
        known = self.last is not None and np.array_equal(self.last[0], parameters)
        curvatures = self.last[1] if self.last and known else self.nll_curvatures(parameters)
        # Curvatures are differences, which rounding can make negative if every row is certain.
        by_correction, by_bias = self.parts(np.maximum(curvatures, 0.0))
        held = 2.0 * self.penalty.intercept * np.abs(bias) > HELD * by_bias
        if self.shape == bias.shape:
            pull = 2.0 * self.penalty.correction * np.abs(correction)
            held |= pull > HELD * np.sqrt(by_bias * by_correction)
        return int(held.sum())

    @abstractmethod
    def nll_and_gradient(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The NLL and its gradients by N and by b, without the penalties."""

    @abstractmethod
    def nll_and_hessian(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The NLL, its gradient and its Hessian, without the penalties."""

    @abstractmethod
    def nll_curvatures(self, parameters: Floats) -> Floats:
        """Curvatures of the NLL along each parameter; approximate for a scalar N."""


class LossInMemory(RegressionLoss):
    """The criterion on rows in memory."""

    rows: RowsInMemory
    probs: Singles | None = None
    """Where ``nll_and_gradient`` writes the probabilities, (n, K)."""

    def __init__(
        self,
        rows: RowsInMemory,
        inverse_temperature: float,
        shape: tuple[int, ...],
        penalty: Penalty,
    ) -> None:
        super().__init__(rows, inverse_temperature, shape, penalty)
        self.singles: dict[int, Singles] = {}
        """Features in single precision, by the first row of their block."""

    def nll_and_hessian(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The NLL, its gradient and its Hessian, without the penalties.

        With p the probabilities, and z' and z'' the derivatives of the scores by two parameters,
        their entry of the Hessian is the sum over rows of
        sum_k p_k z'_k z''_k - (sum_k p_k z'_k) (sum_k p_k z''_k).
        """
        n_classes = self.rows.data.n_classes
        size, at = len(parameters), len(parameters) - n_classes
        nll, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size))
        for block, features, p, loss in self._probabilities(parameters):
            share, true = self.rows.share[block], self._labels(block)
            nll += loss
            root = np.sqrt(share)[:, np.newaxis]
            moved = p * features
            means = np.empty((len(share), size))
            means[:, :at] = moved if self.shape else moved.sum(axis=1, keepdims=True)
            means[:, at:] = p
            means *= root
            hessian -= means.T @ means
            moved *= share[:, np.newaxis]
            both, squares = moved.sum(axis=0), (moved * features).sum(axis=0)
            p *= share[:, np.newaxis]
            hessian[at:, at:] += np.diag(p.sum(axis=0))
            if self.shape:
                hessian[:at, :at] += np.diag(squares)
                hessian[:at, at:] += np.diag(both)
                hessian[at:, :at] += np.diag(both)
            else:
                hessian[0, 0] += squares.sum()
                hessian[0, at:] += both
                hessian[at:, 0] += both
            p[true] -= share
            gradient[:at] += self._summed(p, features).reshape(-1)
            gradient[at:] += p.sum(axis=0)
        return nll, gradient, hessian

    def nll_and_gradient(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """The NLL and its gradients by N and by b, without the penalties.

        The probabilities are written to ``probs``, if it is an array.
        """
        by_correction, by_bias = np.zeros(self.shape), np.zeros(self.rows.data.n_classes)
        nll = 0.0
        for block, features, p, loss in self._probabilities(parameters):
            share = self.rows.share[block]
            nll += loss
            if self.probs is not None:
                self.probs[block] = p
            p *= share[:, np.newaxis]
            p[self._labels(block)] -= share
            by_bias += p.sum(axis=0)
            by_correction += self._summed(p, features)
        return nll, by_correction, by_bias

    def nll_curvatures(self, parameters: Floats) -> Floats:
        """Curvatures of the NLL along each parameter; approximate for a scalar N."""
        by_correction, by_bias = np.zeros(self.shape), np.zeros(self.rows.data.n_classes)
        for block, features, p, _ in self._probabilities(parameters):
            p *= (1.0 - p) * self.rows.share[block, np.newaxis]
            by_bias += p.sum(axis=0)
            by_correction += self._summed(p, features**2)
        return np.concatenate([by_correction.reshape(-1), by_bias])

    def approximate_hessian(self, probs: Singles) -> tuple[Floats, Callable[[Floats], Floats]]:
        """The diagonal of the Hessian of the NLL, and the product of the Hessian and a vector.

        With p the probabilities of a row, which ``nll_and_gradient`` found, and v the change of
        its scores, the product is the sum over rows of (p v - p sum(p v)) f. Both are in single
        precision, which is enough for a step that the next one corrects.
        """
        share = self.rows.share.astype(np.float32)[:, np.newaxis]

        def summed(of_block: Callable[[Singles, Singles], tuple[Singles, Singles]]) -> Floats:
            by_correction, by_bias = np.zeros(self.shape), np.zeros(self.rows.data.n_classes)
            for block in self.rows.data.blocks():
                values, features = of_block(probs[block], self._single_features(block))
                values *= share[block]
                by_bias += values.sum(axis=0)
                by_correction += self._summed(values, features)
            return np.concatenate([by_correction.reshape(-1), by_bias])

        def product(vector: Floats) -> Floats:
            def moved(p: Singles, features: Singles) -> tuple[Singles, Singles]:
                v = p * self._moved(features, vector.astype(np.float32))
                v -= p * v.sum(axis=1, keepdims=True)
                return v, features

            return summed(moved)

        return summed(lambda p, features: (p * (1.0 - p), features**2)), product

    def _probabilities(self, parameters: Floats) -> Iterator[tuple[slice, Floats, Floats, float]]:
        """The rows of each block, their features and probabilities, and their part of the NLL."""
        for block in self.rows.data.blocks():
            features = self._features(block)
            p = self._scores(block, features, parameters)
            at_label = p[self._labels(block)]
            np.exp(p, out=p)
            total = p.sum(axis=1)
            p /= total[:, np.newaxis]
            yield block, features, p, float(self.rows.share[block] @ (np.log(total) - at_label))

    def _labels(self, block: slice) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """The indices of the labels in arrays (rows, K)."""
        labels = self.rows.data.labels[block]
        return np.arange(len(labels)), labels

    def _single_features(self, block: slice) -> Singles:
        """The features in single precision; few are kept for the next product."""
        if block.start not in self.singles:
            features = self._features(block).astype(np.float32)
            if self.rows.x.size > MOST_KEPT:
                return features
            self.singles[block.start] = features
        return self.singles[block.start]

    def _features(self, block: slice) -> Floats:
        """The features, to which N is applied.

        A scalar N does not depend on the centre of a row, so the largest entry is taken as the
        centre: masks then take no digits from the gradient and do not inflate the curvature.
        """
        features = self.rows.features(block)
        if self.shape:
            return features
        if self.rows.absent is None:
            return np.asarray(features - features.max(axis=1, keepdims=True))
        absent = self.rows.absent[block]
        top = np.where(absent, -np.inf, features).max(axis=1, keepdims=True)
        return np.where(absent, 0.0, features - top)

    def _summed(self, values: npt.NDArray[Any], features: npt.NDArray[Any]) -> Floats:
        """The sum over rows of ``values`` times ``features``, in the shape of N."""
        if len(self.shape) == 2:
            return np.asarray(values.T @ features)
        return np.asarray(np.einsum("nk,nk->k" if self.shape else "nk,nk->", values, features))

    def _scores(self, block: slice, features: Floats, parameters: Floats) -> Floats:
        """Scores minus the largest of their row; -inf for absent classes."""
        z = self._moved(features, parameters)
        z += self.inverse_temperature * self.rows.x[block]
        if self.rows.absent is not None:
            z[self.rows.absent[block]] = -np.inf
        z -= z.max(axis=1, keepdims=True)
        return z

    def _moved(self, features: npt.NDArray[Any], parameters: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """N f + b."""
        correction, bias = self.parts(parameters)
        z: npt.NDArray[Any] = (
            features @ correction.T if correction.ndim == 2 else features * correction
        )
        z += bias
        return z


def loss_of_slope(scores: Floats, labels: npt.NDArray[np.int64], share: Floats) -> LossInMemory:
    """The NLL of softmax(a s + b), as a function of one number a and of b, without penalties."""
    rows = RowsInMemory(
        x=scores,
        absent=None,
        data=FitData(scores, labels, None),
        share=share,
        size=1.0,
        level=None,
        feature_size=1.0,
        n_masked=0,
    )
    return LossInMemory(rows, 0.0, (), Penalty(0.0, 0.0))
