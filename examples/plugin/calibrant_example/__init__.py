"""A calibrator and a metric for calibrant."""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import minimize_scalar

from calibrant.calibrators import CALIBRATORS, Calibrator, Fitted, Samples, State
from calibrant.calibrators.export.templates.checked import checked
from calibrant.errors import CalibrantError
from calibrant.metrics import ScoredSamples, metric

SMALLEST = 1e-6


def predict_proba(logits):  # type: ignore[no-untyped-def]
    """The probabilities of a softmax, mixed with equal ones."""
    s, dtype = checked(logits)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    possible = p > 0.0
    even = possible / possible.sum(axis=-1, keepdims=True)
    p = (1.0 - SHARE) * p / p.sum(axis=-1, keepdims=True) + SHARE * even  # type: ignore[name-defined]  # noqa: F821
    return p.astype(dtype)


class EvenMixture(Calibrator):
    """(1 - w) softmax(s) + w / K: a share w of the probability is spread evenly over K classes.

    Args:
        largest: Largest share to try.
    """

    NAME = "even-mixture"
    STATE = {"share": ()}
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

    def _log_probs(self, logits, state: State):  # type: ignore[no-untyped-def]
        xp = array_namespace(logits)
        z = logits - xp.max(logits, axis=-1, keepdims=True)
        log_probs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        possible = xp.astype(logits > -math.inf, logits.dtype)
        even = xp.log(possible) - xp.log(xp.sum(possible, axis=-1, keepdims=True))
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
