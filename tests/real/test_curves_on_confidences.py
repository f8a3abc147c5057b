"""The curve chosen for two classes on what language models say of their own answers."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import IsotonicCalibration, SplineCalibration, TemperatureScaling, VennAbers, nll
from calibrant.calibrators.auto.curves import choose_curve
from calibrant.calibrators.data import checked_samples
from calibrant.metrics.binning import equal_mass_table

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")


def two_columns(confidence):
    return np.stack([1 - confidence, confidence], axis=1)


def test_the_chosen_curve_is_as_good_as_the_best(shared_data):
    files = sorted((shared_data / "confidence").glob("*.npz"))
    assert len(files) > 20
    scores = {}
    for file in files:
        given = np.load(file)
        val, test = (two_columns(given[f"{part}_confidence"]) for part in ("val", "test"))
        correct = given["val_correct"].astype(int)
        methods = {
            method.NAME: method().fit(probs=val, labels=correct)
            for method in (TemperatureScaling, SplineCalibration, IsotonicCalibration, VennAbers)
        }
        methods["chosen"], _ = choose_curve(checked_samples(None, correct, probs=val))
        answers = given["test_correct"].astype(int)
        for name, method in methods.items():
            probs = method.predict_proba(probs=test)
            table = equal_mass_table(probs[:, 1], answers, 15)
            error = float(table.share @ np.abs(table.gap))
            scores.setdefault(name, []).append((nll(probs, answers), error))
    means = {name: np.mean(values, axis=0) for name, values in scores.items()}
    best_nll, best_error = np.min([means[name] for name in means if name != "chosen"], axis=0)
    assert means["chosen"][0] < best_nll + 0.0005
    assert means["chosen"][1] < best_error + 0.001
    assert means["chosen"][1] < 0.017 < 0.09 < means["temperature"][1]
