"""``auto`` and top-rest scaling on every real network, and on models that give probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import AutoCalibration, TemperatureScaling, TopRestScaling, ada_ece, nll
from calibrant.files import read_predictions

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")


def test_on_every_network(shared_data):
    """The predicted class stays, in probabilities and logarithms; NLL and error fall on average."""
    measured = {}
    for file in sorted((shared_data / "logits").glob("*.npz")):
        val, test = (read_predictions(f"{file}::{part}") for part in ("val", "test"))
        for method in TemperatureScaling(), TopRestScaling(), AutoCalibration():
            method.fit(val.logits, val.labels)
            probs = method.predict_proba(test.logits)
            classes = test.logits.argmax(axis=1)
            assert np.array_equal(probs.argmax(axis=1), classes), file.stem
            assert np.array_equal(method.predict(test.logits), classes), file.stem
            scores = ada_ece(probs, test.labels), nll(probs, test.labels)
            measured[file.stem, method.NAME] = scores
    for prefix in ("c10_", "c100_"):
        names = [name for name, method in measured if name.startswith(prefix) and method == "auto"]
        means = {
            method: np.mean([measured[name, method] for name in names], axis=0)
            for method in ("temperature", "top-rest", "auto")
        }
        assert (means["auto"] < means["temperature"]).all(), prefix
        assert means["auto"][0] < 0.75 * means["temperature"][0], prefix
        assert (means["top-rest"] < means["temperature"]).all(), prefix


def test_on_probabilities_with_exact_zeros(shared_data):
    files = sorted((shared_data / "probs").glob("*.npz"))
    assert len(files) > 5
    for file in files:
        val, test = (read_predictions(f"{file}::{part}") for part in ("val", "test"))
        auto = AutoCalibration().fit(probs=val.probs, labels=val.labels)
        probs = auto.predict_proba(probs=test.probs)
        assert np.array_equal(probs.argmax(axis=1), test.probs.argmax(axis=1)), file.stem
        temperature = TemperatureScaling().fit(probs=val.probs, labels=val.labels)
        held = nll(temperature.predict_proba(probs=test.probs), test.labels)
        assert nll(probs, test.labels) < held + 0.02, file.stem
