"""Finite masks of any size, and numbers that are none, in the searches for a temperature."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import FocalTemperatureScaling, TemperatureScaling
from calibrant.calibrators.temperature.grid_pruning import Point
from calibrant.calibrators.temperature.interpolated_errors import mass_error, width_error

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

MASKS = [-1e38, -1e39, -1e100, -1e300, float(np.finfo(np.float64).min)]


def masked(mask, n=300, n_classes=5):
    """Over-confident samples, one of which has every class but its own at ``mask``."""
    rng = np.random.default_rng(0)
    truth = 1.4 * rng.normal(size=(n, n_classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = 1.8 * truth
    logits[7], labels[7] = mask, 2
    logits[7, 2] = 1.0
    return logits, labels


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("criterion", ["ece", "ada_ece", "nll", "brier", "focal"])
@pytest.mark.parametrize("method", [TemperatureScaling, FocalTemperatureScaling])
def test_a_finite_mask_is_as_good_as_an_absent_class(method, criterion, mask):
    logits, labels = masked(mask)
    absent = np.where(logits == mask, -np.inf, logits)
    found, expected = (method(criterion=criterion).fit(x, labels) for x in (logits, absent))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    assert found.report_.after <= found.report_.before
    assert found.report_.after == pytest.approx(expected.report_.after, rel=1e-9)


@pytest.mark.parametrize("search", ["grid", "line", "refine"])
@pytest.mark.parametrize("mask", MASKS)
def test_no_search_ends_worse_than_it_began(search, mask):
    logits, labels = masked(mask)
    report = FocalTemperatureScaling(search=search).fit(logits, labels).report_
    assert np.isfinite(report.after)
    assert report.after <= report.before


def test_numbers_that_are_none_give_two_numbers():
    for bad in ([np.nan], [0.3, np.nan, 0.2], [np.nan] * 40, [np.inf, np.nan, -np.inf, 0.0]):
        log_odds = np.sort(bad)
        weight, edges = np.ones(len(bad)), np.linspace(0.0, len(bad), 16)
        assert len(mass_error(log_odds, weight, weight, edges, 1e-6)) == 2
        assert len(width_error(log_odds, weight, weight, edges / len(bad), 1e-6)) == 2


def test_a_criterion_that_is_no_number_is_never_compared():
    with pytest.raises(FloatingPointError, match=r"not a number at gamma = 0, T = 2"):
        Point(0.0, 2.0, float("nan"))
