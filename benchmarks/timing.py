"""How long something takes, measured fairly against something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median


def side_by_side(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 7
) -> dict[str, float]:
    """Median seconds of each candidate, all warm, taking turns so that noise hits them alike."""
    for run in candidates.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in taken.items()}


def print_ratios(title: str, seconds: Mapping[str, float], *, against: str) -> None:
    """A small table: milliseconds, and how many times the time of ``against``."""
    print(f"\n{title}")
    width = max(map(len, seconds))
    for name, value in seconds.items():
        print(f"  {name:<{width}}  {value * 1e3:9.2f} ms   {value / seconds[against]:6.2f} x")
