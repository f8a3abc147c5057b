"""Worker processes on this machine: the same sums, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pytest

from calibrant import CALIBRATORS, scale
from calibrant.files import write_predictions
from calibrant.scale import engine, workers
from calibrant.scale.engine import FAN_IN, InProcess, InProcesses, SumTree, total
from calibrant.scale.workers import TRIES, Workers, cores
from tests.processes import run_python

ROWS, CLASSES = 1500, 3
DIE = "__import__('os').kill(__import__('os').getpid(), 9)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    where = tmp_path_factory.mktemp("data")
    for number in range(6):
        probs = rng.dirichlet(np.ones(CLASSES), size=ROWS)
        labels = (np.log(probs) / 2 + rng.gumbel(size=probs.shape)).argmax(axis=1)
        write_predictions(where / f"{number}.parquet", probs=probs, labels=labels)
    return where


@pytest.fixture(autouse=True)
def small_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", ROWS)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with closing(Workers()) as opened:
        yield opened
    assert opened.workers == []


def computed(pool: Workers, *expressions: str) -> dict[int, object]:
    return dict(pool.results(eval, [(expression,) for expression in expressions]))


@pytest.fixture(scope="module")
def warm_pool() -> Iterator[Workers]:
    with closing(Workers()) as opened:
        yield opened


CASES = [
    *((method, {"gamma": 2.0} if method == "focal" else {}) for method in scale.METHODS),
    *(("temperature", {"criterion": name}) for name in ("ece", "ada_ece", "brier", "focal")),
    ("focal-temperature", {"search": "line"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), CASES)
def test_a_fit_is_the_same_to_the_last_bit(method, options, folder, warm_pool, monkeypatch):
    """So everything that a fit sends to a worker can be pickled."""
    alone = scale.fit(CALIBRATORS[method](**options), folder)
    workers_of = nullcontext(InProcesses(warm_pool))
    monkeypatch.setattr("calibrant.scale.fitting.engine_for", lambda _: workers_of)
    local = scale.fit(CALIBRATORS[method](**options), folder, scheduler="local")
    assert local.report_ == alone.report_
    assert repr(local.state_) == repr(alone.state_)


@pytest.mark.slow
def test_an_evaluation_is_the_same_to_the_last_bit(folder):
    assert scale.evaluate(folder, scheduler="local") == scale.evaluate(folder)


@pytest.mark.slow
def test_progress_is_told(folder):
    told: list[tuple[int, int, int]] = []
    scale.evaluate(folder, scheduler="local", progress=lambda *news: told.append(news))
    assert told == [(1, done, 6) for done in range(1, 7)]


@pytest.mark.parametrize("n", [1, 2, FAN_IN, FAN_IN + 1, FAN_IN**2 + 3])
def test_results_in_any_order_give_the_same_sum(n):
    rng = np.random.default_rng(n)
    values = list(rng.normal(size=n) * 10.0 ** rng.integers(0, 12, size=n))
    level = values
    while len(level) > 1:
        level = [total(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    tree = SumTree(n)
    for index in rng.permutation(n):
        tree.add(int(index), values[index])
    assert tree.sum == level[0]
    assert tree.held == {}


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(pool, tmp_path):
    """Also in the second of two passes on the same workers."""
    once = f"open({str(tmp_path / 'seen')!r}, 'x') and {DIE}"
    retried = f"7 if __import__('os').path.exists({str(tmp_path / 'seen')!r}) else {once}"
    assert computed(pool, "1", "2", "3") == {0: 1, 1: 2, 2: 3}
    before = [worker.process.pid for worker in pool.workers]
    assert computed(pool, retried, "5", "6") == {0: 7, 1: 5, 2: 6}
    after = [worker.process.pid for worker in pool.workers]
    assert len(set(before) & set(after)) == 1


@pytest.mark.slow
def test_a_worker_that_died_while_idle_is_replaced(pool):
    computed(pool, "1", "2")
    for worker in pool.workers:
        worker.process.kill()
        worker.process.wait()
    assert computed(pool, "3", "4") == {0: 3, 1: 4}


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_refused(pool, tmp_path):
    log = str(tmp_path / "log")
    with pytest.raises(ChildProcessError, match=r"each of which died.* -9\. Give the workers more"):
        computed(pool, f"print(file=open({log!r}, 'a')) or {DIE}")
    assert (tmp_path / "log").read_text() == "\n" * TRIES


@pytest.mark.slow
def test_an_error_comes_through_with_its_traceback(pool):
    with pytest.raises(ZeroDivisionError) as caught:
        computed(pool, "1 / 0", "2")
    assert "In a worker process:\nTraceback" in caught.value.__notes__[0]
    assert computed(pool, "3") == {0: 3}  # the others go on


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ValueError(lambda: 1)", "ValueError: <function"),
        ("__import__('click').BadOptionUsage('-o', 'no')", "BadOptionUsage: no"),
    ],
)
def test_an_error_that_cannot_be_pickled(error, said, pool):
    """The first cannot be sent; the second cannot be made again from what is sent."""
    with pytest.raises(RuntimeError, match=said):
        computed(pool, f"(each for each in ()).throw({error})")


@pytest.mark.slow
def test_what_a_worker_prints_is_not_a_result(pool, capfd):
    assert computed(pool, "print('hello', flush=True) or 1") == {0: 1}
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.slow
def test_a_large_task_and_a_large_result(pool):
    data = b"x" * 5_000_000
    assert dict(pool.results(bytes.upper, [(data,)] * 3)) == dict.fromkeys(range(3), data.upper())


@pytest.mark.slow
def test_code_that_workers_cannot_import_is_refused(pool):
    with pytest.raises(ValueError, match=r"run only what they can import; found .* Define it at"):
        dict(pool.results(lambda: 1, [()]))


SCRIPT = """
from calibrant import TemperatureScaling, scale

