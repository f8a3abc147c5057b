"""The commands on multi-label files."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant import MultiLabelCalibration
from calibrant.files import is_multilabel, iter_predictions, read_predictions, write_predictions
from tests.processes import run_calibrant

NAMES = np.array(["dog", "cat", "<b>cow</b>"])


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.normal(-1.0, 2.0, size=(1200, 3))
    labels = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(np.int8)
    arrays = {"val_logits": 2 * truth[:600], "val_labels": labels[:600]}
    arrays |= {"test_logits": 2 * truth[600:], "test_labels": labels[600:]}
    np.savez(tmp_path / "net.npz", class_names=NAMES, **arrays)
    return tmp_path / "net.npz"


def run(*arguments):
    result = run_calibrant(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_files_are_read_and_written(file, tmp_path):
    assert is_multilabel(f"{file}::val")
    whole = read_predictions(f"{file}::val")
    assert whole.multilabel
    assert whole.labels.shape == (600, 3)
    parts = list(iter_predictions(f"{file}::val", batch_rows=250))
    np.testing.assert_array_equal(np.concatenate([p.labels for p in parts]), whole.labels)
    copy = tmp_path / "copy.npz"
    probs = 1 / (1 + np.exp(-whole.logits))
    write_predictions(copy, probs=probs, labels=whole.labels, class_names=NAMES, multilabel=True)
    np.testing.assert_array_equal(read_predictions(copy).probs, probs)
    np.testing.assert_array_equal(read_predictions(copy).labels, whole.labels)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_give_what_arrays_give(file, tmp_path, ending):
    parts = {part: tmp_path / f"{part}.{ending}" for part in ("val", "test")}
    for part, path in parts.items():
        whole = read_predictions(f"{file}::{part}")
        content = {"logits": whole.logits, "labels": whole.labels, "class_names": NAMES}
        write_predictions(path, **content, multilabel=True)
        assert is_multilabel(path)
        read = read_predictions(path)
        assert read.class_names == tuple(NAMES)
        np.testing.assert_array_equal(read.logits, whole.logits)
        np.testing.assert_array_equal(read.labels, whole.labels)
    for val, test, out in (
        (f"{file}::val", f"{file}::test", tmp_path / "a.npz"),
        (parts["val"], parts["test"], tmp_path / f"b.{ending}"),
    ):
        run("fit", val, "-o", tmp_path / "cal.json")
        run("apply", tmp_path / "cal.json", test, "-o", out)
    one, other = (read_predictions(tmp_path / name) for name in ("a.npz", f"b.{ending}"))
    np.testing.assert_allclose(one.probs, other.probs, rtol=1e-12)
    np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_other_columns_are_kept_and_the_calibrator_is_named(file, tmp_path, ending):
    run("fit", f"{file}::val", "-o", tmp_path / "cal.json")
    digest = hashlib.sha256((tmp_path / "cal.json").read_bytes()).hexdigest()
    run("apply", tmp_path / "cal.json", f"{file}::test", "-o", tmp_path / "a.npz")
    assert str(np.load(tmp_path / "a.npz")["calibrator"]) == digest
    whole = read_predictions(f"{file}::test")
    labels = {f"label_{name}": whole.labels[:, k] for k, name in enumerate(NAMES)}
    logits = {f"logit_{name}": whole.logits[:, k] for k, name in enumerate(NAMES)}
    table = pa.table({"picture": [f"p,{i}" for i in range(600)], **labels, **logits})
    write = pa.csv.write_csv if ending == "csv" else pq.write_table
    write(table, tmp_path / f"test.{ending}")
    out = tmp_path / f"out.{ending}"
    run("apply", tmp_path / "cal.json", tmp_path / f"test.{ending}", "-o", out)
    read = pa.csv.read_csv(out) if ending == "csv" else pq.read_table(out)
    assert read["picture"].to_pylist() == table["picture"].to_pylist()
    for column, values in labels.items():
        np.testing.assert_array_equal(read[column].to_numpy(), values)
    probs = read_predictions(out).probs
    np.testing.assert_allclose(probs, read_predictions(tmp_path / "a.npz").probs, rtol=1e-12)
    if ending == "csv":
        assert set(read["calibrator"].to_pylist()) == {digest}
    else:
        assert read.schema.metadata[b"calibrant.calibrator"] == digest.encode()


def test_a_missing_column_of_labels(tmp_path):
    (tmp_path / "a.csv").write_text("prob_cat,prob_dog,label_cat\n0.1,0.2,0\n0.3,0.4,1\n")
    result = run_calibrant("evaluate", tmp_path / "a.csv")
    assert result.exit_code == 2
    assert "found label_cat but no label_dog" in result.stderr


def test_one_hot_columns_are_classes(tmp_path):
    rows = ["prob_cat,prob_dog,label_cat,label_dog", "0.1,0.9,0,1", "0.3,0.7,1,0", "0.3,0.7,1,0"]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    result = run_calibrant("evaluate", tmp_path / "a.csv")
    assert result.exit_code == 2
    assert "found exactly one in every row" in result.stderr


def test_fit_apply_evaluate(file, tmp_path):
    before = json.loads(run("evaluate", f"{file}::test", "--json"))[f"{file}::test"]
    assert before["n_off"] == 3
    out = run("fit", f"{file}::val", "-o", tmp_path / "cal.json")
    assert "multi-label on 600 samples" in out
    assert isinstance(calibrant.load(tmp_path / "cal.json"), MultiLabelCalibration)
    out = run("apply", tmp_path / "cal.json", f"{file}::test", "-o", tmp_path / "out.npz")
    assert "600 rows of 3 labels" in out
    after = run("evaluate", tmp_path / "out.npz")
    assert "No miscalibration" in after
    assert "dog" in after


def test_the_method_is_the_curve(file, tmp_path):
    run("fit", f"{file}::val", "--method", "focal", "--set", "gamma=2", "-o", tmp_path / "cal.json")
    found = calibrant.load(tmp_path / "cal.json")
    assert (found.curve, found.gamma) == ("focal", 2)


def test_report(file, tmp_path):
    page = tmp_path / "page.html"
    assert "3 of 3 labels are off" in run("report", f"{file}::val", f"{file}::test", "-o", page)
    text = page.read_text()
    assert "&lt;b&gt;cow&lt;/b&gt;" in text
    assert "<b>cow" not in text
    assert text.count("<svg") == 6
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "FILE::val", "FILE::test"), "is multi-label"),
        (("evaluate", "FILE::test", "--metric", "nll"), "are for classes"),
        (("fit", "FILE::val", "--keep-class", "-o", "cal.json"), "--keep-class is for"),
        (("fit", "FILE::val", "--set", "curve=nothing", "-o", "cal.json"), "nothing"),
        (("report", "FILE::val", "FILE::test", "--method", "beta,platt"), "has one method"),
    ],
)
def test_refusals(file, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run_calibrant(*(each.replace("FILE", str(file)) for each in arguments))
    assert result.exit_code == 2
    assert message in result.stderr


def test_labels_of_another_shape_are_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", probs=np.full((4, 3), 0.5), labels=np.zeros((4, 2)))
    result = run_calibrant("evaluate", tmp_path / "bad.npz")
    assert result.exit_code == 2
    assert "labels must have the shape (rows,); found (4, 2)" in result.stderr


def test_classes_and_labels_are_not_mixed(file, tmp_path):
    rng = np.random.default_rng(0)
    classes, out = tmp_path / "classes.npz", tmp_path / "out.npz"
    np.savez(classes, logits=rng.normal(size=(300, 3)), labels=rng.integers(0, 3, 300))
    run("fit", classes, "--method", "temperature", "-o", tmp_path / "cal.json")
    result = run_calibrant("apply", tmp_path / "cal.json", f"{file}::test", "-o", out)
    assert result.exit_code == 2
    assert "is multi-label" in result.stderr
    run("fit", f"{file}::val", "-o", tmp_path / "labels.json")
    result = run_calibrant("apply", tmp_path / "labels.json", classes, "-o", out)
    assert result.exit_code == 2
    assert "labels must have the shape of probs" in result.stderr
