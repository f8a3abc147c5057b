"""What the linear calibrators share: the map, the fit and its report."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import below_top, detach, exact_log_softmax
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, State, fitted_array
from calibrant.calibrators.data import Floats, Samples
from calibrant.calibrators.fit_report import LIMITS
from calibrant.calibrators.linear.loss import (
    FAR,
    Penalty,
    RegressionLoss,
    RegressionRows,
    centred_logits,
    regression_rows,
)
from calibrant.calibrators.linear.solver import (
    NOT_CLOSE,
    BestInverseTemperature,
    Optimum,
    best_inverse_temperature,
    minimise,
)

RIDGE = 1e-4
"""Strength of the penalty on parameters that have no other. With 5000 samples it equals a prior
under which a bias, or the weight of a logit of size 1, differs by about 1 from temperature scaling:
negligible against a hundred samples of a class, and decisive if there are none."""
LARGEST_NUMBER = 1e34


class Linear(Calibrator):
    """Softmax of a bias plus scores that are linear in the centred logits or in other features.

    Subclasses define the map, and how the correction of ``linear.loss`` becomes its state.
    """

    ON_LOG_PROBS: ClassVar[bool] = False
    """Whether the features are log-probabilities instead of the centred logits."""
    LARGEST = LARGEST_NUMBER
    bias_: Floats = fitted_array("bias")

    @abstractmethod
    def _shape(self, n_classes: int) -> tuple[int, ...]:
        """Shape of the correction N of ``linear.loss``."""

    @abstractmethod
    def _penalty(self, rows: RegressionRows) -> Penalty:
        """The penalty that pulls towards temperature scaling."""

    @abstractmethod
    def _state(
        self, rows: RegressionRows, inverse_temperature: float, correction: Floats, bias: Floats
    ) -> dict[str, Any]:
        """The state, from the parameters of ``linear.loss`` in its units."""

    def _identity(self, n_classes: int) -> dict[str, Any]:
        """The state that changes nothing."""
        of_all_methods = {
            "temperature": 1.0,
            "weights": np.ones(n_classes),
            "matrix": np.zeros((n_classes, n_classes)),
            "bias": np.zeros(n_classes),
        }
        return {name: of_all_methods[name] for name in self.STATE}

    def _is_free(self) -> bool:
        """Whether the penalty only keeps the result finite and should decide nothing."""
        return False

    def _fit(self, data: Samples) -> Fitted:
        rows = regression_rows(data, log_probs=self.ON_LOG_PROBS)
        inverse_temperature = best_inverse_temperature(rows)
        penalty = self._penalty(rows)
        loss = rows.loss(inverse_temperature.value, self._shape(data.n_classes), penalty)
        found = minimise(loss)
        correction, bias = loss.parts(found.parameters)
        # The mean bias is 0 at the minimum, and changes nothing elsewhere.
        state = self._state(rows, inverse_temperature.value, correction, bias - bias.mean())
        unchanged = self._identity(data.n_classes)
        with np.errstate(over="ignore"):
            before, after, accuracy_after = data.means(self._measured, unchanged, state)
        effort: dict[str, Any] = {
            "criterion": "nll",
            "before": before,
            "evaluations": inverse_temperature.evaluations + found.evaluations,
            "n_parameters": found.parameters.size,
        }
        if not after <= before:
            worse = (
                f"the search ended at an NLL of {after:.6g}, above the {before:.6g} of the "
                "uncalibrated probabilities, so these were kept; look for rows of a very different "
                "scale."
            )
            return Fitted(state=unchanged, after=before, warnings=(*_masks(rows), worse), **effort)
        at_bound = self._at_bound(inverse_temperature, correction)
        doubts = [*_masks(rows), *self._reasons(loss, found)]
        if at_bound is not None:
            doubts.append(LIMITS[at_bound])
        return Fitted(
            state=state,
            after=after,
            accuracy_after=accuracy_after,
            gradient=found.gradient,
            at_bound=at_bound,
            warnings=tuple(doubts),
            **effort,
        )

    def _at_bound(
        self, inverse_temperature: BestInverseTemperature, correction: Floats
    ) -> str | None:
        """The limit T -> 0, which is final; from T -> infinity the correction leads away."""
        return inverse_temperature.limit if inverse_temperature.limit == "T -> 0" else None

    def _reasons(self, loss: RegressionLoss, found: Optimum) -> Iterator[str]:
        """Reasons to distrust the minimum."""
        if found.gradient > NOT_CLOSE:
            yield (
                f"the search stopped before the minimum, at a gradient of {found.gradient:.1g} "
                f"after {found.evaluations} evaluations; look for rows of a very different scale, "
                "or use stronger penalties."
            )
        n_held = loss.n_held(found.parameters) if self._is_free() else 0
        if n_held:
            n_classes = loss.rows.data.n_classes
            yield (
                f"the samples do not determine the parameters of {n_held} of {n_classes} classes, "
                "which have few samples or are separated from the others without an error; a weak "
                "penalty does, and a larger ridge is safer."
            )

    def _refuse_state(self, state: State) -> str | None:
        if state.get("temperature", 1.0) < 1.0 / LARGEST_NUMBER:
            return f"its temperature is {state['temperature']:g}, not above 0"
        return super()._refuse_state(state)


class CentredLinear(Linear):
    """Maps that depend on the centre of a row; subclasses define the scores."""

    @abstractmethod
    def _scores(self, centred: Array, features: Array, state: State) -> Array:
        """Scores without the bias, linear in (centred, features)."""

    def _log_probs(self, logits: Array, state: State) -> Array:
        xp = array_namespace(logits)
        absent = logits == -float("inf")
        centred = features = centred_logits(logits)
        if self.ON_LOG_PROBS:
            features = xp.where(absent, 0.0, exact_log_softmax(logits, finite=True))
        # The scores are computed for a row of size 1: no product or sum overflows before the
        # largest of them is subtracted.
        size = detach(xp.max(xp.abs(features), axis=-1, keepdims=True))
        size = xp.clip(size, min=float(xp.finfo(logits.dtype).smallest_normal))
        scores = self._scores(centred / size, features / size, state)
        scores = xp.where(absent, -float("inf"), scores)
        top = detach(xp.max(scores, axis=-1, keepdims=True))
        log_probs = exact_log_softmax((scores - top) * size + state["bias"], finite=True)
        return xp.where(absent, -float("inf"), log_probs)

    def _row_scores(self, row: Floats, state: State) -> Floats:
        z = below_top(row, 1.0)
        centred = features = z - np.add.reduce(z) / len(row)
        if self.ON_LOG_PROBS:
            features = z - math.log(np.add.reduce(np.exp(z)))
        scores: Floats = self._scores(centred, features, state) + state["bias"]
        return scores


def temperature_of(rows: RegressionRows, inverse_temperature: float) -> float:
    """T, from the inverse temperature of centred logits in units of their typical size."""
    return min(rows.size / inverse_temperature, float(np.finfo(np.float64).max))


def _masks(rows: RegressionRows) -> Iterator[str]:
    """A warning about finite logits that mark absent classes and move the centre of a row."""
    if rows.n_masked:
        yield (
            f"{rows.n_masked} of {len(rows.data)} rows have logits more than {FAR:g} times farther "
            "below the largest than is typical, which move the centre of a row; if they mark "
            "absent classes, use -inf."
        )
