"""The samples of a fit where they lie in files: each question to them is one pass over the files.

A fit of `calibrators` asks its samples for means and sums over rows, for some of the rows, and for
a few facts. :class:`FilesOfSamples` answers these from sums over bundles, so the very same fits run
on data of any size, and take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant.calibrators import TruncatedRows
from calibrant.calibrators.data import FitData, Floats, checked_samples
from calibrant.calibrators.temperature.solver import TO_LOOK, TO_START
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.scale.engine import Engine, Sum
from calibrant.scale.source import ChangedFileError, DataSet, Part, Skipped, check_some_rows_left

if TYPE_CHECKING:
    from calibrant.scale.search import EvaluatorOfFiles, SketchBounds

Change = Callable[[FitData], FitData]

MOST_NUMBERS = 1 << 24
"""Logits of some rows that may be brought to one place; where there are many classes, of fewer
rows than a fit asks for."""
MOST_VALUES = 1 << 16
ENOUGH = 4
"""One in so many of the rows that were to be picked are enough to start from."""


@dataclass
class Picked:
    """Every so many rows of a data set."""

    stride: int
    rows: list[tuple[int, FitData]] = field(default_factory=list)
    """Rows of each batch, and the number of its first row."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.rows)

    def pick(self, first: int, data: FitData) -> None:
        """Take the rows of a batch whose number is a multiple of the stride."""
        chosen = slice((-first) % self.stride, None, self.stride)
        if len(data.labels[chosen]):
            self.rows.append((first, data.rows(chosen)))  # copies: a view would hold the batch

    def merge(self, other: Picked) -> None:
        """Add the rows of other parts."""
        self.rows += other.rows

    def joined(self) -> FitData:
        """The rows in the order of the data set."""
        return _as_one([rows for _, rows in sorted(self.rows, key=lambda each: each[0])])


