"""Calibrators on real networks, against figures computed elsewhere."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from calibrant import (
    CALIBRATORS,
    FocalTemperatureScaling,
    TemperatureScaling,
    ada_ece,
    ece,
    nll,
)
from calibrant.calibrators import CalibrationWarning
from calibrant.files import read_predictions
from tests.builders import build
from tests.processes import run_calibrant


def parts(shared_data, name):
    return [read_predictions(f"{shared_data / 'logits' / name}.npz::{part}") for part in VAL_TEST]


VAL_TEST = ("val", "test")


def test_printed_temperatures_of_the_networks(shared_data):
    """T by NLL, and ECE and NLL after it, in the table of the data's own README."""
    checked = 0
    for line in (shared_data / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 11 or not (shared_data / "logits" / f"{cells[0]}.npz").is_file():
            continue
        val, test = parts(shared_data, cells[0])
        scaling = TemperatureScaling().fit(val.logits, val.labels)
        probs = scaling.predict_proba(test.logits)
        assert scaling.temperature_ == pytest.approx(float(cells[6]), abs=5.1e-4), cells[0]
        assert 100 * ece(probs, test.labels) == pytest.approx(float(cells[7]), abs=0.02), cells[0]
        assert nll(probs, test.labels) == pytest.approx(float(cells[8]), abs=1e-4), cells[0]
        assert np.array_equal(probs.argmax(axis=1), test.logits.argmax(axis=1))
        checked += 1
    assert checked > 40


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
def test_focal_temperature_against_temperature_by_the_same_criterion(shared_data):
    """A direct implementation gives 1.48% and 1.22%, 20 wins and 3 losses, on 27 networks."""
    errors = []
    for file in sorted((shared_data / "logits").glob("c10_*.npz")):
        val, test = parts(shared_data, file.stem)
        pair = TemperatureScaling(criterion="ada_ece"), FocalTemperatureScaling()
        errors.append(
            [
                ada_ece(method.fit(val.logits, val.labels).predict_proba(test.logits), test.labels)
                for method in pair
            ]
        )
    temperature, focal = np.array(errors).T
    assert len(errors) == 27
    assert 100 * temperature.mean() == pytest.approx(1.48, abs=0.005)
    assert 100 * focal.mean() == pytest.approx(1.22, abs=0.005)
    assert ((focal < temperature).sum(), (focal > temperature).sum()) == (20, 3)


@pytest.mark.parametrize("name", ["c10_resnet20", "c10_wrn16_4_netcal", "emotion_final_psr"])
def test_every_method_on_a_network(shared_data, name):
    val, test = parts(shared_data, name)
    for method in CALIBRATORS:
        calibrator = build(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            calibrator.fit(val.logits, val.labels)
        probs = calibrator.predict_proba(test.logits)
        assert np.isfinite(nll(probs, test.labels)), method
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-5)
        if method not in ("identity", "focal", "histogram"):
            assert ece(probs, test.labels) < ece(logits=test.logits, labels=test.labels), method


@pytest.mark.parametrize("name", ["mnist_random_forest", "kitti_AdaBoost", "pcam_XGBoost"])
def test_probabilities_with_exact_zeros(shared_data, name):
    val, test = (
        read_predictions(f"{shared_data / 'probs' / name}.npz::{part}") for part in VAL_TEST
    )
    scaling = TemperatureScaling().fit(probs=val.probs, labels=val.labels)
    calibrated = scaling.predict_proba(probs=test.probs)
    assert np.isfinite(nll(calibrated, test.labels))
    assert ece(calibrated, test.labels) < ece(test.probs, test.labels)
    assert np.array_equal(calibrated.argmax(axis=1), test.probs.argmax(axis=1))


def test_the_commands_on_a_network(shared_data, tmp_path):
    file = shared_data / "logits" / "c100_resnet44.npz"

    def run(*arguments):
        result = run_calibrant(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    fitted, applied = tmp_path / "cal.json", tmp_path / "out.npz"
    run("fit", f"{file}::val", "--method", "temperature", "-o", fitted)
    run("apply", fitted, f"{file}::test", "-o", applied)
    said = json.loads(run("evaluate", applied, "--json"))[str(applied)]["metrics"]
    assert said["nll"]["value"] == pytest.approx(1.0808, abs=1e-4)
