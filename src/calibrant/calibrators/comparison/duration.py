"""Which methods are left out of a comparison of many samples, so that the others finish in time."""

from __future__ import annotations

from collections.abc import Iterable

NANOSECONDS = {
    "bias-corrected-temperature": 265.0,
    "platt": 270.0,
    "histogram": 275.0,
    "isotonic": 310.0,
    "beta": 375.0,
    "vector": 510.0,
    "spline": 660.0,
    "venn-abers": 860.0,
    "bbq": 1300.0,
}
"""Time of a fit, and of calibrating as many other samples, per score (samples times classes), on
one core with 4000 samples of 1000 classes. Methods not listed are fast enough for any file that
fits into memory."""
NANOSECONDS_PER_CLASS = {"matrix": 9.0, "dirichlet": 12.0}
"""The same per score and class: these multiply matrices."""
LEFT_OUT = "left out"
"""How the reason begins."""
PATIENCE = 20.0
"""Seconds that the slow methods may take in total."""


def too_slow(names: Iterable[str], n: int, n_classes: int) -> dict[str, str]:
    """The slowest methods, left out so that the others finish in time, with the reasons.

    Examples:
        >>> too_slow(["temperature", "matrix"], 10_000, 1000)
        {'matrix': 'left out: its fit would take about 2 minutes. Request it by name to include it'}
    """
    spent, reasons = 0.0, {}
    # Many classes take time even with few samples, because each has parameters.
    numbers = max(n, n_classes) * n_classes
    per_score = NANOSECONDS | {name: t * n_classes for name, t in NANOSECONDS_PER_CLASS.items()}
    for name in sorted(per_score.keys() & {*names}, key=per_score.__getitem__):
        seconds = 1e-9 * per_score[name] * numbers
        if spent + seconds > PATIENCE:
            reasons[name] = (
                f"{LEFT_OUT}: its fit would take about {_duration(seconds)}. "
                "Request it by name to include it"
            )
        else:
            spent += seconds
    return reasons


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90.0 else f"{seconds / 60.0:.0f} minutes"
