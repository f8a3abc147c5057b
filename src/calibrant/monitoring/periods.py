"""Sums over the samples of each file, period and group: vectors, which add and subtract."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._inputs.groups import GroupColumn
from calibrant.errors import CalibrantError
from calibrant.files.columns import arrow
from calibrant.metrics.samples import Floats
from calibrant.monitoring.alternatives import BOTH_WAYS, alternatives, log_ratios, shifted
from calibrant.monitoring.e_process import ALL

EVERY = {"day": "D", "week": "W", "month": "M", "year": "Y"}
"""Lengths of a period, and NumPy's codes."""
MOST_PERIODS, MOST_GROUPS = 10_000, 1_000
"""Distinct values of a column in one batch: more are no periods or groups, but times or names."""
MONDAY = np.datetime64("1970-01-05", "D")
FIRST_DAY, LAST_DAY = (np.datetime64(day, "D") for day in ("0001-01-01", "9999-12-31"))
WHOLE = re.compile(r"-?[0-9]{1,18}")
DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})([T ].*)?", flags=re.DOTALL)


class Key(NamedTuple):
    """What a vector of sums is about."""

    file: str
    period: str
    group: str = ALL


class Coded(NamedTuple):
    """A column of few distinct values."""

    values: Sequence[str]
    codes: npt.NDArray[np.integer[Any]]
    """The index of the value of each row."""

    def rows(self) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
        """Each value that occurs, and its rows."""
        order = np.argsort(self.codes, kind="stable")
        ends = np.searchsorted(self.codes[order], np.arange(len(self.values) + 1))
        for value, first, last in zip(self.values, ends, ends[1:], strict=False):
            if last > first:
                yield value, order[first:last]

    def of(self, rows: npt.NDArray[Any]) -> Coded:
        """Some of the rows."""
        return Coded(self.values, self.codes[rows])

    def since(self, start: str | None) -> npt.NDArray[np.bool_]:
        """Whether the period of each row is not before ``start``."""
        for period in self.values if start is not None else ():
            if bool(WHOLE.fullmatch(period)) != bool(WHOLE.fullmatch(str(start))):
                raise CalibrantError(
                    f"since must be a time like those of the column, such as {period}; found "
                    f"{start}. Write it in the same form"
                )
        late = np.array([is_since(period, start) for period in self.values], dtype=bool)
        return np.asarray(late[self.codes])


@dataclass
class PeriodSums:
    """Vectors of sums by file, period and group.

    The event is that the predicted class is correct, or, of two classes, the positive one. Every
    vector begins with :class:`Shared`. That of all samples goes on with the stated probabilities of
    the classes, their variances, their counts, and the log likelihood ratios of all alternatives;
    that of a group with the ratios of its own alternatives.
    """

    n_classes: int
    vectors: dict[Key, Floats] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    """Samples without a label, by file."""

    def merge(self, other: PeriodSums) -> None:
        """Add the sums of other samples."""
        for key, vector in other.vectors.items():
            self.add(key, vector)
        self.waiting += other.waiting

    def add(self, key: Key, vector: Floats) -> None:
        """Add a vector."""
        self.vectors[key] = self.vectors[key] + vector if key in self.vectors else vector

    def count(
        self,
        file: str,
        periods: Coded,
        groups: Sequence[Coded],
        log_probs: Floats,
        labels: npt.NDArray[np.int64],
    ) -> None:
        """Add samples: their periods, groups, log-probabilities and labels."""
        _refuse_many(periods, MOST_PERIODS, "periods", "Write times as timestamps or dates")
        for column in groups:
            _refuse_many(column, MOST_GROUPS, "groups", "Name columns with few values")
        for period, rows in periods.rows():
            some_probs, some_labels = log_probs[rows], labels[rows]
            self.add(Key(file, period), sums_of(some_probs, some_labels))
            for column in groups:
                for group, members in column.of(rows).rows():
                    sums = sums_of_group(some_probs[members], some_labels[members])
                    self.add(Key(file, period, group), sums)

    def by_period(self) -> dict[str, dict[str, Floats]]:
        """The sums over files: by period in order of time, and by group."""
        found: dict[str, dict[str, Floats]] = {}
        for key in sorted(self.vectors, key=lambda key: (in_order(key.period), key.group, key)):
            groups = found.setdefault(key.period, {})
            vector = self.vectors[key]
            groups[key.group] = groups[key.group] + vector if key.group in groups else vector
        return found


class Shared(NamedTuple):
    """The first sums of every vector."""

    n: float
    stated: float
    """Probabilities of the event."""
    happened: float
    variance: float
    """Variances of the event, as stated."""
    nll: float
    """Negative log-likelihoods."""


