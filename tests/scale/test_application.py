"""A calibrated file for each file, and a folder that is whole or not there."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import TemperatureScaling, load, nll, scale
from calibrant.cli.data_sets import LOCAL, DataSetOptions
from calibrant.cli.progress import passes_bar
from calibrant.files import read_predictions, write_predictions
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), size=900)
LABELS = (np.log(PROBS) / 2 + RNG.gumbel(size=PROBS.shape)).argmax(axis=1)
NAMES = ("ant", "bee", "cat")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = tmp_path / "data"
    (where / "day=1").mkdir(parents=True)
    for number, file in enumerate(["a.parquet", "b.parquet", "day=1/a.parquet"]):
        rows = slice(300 * number, 300 * number + 300)
        ids = np.arange(900)[rows]
        content = {"probs": PROBS[rows], "labels": LABELS[rows], "ids": ids, "class_names": NAMES}
        write_predictions(where / file, **content)
    pq.write_table(pa.table({"label": pa.array([], pa.int64())}), where / "empty.parquet")
    return where


@pytest.fixture
def calibrator() -> TemperatureScaling:
    return TemperatureScaling().fit(probs=PROBS, labels=LABELS)


def test_every_file_under_its_name(folder, calibrator, tmp_path):
    applied = scale.apply(calibrator, folder, tmp_path / "out")
    assert (applied.files, applied.rows) == (4, 900)
    for number, file in enumerate(["a.parquet", "b.parquet", "day=1/a.parquet"]):
        rows = slice(300 * number, 300 * number + 300)
        written = read_predictions(tmp_path / "out" / file)
        np.testing.assert_array_equal(written.probs, calibrator.predict_proba(probs=PROBS[rows]))
        np.testing.assert_array_equal(written.labels, LABELS[rows])
        np.testing.assert_array_equal(written.ids, np.arange(900)[rows])
        assert written.class_names == NAMES
    assert pq.read_metadata(tmp_path / "out" / "empty.parquet").num_rows == 0


def test_files_name_the_calibrator(folder, calibrator, tmp_path):
    calibrator.save(tmp_path / "cal.json", metadata={"model": "a"})
    scale.apply(load(tmp_path / "cal.json"), folder, tmp_path / "out")
    digest = hashlib.sha256((tmp_path / "cal.json").read_bytes()).hexdigest()
    for file in ("a.parquet", "day=1/a.parquet"):
        metadata = pq.read_schema(tmp_path / "out" / file).metadata
        assert metadata[b"calibrant.calibrator"].decode() == digest


def test_nothing_is_left_of_a_failure(folder, calibrator, tmp_path):
    probs = PROBS[:300].copy()
    probs[299] = np.nan
    columns = {f"prob_{k}": probs[:, k] for k in range(3)}
    table = {"id": np.arange(300), "label": LABELS[:300], **columns}
    pq.write_table(pa.table(table), folder / "b.parquet")
    with pytest.raises(ValueError, match=r"b.parquet, row group 0.*NaN"):
        scale.apply(calibrator, folder, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    applied = scale.apply(calibrator, folder, tmp_path / "out", skip_bad=True)
    assert applied.rows == 899
    assert applied.skipped.rows == 1
    assert "1 rows" in str(applied)


@pytest.mark.parametrize("damage", ["footer", "pages", "every row"])
def test_a_file_that_is_left_out_whole_is_not_written(folder, calibrator, tmp_path, damage):
    file = folder / "b.parquet"
    content = file.read_bytes()
    if damage == "footer":
        file.write_bytes(content[:-30])
    elif damage == "pages":
        file.write_bytes(content[:4] + bytes(2000) + content[2004:])
    else:
        columns = {f"prob_{k}": np.full(300, np.nan) for k in range(3)}
        table = {"id": np.arange(300), "label": LABELS[:300], **columns}
        pq.write_table(pa.table(table), file)
    applied = scale.apply(calibrator, folder, tmp_path / "out", skip_bad=True)
    assert (applied.files, applied.rows) == (3, 600)
    assert applied.skipped
    written = sorted(path.name for path in (tmp_path / "out").rglob("*.parquet"))
    assert written == ["a.parquet", "a.parquet", "empty.parquet"]


def test_a_folder_that_is_there_stays(folder, calibrator, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        scale.apply(calibrator, folder, tmp_path / "out")
    with pytest.raises(ValueError, match="Choose a folder beside it"):
        scale.apply(calibrator, folder, folder / "out")
    with pytest.raises(FileNotFoundError, match="Create it first"):
        scale.apply(calibrator, folder, tmp_path / "none" / "out")


def run(*arguments: object) -> str:
    result = run_calibrant(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands without the time that a cluster takes to start; the schedulers asked for."""
    from calibrant.scale import engine

    asked: list[object] = []
    alone = engine.engine_for

    def noted(scheduler):
        asked.append(scheduler)
        return alone(None)

    for module in ("evaluation", "fitting", "application"):
        monkeypatch.setattr(f"calibrant.scale.{module}.engine_for", noted)
    return asked


