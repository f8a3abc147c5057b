"""What the linear calibrators have in common: the map, and the way from the fit to the report."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from calibrant._numerics.logspace import detach, split_top
from calibrant._numerics.precision import narrowed
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, State
from calibrant.calibrators.data import FitData, Floats, Samples
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
    Factor,
    Optimum,
    best_factor,
    minimise,
)

RIDGE = 1e-4
"""Strength of the squares that nothing else holds. With 5000 samples it says as much as the prior
belief that a bias, or the factor of a logit of size 1, is off by about 1 from temperature scaling:
hardly anything against a hundred samples of a class, and all there is where there are none."""
LARGEST_NUMBER = 1e34
"""No fit comes near it; a file that holds more could overflow."""


class Linear(Calibrator):
    """Softmax of a bias plus scores that are linear in the centred logits, or in other features.

    Subclasses write the map, and what the correction of ``linear.loss`` means for it.
    """

    ON_LOG_PROBS: ClassVar[bool] = False
    """Whether the features are log-probabilities, or the centred logits themselves."""

    @abstractmethod
    def _shape(self, n_classes: int) -> tuple[int, ...]:
        """Shape of the correction N of ``linear.loss``."""

    @abstractmethod
    def _penalty(self, rows: RegressionRows) -> Penalty:
        """What pulls towards temperature scaling."""

    @abstractmethod
    def _state(
        self, rows: RegressionRows, factor: float, correction: Floats, bias: Floats
    ) -> dict[str, Any]:
        """The state, from what ``linear.loss`` finds in its own units."""

    @abstractmethod
    def _identity(self, n_classes: int) -> dict[str, Any]:
        """The state that changes nothing."""

    def _is_free(self) -> bool:
        """Whether the penalty is only there to keep the result finite, and is to decide nothing."""
        return False

    def _fit(self, data: Samples) -> Fitted:
        rows = regression_rows(data, log_probs=self.ON_LOG_PROBS)
        factor = best_factor(rows)
        penalty = self._penalty(rows)
        loss = rows.loss(factor.value, self._shape(data.n_classes), penalty)
        found = minimise(loss)
        correction, bias = loss.parts(found.parameters)
        # Their mean is 0 at the minimum, and changes nothing elsewhere.
        state = self._state(rows, factor.value, correction, bias - bias.mean())
        unchanged = self._identity(data.n_classes)
        with np.errstate(over="ignore"):
            before, after, right_after = data.means(self._looked_at, unchanged, state)
        if not after <= before:
            return self._kept(rows, unchanged, before, after, factor, found)
        at_bound = self._at_bound(factor, correction)
        doubts = [*_masks(rows), *self._reasons(loss, found)]
        if at_bound is not None:
            doubts.append(LIMITS[at_bound])
        return Fitted(
            state=state,
            criterion="nll",
            before=before,
            after=after,
            accuracy_after=right_after,
            gradient=found.gradient,
            at_bound=at_bound,
            evaluations=factor.evaluations + found.evaluations,
            n_parameters=found.parameters.size,
            warnings=tuple(doubts),
        )

    def _kept(
        self,
        rows: RegressionRows,
        unchanged: dict[str, Any],
        before: float,
        after: float,
        factor: Factor,
        found: Optimum,
    ) -> Fitted:
        """The probabilities as they are, where the search found nothing better."""
        worse = (
            f"the search ended at an NLL of {after:.6g}, above the {before:.6g} of the "
            "probabilities as they are, so these were kept; look for rows of a very different "
            "size."
        )
        return Fitted(
            state=unchanged,
            criterion="nll",
            before=before,
            after=before,
            evaluations=factor.evaluations + found.evaluations,
            n_parameters=found.parameters.size,
            warnings=(*_masks(rows), worse),
        )

    def _at_bound(self, factor: Factor, correction: Floats) -> str | None:
        """At T -> 0 nothing is left to gain; from T -> infinity the correction leads away."""
        return factor.limit if factor.limit == "T -> 0" else None

    def _reasons(self, loss: RegressionLoss, found: Optimum) -> Iterator[str]:
        """Why the minimum is not to be trusted, or not one."""
        if found.gradient > NOT_CLOSE:
            yield (
                f"the search stopped at a slope of {found.gradient:.1g} after "
                f"{found.evaluations} evaluations, short of the minimum; look for rows of a very "
                "different size, or use stronger penalties."
            )
        n_held = loss.n_held(found.parameters) if self._is_free() else 0
        if n_held:
            n_classes = loss.rows.data.n_classes
            yield (
                f"the samples do not settle the numbers of {n_held} of {n_classes} classes, which "
                "have few samples, or are told from the others without an error; a weak pull "
                "towards one temperature does, and a larger ridge is safer."
            )

    def _looked_at(self, data: FitData, *states: State) -> Iterator[npt.NDArray[Any]]:
        """The NLL of each row, under one state after the other; whether the last one is right."""
        losses, correct = np.empty(len(data)), np.empty(len(data), dtype=bool)
        for state in states:
            with np.errstate(over="ignore"):
                for block in data.blocks():
                    logits, labels = data.logits[block], data.labels[block]
                    log_probs = self._log_probs(logits.astype(np.float64), state)
                    losses[block] = -log_probs[np.arange(len(labels)), labels]
                    if state is states[-1]:  # in the type in which it is given
                        correct[block] = narrowed(log_probs, logits).argmax(axis=1) == labels
            yield losses
        yield correct

    def _refuse_state(self, state: State) -> str | None:
        if state.get("temperature", 1.0) < 1.0 / LARGEST_NUMBER:
            return f"its temperature is {state['temperature']:g}, not above 0"
        for name, values in state.items():
            if name != "temperature" and np.abs(values).max() > LARGEST_NUMBER:
                return f"{name!r} holds a number beyond {LARGEST_NUMBER:g}"
        return None

    @property
    def bias_(self) -> Floats:
        """The fitted bias of each class; their sum is 0."""
        return np.asarray(self.state_["bias"])


class CentredLinear(Linear):
    """Maps for which the centre of a row matters; subclasses write the scores."""

    @abstractmethod
    def _scores(self, centred: Array, features: Array, state: State) -> Array:
        """Scores without the bias; linear, so that both arguments can be given over a number."""

    def _log_probs(self, logits: Array, state: State) -> Array:
        xp = array_namespace(logits)
        absent = logits == -float("inf")
        centred = features = centred_logits(logits)
        if self.ON_LOG_PROBS:
            features = xp.where(absent, 0.0, split_top(logits).log_q)
        # The scores are computed for a row of size 1, so that no product or sum overflows before
        # the largest of them is subtracted.
        size = detach(xp.max(xp.abs(features), axis=-1, keepdims=True))
        size = xp.clip(size, min=float(xp.finfo(logits.dtype).smallest_normal))
        scores = self._scores(centred / size, features / size, state)
        scores = xp.where(absent, -float("inf"), scores)
        top = detach(xp.max(scores, axis=-1, keepdims=True))
        log_probs = split_top((scores - top) * size + state["bias"]).log_q
        return xp.where(absent, -float("inf"), log_probs)


def temperature_of(rows: RegressionRows, factor: float) -> float:
    """T, from the factor of centred logits in units of their typical size."""
    return min(rows.size / factor, float(np.finfo(np.float64).max))


def _masks(rows: RegressionRows) -> Iterator[str]:
    """Finite numbers in the place of absent classes, which only -inf takes out of the centre."""
    if rows.n_masked:
        yield (
            f"{rows.n_masked} of {len(rows.data)} rows hold logits more than {FAR:g} times as far "
            "below the largest as is usual, and such numbers move the centre of a row; where they "
            "stand for absent classes, use -inf."
        )
