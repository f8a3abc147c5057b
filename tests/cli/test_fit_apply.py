"""``calibrant fit`` and ``calibrant apply`` on good files and bad ones."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrant import CALIBRATORS, TemperatureScaling, load
from calibrant.files import read_predictions, write_predictions
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 5, 400)
LOGITS = 3.0 * (RNG.standard_normal((400, 5)) + 1.5 * np.eye(5)[LABELS])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
NAMES = ("a", "b", "c", "d", "e")
FORMATS = (".npz", ".parquet", ".csv")


def refused(folder: Path, message: str, *arguments: object) -> None:
    """One line, status 2, and nothing written."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = run_calibrant(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, val_logits=LOGITS, val_labels=LABELS, test_logits=LOGITS)
    return path


@pytest.fixture
def calibrator(tmp_path):
    path = tmp_path / "cal.json"
    TemperatureScaling().fit(LOGITS, LABELS).save(path)
    return path


def test_fit_writes_what_the_library_fits(file, tmp_path):
    result = run_calibrant(
        "fit", f"{file}::val", "--method", "temperature", "-o", tmp_path / "cal.json"
    )
    assert result.exit_code == 0, result.output
    expected = TemperatureScaling().fit(LOGITS, LABELS)
    fitted = load(tmp_path / "cal.json")
    assert fitted.temperature_ == expected.temperature_
    assert str(expected.report_) in result.stdout
    assert f"calibrant apply {tmp_path / 'cal.json'} FILE" in result.stdout
    assert "calibrant evaluate" in result.stdout


@pytest.mark.parametrize("ending", FORMATS)
def test_fit_reads_every_format(tmp_path, ending):
    path = tmp_path / f"val{ending}"
    write_predictions(path, probs=PROBS, labels=LABELS)
    result = run_calibrant("fit", path, "--method", "temperature", "-o", tmp_path / "cal.json")
    assert result.exit_code == 0, result.output
    expected = TemperatureScaling().fit(probs=PROBS, labels=LABELS).temperature_
    assert load(tmp_path / "cal.json").temperature_ == pytest.approx(expected, rel=1e-12)


def test_fit_as_json(file, tmp_path):
    out = tmp_path / "cal.json"
    result = run_calibrant("fit", f"{file}::val", "--method", "temperature", "-o", out, "--json")
    report = json.loads(result.stdout)
    assert report == load(out).report_.to_dict()
    assert report["n_samples"] == 400


def test_fit_says_what_speaks_against_it_once(tmp_path):
    # Warnings are errors in these tests, so one that got out would fail here.
    path = tmp_path / "few.npz"
    np.savez(path, logits=LOGITS[:30], labels=LABELS[:30])
    result = run_calibrant("fit", path, "--method", "temperature", "-o", tmp_path / "cal.json")
    assert result.exit_code == 0, result.output
    assert result.output.count("30 samples only") == 1
    assert result.stderr == ""


@pytest.mark.parametrize("text", ["3", "3.0", "0.3e1"])
def test_a_parameter_is_set(file, tmp_path, text):
    out = tmp_path / "cal.json"
    result = run_calibrant(
        "fit", f"{file}::val", "--method", "focal", "--set", f"gamma={text}", "-o", out
    )
    assert result.exit_code == 0, result.output
    assert load(out).get_params() == {"gamma": 3.0}


def test_a_word_is_set(file, tmp_path):
    out = tmp_path / "cal.json"
    run_calibrant(
        "fit", f"{file}::val", "--method", "temperature", "--set", "criterion=nll", "-o", out
    )
    assert load(out).get_params()["criterion"] == "nll"


def test_help_lists_every_method_with_what_it_is():
    text = "".join(run_calibrant("fit", "--help").stdout.split())  # lines may be broken at hyphens
    for name, cls in CALIBRATORS.items():
        assert name in text
        assert "".join(cls.__doc__.splitlines()[0].split()) in text
        for parameter in cls._param_names():
            assert parameter in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "temprature"], "Did you mean 'temperature'?"),
        (["--method", "focal"], "focal needs gamma. Add --set gamma=VALUE"),
        (["--method", "focal", "--set", "gamma"], "--set takes NAME=VALUE"),
        (["--method", "focal", "--set", "gamma=1", "--set", "gamma=2"], "each name once"),
        (["--method", "focal", "--set", "gamma=x"], "gamma must be a number; found str 'x'"),
        (["--method", "focal", "--set", "gamma="], "gamma must be a number"),
        (["--method", "focal", "--set", "gamma=[3]"], "gamma must be a number"),
        (["--method", "focal", "--set", "gamma=" + "[" * 9000], "gamma must be a number"),
        (["--method", "focal", "--set", "gamma=" + "9" * 9000], "gamma must be"),
        (["--method", "focal", "--set", "gamma=true"], "gamma must be a number; found bool"),
        (["--method", "focal", "--set", "gamma=NaN"], "gamma must be finite"),
        (["--method", "focal", "--set", "gamma=-2"], "gamma must be at least -1"),
        (["--method", "focal", "--set", "delta=1"], "no parameter 'delta'. It has gamma"),
        (["--method", "identity", "--set", "x=1"], "no parameter 'x'. It has none"),
    ],
)
def test_a_bad_choice_gets_one_line(file, tmp_path, arguments, message):
    refused(tmp_path, message, "fit", f"{file}::val", *arguments, "-o", tmp_path / "cal.json")


