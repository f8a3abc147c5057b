"""What a fit is given: samples in memory, and what it may ask of samples that lie elsewhere.

A fit asks a :class:`Samples` for means and sums. :class:`FitData` answers from arrays; ``scale``
answers from files, by adding up what each part of them says. What a family computes of samples is a
function of that family, which dispatches on their type: this module imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import floored_log_of_probs
from calibrant._types import Array

Floats: TypeAlias = npt.NDArray[np.float64]

PROBS_FLOOR = 2.0**-24
"""Probabilities below this (6e-8) count as this where a calibrator is given ``probs``: no map could
move the logarithm of the exact zeros that a random forest gives."""
BLOCK_ENTRIES = 1 << 18
"""Entries handled at a time: they and what is computed from them stay in the processor's cache."""


class Samples(Protocol):
    """What a fit may ask of samples without having them all in one place.

    :class:`FitData` answers from rows in memory. `scale` answers the same for samples that lie in
    many files, by adding up what each part of them says.
    """

    def __len__(self) -> int: ...

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def weight(self) -> Floats | None:
        """One for each row; None is 1 everywhere."""

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""

    @property
    def n_classes_seen(self) -> int:
        """How many classes have a sample."""

    @property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of ``values_of(samples, *arguments)``: some values, each with one entry a row."""

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, where that is a sum over rows."""

    def mapped(self, change: Callable[[FitData], FitData]) -> Samples:
        """The samples after ``change``, which looks at one row at a time."""

    def some_rows(self, about: int) -> Samples:
        """About so many rows, evenly spread; they show roughly what all of them do."""

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, any number of values a row."""

    def in_memory(self) -> FitData:
        """All samples in one place, for methods that need every row at once."""


@dataclass(frozen=True)
class FitData:
    """Checked samples: what ``_fit`` works on."""

    logits: npt.NDArray[Any]
    """(n, K), float32 or float64; -inf is an absent class, never the labelled one."""
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
        """Weighted mean of one value a sample."""
        if self.weight is None:
            return float(values.mean())
        share = self.weight / self.weight.sum()  # first, so that large values do not overflow
        return float(share @ values)

    def blocks(self) -> Iterator[slice]:
        """Rows in parts small enough for the processor's cache."""
        return row_blocks(len(self), self.n_classes)

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return self.mean(self.correct)

    @property
    def n_classes_seen(self) -> int:
        """How many classes have a sample."""
        return len(np.unique(self.label_classes))

    @cached_property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""
        # A label that is not the first largest logit may tie with it; the first row mostly says no.
        missed = np.flatnonzero(~self.correct)
        return all(self.logits[i, self.labels[i]] == self.logits[i].max() for i in missed)

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of ``values_of(samples, *arguments)``: some values, each with one entry a row."""
        return tuple(self.mean(values) for values in values_of(self, *arguments))

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, where that is a sum over rows."""
        return sums_of(self, *arguments)

    def mapped(self, change: Callable[[FitData], FitData]) -> FitData:
        """The samples after ``change``, which looks at one row at a time."""
        return change(self)

    def some_rows(self, about: int) -> FitData:
        """About so many rows, evenly spread; they show roughly what all of them do."""
        if len(self) <= 2 * about:
            return self
        stride = len(self) // about
        weight = None if self.weight is None else self.weight[::stride]
        return FitData(self.logits[::stride], self.labels[::stride], weight)

    def in_memory(self) -> FitData:
        """These samples."""
        return self

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, any number of values a row."""
        return values_of(self)

    def rows(self, which: slice) -> Self:
        """Some of the rows, copied."""
        weight = None if self.weight is None else self.weight[which].copy()
        return replace(
            self, logits=self.logits[which].copy(), labels=self.labels[which].copy(), weight=weight
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, which have no weights, one after the other."""
        logits = np.concatenate([part.logits for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return replace(parts[0], logits=logits, labels=labels)

    @property
    def label_classes(self) -> npt.NDArray[np.int64]:
        """The class of each label."""
        return self.labels


def row_blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Slices of rows with about ``BLOCK_ENTRIES`` entries each."""
    step = max(1, BLOCK_ENTRIES // n_classes)
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def checked_scores(logits: Array, probs: Array) -> Array:
    """Checked logits; of probabilities, their logarithms above the floor."""
    kind, given = _inputs.one_of(logits=logits, probs=probs)
    if kind == "logits":
        checked = _inputs.logits(given)
    else:
        checked = floored_log_of_probs(_inputs.probs(given), PROBS_FLOOR)
    if isinstance(checked, np.ndarray) and checked.dtype.itemsize > 8:
        return checked.astype(np.float64)  # compiled passes know no longer floats
    return checked


def checked_samples(
    logits: Array = None, labels: Array = None, sample_weight: Array = None, *, probs: Array = None
) -> FitData:
    """The arguments of ``fit``, checked; rows without weight are left out."""
    scores = checked_scores(logits, probs)
    flat = _inputs.as_numpy(scores).reshape(-1, scores.shape[-1])
    checked = _inputs.as_numpy(_inputs.labels(labels, scores)).reshape(-1)
    weight = _inputs.sample_weight(sample_weight, scores)
    weight = None if weight is None else weight.reshape(-1)
    present = np.full(len(flat), True) if weight is None else weight > 0
    _inputs.something_to_measure(int(present.sum()))
    _inputs.possible_labels(flat, checked, present)
    if not present.all():
        flat, checked = flat[present], checked[present]
        weight = None if weight is None else weight[present]
    return FitData(np.ascontiguousarray(flat), checked, weight)
