"""Passes over few numbers are computed in NumPy, those over many are compiled: the same results."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant._numerics.first_use import few_up_to
from calibrant.metrics import evaluate
from calibrant.metrics.binning import EqualWidthBins, width_index
from calibrant.metrics.calibration import class_sums
from calibrant.metrics.samples import samples_from_scores

RNG = np.random.default_rng(0)


def both_ways(function):
    """The results in NumPy and compiled."""
    found = []
    for most in (1 << 30, -1):
        with few_up_to(most):
            found.append(function())
    return found


def hostile_logits(dtype: str) -> np.ndarray:
    rows = RNG.normal(size=(60, 5)).astype(dtype) * 4
    rows[0] = 0.0  # ties
    rows[1, 2:] = -np.inf  # masked
    rows[2] = [-np.inf, -np.inf, 3, -np.inf, -np.inf]  # one class
    rows[3] = [60000, 0, -60000, 1, 2]
    rows[4] = [5, 5, 1, 5, 5]
    return rows


def hostile_probs(dtype: str) -> np.ndarray:
    rows = RNG.dirichlet(np.ones(5), size=60)
    rows[0] = 0.2
    rows[1] = [0, 0, 1, 0, 0]
    rows[2] = [0.5, 0.5, 0, 0, 0]
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_every_sum_is_the_same(dtype, weighted, kind):
    scores = hostile_logits(dtype) if kind == "logits" else hostile_probs(dtype)
    labels = RNG.integers(0, 5, size=len(scores))
    labels[:3] = 2
    weight = RNG.integers(1, 4, size=len(scores)).astype(float) if weighted else None

    def everything():
        samples = samples_from_scores(**{kind: scores}, labels=labels, sample_weight=weight)
        sums = class_sums(samples, 15)
        rows = (samples.confidence, samples.correct, samples.true_log_prob, samples.squares)
        return (*rows, sums.predicted, sums.observed, sums.variance)

    for few, many in zip(*both_ways(everything), strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("n_bins", [1, 3, 10, 15, 49])
def test_bins_are_the_same_also_on_their_edges(n_bins):
    edges = np.arange(n_bins + 1) / n_bins
    beside = (np.nextafter(edges, 2), np.nextafter(edges, -1))
    values = np.concatenate([edges, *beside, RNG.random(50)])
    correct, weight = RNG.random(len(values)) < 0.5, RNG.random(len(values))

    def counted():
        bins = EqualWidthBins(n_bins)
        bins.update(np.clip(values, 0, 1), correct, weight)
        return width_index(values, n_bins), bins.count, bins.sums

    (index, count, sums), (other_index, other_count, other_sums) = both_ways(counted)
    np.testing.assert_array_equal(index, other_index)
    np.testing.assert_array_equal(count, other_count)
    np.testing.assert_allclose(sums, other_sums, rtol=1e-13)


@pytest.mark.parametrize("most", [1 << 30, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_rows_are_refused(most, bad):
    logits = RNG.normal(size=(5, 3))
    logits[3] = bad
    with few_up_to(most), pytest.raises(ValueError, match=r"logits must .* 3"):
        samples_from_scores(logits=logits, labels=np.zeros(5, dtype=int))


def test_an_evaluation_is_the_same():
    logits = RNG.normal(size=(500, 4)) * 2
    labels = (logits / 2 + RNG.gumbel(size=logits.shape)).argmax(axis=1)
    few, many = both_ways(lambda: evaluate(logits=logits, labels=labels))
    assert few.verdict() == many.verdict()
    for one, other in zip(few.measured, many.measured, strict=True):
        assert (one.value, one.low, one.high) == pytest.approx(
            (other.value, other.low, other.high), rel=1e-10, nan_ok=True
        )
