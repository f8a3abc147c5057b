"""The worst slice: found if there is one, and with a p-value that accounts for the search."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from calibrant.errors import CalibrantError
from calibrant.metrics import worst_slices
from calibrant.metrics.samples import samples_from_scores
from calibrant.metrics.slices import search_slices


def draw(n, seed, gap=0.0):
    """Three columns, and P(class 1) that is too high by ``gap`` where a = 1 and b = 2."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.integers(0, k, n) for name, k in (("a", 3), ("b", 4), ("c", 2))}
    p = rng.beta(0.7, 0.7, n)
    bad = (columns["a"] == 1) & (columns["b"] == 2)
    labels = (rng.random(n) < np.clip(p - gap * bad, 0.0, 1.0)).astype(int)
    return p, labels, columns


def test_a_planted_slice_is_found():
    found = worst_slices(*draw(4000, 0, gap=0.25)[:2], groups=draw(4000, 0)[2])
    assert found.worst.name == "a=1, b=2"
    assert found.off[0] == found.worst
    assert found.worst.p_value < 0.01
    assert found.worst.mean_prob - found.worst.rate == pytest.approx(0.2, abs=0.08)
    assert json.loads(found.to_json())["slices"][0]["by"] == {"a": "1", "b": "2"}
    assert "a=1, b=2" in str(found)
    assert "a=1, b=2" in found._repr_html_()


def test_a_search_needs_columns():
    with pytest.raises(CalibrantError, match=r"needs the columns .*; found none"):
        worst_slices([0.5, 0.5], [0, 1], groups=None)


def deviation(p, y):
    """From the formulas, one slice at a time."""
    v = p * (1 - p)
    x = np.log(p / (1 - p))
    tilt = x - (v @ x) / v.sum()
    mean = abs((p - y).sum()) / np.sqrt(v.sum())
    slope = abs((p - y) @ tilt) / np.sqrt(v @ tilt**2)
    return np.sqrt(v.sum() / (v.sum() + 1)) * max(mean, slope)


def test_slices_are_ordered_by_their_deviations():
    p, labels, columns = draw(600, 1)
    found = worst_slices(p, labels, groups=columns, n_simulations=20)
    expected = {}
    for size in (1, 2):
        for names in itertools.combinations(columns, size):
            for values in itertools.product(*(np.unique(columns[name]) for name in names)):
                pairs = list(zip(names, values, strict=True))
                rows = np.all([columns[name] == value for name, value in pairs], axis=0)
                by = tuple((name, str(value)) for name, value in pairs)
                expected[by] = deviation(p[rows], labels[rows])
    assert found.n_slices == len(expected)
    ranked = sorted(expected, key=expected.get, reverse=True)
    assert [each.by for each in found.slices] == ranked[: len(found.slices)]


def test_the_p_value_is_uniform_for_calibrated_models():
    p_values = []
    for seed in range(100):
        p, labels, columns = draw(200, 1000 + seed)
        samples = samples_from_scores(p, labels, groups=columns)
        search = search_slices(samples, n_simulations=100, random_state=seed)
        p_values.append(search.worst.p_value)
    # The largest distance from a uniform distribution of 100 numbers is below 0.16 in 99%.
    steps = np.arange(1, 101) / 100
    assert np.abs(np.sort(p_values) - steps).max() < 0.16


def test_a_pair_that_adds_nothing_is_no_slice_of_its_own():
    p, labels, columns = draw(100, 2)
    alone = worst_slices(p, labels, groups={"a": columns["a"]}, n_simulations=20)
    doubled = {"a": columns["a"], "same": columns["a"]}
    assert worst_slices(p, labels, groups=doubled, n_simulations=20).n_slices == 6
    assert alone.n_slices == 3


def test_several_classes_are_searched_by_confidence():
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(3000, 4))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    groups = {"a": rng.integers(0, 4, 3000), "b": rng.integers(0, 3, 3000)}
    logits = truth * np.where(groups["a"] == 2, 3.0, 1.0)[:, None]
    found = worst_slices(logits=logits, labels=labels, groups=groups, n_simulations=100)
    assert found.worst.name == "a=2"
