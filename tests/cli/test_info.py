"""``calibrant info``, and the calibrator that ``calibrant apply`` names in its output."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import calibrant
from tests.builders import draw_samples
from tests.processes import run_calibrant

LOGITS, LABELS = draw_samples()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("info")
    names = np.array(["cat", "dog", "cow"])
    np.savez(where / "a.npz", logits=LOGITS, labels=LABELS, class_names=names)
    done = run_calibrant(
        *("fit", where / "a.npz", "--method", "temperature", "-o", where / "cal.json"),
        *("--metadata", "model=resnet", "--metadata", "epochs=90"),
    )
    assert done.exit_code == 0, done.output
    return where


def test_what_is_shown(folder):
    fitted = calibrant.load(folder / "cal.json")
    shown = run_calibrant("info", folder / "cal.json").stdout
    rows = dict(re.findall(r"^(\S+(?: \S+)*) {2,}(.+)$", shown, flags=re.MULTILINE))
    assert rows["method"].startswith("temperature: ")
    assert rows["parameters"].startswith("criterion = nll")
    assert rows["fitted"] == f"temperature = {fitted.temperature_:.6g}"
    assert rows["classes"] == "3: cat, dog, cow"
    assert rows["input"] == "logits"
    assert rows["samples"] == "400"
    assert rows["created"] == fitted.origin_.created
    assert rows["metadata model"] == "resnet"
    assert rows["metadata epochs"] == "90"
    same = calibrant.Identity().fit(LOGITS, LABELS)
    assert rows["fingerprint"] == same.origin_.data.sha256


def test_json(folder):
    found = json.loads(run_calibrant("info", folder / "cal.json", "--json").stdout)
    assert found["method"] == "temperature"
    assert found["metadata"] == {"model": "resnet", "epochs": 90}
    assert found["data"]["n"] == found["report"]["n_samples"] == 400
    assert found["classes"] == ["cat", "dog", "cow"]


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
def test_parts_warnings_and_nothing_that_changes_the_terminal(tmp_path):
    file = tmp_path / "cal.json"
    fitted = calibrant.AutoCalibration().fit(LOGITS[:60], LABELS[:60])
    fitted.save(file, metadata={"a\x1b[2J": "b\nc\ud800"})
    shown = run_calibrant("info", file).stdout
    assert re.search(r"^metadata a\\x1b\[2J +b\\nc\\ud800$", shown, flags=re.MULTILINE)
    assert re.search(r"^part \S+ +\S", shown, flags=re.MULTILINE)
    assert re.search(r"^warning +fitted on 60 samples only", shown, flags=re.MULTILINE)
    assert re.search(r"^classes +3, without names$", shown, flags=re.MULTILINE)


@pytest.mark.parametrize("setting", ["model", "a=NaN"])
def test_metadata_that_cannot_be_kept(folder, setting, tmp_path):
    done = run_calibrant(
        "fit", folder / "a.npz", "-o", tmp_path / "cal.json", "--metadata", setting
    )
    assert done.exit_code == 2
    assert "metadata" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_output_of_apply_names_the_calibrator(folder, tmp_path):
    digest = hashlib.sha256((folder / "cal.json").read_bytes()).hexdigest()
    assert digest in run_calibrant("info", folder / "cal.json").stdout
    for name in ("out.npz", "out.parquet", "out.csv"):
        done = run_calibrant("apply", folder / "cal.json", folder / "a.npz", "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
        assert calibrant.files.read_predictions(tmp_path / name).probs.shape == (400, 3)
    assert np.load(tmp_path / "out.npz")["calibrator"] == digest
    metadata = pq.read_schema(tmp_path / "out.parquet").metadata
    assert metadata[b"calibrant.calibrator"].decode() == digest
    names = pq.read_schema(tmp_path / "out.parquet").names
    assert names[-3:] == ["prob_cat", "prob_dog", "prob_cow"]
