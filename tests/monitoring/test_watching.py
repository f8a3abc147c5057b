"""``watch`` over files: the same answer however they arrive and wherever they are read."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import GroupedCalibration, TemperatureScaling
from calibrant.errors import CalibrantError
from calibrant.monitoring import Watch, watch
from calibrant.monitoring.page import write_page
from tests.monitoring.conftest import logs

DAYS = 8


def same(one: Watch, other: Watch) -> None:
    """The same numbers, except for the order in which sums were added."""
    for first, second in zip(one.periods, other.periods, strict=True):
        assert first.name == second.name
        assert first.gap.n == second.gap.n
        assert first.gap.gap == pytest.approx(second.gap.gap, abs=1e-12)
        assert first.nll == pytest.approx(second.nll)
        assert first.log_e == pytest.approx(second.log_e, abs=1e-8)
    assert (one.alarm is None) == (other.alarm is None)
    if one.diagnosis is not None and other.diagnosis is not None:
        assert one.diagnosis.since == other.diagnosis.since
        assert one.diagnosis.repair.name == other.diagnosis.repair.name


def test_a_calibrated_model_raises_no_alarm(write):
    folder = write(logs(DAYS), range(DAYS))
    found = watch(folder, time="day", by=["sex"])
    assert found.alarm is None
    assert found.diagnosis is None
    assert found.n == 400 * DAYS
    assert found.periods[0].name == "2026-10-01"
    assert "No alarm" in str(found)


def test_a_change_is_found(write):
    folder = write(logs(DAYS, change=4), range(DAYS))
    found = watch(folder, time="day", by="sex")
    assert found.alarm is not None
    assert found.alarm.period in ("2026-10-05", "2026-10-06")
    assert found.diagnosis.since == "2026-10-05"
    assert found.diagnosis.earliest <= "2026-10-05" <= found.diagnosis.latest
    assert {gap.what for gap in found.diagnosis.off} == {"all samples", "sex=f", "sex=m"}
    assert all(gap.gap > 0.05 for gap in found.diagnosis.off)
    repair = found.diagnosis.repair
    assert repair.name == "offset"
    assert repair.factors[1] / repair.factors[0] == pytest.approx(np.exp(-1.0), rel=0.2)
    assert "ALARM" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_class_of_many_is_named(write):
    table = logs(DAYS, k=4, change=3)
    found = watch(write(table, range(DAYS)), time="day")
    assert found.diagnosis.since == "2026-10-04"
    assert next(iter(found.diagnosis.evidence)) == "class 1"
    assert "class 1" in {gap.what for gap in found.diagnosis.off}
    assert (found.probability, found.rate) == ("confidence", "accuracy")


@pytest.mark.parametrize("change", [None, pytest.param(4, marks=pytest.mark.slow)])
def test_day_by_day_is_all_at_once(change, write, tmp_path):
    table = logs(DAYS, change=change)
    state = tmp_path / "state.json"
    for day in range(DAYS):
        step = watch(write(table, range(day, day + 1)), time="day", by=["sex"], state=state)
        assert len(step.periods) == day + 1
    at_once = watch(tmp_path / "logs", time="day", by=["sex"])
    same(step, at_once)
    again = watch(tmp_path / "logs", time="day", by=["sex"], state=state)
    assert again == step  # nothing new: nothing changes


def with_missing(table: pa.Table, known: np.ndarray) -> pa.Table:
    """The table without the labels that are not known yet."""
    labels = pa.array(table["label"].to_numpy(), mask=~known)
    return table.set_column(table.column_names.index("label"), "label", labels)


def test_late_labels_count_when_they_come(write, tmp_path):
    table = logs(4)
    state = tmp_path / "state.json"
    known = np.random.default_rng(1).random(len(table)) < 0.6
    folder = write(with_missing(table, known), range(4))
    early = watch(folder, time="day", state=state)
    assert (early.n, early.waiting) == (known.sum(), (~known).sum())
    write(table, range(2))
    late = watch(folder, time="day", state=state)
    n = known[800:].sum() + 800
    assert (late.n, late.waiting) == (n, len(table) - n)
    assert [step.period for step in late.steps[4:]] == ["2026-10-01", "2026-10-02"]
    write(table, range(2, 4))
    last, at_once = watch(folder, time="day", state=state), watch(folder, time="day")
    assert last.waiting == 0
    for one, other in zip(last.periods, at_once.periods, strict=True):
        assert (one.gap.n, one.nll) == (other.gap.n, pytest.approx(other.nll))
        assert one.gap.gap == pytest.approx(other.gap.gap)


def test_a_day_without_labels_waits(write, tmp_path):
    table = logs(2)
    none = table.set_column(table.column_names.index("label"), "label", pa.nulls(len(table)))
    write(table, range(1))
    folder = write(none, range(1, 2))
    found = watch(folder, time="day", state=tmp_path / "s.json")
    assert (len(found.periods), found.waiting) == (1, 400)
    only = watch(folder / "2026-10-02.parquet", time="day")
    assert (only.periods, only.n, only.waiting, only.alarm) == ((), 0, 400, None)
    assert str(only).endswith("No verdict: no sample that counts has a label yet.")
    late = watch(folder, time="day", since="2027-01-01")  # such as a mistyped year
    assert (late.n, late.verdict()) == (0, only.verdict())
    write_page(only, tmp_path / "page.html")


def test_the_positive_class_of_labels_in_words(write, tmp_path):
    table = logs(4)
    names = np.where(table["label"].to_numpy() == 1, "yes", "no")
    words = table.set_column(table.column_names.index("label"), "label", pa.array(names))
    numbers = watch(write(table, range(4)), time="day")
    folder, state = write(words, range(2)), tmp_path / "s.json"
    for file in ("2026-10-03", "2026-10-04"):
        (folder / f"{file}.parquet").unlink()
    watch(folder, time="day", positive="yes", state=state)
    found = watch(write(words, range(4)), time="day", positive="yes", state=state)
    assert found.class_names == ("no", "yes")
    assert [each.gap for each in found.periods] == [each.gap for each in numbers.periods]
    with pytest.raises(CalibrantError, match="name the positive one: --positive LABEL"):
        watch(folder, time="day")
    with pytest.raises(CalibrantError, match="positive must be one of the labels, 'no', 'yes'"):
        watch(folder, time="day", positive="maybe")


def test_a_state_without_the_setting_of_the_positive_class_is_read(write, tmp_path):
    """Files of earlier versions have no such setting."""
    folder, state = write(logs(2), range(2)), tmp_path / "s.json"
    first = watch(folder, time="day", state=state)
    content = json.loads(state.read_text())
    assert content["settings"].pop("positive") is None
    state.write_text(json.dumps(content))
    same(watch(folder, time="day", state=state), first)
    with pytest.raises(CalibrantError, match="positive"):
        watch(folder, time="day", state=state, positive="1")


def test_columns_of_the_path(write):
    table = logs(DAYS, change=4)
    one = watch(write(table, range(DAYS)), time="day")
    for file in write(table, range(0)).glob("*.parquet"):
        file.unlink()
    other = watch(write(table, range(DAYS), partitioned=True), time="day")
    same(one, other)
    assert len(watch(one.where, time="day", by=["day"]).periods) == DAYS


def test_a_change_in_one_group_is_named(write):
    table = logs(DAYS, rows=800)
    raised = table["prob"].to_numpy() ** 0.4
    of_group = (table["sex"].to_numpy() == "f") & (np.arange(len(table)) >= 800 * 5)
    prob = np.where(of_group, raised, table["prob"].to_numpy())
    found = watch(
        write(table.set_column(2, "prob", pa.array(prob)), range(DAYS)), time="day", by="sex"
    )
    assert found.diagnosis.since == "2026-10-06"
    assert next(iter(found.diagnosis.evidence)) == "sex=f"
    assert "sex=m" not in {gap.what for gap in found.diagnosis.off}


def test_earlier_periods_can_be_left_out(write, tmp_path):
    table = logs(4)
    folder = write(with_missing(table, np.arange(1600) % 2 == 0), range(4))
    for since in ("2026-10-03", "2026-10-03T12:00:00"):
        found = watch(folder, time="day", since=since, state=tmp_path / "s.json")
        assert [period.name for period in found.periods] == ["2026-10-03", "2026-10-04"]
        assert (found.n, found.waiting) == (400, 400)
    later = watch(folder, time="day", since="2027-01-01")
    assert (later.n, later.waiting, later.alarm) == (0, 0, None)


def test_longer_periods(write):
    folder = write(logs(DAYS), range(DAYS))
    weeks = watch(folder, time="day", every="week")
    assert [period.name for period in weeks.periods] == ["2026-09-28", "2026-10-05"]
    assert [period.gap.n for period in weeks.periods] == [1600, 1600]


def test_a_calibrator_comes_first(write, tmp_path):
    table = logs(DAYS)
    odds = np.log(table["prob"].to_numpy()) - np.log1p(-table["prob"].to_numpy())
    sharp = 1.0 / (1.0 + np.exp(-3.0 * odds))
    table = table.set_column(2, "prob", pa.array(sharp))
    logits = np.stack([np.zeros(len(odds)), 3.0 * odds], axis=1)
    TemperatureScaling().fit(logits, table["label"].to_numpy()).save(tmp_path / "cal.json")
    folder = write(table, range(DAYS))
    before = watch(folder, time="day")
    assert before.alarm is not None
    assert before.diagnosis.repair.name == "temperature"
    assert before.diagnosis.repair.temperature == pytest.approx(3.0, rel=0.1)
    assert watch(folder, time="day", calibrator=tmp_path / "cal.json").alarm is None


def test_a_calibrator_of_groups_comes_first(write, tmp_path):
    table = logs(DAYS, rows=800)
    prob, sex = table["prob"].to_numpy(), table["sex"].to_numpy()
    table = table.set_column(2, "prob", pa.array(np.where(sex == "f", prob**0.5, prob)))
    fitted = GroupedCalibration(base="temperature").fit(
        probs=table["prob"].to_numpy(), labels=table["label"].to_numpy(), groups={"sex": sex}
    )
    folder = write(table, range(DAYS))
    assert watch(folder, time="day", by=["sex"]).alarm is not None
    assert watch(folder, time="day", by=["sex"], calibrator=fitted).alarm is None


def test_confidences_will_do(tmp_path):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, size=4000)
    correct = rng.random(4000) < confidence - 0.1
    table = {"t": np.arange(4000) // 500, "confidence": confidence, "correct": correct}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    found = watch(tmp_path / "a.parquet", time="t")
    assert (found.probability, found.rate) == ("confidence", "accuracy")
    assert found.diagnosis.since == "0"


@pytest.mark.slow
def test_the_same_to_the_last_bit_on_workers(write, monkeypatch):
    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", 1000)
    folder = write(logs(DAYS, change=4), range(DAYS))
    alone = watch(folder, time="day", by=["sex"])
    assert watch(folder, time="day", by=["sex"], scheduler="local") == alone


@pytest.mark.slow
def test_the_same_to_the_last_bit_on_a_cluster_that_loses_a_worker(write, monkeypatch):
    distributed = pytest.importorskip("distributed")
    from calibrant.scale.engine import Cluster

    class KillsAWorker(Cluster):
        def _started(self, *work):
            started = super()._started(*work)
            if self.n_started == 1:
                workers = self.client.scheduler_info()["workers"]
                os.kill(self.client.run(os.getpid)[next(iter(workers))], signal.SIGKILL)
            return started

    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", 1000)
    folder = write(logs(DAYS, change=4), range(DAYS))
    alone = watch(folder, time="day", by=["sex"])
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
        assert watch(folder, time="day", by=["sex"], scheduler=client) == alone
        engine = nullcontext(KillsAWorker(client))
        monkeypatch.setattr("calibrant.monitoring.watching.engine_for", lambda _: engine)
        assert watch(folder, time="day", by=["sex"], scheduler=client) == alone


def test_a_row_of_an_impossible_label_is_evidence(tmp_path):
    table = pa.table({"t": [1, 1, 2], "prob": [1.0, 0.5, 0.0], "label": [0, 1, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = watch(tmp_path / "a.parquet", time="t", state=tmp_path / "s.json")
    assert found.alarm is not None
    assert np.isfinite([period.nll for period in found.periods]).all()
    assert found.diagnosis.repair.name == "nothing"


def test_the_page_shows_the_history(write, tmp_path):
    table = logs(DAYS, k=3, change=4).rename_columns(
        ["day", "sex", "prob_<b>", "prob_dog", "prob_cat", "label"]
    )
    table = table.set_column(1, "sex", pa.array(["<script>"] * len(table)))
    table = table.set_column(5, "label", pa.array(np.array(["<b>", "dog", "cat"])[table["label"]]))
    found = watch(write(table, range(DAYS)), time="day", by=["sex"])
    write_page(found, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "<b>" not in text
    assert text.count("<svg") == 2
    assert "2026-10-05" in text
    assert "ALARM" in text
    assert "http" not in text.replace("http-equiv", "")
