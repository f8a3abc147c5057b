"""The input of a fit: samples in memory, and the protocol for samples stored elsewhere.

A fit asks a :class:`Samples` for means and sums. :class:`FitData` computes them from arrays;
``scale`` computes them from files, as sums over parts. What a family computes from samples is a
function of that family that dispatches on their type: this module imports no family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import floored_log_of_probs
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.metrics.binning import all_whole

Floats: TypeAlias = npt.NDArray[np.float64]

PROBS_FLOOR = 2.0**-24
"""Calibrators raise ``probs`` below this (6e-8) to it: no map could move the logarithm of the exact
zeros that a random forest predicts."""
FEW_ROWS, FEW_NUMBERS = 100, 4096
"""Up to as many rows and logits are mapped row by row, by NumPy: compiled code is not faster, and
must be compiled."""
MOST_SPREAD = 1e30
"""The largest difference of logits in a row that has a map of its own. No product overflows, and no
class is masked: that would be an infinite difference."""
NEARLY_TIED = 1.0 - 1e-6
"""Ratio of two probabilities above which rounding to single precision could make them equal."""
BLOCK_ENTRIES = 1 << 16
"""Entries processed at a time; with what is computed from them they fit into the cache."""


Function = TypeVar("Function", bound=Callable[..., Any])


def kept_with_samples(function: Function) -> Function:
    """Decorator of a function of samples: methods that are fitted on them share its result."""

    @wraps(function)
    def found(data: Any, *arguments: Any) -> Any:
        kept = vars(data).setdefault("kept", {})
        key = (function.__qualname__, *arguments)
        if key not in kept:
            kept[key] = function(data, *arguments)
        return kept[key]

    return cast("Function", found)


class Samples(Protocol):
    """Everything that a fit may ask of samples, in memory or in files."""

    def __len__(self) -> int: ...

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def weight(self) -> Floats | None:
        """Weight of each row; None is 1 everywhere."""

    @property
    def accuracy(self) -> float:
        """Weighted share of correct rows."""

    @property
    def n_classes_seen(self) -> int:
        """Number of classes that have a sample."""

    @property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Mean of each array of ``values_of(samples, *arguments)``, which has one entry per row."""

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, which must be a sum over rows."""

    def mapped(self, change: Callable[[FitData], FitData]) -> Samples:
        """The samples after ``change``, which must treat each row by itself."""

    def some_rows(self, about: int) -> Samples:
        """About this many rows, evenly spread, as a rough picture of all."""

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, with any number of values per row."""

    def in_memory(self) -> FitData:
        """All samples as arrays, for methods that need every row at once."""


