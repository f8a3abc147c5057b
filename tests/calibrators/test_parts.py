"""Calibrators in a row: applied, saved, loaded, as a layer and as exported files."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant
from calibrant import AutoCalibration
from calibrant.calibrators.export import export

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")


@pytest.fixture(scope="module")
def fitted():
    """Three parts: a floor, a matrix and a temperature; and logits with a masked class."""
    rng = np.random.default_rng(0)
    truth = 3.0 * rng.normal(size=(2000, 5))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = 1.7 * (truth + 3.0 * (np.arange(5) == 0))
    logits[:20] *= 1e5
    found = AutoCalibration().fit(logits=logits, labels=labels)
    assert [part.NAME for part in found.parts_] == ["floored-temperature", "structured", "top-rest"]
    logits[::7, 2] = -np.inf
    return found, logits


def test_each_part_takes_the_log_probabilities_of_the_one_before(fitted):
    found, logits = fitted
    log_probs = logits
    for part in found.parts_:
        log_probs = part.predict_log_proba(logits=log_probs)
    np.testing.assert_array_equal(found.predict_log_proba(logits=logits), log_probs)
    probs = found.predict_proba(logits=logits)
    np.testing.assert_allclose(probs, np.exp(log_probs), atol=1e-12)
    assert (probs[::7, 2] == 0.0).all()
    assert found.predict_proba(logits.astype("float32")).dtype == np.float32


def test_saved_and_loaded(fitted, tmp_path):
    found, logits = fitted
    found.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        loaded.predict_proba(logits=logits), found.predict_proba(logits=logits)
    )
    assert repr(loaded.parts_) == repr(found.parts_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("parts"), "auto cannot have 0 parts"),
        (lambda c: c.update(parts=[]), "auto cannot have 0 parts"),
        (lambda c: c.update(parts=9 * c["parts"]), "auto cannot have 27 parts"),
        (lambda c: c.update(parts={}), "'parts' is {}, not list"),
        (lambda c: c.update(parts=[3]), "it holds int, not an object"),
        (lambda c: c["parts"][0].pop("state"), "'state' is missing"),
        (lambda c: c["parts"][0].update(method="nosuch"), "there is no method 'nosuch'"),
        (lambda c: c["parts"][0]["state"].update(floor=-1.0), "its floor is -1"),
        (lambda c: c["parts"][1]["state"].update(bias=[0.0]), "'bias' has shape"),
        (
            lambda c: c["parts"].__setitem__(0, {"method": "auto", "params": {}, "state": {}}),
            "made of parts itself",
        ),
        (
            lambda c: c.update(method="temperature", params={}, state={"temperature": 1.0}),
            "temperature cannot have 3 parts",
        ),
    ],
)
def test_a_file_with_other_parts_is_refused(fitted, tmp_path, change, message):
    found, _ = fitted
    file = tmp_path / "cal.json"
    found.save(file)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(calibrant.CalibrantError, match="cannot be read as a calibrator") as caught:
        calibrant.load(file)
    assert message in str(caught.value)


def test_as_a_layer(fitted):
    torch = pytest.importorskip("torch")
    found, logits = fitted
    layer = found.as_module()
    expected = found.predict_proba(logits=logits)
    np.testing.assert_allclose(layer.probs(torch.tensor(logits)).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(layer(torch.tensor(logits)).exp().numpy(), expected, atol=1e-12)
    again = AutoCalibration().fit(logits=np.eye(5), labels=np.arange(5)).as_module()
    with pytest.raises(calibrant.CalibrantError, match="of the same method"):
        again.load_state_dict(layer.state_dict())


def test_as_python_source(fitted, tmp_path):
    found, logits = fitted
    export(found, tmp_path / "calibrated.py")
    namespace: dict[str, object] = {}
    exec(compile((tmp_path / "calibrated.py").read_text(), "calibrated", "exec"), namespace)
    probs = namespace["predict_proba"](logits)
    np.testing.assert_allclose(probs, found.predict_proba(logits=logits), atol=1e-9)
    single = namespace["predict_proba"](logits.astype("float32"))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, found.predict_proba(logits.astype("float32")), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("extension", [".onnx", ".pt2"])
def test_as_a_model(fitted, tmp_path, extension):
    found, _ = fitted
    export(found, tmp_path / f"calibrated{extension}")
    assert (tmp_path / f"calibrated{extension}").stat().st_size > 0
