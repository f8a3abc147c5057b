"""Where a calibrator comes from: what is kept in its file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import calibrant
from calibrant import CalibrantError, Identity, MultiLabelCalibration, TemperatureScaling
from calibrant.calibrators import Origin
from calibrant.calibrators.origin import MOST_HASHED
from tests.builders import draw_samples

LOGITS, LABELS = draw_samples()


def hash_of(*arguments, **options):
    return Identity().fit(*arguments, **options).origin_.data.sha256


def test_the_origin_of_a_fit(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    origin = TemperatureScaling().fit(logits=LOGITS, labels=LABELS).origin_
    assert origin.created == "2026-01-01T00:00:00Z"
    assert origin.calibrant == calibrant.__version__
    assert origin.plugin is None
    assert origin.input == "logits"
    assert origin.data.n == 400
    assert origin.metadata == {}


def test_the_same_fit_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    for name in ("a.json", "b.json"):
        TemperatureScaling().fit(logits=LOGITS, labels=LABELS).save(tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("text", ["today", "1e9", "9" * 30])
def test_a_wrong_date(text, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(CalibrantError, match="must be seconds since 1970"):
        Identity().fit(logits=LOGITS, labels=LABELS)


def test_the_same_samples_have_the_same_fingerprint():
    single = LOGITS.astype(np.float32)
    same = hash_of(single, LABELS)
    assert len(same) == 64
    assert hash_of(single.astype(np.float64), LABELS.astype(np.int32)) == same
    assert hash_of(torch.tensor(single), torch.tensor(LABELS)) == same
    assert hash_of(single.reshape(4, 100, 3), LABELS.reshape(4, 100)) == same
    assert hash_of(np.asfortranarray(single), LABELS) == same


def test_rows_of_weight_0_are_no_part_of_the_fingerprint():
    weight = np.where(np.arange(400) < 300, 1.0, 0.0)
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    yes, sigmoid = LOGITS > 0.5, 1.0 / (1.0 + np.exp(-LOGITS))
    for method, scores, labels in (
        (Identity, {"logits": LOGITS}, LABELS),
        (Identity, {"probs": probs}, LABELS),
        (MultiLabelCalibration, {"logits": LOGITS}, yes),
        (MultiLabelCalibration, {"probs": sigmoid}, yes),
    ):
        ((name, values),) = scores.items()
        found = method().fit(**{name: values}, labels=labels, sample_weight=weight).origin_.data
        part = {name: values[:300], "labels": labels[:300], "sample_weight": weight[:300]}
        assert found == method().fit(**part).origin_.data
        assert found.n == 300


def test_other_samples_have_another_fingerprint():
    changed, labels = LOGITS.copy(), LABELS.copy()
    changed[-1, -1] += 1e-9
    labels[-1] = (labels[-1] + 1) % 3
    weight = np.ones(400)
    weight[-1] = 2.0
    probs = np.full((400, 3), 1 / 3)
    found = {
        hash_of(LOGITS, LABELS),
        hash_of(changed, LABELS),
        hash_of(LOGITS, labels),
        hash_of(LOGITS[::-1], LABELS),
        hash_of(LOGITS, LABELS, weight),
        hash_of(probs=probs, labels=LABELS),
    }
    assert len(found) == 6


def test_many_scores_are_hashed_in_part():
    logits = np.zeros((MOST_HASHED, 4), dtype=np.float32)
    labels = np.arange(len(logits)) % 4
    before = Origin().with_data("logits", logits, labels)
    logits[3] = 1.0
    assert Origin().with_data("logits", logits, labels) == before
    logits[4] = 1.0
    assert Origin().with_data("logits", logits, labels) != before


def test_metadata_and_classes_are_kept(tmp_path):
    metadata = {"model": "resnet", "rows": [1, 2.5, None, True, {"a": "b"}]}
    fitted = Identity().fit(logits=LOGITS, labels=LABELS)
    fitted.classes_ = ("cat", 7, True)
    fitted.save(tmp_path / "cal.json", metadata=metadata)
    loaded = calibrant.load(tmp_path / "cal.json")
    assert loaded.origin_.metadata == metadata
    assert loaded.classes_ == ("cat", 7, True)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "cal.json").read_bytes()
    loaded.save(tmp_path / "again.json", metadata={})
    assert calibrant.load(tmp_path / "again.json").origin_.metadata == {}
    assert loaded.fit(logits=LOGITS, labels=LABELS).classes_ == (0, 1, 2)


@pytest.mark.parametrize(
    "metadata", [3, [1], {1: 2}, {"a": np.nan}, {"a": (1,)}, {"a": np.float32(1.0)}, {"a": 2**64}]
)
def test_metadata_that_json_cannot_hold(metadata, tmp_path):
    with pytest.raises(CalibrantError, match="metadata must be a dict of JSON values"):
        Identity().fit(logits=LOGITS, labels=LABELS).save(tmp_path / "cal.json", metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_a_file_of_version_1_is_read(tmp_path):
    fitted = TemperatureScaling().fit(logits=LOGITS, labels=LABELS)
    fitted.save(tmp_path / "cal.json")
    content = json.loads((tmp_path / "cal.json").read_text())
    for name in ("created", "calibrant", "plugin", "classes", "input", "data", "metadata"):
        del content[name]
    (tmp_path / "old.json").write_text(json.dumps(content | {"version": 1}))
    old = calibrant.load(tmp_path / "old.json")
    assert old.temperature_ == fitted.temperature_
    assert old.origin_ == Origin()
    assert old.classes_ == (0, 1, 2)
    old.save(tmp_path / "new.json")
    assert calibrant.load(tmp_path / "new.json").origin_ == Origin()
