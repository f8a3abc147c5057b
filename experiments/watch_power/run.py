"""False alarms and delays of the evidence that ``calibrant watch`` is based on."""

from __future__ import annotations

import argparse
import math

import click
import numpy as np
import numpy.typing as npt

from calibrant.monitoring.alternatives import log_weights
from calibrant.monitoring.e_process import ALL, EProcess
from calibrant.monitoring.periods import ratios_of, sums_of, sums_of_group

Floats = npt.NDArray[np.float64]

ATOMS = 300
BATCH, BATCHES, LATE = 1_000, 100, 50
MOST_BATCHES = 500
LEVEL = 0.05
POINTS = (0.005, 0.01, 0.02)
GROUPS = tuple(f"group={g}" for g in range(5))
SEED = 1


def atoms(n_classes: int) -> Floats:
    """Probability vectors of a model that is correct in about 90% of samples."""
    logits = 4.4 * np.random.default_rng(0).normal(size=(ATOMS, n_classes))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = np.clip(probs / probs.sum(axis=1, keepdims=True), 1e-6, None)
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))


def log_ratios_of(probs: Floats, *, group: bool = False) -> Floats:
    """(atoms x classes, alternatives): the log likelihood ratios of each vector and label."""
    rows = []
    for row in np.log(probs):
        for label in range(probs.shape[1]):
            sample = row[np.newaxis], np.array([label])
            sums = sums_of_group(*sample) if group else sums_of(*sample)
            rows.append(ratios_of(sums, GROUPS[0] if group else ALL, probs.shape[1]))
    return np.array(rows)


def off_by(probs: Floats, points: float, what: str) -> Floats:
    """The true probabilities if the confidence, or class 1, is stated too high on average."""
    tilted = np.zeros_like(probs)
    tilted[np.arange(len(probs)), probs.argmax(axis=1) if what == "confidence" else 1] = 1.0
    low, high = 0.0, 10.0
    for _ in range(60):
        tilt = (low + high) / 2.0
        truth = probs * np.exp(-tilt * tilted)
        truth /= truth.sum(axis=1, keepdims=True)
        gap = float(((probs - truth) * tilted).sum(axis=1).mean())
        low, high = (low, tilt) if gap > points else (tilt, high)
    return np.asarray(truth)


def evidence(n_classes: int, *, grouped: bool = False) -> EProcess:
    """A new watch."""
    return EProcess(log_weights(n_classes), n_of_group=10, grouped=grouped)


def false_alarms(n_classes: int, streams: int, *, grouped: bool) -> float:
    """The share of streams of a calibrated model that ever reach the alarm."""
    rng = np.random.default_rng(SEED)
    probs = atoms(n_classes)
    all_ratios, of_group = log_ratios_of(probs), log_ratios_of(probs, group=True)
    alarms = 0
    with click.progressbar(range(streams), label=f"{n_classes} classes") as bar:
        for _ in bar:
            watched = evidence(n_classes, grouped=grouped)
            for _ in range(BATCHES):
                counts = rng.multinomial(BATCH, probs.ravel() / ATOMS)
                found = {ALL: counts @ all_ratios}
                if grouped:
                    of_each = rng.multinomial(counts, np.full(len(GROUPS), 1 / len(GROUPS)))
                    found |= dict(zip(GROUPS, of_each.T @ of_group, strict=True))
                watched.update(found)
                if watched.log_e >= -math.log(LEVEL):
                    alarms += 1
                    break
    return alarms / streams


def delays(n_classes: int, truth: Floats, change: int, streams: int) -> tuple[float, float]:
    """Median samples from the change to the alarm: of the watch and of the oracle."""
    rng = np.random.default_rng(SEED + 1)
    probs = atoms(n_classes)
    ratios, best = log_ratios_of(probs), np.log(truth / probs).ravel()
    found = np.full((streams, 2), np.inf)
    for stream in range(streams):
        watched, known = evidence(n_classes), 0.0
        for batch in range(1, change + MOST_BATCHES + 1):
            drawn = probs if batch <= change else truth
            counts = rng.multinomial(BATCH, drawn.ravel() / ATOMS)
            watched.update({ALL: counts @ ratios})
            known += float(counts @ best) if batch > change else 0.0
            for k, log_e in enumerate((watched.log_e, known)):
                if log_e >= -math.log(LEVEL):
                    found[stream, k] = min(found[stream, k], batch - change)
            if np.isfinite(found[stream]).all():
                break
    watch, oracle = BATCH * np.median(np.maximum(found, 0.0), axis=0)
    return float(watch), float(oracle)


def main(argv: list[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="of a calibrated model")
    parser.add_argument("--delays", type=int, default=100, help="streams of each change")
    arguments = parser.parse_args(argv)
    for n_classes, grouped in ((2, False), (10, False), (2, True)):
        share = false_alarms(n_classes, arguments.streams, grouped=grouped)
        besides = f" and {len(GROUPS)} groups" if grouped else ""
        print(f"{n_classes} classes{besides}: {share:.1%} of calibrated streams ever alarm")
    for n_classes in (2, 10):
        for what in ("confidence", "class 1"):
            for points in POINTS:
                truth = off_by(atoms(n_classes), points, what)
                for change in (0, LATE):
                    watch, oracle = delays(n_classes, truth, change, arguments.delays)
                    print(
                        f"{n_classes} classes, {what} off by {100 * points:g} points after "
                        f"{change * BATCH:,} samples: alarm after {watch:,.0f}, "
                        f"oracle {oracle:,.0f}"
                    )


if __name__ == "__main__":
    main()