class Mine(TemperatureScaling):
    NAME = "temperature"

print(scale.evaluate({folder!r}, scheduler="local").n)
found = scale.fit(TemperatureScaling(), {folder!r}, scheduler="local")
mine = Mine()
mine.__dict__ |= found.__dict__
try:
    scale.apply(mine, {folder!r}, {out!r}, scheduler="local")
except ValueError as refusal:
    print(refusal)
"""


@pytest.mark.slow
def test_a_script_needs_no_guard(folder, tmp_path):
    """Workers do not import it again, nor modules that lie in the current folder."""
    script, elsewhere = tmp_path / "script.py", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "numpy.py").write_text("raise SystemExit('imported from the current folder')")
    script.write_text(SCRIPT.format(folder=str(folder), out=str(tmp_path / "out")))
    for arguments in ([str(script)], ["-P", "-c", script.read_text()]):
        done = run_python(*arguments, cwd=elsewhere, check=True)
        n, refusal = done.stdout.splitlines()
        assert n == str(6 * ROWS)
        assert "found a function or class that they cannot (Can't get attribute 'Mine'" in refusal
        assert done.stderr == ""


@pytest.mark.slow
def test_local_work_needs_no_dask(folder, monkeypatch):
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    with engine.engine_for("local") as local:
        assert isinstance(local, InProcesses)


@pytest.mark.slow
def test_no_more_workers_than_tasks(pool):
    pool.most = 50
    computed(pool, "1", "2", "3")
    assert len(pool.workers) == 3


def test_cores_are_those_of_the_process_and_its_container(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(workers, "Path", lambda _: tmp_path)
    assert cores() == 8
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cores() == 8
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert cores() == 3
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cores() == 3
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000\n")
    assert cores() == 1


@pytest.mark.slow
def test_an_interrupt_ends_the_workers(folder, monkeypatch):
    seen: list[Workers] = []

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def noted() -> Workers:
        seen.append(Workers())
        return seen[0]

    monkeypatch.setattr("calibrant.scale.engine.Workers", noted)
    with pytest.raises(KeyboardInterrupt):
        scale.evaluate(folder, scheduler="local", progress=interrupt)
    assert seen[0].workers == []


@pytest.mark.slow
def test_the_engine_of_this_process_and_of_workers_add_alike(pool):
    values = list(np.random.default_rng(3).normal(size=11))
    assert InProcesses(pool).reduce(float, values) == InProcess().reduce(float, values)
