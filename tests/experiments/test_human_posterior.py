"""Votes of people: divergence, groups by agreement; and resampled equal-width errors."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import ece
from experiments.human_posterior.people import EVERY, by_agreement, divergence
from experiments.scoreboard.resampling import Interval, resampled_ece

SHARES = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.8, 0.1, 0.1], [0.95, 0.05, 0.0]])


def test_the_divergence_is_zero_at_the_votes_and_ignores_classes_without_votes():
    with np.errstate(divide="ignore"):
        at_votes = np.maximum(np.log(SHARES), -700.0)
    assert divergence(SHARES, at_votes) == pytest.approx(np.zeros(4), abs=1e-12)
    uniform = np.full((4, 3), -np.log(3.0))
    assert divergence(SHARES, uniform)[:2] == pytest.approx([np.log(1.5), np.log(3.0)])


def test_every_image_is_in_one_group():
    groups = by_agreement(SHARES, [0.7, 0.9, 1.0])
    assert groups.pop(EVERY).all()
    assert list(groups) == ["below 0.7", "0.7 to 0.9", "0.9 to 1", "all votes the same"]
    assert np.sum(list(groups.values()), axis=0).tolist() == [1, 1, 1, 1]
    assert [each.argmax() for each in groups.values()] == [0, 2, 3, 1]


def test_resampled_equal_width_errors_are_those_of_the_drawn_samples():
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.ones(3), size=200), rng.integers(0, 3, 200)
    rows = rng.integers(0, 200, size=(3, 200))
    counts = np.array([np.bincount(each, minlength=200) for each in rows], dtype=float)
    found = resampled_ece(probs.max(axis=1), probs.argmax(axis=1) == labels, counts, 15)
    expected = [ece(probs[each], labels[each]) for each in rows]
    assert found["ece"] == pytest.approx(expected)
    assert resampled_ece(probs.max(axis=1), probs.argmax(axis=1) == labels, np.ones((1, 200)), 15)[
        "ece_noise"
    ] == pytest.approx([0.0])


def test_an_interval_has_a_name_for_each_of_its_numbers():
    assert Interval(1.0, 0.5, 2.0).named("gain") == {
        "gain": 1.0,
        "gain: 95% from": 0.5,
        "gain: 95% to": 2.0,
    }
    assert Interval(1.0, None, None).named("gain") == {"gain": 1.0}
