"""The cells of one run, computed as in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

import calibrant
from calibrant.metrics import Difference, s99, s99_accuracy
from experiments.trained.runs import Floats, Labels, TrainedRun, test_logits

BY_NLL = "after, T by NLL"
SURE = 0.99


@dataclass(frozen=True)
class Measured:
    """One run before and after temperature scaling; shares in percent, NLL too, as printed.

    Attributes:
        run: What was measured.
        temperature: By criterion: the best on the validation set, for ece, ada_ece and nll.
        cells: By quantity and stage, before or after; s99 also after the T of the smallest NLL.
    """

    run: TrainedRun
    temperature: dict[str, float]
    cells: dict[tuple[str, str], float]

    def logits(self, stage: str) -> Floats:
        """Test-set measurements; ``after`` uses the temperature with the smallest ECE."""
        by = {"before": 1.0, "after": self.temperature["ece"], BY_NLL: self.temperature["nll"]}
        return self.run.test.logits / by[stage]


def measure(run: TrainedRun, tenths: Sequence[int]) -> Measured:
    """ECE, AdaECE, NLL, MCE and S99; T is selected by ECE except for AdaECE, as in the paper."""
    logits, labels = run.test.logits, run.test.labels
    best = {
        name: best_temperature(run.val.logits, run.val.labels, metric, tenths)
        for name, metric in (("ece", calibrant.ece), ("ada_ece", calibrant.ada_ece))
    }
    best["nll"] = calibrant.TemperatureScaling().fit(run.val.logits, run.val.labels).temperature_
    cells = cells_of(logits, labels, best)
    for name, metric in (("s99", s99), ("s99_accuracy", s99_accuracy)):
        for stage, t in (("before", 1.0), ("after", best["ece"])):
            cells[name, stage] = 100.0 * metric(logits=logits / t, labels=labels)
    cells["s99", BY_NLL] = 100.0 * s99(logits=logits / best["nll"], labels=labels)
    return Measured(run, best, cells)


def cells_of(
    logits: Floats, labels: Labels, best: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """The printed metrics before and after scaling by the best T of ece and of ada_ece."""
    cells = {("error", "before"): 100.0 * calibrant.error_rate(logits=logits, labels=labels)}
    metrics = {
        "ece": calibrant.ece,
        "ada_ece": calibrant.ada_ece,
        "nll": calibrant.nll,
        "mce": calibrant.mce,
    }
    for name, metric in metrics.items():
        temperature = best["ada_ece" if name == "ada_ece" else "ece"]
        for stage, t in (("before", 1.0), ("after", temperature)):
            cells[name, stage] = 100.0 * metric(logits=logits / t, labels=labels)
    return cells


def significantly_more_sure(a: Measured, b: Measured, stage: str) -> int:
    """1 if a has significantly more predictions above 0.99 than b, -1 if fewer, else 0.

    An exact sign test at 5% on the test samples for which only one of the two is above 0.99.
    """
    above = [top(each.logits(stage)) > SURE for each in (a, b)]
    only_a, only_b = int((above[0] & ~above[1]).sum()), int((above[1] & ~above[0]).sum())
    if only_a + only_b == 0 or binomtest(only_a, only_a + only_b).pvalue > 0.05:
        return 0
    return 1 if only_a > only_b else -1


def top(logits: Floats) -> Floats:
    """The largest probability of each row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    largest: Floats = 1.0 / shifted.sum(axis=1)
    return largest


def has_learned(run: TrainedRun, part: float) -> bool:
    """Whether the test error is below this share of the majority class's error."""
    labels = run.test.labels
    commonest = np.bincount(labels).max() / len(labels)
    return bool(run.result["test"]["error"] < part * (1.0 - commonest))


def best_temperature(
    logits: Floats, labels: Labels, metric: Callable[..., float], tenths: Sequence[int]
) -> float:
    """The first of T = 0.1, 0.2, ... with the smallest error: the paper's grid search (Sec. 6).

    Args:
        logits: (n, K) of the validation set.
        labels: (n,).
        metric: What is to be small.
        tenths: The first and the last T, in tenths.
    """
    first, last = tenths
    grid = [tenth / 10.0 for tenth in range(first, last + 1)]
    return min(grid, key=lambda t: metric(logits=logits / t, labels=labels))


def difference(a: Measured, b: Measured, stage: str) -> Difference:
    """ECE of a minus ECE of b on the same test samples, with its 95% interval."""
    _, _, labels = test_logits(a.run, b.run)
    compared = calibrant.paired_difference(
        logits_a=a.logits(stage), logits_b=b.logits(stage), labels=labels, metrics=("ece",)
    )
    return compared["ece"]
