"""The service of the deployment page: probabilities, and a line with a 4xx for wrong input."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import calibrant
from tests.builders import draw_samples

ROOT = Path(__file__).resolve().parents[2]
LOGITS, LABELS = draw_samples()
CALIBRATOR = calibrant.TemperatureScaling().fit(LOGITS, LABELS)


@pytest.fixture(scope="module")
def service():
    return runpy.run_path(str(ROOT / "examples" / "serve.py"))["service"]


@pytest.fixture(scope="module")
def client(service, tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "cal.json"
    CALIBRATOR.save(path, metadata={"model": "resnet"})
    with TestClient(service(str(path))) as client:
        yield client


def test_probabilities(client):
    answer = client.post("/probabilities", json={"logits": LOGITS[:5].tolist()})
    assert answer.status_code == 200
    expected = CALIBRATOR.predict_proba(LOGITS[:5])
    np.testing.assert_array_equal(answer.json()["probabilities"], expected)


def test_what_is_running(client):
    answer = client.get("/calibrator").json()
    assert answer["method"] == "temperature"
    assert answer["metadata"] == {"model": "resnet"}
    assert answer["created"] == CALIBRATOR.origin_.created


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"logits": [[1, 2]]}', "fitted on 3 classes"),
        ('{"logits": [[1, 2, 3], [1, 2]]}', "logits must"),
        ('{"logits": [[1, 2, NaN]]}', "logits must not contain NaN"),
        ('{"logits": [[1, 2, 1e999]]}', "logits must"),
        ('{"logits": []}', "classes"),
        ('{"logits": [[]]}', "classes"),
        ('{"logits": [["a", "b", "c"]]}', "expected {"),
        ('{"logits": NaN}', "expected {"),
        ('{"logits": [["a", NaN, "\\ud800"]]}', "expected {"),
        ('{"probs": [[1, 0, 0]]}', "expected {"),
        ("{", "expected {"),
        ("", "expected {"),
    ],
)
def test_wrong_input_is_the_clients(client, body, words):
    answer = client.post(
        "/probabilities", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["detail"].isprintable()


def test_a_wrong_calibrator_stops_it_at_the_start(service, tmp_path, monkeypatch):
    (tmp_path / "cal.json").write_text("{}")
    monkeypatch.setenv("CALIBRATOR", str(tmp_path / "cal.json"))
    with pytest.raises(calibrant.CalibrantError, match="cannot be read as a calibrator"):
        service()


def test_the_page_shows_this_service():
    page = (ROOT / "docs" / "production.md").read_text()
    assert "```{literalinclude} ../examples/serve.py" in page
