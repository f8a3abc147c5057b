"""Top-rest scaling over files.

The top part asks for sums at one point after the other, which rows give as they are read. The rest
is fitted on the mistakes, or on one in so many of them where they hold more than 2 million logits,
as in memory. These few rows are brought to one place, by a single pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrant.calibrators.data import FitData, Floats
from calibrant.calibrators.temperature.solver import BestTemperature
from calibrant.calibrators.top_rest.regressions import TopSums
from calibrant.calibrators.top_rest.solver import (
    AtTemperature,
    Problem,
    TopRest,
    mistake_stride,
    problem_of,
    temperature_of_both,
)
from calibrant.scale.samples import FilesOfSamples


class ProblemOfFiles(AtTemperature):
    """Stands in for ``Problem`` where the samples are in files."""

    def __init__(self, samples: FilesOfSamples) -> None:
        self.samples = samples
        self.data = samples
        self.best = temperature_of_both(self.data)

    @property
    def n_counted(self) -> float:
        """How many samples there are."""
        return float(len(self.samples))

    def top_samples(self, *, classes: bool) -> TopSamplesOfFiles:
        """What the top part is fitted on, with class terms or without."""
        return TopSamplesOfFiles(self.samples, self.best, classes)

    def mistakes(self) -> FitData | None:
        """The rows that the rest is fitted on, if any; ``weight`` is what they count for."""
        n_wrong = len(self.samples) - self.samples.facts.n_correct
        if n_wrong == 0:
            return None
        stride = mistake_stride(n_wrong, self.samples.n_classes)
        rows = self.samples.some_mistakes(stride)
        return replace(rows, weight=np.full(len(rows), float(stride)))

    def nlls(self, found: TopRest) -> tuple[float, float, float]:
        """The NLL of the samples as they are given, under temperature scaling, and as found."""
        given, plain, after = self.samples.means(_loss_rows, self.best, found)
        return given, plain, after


@problem_of.register
def _problem_of_files(data: FilesOfSamples) -> ProblemOfFiles:
    return ProblemOfFiles(data)


@dataclass(frozen=True)
class TopSamplesOfFiles:
    """What the top part is fitted on, in files: each point is one pass over them."""

    samples: FilesOfSamples
    best: BestTemperature
    classes: bool

    def sums(self, weights: Floats, offsets: Floats, *, cautious: bool) -> TopSums:
        """As ``TopSamples`` has it."""
        asked = self.best, self.classes, weights, offsets, cautious
        return TopSums(*self.samples.summed(_top_sums, *asked))


def _top_sums(
    data: FitData,
    best: BestTemperature,
    classes: bool,
    weights: Floats,
    offsets: Floats,
    cautious: bool,
) -> tuple[float | Floats, ...]:
    rows = Problem.at(data, best).top_samples(classes=classes)
    return tuple(rows.sums(weights, offsets, cautious=cautious))


def _loss_rows(data: FitData, best: BestTemperature, found: TopRest) -> Sequence[Floats]:
    return Problem.at(data, best).loss_rows(found)
