"""Samples in files: each question of a fit is one pass over them.

A fit of `calibrators` asks its samples for means and sums over rows, for some of the rows, and for
a few facts. :class:`SamplesInFiles` answers from sums over bundles, so the same fits run on data
of any size and take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs, _thresholds
from calibrant.calibrators import TruncatedRows
from calibrant.calibrators.auto.method import rows_to_compare
from calibrant.calibrators.data import FitData, Floats, checked_samples
from calibrant.calibrators.fit_report import SearchBounds
from calibrant.calibrators.origin import hashed_stride
from calibrant.calibrators.temperature.solver import TO_LOOK, TO_START
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.files.parquet import ChangedFileError, ParquetFolder, Ranges, Skipped
from calibrant.scale.data_set import bundles, check_some_rows_left
from calibrant.scale.engine import Engine, Sum

Change = Callable[[FitData], FitData]

ENOUGH = 4
"""A fit starts from the strided rows if at least one in this many of them is usable."""


@dataclass
class StridedRows:
    """Every ``stride``-th row."""

    stride: int
    rows: list[tuple[int, FitData]] = field(default_factory=list)
    """The rows taken from each batch, and the index of its first row."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.rows)

    def pick(self, first: int, data: FitData) -> None:
        """Take the rows of a batch whose index is a multiple of the stride."""
        chosen = slice((-first) % self.stride, None, self.stride)
        if len(data.labels[chosen]):
            self.rows.append((first, data.rows(chosen)))  # copies: a view would hold the batch

    def merge(self, other: StridedRows) -> None:
        """Add the rows of other bundles."""
        self.rows += other.rows

    def in_order(self) -> FitData:
        """All rows, in the order of the files."""
        return _concatenated([rows for _, rows in sorted(self.rows, key=lambda each: each[0])])


