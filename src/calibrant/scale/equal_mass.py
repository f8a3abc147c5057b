"""Equal-mass calibration errors at many points (gamma, T) over files, exactly, in few passes.

The bin edges of a point depend on all of its confidences. So the first pass counts the confidences
in cells, whose boundaries are quantiles of some rows. If no bin edge cuts a cell, its sums are all
that is needed. Each further pass looks into the cells that are cut: it divides them, or, if few
rows are in them, gathers their confidences, and then the error is exact. After every pass the
errors have bounds, so points that cannot be the best need no further pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.temperature.rows import log_odds_of
from calibrant.calibrators.temperature.solver import TO_LOOK
from calibrant.metrics.binning import (
    are_tied,
    bound_of_cut_groups,
    group_starts,
    mass_edges,
    tie_width,
)

At: TypeAlias = tuple[float, float]
"""A point (gamma, T)."""

MOST_CELLS = 1 << 18
"""Cells of all points of one pass: their sums take 10 MB."""
CELLS_OF_POINT = range(64, 4097)
"""Number of cells of a point; the more points, the fewer."""
MOST_COLLECTED = 1 << 19
"""Rows in cut cells, of all points, up to which they are gathered."""
MOST_LOOKS = 12
"""Passes after which the bounds are reported as they are; half of them have always sufficed."""


class CellSums:
    """For each cell: rows, sum of confidences, correct rows, smallest and largest confidence."""

    def __init__(self, n_cells: int) -> None:
        self.sums: Floats = np.zeros((n_cells, 5))
        self.sums[:, 3], self.sums[:, 4] = np.inf, -np.inf

    def add(self, confidence: Floats, correct: npt.NDArray[np.bool_], boundaries: Floats) -> None:
        """Count the rows of a batch."""
        from calibrant.scale.kernels import add_to_sums, cells_between

        cells = np.empty(len(confidence), dtype=np.intp)
        cells_between(confidence, boundaries, cells)
        add_to_sums(cells, confidence, correct, self.sums)

    def merge(self, other: Self) -> None:
        """Add the rows of other bundles."""
        self.sums[:, :3] += other.sums[:, :3]
        np.minimum(self.sums[:, 3], other.sums[:, 3], out=self.sums[:, 3])
        np.maximum(self.sums[:, 4], other.sums[:, 4], out=self.sums[:, 4])


@dataclass
class Collected:
    """The rows of some cells."""

    confidence: list[Floats]
    correct: list[npt.NDArray[np.bool_]]

    def merge(self, other: Self) -> None:
        """Add the rows of other bundles."""
        self.confidence += other.confidence
        self.correct += other.correct

    def sums(self) -> Floats:
        """The sums of cells that hold one confidence each."""
        confidence, correct = np.concatenate(self.confidence), np.concatenate(self.correct)
        order = np.argsort(confidence)
        values = confidence[order]
        first = group_starts(values)
        group = np.cumsum(first) - 1
        counts = np.bincount(group).astype(np.float64)
        confidences = np.bincount(group, weights=values)
        n_correct = np.bincount(group, weights=correct[order])
        return np.stack([counts, confidences, n_correct, values[first], values[first]], axis=1)


class Cells:
    """What is known about the confidences at one point: sums of cells in ascending order."""

    def __init__(self, sums: Floats, edges: Floats) -> None:
        sums = sums[sums[:, 0] > 0.0]
        self.sums = sums[np.argsort(sums[:, 3])]  # they do not overlap
        self.edges = edges

    @cached_property
    def error(self) -> tuple[float, float]:
        """The equal-mass calibration error, and a bound on its own error."""
        count, confidence, n_correct, lowest, highest = self.sums.T
        ranks = np.concatenate([[0.0], np.cumsum(count)])
        gaps = np.concatenate([[0.0], np.cumsum(confidence - n_correct)])
        value = np.abs(np.diff(np.interp(self.edges, ranks, gaps))).sum() / self.edges[-1]
        return float(value), bound_of_cut_groups(count, n_correct, lowest, highest, self.edges)

    @cached_property
    def cut(self) -> npt.NDArray[np.intp]:
        """Cells whose rows may lie on either side of a bin edge."""
        count, _, _, lowest, highest = self.sums.T
        stops, inner = np.cumsum(count), self.edges[1:-1]
        cell = np.searchsorted(stops, inner, side="left")
        return np.unique(cell[(stops[cell] > inner) & ~are_tied(lowest[cell], highest[cell])])

    def with_parts(self, parts: Floats) -> Cells:
        """The same with the cut cells replaced by their parts."""
        cut = self.cut
        ends = self.sums[cut, 4]
        place = np.minimum(np.searchsorted(ends, parts[:, 3]), len(cut) - 1)
        inside = (parts[:, 3] >= self.sums[cut, 3][place]) & (parts[:, 3] <= ends[place])
        return Cells(np.concatenate([np.delete(self.sums, cut, axis=0), parts[inside]]), self.edges)


class EqualMassErrors:
    """The errors at points (gamma, T), as far as they are known."""

    def __init__(self, data: Samples, n_bins: int) -> None:
        self.data = data
        self.edges = mass_edges(float(len(data)), n_bins, whole=True)
        self.cells: dict[At, Cells] = {}
        self.looks_left = MOST_LOOKS

    def __getitem__(self, point: At) -> tuple[float, float]:
        """The error at a point, and a bound on its own error."""
        return self.cells[point].error

    def look(self, points: Sequence[At]) -> None:
        """Count the confidences at new points."""
        some = self.data.some_rows(TO_LOOK)
        sample = some if isinstance(some, FitData) and some is not self.data else None
        most = MOST_CELLS // CELLS_OF_POINT.start
        for start in range(0, len(points), most):
            chosen = tuple(points[start : start + most])
            n_cells = min(MOST_CELLS // len(chosen), CELLS_OF_POINT.stop - 1)
            boundaries = tuple(_quantiles(sample, point, n_cells) for point in chosen)
            counted = self.data.summed(_count_in_cells, chosen, boundaries)
            for point, cells in zip(chosen, counted, strict=True):
                self.cells[point] = Cells(cells.sums, self.edges)

    def look_closer(self, points: Sequence[At]) -> bool:
        """Look into the cells that are cut; False where there are none, or after many looks."""
        cut = {point: self.cells[point].sums[self.cells[point].cut] for point in points}
        chosen = tuple(point for point in points if len(cut[point]))
        if not chosen or self.looks_left == 0:
            return False
        self.looks_left -= 1
        if sum(sums[:, 0].sum() for sums in cut.values()) <= MOST_COLLECTED:
            limits = tuple((cut[point][:, 3], cut[point][:, 4]) for point in chosen)
            collected = self.data.summed(_collect, chosen, limits)
            parts = [rows.sums() for rows in collected]
        else:
            n_cut = sum(len(sums) for sums in cut.values())
            n_parts = min(max(MOST_CELLS // n_cut, 8), CELLS_OF_POINT.stop - 1)
            boundaries = tuple(_divided(cut[point], n_parts) for point in chosen)
            counted = self.data.summed(_count_in_cells, chosen, boundaries)
            parts = [cells.sums[cells.sums[:, 0] > 0.0] for cells in counted]
        for point, of_point in zip(chosen, parts, strict=True):
            self.cells[point] = self.cells[point].with_parts(of_point)
        return True


def _quantiles(some: FitData | None, point: At, n_cells: int) -> Floats:
    """Boundaries of cells with about the same number of rows."""
    if some is None:  # few rows: any boundaries do
        return _just_above(np.arange(1, n_cells) / n_cells)
    log_odds = np.sort(log_odds_of(some, point[0], 1.0 / point[1]))
    at = np.linspace(0.0, len(log_odds) - 1.0, n_cells + 1)[1:-1]
    # Confidences with log-odds above 40 round to 1.
    between = np.interp(at, np.arange(len(log_odds)), np.minimum(log_odds, 40.0))
    return np.unique(_just_above(sigmoid(between)))


def _just_above(confidence: Floats) -> Floats:
    """Boundaries that do not separate tied confidences."""
    above: Floats = confidence + 0.5 * tie_width(confidence)
    return above


def _divided(cut: Floats, n_parts: int) -> Floats:
    """Boundaries that divide cells evenly, and separate the confidences at both ends."""
    lowest, highest = cut[:, 3], cut[:, 4]
    steps = np.arange(1, n_parts)[:, None] / n_parts
    between = lowest + (highest - lowest) * steps
    below_highest = highest - (_just_above(highest) - highest)
    inner = np.concatenate([between, [_just_above(lowest), below_highest]])
    ends = np.stack([np.nextafter(lowest, -1.0), highest])
    return np.unique(np.concatenate([ends, np.clip(inner, lowest, highest)]))


def _count_in_cells(
    data: FitData, points: Sequence[At], boundaries: Sequence[Floats]
) -> list[CellSums]:
    """The confidences of all rows at each point, in cells."""
    counted = []
    for point, between in zip(points, boundaries, strict=True):
        cells = CellSums(len(between) + 1)
        cells.add(confidence_at(point, data), data.correct, between)
        counted.append(cells)
    return counted


def _collect(
    data: FitData, points: Sequence[At], limits: Sequence[tuple[Floats, Floats]]
) -> list[Collected]:
    """The confidences at each point that lie between its limits."""
    collected = []
    for point, (lowest, highest) in zip(points, limits, strict=True):
        confidence = confidence_at(point, data)
        place = np.minimum(np.searchsorted(highest, confidence), len(highest) - 1)
        inside = (confidence >= lowest[place]) & (confidence <= highest[place])
        collected.append(Collected([confidence[inside]], [data.correct[inside]]))
    return collected


def confidence_at(point: At, data: FitData) -> Floats:
    """The confidence of each row at a point (gamma, T)."""
    gamma, temperature = point
    confidence: Floats = sigmoid(log_odds_of(data, gamma, 1.0 / temperature))
    return confidence
