"""Temperature scaling of scikit-learn and netcal: where it agrees, and where it fails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from calibrant import TemperatureScaling
from calibrant.calibrators import CalibrationWarning
from experiments.scoreboard import peers as adapters
from tests.peers.cases import REASON, reference_temperature, scaled_logits

sklearn_calibration = pytest.importorskip("sklearn.calibration", reason=REASON)
frozen = pytest.importorskip("sklearn.frozen", reason=REASON)
netcal = pytest.importorskip("netcal.scaling", reason=REASON)

pytestmark = pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    log_probs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-log_probs[np.arange(len(labels)), labels].mean())


def scikit_learn(logits: np.ndarray, labels: np.ndarray) -> float:
    classifier = frozen.FrozenEstimator(adapters.given_logits(logits.shape[1]))
    scaled = sklearn_calibration.CalibratedClassifierCV(classifier, method="temperature")
    calibrators = scaled.fit(logits, labels).calibrated_classifiers_[0].calibrators
    return 1.0 / float(calibrators[0].beta_)


def of_netcal(probs: np.ndarray, labels: np.ndarray) -> float:
    scaling = netcal.TemperatureScaling()
    scaling.fit(probs[:, 1] if probs.shape[1] == 2 else probs, labels)
    return 1.0 / float(scaling.temperature[0])


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scikit_learn_agrees(n_classes, dtype):
    logits, labels = scaled_logits(n_classes=n_classes)
    logits = logits.astype(dtype)
    ours = TemperatureScaling().fit(logits, labels).temperature_
    right = reference_temperature(logits, labels)
    theirs = scikit_learn(logits, labels)
    assert ours == pytest.approx(right, rel=1e-7)
    assert theirs == pytest.approx(right, rel=1e-3)
    assert nll(logits, labels, ours) <= nll(logits, labels, theirs) + 1e-15


@pytest.mark.parametrize("n_classes", [2, 10, 100])
def test_netcal_agrees_in_double_precision(n_classes):
    logits, labels = scaled_logits(n_classes=n_classes)
    ours = TemperatureScaling().fit(logits, labels).temperature_
    theirs = of_netcal(softmax(logits, axis=1), labels)
    assert theirs == pytest.approx(ours, rel=1e-3)
    assert nll(logits, labels, ours) <= nll(logits, labels, theirs) + 1e-15


def test_netcal_finds_1_in_single_precision():
    """The step of its finite differences rounds away, so the first guess is the result."""
    logits, labels = scaled_logits()
    probs = softmax(logits, axis=1).astype(np.float32)
    assert of_netcal(probs, labels) == 1.0
    ours = TemperatureScaling().fit(probs=probs, labels=labels).temperature_
    assert ours == pytest.approx(reference_temperature(logits, labels), rel=1e-4)


def test_netcal_turns_predictions_around_where_the_model_is_worse_than_chance():
    logits, labels = scaled_logits(sign=-1.0)
    theirs = of_netcal(softmax(logits, axis=1), labels)
    assert theirs == pytest.approx(-2.019, abs=6e-4)
    before = logits.argmax(axis=1)
    assert ((logits / theirs).argmax(axis=1) != before).all()
    with pytest.warns(CalibrationWarning, match="worse than chance"):
        ours = TemperatureScaling().fit(logits, labels)
    assert ours.report_.at_bound == "T -> infinity"
    assert (ours.predict(logits) == before).all()


def test_netcal_loses_large_logits():
    """It takes probabilities only, in which a thousand times larger logits are 0 and 1."""
    logits, labels = scaled_logits()
    theirs = of_netcal(softmax(1000 * logits, axis=1), labels)
    ours = TemperatureScaling().fit(1000 * logits, labels).temperature_
    assert ours == pytest.approx(reference_temperature(1000 * logits, labels), rel=1e-7)
    assert (ours, theirs) == pytest.approx((1975.55, 15.577), rel=1e-4)


def test_scikit_learn_stops_at_the_end_of_its_range():
    """T is between e^-10 and e^10 = 22026, without a word where it would be beyond."""
    logits, labels = scaled_logits()
    theirs = scikit_learn(1e5 * logits, labels)
    ours = TemperatureScaling().fit(1e5 * logits, labels).temperature_
    assert ours == pytest.approx(1e5 * reference_temperature(logits, labels), rel=1e-7)
    assert (ours, theirs) == pytest.approx((197555.0, 22026.5), rel=1e-4)


def test_scikit_learn_takes_some_logits_for_probabilities():
    """Scores between 0 and 1 that sum to 1 are guessed to be probabilities."""
    rng = np.random.default_rng(1)
    logits = rng.dirichlet(np.ones(5), size=3000)
    labels = (2.0 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    right = reference_temperature(logits, labels)
    ours = TemperatureScaling().fit(logits, labels).temperature_
    assert ours == pytest.approx(right, rel=1e-7)
    assert (right, scikit_learn(logits, labels)) == pytest.approx((0.5067, 3.361), rel=1e-3)


def test_scikit_learn_refuses_a_class_without_labels():
    logits, labels = scaled_logits()
    seen = labels != 9
    with (
        pytest.warns(RuntimeWarning, match="does not match total number of classes"),
        pytest.raises(IndexError, match="out of bounds"),
    ):
        scikit_learn(logits[seen], labels[seen])
    ours = TemperatureScaling().fit(logits[seen], labels[seen]).temperature_
    assert ours == pytest.approx(reference_temperature(logits[seen], labels[seen]), rel=1e-7)