def sums_of(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """The vector of some samples."""
    probs = np.exp(log_probs)
    counts = np.bincount(labels, minlength=probs.shape[1])
    variance = (probs * (1.0 - probs)).sum(axis=0)
    ratios = log_ratios(log_probs, labels)
    shared = _shared(log_probs, labels)
    return np.concatenate([shared, probs.sum(axis=0), variance, counts, ratios])


def sums_of_group(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """The vector of some samples of a group."""
    prob, happened = _event(log_probs, labels)
    ratios = [shifted(shift, prob, happened).sum() for shift in BOTH_WAYS]
    return np.concatenate([_shared(log_probs, labels), ratios])


def length_of(group: str, n_classes: int) -> int:
    """The length of a vector."""
    own = 3 * n_classes + len(alternatives(n_classes)) if group == ALL else len(BOTH_WAYS)
    return len(Shared._fields) + own


def shared_of(vector: Floats) -> Shared:
    """The first sums of a vector."""
    return Shared(*map(float, vector[: len(Shared._fields)]))


def classes_of(vector: Floats, n_classes: int) -> Floats:
    """Stated probabilities, variances and counts of all classes: (3, K)."""
    start = len(Shared._fields)
    return vector[start : start + 3 * n_classes].reshape(3, n_classes)


def ratios_of(vector: Floats, group: str, n_classes: int) -> Floats:
    """The log likelihood ratios in a vector."""
    n = len(BOTH_WAYS) if group != ALL else len(alternatives(n_classes))
    return vector[-n:]


def _shared(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Shared:
    prob, happened = _event(log_probs, labels)
    nll = -log_probs[np.arange(len(labels)), labels].sum()
    variance = (prob * (1.0 - prob)).sum()
    return Shared(len(labels), prob.sum(), happened.sum(), variance, nll)


def _event(
    log_probs: Floats, labels: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The stated probability of the event, and whether it happened."""
    if log_probs.shape[1] == 2:
        return np.exp(log_probs[:, 1]), labels == 1
    top = log_probs.argmax(axis=1)
    return np.exp(log_probs[np.arange(len(top)), top]), labels == top


def periods_of(column: Any, every: str) -> Coded:
    """The period of each row of an Arrow column: of dates, of times (in UTC), or of text.

    Whole numbers, such as years, are their own periods.

    Examples:
        >>> import pyarrow
        >>> periods_of(pyarrow.array(["2026-10-31", "2026-11-01"]), "month").values
        ['2026-10', '2026-11']
        >>> periods_of(pyarrow.array([2026, 2025]), "month").values
        ['2025', '2026']
    """
    types = arrow().types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise _no_times("a row without one")
    if types.is_string(column.type) or types.is_large_string(column.type):
        encoded = column.dictionary_encode()
        texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if all(map(WHOLE.fullmatch, texts)):
            return _coded(np.array(list(map(int, texts)))[codes])
        return _coded(
            _starts(np.array(list(map(_day, texts)), dtype="datetime64[D]"), every)[codes]
        )
    if types.is_timestamp(column.type) or types.is_date(column.type):
        days = column.to_numpy(zero_copy_only=False).astype("datetime64[D]")
        if not ((days >= FIRST_DAY) & (days <= LAST_DAY)).all():  # NaT is neither
            raise _no_times("a time outside the years 1 to 9999")
        return _coded(_starts(days, every))
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and (values == np.floor(values)).all() and _is_exact(values):
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise _no_times(f"the type {column.type}")
    return _coded(values)


def coded_groups(column: GroupColumn) -> Coded:
    """The group of each row, such as ``country=FR``."""
    return Coded([f"{column.name}={value}" for value in column.values], column.index)


def is_since(period: str, start: str | None) -> bool:
    """Whether a period is not before ``start``; None is before all."""
    return start is None or in_order(period) >= in_order(start)


def in_order(period: str) -> tuple[int, str]:
    """A key that sorts periods by time."""
    return (int(period), "") if WHOLE.fullmatch(period) else (0, period)


def _refuse_many(column: Coded, most: int, what: str, remedy: str) -> None:
    if len(column.values) > most:
        raise CalibrantError(
            f"a watch is over at most {most} {what} at a time; found {len(column.values)}, such as "
            f"{column.values[0]!r}. {remedy}"
        )


def _is_exact(values: Floats) -> bool:
    return bool((np.abs(values) < 2.0**53).all())


def _day(text: str) -> date:
    """The day of a date, or of a time: in UTC if it names its offset."""
    with contextlib.suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.astimezone(UTC).date()
    found = DATE.fullmatch(text)
    try:
        return date.fromisoformat(found[1] if found else text)
    except ValueError:
        raise _no_times(repr(text[:40])) from None


def _starts(days: npt.NDArray[Any], every: str) -> npt.NDArray[Any]:
    """The first day, month or year of each period; a week is known by its Monday."""
    if every == "week":  # NumPy's own weeks begin on Thursdays
        return MONDAY + 7 * ((days - MONDAY) // np.timedelta64(7, "D"))
    return days.astype(f"datetime64[{EVERY[every]}]")


def _coded(values: npt.NDArray[Any]) -> Coded:
    distinct, codes = np.unique(values, return_inverse=True)
    return Coded(distinct.astype(str).tolist(), codes)


def _no_times(found: str) -> CalibrantError:
    return CalibrantError(
        f"the column of times must hold a date, a time or a whole number in every row; found "
        f"{found}. Write dates as 2026-10-31"
    )
