"""Top-rest scaling over files.

The top part needs sums at one point after the other, each of which is one pass. The rest is fitted
on the mistakes, or on every n-th of them if they hold more than 2 million logits, as in memory.
These few rows are gathered in one pass.
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
from calibrant.scale.samples import SamplesInFiles


class ProblemInFiles(AtTemperature):
    """``Problem`` for samples in files."""

    def __init__(self, samples: SamplesInFiles) -> None:
        self.samples = self.data = samples
        self.best = temperature_of_both(samples)

    @property
    def n_counted(self) -> float:
        """Number of samples."""
        return float(len(self.samples))

    def top_samples(self, *, classes: bool) -> TopSamplesInFiles:
        """What the top part is fitted on, with class terms or without."""
        return TopSamplesInFiles(self.samples, self.best, classes)

    def mistakes(self) -> FitData | None:
        """The rows that the rest is fitted on, if any, weighted by the stride."""
        n_wrong = len(self.samples) - self.samples.facts.n_correct
        if n_wrong == 0:
            return None
        stride = mistake_stride(n_wrong, self.samples.n_classes)
        rows = self.samples.some_mistakes(stride)
        return replace(rows, weight=np.full(len(rows), float(stride)))

    def nlls(self, found: TopRest) -> tuple[float, float, float]:
        """The NLL of the samples as given, after temperature scaling, and as found."""
        given, plain, after = self.samples.means(_loss_rows, self.best, found)
        return given, plain, after


problem_of.register(SamplesInFiles, ProblemInFiles)


@dataclass(frozen=True)
class TopSamplesInFiles:
    """What the top part is fitted on, in files: each point is one pass."""

    samples: SamplesInFiles
    best: BestTemperature
    classes: bool

    def sums(self, weights: Floats, offsets: Floats, *, cautious: bool) -> TopSums:
        """The sums of ``TopSamples.sums``."""
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
