"""Calibrators made of others, which are applied one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Shapes, State
from calibrant.calibrators.data import are_few_plain_rows


def log_probs_after(parts: Iterable[Calibrator], logits: Array) -> Array:
    """Log-probabilities after fitted calibrators in a row."""
    for part in parts:
        logits = part._apply(part._log_probs, logits)
    return logits


def _scores_after(parts: list[Calibrator], logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """:func:`log_probs_after` of a few rows, up to a number for each."""
    if not parts:
        return logits
    out = np.empty_like(logits)
    for i, row in enumerate(logits):
        scores = row.astype(np.float64, copy=False)
        for part in parts:
            scores = part._row_scores(scores, part.state_)
        out[i] = scores
    return out


class InParts(Calibrator):
    """Fitted calibrators in a row: each is applied to the log-probabilities of the one before.

    ``_fit`` of a subclass returns them in ``Fitted.parts``; they hold the whole state.

    Attributes:
        parts_: The fitted calibrators, in the order in which they are applied.
    """

    STATE: ClassVar[Shapes] = {}

    def _log_probs(self, logits: Array, state: State) -> Array:
        return log_probs_after(self.parts_, logits)

    def _probs(self, logits: Array, state: State) -> Array:
        *first, last = self.parts_
        if last._probs_are_compiled(last.state_) and are_few_plain_rows(logits):
            return last._probs(_scores_after(first, logits), last.state_)
        return last._apply(last._probs, log_probs_after(first, logits))

    @np.errstate(over="ignore")
    def _apply(self, transform: Callable[[Array, State], Array], logits: Array) -> Array:
        """Each part computes in the type that it needs."""
        self._need_fit()
        _inputs.same_classes(logits, self.n_classes_)
        return transform(logits, {})
