"""Where the sums of a data set are computed: in this process, in one for each core, or on Dask.

All do the same in the same order: a function of each bundle of rows, and the results added up in
a tree whose shape depends on the number of bundles alone. So the result is the same to the last
bit on any number of workers, and also when some of them die: what they held is computed again.
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, NoReturn, TypeAlias

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.scale.workers import Workers, workers_died

LOCAL = "local"
"""The name of the cores of this machine, as a place to work."""
FAN_IN = 4
"""Results that are added up in one task, and so held together: sketches can take 30 MB."""
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


class Tree:
    """Adds up results that arrive in any order, in a tree that their number alone determines."""

    def __init__(self, n_results: int) -> None:
        self.n_results = n_results
        self.held: dict[tuple[int, int], dict[int, Any]] = {}
        """Results that wait for their neighbours, by level and group."""
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


class OnThisMachine(Engine):
    """Results come to this process, which adds them up."""

    @abstractmethod
    def _results(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The index of each call of :func:`alone` and its result, in any order."""

    def reduce(self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any) -> Any:
        """The sum over all items, of which few results are held at a time."""
        tree, one_more = Tree(len(items)), self._begin(len(items))
        for index, result in self._results([(function, item, *arguments) for item in items]):
            tree.add(index, result)
            one_more()
        return tree.sum


class InProcess(OnThisMachine):
    """One bundle after the other, in this process."""

    def _results(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        for index, call in enumerate(calls):
            yield index, alone(*call)


class InProcesses(OnThisMachine):
    """A worker process for each core of this machine."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def _results(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        return self.workers.results(alone, calls)


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
            workers_died(death)
        except KeyboardInterrupt:
            logging.getLogger("asyncio").addFilter(_not_of_a_gather)
            raise


def _not_of_a_gather(record: logging.LogRecord) -> bool:
    """Whether a message is not what Dask leaves behind of a gather that was interrupted."""
    from distributed.client import AllExit

    return not (record.exc_info and record.exc_info[0] is AllExit)


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` with compiled passes on this thread alone."""
    from calibrant._numerics.compiled import on_one_thread

    with on_one_thread():
        return function(*arguments)


@contextmanager
def engine_for(scheduler: Any = None) -> Iterator[Engine]:
    """The engine that ``scheduler`` means, for the time of the block.

    None is this process, ``"local"`` a worker process for each core of this machine, an address
    such as ``"tcp://host:8786"`` a Dask scheduler that runs already; an open
    ``distributed.Client`` will do too.
    """
    if scheduler is None:
        yield InProcess()
        return
    if isinstance(scheduler, str) and scheduler == LOCAL:
        with closing(Workers()) as workers:
            yield InProcesses(workers)
        return
    check_installed_for(scheduler)
    from distributed import Client

    if isinstance(scheduler, Client):
        yield Cluster(scheduler)
        return
    if not isinstance(scheduler, str):
        check_known_scheduler(scheduler)
    try:
        client = Client(scheduler, timeout=TO_CONNECT)
    except (OSError, ValueError, TimeoutError) as error:
        check_known_scheduler(scheduler, error)
    with client:
        yield Cluster(client)


def check_installed_for(scheduler: object) -> None:
    """Dask, where the work is done on a cluster, and not on this machine."""
    if scheduler is not None and not (isinstance(scheduler, str) and scheduler == "local"):
        _inputs.installed("dask", "distributed", extra="scale", purpose="working on a cluster")


def check_known_scheduler(scheduler: object, error: Exception | None = None) -> NoReturn:
    """Refuse what is not the address of a scheduler that answers."""
    reason = "" if error is None else f" ({' '.join(str(error).split())[:160]})"
    raise CalibrantError(
        f"the scheduler must be 'local', or the address of one that answers; found "
        f"{scheduler!r}{reason}. Start one with dask scheduler, and name tcp://HOST:8786, say"
    )
