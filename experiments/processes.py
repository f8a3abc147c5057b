"""Pools of single-threaded processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@contextmanager
def single_threads(processes: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes, which use the cores better than the threads of any package.

    The environment is restored afterwards: Numba reads it again whenever it compiles, and refuses
    another number of threads than it has started.
    """
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes or os.cpu_count(), mp_context=spawn) as pool:
            yield pool
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
