"""One set at one number of samples: fitted on several subsets, measured on the test part."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import calibrant
from calibrant import AutoCalibration, TemperatureScaling
from calibrant.calibrators import Calibrator
from experiments.scoreboard import resampling
from experiments.scoreboard.networks import Floats, Labels, Network

AUTO, TEMPERATURE = "auto", "temperature"
METHODS: dict[str, Callable[[], Calibrator]] = {
    TEMPERATURE: TemperatureScaling,
    AUTO: AutoCalibration,
}
METRICS = ("nll", "ada_ece")
ROUNDING = 1e-12
"""Smaller differences of probabilities are rounding errors."""

SEEDS = {20: 5, 50: 5, 100: 5, 200: 5, 500: 3, 1000: 2, 5000: 1}
"""Samples to fit on, and how many subsets of that size: the more, the smaller they are. A network
that has no more than so many samples is fitted once, on all."""


@dataclass(frozen=True)
class Fits:
    """All fits of one network at one number of samples."""

    network: Network
    size: int
    """Requested number of samples; a network with fewer uses all."""
    values: dict[str, dict[str, Floats]]
    """By metric and method: one value for each subset."""
    resampled: Floats
    """(subsets, resamples): NLL of auto minus temperature on resampled test samples."""
    chosen: tuple[str, ...]
    """The method that auto selected on each subset."""
    warned: Counter[str]
    """Warnings of the fits, and their counts."""

    @property
    def n_subsets(self) -> int:
        """Number of fits of each method."""
        return len(self.chosen)

    def difference(self, metric: str) -> Floats:
        """Auto minus temperature on each subset; NaN where a likelihood is 0."""
        by_method = self.values[metric]
        finite = np.isfinite([by_method[name] for name in METHODS]).all(axis=0)
        with np.errstate(invalid="ignore"):
            return np.where(finite, by_method[AUTO] - by_method[TEMPERATURE], np.nan)


def subsets(n: int, size: int) -> list[npt.NDArray[np.intp]]:
    """Rows to fit on: the first ``size`` of a permutation for each seed 0, 1, ...; or all.

    So those of one seed lie in each other, and networks that saw the same images share them.
    """
    if size >= n:
        return [np.arange(n)]
    return [np.random.default_rng(seed).permutation(n)[:size] for seed in range(SEEDS[size])]


def measure(network: Network, size: int) -> Fits:
    """Fit every method on every subset."""
    logits, labels = network.part("val")
    test_logits, test_labels = network.part("test")
    counts = resampling.draws(network.images, len(test_labels))
    found: dict[str, dict[str, list[float]]] = {m: {name: [] for name in METHODS} for m in METRICS}
    resampled: list[Floats] = []
    chosen, warned = [], Counter[str]()
    for rows in subsets(len(labels), size):
        probs = {}
        for name, make in METHODS.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = make().fit(logits[rows], labels[rows])
                probs[name] = fitted.predict_proba(test_logits)
            warned.update(f"{each.category.__name__}: {each.message}" for each in caught)
            for metric in METRICS:
                found[metric][name].append(calibrant.METRICS[metric](probs[name], test_labels))
            if isinstance(fitted, AutoCalibration):
                chosen.append(fitted.chosen_)
        resampled.append(resampled_difference(probs[AUTO], probs[TEMPERATURE], test_labels, counts))
    return Fits(
        network=network,
        size=size,
        values={m: {name: np.array(v) for name, v in of.items()} for m, of in found.items()},
        resampled=np.array(resampled),
        chosen=tuple(chosen),
        warned=warned,
    )


def resampled_difference(a: Floats, b: Floats, labels: Labels, counts: Floats) -> Floats:
    """The NLL of ``a`` minus that of ``b`` in every resample of the test samples."""
    if np.allclose(a, b, rtol=0.0, atol=ROUNDING):  # as where auto stays with temperature scaling
        return np.zeros(len(counts))
    rows = np.arange(len(labels))
    with np.errstate(divide="ignore", invalid="ignore"):
        of_a, of_b = (
            resampling.resampled_mean(-np.log(probs[rows, labels]), counts) for probs in (a, b)
        )
        return of_a - of_b
