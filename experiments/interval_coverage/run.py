"""Coverage of the intervals of ECE and equal-mass ECE, and level of the noise-floor test."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import click
import numpy as np
import numpy.typing as npt

import calibrant

Floats = npt.NDArray[np.float64]

N_BINS = 15
RESAMPLES = 300
MODELS: dict[str, Callable[[Floats], Floats]] = {
    "calibrated": lambda c: c,
    "5% over-confident": lambda c: c - 0.05,
    "1% over-confident": lambda c: c - 0.01,
    "up and down": lambda c: np.clip(c + 0.08 * np.sin(16 * c), 0, 1),
    # The models above were looked at when the intervals were designed, those below were not.
    "temperature 1.5": lambda c: 1 / (1 + ((1 - c) / c) ** (1 / 1.5)),
    "off above 0.95": lambda c: c - 0.06 * (c > 0.95),
    "4% under-confident": lambda c: np.minimum(c + 0.04, 1.0),
}
"""True accuracy at each confidence."""


def confidences(rng: np.random.Generator, n: int) -> Floats:
    """Confidences as a network gives them: most of them high."""
    return np.asarray(0.5 + 0.5 * rng.beta(3.0, 1.0, n))


def true_errors(accuracy: Callable[[Floats], Floats]) -> dict[str, float]:
    """The calibration errors over the bins, of four million samples without label noise."""
    c = np.sort(confidences(np.random.default_rng(0), 4_000_000))
    gap = c - accuracy(c)
    width = np.clip(np.ceil(c * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    mass = np.arange(len(c)) * N_BINS // len(c)
    return {
        name: float(np.abs(np.bincount(index, weights=gap)).sum() / len(c))
        for name, index in (("ece", width), ("ada_ece", mass))
    }


def main(argv: list[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--n", type=int, default=2000, help="samples in each run")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this; repeatable")
    arguments = parser.parse_args(argv)
    runs, n = arguments.runs, arguments.n
    print(f"{runs} runs of {n} samples, {N_BINS} bins, {RESAMPLES} resamples, 95% intervals")
    print(f"{'model':<20}{'metric':<9}{'true':>8}{'covered':>9}{'called miscalibrated':>22}")
    for name in arguments.model or MODELS:
        accuracy = MODELS[name]
        truth = true_errors(accuracy)
        covered = dict.fromkeys(truth, 0)
        called = dict.fromkeys(truth, 0)
        with click.progressbar(range(runs), label=name) as seeds:
            for seed in seeds:
                rng = np.random.default_rng(10_000 + seed)
                c = confidences(rng, n)
                labels = (rng.random(n) >= accuracy(c)).astype(int)
                result = calibrant.evaluate(
                    np.stack([c, 1 - c], axis=-1),
                    labels,
                    metrics=list(truth),
                    n_resamples=RESAMPLES,
                    random_state=seed,
                )
                for row, floor in zip(result.measured, result.noise_floors, strict=True):
                    low, high = row.low, row.high
                    assert low is not None
                    assert high is not None
                    covered[row.name] += low <= truth[row.name] <= high
                    called[row.name] += floor.p_value <= 0.05
        for metric, true in truth.items():
            print(
                f"{name:<20}{metric:<9}{true:>8.4f}{covered[metric] / runs:>9.1%}"
                f"{called[metric] / runs:>22.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
