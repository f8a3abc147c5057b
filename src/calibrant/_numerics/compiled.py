"""How kernels are compiled, cached and run over rows, and vectorised primitives for them.

Importing this module imports Numba: only modules of kernels do, and they are loaded on first use.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import pickle
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache
from numba.core.serialize import dumps
from numba.extending import intrinsic

from calibrant._numerics.first_use import Announcement, are_few
from calibrant.errors import CalibrantError

# Numba also reads a .numba_config.yaml in the working folder. The cache holds code, so a file
# beside the data must not decide where the cache is.
numba.config.CACHE_DIR = os.environ.get("NUMBA_CACHE_DIR", "")  # type: ignore[attr-defined]

LOG2_E = 1.4426950408889634
# log 2 in two parts: the product of the first with a whole number up to 2^11 is exact.
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
# Adding this to a float rounds it to an integer, which is then in its lowest bits.
ROUNDER = 6755399441055744.0
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
"""The bits of the float closest to sqrt(1/2)."""
SMALLEST = -708.0
"""Below this, e^x counts as 0; it would be at most 3e-308."""


BLOCK = 1 << 20
"""Most numbers that one call of a compiled pass computes, in about two milliseconds. Handing a
block to a thread takes a tenth of a millisecond. Ctrl-C takes effect between two calls."""
WORTH_A_THREAD = 1 << 19
"""Numbers to compute per thread from which another thread is worth it."""

_most_threads: ContextVar[int | None] = ContextVar("most_threads", default=None)


def n_threads() -> int:
    """Number of threads a pass may use: NUMBA_NUM_THREADS, or one for each core."""
    most = _most_threads.get()
    known: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    return known if most is None else most


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Run the passes in this block on the calling thread."""
    token = _most_threads.set(1)
    try:
        yield
    finally:
        _most_threads.reset(token)


class CacheWarning(UserWarning):
    """Compiled functions are not cached for the next process."""


class _NoCache:
    """Warning that there is no cache, at most once per process."""

    said = False

    @classmethod
    def say(cls, reason: str) -> None:
        """Warn the first time; other functions fail for the same reason."""
        if cls.said:
            return
        cls.said = True
        warnings.warn(
            f"compiled functions are not cached: {reason}. Each start compiles them again, which "
            "takes seconds to a minute. Set NUMBA_CACHE_DIR to a folder that only you can write to",
            CacheWarning,
            stacklevel=2,
        )


class _CheckedResults(CompileResultCacheImpl):
    """Numba's cache entries with a checksum: damaged machine code must not run."""

    def reduce(self, cres: Any) -> tuple[bytes, bytes]:
        """A compiled function as a checksum and bytes."""
        data = dumps(super().reduce(cres))
        return hashlib.sha256(data).digest(), data

    def rebuild(self, target_context: Any, payload: tuple[bytes, bytes]) -> Any:
        """The compiled function of a checksum and bytes."""
        checksum, data = payload
        if hashlib.sha256(data).digest() != checksum:
            raise CalibrantError("the checksum does not match")
        return super().rebuild(target_context, pickle.loads(data))


class _TolerantCache(FunctionCache):
    """Numba's cache of one function; after a failure it counts as empty."""

    _impl_class = _CheckedResults

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cache entry of a signature; None if there is none, or it cannot be read."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # unpickling a damaged file may raise anything
            self._forget()
            found = None
        if found is None:
            Announcement.make()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache a compiled signature, if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self._forget()
            _NoCache.say(f"writing to {self.cache_path} failed ({error})")

    def _forget(self) -> None:
        """Remove the index. Numba writes it first, so it may name an outdated data file."""
        with suppress(OSError):
            os.unlink(self._cache_file._index_path)


def _cache_of(function: Any) -> Any:
    """The cache of a function."""
    try:
        found = _TolerantCache(function)
        open_to_others = _others_may_write(found.cache_path, inspect.getfile(function))
    except (RuntimeError, OSError):  # no writable folder, or no source file
        _NoCache.say("neither NUMBA_CACHE_DIR, the package nor the user's cache folder is writable")
        return NullCache()
    if open_to_others:
        _NoCache.say(f"other users can write to {found.cache_path}, and the cache holds code")
        return NullCache()
    return found


