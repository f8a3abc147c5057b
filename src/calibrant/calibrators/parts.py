"""Calibrators made of others, which are applied one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Shapes, State
from calibrant.calibrators.data import Samples, are_few_plain_rows
from calibrant.calibrators.fit_report import CalibrationWarning


def log_probs_after(parts: Iterable[Calibrator], logits: Array) -> Array:
    """Log-probabilities after fitted calibrators in a row."""
    for part in parts:
        logits = part._apply(part._log_probs, logits)
    return logits


def fit_part(method: Calibrator, data: Samples) -> tuple[Calibrator, ...]:
    """Fit a calibrator that becomes a part of another, without its warnings; its own parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        method.fit_samples(data)
    return method.parts_ or (method,)


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
        if first and last._probs_are_compiled(last.state_) and are_few_plain_rows(logits):
            return np.stack([self._row_probs(row, state) for row in logits])
        return last._apply(last._probs, log_probs_after(first, logits))

    def _row_probs(self, row: npt.NDArray[Any], state: State) -> npt.NDArray[Any]:
        *first, last = self.parts_
        if not first:
            return last._row_probs(row, last.state_)
        scores = row.astype(np.float64, copy=False)
        for part in first:
            scores = part._row_scores(scores, part.state_)
        return last._row_probs(scores, last.state_).astype(row.dtype, copy=False)

    @np.errstate(over="ignore")
    def _apply(self, transform: Callable[[Array, State], Array], logits: Array) -> Array:
        """Each part computes in the type that it needs."""
        self._need_fit()
        _inputs.same_classes(logits, self.n_classes_)
        return transform(logits, {})
