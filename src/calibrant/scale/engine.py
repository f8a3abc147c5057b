"""Where sums over files are computed: in this process, in worker processes, or on Dask.

All engines apply a function to each bundle of rows and add up the results in a tree, whose shape
depends only on the number of bundles. So the result is the same to the last bit on any number of
workers, also if some of them die: their work is done again.
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, TypeAlias

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.scale.workers import Workers, workers_died

LOCAL = "local"
"""The scheduler that stands for the cores of this machine."""
FAN_IN = 4
"""Results that are added in one step, and so held together: sketches can take 30 MB."""
TO_CONNECT = "10s"


class Sum:
    """A sum that may have no terms: a bundle can be without a usable row."""

    def __init__(self) -> None:
        self.value: Any = None

    def add(self, term: Any) -> None:
        """Add a term, which may be kept and changed."""
        self.value = term if self.value is None else _added(self.value, term)

    def merge(self, other: Sum) -> None:
        """Add the sum of other rows."""
        if other.value is not None:
            self.add(copy.deepcopy(other.value))


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called with the number of the pass, how many of its tasks are done, and how many it has."""


class Engine(ABC):
    """Computes ``function(item, *arguments)`` for many items, and adds up the results."""

    progress: Progress | None = None
    n_started = 0
    """Passes that were started."""

    def _start_pass(self, n_items: int) -> Callable[..., None]:
        """Start a pass; returns what to call when an item is done."""
        self.n_started += 1
        number, done = self.n_started, count(1)

        def one_more(*_: object) -> None:
            if self.progress is not None:
                self.progress(number, next(done), n_items)

        return one_more

    @abstractmethod
    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items."""


def total(results: Sequence[Any]) -> Any:
    """The sum of results: numbers, arrays, objects with ``merge``, and tuples or lists of these."""
    first = copy.deepcopy(results[0])  # a task must not change its arguments
    for result in results[1:]:
        first = _added(first, result)
    return first


def _added(first: Any, second: Any) -> Any:
    if isinstance(first, tuple | list):
        return type(first)(_added(a, b) for a, b in zip(first, second, strict=True))
    if hasattr(first, "merge"):
        first.merge(second)
        return first
    return first + second


class SumTree:
    """Adds up results that arrive in any order, in a tree that depends only on their number."""

    def __init__(self, n_results: int) -> None:
        self.n_results = n_results
        self.held: dict[tuple[int, int], dict[int, Any]] = {}
        """Results that wait for others of their group, by level and group."""
        self.sum: Any = None

    def add(self, index: int, result: Any) -> None:
        """Add one result, and every sum that it completes."""
        level, width = 0, self.n_results
        while width > 1:
            group, place = divmod(index, FAN_IN)
            held = self.held.setdefault((level, group), {})
            held[place] = result
            if len(held) < min(FAN_IN, width - group * FAN_IN):
                return
            del self.held[level, group]
            result = total([held[place] for place in sorted(held)])
            level, index, width = level + 1, group, -(-width // FAN_IN)
        self.sum = result


class InProcess(Engine):
    """One bundle at a time, in this process."""

    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items; few results are held at a time."""
        tree, one_more = SumTree(len(items)), self._start_pass(len(items))
        for index, result in self._results([(function, item, *arguments) for item in items]):
            tree.add(index, result)
            one_more()
        return tree.sum

    def _results(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The index of each call of :func:`alone` and its result, in any order."""
        for index, call in enumerate(calls):
            yield index, alone(*call)


class InProcesses(InProcess):
    """A worker process for each core of this machine; results are added up in this process."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def _results(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        return self.workers.results(alone, calls)


class Cluster(Engine):
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items; every addition of the tree is a task."""
        results = self._started(function, items, arguments)
        while len(results) > 1:
            results = [
                self.client.submit(total, results[i : i + FAN_IN], pure=False)
                for i in range(0, len(results), FAN_IN)
            ]
        return self._gathered(results)[0]

    def _started(
        self, function: Callable[..., Any], items: Sequence[Any], arguments: tuple[Any, ...]
    ) -> list[Any]:
        one_more = self._start_pass(len(items))
        # Each task carries all it needs: data scattered to a worker would die with it.
        started = [
            self.client.submit(alone, function, item, *arguments, pure=False) for item in items
        ]
        if self.progress is not None:
            for future in started:
                future.add_done_callback(one_more)
        return started

    def _gathered(self, futures: list[Any]) -> list[Any]:
        from distributed import KilledWorker

        try:
            return list(self.client.gather(futures))
        except KilledWorker as death:
            raise workers_died(death) from death
        except KeyboardInterrupt:
            logging.getLogger("asyncio").addFilter(_not_of_a_gather)
            raise


def _not_of_a_gather(record: logging.LogRecord) -> bool:
    """Whether a log record is not about a gather of Dask that was interrupted."""
    from distributed.client import AllExit

    return not (record.exc_info and record.exc_info[0] is AllExit)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` with compiled passes on this thread only."""
    from calibrant._numerics.compiled import on_one_thread

    with on_one_thread():
        return function(*arguments)


@contextmanager
def engine_for(scheduler: Any = None) -> Iterator[Engine]:
    """The engine of a scheduler, for the duration of the block.

    ``scheduler`` is None for this process, ``"local"`` for a worker process on each core of this
    machine, the address of a running Dask scheduler such as ``"tcp://host:8786"``, or an open
    ``distributed.Client``.
    """
    if scheduler is None:
        yield InProcess()
        return
    if _is_local(scheduler):
        with closing(Workers()) as workers:
            yield InProcesses(workers)
        return
    check_installed_for(scheduler)
    from distributed import Client

    if isinstance(scheduler, Client):
        yield Cluster(scheduler)
        return
    if not isinstance(scheduler, str):
        raise _unknown_scheduler(scheduler)
    try:
        client = Client(scheduler, timeout=TO_CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        raise _unknown_scheduler(scheduler, f" ({' '.join(str(error).split())[:160]})") from error
    with client:
        yield Cluster(client)


def check_installed_for(scheduler: object) -> None:
    """Refuse to work on a cluster without Dask; this machine does not need it."""
    if scheduler is not None and not _is_local(scheduler):
        _inputs.installed("dask", "distributed", extra="scale", purpose="working on a cluster")


def _is_local(scheduler: object) -> bool:
    return isinstance(scheduler, str) and scheduler == LOCAL


def _unknown_scheduler(scheduler: object, reason: str = "") -> CalibrantError:
    return CalibrantError(
        f"the scheduler must be 'local' or the address of a running Dask scheduler; found "
        f"{scheduler!r}{reason}. Start one with dask scheduler, and pass for example "
        "tcp://HOST:8786"
    )