@dataclass
class Facts:
    """What the first pass finds."""

    label_counts: npt.NDArray[np.int64]
    strided: dict[int, StridedRows]
    """By the number of rows asked for."""
    hashed: StridedRows
    """Scores as they are in the files, for the fingerprint."""
    n: int = 0
    n_correct: int = 0
    some_below: bool = False
    """Whether some label has a smaller logit than another class of its row."""
    n_wrong_in: dict[int, int] = field(default_factory=dict)
    """Misclassified rows of each bundle, by the index of its first row."""
    skipped: Skipped = field(default_factory=Skipped)

    @classmethod
    def before_any_row(cls, folder: ParquetFolder, *, to_compare: bool) -> Facts:
        """The facts to add batches to; ``to_compare`` keeps rows for :func:`rows_to_compare`."""
        assert folder.n_classes is not None
        most = max(1, _thresholds.MOST_GATHERED_NUMBERS // (folder.width or 1))
        abouts = [about for about in (TO_START, TO_LOOK) if folder.rows > 2 * about]
        abouts += [_thresholds.ROWS_TO_COMPARE] if to_compare else []
        strided = {about: StridedRows(max(1, folder.rows // min(about, most))) for about in abouts}
        width = 1 + (folder.width or 0) if folder.truncated else folder.n_classes
        hashed = StridedRows(hashed_stride(folder.rows, width))
        return cls(np.zeros(folder.n_classes, dtype=np.int64), strided, hashed)

    def count(self, first: int, predictions: Predictions, data: FitData) -> None:
        """Add one batch, whose first row has this index."""
        self.n += len(data)
        # Probabilities as they were given: the last digits of logarithms depend on the machine.
        scores = data.logits if predictions.probs is None else predictions.probs
        self.hashed.pick(first, FitData(scores, data.label_classes, None))
        self.n_correct += int(data.correct.sum())
        self.some_below = self.some_below or not data.labels_on_top
        self.label_counts += np.bincount(data.label_classes, minlength=len(self.label_counts))
        for strided in self.strided.values():
            strided.pick(first, data)

    def merge(self, other: Facts) -> None:
        """Add the facts of other bundles."""
        self.label_counts += other.label_counts
        for about, strided in self.strided.items():
            strided.merge(other.strided[about])
        self.hashed.merge(other.hashed)
        self.n += other.n
        self.n_correct += other.n_correct
        self.some_below |= other.some_below
        self.n_wrong_in |= other.n_wrong_in
        self.skipped.merge(other.skipped)


@dataclass
class SomeValues:
    """Values of rows, of which at most ``MOST_GATHERED_VALUES`` are kept."""

    values: Floats

    @classmethod
    def of(cls, data: FitData, values_of: Callable[[FitData], Floats]) -> SomeValues:
        """The values of a batch."""
        return cls(values_of(data)[: _thresholds.MOST_GATHERED_VALUES])

    def merge(self, other: SomeValues) -> None:
        """Add the values of other rows."""
        both = np.concatenate([self.values, other.values])
        self.values = both[: _thresholds.MOST_GATHERED_VALUES]


@dataclass(frozen=True)
class SamplesInFiles:
    """Answers what a fit asks of a :class:`FitData`, from files."""

    folder: ParquetFolder
    engine: Engine
    facts: Facts
    changes: tuple[Change, ...] = ()
    passes: list[int] = field(default_factory=lambda: [1])
    """One entry for each pass over the files, shared with samples derived from this."""
    search_bounds: list[SearchBounds] = field(default_factory=list)
    """Bounds of each search by an equal-mass error, shared too."""

    @classmethod
    def of(
        cls, folder: ParquetFolder, engine: Engine, *, to_compare: bool = False
    ) -> SamplesInFiles:
        """Read every row once, and keep some if methods are to be compared."""
        with _inputs.naming(folder.where):
            _inputs.some_scores(folder.layout.scores or None, None)
            _inputs.some_labels(folder.layout.roles.get("labels"))
        facts = engine.reduce(_facts, bundles(folder), folder.without_ranges(), to_compare)
        facts.skipped.merge(folder.skipped)
        check_some_rows_left(folder.where, facts.n, facts.skipped)
        return cls(folder, engine, facts)

    def __len__(self) -> int:
        return self.facts.n

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.facts.label_counts)

    weight = None
    """Every row has weight 1."""

    @property
    def accuracy(self) -> float:
        """Share of rows that are classified correctly."""
        return self.facts.n_correct / self.facts.n

    @property
    def n_classes_seen(self) -> int:
        """Number of classes with a sample."""
        return int((self.facts.label_counts > 0).sum())

    @property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""
        return not self.facts.some_below

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of values with one entry per row."""
        sums = self.summed(_sums_of_rows, values_of, arguments)
        return tuple(float(each) / len(self) for each in sums)

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """The sum of ``sums_of(batch, *arguments)`` over all batches."""
        tasks = bundles(self.folder)
        return self._one_pass(_sum, tasks, self.changes, sums_of, arguments).value

    def mapped(self, change: Change) -> SamplesInFiles:
        """The samples after ``change``, which treats each row alone."""
        return replace(self, changes=(*self.changes, change))

    def some_rows(self, about: int) -> FitData | SamplesInFiles:
        """About this many rows, evenly spread: the same as in memory."""
        strided = self.facts.strided.get(about)
        # If most rows were skipped, too few strided rows may be left to show anything.
        if strided is None or len(strided) * strided.stride * ENOUGH < self.folder.rows:
            return self
        return _changed(strided.in_order(), self.changes)

    def some_mistakes(self, stride: int) -> FitData:
        """Every ``stride``-th misclassified row; there must be at least one."""
        tasks = bundles(self.folder)
        wrong = [self.facts.n_wrong_in[groups[0].first_in_folder] for groups in tasks]
        before = [0, *accumulate(wrong)]
        strided = self._one_pass(_mistakes, list(zip(before, tasks, strict=False)), stride)
        return _changed(strided.in_order(), self.changes)

    def _one_pass(self, function: Callable[..., Any], items: list[Any], *arguments: Any) -> Any:
        """The sum of ``function`` over the rows, which must be as many as in the first pass."""
        self.passes.append(1)
        folder = self.folder.without_ranges()
        result, n = self.engine.reduce(function, items, folder, *arguments)
        if n != self.facts.n:
            raise ChangedFileError(
                f"{folder.where} has changed while it was being read: it had {self.facts.n} usable "
                f"rows; found {n}. Wait until its files are written, and start again"
            )
        return result

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """Any number of values per row, in any order; if they are too many, some of them."""
        return np.asarray(self.summed(SomeValues.of, values_of).values)

    def in_memory(self) -> FitData:
        """Refuse: the rows need not fit into memory."""
        raise CalibrantError(
            "this method needs all rows in memory; got files that are read in parts. Fit "
            "temperature or top-rest, or read the files with calibrant.files.read_predictions"
        )


def fit_data(predictions: Predictions) -> FitData:
    """What a fit works on, checked."""
    from calibrant.scale.kernels import all_usable

    if predictions.top_logits is not None:
        _inputs.some_labels(predictions.labels)
        return truncated_rows(predictions)
    logits, labels = predictions.logits, predictions.labels
    if logits is not None and labels is not None and logits.shape[1] > 1:
        wide = logits.astype(np.float32) if logits.dtype.itemsize < 4 else logits
        correct = np.empty(len(labels), dtype=np.bool_)
        if all(all_usable(wide, labels, correct)):
            data = FitData(wide, labels, None)
            vars(data)["correct"] = correct  # fills the cached property
            return data
    return checked_samples(logits, labels, probs=predictions.probs)


def truncated_rows(predictions: Predictions) -> TruncatedRows:
    """Truncated rows, checked."""
    assert predictions.n_classes is not None
    return TruncatedRows.of(
        predictions.top_logits,
        predictions.top_classes,
        predictions.labels,
        n_classes=predictions.n_classes,
        normaliser=predictions.normaliser,
        label_logits=predictions.label_logits,
    )


def _fit_batches(ranges: Ranges, folder: ParquetFolder, skipped: Skipped) -> Iterator[FitData]:
    return (data for _, data in folder.checked_batches(ranges, fit_data, skipped))


@rows_to_compare.register
def _(samples: SamplesInFiles) -> FitData:
    return _changed(samples.facts.strided[_thresholds.ROWS_TO_COMPARE].in_order(), samples.changes)


def _facts(ranges: Ranges, folder: ParquetFolder, to_compare: bool) -> Facts:
    facts = Facts.before_any_row(folder, to_compare=to_compare)
    first = ranges[0].first_in_folder
    for predictions, data in folder.checked_batches(ranges, fit_data, facts.skipped):
        # Usable rows are numbered: by position, a pattern of bad rows could hit the whole stride.
        facts.count(first + facts.n, predictions, data)
    facts.n_wrong_in[first] = facts.n - facts.n_correct
    return facts


def _mistakes(
    numbered: tuple[int, Ranges], folder: ParquetFolder, stride: int
) -> tuple[StridedRows, int]:
    """Every ``stride``-th misclassified row, given the number of those before; all rows."""
    number, ranges = numbered
    strided, n = StridedRows(stride), 0
    for data in _fit_batches(ranges, folder, Skipped()):
        wrong = np.flatnonzero(~data.correct)
        strided.pick(number, FitData(data.logits[wrong], data.labels[wrong], None))
        number += len(wrong)
        n += len(data)
    return strided, n


def _sum(
    ranges: Ranges,
    folder: ParquetFolder,
    changes: tuple[Change, ...],
    sums_of: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> tuple[Sum, int]:
    """The sum over the rows of some row groups, and the number of rows."""
    sums, n = Sum(), 0
    batches = _fit_batches(ranges, folder, Skipped())
    for data in _at_least(folder.batch_rows, batches):
        sums.add(sums_of(_changed(data, changes), *arguments))
        n += len(data)
    return sums, n


def _at_least(rows: int, batches: Iterator[FitData]) -> Iterator[FitData]:
    """The same rows in batches of at least ``rows``, except the last: row groups may be small."""
    held: list[FitData] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= rows:
            yield _concatenated(held)
            held = []
    if held:
        yield _concatenated(held)


def _concatenated(batches: list[FitData]) -> FitData:
    return batches[0] if len(batches) == 1 else batches[0].joined(batches)


def _changed(data: FitData, changes: tuple[Change, ...]) -> FitData:
    for change in changes:
        data = change(data)
    return data


def _sums_of_rows(
    data: FitData, values_of: Callable[..., Any], arguments: tuple[Any, ...]
) -> Floats:
    return np.array([float(np.sum(values)) for values in values_of(data, *arguments)])
