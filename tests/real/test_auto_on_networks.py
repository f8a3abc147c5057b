"""``auto`` and top-rest scaling on every real network, and on models that give probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import AutoCalibration, TemperatureScaling, TopRestScaling, ada_ece, nll
from calibrant.files import read_predictions

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")


def test_on_every_network(shared_data):
    """The class stays if it must, in both outputs; NLL and error fall on average."""
    measured = {}
    for file in sorted((shared_data / "logits").glob("*.npz")):
        val, test = (read_predictions(f"{file}::{part}") for part in ("val", "test"))
        methods = {
            "temperature": TemperatureScaling(),
            "top-rest": TopRestScaling(),
            "keeping": AutoCalibration(keep_class=True),
            "auto": AutoCalibration(),
        }
        for name, method in methods.items():
            method.fit(val.logits, val.labels)
            probs = method.predict_proba(test.logits)
            classes = test.logits.argmax(axis=1)
            if name != "auto":
                assert np.array_equal(probs.argmax(axis=1), classes), file.stem
                assert np.array_equal(method.predict(test.logits), classes), file.stem
            measured[file.stem, name] = ada_ece(probs, test.labels), nll(probs, test.labels)
    for prefix in ("c10_", "c100_"):
        names = [name for name, method in measured if name.startswith(prefix) and method == "auto"]
        means = {
            method: np.mean([measured[name, method] for name in names], axis=0)
            for method in ("temperature", "top-rest", "keeping", "auto")
        }
        assert (means["auto"] < means["temperature"]).all(), prefix
        assert means["auto"][0] < 0.75 * means["temperature"][0], prefix
        assert (means["top-rest"] < means["temperature"]).all(), prefix
        assert means["auto"][1] <= means["keeping"][1], prefix


def test_on_probabilities_with_exact_zeros(shared_data):
    files = sorted((shared_data / "probs").glob("*.npz"))
    assert len(files) > 5
    for file in files:
        val, test = (read_predictions(f"{file}::{part}") for part in ("val", "test"))
        auto = AutoCalibration().fit(probs=val.probs, labels=val.labels)
        probs = auto.predict_proba(probs=test.probs)
        temperature = TemperatureScaling().fit(probs=val.probs, labels=val.labels)
        held = nll(temperature.predict_proba(probs=test.probs), test.labels)
        assert nll(probs, test.labels) < held + 0.02, file.stem