def _others_may_write(folder: str, source: str) -> bool:
    """Whether users whose code is not trusted can write to a folder."""
    if sys.platform == "win32":  # the mode does not show its access rules
        return False
    trusted = {0, os.geteuid(), os.stat(source).st_uid}
    found = os.stat(folder)
    return bool(found.st_mode & stat.S_IWOTH) or found.st_uid not in trusted


def kernel(**options: Any) -> Callable[[Any], Any]:
    """Compile a function on first use; later processes load it from the cache.

    ``options`` are those of ``numba.njit``.
    """

    def compiled(function: Any) -> Any:
        dispatcher = njit(**options)(function)
        # cache=True would raise if a function cannot be cached.
        dispatcher._cache = _cache_of(function)
        return dispatcher

    return compiled


class Pass:
    """A compiled ``function(start, stop, *arguments)`` over the rows of the first argument.

    It is called for blocks of rows, on several threads if that is worth it. The blocks do not
    depend on the number of threads, so neither do sums over them. A pass may have a form in NumPy
    for few numbers (see ``first_use``).
    """

    of_few: Callable[..., Any] | None = None

    def __init__(self, function: Any) -> None:
        # Without the global interpreter lock, so that threads run in parallel.
        self.compiled = kernel(nogil=True, error_model="numpy")(function)
        self.__doc__ = function.__doc__

    def for_few(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator of ``function(*arguments)``, the same in NumPy."""
        self.of_few = function
        return function

    def __call__(self, *arguments: Any, times: int = 1) -> list[Any]:
        """The results of the blocks, in order; each number of a row is computed ``times`` times."""
        return list(self._results(arguments, times))

    def sum(self, *arguments: Any, times: int = 1) -> Any:
        """The sum of the results of the blocks."""
        results = self._results(arguments, times)
        return sum(results, start=next(results))

    def _results(self, arguments: tuple[Any, ...], times: int) -> Iterator[Any]:
        n, numbers = len(arguments[0]), arguments[0].size * times
        if self.of_few is not None and are_few(numbers):
            yield self.of_few(*arguments)
            return
        rows = max(1, -(-n // max(1, -(-numbers // BLOCK))))  # of equal size
        blocks = [(start, min(start + rows, n)) for start in range(0, n, rows)] or [(0, 0)]
        if min(n_threads(), numbers // WORTH_A_THREAD, len(blocks)) <= 1:
            for block in blocks:
                yield self.compiled(*block, *arguments)
            return
        pool = _pool(n_threads(), os.getpid())
        yield from pool.map(lambda block: self.compiled(*block, *arguments), blocks)


@lru_cache(maxsize=1)
def _pool(threads: int, _process: int) -> ThreadPoolExecutor:
    """Threads that are kept: starting them takes milliseconds. A forked process has its own."""
    return ThreadPoolExecutor(threads, "calibrant")


over_rows = Pass
"""Decorator that compiles ``function(start, stop, *arguments)`` as a pass over rows."""


def _reinterpreted(source: Any, target: Any, llvm_type: Any) -> Any:
    """A function that reinterprets the bits of a number as another type."""

    def typed(_context: Any, _value: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return target(source), codegen

    return intrinsic(typed)


bits_of = _reinterpreted(types.float64, types.int64, ir.IntType(64))
_float_of = _reinterpreted(types.int64, types.float64, ir.DoubleType())


def polynomial(coefficients: Iterable[float]) -> Any:
    """A compiled polynomial by Horner's rule, without a loop; the highest power comes first."""
    constants = [ir.Constant(ir.DoubleType(), float(each)) for each in coefficients]

    def typed(_context: Any, _x: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            total = constants[0]
            for constant in constants[1:]:
                total = builder.fadd(builder.fmul(total, args[0]), constant)
            return total

        return types.float64(types.float64), codegen

    return intrinsic(typed)


def atanh_series(highest: int) -> Any:
    """(atanh(z) / z - 1) / z^2 as a polynomial of z^2: 1/3 + z^2/5 + ... up to 1/``highest``."""
    return polynomial(1.0 / n for n in range(highest, 1, -2))


_exp_series = polynomial(1.0 / math.factorial(n) for n in range(13, -1, -1))
_log_series = atanh_series(23)


@kernel(fastmath={"contract"})
def exp_nonpositive(x: float) -> float:
    """e^x for x <= 0 (and a little above), to about one rounding.

    x = n log 2 + r with |r| <= log(2)/2; e^r by its Taylor series, times 2^n by its exponent
    bits. There is no branch and no call, so loops over it are vectorised. LLVM inlines it; Numba's
    own inlining would compile it again in each function that calls it.
    """
    bounded = SMALLEST if x < SMALLEST else x  # NaN stays NaN
    shifted = bounded * LOG2_E + ROUNDER
    n = shifted - ROUNDER
    r = (bounded - n * LN2_HIGH) - n * LN2_LOW
    scale = _float_of((bits_of(shifted) + 1023) << 52)
    return 0.0 if x < SMALLEST else _exp_series(r) * scale


@kernel(fastmath={"contract"}, error_model="numpy")
def log_positive(x: float) -> Any:
    """log x for positive normal numbers, to about one rounding, without a branch or a call.

    x = 2^n m with m between sqrt(1/2) and sqrt(2), and log m = 2 atanh((m - 1) / (m + 1)) by its
    series.
    """
    bits = bits_of(x)
    n = (bits - SQRT_HALF_BITS) >> 52
    m = _float_of(bits - (n << 52))
    z = (m - 1.0) / (m + 1.0)
    y = z * z
    return n * LN2_HIGH + (n * LN2_LOW + (2.0 * z + 2.0 * z * (_log_series(y) * y)))


@kernel()
def copy_to(out: Any, row: Any) -> None:
    """Copy a row. ``out[:] = row`` would also compile its error message, which takes seconds."""
    for k in range(len(row)):
        out[k] = row[k]


@kernel(fastmath={"contract"})
def exp_row(row: Any, top: float, out: Any) -> None:
    """Write e^(row - top) to ``out``; fused multiply-add is allowed."""
    for k in range(len(row)):
        out[k] = exp_nonpositive(np.float64(row[k]) - top)


@kernel(fastmath={"reassoc", "nsz"})
def sum_of(row: Any) -> float:
    """Sum in any order, so that it is vectorised; NaN stays NaN."""
    total = 0.0
    for k in range(len(row)):
        total += row[k]
    return total


@kernel(fastmath={"reassoc", "nsz", "contract"})
def sum_of_squares(row: Any) -> float:
    """Sum of squares in any order."""
    total = 0.0
    for k in range(len(row)):
        total += np.float64(row[k]) * np.float64(row[k])
    return total


def _of_two(llvm_name: str) -> Any:
    """A vectorisable LLVM intrinsic of two floats of one type."""

    def typed(_context: Any, kind: Any, _same: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            llvm_type = args[0].type
            shape = ir.FunctionType(llvm_type, [llvm_type, llvm_type])
            function = builder.module.declare_intrinsic(llvm_name, [llvm_type], shape)
            return builder.call(function, args, fastmath=("nsz",))

        return kind(kind, kind), codegen

    return intrinsic(typed)


# NaN if either is NaN. Unlike max() on floats they are associative, so a loop may keep several
# running maxima and join them at the end.
_larger = _of_two("llvm.maximum")
_smaller = _of_two("llvm.minimum")


@kernel()
def max_of(row: Any) -> Any:
    """Largest entry of a row, NaN if it contains NaN."""
    highest = row[0]
    for k in range(1, len(row)):
        highest = _larger(highest, row[k])
    return highest


@kernel()
def extremes_of(row: Any) -> tuple[Any, Any]:
    """Smallest and largest entry of a row, both NaN if it contains NaN."""
    lowest = highest = row[0]
    for k in range(1, len(row)):
        lowest = _smaller(lowest, row[k])
        highest = _larger(highest, row[k])
    return lowest, highest


@kernel()
def index_of(row: Any, value: Any) -> int:
    """First index of ``value`` in ``row``; the length of the row if it does not occur.

    It reads the whole row: a loop that may stop early is not vectorised, and its end is an
    unpredictable branch.
    """
    nowhere = np.int32(len(row))
    first = nowhere
    for k in range(len(row)):
        first = min(first, np.int32(k) if row[k] == value else nowhere)
    return int(first)


@kernel(inline="always")
def bin_of(p: float, edges: Any) -> Any:
    """The equal-width bin of ``p``: 0 is in the first, 1 (or just above) in the last.

    The product with the number of bins rounds, so the guess is corrected against the edges: a
    value exactly on an edge belongs to the bin below it, for any number of bins.
    """
    last = len(edges) - 2
    guess: Any = max(min(np.int64(p * (last + 1)), last), 0)
    # No branch: it would be unpredictable.
    b = guess - np.int64(p <= edges[guess]) + np.int64(p > edges[guess + 1])
    return max(min(b, last), 0)
