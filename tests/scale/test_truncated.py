"""Files of the largest logits: read, refused, fitted, measured and calibrated."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant import FocalCalibration, FocalTemperatureScaling, TemperatureScaling, scale
from calibrant.calibrators import TruncatedRows, fit_truncated_rows
from calibrant.calibrators.temperature.rows import mapped_rows
from calibrant.files import read_predictions, write_truncated_predictions
from calibrant.files.parquet import is_truncated
from tests.processes import run_calibrant

N, CLASSES, K = 1500, 200, 20
RNG = np.random.default_rng(0)
LOGITS = -RNG.uniform(1.5, 3.0, size=(N, 1)) * np.log(np.arange(1, CLASSES + 1))
LOGITS += 0.4 * RNG.normal(size=LOGITS.shape)
LABELS = (LOGITS / 1.4 + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)
TOP = np.argsort(-LOGITS, axis=1)[:, :K]
COLUMNS = {
    "top_logits": np.take_along_axis(LOGITS, TOP, axis=1),
    "top_classes": TOP,
    "normaliser": np.log(np.exp(LOGITS).sum(axis=1)),
    "labels": LABELS,
    "label_logits": np.where((LABELS[:, None] == TOP).any(axis=1), np.nan, 0.0)
    + LOGITS[np.arange(N), LABELS],
}
ROWS = TruncatedRows.of(**COLUMNS, n_classes=CLASSES)
PROBS = np.exp(LOGITS - COLUMNS["normaliser"][:, None])


def write(file: Path, rows: slice | np.ndarray = np.s_[:], **changes: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    given = {name: values[rows] for name, values in (COLUMNS | changes).items()}
    write_truncated_predictions(file, **given, n_classes=CLASSES)
    return file


@pytest.fixture(params=[[], [700], [1, 17, 900], [100, 300, 500, 700, 900, 1100, 1300]])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    ends = [0, *request.param, N]
    for number, (start, stop) in enumerate(pairwise(ends)):
        write(tmp_path / "logs" / f"{9 - number}.parquet", np.s_[start:stop])
    return tmp_path / "logs"


def test_a_file_comes_back(tmp_path):
    read = read_predictions(write(tmp_path / "a.parquet"))
    assert read.n_classes == CLASSES
    assert len(read) == N
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(getattr(read, name), values)


def test_npz_files_are_read_and_not_fitted_by_the_command(tmp_path):
    file = tmp_path / "a.npz"
    names = {"label_logits": "label_logit"}
    np.savez(file, **{names.get(name, name): values for name, values in COLUMNS.items()})
    read = read_predictions(file)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(getattr(read, name), values)
    for command in (["fit", str(file), "-o", str(tmp_path / "a.json")], ["evaluate", str(file)]):
        result = run_calibrant(*command)
        assert result.exit_code != 0
        assert "Write them as Parquet" in result.output


def test_over_files_as_in_memory(folder):
    whole, apart = TemperatureScaling(), TemperatureScaling()
    bounds = fit_truncated_rows(whole, ROWS).report_.tail_bounds
    found = scale.fit(apart, folder)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    assert apart.n_classes_ == CLASSES
    for name in ("low", "high", "lowest", "highest"):
        assert getattr(found.report_.tail_bounds, name) == pytest.approx(
            getattr(bounds, name), rel=1e-9
        )
    assert str(found.report_.tail_bounds) in str(found.report_)
    assert found.report_.to_dict()["tail_bounds"]["everywhere"] is True


@pytest.mark.parametrize(
    ("method", "criterion"),
    [
        (TemperatureScaling, "ece"),
        (FocalTemperatureScaling, "nll"),
        pytest.param(FocalTemperatureScaling, "ece", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*at a bound of the search")
def test_the_same_gamma_and_temperature(tmp_path, method, criterion):
    whole = method(criterion=criterion)
    fit_truncated_rows(whole, ROWS.rows(np.s_[:600]))
    write(tmp_path / "a.parquet", np.s_[:251])
    write(tmp_path / "b.parquet", np.s_[251:600])
    found = scale.fit(method(criterion=criterion), tmp_path)
    assert found.state_ == whole.state_
    assert found.origin_.data == whole.origin_.data
    assert found.origin_.data.sha256 is not None
    assert found.report_.after == pytest.approx(whole.report_.after, abs=1e-9)
    assert found.report_.tail_bounds.low <= whole.report_.after <= found.report_.tail_bounds.high


def test_what_can_be_measured_is_exact(folder):
    measured = scale.evaluate(folder)
    whole = calibrant.evaluate(PROBS, LABELS, n_resamples=20)
    for name in ("ece", "mce", "nll", "error_rate", "confidence_gap", "s99"):
        assert measured[name].value == pytest.approx(whole[name].value, abs=1e-9)
    with pytest.raises(KeyError, match="brier was not measured"):
        measured["brier"]
    assert any("are not measured" in note for note in measured.notes)


@pytest.mark.parametrize("state", [{"temperature": 1.3}, {"gamma": 1.0, "temperature": 1.3}])
def test_calibrated_rows_are_within_the_bounds_they_state(tmp_path, state):
    write(tmp_path / "logs" / "day" / "a.parquet")
    with warnings.catch_warnings(action="ignore"):  # its own gamma is of no interest here
        calibrator = FocalTemperatureScaling(criterion="nll").fit_samples(ROWS)
    calibrator.state_ = {"gamma": 0.0} | state
    applied = scale.apply(calibrator, tmp_path / "logs", tmp_path / "out")
    assert applied.rows == N
    file = tmp_path / "out" / "day" / "a.parquet"
    table, read = pq.read_table(file), read_predictions(file)
    true_probs = np.take_along_axis(calibrator.predict_proba(LOGITS), TOP, axis=1)
    off = np.abs(np.exp(read.top_logits) - true_probs).max(axis=1)
    assert (off <= table["off_by"].to_numpy() + 1e-12).all()
    assert applied.off_by == table["off_by"].to_numpy().max()
    assert "change a probability by at most" in str(applied)
    np.testing.assert_array_equal(read.top_classes, TOP)
    np.testing.assert_array_equal(read.labels, LABELS)
    again = scale.evaluate(tmp_path / "out")  # what was written can be measured
    assert again["nll"].value == pytest.approx(
        -mapped_rows(ROWS, calibrator.gamma_, 1.0 / 1.3)[1].mean()
    )


def test_log_probabilities_in_half_precision_without_labels(tmp_path):
    log_probs = np.log(np.take_along_axis(PROBS, TOP, axis=1)).astype(np.float16)
    file = tmp_path / "a.parquet"
    write_truncated_predictions(file, top_logprobs=log_probs, top_classes=TOP, n_classes=CLASSES)
    calibrator = TemperatureScaling().fit_samples(ROWS)
    scale.apply(calibrator, file, tmp_path / "out")
    read = read_predictions(tmp_path / "out" / "a.parquet")
    assert read.top_logits.dtype == np.float32
    assert read.labels is None
    with pytest.raises(ValueError, match="labels are needed"):
        scale.fit(TemperatureScaling(), file)


def test_the_number_of_classes_must_be_said_once(tmp_path):
    file = write(tmp_path / "a.parquet")
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({}), file)
    with pytest.raises(ValueError, match="but not the number of classes"):
        scale.fit(TemperatureScaling(), file)
    assert scale.fit(TemperatureScaling(), file, n_classes=CLASSES).report_.tail_bounds is not None
    with pytest.raises(ValueError, match=f"has {CLASSES} classes; found n_classes = 7"):
        scale.fit(TemperatureScaling(), write(tmp_path / "b.parquet"), n_classes=7)


def test_labels_of_unknown_probability(tmp_path):
    file = tmp_path / "a.parquet"
    write(file)
    table = pq.read_table(file).drop_columns(["label_logit"])
    pq.write_table(table, file)
    unknown = int((~(LABELS[:, None] == TOP).any(axis=1)).sum())
    assert unknown > 0
    with pytest.raises(ValueError, match="is not among the known classes"):
        scale.fit(TemperatureScaling(), file)
    found = scale.fit(TemperatureScaling(), file, skip_bad=True)
    assert found.report_.skipped.rows == unknown
    assert found.report_.n_samples == N - unknown


def test_missing_label_logits_may_be_null(tmp_path):
    file = write(tmp_path / "a.parquet")
    table = pq.read_table(file)
    column = pa.array(COLUMNS["label_logits"], from_pandas=True)
    assert column.null_count > 0
    place = table.schema.get_field_index("label_logit")
    pq.write_table(table.set_column(place, "label_logit", column), file)
    whole = TemperatureScaling().fit_samples(ROWS)
    apart = scale.fit(TemperatureScaling(), file)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)


def test_garbage_is_refused_with_its_place(tmp_path):
    bad = COLUMNS["top_logits"].copy()
    bad[7, 3] = np.nan
    write(tmp_path / "a.parquet", top_logits=bad)
    with pytest.raises(
        ValueError, match=r"a\.parquet, row group 0, .*row 7: logits must be numbers"
    ):
        scale.fit(TemperatureScaling(), tmp_path)
    table = pq.read_table(write(tmp_path / "a.parquet"))
    pq.write_table(table.drop_columns(["top_classes"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="holds top_logits without top_classes"):
        scale.fit(TemperatureScaling(), tmp_path)
    lists = pa.array([[1, 2], [1]] * (N // 2))
    place = table.schema.get_field_index("top_classes")
    pq.write_table(table.set_column(place, "top_classes", lists), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="lists of top_classes must be of one length"):
        scale.fit(TemperatureScaling(), tmp_path)
    write(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="expected a method for truncated rows"):
        scale.fit(calibrant.CALIBRATORS["vector"](), tmp_path)


def test_what_cannot_be_written():
    top = {"top_classes": TOP, "n_classes": CLASSES}
    with pytest.raises(ValueError, match="got top_logits without one"):
        write_truncated_predictions("a.parquet", top_logits=COLUMNS["top_logits"], **top)
    with pytest.raises(ValueError, match=r"written as \.parquet"):
        write_truncated_predictions("a.csv", top_logprobs=COLUMNS["top_logits"], **top)


def test_endings_in_capitals_are_known_too(tmp_path):
    write(tmp_path / "logs" / "a.parquet").rename(tmp_path / "logs" / "a.PARQUET")
    assert is_truncated(tmp_path / "logs")
    (tmp_path / "empty").mkdir()
    assert not is_truncated(tmp_path / "empty")


def test_the_commands_know_the_layout(tmp_path):
    write(tmp_path / "logs" / "a.parquet")
    logs, output = str(tmp_path / "logs"), str(tmp_path / "cal.json")

    def run(*arguments: str) -> str:
        result = run_calibrant(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    said = run("fit", logs, "--method", "temperature", "-o", output)
    assert "Whatever the unknown classes are, nll is between" in said
    assert "FILE -o calibrated\nTo measure it: calibrant evaluate calibrated\n" in said
    assert "are not measured" in run("evaluate", logs)
    applied = run("apply", output, logs, "-o", str(tmp_path / "out"))
    assert f"{N} rows calibrated" in applied
    refused = run_calibrant("apply", output, logs, "-o", tmp_path / "a.npz")
    assert "truncated rows need a folder" in refused.output


def test_files_of_several_float_types_keep_their_own_precision(tmp_path):
    """Half precision beside single: each file is allowed the rounding of its own type."""
    known = 190  # so many that what is left for the others is less than rounding
    top = np.argsort(-LOGITS, axis=1)[:, :known]
    columns = COLUMNS | {
        "top_logits": np.take_along_axis(LOGITS, top, axis=1).astype(np.float32),
        "top_classes": top,
    }
    for name, rows, kind in (("a", np.s_[:700], np.float16), ("b", np.s_[700:], np.float32)):
        given = {key: values[rows] for key, values in columns.items()}
        given["top_logits"] = given["top_logits"].astype(kind)
        (tmp_path / name).mkdir()
        for folder in (tmp_path / name, tmp_path):
            write_truncated_predictions(folder / f"{name}.parquet", **given, n_classes=CLASSES)
    for name in "ab":
        alone = scale.fit(TemperatureScaling(), tmp_path / name).report_
        assert alone.n_samples == (700 if name == "a" else N - 700)
        (tmp_path / name / f"{name}.parquet").unlink()
    assert scale.fit(TemperatureScaling(), tmp_path).report_.n_samples == N


@pytest.mark.parametrize("gamma", [3.0, 12.0, 50.0])
def test_bounds_of_a_sure_row_at_a_large_gamma_are_numbers(tmp_path, gamma):
    logits = LOGITS[:40].copy()
    logits[0, 7] += 70.0
    top = np.argsort(-logits, axis=1)[:, :K]
    labels = np.where(np.arange(40) == 0, 3, LABELS[:40])
    write_truncated_predictions(
        tmp_path / "a.parquet",
        top_logits=np.take_along_axis(logits, top, axis=1),
        top_classes=top,
        labels=labels,
        label_logits=logits[np.arange(40), labels],
        normaliser=np.log(np.exp(logits - 80).sum(axis=1)) + 80,
        n_classes=CLASSES,
    )
    found = scale.fit(FocalCalibration(gamma=gamma), tmp_path)
    exact = FocalCalibration(gamma=gamma).fit(logits, labels).report_.after
    assert found.report_.tail_bounds.low <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= found.report_.tail_bounds.high < np.inf
