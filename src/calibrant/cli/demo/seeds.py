"""What the demo measures of each network, and its mean over seeds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from calibrant.calibrators import CALIBRATORS, CalibrationWarning
from calibrant.cli.demo.page import SHOWN
from calibrant.files import read_predictions
from calibrant.metrics import confidence_gap, ece, error_rate


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and half of its 95% interval (Student's t)."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one figure; the interval is 0 wide for one seed."""
        n = len(values)
        if n < 2:
            return cls(float(values[0]), 0.0)
        error = float(np.std(values, ddof=1)) / n**0.5
        return cls(float(np.mean(values)), float(stats.t.ppf(0.975, n - 1)) * error)

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} \u00b1 {100 * self.half:.1f}"


def figures_of(file: Path) -> list[float]:
    """The ``COLUMNS`` of the page, on the test part."""
    val, test = (read_predictions(f"{file}::{part}") for part in ("val", "test"))
    accuracy = 1.0 - error_rate(logits=test.logits, labels=test.labels)
    figures = [accuracy + confidence_gap(logits=test.logits, labels=test.labels), accuracy]
    for method in SHOWN:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            fitted = CALIBRATORS[method]().fit(logits=val.logits, labels=val.labels)
        figures.append(ece(fitted.predict_proba(logits=test.logits), test.labels))
    return figures


def spreads_of(runs: Sequence[Sequence[float]]) -> list[Spread]:
    """The spread of each figure over the runs of one loss."""
    return [Spread.of(column) for column in zip(*runs, strict=True)]
