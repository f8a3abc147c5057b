"""A calibrator and a metric for calibrant."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from calibrant.calibrators import CALIBRATORS, Calibrator, Fitted, Samples, State
from calibrant.calibrators.export.templates.checked import Floats, checked
from calibrant.errors import CalibrantError
from calibrant.metrics import ScoredSamples, metric

SMALLEST = 1e-6
SHARE = SMALLEST  # in an exported file, the state of the calibrator


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """(1 - SHARE) softmax(logits), and SHARE spread evenly over the possible classes."""
    s, dtype = checked(logits)
    p: Floats = np.exp(s - s.max(axis=-1, keepdims=True))
    p *= (1.0 - SHARE) / p.sum(axis=-1, keepdims=True)
    possible = s > -np.inf
    p += SHARE * possible / possible.sum(axis=-1, keepdims=True)
    return p.astype(dtype)


class EvenMixture(Calibrator):
    """(1 - w) softmax(s) + w / K: a share of the probability is spread evenly.

    Args:
        largest: Largest share to try.
    """

    NAME = "even-mixture"
    STATE: ClassVar = {"share": ()}
    PER_CLASS = False
    NUMPY_SOURCE = (checked, predict_proba)

    def __init__(self, *, largest: float = 0.5) -> None:
        self.largest = largest

    def _fit(self, data: Samples) -> Fitted:
        samples = data.in_memory()
        rows = np.arange(len(samples))

        def nll(share: float) -> float:
            log_probs = self._log_probs(samples.logits, {"share": share})
            return samples.mean(-log_probs[rows, samples.labels])

        found = minimize_scalar(nll, bounds=(SMALLEST, self.largest), method="bounded")
        return Fitted(
            state={"share": float(found.x)},
            criterion="nll",
            before=nll(SMALLEST),
            after=float(found.fun),
            evaluations=found.nfev,
            n_parameters=1,
        )

    def _log_probs(self, logits: Any, state: State) -> Any:
        xp = array_namespace(logits)
        z = logits - xp.max(logits, axis=-1, keepdims=True)
        log_probs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        possible = logits > -math.inf
        n_possible = xp.sum(xp.astype(possible, logits.dtype), axis=-1, keepdims=True)
        even = xp.where(possible, -xp.log(n_possible), logits)
        share = state["share"]
        return xp.logaddexp(math.log1p(-share) + log_probs, math.log(share) + even)

    def _check_params(self) -> None:
        if not SMALLEST < self.largest < 1.0:
            raise CalibrantError(f"largest must be between 0 and 1; found {self.largest!r}")

    def _refuse_state(self, state: State) -> str | None:
        share = state["share"]
        return None if 0.0 < share < 1.0 else f"share is {share:g}, not between 0 and 1"


CALIBRATORS.register(EvenMixture.NAME, EvenMixture)


@metric(lower_is_better=True)
def sure_and_wrong(samples: ScoredSamples, *, above: float = 0.9) -> float:
    """Share of the samples that are wrong with a confidence above ``above``."""
    return samples.mean((samples.confidence > above) & ~samples.correct)
