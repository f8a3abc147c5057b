"""Calibrators that fit each class against all others, then divide by the sum.

    p_k = g_k(q_k) / sum_i g_i(q_i),    q = softmax(s)

Each g_k is fitted separately: the samples of class k against all others. It is a function of the
log-odds x = log(q_k / (1 - q_k)), which keep their resolution if q_k is close to 0 or 1.

All of them have these properties:

- Two classes are one problem, that of class 1, and class 0 is its complement: the textbook binary
  method.
- q_k is clipped to [2^-52, 1 - 2^-52]: values beyond are rounded zeros, or masks made of large
  negative numbers, and must not tilt a curve. g_k is kept within the same bounds, so that no
  possible class gets probability 0.
- A class excluded by -inf stays at 0. A row in which it is excluded, or certain because all others
  are excluded, does not count in its problem; if no row is left, all of them count.
- Weights of whole numbers count samples: a row of weight 2 is that row twice. Others are scaled so
  that their sum is the effective number of samples.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import (
    below_top,
    exact_log_softmax,
    log_odds_of_classes,
    sigmoid,
    softplus,
)
from calibrant._numerics.precision import narrowed
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, State
from calibrant.calibrators.data import (
    FitData,
    Floats,
    Samples,
    are_few_plain_rows,
    kept_with_samples,
)
from calibrant.calibrators.temperature.solver import uncalibrated

MOST_LOG_ODDS = 52 * math.log(2.0)
"""Bound of the log-odds before and after calibration: 36, a probability of 2e-16."""
LEAST_ODDS = math.exp(-MOST_LOG_ODDS)
MOST_KEPT = 1 << 20
"""Largest number of logits whose problems are kept for other methods, in 10 bytes each."""
LARGEST_NUMBER = 1e30


def class_log_odds(logits: Array) -> Array:
    """log(q_k / (1 - q_k)) of every class, within the bounds of the module docstring."""
    xp = array_namespace(logits)
    if logits.shape[-1] == 2:
        one = logits[..., 1:] - logits[..., :1]
        log_odds = xp.concat([-one, one], axis=-1)
    else:
        log_odds = log_odds_of_classes(logits)
    return _bounded(log_odds)


def _row_log_odds(row: Floats) -> Floats:
    """:func:`class_log_odds` of one row of more than two classes."""
    m, z = row.argmax(), below_top(row, 1.0)
    weights = np.exp(z)
    weights[m] = 0.0
    rest = float(np.add.reduce(weights))
    log_odds = z - np.log(1.0 + rest - weights)
    log_odds[m] = -math.log(max(rest, LEAST_ODDS))
    return np.maximum(log_odds, -MOST_LOG_ODDS)


def _bounded(log_odds: Array) -> Array:
    return array_namespace(log_odds).clip(log_odds, min=-MOST_LOG_ODDS, max=MOST_LOG_ODDS)


@dataclass(frozen=True)
class Problems:
    """The P binary problems of a fit, one per class; for two classes only that of class 1."""

    log_odds: Floats
    """(P, n)"""
    hits: npt.NDArray[np.bool_]
    """(P, n): whether the sample belongs to the class."""
    weight: Floats
    """(P, n), 0 if the row does not count."""
    n_classes: int

    @classmethod
    def of(cls, data: FitData) -> Problems:
        """The problems of checked samples."""
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
        weight = np.broadcast_to(data.counts, log_odds.shape)
        return cls(
            log_odds=log_odds,
            hits=data.labels == classes[:, np.newaxis],
            weight=weight if counts.all() else np.where(counts, weight, 0.0),
            n_classes=data.n_classes,
        )

    def __len__(self) -> int:
        return len(self.log_odds)


@kept_with_samples
def _kept_problems(data: FitData) -> Problems:
    return Problems.of(data)


class OneVsRest(Calibrator):
    """Calibrated probabilities of each class against the rest, divided by their sum.

    Subclasses define ``_fit_problems`` and ``_calibrated``.
    """

    LARGEST = LARGEST_NUMBER

    @abstractmethod
    def _fit_problems(self, problems: Problems, lines: Floats | None = None) -> dict[str, Any]:
        """The state and other arguments of :class:`Fitted`, by name.

        ``lines``, (P, 2), are slopes and shifts of logistic curves close to the result, where a
        search may start.
        """

    @abstractmethod
    def _calibrated(self, log_odds: Array, state: State) -> Array:
        """The log-odds of g_k from those of q_k; the last axis is the problems.

        Also of a Python float, if there is one problem.
        """

    def _fit(self, data: Samples) -> Fitted:
        rows = data.in_memory()
        few = rows.logits.size <= MOST_KEPT
        problems = _kept_problems(rows) if few else Problems.of(rows)
        found = self._fit_problems(problems)
        before = uncalibrated(rows)
        after, accuracy = self._nll_and_accuracy(rows, problems, found["state"])
        worse = (
            f"the nll rose from {before:.4g} to {after:.4g} on the samples of the fit, because "
            "each class is fitted separately and normalised afterwards; compare with temperature.",
        )
        return Fitted(
            criterion="nll",
            before=before,
            after=after,
            accuracy_after=accuracy,
            warnings=worse if after > before else (),
            **found,
        )

    def _nll_and_accuracy(
        self, data: FitData, problems: Problems, state: State
    ) -> tuple[float, float]:
        """After calibration, on the samples of the fit."""
        losses, correct = np.empty(len(data)), np.empty(len(data), dtype=bool)
        with np.errstate(over="ignore"):
            for block in data.blocks():
                labels, logits = data.labels[block], data.logits[block]
                log_odds = np.ascontiguousarray(problems.log_odds[:, block].T)
                found = self._of_log_odds(log_odds, logits.astype(np.float64), state)
                losses[block] = -found[np.arange(len(labels)), labels]
                correct[block] = narrowed(found, logits).argmax(axis=1) == labels
        return data.mean(losses), data.mean(correct)

    def _log_probs(self, logits: Array, state: State) -> Array:
        log_odds = class_log_odds(logits)
        return self._of_log_odds(
            log_odds[..., 1:] if logits.shape[-1] == 2 else log_odds, logits, state
        )

    def _of_log_odds(self, log_odds: Array, logits: Array, state: State) -> Array:
        """``_log_probs`` of logits whose log-odds are known; the last axis is the problems."""
        xp = array_namespace(logits)
        calibrated = self._calibrated(log_odds, state)
        if logits.shape[-1] == 2:
            calibrated = xp.concat([-calibrated, calibrated], axis=-1)
        absent = logits == -float("inf")
        return exact_log_softmax(xp.where(absent, -float("inf"), -softplus(-_bounded(calibrated))))

    def _probs(self, logits: Array, state: State) -> Array:
        if logits.shape[-1] == 2 and are_few_plain_rows(logits):
            one = self._of_two(logits[:, 1:] - logits[:, :1], state)
            return sigmoid(np.concatenate([-one, one], axis=1))
        return super()._probs(logits, state)

    def _row_scores(self, row: Floats, state: State) -> Floats:
        if len(row) == 2:
            first, second = row.tolist()
            return np.array([0.0, self._of_two(second - first, state)])
        calibrated = self._calibrated(_row_log_odds(row), state)
        scores: Floats = -softplus(-_bounded(calibrated))
        return scores

    def _of_two(self, log_odds: Array, state: State) -> Array:
        """Calibrated log-odds of class 1 of two."""
        return _bounded(self._calibrated(_bounded(log_odds), state))

    def _refuse_state(self, state: State) -> str | None:
        expected = 1 if self.n_classes_ == 2 else self.n_classes_
        for name, values in state.items():
            if len(values) != expected:
                return f"{name!r} is for {len(values)} problems, not {expected}"
        return super()._refuse_state(state)
