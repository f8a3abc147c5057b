"""Verdict and advice on calibrated models, and coverage of intervals of two-class measures."""

from __future__ import annotations

import argparse
from collections import Counter

import click
import numpy as np
import numpy.typing as npt

import calibrant
from calibrant.calibrators import compare
from calibrant.metrics import StreamedEvaluation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CLASSES = (2, 3, 10, 100)
SAMPLES = (300, 3000)
RESAMPLES = 500
MEASURES = ("calibration_slope", "calibration_intercept", "prevalence_gap")
RECALIBRATIONS = {
    "calibrated": (0.0, 1.0),
    "over-confident": (0.0, 0.6),
    "prevalence off": (-1.5, 1.0),
    "both": (0.7, 1.4),
}
"""Intercept and slope of the true log-odds, as a function of the predicted ones."""
LARGE = 2_000_000
FIRST_SEED, FIRST_SEED_OF_ADVICE = 10_000, 50_000
"""Of the samples; the simulations inside an evaluation have other seeds."""


def offsets(n_classes: int, *, skewed: bool) -> Floats:
    """Mean logit of each class: equal, 5% positives of two, or rates that fall like 1/k^1.5."""
    if not skewed:
        return np.zeros(n_classes)
    if n_classes == 2:
        return np.array([4.58, 0.0])
    return -1.5 * np.log1p(np.arange(n_classes))


def draw(rng: np.random.Generator, n: int, n_classes: int, *, skewed: bool) -> tuple[Floats, Ints]:
    """Logits of a calibrated model, and labels."""
    logits = offsets(n_classes, skewed=skewed) + 1.5 * rng.normal(size=(n, n_classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def alarms(n: int, n_classes: int, *, skewed: bool, runs: int, streamed: bool) -> Counter[str]:
    """How often each verdict is reached."""
    found: Counter[str] = Counter()
    name = f"K = {n_classes}, n = {n}, {'skewed' if skewed else 'balanced'}"
    with click.progressbar(range(runs), label=name) as seeds:
        for seed in seeds:
            rng = np.random.default_rng(FIRST_SEED + seed)
            logits, labels = draw(rng, n, n_classes, skewed=skewed)
            if streamed:
                stream = StreamedEvaluation()
                stream.update(logits=logits, labels=labels)
                result = stream.result(n_resamples=RESAMPLES, random_state=seed)
            else:
                result = calibrant.evaluate(
                    logits=logits,
                    labels=labels,
                    metrics=["error_rate"],
                    n_resamples=RESAMPLES,
                    random_state=seed,
                )
            found[result.side] += 1
    return found


def advices(n: int, n_classes: int, *, skewed: bool, runs: int) -> Counter[str]:
    """How often each advice is given about ``auto``, fitted on n samples and measured on n."""
    found: Counter[str] = Counter()
    with click.progressbar(range(runs), label=f"K = {n_classes}, n = {n}") as seeds:
        for seed in seeds:
            rng = np.random.default_rng(FIRST_SEED_OF_ADVICE + seed)
            val, test = (draw(rng, n, n_classes, skewed=skewed) for _ in range(2))
            result = compare(
                *val, *test, methods=["identity", "auto"], against="identity", random_state=seed
            )
            assert result.recommendation is not None
            found[result.recommendation.advice] += 1
    return found


def draw_recalibrated(
    rng: np.random.Generator, n: int, truth: tuple[float, float], *, skewed: bool
) -> tuple[Floats, Ints]:
    """Logits of two classes whose true log-odds are a linear function of the predicted ones."""
    logits, _ = draw(rng, n, 2, skewed=skewed)
    intercept, slope = truth
    odds = intercept + slope * (logits[:, 1] - logits[:, 0])
    return logits, (rng.logistic(size=n) < odds).astype(np.int64)


def coverage(n: int, model: str, *, skewed: bool, runs: int) -> dict[str, tuple[float, float]]:
    """The true value of each measure, and how often its 95% interval covers it."""
    truth = RECALIBRATIONS[model]
    logits, labels = draw_recalibrated(np.random.default_rng(1), LARGE, truth, skewed=skewed)
    true = {name: calibrant.METRICS[name](logits=logits, labels=labels) for name in MEASURES}
    covered = dict.fromkeys(MEASURES, 0)
    with click.progressbar(range(runs), label=f"{model}, n = {n}") as seeds:
        for seed in seeds:
            rng = np.random.default_rng(FIRST_SEED + seed)
            logits, labels = draw_recalibrated(rng, n, truth, skewed=skewed)
            result = calibrant.evaluate(
                logits=logits,
                labels=labels,
                metrics=MEASURES,
                n_resamples=RESAMPLES,
                random_state=seed,
            )
            for name in MEASURES:
                low, high = result[name].low, result[name].high
                covered[name] += low is not None and high is not None and low <= true[name] <= high
    return {name: (true[name], covered[name] / runs) for name in MEASURES}


def main(argv: list[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--n", type=int, action="append", help="samples in each run; repeatable")
    parser.add_argument("--classes", type=int, action="append", help="repeatable")
    parser.add_argument("--streamed", action="store_true", help="verdicts from sums that merge")
    parser.add_argument("--coverage", action="store_true", help="intervals instead of verdicts")
    parser.add_argument("--advice", action="store_true", help="what is advised about auto")
    arguments = parser.parse_args(argv)
    runs, sizes = arguments.runs, arguments.n or SAMPLES
    for skewed in (False, True):
        rates = "skewed" if skewed else "balanced"
        if arguments.coverage:
            for model in RECALIBRATIONS:
                for n in sizes:
                    for name, (true, share) in coverage(n, model, skewed=skewed, runs=runs).items():
                        print(f"{rates:<10}{model:<16}{n:>6} {name:<22}{true:>8.3f}{share:>8.1%}")
            continue
        for n_classes in arguments.classes or CLASSES:
            for n in sizes:
                if arguments.advice:
                    told = advices(n, n_classes, skewed=skewed, runs=runs)
                    print(f"{rates:<10}K = {n_classes:<5}n = {n:<6}{dict(told)}")
                    continue
                found = alarms(n, n_classes, skewed=skewed, runs=runs, streamed=arguments.streamed)
                false = 1.0 - found.pop("calibrated", 0) / runs
                print(f"{rates:<10}K = {n_classes:<5}n = {n:<6}{false:>6.1%}  {dict(found)}")


if __name__ == "__main__":
    main()