@dataclass(frozen=True)
class FitData:
    """Checked samples as arrays."""

    logits: npt.NDArray[Any]
    """(n, K), float32 or float64; -inf masks a class, never that of the label."""
    labels: npt.NDArray[np.int64]
    """(n,)"""
    weight: Floats | None
    """(n,), all above 0; None is 1 everywhere."""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.logits.shape[1])

    @cached_property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether the largest logit of each row is that of its label."""
        correct: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.labels
        return correct

    def mean(self, values: npt.NDArray[Any]) -> float:
        """Weighted mean of one value per row."""
        if self.weight is None:
            return float(values.mean())
        share = self.weight / self.weight.sum()  # first, so that large values do not overflow
        return float(share @ values)

    def blocks(self) -> Iterator[slice]:
        """Blocks of rows small enough for the processor's cache."""
        return row_blocks(len(self), self.n_classes)

    @property
    def accuracy(self) -> float:
        """Weighted share of correct rows."""
        return self.mean(self.correct)

    @property
    def counts(self) -> Floats:
        """How many samples each row counts for.

        Whole-number weights are repetitions; others are scaled so that their sum is the effective
        number of samples.
        """
        if self.weight is None:
            return np.ones(len(self))
        if all_whole(self.weight):
            return self.weight
        share = self.weight / self.weight.max()
        return np.asarray(share * (share.sum() / (share @ share)))

    @property
    def n_classes_seen(self) -> int:
        """Number of classes that have a sample."""
        return len(np.unique(self.label_classes))

    @cached_property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""
        # A label that is not the first largest logit may tie with it; mostly the first row decides.
        missed = np.flatnonzero(~self.correct)
        return all(self.logits[i, self.labels[i]] == self.logits[i].max() for i in missed)

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Mean of each array of ``values_of(samples, *arguments)``, which has one entry per row."""
        return tuple(self.mean(values) for values in values_of(self, *arguments))

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, which must be a sum over rows."""
        return sums_of(self, *arguments)

    def mapped(self, change: Callable[[FitData], FitData]) -> FitData:
        """The samples after ``change``, which must treat each row by itself."""
        return change(self)

    def some_rows(self, about: int) -> Self:
        """About this many rows, evenly spread, as a rough picture of all."""
        return self if len(self) <= 2 * about else self.rows(slice(None, None, len(self) // about))

    def in_memory(self) -> FitData:
        """These samples."""
        return self

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, with any number of values per row."""
        return values_of(self)

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays with an entry for each row, by the names of their fields."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def rows(self, which: slice | npt.NDArray[Any]) -> Self:
        """A copy of some rows; compiled passes would be compiled again for arrays with gaps."""
        return replace(self, **{name: each[which].copy() for name, each in self._columns().items()})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, concatenated."""
        columns = [part._columns() for part in parts]
        whole = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
        return replace(parts[0], **whole)

    @property
    def label_classes(self) -> npt.NDArray[np.int64]:
        """The class of each label."""
        return self.labels


def weighted_median(values: Floats, weight: Floats) -> float:
    """A value with half of the weight on either side."""
    order = np.argsort(values, kind="stable")
    up_to = weight[order]
    np.cumsum(up_to, out=up_to)
    return float(values[order[np.searchsorted(up_to, up_to[-1] / 2.0)]])


def are_few_rows(logits: npt.NDArray[Any]) -> bool:
    """Whether an (n, K) array is mapped row by row."""
    return len(logits) <= FEW_ROWS and logits.size <= FEW_NUMBERS


def are_few_plain_rows(logits: Array) -> bool:
    """Whether these are a few rows of NumPy as a service sends them: see ``MOST_SPREAD``."""
    is_plain = isinstance(logits, np.ndarray) and logits.ndim == 2 and logits.size > 0
    if not (is_plain and are_few_rows(logits)):
        return False
    low, high = extremes(logits)
    return high - low <= MOST_SPREAD


def extremes(logits: npt.NDArray[Any]) -> tuple[float, float]:
    """The smallest and the largest; ``argmin`` takes a fifth of the time of ``min`` for one row."""
    return logits.item(logits.argmin()), logits.item(logits.argmax())


def rows_with_weight(rows: Any, sample_weight: Array, n_kept: int) -> Any:
    """Those of the rows given to a fit that it kept: it drops rows of weight 0."""
    return rows if len(rows) == n_kept else rows[_inputs.as_numpy(sample_weight).reshape(-1) > 0]


def row_blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Slices of rows with about ``BLOCK_ENTRIES`` entries each."""
    step = max(1, BLOCK_ENTRIES // n_classes)
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def to_logits(kind: str, scores: Array) -> Array:
    """Logits of checked scores: the logarithms of probabilities raised to the floor."""
    logits = scores if kind == "logits" else floored_log_of_probs(scores, PROBS_FLOOR)
    if isinstance(logits, np.ndarray) and logits.dtype.itemsize > 8:
        return logits.astype(np.float64)  # compiled passes take no wider type
    return logits


def given_scores(
    positional: Array, logits: Array, probs: Array, classes: Any = None
) -> _inputs.Scores:
    """The scores of a call, of which only one argument is given.

    Scores without a name are logits, and refused if they are probabilities.
    """
    if positional is None:
        kind, given = _inputs.one_of(logits=logits, probs=probs)
        return _inputs.scores(kind, given, classes)
    if logits is not None:
        raise CalibrantError("scores by position are logits; found logits= too. Pass them once")
    _inputs.one_of(logits=positional, probs=probs)
    scores = _inputs.scores("logits", positional, classes)
    _inputs.refuse_probabilities(scores)
    return scores


def checked_samples(
    logits: Array, labels: Array, sample_weight: Array = None, *, probs: Array = None
) -> FitData:
    """Samples to fit on, from ``logits`` or ``probs``."""
    return samples_of(given_scores(None, logits, probs), labels, sample_weight)[0]


def samples_of(
    scores: _inputs.Scores,
    labels: Array,
    sample_weight: Array = None,
    *,
    classes: Any = None,
    positive: Any = None,
) -> tuple[FitData, _inputs.Classes]:
    """Check the arguments of ``fit``; rows of weight 0 are dropped."""
    _inputs.same_rows(scores, labels=labels, sample_weight=sample_weight)
    logits = to_logits(scores.kind, scores.checked())
    flat = _inputs.as_numpy(logits).reshape(-1, logits.shape[-1])
    indices, names = _inputs.class_indices(labels, scores, classes=classes, positive=positive)
    checked = _inputs.as_numpy(indices).reshape(-1)
    weight = _inputs.sample_weight(sample_weight, logits)
    weight = None if weight is None else weight.reshape(-1)
    present = np.full(len(flat), True) if weight is None else weight > 0
    _inputs.something_to_measure(int(present.sum()))
    _inputs.possible_labels(flat, checked, present)
    if not present.all():
        flat, checked = flat[present], checked[present]
        weight = None if weight is None else weight[present]
    return FitData(np.ascontiguousarray(flat), checked, weight), names


class LabelledScores(NamedTuple):
    """Checked samples, with scores of the kind that they came in."""

    kind: str
    """``"logits"`` or ``"probs"``"""
    scores: npt.NDArray[Any]
    """(n, K)"""
    labels: npt.NDArray[np.int64]
    classes: _inputs.Classes | None = None
    """The label of each class."""
    upper_logits: npt.NDArray[Any] | None = None
    """The largest possible logits, if a language model's log leaves out options."""
    groups: _inputs.Groups | None = None
    """The groups of the rows, if columns of them were read."""
    source: str | None = None
    """Where the probabilities of a language model's log come from."""

    def in_order_of(self, classes: _inputs.Classes | None) -> LabelledScores:
        """The same samples with their columns in the order of ``classes``, matched by name."""
        if classes is None or self.classes is None or classes == self.classes:
            return self
        order = _inputs.column_order(self.classes, classes)
        upper = None if self.upper_logits is None else self.upper_logits[:, order]
        return self._replace(
            scores=np.ascontiguousarray(self.scores[:, order]),
            labels=np.argsort(order)[self.labels],
            classes=classes,
            upper_logits=upper,
        )

    def fit_data(self) -> FitData:
        """The samples as a fit takes them."""
        return FitData(np.ascontiguousarray(to_logits(self.kind, self.scores)), self.labels, None)


def labelled_scores(
    labels: Array,
    *,
    logits: Array = None,
    probs: Array = None,
    to_fit: bool = False,
    classes: Any = None,
    positive: Any = None,
) -> LabelledScores:
    """Check labels and ``logits`` or ``probs``; ``to_fit`` also that every label is possible."""
    kind, given = _inputs.one_of(logits=logits, probs=probs)
    scores = _inputs.scores(kind, given)
    _inputs.same_rows(scores, labels=labels)
    checked = scores.checked()
    indices, names = _inputs.class_indices(labels, scores, classes=classes, positive=positive)
    labels = _inputs.as_numpy(indices).reshape(-1)
    _inputs.something_to_measure(len(labels))
    flat = _inputs.as_numpy(checked).reshape(-1, checked.shape[-1])
    if kind == "probs" and scores.tolerance > _inputs.sum_tolerance(checked):
        # Sums of half precision are further from 1 than those of wider types may be.
        flat = flat / flat.sum(axis=1, keepdims=True)
    if to_fit:
        _inputs.possible_labels(flat, labels, np.full(len(flat), True))
    return LabelledScores(kind, flat, labels, names)
