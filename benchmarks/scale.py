"""Evaluating data sets of growing size on local workers: time, rows a second, peak memory.

``python -m benchmarks.scale [ROWS ...]``; without sizes 1, 10 and 100 million rows of 10 classes.
The files of 100 million take 4.5 GB, are made in parts of a million rows, and are deleted at the
end. Not among ``python -m benchmarks``, because it takes minutes.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from calibrant import scale

SIZES = (1_000_000, 10_000_000, 100_000_000)
CLASSES = 10
ROWS_OF_FILE = 1_000_000
ON_PAPER = 10**11, 100
"""Rows, and workers, for which the time is extrapolated."""


def write(folder: Path, rows: int) -> None:
    """Random logits in float32 and labels that follow them, a million rows a file."""
    for number, start in enumerate(range(0, rows, ROWS_OF_FILE)):
        rng = np.random.default_rng(number)
        n = min(ROWS_OF_FILE, rows - start)
        logits = 3.0 * rng.standard_normal((n, CLASSES), dtype=np.float32)
        noise = -np.log(-np.log(rng.random((n, CLASSES), dtype=np.float32) * 0.999 + 5e-4))
        columns = {f"logit_{k}": logits[:, k].copy() for k in range(CLASSES)}
        table = pa.table({"label": (logits / 2.0 + noise).argmax(axis=1), **columns})
        file = folder / f"{number:05d}.parquet"
        pq.write_table(table, file, row_group_size=1 << 17, use_dictionary=False)


def peak_memory() -> float:
    """Of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def evaluated(folder: Path, n_workers: int) -> tuple[float, float]:
    """Seconds that evaluating takes, and the peak memory of the largest worker."""
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first = min(folder.iterdir())
        scale.evaluate(first, scheduler=client)  # loads and compiles what the workers need
        start = time.perf_counter()
        scale.evaluate(folder, scheduler=client)
        seconds = time.perf_counter() - start
        peaks: dict[str, Any] = client.run(peak_memory)
    return seconds, max(peaks.values())


def main(sizes: tuple[int, ...] = SIZES) -> None:
    """Every size on two workers, and the one in the middle on one."""
    print(f"\nevaluate, {CLASSES} classes, float32, on local workers")
    rate = 0.0
    for rows in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, rows)
            for n_workers in (2, 1) if rows == sizes[len(sizes) // 2] else (2,):
                seconds, peak = evaluated(folder, n_workers)
                print(
                    f"  {rows:>11,} rows, {n_workers} workers: {seconds:8.1f} s, "
                    f"{rows / seconds:11,.0f} rows/s, peak {peak:6.0f} MB a worker"
                )
                if n_workers == 2:
                    rate = rows / seconds / 2
    rows, workers = ON_PAPER
    hours = rows / (workers * rate) / 3600
    print(f"  on paper: {rows:.0e} rows on {workers} workers as fast as these: {hours:.1f} hours")


if __name__ == "__main__":
    main(tuple(int(size) for size in sys.argv[1:]) or SIZES)
