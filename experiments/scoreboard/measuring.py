"""One method on one network: fitted on the validation set, measured on the test set, kept.

A result is one file, so a run that was stopped goes on where it was, and a method whose code or
options changed is measured again.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import calibrant
from experiments.scoreboard import resampling
from experiments.scoreboard.methods import Method
from experiments.scoreboard.networks import Floats, Labels, Network
from experiments.scoreboard.resampling import RESAMPLED

POSITIVE = "positive_ada_ece"
"""For two classes only."""
MEASURED = ("nll", "ada_ece", "classwise_ece", "accuracy", "changed", POSITIVE, "ece", "brier")
N_BINS = 15


@dataclass(frozen=True)
class Result:
    """The result of one method on one network; without values if it failed or was not run."""

    network: str
    method: str
    values: dict[str, float]
    """The metrics of the test set."""
    floors: dict[str, float]
    """Calibration errors of a perfectly calibrated model with these confidences."""
    resampled: dict[str, Floats]
    """The metrics of every resample, by the names of ``RESAMPLED``."""
    facts: dict[str, Any]
    impossible: int = 0
    """Test samples whose true class got probability 0, which makes the NLL infinite."""
    seconds: float = 0.0
    failure: str | None = None
    skipped: str | None = None


def measure(network: Network, method: Method) -> Result:
    """Fit, apply and measure; an exception is recorded as the result."""
    empty: dict[str, Any] = {"values": {}, "floors": {}, "resampled": {}, "facts": {}}
    if network.n_classes > method.most_classes:
        return Result(network.name, method.title, **empty, skipped=method.too_slow)
    test_logits, labels = network.part("test")
    try:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = method.fit(*network.part("val"))
            probs = fitted.apply(test_logits)
        seconds = time.perf_counter() - start
        if not np.isfinite(probs).all():
            bad = int((~np.isfinite(probs)).any(axis=1).sum())
            raise ValueError(f"NaN in {bad} of {len(probs)} rows of probabilities")
        return _measured(network, method, probs, labels, fitted.facts, seconds)
    except Exception as error:
        text = " ".join(str(error).split())
        return Result(
            network.name, method.title, **empty, failure=f"{type(error).__name__}: {text}"
        )


def _measured(
    network: Network,
    method: Method,
    probs: Floats,
    labels: Labels,
    facts: dict[str, Any],
    seconds: float,
) -> Result:
    top = probs.argmax(axis=1)
    logits, _ = network.part("test")
    values = {
        "accuracy": float((top == labels).mean()),
        # A tie of the largest logits is no change.
        "changed": float((logits[np.arange(len(top)), top] < logits.max(axis=1)).mean()),
    }
    for name in set(MEASURED) - set(values):
        if name != POSITIVE or network.n_classes == 2:
            values[name] = calibrant.METRICS[name](probs, labels)
    noise = calibrant.evaluate(
        probs, labels, metrics=("ece", "ada_ece"), n_bins=N_BINS, n_resamples=resampling.RESAMPLES
    )
    true = probs[np.arange(len(probs)), labels]
    with np.errstate(divide="ignore"):
        nll = -np.log(true)
    counts = resampling.draws(network.images, len(labels))
    confidence, correct = probs.max(axis=1), top == labels
    resampled = {
        **resampling.resampled_ada_ece(confidence, correct, counts, N_BINS),
        **resampling.resampled_ece(confidence, correct, counts, N_BINS),
        "nll": resampling.resampled_mean(nll, counts),
        "brier": resampling.resampled_mean((probs**2).sum(axis=1) - 2.0 * true + 1.0, counts),
    }
    return Result(
        network=network.name,
        method=method.title,
        values=values,
        floors={floor.name: floor.expected for floor in noise.noise_floors},
        resampled=resampled,
        facts=facts,
        impossible=int((true == 0.0).sum()),
        seconds=seconds,
    )


def fingerprint(network: Network, method: Method) -> str:
    """Key of everything that a result depends on."""
    parts = (
        network.digest,
        method.fingerprint(),
        method.most_classes,
        resampling.SEED,
        resampling.RESAMPLES,
    )
    return " ".join(map(str, parts))


def place(folder: Path, network: Network, method: Method) -> Path:
    """The file of a result."""
    return folder / f"{network.name}--{method.title.replace(' ', '_')}.npz"


def keep(path: Path, result: Result, mark: str) -> None:
    """Write to a temporary file, then rename, so that an interrupted run leaves no partial file."""
    about = {
        "mark": mark,
        **{key: value for key, value in vars(result).items() if key != "resampled"},
    }
    beside = path.with_suffix(".part.npz")
    arrays: dict[str, Any] = result.resampled
    np.savez(beside, about=np.array(json.dumps(about)), **arrays)
    os.replace(beside, path)


def kept(path: Path, mark: str) -> Result | None:
    """The result of an earlier run, if nothing it depends on has changed."""
    if not path.exists():
        return None
    with np.load(path) as file:
        about = json.loads(str(file["about"]))
        if about.pop("mark") != mark:
            return None
        resampled = {name: file[name] for name in RESAMPLED if name in file}
    return Result(**about, resampled=resampled)
