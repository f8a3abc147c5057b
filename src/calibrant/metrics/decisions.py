"""Actions of least expected cost, and what miscalibration costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import softmax
from calibrant._tables import count_text, json_value, score_text
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.metrics.costs import CostMatrix, cost_matrix
from calibrant.metrics.evaluation import Measured
from calibrant.metrics.samples import Floats

LARGEST_SCALED = 400
"""Binary exponent of the largest scaled cost: no sum or square of it overflows, and costs that are
much smaller keep their digits."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """The result of :func:`decide`: print it, or use ``actions``."""

    actions: npt.NDArray[np.int64]
    """The action of each sample, an index into ``action_names``."""
    action_names: tuple[str, ...]
    expected: Measured
    """Mean cost that the probabilities expect."""
    realised: Measured | None
    """Mean cost with the labels; None without labels."""
    miscalibration: Measured | None
    """Mean cost of these actions minus that of the actions by calibrated probabilities: realised
    with labels, otherwise as the calibrated probabilities expect it; None without them."""
    level: float

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def shares(self) -> dict[str, float]:
        """How often each action is taken."""
        counts = np.bincount(self.actions, minlength=len(self.action_names)) / len(self)
        return dict(zip(self.action_names, counts.tolist(), strict=True))

    def __str__(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        found = [each for each in (self.expected, self.realised, self.miscalibration) if each]
        head = f"{count_text(len(self))} samples, {100 * self.level:g}% intervals: {shares}"
        return "\n".join([head, *map(_line, found)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the actions of single samples."""
        found = (self.expected, self.realised, self.miscalibration)
        costs = {
            each.name: {key: json_value(getattr(each, key)) for key in ("value", "low", "high")}
            for each in found
            if each is not None
        }
        return {"n": len(self), "level": self.level, "shares": self.shares, **costs}


def _line(cost: Measured) -> str:
    text = f"{cost.name.replace('_', ' ')} {score_text(cost.value)} per sample"
    if cost.low is None or cost.high is None:
        return text
    return f"{text} ({score_text(cost.low)} to {score_text(cost.high)})"


def decide(
    probs: Any = None,
    labels: Array = None,
    *,
    logits: Any = None,
    costs: Any,
    reject: float | None = None,
    calibrated: Any = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
) -> Decisions:
    r"""Take the action of least expected cost for each sample.

    .. math:: a(x) = \arg\min_a \sum_k p_k(x) \, c_{ka}

    Of actions that cost the same, the first is taken. If the probabilities are calibrated, no other
    rule that uses only them costs less, and the expected cost is that which is realised. Otherwise
    both are too high or too low; ``calibrated`` says how much that costs.

    Args:
        probs: Probabilities, or pass ``logits``.
        labels: If known, one for each row: class indices, or names.
        logits: Logits instead of probabilities.
        costs: :math:`c_{ka}`, the cost of action a if class k is the true one: an array with a row
            for each class and a column for each action; a dict from an action to the costs of the
            classes; a frame; or a CSV file, for :func:`calibrant.metrics.read_costs`. Negative
            costs are gains.
        reject: Cost of a further action, the last: to leave the decision to somebody else.
        calibrated: Calibrated probabilities of the same samples, to compare with.
        positive: The positive class, if there is one column and the labels are not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        level: Confidence level of the intervals.

    References:
        Elkan (2001), Sec. 1; Chow (1970) for rejection.

    Examples:
        >>> import numpy as np
        >>> import calibrant
        >>> costs = {"treat": [10, 0], "wait": [0, 500]}  # of the healthy and of the sick
        >>> decisions = calibrant.decide(np.array([0.01, 0.05]), costs=costs)
        >>> [decisions.action_names[a] for a in decisions.actions], decisions.expected.value
        (['wait', 'treat'], 7.25)
        >>> print(calibrant.decide(np.array([0.01, 0.05]), costs=costs, labels=[0, 1], reject=2))
        2 samples, 95% intervals: treat 0.0%, wait 0.0%, reject 100.0%
        expected cost 2.0000 per sample (2.0000 to 2.0000)
        realised cost 2.0000 per sample (2.0000 to 2.0000)
    """
    level = _inputs.level(level)
    kind, given = _inputs.one_of(probs=probs, logits=logits)
    scores = _inputs.scores(kind, given)
    _inputs.same_rows(scores, labels=labels, calibrated=calibrated)
    p = _probabilities(scores)
    true = names = None
    if labels is None:
        names = None if classes is None else _inputs.distinct_classes(classes, p.shape[1])
    else:
        true, names = _inputs.class_indices(labels, scores, classes=classes, positive=positive)
        true = _inputs.as_numpy(true).reshape(-1)
    matrix = cost_matrix(costs).in_order_of(names or scores.names or range(p.shape[1]))
    after = None
    if calibrated is not None:
        after = _probabilities(_inputs.scores("probs", calibrated, names))
        _inputs.same_shape(probs=p, calibrated=after)
    return decisions_of(p, true, matrix.with_rejection(reject), after, level)


