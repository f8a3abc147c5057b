"""Venn-Abers calibration: two isotonic fits that include the prediction itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.precision import narrowed
from calibrant._types import Array
from calibrant.calibrators.base import Shapes, State, state_like
from calibrant.calibrators.data import Floats, to_logits
from calibrant.calibrators.one_vs_rest.base import class_log_odds
from calibrant.calibrators.one_vs_rest.tables import (
    PADDING,
    Curve,
    PooledSamples,
    Table,
    places,
    taken,
)

TIED = 2.0**-16
"""A prediction closer than this to a sample, relative to its log-odds or to 1, has the same
log-odds: 0.999 in single precision is 0.999."""
LEAST = 2.0**-52
"""Bound of p1 and 1 - p0, which only weights above 2^52 reach."""


class VennAbers(Table):
    r"""Venn-Abers calibration of each class, with an interval for each prediction.

    The isotonic regression of the samples is fitted twice for each prediction, which joins the
    samples once with label 0 and once with label 1. Its own fitted values, p0 and p1, are the ends
    of the interval; the calibrated probability is

    .. math:: g_k = \frac{p_1}{1 - p_0 + p_1}.

    Whatever the distribution of independent samples, one of p0 and p1 is perfectly calibrated: the
    one of the true label. The interval is narrow where samples are many. The probability lies
    between the ends and is never 0 or 1. All fits are found in advance, in linear time
    after sorting. More than two classes are calibrated one by one, then divided by their sum, which
    is not covered by the guarantee.

    A prediction whose log-odds equal those of a sample, up to rounding in single precision, joins
    its group.

    Reference: V. Vovk, I. Petej, V. Fedorova, Large-scale probabilistic predictors with and without
    guarantees of validity (NeurIPS 2015).

    Examples:
        >>> import numpy as np
        >>> from calibrant import VennAbers
        >>> probs = np.repeat([[0.9, 0.1], [0.2, 0.8]], 60, axis=0)
        >>> labels = np.repeat([0, 1, 0, 1], [51, 9, 21, 39])  # 9 of 60, then 39 of 60
        >>> venn = VennAbers().fit(probs=probs, labels=labels)
        >>> venn.predict_proba(probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])[:, 1].round(4)
        array([0.1613, 0.4348, 0.6452])
        >>> venn.predict_interval(probs=[[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]).round(4)
        array([[0.1475, 0.1639],
               [0.1475, 0.6557],
               [0.6393, 0.6557]])
    """

    NAME = "venn-abers"
    STATE: ClassVar[Shapes] = {"knots": ("P", "M"), "p0": ("P", "M"), "p1": ("P", "M")}

    def predict_interval(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None
    ) -> Array:
        """p0 and p1 on a last axis of 2: of class 1 for two classes, else of each class.

        (n, K) logits give (n, 2) for two classes, (n, K, 2) for more. For more than two classes,
        these are the intervals of each class against the rest, before the division by the sum. A
        masked class has p0 = p1 = 0, and a class whose alternatives are all masked p0 = p1 = 1.
        """
        found = self._given(scores, logits, probs)
        given = to_logits(found.kind, found.checked())
        _inputs.same_classes(given, self.n_classes_)
        xp = array_namespace(given)
        inner = self._inner(given)
        possible = inner > -float("inf")
        alone = possible & (xp.sum(xp.astype(possible, xp.int64), axis=-1, keepdims=True) == 1)
        state, log_odds = state_like(self.state_, inner), class_log_odds(inner)
        if self.n_classes_ == 2:
            log_odds, possible, alone = (each[..., 1:] for each in (log_odds, possible, alone))
        place, _ = places(log_odds, state["knots"])
        ends = [
            xp.where(alone, 1.0, xp.where(possible, taken(state[name], place), 0.0))
            for name in ("p0", "p1")
        ]
        both = xp.stack(ends, axis=-1)
        return narrowed(both[..., 0, :] if self.n_classes_ == 2 else both, given)

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        xp = array_namespace(log_odds)
        place, _ = places(log_odds, state["knots"])
        return xp.log(taken(state["p1"], place)) - xp.log1p(-taken(state["p0"], place))

    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        p1 = _with_a_hit(groups.hits, groups.weight)
        p0 = 1.0 - _with_a_hit(groups.misses[::-1], groups.weight[::-1])[::-1]
        # A prediction between two samples has p0 of the lower and p1 of the upper one. So between
        # the knots there are, in turn, a gap and a sample, the first and the last a gap.
        x = groups.log_odds
        width = TIED * np.maximum(np.abs(x), 1.0)
        middle = (x[1:] + x[:-1]) / 2.0
        knots = np.empty(2 * len(x) + 1)
        knots[0] = -PADDING
        knots[1::2] = x - width
        knots[2::2] = x + width
        knots[3::2] = np.maximum(knots[3::2], middle)
        knots[2:-1:2] = np.minimum(knots[2:-1:2], middle)
        low = np.append(0.0, np.repeat(p0, 2))
        high = np.append(np.repeat(p1, 2), 1.0)
        starts = np.diff(low, prepend=np.nan) != 0.0
        starts |= np.diff(high, prepend=np.nan) != 0.0
        columns = {"p0": low[starts], "p1": high[starts]}
        return Curve(knots[starts], columns, len(np.unique(p1)))

    def _refuse_state(self, state: State) -> str | None:
        p0, p1 = np.asarray(state["p0"]), np.asarray(state["p1"])
        if not ((p0 >= 0.0) & (p0 < 1.0) & (p1 > 0.0) & (p1 <= 1.0)).all():
            return "its p0 and p1 are not probabilities below 1 and above 0"
        return super()._refuse_state(state)


def _with_a_hit(hits: Floats, weight: Floats) -> Floats:
    """The isotonic fit at each group after one more hit in it."""
    from calibrant.calibrators.one_vs_rest.kernels import isotonic_with_a_hit

    sums = (np.append(0.0, np.cumsum(values)) for values in (weight, hits))
    fitted = np.maximum.accumulate(isotonic_with_a_hit(*sums))  # rising, but for rounding
    return np.clip(fitted, LEAST, 1.0)