def test_the_commands(folder, tmp_path, in_process):
    cal, out = tmp_path / "cal.json", tmp_path / "out"
    assert "The files were read" in run(
        "fit", folder, "--method", "temperature", "-o", cal, "--scheduler", "tcp://head:8786"
    )
    whole = TemperatureScaling().fit(probs=PROBS, labels=LABELS)
    assert load(cal).temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    assert "900 samples, 3 classes" in run("evaluate", folder, "--scheduler", "local")
    assert "900 rows calibrated, in 4 files." in run("apply", cal, folder, "-o", out)
    assert in_process == ["tcp://head:8786", "local", None]


def test_the_commands_say_what_they_left_out(folder, in_process):
    (folder / "b.parquet").write_bytes(b"PAR1")
    result = run_calibrant("evaluate", folder, "--scheduler", "local")
    assert result.exit_code == 2
    assert "b.parquet cannot be read as Parquet" in result.output
    assert "1 whole files" in run("evaluate", folder, "--skip-bad")


def test_a_file_is_not_a_folder(folder, tmp_path):
    TemperatureScaling().fit(probs=PROBS, labels=LABELS).save(tmp_path / "cal.json")
    arguments = ["apply", tmp_path / "cal.json", folder, "-o", tmp_path / "x.npz", "--skip-bad"]
    result = run_calibrant(*arguments)
    assert result.exit_code == 2
    assert "need a folder as output" in result.output


@pytest.mark.parametrize("skip_bad", [(), ("--skip-bad",)])
def test_another_number_of_classes_than_the_files_have(folder, tmp_path, skip_bad):
    cal, file = tmp_path / "cal.json", folder / "a.parquet"
    TemperatureScaling().fit(probs=PROBS, labels=LABELS).save(cal)
    out = tmp_path / ("out" if skip_bad else "out.npz")
    for command in (["evaluate", file], ["fit", file, "-o", cal], ["apply", cal, file, "-o", out]):
        arguments = [str(each) for each in (*command, *skip_bad)]
        if skip_bad and command[0] == "fit":
            arguments += ["--method", "temperature"]
        result = run_calibrant(*arguments, "--classes", "7")
        assert result.exit_code == 2
        assert "has 3 classes; found n_classes = 7" in result.output
    assert not out.exists()
    run("evaluate", file, *skip_bad, "--classes", 3)


def test_what_takes_a_cluster_by_itself(folder, tmp_path, monkeypatch):
    in_memory = "in memory"

    def chosen(file: Path, scheduler: str | None = None, *, skip_bad=False, rows_in_memory=600):
        options = DataSetOptions(scheduler, skip_bad)
        parts = options.in_parts(str(file), {}, rows_in_memory=rows_in_memory)
        return in_memory if parts is None else parts["scheduler"]

    flat = tmp_path / "flat"
    flat.mkdir()
    shutil.copy(folder / "a.parquet", flat)
    rows = pq.read_metadata(flat / "a.parquet").num_rows
    assert chosen(flat, rows_in_memory=rows) == in_memory
    assert chosen(flat, rows_in_memory=rows - 1) is None  # this process
    assert chosen(flat, skip_bad=True) is None
    assert chosen(flat, "tcp://head:8786", skip_bad=True) == "tcp://head:8786"
    assert chosen(flat / "a.parquet", rows_in_memory=1) == in_memory
    assert chosen(folder, rows_in_memory=10**6) == in_memory  # with files in folders inside
    monkeypatch.setattr("calibrant._thresholds.ROWS_IN_ONE_PROCESS", rows - 1)
    assert chosen(flat, rows_in_memory=rows) == in_memory
    assert chosen(flat, rows_in_memory=rows - 1) == LOCAL
    assert chosen(flat, skip_bad=True) == LOCAL


