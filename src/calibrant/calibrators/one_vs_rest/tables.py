"""Lookup tables: what one-vs-rest calibrators without a formula for g_k share; see ``base``.

Each class has a row of knots, in log-odds, and one or more rows of values there. Rows are padded to
a common length with knots above every log-odds. A binary search of gathers and comparisons finds
the place of a sample, so the same code runs in every array library and in exported files. A step
function has no gradient.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace, device
from calibrant._types import Array
from calibrant.calibrators.base import Shapes, State
from calibrant.calibrators.data import Floats, kept_with_samples
from calibrant.calibrators.one_vs_rest.base import (
    MOST_KEPT,
    MOST_LOG_ODDS,
    OneVsRest,
    Problems,
)

Indices = npt.NDArray[np.intp]

PADDING = 2.0 * MOST_LOG_ODDS
SAME = 2.0**-40
"""Log-odds closer than this, relative to their size or to 1, are equal: they differ only by the
order in which the softmax summed its classes."""
ON_EDGE = 1e-12
"""A fraction of the samples this little below an edge is on it, up to rounding."""

MOST_COMPARED = 1 << 17
"""Up to so many knots, one row is compared with all of them: faster than a search by steps."""


@dataclass(frozen=True)
class PooledSamples:
    """One binary problem sorted by log-odds; equal log-odds are pooled into G groups."""

    log_odds: Floats
    """(G,), increasing."""
    hits: Floats
    """(G,): weight of the samples of the class."""
    misses: Floats
    """(G,): weight of the others."""

    @classmethod
    def of(cls, problems: Problems) -> Iterator[PooledSamples]:
        """The groups of each problem."""
        for row in range(len(problems)):
            counts = np.flatnonzero(problems.weight[row])
            order = counts[np.argsort(problems.log_odds[row, counts])]
            x, hit = problems.log_odds[row, order], problems.hits[row, order]
            weight = problems.weight[row, order]
            apart = np.diff(x) > SAME * np.maximum(np.abs(x[1:]), 1.0)
            starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
            yield cls(
                log_odds=x[starts],
                hits=np.add.reduceat(np.where(hit, weight, 0.0), starts),
                misses=np.add.reduceat(np.where(hit, 0.0, weight), starts),
            )

    def __len__(self) -> int:
        return len(self.log_odds)

    @property
    def weight(self) -> Floats:
        """(G,)"""
        return self.hits + self.misses

    @property
    def total(self) -> float:
        """Weight of all samples."""
        return float(self.weight.sum())

    def sums(self, starts: Indices) -> tuple[Floats, Floats]:
        """Hits and misses of the runs of groups that start at ``starts``."""
        return np.add.reduceat(self.hits, starts), np.add.reduceat(self.misses, starts)

    def edges(self, starts: Indices) -> Floats:
        """Lower edges of these runs: halfway to the previous group; the lowest for the first."""
        below, above = self.log_odds[starts[1:] - 1], self.log_odds[starts[1:]]
        return np.concatenate([[-MOST_LOG_ODDS], below + (above - below) / 2.0])

    def above(self, fractions: Floats) -> Indices:
        """The first group whose middle is at or above each fraction of the samples.

        Groups are never divided, so the order of rows does not matter.
        """
        weight = self.weight
        middle = (np.cumsum(weight) - weight / 2.0) / weight.sum()
        return np.searchsorted(middle, fractions - ON_EDGE)

    def bounded(self, log_odds: Floats) -> Floats:
        """Log-odds, clipped to probabilities between 1 / (n + 2) and 1 - 1 / (n + 2)."""
        most = math.log1p(self.total)
        return np.clip(log_odds, -most, most)


@dataclass(frozen=True)
class Curve:
    """The table of one class."""

    knots: Floats
    columns: Mapping[str, Floats]
    """What the table holds at the knots, by the names in ``STATE``."""
    n_parameters: float
    """Number of fitted numbers."""


@kept_with_samples
def _kept_groups(problems: Problems) -> list[PooledSamples]:
    return list(PooledSamples.of(problems))


class Table(OneVsRest):
    """A step function for each class: value j above knot j, up to and including knot j + 1."""

    STATE: ClassVar[Shapes] = {"knots": ("P", "M"), "values": ("P", "M")}

    @abstractmethod
    def _curve(self, groups: PooledSamples, n_classes: int, line: Floats | None) -> Curve:
        """The table of one problem; ``line`` is one of the lines of ``_fit_problems``."""

    def _curves(
        self, groups: Iterable[PooledSamples], n_classes: int, lines: Floats | None
    ) -> list[Curve]:
        """The tables of all problems."""
        started = (
            ((each, None) for each in groups) if lines is None else zip(groups, lines, strict=True)
        )
        return [self._curve(each, n_classes, line) for each, line in started]

    def _fit_problems(self, problems: Problems, lines: Floats | None = None) -> dict[str, Any]:
        few = problems.log_odds.size <= MOST_KEPT
        groups = _kept_groups(problems) if few else PooledSamples.of(problems)
        return self._fit_groups(groups, problems.n_classes, lines)

    def _fit_groups(
        self, groups: Iterable[PooledSamples], n_classes: int, lines: Floats | None = None
    ) -> dict[str, Any]:
        """:meth:`_fit_problems` for the groups of all problems."""
        curves = self._curves(groups, n_classes, lines)
        return {
            "state": {
                "knots": padded([curve.knots for curve in curves], PADDING),
                **{
                    name: padded([curve.columns[name] for curve in curves])
                    for name in curves[0].columns
                },
            },
            "evaluations": 1,
            "n_parameters": round(sum(curve.n_parameters for curve in curves)),
        }

    def _calibrated(self, log_odds: Array, state: State) -> Array:
        place, _ = places(log_odds, state["knots"])
        return taken(state["values"], place)

    def _refuse_state(self, state: State) -> str | None:
        if (np.diff(state["knots"], axis=1) < 0.0).any():
            return "its knots are not sorted"
        return super()._refuse_state(state)


def padded(rows: list[npt.NDArray[Any]], value: float | None = None) -> npt.NDArray[Any]:
    """The rows, extended to one length by ``value``, or else by their last number."""
    longest = max(map(len, rows))
    fill = [row[-1] if value is None else value for row in rows]
    return np.stack(
        [
            np.pad(row, (0, longest - len(row)), constant_values=each)
            for row, each in zip(rows, fill, strict=True)
        ]
    )


def places(log_odds: Array, knots: Array) -> tuple[Array, Array]:
    """Indices in the flattened table of the last knot below (else the first), and of the next."""
    xp = array_namespace(log_odds)
    n_problems, length = knots.shape
    if n_problems == 1 and isinstance(log_odds, np.ndarray | float):
        place = xp.maximum(knots[0].searchsorted(log_odds) - 1, 0)
        return place, xp.minimum(place + 1, length - 1)
    first = xp.arange(n_problems, dtype=xp.int64, device=device(log_odds)) * length
    last = first + (length - 1)
    if isinstance(log_odds, np.ndarray) and log_odds.ndim == 1 and knots.size <= MOST_COMPARED:
        below = np.count_nonzero(knots < log_odds[:, np.newaxis], axis=1)
        place = np.maximum(first + below - 1, first)
        return place, np.minimum(place + 1, last)
    place = xp.broadcast_to(first, log_odds.shape)
    for power in reversed(range((int(length) - 1).bit_length())):
        trial = xp.minimum(place + 2**power, last)
        place = xp.where(taken(knots, trial) < log_odds, trial, place)
    return place, xp.minimum(place + 1, last)


def between(log_odds: Array, knots: Array) -> tuple[Array, Array, Array]:
    """The results of :func:`places`, and how far each sample is on the way from one to the other.

    0 below the first knot, 1 above the last.
    """
    xp = array_namespace(log_odds)
    low, high = places(log_odds, knots)
    left, right = taken(knots, low), taken(knots, high)
    gap = xp.where(right > left, right - left, 1.0)
    return low, high, xp.clip((log_odds - left) / gap, min=0.0, max=1.0)


def taken(table: Array, places: Array) -> Array:
    """Entries of a table at indices in it, flattened."""
    if isinstance(table, np.ndarray):
        return table.reshape(-1)[places] if isinstance(places, np.ndarray) else table.item(places)
    xp = array_namespace(table)
    flat = xp.take(xp.reshape(table, (-1,)), xp.reshape(places, (-1,)), axis=0)
    return xp.reshape(flat, places.shape)
