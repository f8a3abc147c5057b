"""What a missing option should be given: share of its bound against log-loss, on real models.

``python -m benchmarks.missing_options FOLDER``, with ``.npz`` files of four options' logits in the
parts val and test. Each is cut to the top 2 of its options, and to the top 5 among other tokens. A
temperature is fitted on half of the validation samples and the log-loss measured on the other half,
on what is left against the complete log-probabilities. Then the verdicts on the test samples.
The figures are those of ``docs/language-models.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

import calibrant
from calibrant.files import read_predictions
from calibrant.files.jsonl.options import HALF, ROUNDING

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
ROWS, JUDGED_ROWS = 3000, 1000
OTHER_TOKENS = 300


class Case(NamedTuple):
    """How the options compete with other tokens."""

    top: int
    stretch: float = 1.0
    """Of the logits: real ones are flat."""
    spread: float = 1.0
    """Standard deviation of the other tokens' logits."""
    mass: float = 0.0
    """Their mean probability; 0 is no other tokens."""


CASES = (Case(2), Case(5, 3, 2, 0.1), Case(5, 5, 1, 0.2), Case(5, 5, 3, 0.2), Case(5, 5, 3, 0.02))


def cut(logits: Floats, case: Case, rng: np.random.Generator) -> tuple[Floats, Floats, Mask]:
    """Log-probabilities of all options, their bounds, and which of them are missing."""
    exact = log_softmax(case.stretch * logits, axis=1)
    tokens = exact
    if case.mass:
        mass = rng.beta(1, 1 / case.mass - 1, size=(len(logits), 1)).clip(1e-6, 1 - 1e-6)
        others = log_softmax(case.spread * rng.normal(size=(len(logits), OTHER_TOKENS)), axis=1)
        exact = exact + np.log1p(-mass)
        tokens = np.concatenate([exact, others + np.log(mass)], axis=1)
    smallest = np.sort(tokens, axis=1)[:, -case.top][:, None]
    missing = exact < smallest
    logged = np.where(tokens < smallest, 0.0, np.exp(tokens)).sum(axis=1, keepdims=True)
    share = np.maximum(1 - logged, ROUNDING) / np.maximum(missing.sum(axis=1, keepdims=True), 1)
    return exact, np.where(missing, np.minimum(smallest, np.log(share)), exact), missing


def samples(file: Path, part: str, rows: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The first logits and labels of a part."""
    found = read_predictions(f"{file}::{part}")
    assert found.logits is not None
    assert found.labels is not None
    return found.logits[:rows].astype(np.float64), found.labels[:rows]


def nll(log_probs: Floats, labels: npt.NDArray[np.int64], log_t: float) -> float:
    """Mean log-loss at a temperature."""
    scaled = log_probs / np.exp(log_t)
    return float((logsumexp(scaled, axis=1) - scaled[np.arange(len(labels)), labels]).mean())


def calibrated_nll(log_probs: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Log-loss on the second half at the temperature of the first."""
    half = len(labels) // 2
    found = minimize_scalar(
        lambda log_t: nll(log_probs[:half], labels[:half], log_t), bounds=(-3, 4), method="bounded"
    )
    return nll(log_probs[half:], labels[half:], found.x)


def main(folder: Path) -> None:
    """Print the largest extra log-loss of each share, and how often a verdict was right."""
    rng = np.random.default_rng(0)
    files = sorted(folder.glob("*.npz"))
    for case in CASES:
        extra = []
        for file in files:
            logits, labels = samples(file, "val", ROWS)
            exact, upper, missing = cut(logits, case, rng)
            best = calibrated_nll(exact, labels)
            given = [np.where(missing, upper + np.log(share), exact) for share in SHARES]
            extra.append([calibrated_nll(each, labels) - best for each in given])
        worst = np.max(extra, axis=0)
        print(case, *(f"{s:g}: {w:.4f}" for s, w in zip(SHARES, worst, strict=True)), sep="  ")
    counts = {"undecided": 0, "right": 0, "wrong": 0}
    for case in CASES[:2]:
        for file in files:
            logits, labels = samples(file, "test", JUDGED_ROWS)
            exact, upper, missing = cut(logits, case, rng)
            logits = np.where(missing, upper + HALF, exact)
            found = calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper).side
            truth = calibrant.evaluate(logits=exact, labels=labels).side
            outcome = "right" if found == truth else "wrong"
            counts["undecided" if found == "undecided" else outcome] += 1
    print("verdicts:", counts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
