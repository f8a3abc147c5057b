"""Rows of which only the largest logits are known, as servers of language models log them.

A row has k of K logits, L = log of the sum of e^logit over all K classes, and its label's logit
where the label is not among the k. With log-probabilities s = logit - L, the n unknown classes
share R = 1 - sum of e^s over the known ones, and none of them has more than c = e^(smallest of the
k), nor more than R. At b = 1/T their sum

    S(b) = sum x_j^b   lies between   R min(c, R)^(b-1)   and   n^(1-b) R^b

(x^b is concave in x for b < 1 and convex for b > 1: all n alike is one end; as much as possible in
as few classes as possible, R / min(c, R) of them, is the other). R itself is only known to the
rounding of the logits, which the bounds allow for.

In between, the estimate: a power law x(r) = min(c, R) (r/k)^(-a) of the rank r from k to K, whose a
makes the sum R. The integral over log r is taken by Gauss's rule, so a few *stand-ins*
x_j = min(c, R) e^(-a places_j), each counted n shares_j times, enter every sum as the unknown
classes would. They are n in number, share R, and none has more than it may: so Jensen's inequality
puts S(b) of the stand-ins within the bounds, and at T = 1 it is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import sigmoid
from calibrant._types import Array
from calibrant.calibrators.data import FitData, Floats, row_blocks
from calibrant.calibrators.temperature.criterion import (
    EvaluatorInMemory,
    Point,
    evaluator_of,
)
from calibrant.calibrators.temperature.grid_pruning import (
    EVERY,
    lower_bound,
    node_sums,
    smallest_on_grid,
    tail_coefficients,
)
from calibrant.calibrators.temperature.rows import log_odds_of, mapped_rows, temperature_rows
from calibrant.focal.scalar import phi

STAND_INS = 8
TOLERANCE = 1e-6
"""Relative error of logits that is not refused, in whatever type they are stored: servers compute
in single precision."""
CRITERIA = ("nll", "focal", "ece", "ada_ece")
"""Criteria that need no more of a row than its confidence and its label's probability."""


