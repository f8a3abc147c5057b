"""Bins against the slow reference, in one piece, in a stream and in parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calibrant.metrics.binning import (
    EqualMassSketch,
    EqualWidthBins,
    equal_mass_table,
    group_starts,
    mass_membership,
    width_edges,
    width_index,
)
from tests.reference import metrics_slow as slow

confidences = st.lists(
    st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0, 1 / 3, 2 / 3]), min_size=1, max_size=60
)


def rows_of(table) -> list[tuple[float, float, float]]:
    return list(
        zip(
            table.weight.tolist(),
            table.confidence_sum.tolist(),
            table.correct_sum.tolist(),
            strict=True,
        )
    )


def close(ours, theirs) -> bool:
    return len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@given(confidences, st.integers(1, 40), st.randoms(use_true_random=False))
def test_equal_width(values, n_bins, random):
    correct = [float(random.random() < 0.5) for _ in values]
    bins = EqualWidthBins(n_bins)
    bins.update(np.array(values), np.array(correct))
    expected = slow.width_bins(values, correct, n_bins)
    assert close(rows_of(bins.table()), expected)
    assert bins.count.tolist() == [round(row[0]) for row in expected]


@given(confidences, st.integers(1, 40), st.randoms(use_true_random=False))
def test_equal_mass(values, n_bins, random):
    correct = [float(random.random() < 0.5) for _ in values]
    table = equal_mass_table(np.array(values), np.array(correct), n_bins)
    assert close(rows_of(table), slow.mass_bins(values, correct, n_bins))
    assert np.ptp(table.weight) <= 1
    assert (table.lower <= table.upper).all()
    weights = [random.choice([0.0, 1.0, 2.0, 3.0]) for _ in values]
    weights[0] = 1.0
    table = equal_mass_table(np.array(values), np.array(correct), n_bins, np.array(weights))
    assert close(rows_of(table), slow.mass_bins(values, correct, n_bins, weights))
    weights = [random.uniform(0.1, 2.0) for _ in values]
    table = equal_mass_table(np.array(values), np.array(correct), n_bins, np.array(weights))
    assert close(rows_of(table), slow.mass_bins(values, correct, n_bins, weights))


@given(confidences, st.integers(1, 40))
def test_membership_is_what_the_table_sums(values, n_bins):
    confidence = np.array(values)
    correct = np.arange(len(values)) % 2
    sample, index, share = mass_membership(confidence, n_bins)
    table = equal_mass_table(confidence, correct, n_bins)
    n = len(table.weight)
    assert np.allclose(np.bincount(sample, weights=share), 1.0)
    assert np.allclose(np.bincount(index, weights=share, minlength=n), table.weight)
    hits = np.bincount(index, weights=share * correct[sample], minlength=n)
    assert np.allclose(hits, table.correct_sum)


@given(confidences, st.integers(1, 40), st.randoms(use_true_random=False))
def test_weights_that_vanish_are_in_one_bin(values, n_bins, random):
    confidence, correct = np.array(values), np.arange(len(values)) % 2
    weight = np.array([10.0 ** random.uniform(-90, 3) for _ in values])
    sample, index, share = mass_membership(confidence, n_bins, weight)
    assert np.allclose(np.bincount(sample, weights=share), 1.0)
    table = equal_mass_table(confidence, correct, n_bins, weight)
    assert np.isfinite(table.gap).all()
    n, total = len(table.weight), weight.sum()
    mass = np.bincount(index, weights=(share * weight[sample]), minlength=n)
    assert np.allclose(mass / total, table.share, atol=1e-12)
    hits = np.bincount(index, weights=share * (weight * correct)[sample], minlength=n)
    assert np.allclose(hits / total, table.correct_sum / total, atol=1e-12)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 7, 10, 15, 25, 49, 100, 1000])
def test_a_confidence_on_an_edge_belongs_below_it(n_bins):
    edges = width_edges(n_bins)
    assert width_index(edges[1:], n_bins).tolist() == list(range(n_bins))
    above = np.nextafter(edges[:-1], 2.0)
    assert width_index(above, n_bins).tolist() == list(range(n_bins))
    assert width_index(np.array([0.0, 5e-324, 1.0]), n_bins).tolist() == [0, 0, n_bins - 1]


@pytest.mark.parametrize("make", [lambda: EqualWidthBins(15), EqualMassSketch])
def test_parts_add_up_to_the_whole(make):
    rng = np.random.default_rng(0)
    confidence, correct = rng.beta(5, 1, 5000), rng.random(5000) < 0.8
    whole = make()
    whole.update(confidence, correct)
    parts = [make() for _ in range(4)]
    cuts = [0, 0, 17, 3000, 5000]
    for part, start, stop in zip(parts, cuts, cuts[1:], strict=False):
        part.update(confidence[start:stop], correct[start:stop])
    joined = make()
    for part in reversed(parts):
        joined.merge(part)
    np.testing.assert_array_equal(joined.count, whole.count)
    np.testing.assert_allclose(joined.sums, whole.sums, rtol=1e-12)
    with pytest.raises(ValueError, match="must have the same number of bins"):
        whole.merge(EqualWidthBins(3))


def difference(sketch: EqualMassSketch, confidence, correct, n_bins: int) -> float:
    exact = equal_mass_table(confidence, correct, n_bins)
    ours = sketch.table(n_bins)
    return abs(np.abs(exact.gap * exact.share).sum() - np.abs(ours.gap * ours.share).sum())


@pytest.mark.parametrize("shape", ["peaked", "flat", "rounded", "saturated", "low"])
@pytest.mark.parametrize("n", [1, 14, 1000, 100_000])
def test_the_sketch_is_within_its_bound(shape, n):
    rng = np.random.default_rng(n)
    confidence = {
        "peaked": lambda: rng.beta(20, 1, n),
        "flat": lambda: rng.random(n),
        "rounded": lambda: np.round(rng.random(n), 2),
        "saturated": lambda: 1.0 - 10.0 ** rng.uniform(-14, 0, n),
        "low": lambda: 10.0 ** rng.uniform(-12, 0, n),
    }[shape]()
    correct = rng.random(n) < confidence**1.5
    sketch = EqualMassSketch()
    sketch.update(confidence, correct)
    assert difference(sketch, confidence, correct, 15) <= sketch.error_bound(15) + 1e-12
    if shape == "rounded":
        assert sketch.error_bound(15) == 0.0
    elif shape in ("peaked", "flat") and n >= 1000:
        assert sketch.error_bound(15) < 0.03


def test_order_inside_a_cell_is_the_worst_case():
    """All correct samples on one side of an edge, all wrong ones on the other, in one cell."""
    n = 2000
    confidence = 0.9 + 1e-9 * np.arange(n)
    correct = np.arange(n) < n // 2
    sketch = EqualMassSketch()
    sketch.update(confidence, correct)
    off = difference(sketch, confidence, correct, 2)
    assert 0.09 < off <= sketch.error_bound(2)


def test_confidences_that_differ_by_rounding_are_tied():
    c = np.array([0.3, 0.1 + 0.2, 0.3 + 1e-9, 1 - 3e-8, np.nextafter(1 - 3e-8, 1), 1 - 3e-16, 1.0])
    assert group_starts(c).tolist() == [True, False, True, True, False, True, True]


def test_a_bound_on_an_error_is_no_larger_than_an_error_can_be():
    """One cell with all samples is cut by every edge."""
    n = 5000
    confidence = np.linspace(1 - 2e-10, 1 - 1e-10, n)
    correct = np.arange(n) % 2
    sketch = EqualMassSketch()
    sketch.update(confidence, correct)
    exact = equal_mass_table(confidence, correct, 15)
    error, said = (
        float((each.share * np.abs(each.gap)).sum()) for each in (exact, sketch.table(15))
    )
    assert abs(error - said) <= sketch.error_bound(15) <= 1.0
