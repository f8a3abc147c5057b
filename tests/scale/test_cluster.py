"""On a cluster the same as in one process, also where workers die."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from calibrant import FocalTemperatureScaling, TemperatureScaling, scale
from calibrant.files import read_predictions, write_predictions
from calibrant.scale import engine
from calibrant.scale.engine import Cluster

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

ROWS, CLASSES = 4000, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    where = tmp_path_factory.mktemp("data")
    for number in range(5):
        probs = rng.dirichlet(np.ones(CLASSES), size=ROWS)
        labels = (np.log(probs) / 2 + rng.gumbel(size=probs.shape)).argmax(axis=1)
        write_predictions(where / f"{number}.parquet", probs=probs, labels=labels)
    return where


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def small_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", ROWS)


def test_the_same_to_the_last_bit(folder, client):
    alone, together = scale.evaluate(folder), scale.evaluate(folder, scheduler=client)
    assert alone == together
    one = scale.fit(TemperatureScaling(), folder)
    other = scale.fit(TemperatureScaling(), folder, scheduler=client)
    assert one.temperature_ == other.temperature_
    assert one.report_ == other.report_


def test_groups_are_the_same_to_the_last_bit(folder, client):
    alone = scale.evaluate(folder, by=["label"])
    assert scale.evaluate(folder, by=["label"], scheduler=client) == alone
    assert sum(group.evaluation.n for group in alone.by_group.groups) == alone.n


def test_an_address_will_do(folder, client):
    address = client.scheduler.address
    assert scale.evaluate(folder, scheduler=address) == scale.evaluate(folder)


def test_a_scheduler_that_does_not_answer(folder, monkeypatch):
    monkeypatch.setattr("calibrant.scale.engine.TO_CONNECT", "200ms")
    with pytest.raises(ValueError, match="the address of a running Dask scheduler; found 'tcp://"):
        scale.evaluate(folder, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="found 7"):
        scale.evaluate(folder, scheduler=7)


def test_refusals_come_through(folder, client, tmp_path):
    file = tmp_path / "a.parquet"
    write_predictions(file, probs=[[0.5, 0.5]])
    with pytest.raises(ValueError, match="labels are needed"):
        scale.evaluate(file, scheduler=client)
    fitted = scale.fit(TemperatureScaling(), folder)
    with pytest.raises(ValueError, match="fitted on 3 classes; found 2"):
        scale.apply(fitted, file, tmp_path / "out", scheduler=client)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet"]


class KillsAWorker(Cluster):
    """A cluster of which a worker dies in the second pass, while it is at work."""

    def __init__(self, client) -> None:
        super().__init__(client)
        self.passes = 0

    def _started(self, function, items, arguments):
        started = super()._started(function, items, arguments)
        self.passes += 1
        if self.passes == 2:
            workers = self.client.scheduler_info()["workers"]
            pids = self.client.run(os.getpid)
            os.kill(pids[next(iter(workers))], signal.SIGKILL)
        return started


def test_a_worker_killed_in_the_middle_of_a_fit(folder, client, monkeypatch):
    whole = scale.fit(FocalTemperatureScaling(criterion="nll"), folder)
    engine = KillsAWorker(client)
    monkeypatch.setattr("calibrant.scale.fitting.engine_for", lambda _: _Given(engine))
    found = scale.fit(FocalTemperatureScaling(criterion="nll"), folder, scheduler="any")
    assert engine.passes > 2
    assert found.state_ == whole.state_
    assert found.report_ == whole.report_
    assert found.report_.passes == whole.report_.passes


def test_a_worker_killed_while_it_writes(folder, client, monkeypatch, tmp_path):
    calibrator = scale.fit(TemperatureScaling(), folder)
    engine = KillsAWorker(client)
    engine.passes = 1
    monkeypatch.setattr("calibrant.scale.application.engine_for", lambda _: _Given(engine))
    applied = scale.apply(calibrator, folder, tmp_path / "out", scheduler="any")
    assert applied.rows == 5 * ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for file in sorted(folder.iterdir()):
        expected = calibrator.predict_proba(probs=read_predictions(file).probs)
        written = read_predictions(tmp_path / "out" / file.name)
        np.testing.assert_array_equal(written.probs, expected)
    assert len(list((tmp_path / "out").rglob("*"))) == 5


def test_a_worker_killed_while_it_evaluates_groups(folder, client, monkeypatch):
    alone = scale.evaluate(folder, by=["label"])
    engine = KillsAWorker(client)
    engine.passes = 1
    monkeypatch.setattr("calibrant.scale.evaluation.engine_for", lambda _: _Given(engine))
    assert scale.evaluate(folder, by=["label"], scheduler="any") == alone


class _Given:
    def __init__(self, engine) -> None:
        self.engine = engine

    def __enter__(self):
        self.engine.client.wait_for_workers(2, timeout=300)  # one may be starting again
        return self.engine

    def __exit__(self, *_):
        return None


class InterruptedClient:
    def gather(self, futures):
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_traceback_of_dask(caplog):
    """When the client is closed, a task is left whose exception nobody asks for."""
    log = logging.getLogger("asyncio")
    other = RuntimeError("another")
    try:
        with pytest.raises(KeyboardInterrupt):
            Cluster(InterruptedClient())._gathered([])
        for error in (distributed.client.AllExit(), other):
            log.error("never retrieved", exc_info=error)
    finally:
        log.removeFilter(engine._not_of_a_gather)
    assert [record.exc_info[1] for record in caplog.records] == [other]
