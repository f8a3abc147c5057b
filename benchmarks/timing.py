"""Fair comparisons of running times."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from os import cpu_count, getloadavg
from platform import python_version
from statistics import median
from typing import Any


def side_by_side(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    of_rounds: Callable[[list[float]], float] = median,
) -> dict[str, float]:
    """Median seconds of each candidate, warmed up, in alternation so that noise affects all.

    For microseconds the shortest time, ``min``, says more: an interruption takes longer than a run.
    """
    for run in candidates.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: of_rounds(times) for name, times in taken.items()}


def print_machine() -> None:
    """Print what the figures depend on."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "torch"))
    print(f"{cpu_count()} cores, Python {python_version()}, {versions}")
    print(f"load average at the start: {getloadavg()[0]:.1f}")


def print_ratios(title: str, seconds: Mapping[str, float], *, against: str) -> None:
    """Print milliseconds, and multiples of the time of ``against``."""
    print(f"\n{title}")
    width = max(map(len, seconds))
    for name, value in seconds.items():
        print(f"  {name:<{width}}  {value * 1e3:9.2f} ms   {value / seconds[against]:6.2f} x")


def peer(name: str, *, report: bool = False) -> Any:
    """The module, or None if it or one of its imports is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if report:
            print(f"  {name.split('.')[0]} is not measured: no module {missing.name}")
        return None
