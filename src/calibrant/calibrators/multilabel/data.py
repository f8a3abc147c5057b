"""Multi-label samples as pairs: one sample of two classes for each sample and label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._types import Array
from calibrant.calibrators.base import State
from calibrant.calibrators.data import PROBS_FLOOR, FitData, Floats
from calibrant.calibrators.one_vs_rest.base import MOST_LOG_ODDS


def label_logits(given: _inputs.Scores) -> Array:
    """Log-odds of every label; both ends of probabilities are kept ``PROBS_FLOOR`` away."""
    return given.values if given.kind == "logits" else floored_log_odds(given.values)


def floored_log_odds(probs: Array) -> Array:
    """log(p / (1 - p)), with p and 1 - p raised to the floor."""
    xp = array_namespace(probs)
    yes, no = (xp.log(xp.clip(side, min=PROBS_FLOOR)) for side in (probs, 1.0 - probs))
    return yes - no


def no_and_yes(logits: Array) -> Array:
    """Logits of "no" and "yes", on a new last axis."""
    xp = array_namespace(logits)
    return xp.stack([xp.zeros_like(logits), logits], axis=-1)


def with_label_terms(log_probs: Array, state: State) -> Array:
    """Log-odds a x + b of each label, from log-probabilities of "no" and "yes"; all bounded."""
    xp = array_namespace(log_probs)
    x = xp.clip(log_probs[..., 1] - log_probs[..., 0], -MOST_LOG_ODDS, MOST_LOG_ODDS)
    return xp.clip(state["slope"] * x + state["shift"], -MOST_LOG_ODDS, MOST_LOG_ODDS)


@dataclass(frozen=True)
class Pairs(FitData):
    """Every pair of a sample and a label as a sample of two classes, sample by sample."""

    n_labels: int = 1

    @classmethod
    def checked(
        cls, given: _inputs.Scores, labels: Any, sample_weight: Array
    ) -> tuple[Pairs, _inputs.Classes | None]:
        """Check the labels and weights of scores; rows of weight 0 are dropped.

        The second result is what the labels are called.
        """
        _inputs.same_rows(given, labels=labels, sample_weight=sample_weight)
        matrix, names = _inputs.label_matrix(labels, given)
        kind, scores = given.kind, given.values
        weight = _inputs.sample_weight(sample_weight, scores)
        n_labels = scores.shape[-1]
        flat = _inputs.as_numpy(scores).reshape(-1, n_labels)
        matrix = matrix.reshape(-1, n_labels)
        if weight is not None:
            weight = weight.reshape(-1)
            present = weight > 0
            flat, matrix, weight = flat[present], matrix[present], weight[present]
        _inputs.something_to_measure(len(flat))
        odds = flat if kind == "logits" else floored_log_odds(flat)
        pairs = cls(
            no_and_yes(odds.astype(np.float64)).reshape(-1, 2),
            matrix.astype(np.int64).reshape(-1),
            None if weight is None else np.repeat(weight, n_labels),
            n_labels,
        )
        return pairs, names

    def by_label(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One value per pair as an array (labels, samples)."""
        return np.ascontiguousarray(values.reshape(-1, self.n_labels).T)

    @property
    def positives(self) -> npt.NDArray[np.bool_]:
        """(labels, samples)"""
        return np.asarray(self.by_label(self.labels) == 1)

    @property
    def sample_counts(self) -> Floats:
        """How many samples each row counts for: (samples,)."""
        return self.counts[:: self.n_labels]
