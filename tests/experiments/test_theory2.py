"""What the experiments on Komisarenko and Kull (2024) rest on, checked another way."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.focal import closest_temperature, phi
from calibrant.focal.simplex import to_plane, to_simplex
from experiments.catalogue import catalogue
from experiments.closest_temperature.distance import (
    best_gamma,
    best_temperature,
    focal,
    scaled,
    two_level_rows,
)
from experiments.proper_part.run import printed_map
from experiments.risk_isolines.run import harmonics
from experiments.simplex_maps.triangle import rows_of_probabilities
from experiments.temperature_bounds.run import effective_inverse_temperature, tightest
from experiments.top_probability.rows import rising_rows, two_level_rows as two_level_probabilities
from experiments.top_probability.run import inflection


def falling_rows(n_classes, largest_gap, step):
    axis = -step * np.arange(round(largest_gap / step) + 1)
    lower = np.stack(np.meshgrid(*[axis] * (n_classes - 1), indexing="ij"), axis=-1)
    lower = lower.reshape(-1, n_classes - 1)
    lower = lower[(np.diff(lower, axis=-1) <= 0).all(axis=-1)]
    return np.concatenate([np.zeros((len(lower), 1)), lower], axis=-1)


@pytest.mark.parametrize(("n_classes", "step"), [(3, 0.1), (4, 0.4)])
def test_no_row_of_a_full_grid_differs_more_than_those_of_two_levels(n_classes, step):
    every = falling_rows(n_classes, 10.0, step)
    some = two_level_rows(n_classes, largest_gap=10.0, step=0.005)
    rng = np.random.default_rng(0)
    for gamma in 10.0 * rng.random(25) ** 2:
        temperature = 1.0 / rng.uniform(0.5, gamma + 1.5)
        of_every = np.abs(focal(every, gamma) - scaled(every, temperature)).max()
        of_some = np.abs(focal(some, gamma) - scaled(some, temperature)).max()
        assert of_every <= of_some + 1e-9


@pytest.mark.parametrize(("n_classes", "gap", "off"), [(2, 20.0, 1e-5), (3, 10.0, 2e-4)])
def test_the_closest_temperature_is_that_of_the_library(n_classes, gap, off):
    rows = two_level_rows(n_classes, largest_gap=gap, step=0.01)
    for gamma in (0.5, 3.0):
        library = closest_temperature(gamma=gamma, n_classes=n_classes)
        assert best_temperature(rows, gamma)[0] == pytest.approx(library, rel=off)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_the_closest_gamma_is_no_local_one(n_classes):
    rows = two_level_rows(n_classes, largest_gap=10.0, step=0.05)
    maps = [focal(rows, gamma) for gamma in np.arange(0, 201) / 20.0]
    for temperature in (0.25, 0.5, 0.9):
        wanted = scaled(rows, temperature)
        found = np.abs(focal(rows, best_gamma(rows, temperature, highest=10.0)) - wanted).max()
        assert found <= min(np.abs(mapped - wanted).max() for mapped in maps) + 1e-6


def test_bounds_of_the_effective_temperature_near_zero_and_far_away():
    # At s -> 0 the slope of the log odds; far away gamma + 1 less a logarithm over s.
    gamma, half = 4.0, 0.5
    step = 1e-5
    q = np.array([half - step, half + step])
    odds = np.log(printed_map(q, gamma) / (1.0 - printed_map(q, gamma)))
    slope = (odds[1] - odds[0]) / (np.log(q / (1.0 - q))[1] - np.log(q / (1.0 - q))[0])
    assert effective_inverse_temperature(np.array([1e-6]), gamma)[0] == pytest.approx(slope, 1e-6)
    far = np.array([1e6])
    assert tightest(far, gamma)[0] == pytest.approx(1.0 / (gamma + 1.0), rel=1e-5)


@pytest.mark.parametrize(("n_classes", "parts", "expected"), [(2, 4, 2), (3, 6, 3), (4, 8, 5)])
def test_rising_rows_are_the_partitions_of_a_number(n_classes, parts, expected):
    rows = rising_rows(n_classes, parts)
    assert len(rows) == expected
    assert np.all(np.diff(rows, axis=-1) >= 0)
    assert np.all(rows > 0)
    assert rows.sum(axis=-1) == pytest.approx(np.ones(expected))


def test_rows_of_two_levels_have_their_top_first():
    rows = two_level_probabilities(10, 20)
    assert rows.sum(axis=-1) == pytest.approx(np.ones(len(rows)))
    assert np.all(rows[:, 0] == rows.max(axis=-1))
    assert np.all(rows > 0)


def test_the_curve_of_prop_5_bends_one_way_below_the_inflection_and_the_other_above():
    edge = inflection(1.0)
    for low, high, bends_down in ((0.1 * edge, 0.95 * edge, True), (1.05 * edge, 0.9, False)):
        q = np.array([low, (low + high) / 2.0, high])
        first, middle, last = q / np.asarray(phi(q, gamma=1.0))
        assert (middle > (first + last) / 2.0) == bends_down


def test_triangle_and_back():
    rows = rows_of_probabilities(12, inside=False)
    assert len(rows) == 13 * 14 // 2
    assert to_simplex(to_plane(rows)) == pytest.approx(rows)
    assert rows_of_probabilities(12, inside=True).min() == pytest.approx(1 / 12)


def test_harmonics_find_the_waves_of_a_radius():
    angle = 2 * np.pi * np.arange(720) / 720
    radius = 1.0 + 0.02 * np.cos(2 * angle + 0.3) + 0.01 * np.cos(3 * angle)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    oval, triangular = harmonics(points + np.array([5.0, -3.0]))
    assert oval == pytest.approx(2.0, abs=0.05)
    assert triangular == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", ["temperature-bounds", "proper-part"])
def test_a_run_finds_what_is_expected(name):
    experiment = catalogue()[name]
    found = experiment.module.run(experiment.parameters).values
    for value, expected in experiment.expected().items():
        assert expected.holds(found[value]), value
