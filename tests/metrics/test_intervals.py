"""Intervals of errors over bins, from normal bin sums with known truth."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.metrics import intervals
from calibrant.metrics.intervals import error_interval, resampled_means, total_error

FEW = np.eye(1, 15)[0] * 5.0
MANY = np.resize([1.5, -1.5], 15)


@pytest.mark.slow
@pytest.mark.parametrize("true", [FEW, MANY, 5.0 * MANY, np.zeros(15)])
def test_few_bins_off_and_many_are_covered_alike(true):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(150):
        observed = 0.003 * (true + rng.standard_normal(15))
        resampled = observed + 0.003 * rng.standard_normal((300, 15))
        low, high = error_interval(observed, resampled, total_error, 0.95)
        covered += low <= total_error(0.003 * true) <= high
    assert covered >= 129  # at 91%, the least expected, fewer come about twice in a hundred times


def test_sums_well_above_their_noise_have_the_usual_interval():
    """Then the error is linear in the sums, and its interval that of a normal mean."""
    rng = np.random.default_rng(1)
    observed = np.array([0.05, -0.04, 0.06])
    noise = 0.001 * rng.standard_normal((100_000, 3))
    low, high = error_interval(observed, observed + noise, total_error, 0.95)
    half = 1.96 * 0.001 * np.sqrt(3.0)
    assert [low, high] == pytest.approx([0.15 - half, 0.15 + half], abs=5e-5)


def test_without_noise_the_interval_is_the_error():
    observed = np.array([0.1, -0.2, 0.0])
    ends = error_interval(observed, np.tile(observed, (20, 1)), total_error, 0.95)
    assert ends == pytest.approx((0.3, 0.3))


def test_what_noise_explains_may_be_no_error():
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((1000, 15)) * 0.01
    low, high = error_interval(noise[0], noise[0] + noise, total_error, 0.95)
    assert low == 0.0
    assert high > 0.0


def test_a_higher_level_gives_a_wider_interval():
    rng = np.random.default_rng(3)
    observed = np.linspace(-0.02, 0.05, 10)
    resampled = observed + 0.01 * rng.standard_normal((2000, 10))
    ends = [error_interval(observed, resampled, total_error, level) for level in (0.8, 0.95, 0.99)]
    lows, highs = np.transpose(ends)
    assert (np.diff(lows) < 0).all()
    assert (np.diff(highs) > 0).all()


def drawn_again(n, n_resamples, seed):
    """The indices of each resample, from the same stream."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, n, n) for _ in range(n_resamples)]


@pytest.mark.parametrize("held", [0, 1_000_000])
def test_one_product_gives_the_means_of_the_drawn_samples(held, monkeypatch):
    monkeypatch.setattr(intervals, "HELD_COUNTS", held)
    monkeypatch.setattr(intervals, "CHUNK_NUMBERS", 500)
    rng = np.random.default_rng(2)
    weight, one, two = rng.random(70), rng.normal(size=(70, 1)), rng.normal(size=(70, 4))
    for _ in range(2):  # the counts are drawn, then reused
        means = resampled_means([one, two], weight, 30, 5)
        for i, drawn in enumerate(drawn_again(70, 30, 5)):
            for found, matrix in zip(means, (one, two), strict=True):
                expected = np.average(matrix[drawn], axis=0, weights=weight[drawn])
                assert found[i] == pytest.approx(expected, abs=1e-14)
