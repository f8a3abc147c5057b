"""The focal map beside temperature scaling: the printed values."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.focal import closest_temperature, focal_log_probs, temperature_bounds


@pytest.mark.parametrize(("gamma", "temperature"), [(0.5, 0.731), (3.0, 0.276)])
def test_printed_values_for_two_classes(gamma, temperature):
    said = closest_temperature(gamma=gamma, n_classes=2)
    assert said == pytest.approx(temperature, abs=5e-4)


@pytest.mark.parametrize(
    ("gamma", "temperature"), [(0.5, 0.8056), (1.0, 0.6578), (2.0, 0.4646), (3.0, 0.3563)]
)
def test_printed_values_for_three_classes(gamma, temperature):
    said = closest_temperature(gamma=gamma, n_classes=3)
    assert said == pytest.approx(temperature, abs=5.1e-5)


@pytest.mark.parametrize(
    ("n_classes", "n_gammas", "slope", "offset"),
    [
        (2, 21, 0.967, 0.776),
        pytest.param(3, 11, 0.645, 0.899, marks=pytest.mark.slow),
        pytest.param(4, 11, 0.491, 0.948, marks=pytest.mark.slow),
    ],
)
def test_linear_fits(n_classes, n_gammas, slope, offset):
    """The grid of gamma behind the printed fits is not known, and moves their second digit."""
    gammas = np.linspace(0.0, 10.0, n_gammas)
    inverse = [1 / closest_temperature(gamma=g, n_classes=n_classes) for g in gammas.tolist()]
    fitted = np.polyfit(gammas, inverse, deg=1)
    assert fitted[0] == pytest.approx(slope, abs=0.005)
    assert fitted[1] == pytest.approx(offset, abs=0.03)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_other_temperature_is_closer(n_classes):
    """A slow scan over temperatures, on random points of the simplex and its edges."""
    gamma = 2.0
    best = closest_temperature(gamma=gamma, n_classes=n_classes)
    axis = np.linspace(-10, 0, 101)
    grid = np.stack(np.meshgrid(*[axis] * (n_classes - 1)), axis=-1).reshape(-1, n_classes - 1)
    logits = np.concatenate([np.zeros((len(grid), 1)), grid], axis=-1)
    mapped = np.exp(focal_log_probs(logits, gamma=gamma))

    def distance(temperature: float) -> float:
        return float(
            np.abs(np.exp(focal_log_probs(logits / temperature, gamma=0.0)) - mapped).max()
        )

    others = best * np.linspace(0.5, 2.0, 61)
    assert distance(best) <= min(map(distance, others.tolist())) + 2e-4


def test_large_gamma_is_seen_at_its_own_scale():
    """Brute force on gaps of the size 1 / gamma."""
    assert closest_temperature(gamma=100.0, n_classes=3) == pytest.approx(0.0150, abs=5e-5)


def test_gamma_zero_is_no_scaling():
    assert temperature_bounds(gamma=0.0) == (1.0, 1.0)
    for n_classes in (2, 3, 4):
        assert closest_temperature(gamma=0.0, n_classes=n_classes) == pytest.approx(1.0, abs=1e-5)


def test_printed_bounds():
    assert temperature_bounds(gamma=4.0) == pytest.approx((0.2, 0.238), abs=5e-4)
