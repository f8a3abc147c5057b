"""Worker processes on this machine, each with two pipes to this process and no sockets.

Only this process holds the other ends of the pipes, so nothing else can submit a task. A worker
exits when its standard input is closed, which happens however this process ends: no worker outlives
it.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from calibrant.errors import CalibrantError

TRIES = 3
"""Workers that may die on one task before the task is given up."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of the workers: there is one worker per core already."""
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = sys.argv[1:]
from calibrant.scale.workers import work
work()
"""
"""What a worker runs. Unlike ``multiprocessing`` it does not import the caller's script. It has the
module search path of this process, with the current folder only if this process has it."""


class Worker:
    """One process, which computes one task at a time."""

    def __init__(self) -> None:
        stdin, self.tasks = Pipe(duplex=False)
        self.results, stdout = Pipe(duplex=False)
        with stdin, stdout:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, *sys.path],
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                env={**os.environ, **ONE_THREAD},
                start_new_session=True,  # a terminal sends Ctrl-C to this process alone
            )

    def submit(self, task: bytes) -> None:
        """Send a task. If the worker is dead, reading the result will show it."""
        with suppress(BrokenPipeError):
            self.tasks.send_bytes(task)

    def close(self) -> int:
        """Wait for the killed process, and return its exit status."""
        with self.tasks, self.results:
            return self.process.wait()


class Workers:
    """At most one worker per core, started when there is work for it."""

    def __init__(self) -> None:
        self.most = cores()
        self.workers: list[Worker] = []

    def results(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """The index of each call and ``function(*call)``, in the order of completion.

        The task of a worker that dies is given to another worker.
        """
        waiting, deaths = deque(range(len(calls))), Counter[int]()
        busy: dict[Any, tuple[Worker, int]] = {}
        try:
            while waiting or busy:
                # All start before the first task is sent: sending a large one waits for the start.
                while len(self.workers) < min(self.most, len(waiting) + len(busy)):
                    self.workers.append(Worker())
                at_work = [worker for worker, _ in busy.values()]
                idle = [worker for worker in self.workers if worker not in at_work]
                while waiting and idle:
                    worker, index = idle.pop(), waiting.popleft()
                    worker.submit(_pickled(function, calls[index]))
                    busy[worker.results] = worker, index
                for connection in wait(list(busy)):
                    worker, index = busy.pop(connection)
                    try:
                        answer = worker.results.recv_bytes()
                    except (EOFError, OSError):
                        [status] = self._end([worker])
                        deaths[index] += 1
                        if deaths[index] == TRIES:
                            raise workers_died(f"exit status of the last one: {status}") from None
                        waiting.appendleft(index)
                        continue
                    succeeded, result = pickle.loads(answer)
                    if not succeeded:
                        raise result
                    yield index, result
        finally:
            self._end([worker for worker, _ in busy.values()])

    def close(self) -> None:
        """Kill all workers and wait until they are gone."""
        self._end(self.workers)

    def _end(self, workers: list[Worker]) -> list[int]:
        """Kill these workers, and return their exit statuses."""
        for worker in workers:
            worker.process.kill()
        self.workers = [worker for worker in self.workers if worker not in workers]
        return [worker.close() for worker in workers]


def cores() -> int:
    """Cores that this process may use, within the limit of its container."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such file, or no limit in it
            text = " ".join((Path("/sys/fs/cgroup") / file).read_text() for file in files)
            quota, period = map(int, text.split())
            if quota > 0:
                count = min(count, math.ceil(quota / period))
    return count


def _pickled(function: Callable[..., Any], call: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((function, call))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _not_importable(error) from error


def work() -> None:
    """Compute the tasks that arrive on standard input, until it is closed."""
    results = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what a library prints must not mix with the results
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(tasks,), daemon=True).start()
    while True:
        answer = _answer(tasks.get())
        with suppress(BrokenPipeError):  # the other thread ends this process
            results.send_bytes(answer)


def _receive(tasks: SimpleQueue[bytes]) -> None:
    """Read ahead, so that the end of the input is noticed during a task."""
    with Connection(os.dup(0), writable=False) as stdin, suppress(EOFError, OSError):
        while True:
            tasks.put(stdin.recv_bytes())
    os._exit(0)


def _answer(task: bytes) -> bytes:
    """The result of a task, or the exception that it raised."""
    try:
        try:
            function, call = pickle.loads(task)
        except (ImportError, AttributeError) as error:
            raise _not_importable(error) from error
        return pickle.dumps((True, function(*call)))
    except Exception as error:
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            answer = pickle.dumps((False, error))
            pickle.loads(answer)
        except Exception:  # an exception that cannot be pickled
            answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        return answer


def workers_died(last: object) -> ChildProcessError:
    """The error for a task that has killed every worker it was given to."""
    return ChildProcessError(
        "a task was given to several workers, each of which died, most likely out of memory; "
        f"{' '.join(str(last).split())[:200]}. Give the workers more memory, or read their logs"
    )


def _not_importable(error: Exception) -> CalibrantError:
    return CalibrantError(
        "worker processes run only what they can import; found a function or class that they "
        f"cannot ({' '.join(str(error).split())[:160]}). Define it at the top level of a module, "
        "not in a script or a notebook, or leave out scheduler="
    )