def test_progress_is_told(folder, calibrator, tmp_path):
    told: list[tuple[int, int, int]] = []

    def note(number: int, done: int, of: int) -> None:
        told.append((number, done, of))

    scale.evaluate(folder, progress=note)
    assert told == [(1, 1, 1)]
    told.clear()
    found = scale.fit(TemperatureScaling(), folder, progress=note)
    assert told == [(number, 1, 1) for number in range(1, found.report_.passes + 1)]
    told.clear()
    scale.apply(calibrator, folder, tmp_path / "out", progress=note)
    assert told == [(1, done, 4) for done in (1, 2, 3, 4)]


def test_a_bar_begins_anew_with_each_pass(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", screen)
    with passes_bar("fitting on logs") as show:
        for number, done in [(1, 1), (1, 2), (2, 1), (1, 2), (2, 2)]:  # one comes late
            show(number, done, 2)
    shown = re.findall(r"(\d/\d) +pass (\d)", screen.getvalue())
    assert shown == [("1/2", "1"), ("2/2", "1"), ("1/2", "2"), ("2/2", "2")]


def test_columns_can_be_named(tmp_path):
    p = RNG.random(600)
    outcome = (RNG.random(600) < p).astype(int)
    (tmp_path / "logs").mkdir()
    for number in range(2):
        rows = slice(300 * number, 300 * number + 300)
        columns = {"risk_prob": p[rows], "outcome": outcome[rows]}
        pq.write_table(pa.table(columns), tmp_path / "logs" / f"{number}.parquet")
    named = {"label": "outcome", "score": "risk_prob"}
    fitted = scale.fit(TemperatureScaling(), tmp_path / "logs", **named)
    together = TemperatureScaling().fit(probs=p, labels=outcome)
    assert fitted.temperature_ == pytest.approx(together.temperature_, abs=1e-9)
    assert scale.evaluate(tmp_path / "logs", **named).n == 600
    scale.apply(fitted, tmp_path / "logs", tmp_path / "out", **named)
    written = pq.read_table(tmp_path / "out" / "1.parquet")
    assert written.column_names == ["outcome", "prob"]
    expected = fitted.predict_proba(probs=p[300:])
    np.testing.assert_allclose(written["prob"].to_numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("option", "message"),
    [("--positive", "--positive is for one column of scores; found 3"), ("--source", "--source")],
)
def test_options_for_other_data_are_refused(folder, option, message):
    done = run_calibrant("evaluate", folder, option, "cat", "--scheduler", "local")
    assert done.exit_code == 2
    assert message in done.stderr


def test_the_positive_class_can_be_named(tmp_path):
    p = RNG.random(600)
    sick = RNG.random(600) < p
    order = np.argsort(sick)  # the first file has one label only
    p, sick = p[order], sick[order]
    (tmp_path / "logs").mkdir()
    for number, rows in enumerate([slice(0, 100), slice(100, 600)]):
        columns = {"prob": p[rows], "label": np.where(sick[rows], "sick", "well")}
        pq.write_table(pa.table(columns), tmp_path / "logs" / f"{number}.parquet")
    fitted = scale.fit(TemperatureScaling(), tmp_path / "logs", positive="sick")
    together = TemperatureScaling().fit(probs=p, labels=sick.astype(int))
    assert fitted.temperature_ == pytest.approx(together.temperature_, abs=1e-9)
    assert fitted.classes_ == ("well", "sick")
    evaluated = scale.evaluate(tmp_path / "logs", positive="sick")
    assert evaluated["nll"].value == pytest.approx(nll(probs=p, labels=sick.astype(int)))
    scale.apply(fitted, tmp_path / "logs", tmp_path / "out", positive="sick")
    scale.apply(fitted, tmp_path / "logs", tmp_path / "same")  # the calibrator knows its classes
    same, out = (read_predictions(tmp_path / name, positive="sick") for name in ("same", "out"))
    np.testing.assert_array_equal(same.probs, out.probs)
    written = pq.read_table(tmp_path / "out" / "1.parquet")
    np.testing.assert_allclose(written["prob"], fitted.predict_proba(probs=p[100:]), rtol=1e-12)
    with pytest.raises(ValueError, match="'ill'"):
        scale.evaluate(tmp_path / "logs", positive="ill")
    done = run_calibrant("evaluate", tmp_path / "logs", "--skip-bad", "--positive", "sick")
    assert done.exit_code == 0, done.output
