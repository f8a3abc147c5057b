"""The best (gamma, T) of the grid by a criterion over files, in few passes.

By a smooth criterion the ten gammas walk side by side (see ``calibrators.search``), so each round
of steps is one pass. By a calibration error:

1. One pass sums the confidences at the nodes of ``calibrators.paths``. No calibration error is
   smaller than |mean confidence - accuracy|, so a point where this exceeds what some other point
   achieves is out, as in memory. What some points achieve is computed first.
2. The points that are left are computed together: equal-width errors exactly, equal-mass errors
   with bounds that further passes narrow (see ``equal_mass``), until what is left is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.temperature.criterion import (
    Evaluator,
    Point,
    evaluator_of,
    in_memory,
)
from calibrant.calibrators.temperature.grid_pruning import (
    lower_bound,
    smallest_on_grid,
    smallest_on_line,
)
from calibrant.metrics.binning import EqualWidthBins
from calibrant.metrics.calibration import error_of_table
from calibrant.scale.equal_mass import At, EqualMassErrors
from calibrant.scale.samples import FilesOfSamples

UNCHANGED: At = (0.0, 1.0)
"""The point that changes nothing. Fits report the criterion there, too."""
MOST_POINTS = 512
"""Points whose equal-width bins are counted in one pass."""
ROUNDING = 1e-12
"""Errors that differ by less are taken as equal."""


@dataclass(frozen=True)
class SketchBounds:
    """How sure an equal-mass calibration error over files is."""

    off_by: float
    """The error itself is off by at most this."""
    better_by: float
    """And no point of the grid has an error smaller than the true one by more than this."""


class EvaluatorOfFiles(Evaluator):
    """Computes one criterion at many points in one pass over the files."""

    bounds: SketchBounds | None = None
    """Of the best point, by an equal-mass error."""

    data: FilesOfSamples

    def __init__(
        self, data: FilesOfSamples, criterion: str, *, n_bins: int, focal_gamma: float
    ) -> None:
        super().__init__(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)
        data.evaluators.append(self)
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
            return self._width_errors(points)
        if self.criterion == "ada_ece":
            errors = EqualMassErrors(self.data, self.n_bins)
            errors.look(points)
            while errors.look_closer(points):
                pass
            return [errors[point][0] for point in points]
        like = self.criterion, self.n_bins, self.focal_gamma
        return list(self.data.means(_losses, like, tuple(points)))

    def smallest_on_grid(self, gammas: Floats, temperatures: Floats) -> Point:
        """The best point of a full grid, by a calibration error."""
        bound = lower_bound(self.data, gammas, np.log(temperatures))
        first = [
            (float(gamma), float(temperatures[of_gamma.argmin()]))
            for gamma, of_gamma in zip(gammas, bound, strict=True)
        ]
        first = [*dict.fromkeys([*first, UNCHANGED])]
        if self.criterion == "ece":
            to_beat = min(self.at(first))
            left = _points(gammas, temperatures, bound <= to_beat + ROUNDING)
            values = self.at(left)
            return _best([Point(*at, value) for at, value in zip(left, values, strict=True)])
        errors = EqualMassErrors(self.data, self.n_bins)
        errors.look(first)
        to_beat = float(_highest(errors, first).min())
        left = _points(gammas, temperatures, bound <= to_beat + ROUNDING)
        out = float(np.min(bound, where=bound > to_beat + ROUNDING, initial=np.inf))
        return self._smallest(left, errors, out)

    def smallest_on_line(self, gammas: Floats, temperatures: Floats, best: Point) -> Point:
        """The best of ``best`` and of points on a line, by a calibration error."""
        points = list(zip(gammas.tolist(), temperatures.tolist(), strict=True))
        if self.criterion == "ece":
            return _best([best, *map(Point, *zip(*points, strict=True), self.at(points))])
        return _best([best, self._smallest(points, EqualMassErrors(self.data, self.n_bins))])

    def _smallest(
        self, left: list[At], errors: EqualMassErrors, lowest_out: float = np.inf
    ) -> Point:
        """The best of some points by an equal-mass error; that of all others is at least so."""
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
        self.bounds = SketchBounds(off_by, better_by if better_by > ROUNDING else 0.0)
        return best

    def _width_errors(self, points: Sequence[At]) -> list[float]:
        found = []
        for start in range(0, len(points), MOST_POINTS):
            some = tuple(points[start : start + MOST_POINTS])
            for counted in self.data.summed(_binned, self.n_bins, some):
                found.append(error_of_table(counted.table(), "l1"))
        return found


@evaluator_of.register
def _evaluator_of_files(
    data: FilesOfSamples, criterion: str, *, n_bins: int, focal_gamma: float
) -> EvaluatorOfFiles:
    return EvaluatorOfFiles(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)


@smallest_on_grid.register
def _on_grid(evaluator: EvaluatorOfFiles, gammas: Floats, temperatures: Floats) -> Point:
    return evaluator.smallest_on_grid(gammas, temperatures)


@smallest_on_line.register
def _on_line(
    evaluator: EvaluatorOfFiles, gammas: Floats, temperatures: Floats, best: Point
) -> Point:
    return evaluator.smallest_on_line(gammas, temperatures, best)


def _losses(data: FitData, like: tuple[str, int, float], points: Sequence[At]) -> Iterator[Floats]:
    """The loss of each row, at one point after the other."""
    criterion, n_bins, focal_gamma = like
    evaluator = in_memory(data, criterion, n_bins=n_bins, focal_gamma=focal_gamma)
    for point in points:
        yield evaluator.loss_rows(*point)


def _binned(data: FitData, n_bins: int, points: Sequence[At]) -> list[EqualWidthBins]:
    """The confidences of all rows at each point, in bins."""
    evaluator = in_memory(data, "ece", n_bins=n_bins, focal_gamma=0.0)
    counted = []
    for point in points:
        counter = EqualWidthBins(n_bins)
        counter.update(sigmoid(evaluator.log_odds(*point)), data.correct)
        counted.append(counter)
    return counted


def _highest(errors: EqualMassErrors, points: Sequence[At]) -> Floats:
    """What the error at each point is at most."""
    return np.array([value + off for value, off in map(errors.__getitem__, points)])


def _lowest(errors: EqualMassErrors, points: Sequence[At]) -> Floats:
    """And at least."""
    return np.array([value - off for value, off in map(errors.__getitem__, points)])


def _points(gammas: Floats, temperatures: Floats, which: Any) -> list[At]:
    return [
        (float(gammas[c]), float(temperatures[t])) for c, t in zip(*np.nonzero(which), strict=True)
    ]


def _best(points: list[Point]) -> Point:
    return min(points, key=lambda point: point.rank)
