"""Platt scaling and beta calibration: g_k is a logistic function of a few features of x."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from calibrant import _inputs
from calibrant._numerics.logspace import softplus
from calibrant._types import Array
from calibrant.calibrators.base import Shapes, State, fitted_array
from calibrant.calibrators.data import Floats, row_blocks
from calibrant.calibrators.one_vs_rest.base import LARGEST_NUMBER, OneVsRest, Problems
from calibrant.calibrators.one_vs_rest.logistic import (
    RIDGES,
    LogisticLosses,
    bounded_minimum,
    ridge_shape,
    smoothing,
)

RIDGE = 0.3
"""Weight of the squared distance to the identity, in samples: see ``_Logistic``. Chosen on halves
of validation parts (``python -m experiments one-vs-rest-constants``): less is better with many
samples of some networks, more is better with few."""


class _Logistic(OneVsRest):
    """g = sigmoid(z), where z is a sum of slopes (at least 0) times features of x, plus a shift.

    The criterion is the log-loss, which is convex. Two things make its minimum finite and unique
    for every input:

    - Platt's targets instead of 1 and 0: with N+ samples of the class and N- others they are
      1 - (2/K) / (N+ + 2) and (2/K) / (N- + 2), for two classes those of the paper. A class that a
      threshold separates without an error thus gets a finite slope, and a class without samples a
      small g. On halves of validation parts the paper's numerator, 1 for any K, has a higher mean
      NLL, above all with many classes or few samples.
    - A ridge towards the identity: 0.3 corresponds to a normal prior of standard deviation 1.8 for
      the slopes, around 1, and for z at q = 1/K, around its log-odds. It decides if a class has few
      samples, and is negligible with a hundred. The ridge on the slopes is weaker if x varies by
      less than 1, so that logits in small units can still be enlarged.

    The last name in ``STATE`` is the shift.
    """

    def __init__(self, *, ridge: float = RIDGE) -> None:
        self.ridge = ridge

    def _check_params(self) -> None:
        _inputs.strength(self.ridge, "ridge")

    @abstractmethod
    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        """The features that the slopes multiply, in the order of ``STATE``."""

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        parameters = [state[name] for name in self.STATE]
        if isinstance(log_odds, float):
            parameters = [each.item() for each in parameters]
        *slopes, z = parameters
        for slope, feature in zip(slopes, self._features(log_odds), strict=True):
            z = z + slope * feature
        return z

    def _fit_problems(self, problems: Problems, lines: Floats | None = None) -> dict[str, Any]:
        even = -math.log(problems.n_classes - 1)  # the log-odds of 1/K
        at_even = np.array([float(feature) for feature in self._features(np.asarray(even))])
        start = None
        if lines is not None:
            slope, shift = lines[:, :1], lines[:, 1:]
            start = np.concatenate([slope] * len(at_even) + [slope * even + shift], axis=1)
        found = [
            bounded_minimum(
                self._losses(problems, block, even, at_even),
                None if start is None else start[block],
            )
            for block in row_blocks(*problems.log_odds.shape)
        ]
        parameters = np.concatenate([each.parameters for each in found])
        parameters[:, -1] -= parameters[:, :-1] @ at_even
        n_held = (parameters[:, :-1] == 0.0).sum(axis=0)
        held = [
            f"{name} = 0 in {count} of {len(problems)} problems"
            for name, count in zip(self.STATE, n_held, strict=False)
            if count
        ]
        return {
            "state": dict(zip(self.STATE, parameters.T.copy(), strict=True)),
            "gradient": max(float(each.gradient.max()) for each in found),
            "at_bound": ", ".join(held) or None,
            "evaluations": max(each.steps for each in found),
            "n_parameters": parameters.size,
        }

    def _losses(
        self, problems: Problems, block: slice, even: float, at_even: Floats
    ) -> LogisticLosses:
        """The criteria of some problems; features are 0 at ``even``, so the shift is z there."""
        log_odds, hits = problems.log_odds[block], problems.hits[block]
        weight = problems.weight[block]
        total = weight.sum(axis=1, keepdims=True)
        n_hits = (weight * hits).sum(axis=1, keepdims=True)
        other_side = smoothing(np.where(hits, n_hits, total - n_hits), problems.n_classes)
        features = [
            feature - here for feature, here in zip(self._features(log_odds), at_even, strict=True)
        ]
        shape = ridge_shape(log_odds, weight / total, len(features))
        ridge = min(float(self.ridge), LARGEST_NUMBER) * shape / np.maximum(total, 1.0)
        return LogisticLosses(
            features=np.stack([*features, np.ones_like(log_odds)], axis=1),
            targets=np.where(hits, 1.0 - other_side, other_side),
            weight=weight / np.maximum(total, 1.0),
            ridge=np.clip(ridge, *RIDGES),
            identity=np.tile([1.0] * len(features) + [even], (len(log_odds), 1)),
            alike=bool((weight == weight[:, :1]).all()),
        )

    def _refuse_state(self, state: State) -> str | None:
        for name in list(self.STATE)[:-1]:
            if (state[name] < 0.0).any():
                return f"{name!r} holds {state[name].min():g}, below 0"
        return super()._refuse_state(state)


class PlattScaling(_Logistic):
    r"""Platt scaling of each class: a logistic curve of its log-odds.

    .. math:: g_k = \sigma(a_k \log\frac{q_k}{1 - q_k} + b_k), \quad a_k \ge 0

    The slope is at least 0, so the samples keep their order within a class; the predicted class can
    change. Slope 1 and shift 0 change nothing. Newton's method fits the two numbers of each class.

    Targets are smoothed as in the paper: 1 - (2/K) / (N+ + 2) for the N+ samples of the class and
    (2/K) / (N- + 2) for the others. A ridge pulls towards the identity: it decides for classes with
    very few samples, and is negligible for the others.

    Args:
        ridge: Weight of the ridge in samples, above 0. The default was chosen on halves of
            validation parts alone (``python -m experiments one-vs-rest-constants``).

    Attributes:
        slope_: a_k of each class; for two classes only that of class 1.
        shift_: b_k.

    Reference: J. Platt, Probabilistic outputs for support vector machines (1999).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.parametric import PlattScaling
        >>> rng = np.random.default_rng(0)
        >>> log_odds = rng.normal(scale=2.0, size=5000)
        >>> labels = (rng.random(5000) < 1 / (1 + np.exp(-log_odds))).astype(int)
        >>> overconfident = np.stack([np.zeros(5000), 4 * log_odds + 2], axis=1)
        >>> platt = PlattScaling().fit(overconfident, labels)
        >>> platt.slope_.round(2), platt.shift_.round(1)  # the exact inverse: 1/4 and -1/2
        (array([0.25]), array([-0.5]))
    """

    NAME = "platt"
    STATE: ClassVar[Shapes] = {"slope": ("P",), "shift": ("P",)}
    slope_: Floats = fitted_array("slope")
    shift_: Floats = fitted_array("shift")

    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        return (log_odds,)


class BetaCalibration(_Logistic):
    r"""Beta calibration of each class: separate slopes at both ends.

    .. math:: g_k = \sigma(a_k \log q_k - b_k \log(1 - q_k) + c_k), \quad a_k, b_k \ge 0

    The correct map if q_k is beta-distributed both among the samples of class k and among the
    others. a = b is Platt scaling; a = b = 1 and c = 0 change nothing. Three numbers are fitted for
    each class, with the same targets and ridge as in :class:`PlattScaling`. If the best a or b is
    below 0, the result is the best curve with 0 instead.

    Args:
        ridge: As in :class:`PlattScaling`.

    Attributes:
        a_: Slope at small q_k, of each class; for two classes only that of class 1.
        b_: Slope at large q_k.
        c_: Shift.

    Reference: M. Kull, T. Silva Filho, P. Flach, Beta calibration (AISTATS 2017).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, size=5000)
        >>> q = np.where(labels == 1, rng.beta(4, 2, size=5000), rng.beta(2, 5, size=5000))
        >>> beta = BetaCalibration().fit(probs=np.stack([1 - q, q], axis=1), labels=labels)
        >>> beta.a_.round(1), beta.b_.round(1)  # in the limit 4 - 2 and 5 - 2
        (array([2.1]), array([2.9]))
    """

    NAME = "beta"
    STATE: ClassVar[Shapes] = {"a": ("P",), "b": ("P",), "c": ("P",)}
    a_: Floats = fitted_array("a")
    b_: Floats = fitted_array("b")
    c_: Floats = fitted_array("c")

    def _features(self, log_odds: Array) -> tuple[Array, ...]:
        return -softplus(-log_odds), softplus(log_odds)