BAD_SAMPLES = [
    ({"logits": LOGITS}, "bad.npz: labels are needed"),
    ({"logits": np.full((2, 3), np.nan), "labels": [0, 1]}, "bad.npz: logits must not contain NaN"),
    ({"probs": np.full((2, 3), 0.9), "labels": [0, 1]}, "found 2.7 in row 0"),
    ({"logits": LOGITS, "labels": LABELS + 9}, "labels must be between 0 and 4"),
    ({"logits": LOGITS[:0], "labels": LABELS[:0]}, "has no rows"),
    ({"logits": [[-np.inf, 0.0]], "labels": [0]}, "the true class must be possible"),
    ({"other": LOGITS}, "neither logits nor probs"),
    ({"logits": LOGITS, "probs": PROBS, "labels": LABELS}, "one kind of score"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_SAMPLES)
def test_samples_that_cannot_be_fitted_on_get_one_line(tmp_path, arrays, message):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    refused(tmp_path, message, "fit", path, "--method", "temperature", "-o", tmp_path / "cal.json")


def test_fit_writes_nowhere_it_should_not(file, tmp_path):
    (tmp_path / "folder.json").mkdir()
    for output, message in (
        ("cal.npz", "-o must end in .json"),
        ("net.npz", "-o must end in .json"),
        ("no/cal.json", "there is no folder"),
        ("folder.json", "it is a folder"),
    ):
        arguments = ["fit", f"{file}::val", "--method", "identity", "-o", tmp_path / output]
        refused(tmp_path, message, *arguments)


def test_hyphens_and_underscores_are_the_same(file, tmp_path):
    options = [
        "--method",
        "focal_temperature",
        "--set",
        "criterion=ada-ece",
        "--set",
        "search=line",
    ]
    result = run_calibrant("fit", f"{file}::val", *options, "-o", tmp_path / "cal.json")
    assert result.exit_code == 0, result.output
    fitted = load(tmp_path / "cal.json")
    assert (fitted.NAME, fitted.criterion) == ("focal-temperature", "ada_ece")


def test_fit_needs_an_output(file):
    result = run_calibrant("fit", f"{file}::val", "--method", "temperature")
    assert result.exit_code == 2
    assert "Missing option" in result.stderr


def test_fit_chooses_a_method_where_none_is_given(file, tmp_path):
    assert run_calibrant("fit", f"{file}::val", "-o", tmp_path / "cal.json").exit_code == 0
    assert load(tmp_path / "cal.json").NAME == "auto"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("start", FORMATS)
def test_apply_gives_what_the_library_gives(tmp_path, calibrator, start, ending, monkeypatch):
    monkeypatch.setattr("calibrant._thresholds.BATCH_ROWS", 150)
    ids = np.array([f"row {number}, of 400" for number in range(400)])
    source, out = tmp_path / f"in{start}", tmp_path / f"out{ending}"
    write_predictions(source, probs=PROBS, labels=LABELS, ids=ids, class_names=NAMES)
    result = run_calibrant("apply", calibrator, source, "-o", out)
    assert result.exit_code == 0, result.output
    written = read_predictions(out)
    expected = load(calibrator).predict_proba(probs=PROBS)
    np.testing.assert_allclose(written.probs, expected, rtol=1e-12)
    np.testing.assert_array_equal(written.labels, LABELS)
    np.testing.assert_array_equal(written.ids, ids)
    assert written.class_names == NAMES
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {source.name, out.name, calibrator.name}
    )


def test_apply_sums_up_in_one_line(file, tmp_path, calibrator):
    result = run_calibrant("apply", calibrator, f"{file}::test", "-o", tmp_path / "out.npz")
    (line,) = result.stdout.splitlines()
    after = load(calibrator).predict_proba(LOGITS).max(axis=1).mean()
    assert line.startswith("400 rows of 5 classes calibrated by temperature: ")
    assert f"mean confidence {PROBS.max(axis=1).mean():.2%} before, {after:.2%} after" in line
    assert "changed" not in line
    assert read_predictions(tmp_path / "out.npz").labels is None


