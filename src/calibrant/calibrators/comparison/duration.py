"""Which methods are left out of a comparison of many samples, so that the others finish in time."""

from __future__ import annotations

from collections.abc import Iterable

NANOSECONDS = {
    "histogram": 450.0,
    "isotonic": 600.0,
    "bias-corrected-temperature": 700.0,
    "platt": 850.0,
    "beta": 1000.0,
    "vector": 1150.0,
    "spline": 1200.0,
    "venn-abers": 1500.0,
    "bbq": 2600.0,
    "matrix": 9000.0,
    "dirichlet": 12000.0,
}
"""Time of a fit per score (samples times classes), measured on two cores with 10,000 samples of
1000 classes. Methods not listed are fast enough for any file that fits into memory."""
LEFT_OUT = "left out"
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
    for name in sorted(set(names) & set(NANOSECONDS), key=NANOSECONDS.__getitem__):
        seconds = 1e-9 * NANOSECONDS[name] * numbers
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