def _probabilities(scores: _inputs.Scores) -> Floats:
    values = _inputs.as_numpy(scores.checked()).astype(np.float64)
    flat = values.reshape(-1, values.shape[-1])
    _inputs.something_to_measure(len(flat))
    return np.asarray(softmax(flat) if scores.kind == "logits" else flat)


def decisions_of(
    probs: Floats,
    labels: npt.NDArray[np.int64] | None,
    costs: CostMatrix,
    calibrated: Floats | None,
    level: float,
) -> Decisions:
    """:func:`decide` of checked arrays, with named actions."""
    rows = np.arange(len(probs))
    values, exponent = _scaled(costs.values)
    expected = probs @ values
    actions = expected.argmin(axis=1)
    realised = None if labels is None else values[labels, actions]
    excess = None
    if calibrated is not None:
        truth = calibrated @ values
        better = truth.argmin(axis=1)
        of_action = truth if labels is None else values[labels]
        excess = of_action[rows, actions] - of_action[rows, better]

    def mean(name: str, costs: Floats | None) -> Measured | None:
        return None if costs is None else mean_cost(name, costs, level, exponent)

    assert costs.actions is not None
    return Decisions(
        actions=actions,
        action_names=costs.actions,
        expected=mean_cost("expected_cost", expected[rows, actions], level, exponent),
        realised=mean("realised_cost", realised),
        miscalibration=mean("miscalibration_cost", excess),
        level=level,
    )


def _scaled(costs: Floats) -> tuple[Floats, int]:
    """Costs over 2^exponent, which changes none of their digits, and the exponent."""
    exponent = int(np.frexp(np.abs(costs).max())[1]) - LARGEST_SCALED
    return np.ldexp(costs, -exponent), exponent


def mean_cost(name: str, rows: Floats, level: float, exponent: int = 0) -> Measured:
    """The mean of 2^exponent times ``rows``, a cost per sample, with Student's interval."""
    rows, further = _scaled(rows)

    def unscaled(cost: float) -> float:
        try:
            return math.ldexp(cost, exponent + further)
        except OverflowError:
            raise CalibrantError(
                "costs must have finite means and intervals; found that the "
                f"{name.replace('_', ' ')} goes beyond {np.finfo(np.float64).max:.2g}. "
                "Divide all costs by the same number"
            ) from None

    mean = float(rows.mean())
    if len(rows) < 2:
        return Measured(name, unscaled(mean), None, None)
    from scipy.special import stdtrit

    reach = stdtrit(len(rows) - 1, (1.0 + level) / 2.0) * rows.std(ddof=1) / math.sqrt(len(rows))
    low, high = mean - float(reach), mean + float(reach)
    return Measured(name, unscaled(mean), unscaled(low), unscaled(high))
