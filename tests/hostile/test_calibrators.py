"""Inputs that have broken a calibrator once."""

from __future__ import annotations

import os

import numpy as np
import pytest

from calibrant import CALIBRATORS, FocalTemperatureScaling, TemperatureScaling, load
from calibrant.calibrators import CalibrationWarning
from tests.builders import build

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(3000, 6))
LABELS = (TRUTH + RNG.gumbel(size=TRUTH.shape)).argmax(axis=1)
LOGITS = 2.0 * TRUTH
SMOOTH = ["nll", "brier", "focal"]


@pytest.mark.parametrize("criterion", [*SMOOTH, "ada_ece"])
@pytest.mark.parametrize("mask", [-1e9, -1e30, float(np.finfo(np.float32).min)])
def test_large_negative_logits_are_as_good_as_absent_classes(criterion, mask):
    absent = RNG.random(LOGITS.shape) < 0.3
    absent[np.arange(len(LABELS)), LABELS] = False
    scaling = TemperatureScaling(criterion=criterion)
    exact = scaling.fit(np.where(absent, -np.inf, LOGITS), LABELS).temperature_
    masked = scaling.fit(np.where(absent, mask, LOGITS), LABELS).temperature_
    assert masked == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("criterion", SMOOTH)
def test_one_row_of_another_size_changes_little(criterion):
    logits, labels = LOGITS.copy(), LABELS.copy()
    scaling = TemperatureScaling(criterion=criterion)
    before = scaling.fit(logits, labels).temperature_
    logits[0] *= 1e12
    labels[0] = logits[0].argmax()
    assert scaling.fit(logits, labels).temperature_ == pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("criterion", SMOOTH)
@pytest.mark.parametrize("size", [1e-290, 1e-160, 1e40, 1e200, 1e290])
def test_logits_of_any_size(criterion, size, tmp_path):
    scaling = TemperatureScaling(criterion=criterion)
    expected = scaling.fit(LOGITS, LABELS).temperature_
    scaling.fit(LOGITS * size, LABELS)
    assert scaling.temperature_ / size == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(scaling.report_.after)
    scaling.save(tmp_path / "cal.json")
    again = load(tmp_path / "cal.json").predict_proba(LOGITS * size)
    assert np.array_equal(again.argmax(axis=1), LOGITS.argmax(axis=1))


def test_rows_that_say_nothing_do_not_hide_the_others():
    logits = np.repeat(LOGITS, 2, axis=0)
    logits[::2] = 0.0
    found = TemperatureScaling().fit(logits, np.repeat(LABELS, 2)).temperature_
    assert found == pytest.approx(TemperatureScaling().fit(LOGITS, LABELS).temperature_, rel=1e-6)


def test_rows_that_say_nothing_at_all():
    scaling = TemperatureScaling().fit(np.zeros((200, 3)), np.arange(200) % 3)
    assert scaling.temperature_ == 1.0
    np.testing.assert_allclose(scaling.predict_proba(np.zeros((1, 3))), 1.0 / 3.0)


def test_labels_tied_for_the_top_are_a_limit_too():
    logits = np.tile([1.0, 1.0, 0.0], (200, 1))
    labels = np.where(np.arange(200) % 4 == 0, 1, 0)
    for scaling in (TemperatureScaling(), FocalTemperatureScaling(criterion="nll")):
        with pytest.warns(CalibrationWarning, match="nearly every sample is classified"):
            scaling.fit(logits, labels)
        assert scaling.report_.at_bound == "T -> 0"
        np.testing.assert_allclose(scaling.predict_proba(logits[:1]), [[0.5, 0.5, 0.0]], atol=1e-6)


def test_a_temperature_beyond_single_precision_keeps_the_prediction():
    logits = (LOGITS[:300] * 1e35).astype(np.float32)
    with pytest.warns(CalibrationWarning, match="worse than chance"):
        scaling = TemperatureScaling().fit(logits, logits.argmin(axis=1))
    assert scaling.temperature_ > float(np.finfo(np.float32).max)
    assert np.array_equal(scaling.predict(logits), logits.argmax(axis=1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_can_predict():
    many = np.tile(LOGITS, (80, 1))  # enough for threads
    scaling = TemperatureScaling().fit(many, np.tile(LABELS, 80))
    expected = scaling.predict_proba(many)
    child = os.fork()
    if child == 0:
        same = np.array_equal(scaling.predict_proba(many), expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("name", ["temperature", "focal-temperature", "top-rest", "auto"])
def test_differences_beyond_any_float(name, share):
    logits = np.where(RNG.random(LOGITS.shape) < share, np.sign(LOGITS) * 1.7e308, LOGITS)[:400]
    calibrator = CALIBRATORS[name]().fit(logits, LABELS[:400])
    assert np.isfinite(calibrator.report_.after)
    probs = calibrator.predict_proba(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    if name != "auto":  # which may change the class
        assert np.array_equal(probs.argmax(axis=1), logits.argmax(axis=1))


def test_a_temperature_at_the_largest_float_has_its_own_nll():
    scaling = TemperatureScaling().fit(1e300 * LOGITS[:400], LABELS[:400])
    log_probs = scaling.predict_log_proba(1e300 * LOGITS[:400])
    held = -log_probs[np.arange(400), LABELS[:400]].mean()
    assert scaling.report_.after == pytest.approx(held, rel=1e-12)


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
@pytest.mark.parametrize("size", [1e100, 1e300])
@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_logits_far_beyond_single_precision(name, size):
    logits = size * LOGITS[:200]
    probs = build(name).fit(logits, LABELS[:200]).predict_proba(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-6)


def test_a_search_by_bins_does_not_mind_how_far_below_a_class_lies():
    far = np.where(LOGITS[:400] == LOGITS[:400].max(axis=1, keepdims=True), LOGITS[:400], -2e6)
    scaling = CALIBRATORS["focal-temperature"]
    fits = [scaling().fit(logits, LABELS[:400]) for logits in (far, np.maximum(far, -9e5))]
    assert fits[0].state_ == fits[1].state_
