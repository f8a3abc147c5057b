"""Truncated rows: only the largest logits are known, as servers of language models log them.

A row has k of K logits, L = log of the sum of e^logit over all K classes, and the logit of its
label if that is not among the k. With log-probabilities s = logit - L, the n unknown classes have
the total probability R = 1 - sum of e^s over the known ones, and each has at most
c = e^(smallest of the k), and at most R. At b = 1/T their sum

    S(b) = sum x_j^b   lies between   R min(c, R)^(b-1)   and   n^(1-b) R^b

(x^b is concave in x for b < 1 and convex for b > 1. One end is n equal classes. The other is as
much probability as possible in as few classes as possible, R / min(c, R) of them.) The logits give
R only to their rounding, which the bounds allow for.

The estimate between these bounds is a power law x(r) = min(c, R) (r/k)^(-a) of the rank r from k to
K, whose exponent a makes the sum R. Gauss's rule replaces the integral over log r by a few
*stand-ins* x_j = min(c, R) e^(-a places_j), each of which counts as n shares_j classes in every
sum. Together they count as n classes with total probability R, none above its maximum, so by
Jensen's inequality S(b) of the stand-ins is within the bounds. At T = 1 it is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
"""Relative error of logits that is accepted in every floating-point type: servers compute in
single precision."""
CRITERIA = ("nll", "focal", "ece", "ada_ece")
"""Criteria that use only the confidence and the probability of the label."""


@dataclass(frozen=True)
class TruncatedRows(FitData):
    """Samples with some of their classes, for the fits of temperature and focal map.

    ``logits`` are the log-probabilities of the k known classes; a last column has that of a label
    that is not among them, else -inf. ``labels`` are column indices.
    """

    tails: Floats
    """(n, 6): log min(c, R), a, n, log c; log R minus and plus the possible rounding error."""
    known_labels: npt.NDArray[np.int64]
    """The class of each label."""
    all_classes: int
    """K."""

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
        """Check the arrays and build the rows.

        Args:
            top_logits: (n, k) the largest logits, or log-probabilities, in any order.
            top_classes: (n, k) their classes.
            labels: (n,) classes; None if there are none yet.
            n_classes: K, the number of all classes.
            normaliser: (n,) log of the sum of e^logit over all classes; None is 0, for
                log-probabilities.
            label_logits: (n,) the logit of each label; used only if the label is not among the
                known classes, so it may be NaN elsewhere.

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
        given = _inputs.truncated_arrays(
            top_logits, top_classes, labels, normaliser, label_logits, n_classes
        )
        n, k = given.logits.shape
        places, shares = stand_in_places(k, n_classes)
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
        _inputs.usable_truncated_rows(verdicts, given, n_classes)
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
        """Slices of rows small enough for the processor's cache."""
        return row_blocks(len(self), self.logits.shape[1])

    @cached_property
    def stand_ins(self) -> tuple[Floats, Floats]:
        """Log-probabilities of the stand-ins, and how many classes each stands for: (n, 8) each."""
        from calibrant.calibrators.truncated.tails import COUNT, EXPONENT, START

        places, shares = stand_in_places(self.logits.shape[1] - 1, self.all_classes)
        start, exponent, count = (self.tails[:, [i]] for i in (START, EXPONENT, COUNT))
        return start - exponent * places, count * shares

    def log_probs(self, gamma: float, inverse_temperature: float) -> Floats:
        """Estimated log-probabilities of the known classes after the map: (n, k + 1)."""
        return self.mapped_by(gamma, inverse_temperature, of_classes=True)[2]

    def mapped_by(
        self, gamma: float, inverse_temperature: float, *, of_classes: bool = False
    ) -> tuple[Floats, Floats, Floats]:
        """Estimates of what :meth:`bounds` bounds."""
        from calibrant.calibrators.truncated.kernels import map_truncated_rows

        log_odds, true_log_prob = np.empty(len(self)), np.empty(len(self))
        log_probs = np.empty((len(self), self.logits.shape[1] if of_classes else 0))
        at, out = (inverse_temperature, gamma), (log_odds, true_log_prob, log_probs)
        map_truncated_rows(self.logits, *self.stand_ins, self.labels, *at, *out)
        return out

    def in_memory(self) -> FitData:
        """Refuse: most calibrators need every class of every row."""
        return _inputs.every_class_known("a calibrator with a number for each class")

    def bounds(
        self, gamma: float, inverse_temperature: float, *, of_classes: bool = False
    ) -> tuple[Floats, Floats, Floats]:
        """Smallest and largest possible values, whatever the unknown classes are: (2, ...) each.

        They are those of the log-odds of the top class, of the log-probability of the label, and,
        if ``of_classes``, of the log-probabilities of the known classes (2, n, k + 1).
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
            inverse_temperature,
            gamma,
            turn,
            at_turn,
            log_odds,
            true_log_prob,
            log_probs,
        )
        return log_odds, true_log_prob, log_probs


@mapped_rows.register
def _mapped_rows(
    data: TruncatedRows, gamma: float, inverse_temperature: float
) -> tuple[Floats, Floats, Floats]:
    """Estimates; no squared distances, because no bounds on them are known."""
    log_odds, true_log_prob, _ = data.mapped_by(gamma, inverse_temperature)
    return log_odds, true_log_prob, np.empty(0)


@log_odds_of.register
def _log_odds(data: TruncatedRows, gamma: float, inverse_temperature: float) -> Floats:
    return data.mapped_by(gamma, inverse_temperature)[0]


@temperature_rows.register
def _temperature_rows(data: TruncatedRows, inverse_temperature: float) -> Floats:
    from calibrant.calibrators.truncated.kernels import truncated_cross_entropy_rows as write

    out = np.empty((4, len(data)))
    write(data.logits, *data.stand_ins, data.labels, inverse_temperature, out)
    return out


@node_sums.register
def _node_sums(data: TruncatedRows, gammas: Floats, nodes: Floats) -> Floats:
    from calibrant.calibrators.temperature.search_kernels import ALL_NEAR, node_log_odds

    if data.logits.shape[1] - 1 > ALL_NEAR:
        sums: Floats = node_log_odds.sum(
            data.logits,
            *data.stand_ins,
            np.empty(0),
            np.exp(-nodes),
            gammas,
            tail_coefficients(gammas),
            np.empty((len(gammas), 0, len(nodes)), dtype=np.float32),
            times=len(nodes),  # most classes are in the tail, which all gammas share
        )
        return sums
    return np.array(
        [
            [sigmoid(_log_odds(data, float(gamma), float(b))).sum() for b in np.exp(-nodes)]
            for gamma in gammas
        ]
    )


class TruncatedEvaluator(EvaluatorInMemory):
    """One criterion, estimated; searches a grid as over files, without interpolation."""


@evaluator_of.register
def _evaluator_of(
    data: TruncatedRows, criterion: str, *, n_bins: int, focal_gamma: float
) -> TruncatedEvaluator:
    _inputs.choice(criterion, "criterion", CRITERIA)
    return TruncatedEvaluator(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)


@smallest_on_grid.register
def _smallest_on_grid(evaluator: TruncatedEvaluator, gammas: Floats, temperatures: Floats) -> Point:
    """Evaluates every point that the bound does not rule out."""
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


def stand_in_places(n_known: int, n_classes: int) -> tuple[Floats, Floats]:
    """Places of the stand-ins in log(rank / k), and the share of the unknown classes of each."""
    nodes, weights = np.polynomial.legendre.leggauss(STAND_INS)
    places: Floats = 0.5 * np.log(n_classes / n_known) * (1.0 + nodes)
    shares: Floats = weights * np.exp(places)  # dr = r d log r
    return places, shares / shares.sum()


def turning_point(gamma: float) -> float:
    """The q between 0 and 1 at which phi has its extremum; 1 if it has none.

    The derivative of log phi has the sign of gamma (-log q / (1 - q) (1 - gamma q) - 2). For
    gamma > 0 both factors fall; for -1 <= gamma < 0 their product falls, because
    -2 q log q < 1 - q^2. So there is one zero.
    """
    if gamma <= -1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        q = 0.5 * (low + high)
        rising = q < 1.0 and -np.log(q) / (1.0 - q) * (1.0 - gamma * q) > 2.0
        low, high = (q, high) if rising else (low, q)
    return low
