"""Sums over the samples of each period, file and group. They are merged and compared as vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.errors import CalibrantError
from calibrant.metrics.samples import Floats
from calibrant.monitoring.alternatives import SHIFTS, alternatives, log_ratios, shifted
from calibrant.monitoring.e_process import ALL

EVERY = {"day": "D", "week": "W", "month": "M", "year": "Y"}
"""Lengths of a period, and NumPy's codes."""
SHARED = ("n", "stated", "happened", "variance", "nll")
"""The first sums of every vector: samples, stated probabilities of the event and their variances,
events that happened, and negative log-likelihoods."""
GROUP_SHIFTS = tuple(sign * shift for shift in SHIFTS for sign in (1.0, -1.0))
"""The alternatives of a group: shifts of the log-odds of the event in its samples."""


class Key(NamedTuple):
    """What a vector of sums is about."""

    file: str
    period: str
    group: str = ALL


@dataclass
class PeriodSums:
    """Vectors of sums by file, period and group.

    The event is that the predicted class is correct, or, of two classes, the positive one. All
    samples have the sums of ``SHARED``, then for each class its stated probability, its variance
    and its count, then the log likelihood ratios of all alternatives. A group has ``SHARED`` and
    the ratios of its own alternatives.
    """

    n_classes: int
    vectors: dict[Key, Floats] = field(default_factory=dict)
    waiting: int = 0
    """Samples without a label."""

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
        periods: npt.NDArray[Any],
        groups: npt.NDArray[Any] | None,
        log_probs: Floats,
        labels: npt.NDArray[np.int64],
    ) -> None:
        """Add samples: their periods, groups, log-probabilities and labels."""
        for period in np.unique(periods):
            rows = periods == period
            scored = log_probs[rows], labels[rows]
            self.add(Key(file, str(period)), sums_of(*scored))
            if groups is not None:
                for group in np.unique(groups[rows]):
                    members = groups[rows] == group
                    some = scored[0][members], scored[1][members]
                    self.add(Key(file, str(period), str(group)), sums_of_group(*some))

    def by_period(self) -> dict[str, dict[str, Floats]]:
        """The sums over files: by period in order of time, and by group."""
        found: dict[str, dict[str, Floats]] = {}
        for key in sorted(self.vectors, key=lambda key: (in_order(key.period), key.group)):
            groups = found.setdefault(key.period, {})
            vector = self.vectors[key]
            groups[key.group] = groups[key.group] + vector if key.group in groups else vector
        return found


def sums_of(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """The vector of some samples."""
    probs = np.exp(log_probs)
    counts = np.bincount(labels, minlength=probs.shape[1])
    variance = (probs * (1.0 - probs)).sum(axis=0)
    shared = _shared(log_probs, labels)
    ratios = log_ratios(log_probs, labels)
    return np.concatenate([shared, probs.sum(axis=0), variance, counts, ratios])


def sums_of_group(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """The vector of some samples of a group."""
    prob, happened = _event(log_probs, labels)
    ratios = [shifted(shift, prob, happened).sum() for shift in GROUP_SHIFTS]
    return np.concatenate([_shared(log_probs, labels), ratios])


def ratios_of(vector: Floats, group: str, n_classes: int) -> Floats:
    """The log likelihood ratios in a vector."""
    n = len(GROUP_SHIFTS) if group != ALL else len(alternatives(n_classes))
    return vector[-n:]


def _shared(log_probs: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    prob, happened = _event(log_probs, labels)
    nll = -log_probs[np.arange(len(labels)), labels].sum()
    variance = (prob * (1.0 - prob)).sum()
    return np.array([len(labels), prob.sum(), happened.sum(), variance, nll])


def _event(
    log_probs: Floats, labels: npt.NDArray[np.int64]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The stated probability of the event, and whether it happened."""
    if log_probs.shape[1] == 2:
        return np.exp(log_probs[:, 1]), labels == 1
    top = log_probs.argmax(axis=1)
    return np.exp(log_probs[np.arange(len(top)), top]), labels == top


def periods_of(column: Any, every: str, where: str) -> npt.NDArray[Any]:
    """The period of each row, as text: of dates, of times, of text like 2026-10-31, or of numbers.

    Numbers, such as years, are their own periods.
    """
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "iu":
        return values.astype(str)
    try:
        days = values.astype("datetime64[D]")
    except (ValueError, TypeError):
        days = np.array(["NaT"], dtype="datetime64[D]")
    if np.isnat(days).any():
        raise CalibrantError(
            f"{where}: times must be dates, times or whole numbers in every row; found "
            f"{column.type}, or a row without one. Write dates as 2026-10-31"
        )
    if every == "week":  # by its Monday; weeks of NumPy start on Thursdays
        first = np.datetime64("1970-01-05")
        days = first + 7 * ((days - first) // np.timedelta64(7, "D"))
        return days.astype(str)
    return days.astype(f"datetime64[{EVERY[every]}]").astype(str)


def in_order(period: str) -> tuple[int, str]:
    """A key that sorts periods by time."""
    return (int(period), "") if re.fullmatch(r"-?[0-9]{1,18}", period) else (0, period)


def each_period(sums: PeriodSums) -> Iterator[tuple[str, dict[str, Floats]]]:
    """Periods in order of time with the log likelihood ratios of all samples and groups."""
    for period, groups in sums.by_period().items():
        yield period, {g: ratios_of(v, g, sums.n_classes) for g, v in groups.items()}