@dataclass
class Facts:
    """What the first pass finds out."""

    label_counts: npt.NDArray[np.int64]
    picked: dict[int, Picked]
    """By how many rows were asked for."""
    n: int = 0
    n_correct: int = 0
    some_below: bool = False
    """Whether some label has a smaller logit than another class of its row."""
    wrong_in: dict[int, int] = field(default_factory=dict)
    """How many rows of each bundle are wrong, by the place of its first row."""
    skipped: Skipped = field(default_factory=Skipped)

    @classmethod
    def nothing_of(cls, data_set: DataSet) -> Facts:
        """Before any row."""
        assert data_set.n_classes is not None
        most = max(1, MOST_NUMBERS // (data_set.width or 1))
        picked = {
            about: Picked(max(1, data_set.rows // min(about, most)))
            for about in (TO_START, TO_LOOK)
            if data_set.rows > 2 * about
        }
        return cls(np.zeros(data_set.n_classes, dtype=np.int64), picked)

    def count(self, first: int, data: FitData) -> None:
        """Look at one batch, whose first row has this number."""
        self.n += len(data)
        self.n_correct += int(data.correct.sum())
        self.some_below = self.some_below or not data.labels_on_top
        self.label_counts += np.bincount(data.label_classes, minlength=len(self.label_counts))
        for picked in self.picked.values():
            picked.pick(first, data)

    def merge(self, other: Facts) -> None:
        """Add those of other parts."""
        self.label_counts += other.label_counts
        for about, picked in self.picked.items():
            picked.merge(other.picked[about])
        self.n += other.n
        self.n_correct += other.n_correct
        self.some_below |= other.some_below
        self.wrong_in |= other.wrong_in
        self.skipped.merge(other.skipped)


@dataclass
class Values:
    """Values of rows, of which only so many are kept."""

    values: Floats

    @classmethod
    def of(cls, data: FitData, values_of: Callable[[FitData], Floats]) -> Values:
        """Those of a batch."""
        return cls(values_of(data)[:MOST_VALUES])

    def merge(self, other: Values) -> None:
        """Add those of other rows."""
        self.values = np.concatenate([self.values, other.values])[:MOST_VALUES]


@dataclass(frozen=True)
class FilesOfSamples:
    """Answers what a fit asks of a :class:`FitData`, from files."""

    data_set: DataSet
    engine: Engine
    facts: Facts
    changes: tuple[Change, ...] = ()
    passes: list[int] = field(default_factory=lambda: [1])
    """One entry for each pass over the files, shared by what is derived from this."""
    evaluators: list[EvaluatorOfFiles] = field(default_factory=list)
    """Those that were made of it, shared too."""

    @classmethod
    def of(cls, data_set: DataSet, engine: Engine) -> FilesOfSamples:
        """Look at every row once."""
        with _inputs.naming(data_set.where):
            _inputs.some_scores(data_set.layout.scores or None, None)
            _inputs.some_labels(data_set.layout.roles.get("labels"))
        facts = engine.reduce(_facts, data_set.bundles(), data_set.for_tasks())
        facts.skipped.merge(data_set.skipped)
        check_some_rows_left(data_set.where, facts.n, facts.skipped)
        return cls(data_set, engine, facts)

    def __len__(self) -> int:
        return self.facts.n

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.facts.label_counts)

    weight = None
    """Every row counts the same."""

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return self.facts.n_correct / self.facts.n

    @property
    def n_classes_seen(self) -> int:
        """How many classes have a sample."""
        return int((self.facts.label_counts > 0).sum())

    @property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""
        return not self.facts.some_below

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of values with one entry a row."""
        sums = self.summed(_sums_of_rows, values_of, arguments)
        return tuple(float(each) / len(self) for each in sums)

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``sums_of(batch, *arguments)`` over all batches."""
        bundles = self.data_set.bundles()
        return self._one_pass(_sum, bundles, self.changes, sums_of, arguments).value

    def mapped(self, change: Change) -> FilesOfSamples:
        """The samples after ``change``, which looks at one row at a time."""
        return replace(self, changes=(*self.changes, change))

    def some_rows(self, about: int) -> FitData | FilesOfSamples:
        """About so many rows, evenly spread: those that would be taken in memory."""
        picked = self.facts.picked.get(about)
        # Where most rows were left out, those that were picked may be too few to show anything.
        if picked is None or len(picked) * picked.stride * ENOUGH < self.data_set.rows:
            return self
        return _changed(picked.joined(), self.changes)

    def some_mistakes(self, stride: int) -> FitData:
        """One in so many of the rows that are wrong, of which there are some."""
        bundles = self.data_set.bundles()
        wrong = [self.facts.wrong_in[parts[0].first_in_set] for parts in bundles]
        before = [0, *accumulate(wrong)]
        numbered = list(zip(before, bundles, strict=False))
        picked = self._one_pass(_mistakes, numbered, stride)
        return _changed(picked.joined(), self.changes)

    def _one_pass(self, function: Callable[..., Any], items: list[Any], *arguments: Any) -> Any:
        """The sum of what ``function`` finds in the rows, which must be those of the first pass."""
        self.passes.append(1)
        result, n = self.engine.reduce(function, items, self.data_set.for_tasks(), *arguments)
        check_same_rows(self.data_set.where, self.facts.n, n)
        return result

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """Any number of values a row, in any order; of very many, some."""
        return np.asarray(self.summed(Values.of, values_of).values)

    def in_memory(self) -> FitData:
        """Refuse: not all rows fit."""
        raise CalibrantError(
            "this method needs all rows in memory; found a data set that is read in parts. Fit "
            "temperature or top-rest, or read the files with calibrant.files.read_predictions"
        )

    def bounds_of_search(self) -> SketchBounds | None:
        """How sure the last search by an equal-mass error is."""
        known = [made.bounds for made in self.evaluators if made.bounds is not None]
        return known[-1] if known else None


def fit_data_of(predictions: Predictions) -> FitData:
    """What fits look at, checked."""
    from calibrant.scale._kernels import all_usable

    if predictions.top_logits is not None:
        _inputs.some_labels(predictions.labels)
        return truncated_rows_of(predictions)
    logits, labels = predictions.logits, predictions.labels
    if logits is not None and labels is not None and logits.shape[1] > 1:
        wide = logits.astype(np.float32) if logits.dtype.itemsize < 4 else logits
        correct = np.empty(len(labels), dtype=np.bool_)
        if all(all_usable(wide, labels, correct)):
            data = FitData(wide, labels, None)
            vars(data)["correct"] = correct  # which it would compute when asked
            return data
    return checked_samples(logits, labels, probs=predictions.probs)


def truncated_rows_of(predictions: Predictions) -> TruncatedRows:
    """Rows of the largest logits, checked."""
    assert predictions.n_classes is not None
    return TruncatedRows.of(
        predictions.top_logits,
        predictions.top_classes,
        predictions.labels,
        n_classes=predictions.n_classes,
        normaliser=predictions.normaliser,
        label_logits=predictions.label_logits,
    )


def _batches_of(parts: tuple[Part, ...], data_set: DataSet, skipped: Skipped) -> Iterator[FitData]:
    for _, data in data_set.checked(parts, fit_data_of, skipped):
        yield data


def _facts(parts: tuple[Part, ...], data_set: DataSet) -> Facts:
    facts = Facts.nothing_of(data_set)
    for data in _batches_of(parts, data_set, facts.skipped):
        # The number among usable rows: by places, a pattern of bad rows could hit every pick.
        facts.count(parts[0].first_in_set + facts.n, data)
    facts.wrong_in[parts[0].first_in_set] = facts.n - facts.n_correct
    return facts


def _mistakes(
    numbered: tuple[int, tuple[Part, ...]], data_set: DataSet, stride: int
) -> tuple[Picked, int]:
    """One in so many of the rows that are wrong, the first of which has this number; all rows."""
    number, parts = numbered
    picked, n = Picked(stride), 0
    for data in _batches_of(parts, data_set, Skipped()):
        wrong = np.flatnonzero(~data.correct)
        picked.pick(number, FitData(data.logits[wrong], data.labels[wrong], None))
        number += len(wrong)
        n += len(data)
    return picked, n


def _sum(
    parts: tuple[Part, ...],
    data_set: DataSet,
    changes: tuple[Change, ...],
    sums_of: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> tuple[Sum, int]:
    """The sum over the rows of some parts, and how many they are."""
    sums, n = Sum(), 0
    for data in _joined(_batches_of(parts, data_set, Skipped()), data_set.batch_rows):
        sums.add(sums_of(_changed(data, changes), *arguments))
        n += len(data)
    return sums, n


def _joined(batches: Iterator[FitData], rows: int) -> Iterator[FitData]:
    """The same rows in batches of at least so many, but for the last: row groups may be small."""
    held: list[FitData] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= rows:
            yield _as_one(held)
            held = []
    if held:
        yield _as_one(held)


def _as_one(parts: list[FitData]) -> FitData:
    return parts[0] if len(parts) == 1 else parts[0].joined(parts)


def _changed(data: FitData, changes: tuple[Change, ...]) -> FitData:
    for change in changes:
        data = change(data)
    return data


def _sums_of_rows(
    data: FitData, values_of: Callable[..., Any], arguments: tuple[Any, ...]
) -> Floats:
    return np.array([float(np.sum(values)) for values in values_of(data, *arguments)])


def check_same_rows(where: str, expected: int, found: int) -> None:
    """A pass over a data set that has found as many usable rows as the first."""
    if found != expected:
        raise ChangedFileError(
            f"{where} has changed while it was being read: it had {expected} usable rows; found "
            f"{found}. Wait until its files are written, and start again"
        )
