"""Coverage of the intervals of ECE and equal-mass ECE, and level of the noise-floor test."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import click
import numpy as np
import numpy.typing as npt

from calibrant.metrics.evaluation import evaluate_samples
from calibrant.metrics.intervals import error_interval, total_error
from calibrant.metrics.samples import samples_of_confidence

Floats = npt.NDArray[np.float64]

N_BINS = 15
RESAMPLES = 300
Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""From a generator and n to n confidences and the true accuracy at each of them."""


def mostly_high(rng: np.random.Generator, n: int) -> Floats:
    """Confidences as a network gives them: most of them high."""
    return np.asarray(0.5 + 0.5 * rng.beta(3.0, 1.0, n))


def evenly_spread(rng: np.random.Generator, n: int) -> Floats:
    """Confidences of two classes, any as often as any other."""
    return 0.5 + 0.5 * rng.random(n)


def curve(
    accuracy: Callable[[Floats], Floats],
    confidences: Callable[[np.random.Generator, int], Floats] = mostly_high,
) -> Draw:
    """A model with this accuracy at each confidence."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        confidence = confidences(rng, n)
        return confidence, accuracy(confidence)

    return draw


def sharp_softmax(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Ten classes, whose logits are stated 1.3 times too large."""
    logits = 2.5 * rng.standard_normal((n, 10))
    below = logits - logits.max(axis=1, keepdims=True)
    confidence, accuracy = (1.0 / np.exp(scale * below).sum(axis=1) for scale in (1.3, 1.0))
    return confidence, accuracy