def test_apply_says_how_many_predictions_change(tmp_path, file, monkeypatch):
    class Turned(TemperatureScaling):
        NAME = "turned"
        KEEPS_ARGMAX = False

        def _probs(self, logits, state):
            return super()._probs(logits[:, ::-1], state)

    monkeypatch.setitem(CALIBRATORS, "turned", Turned)
    Turned().fit(LOGITS, LABELS).save(tmp_path / "cal.json")
    result = run_calibrant(
        "apply", tmp_path / "cal.json", f"{file}::test", "-o", tmp_path / "out.npz"
    )
    changed = (LOGITS.argmax(axis=1) != 4 - LOGITS.argmax(axis=1)).sum()
    assert f"after, {changed} predicted classes changed." in result.stdout


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("ending", FORMATS)
def test_apply_to_strange_logits(tmp_path, calibrator, dtype, ending):
    largest = np.finfo(dtype).max
    logits = np.array(
        [[0.0] * 5, [largest, -largest, 0, 1, -np.inf], [1e4, 1e4, -1e4, 0, 0]], dtype=dtype
    )
    np.savez(tmp_path / "in.npz", logits=logits)
    result = run_calibrant(
        "apply", calibrator, tmp_path / "in.npz", "-o", tmp_path / f"out{ending}"
    )
    assert result.exit_code == 0, result.output
    probs = read_predictions(tmp_path / f"out{ending}").probs
    np.testing.assert_allclose(
        probs, [[0.2] * 5, [1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]], atol=1e-6
    )
    assert f"mean confidence {(0.2 + 1.0 + 0.5) / 3:.2%} before" in result.stdout


@pytest.mark.parametrize("ending", FORMATS)
def test_damage_further_on_leaves_the_old_output_alone(tmp_path, calibrator, ending, monkeypatch):
    monkeypatch.setattr("calibrant._thresholds.BATCH_ROWS", 100)
    logits = LOGITS.copy()
    logits[317, 2] = np.nan
    np.savez(tmp_path / "in.npz", logits=logits)
    out = tmp_path / f"out{ending}"
    out.write_text("what stood here before")
    message = "in.npz, counting from row 300: logits must not contain NaN; found NaN in row 17"
    refused(tmp_path, message, "apply", calibrator, tmp_path / "in.npz", "-o", out)


