"""probmetrics: temperature scaling, and the copy that it has of torch-uncertainty's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant import TemperatureScaling
from calibrant.calibrators import CalibrationWarning
from tests.peers.cases import REASON, reference_temperature, scaled_logits

peer = pytest.importorskip("probmetrics.calibrators", reason=REASON)
distributions = pytest.importorskip("probmetrics.distributions", reason=REASON)


def temperature(name: str, logits: np.ndarray, labels: np.ndarray) -> float:
    scaling = peer.get_calibrator(name)
    given = distributions.CategoricalLogits(torch.as_tensor(logits))
    scaling.fit_torch(given, torch.as_tensor(labels))
    return 1.0 / float(scaling.invtemp_)


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temperatures_agree(n_classes, scale, dtype):
    logits, labels = scaled_logits(n_classes=n_classes)
    logits = (scale * logits).astype(dtype)
    ours = TemperatureScaling().fit(logits, labels).temperature_
    assert ours == pytest.approx(reference_temperature(logits, labels), rel=1e-7)
    assert ours == pytest.approx(temperature("temp-scaling", logits, labels), rel=2e-6)


def test_temperatures_of_probabilities_agree():
    """To 1e-3: entries below 6e-8 count as that in ours, below 1e-38 in theirs."""
    logits, labels = scaled_logits()
    probs = torch.softmax(torch.as_tensor(logits), dim=-1).numpy()
    said = peer.get_calibrator("temp-scaling").fit(probs, labels).invtemp_
    ours = TemperatureScaling().fit(probs=probs.astype(np.float32), labels=labels).temperature_
    assert ours == pytest.approx(1.0 / said, rel=1e-3)


def test_mixing_moves_the_probabilities_and_not_the_temperature():
    """ts-mix gives every class 1/(n + 1) of a uniform guess: no sample is impossible after it."""
    logits, labels = scaled_logits()
    mixed = peer.get_calibrator("ts-mix")
    mixed.fit_torch(
        distributions.CategoricalLogits(torch.as_tensor(logits)), torch.as_tensor(labels)
    )
    ours = TemperatureScaling().fit(logits, labels)
    assert ours.temperature_ == pytest.approx(1.0 / float(mixed.cal_.invtemp_), rel=1e-6)
    given = mixed.predict_proba_torch(distributions.CategoricalLogits(torch.as_tensor(logits)))
    share = 1.0 / (len(labels) + 1)
    expected = (1.0 - share) * ours.predict_proba(logits) + share / logits.shape[1]
    assert given.get_probs().numpy() == pytest.approx(expected, rel=1e-5)


def test_the_method_of_torch_uncertainty_stops_early_on_large_logits():
    """T = 1976 is right; a hundred steps of L-BFGS from 1 come to 100, and say nothing."""
    logits, labels = scaled_logits()
    right = reference_temperature(1000 * logits, labels)
    ours = TemperatureScaling().fit(1000 * logits, labels).temperature_
    theirs = temperature("torchunc-ts", 1000 * logits, labels)
    assert ours == pytest.approx(right, rel=1e-7)
    assert (right, theirs) == pytest.approx((1975.55, 100.27), rel=1e-3)


def test_the_method_of_torch_uncertainty_turns_right_into_wrong():
    """Where every sample is right the step overshoots to T < 0, and every prediction is wrong."""
    logits, _ = scaled_logits()
    labels = logits.argmax(axis=1)
    theirs = temperature("torchunc-ts", logits, labels)
    assert theirs < 0.0
    assert ((logits / theirs).argmax(axis=1) != labels).all()
    with pytest.warns(CalibrationWarning, match="T = 0"):
        ours = TemperatureScaling().fit(logits, labels)
    assert ours.report_.at_bound == "T -> 0"
    assert (ours.predict(logits) == labels).all()
