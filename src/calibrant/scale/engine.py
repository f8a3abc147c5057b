"""Where the sums of a data set are computed: in this process, or on a Dask cluster.

Both do the same in the same order: a function of each bundle of rows, and the results added up in
a tree whose shape depends on the number of bundles alone. So the result is the same to the last
bit on any number of workers, and also when some of them die: Dask computes again what they held.
"""

from __future__ import annotations

import copy
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

from calibrant import _checks

LOCAL = "local"
"""The name of a cluster on this machine, which lives as long as it is needed."""
FAN_IN = 4
"""Results that are added up in one task, and so held together: sketches can take 30 MB."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Of the libraries in a worker: the workers share the cores already."""
TO_CONNECT = "10s"


class Sum:
    """A sum to which nothing may have been added yet: a bundle can be without a usable row."""

    def __init__(self) -> None:
        self.value: Any = None

    def add(self, term: Any) -> None:
        """Add one more term, which this may keep and change."""
        self.value = term if self.value is None else _added(self.value, term)

    def merge(self, other: Sum) -> None:
        """Add the sum of other rows."""
        if other.value is not None:
            self.add(copy.deepcopy(other.value))


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called with the number of a pass, how many of its tasks are done, and how many there are."""


class Engine(ABC):
    """Computes ``function(item, *arguments)`` of many items, and adds up the results."""

    progress: Progress | None = None
    begun = 0
    """Passes that were begun."""

    def _begin(self, n_items: int) -> Callable[..., None]:
        """Begin a pass; what this returns is to be called when an item is done."""
        self.begun += 1
        number, done = self.begun, count(1)

        def one_more(*_: object) -> None:
            if self.progress is not None:
                self.progress(number, next(done), n_items)

        return one_more

    @abstractmethod
    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items."""

    @abstractmethod
    def each(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The result of every item, in order."""


def total(results: Sequence[Any]) -> Any:
    """The sum of results: numbers, arrays, objects with ``merge``, and tuples or lists of these."""
    first = copy.deepcopy(results[0])  # a task must leave what it was given as it is
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


class InProcess(Engine):
    """One bundle after the other, in this process."""

    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items, of which few results are held at a time."""
        # levels[k] holds sums of FAN_IN^k items each: the same tree as on a cluster.
        levels: list[list[Any]] = [[]]
        one_more = self._begin(len(items))
        for item in items:
            levels[0].append(alone(function, item, *arguments))
            one_more()
            for level, held in enumerate(levels):
                if len(held) == FAN_IN:
                    if level + 1 == len(levels):
                        levels.append([])
                    levels[level + 1].append(total(held))
                    held.clear()
        carried: list[Any] = []
        for held in levels:
            rest = [*held, *carried]
            carried = [total(rest)] if rest else []
        return carried[0]

    def each(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The result of every item, in order."""
        one_more = self._begin(len(items))
        results = []
        for item in items:
            results.append(alone(function, item, *arguments))
            one_more()
        return results


class Cluster(Engine):
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items; every step of the tree is a task."""
        results = self._started(function, items, arguments)
        while len(results) > 1:
            results = [
                self.client.submit(total, results[i : i + FAN_IN], pure=False)
                for i in range(0, len(results), FAN_IN)
            ]
        return self._gathered(results)[0]

    def each(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The result of every item, in order."""
        return self._gathered(self._started(function, items, arguments))

    def _started(
        self, function: Callable[..., Any], items: Sequence[Any], arguments: tuple[Any, ...]
    ) -> list[Any]:
        one_more = self._begin(len(items))
        # What tasks need travels with each of them: what is laid down on a worker dies with it.
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
            _checks.workers_died(death)
        except KeyboardInterrupt:
            logging.getLogger("asyncio").addFilter(_not_of_a_gather)
            raise


def _not_of_a_gather(record: logging.LogRecord) -> bool:
    """Whether a message is not what Dask leaves behind of a gather that was interrupted."""
    from distributed.client import AllExit

    return not (record.exc_info and record.exc_info[0] is AllExit)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing in the block, and never does in processes that are started in it.

    A terminal sends it to workers too, which would each print a traceback; they end with the
    cluster. To ignore a signal is the one thing that a new process inherits.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may set this
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` with compiled passes on this thread alone."""
    from calibrant._compiled import on_one_thread

    with on_one_thread():
        return function(*arguments)


@contextmanager
def engine_for(scheduler: Any = None) -> Iterator[Engine]:
    """The engine that ``scheduler`` means, for the time of the block.

    None is this process, ``"local"`` a cluster with a worker for each core of this machine, an
    address such as ``"tcp://host:8786"`` a scheduler that runs already; an open
    ``distributed.Client`` will do too.
    """
    if scheduler is None:
        yield InProcess()
        return
    _checks.installed("dask", "distributed", extra="scale", purpose="working on a cluster")
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    if isinstance(scheduler, Client):
        yield Cluster(scheduler)
        return
    if scheduler == LOCAL:
        with _interrupts_ignored():
            local = LocalCluster(
                n_workers=CPU_COUNT,
                threads_per_worker=1,
                # Any port: that of the dashboard, which is not wanted, may be taken.
                dashboard_address=":0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
                env=ONE_THREAD,
            )
        with local as cluster, Client(cluster) as client:
            yield Cluster(client)
        return
    if not isinstance(scheduler, str):
        _checks.known_scheduler(scheduler)
    try:
        client = Client(scheduler, timeout=TO_CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        _checks.known_scheduler(scheduler, error)
    with client:
        yield Cluster(client)