def test_a_file_cut_short_leaves_nothing(tmp_path, calibrator):
    whole = tmp_path / "whole.parquet"
    write_predictions(whole, probs=PROBS)
    bytes_ = bytearray(whole.read_bytes())
    bytes_[300:400] = bytes(100)
    whole.write_bytes(bytes_)
    (tmp_path / "short.csv").write_text("prob_0,prob_1,prob_2,prob_3,prob_4\n0.2,0.2,0.2,0.2\n")
    (tmp_path / "short.npz").write_bytes(b"PK\x03\x04 and then nothing")
    for name in ("whole.parquet", "short.csv", "short.npz"):
        refused(tmp_path, name, "apply", calibrator, tmp_path / name, "-o", tmp_path / "out.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": LOGITS[:, :4]}, "fitted on 5 classes; found 4"),
        ({"logits": LOGITS, "labels": LABELS - 1}, "labels must be between 0 and 4"),
        ({"probs": LOGITS}, "probs must not be negative"),
        ({"confidence": [0.5], "correct": [True]}, "fitted on 5 classes; found 2"),
        ({"other": LOGITS}, "neither logits nor probs"),
    ],
)
def test_predictions_that_do_not_suit_get_one_line(tmp_path, calibrator, arrays, message):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    refused(tmp_path, message, "apply", calibrator, path, "-o", tmp_path / "out.npz")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "other"}', "[" * 100_000, '{"a": NaN}']
)
def test_a_calibrator_that_is_none_gets_one_line(tmp_path, file, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    refused(tmp_path, "bad.json", "apply", path, f"{file}::test", "-o", tmp_path / "out.npz")


def test_apply_overwrites_nothing_it_reads(file, tmp_path, calibrator):
    folder = tmp_path / "parts"
    folder.mkdir()
    write_predictions(folder / "0.parquet", probs=PROBS)
    os.link(file, tmp_path / "hard.npz")
    (tmp_path / "soft.npz").symlink_to(file)
    (tmp_path / "cal.npz").write_bytes(calibrator.read_bytes())
    for source, out in (
        (f"{file}::test", file),
        (f"{file}::test", tmp_path / "hard.npz"),
        (f"{file}::test", tmp_path / "soft.npz"),
        (f"{file}::test", tmp_path / "parts" / ".." / "net.npz"),
        (folder, folder / "0.parquet"),
        (folder, folder / "1.parquet"),
    ):
        refused(tmp_path, "so it cannot be written", "apply", calibrator, source, "-o", out)
    own = tmp_path / "cal.npz"
    refused(tmp_path, "so it cannot be written", "apply", own, f"{file}::test", "-o", own)


def test_other_mistakes(file, tmp_path, calibrator):
    for arguments, message in (
        (
            [tmp_path / "missing.json", f"{file}::test", "-o", tmp_path / "o.npz"],
            "missing.json. Pass the path of a .json file written by calibrant fit",
        ),
        (
            [tmp_path, f"{file}::test", "-o", tmp_path / "o.npz"],
            "is a folder. Pass the path of a .json file written by calibrant fit",
        ),
        ([calibrator, tmp_path / "missing.npz", "-o", tmp_path / "o.npz"], "missing.npz"),
        ([calibrator, f"{file}::x", "-o", tmp_path / "o.npz"], "no part x"),
        ([calibrator, f"{file}::test", "-o", tmp_path / "o.txt"], "must end in .npz"),
        ([calibrator, f"{file}::test", "-o", calibrator], "must end in .npz"),
        ([calibrator, f"{file}::test", "-o", tmp_path / "no" / "o.npz"], "there is no folder"),
        ([f"{file}::test", calibrator, "-o", tmp_path / "o.npz"], "net.npz"),
    ):
        refused(tmp_path, message, "apply", *arguments)


def test_a_real_network_becomes_calibrated(shared_data, tmp_path):
    net = shared_data / "logits" / "c10_resnet20.npz"
    cal, out = tmp_path / "cal.json", tmp_path / "out.parquet"
    assert run_calibrant("fit", f"{net}::val", "--method", "temperature", "-o", cal).exit_code == 0
    assert run_calibrant("apply", cal, f"{net}::test", "-o", out).exit_code == 0
    written = read_predictions(out)
    gap = written.probs.max(axis=1).mean() - (written.probs.argmax(axis=1) == written.labels).mean()
    assert math.fabs(gap) < 0.01


# --- other class shares ---------------------------------------------------------------------------


def screening(folder: Path, name: str, seed: int, share: float, *, spread: float = 1.0) -> Path:
    """Scores of a test for a disease; without labels if the name says so."""
    rng = np.random.default_rng(seed)
    sick = rng.random(2000) < share
    odds = spread * (2.0 * rng.normal(2.0 * sick - 1.0)) - 2.2
    columns = {"score": 1.0 / (1.0 + np.exp(-odds))}
    if name != "new":
        columns["label"] = np.where(sick, "sick", "well")
    path = folder / f"{name}.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_the_share_of_unlabelled_samples_is_estimated(tmp_path):
    val, new = screening(tmp_path, "val", 0, 0.1), screening(tmp_path, "new", 1, 0.4)
    out = tmp_path / "cal.json"
    given = ("fit", val, "--positive", "sick", "--unlabelled", new, "-o", out)
    result = run_calibrant(*given)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2,000 unlabelled and 2,000 labelled samples\nclass")
    assert "Label shift explains the scores" in result.stdout
    found = load(out)
    assert found.NAME == "prior-shift"
    assert found.target[1] == pytest.approx(0.4, abs=0.04)
    assert found.classes_ == ("well", "sick")
    told = json.loads(run_calibrant(*given, "--json").stdout)["prevalence"]
    assert told["shares"] == found.target
    assert told["classes"] == ["well", "sick"]
    assert (
        run_calibrant("apply", out, new, "--positive", "sick", "-o", tmp_path / "x.csv").exit_code
        == 0
    )


def test_shares_that_label_shift_does_not_explain_are_refused(tmp_path):
    val, new = screening(tmp_path, "val", 0, 0.1), screening(tmp_path, "new", 1, 0.1, spread=2.0)
    given = ("fit", val, "--positive", "sick", "--unlabelled", new, "-o", tmp_path / "cal.json")
    refused(tmp_path, "new.csv: Label shift does not explain the scores (p = ", *given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--unlabelled", "new.csv", "--method", "beta"],
            "--unlabelled is for the method",
        ),
        (["--unlabelled", "none.csv"], "none.csv"),
        (["--unlabelled", "new.csv", "--set", "target=0.5"], "--set takes each name once"),
        (["--method", "prior-shift"], "prior-shift needs target. Add --set target=VALUE"),
        (
            ["--method", "prior-shift", "--set", "target=0"],
            "target must be a share between 0 and 1",
        ),
        (
            ["--method", "prior-shift", "--set", "target=[1,2]"],
            "must be shares that sum to 1",
        ),
        (["--method", "prior-shift", "--set", "target=abc"], "target must be"),
    ],
)
def test_bad_shares_on_the_command_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    screening(tmp_path, "val", 0, 0.1)
    screening(tmp_path, "new", 1, 0.1)
    given = ("fit", "val.csv", "--positive", "sick", *arguments, "-o", "cal.json")
    refused(tmp_path, message, *given)
