"""The summary of probabilities or logits that every metric is a function of.

The public functions build :class:`ScoredSamples` from their arguments; ``evaluate`` builds them
once for all metrics. What only some metrics need is computed on demand, once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import probs_of
from calibrant._types import Array
from calibrant.errors import CalibrantError

Floats = npt.NDArray[np.float64]

NEGLIGIBLE = 2.0**-300
"""A weight this many times smaller than the largest counts as 0. If the largest is itself smaller,
products of weights and probabilities could lose digits, and weights are scaled up."""


@dataclass(frozen=True)
class ScoredSamples:
    """Checked predictions, one row for each sample.

    ``scores`` and ``labels`` are None if only ``confidence`` and ``correct`` are known.
    """

    confidence: Floats
    """Largest probability of each row."""
    correct: npt.NDArray[np.bool_]
    """Whether it is the probability of the label."""
    weight: Floats | None
    """Weight of each row; None means that every weight is 1."""
    scores: npt.NDArray[Any] | None = None
    """Probabilities or logits, (n, K)."""
    labels: npt.NDArray[np.int64] | None = None
    from_logits: bool = False
    label_log_prob: Floats | None = None
    """Log-probability of the label, if it is known although the scores of all classes are not."""
    sum_of_squares: Floats | None = None
    """Sum of the squared probabilities of each row, likewise."""
    classes: _inputs.Classes | None = None
    """The label of each class."""
    upper: npt.NDArray[Any] | None = None
    """Largest possible logits, (n, K), if a log leaves out options; see ``missing_options``."""
    groups: _inputs.Groups | None = None
    """The groups of the rows, to evaluate each of them too."""
    known_rounding: float | None = None
    """:attr:`rounding`, if it is known although the scores are not."""

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.need_scores().shape[1])

    @property
    def weights(self) -> Floats:
        """Weight of each row, 1 by default."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """Number of samples, or their total weight."""
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    @property
    def gap(self) -> Floats:
        """Confidence minus correctness, per row."""
        return self.confidence - self.correct

    def mean(self, values: npt.NDArray[Any], where: npt.NDArray[np.bool_] | None = None) -> float:
        """Weighted mean over the rows (in ``where``); NaN if there are none."""
        weight = self.weight
        if where is not None:
            values, weight = values[where], None if weight is None else weight[where]
        if len(values) == 0 or (weight is not None and not weight.any()):
            return float("nan")
        return float(np.average(values, weights=weight))

    def mean_of_present(
        self, values: npt.NDArray[Any], where: npt.NDArray[np.bool_] | None = None
    ) -> float:
        """As :meth:`mean`, for values that may be infinite in rows of weight 0."""
        if self.weight is not None:
            present = self.weight > 0
            where = present if where is None else where & present
        return self.mean(values, where)

    def weighted_by(self, weight: Floats) -> ScoredSamples:
        """The same samples under other weights."""
        return replace(self, weight=weight)

    def need_scores(self) -> npt.NDArray[Any]:
        """The scores of all classes, for metrics that need more than the confidence."""
        if self.scores is None:
            raise CalibrantError(
                "this metric needs the probabilities of all classes; found only confidence and "
                "correct. Pass probs or logits with labels"
            )
        return self.scores

    def need_labels(self) -> npt.NDArray[np.int64]:
        """The labels, which are known if the scores are."""
        self.need_scores()
        assert self.labels is not None
        return self.labels

    @cached_property
    def _rest(self) -> tuple[Floats, Floats]:
        from calibrant.metrics import kernels

        scores = self.need_scores()
        true_log_prob, squares = np.empty(len(self)), np.empty(len(self))
        kernel = kernels.rest_of_logits if self.from_logits else kernels.rest_of_probs
        kernel(scores, self.labels, true_log_prob, squares)
        return true_log_prob, squares

    @property
    def true_log_prob(self) -> Floats:
        """Log-probability of the label, -inf if its probability is 0."""
        return self._rest[0] if self.label_log_prob is None else self.label_log_prob

    @property
    def squares(self) -> Floats:
        """Sum of the squared probabilities of each row."""
        return self._rest[1] if self.sum_of_squares is None else self.sum_of_squares

    @cached_property
    def rounding(self) -> float:
        """Relative rounding error of a probability, on average over the rows.

        It is that of the type of the scores. The error of a logit grows with its size, and of each
        row those next to the largest matter.
        """
        if self.scores is None:
            known = self.known_rounding
            return float(np.finfo(np.float64).eps) if known is None else known
        unit = float(np.finfo(self.scores.dtype).eps)
        if not self.from_logits:
            return unit
        size = np.abs(self.scores.max(axis=1).astype(np.float64))
        return float(np.clip(unit * size, unit, 1.0).mean())

    def without_scores(self) -> ScoredSamples:
        """The same samples for metrics of the top class, the NLL and the Brier score only."""
        return ScoredSamples(
            self.confidence,
            self.correct,
            self.weight,
            label_log_prob=self.true_log_prob,
            sum_of_squares=self.squares,
            known_rounding=self.rounding,
        )

    def without_many_scores(self) -> ScoredSamples:
        """What comparisons of models need: P(class 1) of two classes, else the top class."""
        return self if self.n_classes == 2 else self.without_scores()

    def rows(self, which: npt.NDArray[np.intp]) -> ScoredSamples:
        """Some of the rows."""
        arrays = {name: value for name, value in vars(self).items() if name in ROW_ARRAYS}
        return replace(self, **{n: a[which] for n, a in arrays.items() if a is not None})

    @cached_property
    def entropy(self) -> Floats:
        """Entropy of each row, in nats."""
        from calibrant.metrics import kernels

        scores = self.need_scores()
        entropy = np.empty(len(self))
        kernel = kernels.entropy_of_logits if self.from_logits else kernels.entropy_of_probs
        kernel(scores, entropy)
        return entropy

    def probs(self) -> Floats:
        """Probabilities of all classes, as a new array."""
        return probs_of(self.need_scores(), from_logits=self.from_logits)


ROW_ARRAYS = tuple(
    field.name
    for field in fields(ScoredSamples)
    if field.name not in ("from_logits", "classes", "known_rounding")
)
"""Fields with one entry for each row."""


def samples_from_scores(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    groups: Any = None,
    upper_logits: Array = None,
) -> ScoredSamples:
    """Check the arguments of a metric and reduce them to what it needs, in one pass."""
    from calibrant.metrics import kernels

    kind, given = _inputs.one_of(probs=probs, logits=logits)
    found = _inputs.scores(kind, given)
    _inputs.same_rows(found, labels=labels, sample_weight=sample_weight, groups=groups)
    if found.one_column:
        found.checked()
    scores = _inputs.as_numpy(found.values)
    if scores.dtype.itemsize > 8:
        scores = scores.astype(np.float64)  # kernels have no longer floats
    ignored = _inputs.ignored_label(ignore_label)
    indices, names = _inputs.class_indices(
        labels, found, classes=classes, positive=positive, ignored=ignored
    )
    labels = _inputs.as_numpy(indices).reshape(-1)
    weight = _inputs.sample_weight(sample_weight, scores)
    weight = None if weight is None else weights_in_range(weight.reshape(-1))
    flat = scores.reshape(-1, scores.shape[-1])
    if groups is not None:
        groups = _inputs.groups(groups, len(flat))
    upper = None if upper_logits is None else _checked_upper(upper_logits, kind, scores)
    kept = np.ones(len(flat), dtype=np.bool_)
    if ignored is not None:
        kept &= labels != ignored
    if weight is not None:
        kept &= weight > 0
    if not kept.all():
        flat, labels = flat[kept], labels[kept]
        weight = None if weight is None else weight[kept]
        groups = None if groups is None else groups[kept]
        upper = None if upper is None else upper[kept]
    _inputs.something_to_measure(len(flat))
    confidence = np.empty(len(flat))
    correct = np.empty(len(flat), dtype=np.bool_)
    tolerance = found.tolerance
    if kind == "logits":
        bad = kernels.top_of_logits(flat, labels, confidence, correct)
    else:
        bad = kernels.top_of_probs(flat, labels, tolerance, confidence, correct)
    # The checks find the bad row again, among the rows that count, and raise with a message.
    if max(bad) >= 0:
        shown = np.full(scores.shape, 1.0 / scores.shape[-1], dtype=scores.dtype)
        shown.reshape(-1, scores.shape[-1])[kept] = flat
        if kind == "logits":
            _inputs.logits(shown)
        else:
            _inputs.probs(shown, tolerance=tolerance)
    return ScoredSamples(
        confidence,
        correct,
        weight,
        flat,
        labels,
        kind == "logits",
        classes=names,
        upper=upper,
        groups=groups,
    )


def weights_in_range(weight: Floats) -> Floats:
    """Checked weights whose products are exact up to rounding: none is tiny, except 0.

    Weights are relative, and a power of two changes no digit of them.

    Examples:
        >>> weights_in_range(np.array([5e-324, 1e-323])).tolist()
        [0.5, 1.0]
        >>> weights_in_range(np.array([3.0, 5e-324])).tolist()
        [3.0, 0.0]
    """
    largest = weight.max(initial=0.0)
    if 0.0 < largest < NEGLIGIBLE:
        weight = np.ldexp(weight, 1 - np.frexp(largest)[1])
        largest = weight.max()
    return np.where(weight < NEGLIGIBLE * largest, 0.0, weight)


def _checked_upper(upper_logits: Array, kind: str, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The largest logits that missing options can have, (n, K)."""
    upper = _inputs.as_numpy(_inputs.logits(upper_logits))
    if kind != "logits" or upper.shape != scores.shape or (upper < scores).any():
        raise CalibrantError(
            "upper_logits must have the shape of logits and be nowhere smaller; found the shape "
            f"{upper.shape}. Pass logits and upper_logits of read_predictions"
        )
    return upper.reshape(-1, upper.shape[-1])


def samples_of_confidence(confidence: Array, correct: Array) -> ScoredSamples:
    """Samples of which only the confidence and the correctness are known."""
    values = _inputs.as_numpy(_inputs.unit_interval(confidence, "confidence")).astype(np.float64)
    correct = _inputs.booleans(correct, "correct")
    _inputs.same_shape(confidence=values, correct=correct)
    _inputs.something_to_measure(values.size)
    return ScoredSamples(values.reshape(-1), correct.reshape(-1), None)
