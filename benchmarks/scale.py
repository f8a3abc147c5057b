"""Data sets of growing size on local workers: time, rows per second, peak memory.

``python -m benchmarks.scale [ROWS ...]``; without sizes 1, 10 and 100 million rows of 10 classes.
The files of 100 million take 4.5 GB, are made in parts of a million rows, and are deleted at the
end. Not among ``python -m benchmarks``, because it takes minutes.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from calibrant import TemperatureScaling, scale

SIZES = (1_000_000, 10_000_000, 100_000_000)
CLASSES = 10
ROWS_OF_FILE = 1_000_000
ON_PAPER = 10**11, 100
"""Rows and workers to extrapolate the time to."""
LOOK_EVERY = 0.05
"""Seconds between two samples of the memory."""


def write(folder: Path, rows: int) -> None:
    """Random float32 logits and labels drawn from them, a million rows per file."""
    for number, start in enumerate(range(0, rows, ROWS_OF_FILE)):
        rng = np.random.default_rng(number)
        n = min(ROWS_OF_FILE, rows - start)
        logits = 3.0 * rng.standard_normal((n, CLASSES), dtype=np.float32)
        noise = -np.log(-np.log(rng.random((n, CLASSES), dtype=np.float32) * 0.999 + 5e-4))
        columns = {f"logit_{k}": logits[:, k].copy() for k in range(CLASSES)}
        table = pa.table({"label": (logits / 2.0 + noise).argmax(axis=1), **columns})
        file = folder / f"{number:05d}.parquet"
        pq.write_table(table, file, row_group_size=1 << 17, use_dictionary=False)


class Memory:
    """Peak memory of this process and its children, in megabytes."""

    def __init__(self) -> None:
        self.together = 0.0
        self.one = 0.0
        """Peak of the largest process."""

    def look(self) -> None:
        """Add up the memory of all processes; shared memory counts for each."""
        here = psutil.Process()
        held = []
        for process in (here, *here.children(recursive=True)):
            try:
                held.append(process.memory_info().rss / 1e6)
            except psutil.NoSuchProcess:
                continue
        self.together = max(self.together, sum(held))
        self.one = max(self.one, *held)


@contextmanager
def watched() -> Iterator[Memory]:
    """Sample the memory continuously."""
    memory, ended = Memory(), threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_EVERY):
            memory.look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def reading(folder: Path, client: Client | None) -> None:
    """The lower bound of any evaluation: decode every column of every file."""
    files = sorted(map(str, folder.iterdir()))
    if client is None:
        sum(map(_read, files))
    else:
        client.gather(client.map(_read, files, pure=False))


def _read(file: str) -> int:
    return sum(batch.num_rows for batch in pq.ParquetFile(file).iter_batches(1 << 16))


def evaluating(folder: Path, client: Client | None) -> None:
    """All default metrics, with their intervals."""
    scale.evaluate(folder, scheduler=client)


def fitting(folder: Path, client: Client | None) -> None:
    """Temperature scaling by NLL."""
    scale.fit(TemperatureScaling(), folder, scheduler=client)


WORK: tuple[Callable[[Path, Client | None], None], ...] = (reading, evaluating, fitting)


def measured(folder: Path, rows: int, n_workers: int) -> float:
    """Print the cost of each task; return the seconds of evaluation."""
    taken = {}
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "first.parquet").symlink_to(min(folder.iterdir()))
            for work in WORK:  # each worker loads and compiles what it needs
                client.run(work, Path(name), None)
        for work in WORK:
            with watched() as memory:
                start = time.perf_counter()
                work(folder, client)
                taken[work] = time.perf_counter() - start
            print(
                f"  {rows:>11,} rows, {n_workers} workers, {work.__name__:<10} {taken[work]:7.1f} s"
                f" {rows / taken[work]:11,.0f} rows/s {taken[work] / taken[reading]:5.1f}x reading,"
                f" peak {memory.together:5.0f} MB, the largest process {memory.one:4.0f} MB",
                flush=True,
            )
    return taken[evaluating]


def main(sizes: tuple[int, ...] = SIZES) -> None:
    """Measure every size on two workers, and the middle one on one."""
    print(f"\n{CLASSES} classes, float32, on local workers; memory of all processes together")
    for rows in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, rows)
            seconds = measured(folder, rows, n_workers=2)
            if rows == sizes[len(sizes) // 2]:
                alone = measured(folder, rows, n_workers=1)
                print(f"  evaluating on 2 workers is {alone / seconds:.2f} times as fast as on 1")
    more, workers = ON_PAPER
    hours = more / rows * seconds * 2 / workers / 3600
    print(f"  on paper: evaluating {more:.0e} rows on {workers} such workers: {hours:.1f} hours")


if __name__ == "__main__":
    main(tuple(int(size) for size in sys.argv[1:]) or SIZES)
