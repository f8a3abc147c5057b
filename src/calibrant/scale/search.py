"""The best (gamma, T) of the grid by a criterion over files, in few passes.

For a smooth criterion the ten gammas are searched together (see ``calibrators.batched_search``), so
each round of steps is one pass. For a calibration error:

1. One pass sums the confidences at the nodes of ``grid_pruning``. No calibration error is smaller
   than |mean confidence - accuracy|, so a point where this exceeds the error of some other point is
   out, as in memory. The errors of some points are computed first.
2. The errors of the points that are left are computed together: equal-width errors exactly,
   equal-mass errors with bounds that further passes narrow (see ``equal_mass``) until they are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.fit_report import SearchBounds
from calibrant.calibrators.temperature.criterion import Evaluator, Point, evaluator_of, in_memory
from calibrant.calibrators.temperature.grid_pruning import (
    lower_bound,
    smallest_on_grid,
    smallest_on_line,
)
from calibrant.metrics.binning import EqualWidthBins
from calibrant.metrics.calibration import error_of_table
from calibrant.scale.equal_mass import At, EqualMassErrors, confidence_at
from calibrant.scale.samples import SamplesInFiles

UNCHANGED: At = (0.0, 1.0)
"""The point that changes nothing. Fits report the criterion there too."""
MOST_POINTS = 512
"""Points whose equal-width bins are computed in one pass."""
ROUNDING = 1e-12
"""Errors that differ by less count as equal."""


class EvaluatorInFiles(Evaluator):
    """Computes one criterion at many points in one pass over the files."""

    data: SamplesInFiles

    def __init__(
        self, data: SamplesInFiles, criterion: str, *, n_bins: int, focal_gamma: float
    ) -> None:
        super().__init__(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)
        self.known: dict[At, float] = {}

    def at(self, points: Sequence[At]) -> list[float]:
        """The criterion at each point (gamma, T)."""
        new = [point for point in dict.fromkeys(points) if point not in self.known]
        if new:
            self.known.update(zip(new, self._computed(new), strict=True))
        return [self.known[point] for point in points]

    def _computed(self, points: Sequence[At]) -> list[float]:
        self.evaluations += len(points)
        if self.criterion == "ece":
            return self._equal_width_errors(points)
        if self.criterion == "ada_ece":
            errors = EqualMassErrors(self.data, self.n_bins)
            errors.look(points)
            while errors.look_closer(points):
                pass
            return [errors[point][0] for point in points]
        like = self.criterion, self.n_bins, self.focal_gamma
        return list(self.data.means(_losses, like, tuple(points)))

    def _equal_width_errors(self, points: Sequence[At]) -> list[float]:
        found = []
        for start in range(0, len(points), MOST_POINTS):
            some = tuple(points[start : start + MOST_POINTS])
            for bins in self.data.summed(_equal_width_bins, self.n_bins, some):
                found.append(error_of_table(bins.table(), "l1"))
        return found

    def smallest_equal_mass(
        self, left: list[At], errors: EqualMassErrors, lowest_out: float = np.inf
    ) -> Point:
        """The best of the points ``left``; ``lowest_out`` bounds the errors of all others."""
        besides = [] if UNCHANGED in self.known else [UNCHANGED]
        errors.look([at for at in dict.fromkeys([*left, *besides]) if at not in errors.cells])
        self.evaluations += len(errors.cells)
        looking = True
        while looking:
            lowest = _lowest(errors, left)
            kept = lowest <= _highest(errors, left).min() + ROUNDING
            lowest_out = min([lowest_out, *lowest[~kept]])
            left = [point for point, keep in zip(left, kept, strict=True) if keep]
            looking = errors.look_closer([*dict.fromkeys([*left, *besides])])
        self.known |= {at: errors[at][0] for at in [*left, *besides]}
        best = _best([Point(*at, errors[at][0]) for at in left])
        off_by = errors[best.gamma, best.temperature][1]
        better_by = best.value + off_by - min(lowest_out, *_lowest(errors, left))
        self.data.search_bounds.append(
            SearchBounds(off_by=off_by, better_by=better_by if better_by > ROUNDING else 0.0)
        )
        return best


evaluator_of.register(SamplesInFiles, EvaluatorInFiles)


@smallest_on_grid.register
def _smallest_on_grid(evaluator: EvaluatorInFiles, gammas: Floats, temperatures: Floats) -> Point:
    bound = lower_bound(evaluator.data, gammas, np.log(temperatures))
    first = [
        (float(gamma), float(temperatures[of_gamma.argmin()]))
        for gamma, of_gamma in zip(gammas, bound, strict=True)
    ]
    if 0.0 in gammas and 1.0 in temperatures:
        first = [*dict.fromkeys([*first, UNCHANGED])]
    if evaluator.criterion == "ece":
        to_beat = min(evaluator.at(first))
        left = _points(gammas, temperatures, bound <= to_beat + ROUNDING)
        values = evaluator.at(left)
        return _best([Point(*at, value) for at, value in zip(left, values, strict=True)])
    errors = EqualMassErrors(evaluator.data, evaluator.n_bins)
    errors.look(first)
    to_beat = float(_highest(errors, first).min())
    left = _points(gammas, temperatures, bound <= to_beat + ROUNDING)
    out = float(np.min(bound, where=bound > to_beat + ROUNDING, initial=np.inf))
    return evaluator.smallest_equal_mass(left, errors, out)


@smallest_on_line.register
def _smallest_on_line(
    evaluator: EvaluatorInFiles, gammas: Floats, temperatures: Floats, best: Point
) -> Point:
    points = list(zip(gammas.tolist(), temperatures.tolist(), strict=True))
    if evaluator.criterion == "ece":
        values = evaluator.at(points)
        return _best([best, *map(Point, *zip(*points, strict=True), values)])
    errors = EqualMassErrors(evaluator.data, evaluator.n_bins)
    return _best([best, evaluator.smallest_equal_mass(points, errors)])


def _losses(data: FitData, like: tuple[str, int, float], points: Sequence[At]) -> Iterator[Floats]:
    """The loss of each row, at each point."""
    criterion, n_bins, focal_gamma = like
    evaluator = in_memory(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)
    for point in points:
        yield evaluator.loss_rows(*point)


def _equal_width_bins(data: FitData, n_bins: int, points: Sequence[At]) -> list[EqualWidthBins]:
    """The confidences of all rows at each point, in bins."""
    found = []
    for point in points:
        bins = EqualWidthBins(n_bins)
        bins.update(confidence_at(point, data), data.correct)
        found.append(bins)
    return found


def _highest(errors: EqualMassErrors, points: Sequence[At]) -> Floats:
    """Upper bound of the error at each point."""
    return np.array([value + off for value, off in map(errors.__getitem__, points)])


def _lowest(errors: EqualMassErrors, points: Sequence[At]) -> Floats:
    """Lower bound of the error at each point."""
    return np.array([value - off for value, off in map(errors.__getitem__, points)])


def _points(gammas: Floats, temperatures: Floats, which: Any) -> list[At]:
    return [
        (float(gammas[c]), float(temperatures[t])) for c, t in zip(*np.nonzero(which), strict=True)
    ]


def _best(points: list[Point]) -> Point:
    return min(points, key=lambda point: point.rank)
