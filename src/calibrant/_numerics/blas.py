"""The threads of BLAS, which computes products of matrices."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

MOST_ON_ONE_THREAD = 256
"""Largest matrices, in rows and columns, for which BLAS gets one thread. Its other threads wait for
the next product in a loop. If products are small and far apart, they take several times the
processor time of the work, and on shared cores time from it."""


def blas_threads_for(n_classes: int) -> AbstractContextManager[object]:
    """One thread for BLAS in this block, if the products are of so many classes or fewer."""
    if n_classes > MOST_ON_ONE_THREAD:
        return nullcontext()
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limit: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limit