def wrong_slope(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Logistic regression with a slope of 1.2 instead of 1.8 and an intercept of 0, not -0.2."""
    x = rng.standard_normal(n)
    claimed, true = 1.0 / (1.0 + np.exp(-1.2 * x)), 1.0 / (1.0 + np.exp(0.2 - 1.8 * x))
    positive = claimed >= 0.5
    return np.where(positive, claimed, 1.0 - claimed), np.where(positive, true, 1.0 - true)


def sharp_dirichlet(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Four classes, whose true probabilities are raised to the power of 1.2."""
    truth = rng.dirichlet(np.ones(4), n)
    claimed = truth**1.2
    return claimed.max(axis=1) / claimed.sum(axis=1), truth.max(axis=1)


def two_classes(mean: float, spread: float, shift: float, slope: float) -> Draw:
    """P(class 1) and the true rate; the predicted log-odds are shift + slope * the true ones."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        odds = rng.normal(mean, spread, n)
        claimed, true = (1 / (1 + np.exp(-each)) for each in (shift + slope * odds, odds))
        return claimed, true

    return draw


def few_values(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """P(class 1) of a small tree: five values, of which three are off."""
    leaf = rng.integers(0, 5, n)
    claimed, true = np.array([[0.05, 0.25, 0.5, 0.7, 0.95], [0.1, 0.25, 0.42, 0.7, 0.9]])
    return claimed[leaf], true[leaf]


MODELS: dict[str, Draw] = {
    "calibrated": curve(lambda c: c),
    "5% over-confident": curve(lambda c: c - 0.05),
    "1% over-confident": curve(lambda c: c - 0.01),
    "up and down": curve(lambda c: np.clip(c + 0.08 * np.sin(16 * c), 0, 1)),
    # The models above were looked at when the intervals were designed, those below were not.
    "temperature 1.5": curve(lambda c: 1 / (1 + ((1 - c) / c) ** (1 / 1.5))),
    "off above 0.95": curve(lambda c: c - 0.06 * (c > 0.95)),
    "4% under-confident": curve(lambda c: np.minimum(c + 0.04, 1.0)),
    "sharp softmax": sharp_softmax,
    "wrong slope": wrong_slope,
    "one bin": curve(lambda c: c - 0.1 * ((c > 10 / 15) & (c <= 11 / 15)), evenly_spread),
    "sharp Dirichlet": sharp_dirichlet,
    "crosses once": curve(lambda c: c - 0.15 * (c - 0.75), evenly_spread),
    "two opposite bins": curve(
        lambda c: c + 0.08 * ((c > 0.6) & (c <= 0.65)) - 0.08 * ((c > 0.9) & (c <= 0.95))
    ),
    # P(class 1) of two classes, over the whole of 0 to 1: the intervals of positive_ece.
    "P1 calibrated": two_classes(0.0, 2.0, 0.0, 1.0),
    "P1 over-confident": two_classes(0.0, 2.0, 0.0, 1.5),
    "P1 prevalence off": two_classes(-4.0, 1.5, 2.0, 1.0),
    "P1 few values": few_values,
}


def true_errors(draw: Draw) -> dict[str, float]:
    """The calibration errors over the bins, of two million samples without label noise."""
    c, accuracy = draw(np.random.default_rng(0), 2_000_000)
    order = np.argsort(c)
    c, gap = c[order], (c - accuracy)[order]
    width = np.clip(np.ceil(c * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    mass = np.arange(len(c)) * N_BINS // len(c)
    return {
        name: float(np.abs(np.bincount(index, weights=gap)).sum() / len(c))
        for name, index in (("ece", width), ("ada_ece", mass))
    }


def print_normal_sums(runs: int) -> None:
    """Coverage for normal bin sums, of which some are off by a multiple of their deviation.

    The constants of the intervals were chosen on these, from a grid.
    """
    multiples = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
    print(f"{runs} runs of {N_BINS} normal sums: covered, by how many standard deviations off")
    print(f"{'sums off':<10}" + "".join(f"{multiple:>8}" for multiple in multiples))
    for off in (1, 2, 4, 8, N_BINS):
        covered = []
        for multiple in multiples:
            rng = np.random.default_rng(0)
            true = multiple * (np.arange(N_BINS) < off)
            inside = 0
            for _ in range(runs):
                # The unit is small, because an error is at most 1.
                observed = 1e-3 * (true + rng.standard_normal(N_BINS))
                resampled = observed + 1e-3 * rng.standard_normal((RESAMPLES, N_BINS))
                low, high = error_interval(observed, resampled, total_error, 0.95)
                inside += low <= 1e-3 * true.sum() <= high
            covered.append(inside / runs)
        print(f"{off:<10}" + "".join(f"{share:>8.1%}" for share in covered), flush=True)


def main(argv: list[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--n", type=int, default=2000, help="samples in each run")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this; repeatable")
    parser.add_argument(
        "--normal-sums", action="store_true", help="normal bin sums in place of models"
    )
    arguments = parser.parse_args(argv)
    if arguments.normal_sums:
        print_normal_sums(arguments.runs)
        return
    runs, n = arguments.runs, arguments.n
    print(f"{runs} runs of {n} samples, {N_BINS} bins, {RESAMPLES} resamples, 95% intervals")
    print(
        f"{'model':<20}{'metric':<9}{'true':>8}{'covered':>9}{'width':>8}"
        f"{'called miscalibrated':>22}"
    )
    for name in arguments.model or MODELS:
        truth = true_errors(MODELS[name])
        covered = dict.fromkeys(truth, 0)
        width = dict.fromkeys(truth, 0.0)
        called = dict.fromkeys(truth, 0)
        with click.progressbar(range(runs), label=name) as seeds:
            for seed in seeds:
                rng = np.random.default_rng(10_000 + seed)
                confidence, accuracy = MODELS[name](rng, n)
                result = evaluate_samples(
                    samples_of_confidence(confidence, rng.random(n) < accuracy),
                    metrics=list(truth),
                    n_resamples=RESAMPLES,
                    random_state=seed,
                )
                for row, floor in zip(result.measured, result.noise_floors, strict=True):
                    low, high = row.low, row.high
                    assert low is not None
                    assert high is not None
                    width[row.name] += high - low
                    covered[row.name] += low <= truth[row.name] <= high
                    called[row.name] += floor.p_value <= 0.05
        for metric, true in truth.items():
            print(
                f"{name:<20}{metric:<9}{true:>8.4f}{covered[metric] / runs:>9.1%}"
                f"{width[metric] / runs:>8.4f}{called[metric] / runs:>22.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
