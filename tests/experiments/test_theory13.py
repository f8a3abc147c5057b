"""The theory of papers 1 and 3: the functions of the experiments against independent arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from calibrant.focal import confidence_thresholds, inverse_focal_map
from experiments.confidence_regions.outputs import (
    all_of_three_classes,
    gamma_near_uniform,
    largest_gamma,
    last_true,
    one_above,
    one_below,
    random_outputs,
)
from experiments.focal_minimiser.minimising import minimise
from experiments.focal_minimiser.run import out_of_order, uniform_over_some
from experiments.gradient_factor import claims
from experiments.linear_model.clusters import Clusters


def largest_after_the_map(row, gamma):
    """With 50 digits, from the formula."""
    with mp.workdps(50):
        q = [mpf(each) for each in row]
        total = sum(q)
        q = [each / total for each in q]

        def h(v):
            return v / ((1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * mp.log(v))

        return max(q), max(map(h, q)) / sum(map(h, q))


@pytest.mark.parametrize(("gamma", "is_over"), [(1, True), (mpf("1.42"), True), (1.44, False)])
def test_four_classes_can_be_over_confident(gamma, is_over):
    tiny = mpf("1e-9") if gamma == mpf("1.42") else mpf("0.004")
    said, true = largest_after_the_map([1 - tiny, 1 - tiny, 1 - tiny, 3 * tiny], gamma)
    assert (said > true) == is_over


@pytest.mark.parametrize(("gamma", "is_over"), [("0.0293", True), ("0.03", False)])
def test_the_limit_of_the_footnote_lies_below_what_it_prints(gamma, is_over):
    top = mpf("0.2") + mpf("1e-9")
    said, true = largest_after_the_map([top, *[(1 - top) / 4] * 4], mpf(gamma))
    assert (said > true) == is_over


def test_the_limit_near_uniform_is_where_phi_is_largest_there():
    for n_classes in (5, 6, 10, 50):
        peak, _ = confidence_thresholds(gamma=gamma_near_uniform(n_classes))
        assert peak == pytest.approx(1 / n_classes, rel=1e-9)
    assert gamma_near_uniform(4) < 0


def test_the_largest_gamma_is_found_and_nothing_where_there_is_none():
    found = largest_gamma(one_above(np.array([0.2 + 1e-8]), 5))
    assert found == pytest.approx(gamma_near_uniform(5), abs=1e-6)
    assert largest_gamma(one_above(np.array([0.5 + 1e-8]), 2)) == 0.0
    assert last_true(lambda x: x < 0.3, low=0.0, high=1.0) == pytest.approx(0.3, abs=1e-11)


@pytest.mark.parametrize("n_classes", [2, 4, 100])
def test_outputs_to_search_are_probabilities(n_classes):
    rng = np.random.default_rng(0)
    some = np.array([0.01])
    for probs in (
        random_outputs(300, n_classes, rng),
        one_above(some, n_classes),
        one_below(some, n_classes),
        all_of_three_classes(7),
    ):
        assert (probs >= 0).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
    grid = all_of_three_classes(7)
    assert (np.diff(grid, axis=1) <= 1e-15).all()
    assert len(grid) == 49


def test_gradients_find_what_the_inverse_map_says():
    truth = np.array([[0.9, 0.1, 0.001], [0.2, 0.3, 0.5]])
    truth /= truth.sum(axis=1, keepdims=True)
    found = torch.softmax(torch.tensor(minimise(truth, 2.0)), -1).numpy()
    np.testing.assert_allclose(found, inverse_focal_map(truth, gamma=2.0), atol=1e-6)


def test_a_pair_out_of_order_is_counted():
    truth = np.array([[0.2, 0.3, 0.5]])
    assert out_of_order(truth, truth) == 0
    assert out_of_order(truth, np.array([[0.3, 0.2, 0.5]])) == 1
    assert uniform_over_some(3).tolist() == [[1, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3]


def test_exceptions_to_the_bound_would_be_found(monkeypatch):
    drawn = {"n_classes": 3, "n": 200}
    assert claims.below_the_bound([1.0], **drawn, rng=np.random.default_rng(0)) == 0
    monkeypatch.setattr(claims, "entropy", lambda q: -np.ones(len(q)))
    assert claims.below_the_bound([1.0], **drawn, rng=np.random.default_rng(0)) == 200


def test_the_closed_form_is_that_of_the_proposition():
    with mp.workdps(40):
        p0 = mpf("0.2")
        a, b = 1 - p0, p0 * mp.log(p0)
        w = mp.lambertw(-(a ** (1 - a / b)) / b * mp.log(a), -1)
        by_hand = float(a / b + w / mp.log(a))
    assert claims.closed_form(np.array([0.2]), -1)[0] == pytest.approx(by_hand, rel=1e-12)
    assert claims.not_held_back(np.array([0.2]), [0.9], 50) > 0  # below gamma*, as it must be


def test_clusters_have_the_labels_they_promise():
    points, labels = Clusters(corner=3.0, flipped=0.05).draw()[0]
    right = points[:, 0].numpy() > 0
    assert (right != labels.numpy().astype(bool)).mean() == pytest.approx(0.05, abs=0.02)
