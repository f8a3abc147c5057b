"""Calibration errors against NumPy, and against other installed packages.

The other packages are in the environment of ``make bench-peers``; ``make bench`` does without.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.timing import peer, print_ratios, side_by_side
from calibrant import classwise_ece, ece

SHAPES = ((1_000_000, 10), (50_000, 1000))
N_BINS = 15
OURS = "calibrant"

Floats = npt.NDArray[Any]
Run = Callable[[], object]


def problem(n: int, n_classes: int) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Logits and probabilities in float32; about half of the predictions are correct."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((n, n_classes), dtype=np.float32)
    probs = torch.softmax(torch.from_numpy(logits), dim=-1).numpy()
    labels = np.where(rng.random(n) < 0.5, probs.argmax(axis=-1), rng.integers(0, n_classes, n))
    return logits, probs, labels


def numpy_ece(confidence: Floats, correct: Floats) -> float:
    """Textbook code: three histograms."""
    index = np.clip(np.ceil(confidence * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    claimed = np.bincount(index, weights=confidence, minlength=N_BINS)
    seen = np.bincount(index, weights=correct, minlength=N_BINS)
    return float(np.abs(claimed - seen).sum() / len(confidence))


def numpy_classwise(probs: Floats, labels: Floats) -> float:
    """Textbook code over each class in turn."""
    return float(np.mean([numpy_ece(probs[:, k], labels == k) for k in range(probs.shape[1])]))


def eces(probs: Floats, labels: Floats) -> dict[str, Run]:
    """The same ECE of probabilities by every installed package."""
    tensors = torch.from_numpy(probs), torch.from_numpy(labels)
    n_classes = probs.shape[1]
    runs: dict[str, Run] = {
        OURS: lambda: ece(probs, labels),
        "NumPy": lambda: numpy_ece(probs.max(axis=1), probs.argmax(axis=1) == labels),
    }
    if torchmetrics := peer("torchmetrics.functional.classification"):
        error = torchmetrics.multiclass_calibration_error
        runs["torchmetrics"] = lambda: error(*tensors, num_classes=n_classes, n_bins=N_BINS)
        runs["torchmetrics, unchecked"] = lambda: error(
            *tensors, num_classes=n_classes, n_bins=N_BINS, validate_args=False
        )
    if netcal := peer("netcal.metrics"):
        runs["netcal"] = lambda: netcal.ECE(N_BINS).measure(probs, labels)
    if relplot := peer("relplot.metrics"):
        runs["relplot"] = lambda: relplot.binnedECE(
            *relplot.multiclass_logits_to_confidences(probs, labels, probs=True), nbins=N_BINS
        )
    if uncertainty := peer("calibration.utils"):
        runs["uncertainty-calibration"] = lambda: uncertainty.get_ece(
            probs, labels, num_bins=N_BINS
        )
    return runs


def eces_of_logits(logits: Floats, labels: Floats) -> dict[str, Run]:
    """The same from logits; packages that do not take them get torch's softmax."""
    tensors = torch.from_numpy(logits), torch.from_numpy(labels)
    n_classes = logits.shape[1]

    def softmax() -> Floats:
        probs: Floats = torch.softmax(tensors[0], dim=-1).numpy()
        return probs

    def numpy_run() -> float:
        probs = softmax()
        return numpy_ece(probs.max(axis=1), probs.argmax(axis=1) == labels)

    runs: dict[str, Run] = {
        OURS: lambda: ece(logits=logits, labels=labels),
        "torch.softmax + NumPy": numpy_run,
    }
    if torchmetrics := peer("torchmetrics.functional.classification"):
        error = torchmetrics.multiclass_calibration_error
        runs["torchmetrics"] = lambda: error(*tensors, num_classes=n_classes, n_bins=N_BINS)
        runs["torchmetrics, unchecked"] = lambda: error(
            *tensors, num_classes=n_classes, n_bins=N_BINS, validate_args=False
        )
    if netcal := peer("netcal.metrics"):
        runs["torch.softmax + netcal"] = lambda: netcal.ECE(N_BINS).measure(softmax(), labels)
    return runs


def extra_memory(run: Run) -> float:
    """Peak megabytes that ``run`` allocates through NumPy."""
    run()
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    """Print the ratios."""
    print(f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads, {N_BINS} bins, seed 0")
    for shape in SHAPES:
        size = f"{shape[0]} x {shape[1]}, float32"
        logits, probs, labels = problem(*shape)
        for name, runs in (
            ("ECE", eces(probs, labels)),
            ("ECE of logits", eces_of_logits(logits, labels)),
        ):
            print_ratios(f"{name}, {size}", side_by_side(runs), against=OURS)
            print(f"  extra memory of {OURS}: {extra_memory(runs[OURS]):.1f} MB")
    runs = {
        OURS: lambda: classwise_ece(probs, labels),
        f"{OURS}, of logits": lambda: classwise_ece(logits=logits, labels=labels),
        "NumPy, a loop over classes": lambda: numpy_classwise(probs, labels),
    }
    seconds = side_by_side(runs, rounds=5)
    if uncertainty := peer("calibration.utils"):
        start = time.perf_counter()
        uncertainty.get_ece(probs, labels, num_bins=N_BINS, mode="marginal")
        seconds["uncertainty-calibration, one run"] = time.perf_counter() - start
    print_ratios(f"classwise ECE, {size}", seconds, against=OURS)
    print(f"  extra memory of {OURS}: {extra_memory(runs[OURS]):.1f} MB")


if __name__ == "__main__":
    main()