@dataclass(frozen=True)
class TruncatedRows(FitData):
    """Samples with some of their classes: what the fits of temperature and focal map work on.

    ``logits`` are the log-probabilities of the k known classes, and in a last column that of a
    label that is not among them (else -inf); ``labels`` are places among these.
    """

    tails: Floats
    """(n, 6): log min(c, R), a, n, log c; log R, less and plus what rounding can have changed."""
    known_labels: npt.NDArray[np.int64]
    """The classes of the labels."""
    all_classes: int

    @classmethod
    def of(
        cls,
        top_logits: Array,
        top_classes: Array,
        labels: Array | None,
        *,
        n_classes: int,
        normaliser: Array | None = None,
        label_logits: Array | None = None,
    ) -> Self:
        """Checked rows.

        Args:
            top_logits: (n, k) the largest logits, or log-probabilities, in any order.
            top_classes: (n, k) their classes.
            labels: (n,) classes; None where there are none yet.
            n_classes: K, how many classes there are.
            normaliser: (n,) log of the sum of e^logit over all classes; None is 0, for
                log-probabilities.
            label_logits: (n,) the logit of each label; only looked at where the label is not among
                the known classes, NaN elsewhere will do.

        Examples:
            >>> import numpy as np
            >>> from calibrant.calibrators import TruncatedRows
            >>> logits = np.log([[0.5, 0.2, 0.15, 0.1, 0.05]])
            >>> label = {"labels": [3], "label_logits": logits[:, 3]}
            >>> rows = TruncatedRows.of(logits[:, :2], [[0, 1]], **label, n_classes=5)
            >>> rows.n_classes, len(rows), np.exp(rows.tails[0, 4]).round(4).item()
            (5, 1, 0.2)
        """
        from calibrant.calibrators.truncated.tails import OF_TAIL, prepare_rows

        n_classes = _inputs.whole_number(n_classes, "n_classes", allowed=range(2, 1 << 31))
        given = _inputs.top_arrays(
            top_logits, top_classes, labels, normaliser, label_logits, n_classes
        )
        n, k = given.logits.shape
        places, shares = stand_ins(k, n_classes)
        known, tails = np.empty((n, k + 1)), np.empty((n, OF_TAIL))
        label_places, verdicts = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        prepare_rows(
            given.logits,
            given.classes,
            given.normaliser,
            given.labels,
            given.label_logits,
            n_classes,
            given.precision,
            max(TOLERANCE, given.precision),
            places,
            shares,
            known,
            tails,
            label_places,
            verdicts,
            times=8,
        )
        _inputs.usable_top_rows(verdicts, given, n_classes)
        labelled = given.labels if labels is not None else np.full(n, -1)
        return cls(known, label_places, None, tails, labelled, n_classes)

    @property
    def n_classes(self) -> int:
        """Number of all classes."""
        return self.all_classes

    @property
    def label_classes(self) -> npt.NDArray[np.int64]:
        """The class of each label."""
        return self.known_labels

    def blocks(self) -> Iterator[slice]:
        """Rows in parts small enough for the processor's cache."""
        return row_blocks(len(self), self.logits.shape[1])

    def rows(self, which: slice) -> Self:
        """Some of the rows, copied."""
        return replace(
            self,
            logits=self.logits[which].copy(),
            labels=self.labels[which].copy(),
            tails=self.tails[which].copy(),
            known_labels=self.known_labels[which].copy(),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after the other."""
        return replace(
            parts[0],
            logits=np.concatenate([part.logits for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            tails=np.concatenate([part.tails for part in parts]),
            known_labels=np.concatenate([part.known_labels for part in parts]),
        )

    def some_rows(self, about: int) -> Self:
        """About so many rows, evenly spread."""
        if len(self) <= 2 * about:
            return self
        return self.rows(slice(None, None, len(self) // about))

    @cached_property
    def _stand_ins(self) -> tuple[Floats, Floats]:
        return stand_ins(self.logits.shape[1] - 1, self.all_classes)

    def mapped_rows(self, gamma: float, beta: float) -> tuple[Floats, Floats, Floats]:
        """By the estimate: log odds of the top class, log-probability of the label.

        There are no squared distances, for which no bounds are known.
        """
        from calibrant.calibrators.truncated.kernels import map_rows

        log_odds, true_log_prob = np.empty(len(self)), np.empty(len(self))
        map_rows(
            self.logits,
            self.tails,
            self.labels,
            *self._stand_ins,
            beta,
            gamma,
            log_odds,
            true_log_prob,
        )
        return log_odds, true_log_prob, np.empty(0)

    def temperature_rows(self, beta: float) -> Floats:
        """By the estimate: cross-entropy of softmax(b s), its three derivatives by log b."""
        from calibrant.calibrators.truncated import kernels

        out = np.empty((4, len(self)))
        kernels.temperature_rows(self.logits, self.tails, self.labels, *self._stand_ins, beta, out)
        return out

    def node_sums(self, gammas: Floats, nodes: Floats) -> Floats:
        """By the estimate: the sums of the confidences at every gamma and log T."""
        from calibrant.calibrators.temperature.search_kernels import ALL_NEAR
        from calibrant.calibrators.truncated import kernels

        if self.logits.shape[1] - 1 <= ALL_NEAR:
            return np.array(
                [
                    [
                        sigmoid(self.mapped_rows(float(gamma), float(beta))[0]).sum()
                        for beta in np.exp(-nodes)
                    ]
                    for gamma in gammas
                ]
            )
        sums: Floats = kernels.node_sums.sum(
            self.logits,
            self.tails,
            *self._stand_ins,
            np.exp(-nodes),
            gammas,
            tail_coefficients(gammas),
            times=len(nodes) * len(gammas),
        )
        return sums

    def log_probs(self, gamma: float, beta: float) -> Floats:
        """By the estimate: log-probabilities of the known classes after the map, (n, k + 1)."""
        from calibrant.calibrators.truncated.kernels import map_log_probs

        out = np.empty_like(self.logits)
        map_log_probs(self.logits, self.tails, *self._stand_ins, beta, gamma, out)
        return out

    def in_memory(self) -> FitData:
        """Refuse: most calibrators need every class of every row."""
        return _inputs.every_class_known("a calibrator with a number for each class")

    def bounds(
        self, gamma: float, beta: float, *, of_classes: bool = False
    ) -> tuple[Floats, Floats, Floats]:
        """Least and largest value that the unknown classes leave possible, (2, ...) each.

        Of the log odds of the top class, of the log-probability of the label, and, where asked for,
        of those of the known classes (2, n, k + 1).
        """
        from calibrant.calibrators.truncated.bound_kernels import bound_rows

        log_odds, true_log_prob = np.empty((2, len(self))), np.empty((2, len(self)))
        log_probs = np.empty((2, len(self) if of_classes else 0, self.logits.shape[1]))
        turn = turning_point(gamma)
        at_turn = float(phi(np.array(turn), gamma=gamma))
        bound_rows(
            self.logits,
            self.tails,
            self.labels,
            beta,
            gamma,
            turn,
            at_turn,
            log_odds,
            true_log_prob,
            log_probs,
        )
        return log_odds, true_log_prob, log_probs


@log_odds_of.register
def _log_odds(data: TruncatedRows, gamma: float, beta: float) -> Floats:
    """By the estimate: log odds of the top class."""
    return data.mapped_rows(gamma, beta)[0]


@mapped_rows.register
def _mapped_rows(data: TruncatedRows, gamma: float, beta: float) -> tuple[Floats, Floats, Floats]:
    return data.mapped_rows(gamma, beta)


@temperature_rows.register
def _temperature_rows(data: TruncatedRows, beta: float) -> Floats:
    return data.temperature_rows(beta)


@node_sums.register
def _node_sums(data: TruncatedRows, gammas: Floats, nodes: Floats) -> Floats:
    return data.node_sums(gammas, nodes)


class TruncatedEvaluator(EvaluatorInMemory):
    """One criterion by the estimate; a grid is searched as over files, without interpolation."""


@evaluator_of.register
def _evaluator_of(
    data: TruncatedRows, criterion: str, *, n_bins: int, focal_gamma: float
) -> TruncatedEvaluator:
    _inputs.choice(criterion, "criterion", CRITERIA)
    return TruncatedEvaluator(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)


@smallest_on_grid.register
def _smallest_on_grid(evaluator: TruncatedEvaluator, gammas: Floats, temperatures: Floats) -> Point:
    """Every point that the bound leaves is computed."""
    bound = lower_bound(evaluator.data, gammas, np.log(temperatures))
    lowest = [
        (float(gammas[c]), float(temperatures[bound[c].argmin()]))
        for c in range(0, len(gammas), EVERY)
    ]
    to_beat = min(evaluator.at(lowest))
    left = [
        (float(gammas[c]), float(temperatures[t]))
        for c, t in zip(*np.nonzero(bound <= to_beat), strict=True)
    ]
    found = [Point(*at, value) for at, value in zip(left, evaluator.at(left), strict=True)]
    return min(found, key=lambda point: point.rank)


def stand_ins(n_known: int, n_classes: int) -> tuple[Floats, Floats]:
    """Places in log(rank / k), and the share of the unknown classes that each stands for."""
    nodes, weights = np.polynomial.legendre.leggauss(STAND_INS)
    places: Floats = 0.5 * np.log(n_classes / n_known) * (1.0 + nodes)
    shares: Floats = weights * np.exp(places)  # dr = r d log r
    return places, shares / shares.sum()


def turning_point(gamma: float) -> float:
    """Where phi, as a function of q between 0 and 1, turns; 1 where it does not.

    The slope of log phi has the sign of gamma (-log q / (1 - q) (1 - gamma q) - 2). For gamma > 0
    both factors fall; for -1 <= gamma < 0 their product does, because -2 q log q < 1 - q^2. So
    there is one zero.
    """
    if gamma <= -1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        q = 0.5 * (low + high)
        rising = q < 1.0 and -np.log(q) / (1.0 - q) * (1.0 - gamma * q) > 2.0
        low, high = (q, high) if rising else (low, q)
    return low
