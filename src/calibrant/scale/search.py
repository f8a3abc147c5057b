"""The best (gamma, T) of the grid by a criterion over files, in few passes.

By a smooth criterion the ten gammas walk side by side (see ``calibrators.search``), so each round
of steps is one pass. By a calibration error:

1. One pass sums the confidences at the nodes of ``calibrators.paths``. No calibration error is
   smaller than |mean confidence - accuracy|, so a point where this exceeds what some other point
   achieves is out, as in memory.
2. The points that are left are computed together. Equal-width errors are exact. Equal-mass errors
   come from sketches: coarse ones first, whose bounds rule out most points, then finer ones for
   the few that could still be the best.

The equal-mass error of the point that is returned comes with two bounds: how far the sketch may be
off, and by how much any other point of the grid can be better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from calibrant.binning import EqualMassSketch, EqualWidthBins
from calibrant.calibrators.base import FitData, Floats
from calibrant.calibrators.evaluator import BINNED, Evaluator, confidences
from calibrant.calibrators.paths import EVERY, Point, lower_bound
from calibrant.metrics.calibration import error_of_table

At: TypeAlias = tuple[float, float]
"""A point (gamma, T)."""


class CoarseSketch(EqualMassSketch):
    """A sketch small enough for a hundred points at a time."""

    DIGITS = 6


class MiddleSketch(EqualMassSketch):
    """A sketch in between."""

    DIGITS = 9


MOST_POINTS: dict[type[EqualWidthBins] | type[EqualMassSketch], int] = {
    EqualWidthBins: 512,
    CoarseSketch: 128,
    MiddleSketch: 16,
    EqualMassSketch: 4,
}
"""Points computed in one pass: the sketches of as many take 30 MB."""


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

    def at(self, points: Sequence[At]) -> list[float]:
        """The criterion at each point (gamma, T)."""
        if self.criterion in BINNED:
            finest = EqualWidthBins if self.criterion == "ece" else EqualMassSketch
            return [value for value, _ in self._errors(points, finest)]
        if not points:
            return []
        self.evaluations += len(points)
        like = self.criterion, self.n_bins, self.focal_gamma
        return list(self.data.means(_losses, like, tuple(points)))

    def smallest_on_grid(self, gammas: Floats, temperatures: Floats) -> Point:
        """The best point of a full grid, by a calibration error."""
        bound = lower_bound(self.data, gammas, np.log(temperatures))
        looked_at = [
            (float(gammas[c]), float(temperatures[bound[c].argmin()]))
            for c in range(0, len(gammas), EVERY)
        ]
        if self.criterion == "ece":
            to_beat = min(self.at(looked_at))
            left = _points(gammas, temperatures, bound <= to_beat)
            values = self.at(left)
            return _best([Point(*at, value) for at, value in zip(left, values, strict=True)])
        to_beat = min(value + off for value, off in self._errors(looked_at, MiddleSketch))
        left = _points(gammas, temperatures, bound <= to_beat)
        lowest_out = float(np.min(bound, where=bound > to_beat, initial=np.inf))
        for sketch in (CoarseSketch, MiddleSketch, EqualMassSketch):
            errors = self._errors(left, sketch)
            to_beat = min(to_beat, *(value + off for value, off in errors))
            kept = [value - off <= to_beat for value, off in errors]
            for (value, off), keep in zip(errors, kept, strict=True):
                lowest_out = lowest_out if keep else min(lowest_out, value - off)
            left = [at for at, keep in zip(left, kept, strict=True) if keep]
            errors = [error for error, keep in zip(errors, kept, strict=True) if keep]
        best = _best([Point(*at, value) for at, (value, _) in zip(left, errors, strict=True)])
        off_by = errors[left.index((best.gamma, best.temperature))][1]
        lowest = min(lowest_out, *(value - off for value, off in errors))
        self.bounds = SketchBounds(off_by, max(0.0, best.value + off_by - lowest))
        return best

    def _errors(
        self, points: Sequence[At], bins: type[EqualWidthBins] | type[EqualMassSketch]
    ) -> list[tuple[float, float]]:
        """The calibration error at each point, and by how much it may be off."""
        self.evaluations += len(points)
        most = MOST_POINTS[bins]
        found = []
        for start in range(0, len(points), most):
            some = tuple(points[start : start + most])
            for counted in self.data.summed(_binned, bins, self.n_bins, some):
                width = isinstance(counted, EqualWidthBins)
                table = counted.table() if width else counted.table(self.n_bins)
                off = 0.0 if width else counted.error_bound(self.n_bins)
                found.append((error_of_table(table, "l1"), off))
        return found


def _losses(data: FitData, like: tuple[str, int, float], points: Sequence[At]) -> Iterator[Floats]:
    """The loss of each row, at one point after the other."""
    criterion, n_bins, focal_gamma = like
    evaluator = data.evaluator(criterion, n_bins=n_bins, focal_gamma=focal_gamma)
    for point in points:
        yield evaluator.loss_rows(*point)


def _binned(data: FitData, bins: Any, n_bins: int, points: Sequence[At]) -> list[Any]:
    """The confidences of all rows at each point, in bins or a sketch."""
    evaluator = data.evaluator("ece", n_bins=n_bins, focal_gamma=0.0)
    counted = []
    for point in points:
        counter = bins(n_bins) if bins is EqualWidthBins else bins()
        counter.update(confidences(evaluator.log_odds(*point)), data.right)
        counted.append(counter)
    return counted


def _points(gammas: Floats, temperatures: Floats, which: Any) -> list[At]:
    return [
        (float(gammas[c]), float(temperatures[t])) for c, t in zip(*np.nonzero(which), strict=True)
    ]


def _best(points: list[Point]) -> Point:
    return min(points, key=lambda point: point.rank)
