"""Structured scaling against an independent minimiser, and its cross-fit against real refits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import calibrant
from calibrant import StructuredScaling, TemperatureScaling
from calibrant.calibrators.data import checked_samples
from calibrant.calibrators.folds import Folds
from calibrant.calibrators.linear.structured import Regression


def skewed(n=600, k=4, seed=0):
    rng = np.random.default_rng(seed)
    scores = 2.0 * rng.normal(size=(n, k))
    truth = scores @ (np.eye(k) + 0.2 * rng.normal(size=(k, k))) + rng.normal(size=k)
    return 1.5 * scores, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


def features_of(logits, temperature):
    raised = np.maximum(log_softmax(logits / temperature, axis=1), -10.0)
    return raised - raised.mean(axis=1, keepdims=True)


def criterion(flat, g, labels, strength):
    """The criterion of the docstring, one line for each of its terms."""
    n, k = g.shape
    m, b = flat[: k * k].reshape(k, k), flat[k * k :]
    loss = -log_softmax(g + g @ m.T + b, axis=1)[np.arange(n), labels].mean()
    diagonal = np.diag(m)
    rest = (m**2).sum() - (diagonal**2).sum()
    return loss + strength * k / n * ((b**2).sum() + (diagonal**2).sum() + (k - 1) * rest)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
def test_the_minimum_is_that_of_a_general_minimiser(strength):
    logits, labels = skewed()
    found = StructuredScaling(strength=strength).fit(logits=logits, labels=labels)
    temperature = TemperatureScaling().fit(logits=logits, labels=labels).temperature_
    assert found.temperature_ == pytest.approx(temperature, rel=1e-9)
    g = features_of(logits, temperature)
    slow = minimize(criterion, np.zeros(20), (g, labels, strength), tol=1e-10)
    np.testing.assert_allclose(found.matrix_ - np.eye(4), slow.x[:16].reshape(4, 4), atol=1e-4)
    np.testing.assert_allclose(found.bias_, slow.x[16:], atol=1e-4)
    expected = log_softmax(g @ found.matrix_.T + found.bias_, axis=1)
    np.testing.assert_allclose(found.predict_log_proba(logits=logits), expected, atol=1e-12)


def test_the_cross_fit_is_close_to_real_refits():
    logits, labels = skewed(1000)
    data = checked_samples(logits, labels)
    folds = Folds.of(np.ones(1000), np.arange(1000))
    regression = Regression.of(data, 2.0, 1.0)
    held_out = regression.cross_fitted(regression.minimise(), folds)
    for fold in range(5):
        inside = folds.of_piece == fold
        rows, others = folds.row[inside], folds.row[~inside]
        part = Regression.of(checked_samples(logits[others], labels[others]), 2.0, 1.0)
        weights = part.minimise().weights
        g = features_of(logits[rows], 2.0)
        expected = log_softmax(g + g @ weights[:, :-1].T + weights[:, -1], axis=1)
        moved = np.abs(regression.log_probs(regression.minimise().weights).T[rows] - expected)
        assert np.abs(held_out[inside] - expected).max() < 0.1 * moved.max()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "strength"), [(200, 0.1), (1000, 1.0)])
def test_the_held_out_loss_is_above_its_bound(n, strength, seed):
    logits, labels = skewed(n, seed=seed)
    folds = Folds.of(np.ones(n), np.random.default_rng(seed).permutation(n))
    regression = Regression.of(checked_samples(logits, labels), 2.0, strength)
    found = regression.minimise()
    held_out = -regression.cross_fitted(found, folds)[np.arange(n), labels[folds.row]].mean()
    inside = -regression.log_probs(found.weights)[labels, np.arange(n)].mean()
    assert inside < regression.least_held_out_loss(found, folds) <= held_out


def test_a_strong_penalty_is_temperature_scaling():
    logits, labels = skewed()
    strong = StructuredScaling(strength=1e9).fit(logits=logits, labels=labels)
    plain = TemperatureScaling().fit(logits=logits, labels=labels)
    np.testing.assert_allclose(
        strong.predict_proba(logits=logits), plain.predict_proba(logits=logits), atol=1e-4
    )


def test_whole_weights_are_repetitions():
    logits, labels = skewed(200)
    weight = np.random.default_rng(0).integers(0, 5, size=200)
    weighted = StructuredScaling().fit(logits=logits, labels=labels, sample_weight=weight)
    repeated = StructuredScaling().fit(*(np.repeat(a, weight, axis=0) for a in (logits, labels)))
    np.testing.assert_allclose(weighted.matrix_, repeated.matrix_, atol=1e-8)


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
def test_masked_classes_keep_probability_zero_and_move_nothing():
    logits, labels = skewed(400)
    found = StructuredScaling().fit(logits=logits, labels=labels)
    masked = logits.copy()
    masked[:, 3] = -np.inf
    probs = found.predict_proba(logits=masked)
    assert (probs[:, 3] == 0.0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)
    fit_on_masked = StructuredScaling().fit(masked, np.minimum(labels, 2))
    assert np.isfinite(fit_on_masked.matrix_).all()


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_the_unit_of_the_logits_does_not_matter(factor):
    logits, labels = skewed(300)
    one, other = (StructuredScaling().fit(f * logits, labels) for f in (1.0, factor))
    np.testing.assert_allclose(
        one.predict_proba(logits=logits), other.predict_proba(factor * logits), atol=1e-6
    )


def test_more_than_twenty_classes_are_refused():
    logits, labels = skewed(100, 21)
    with pytest.raises(calibrant.CalibrantError, match="at most 20 classes; found 21"):
        StructuredScaling().fit(logits=logits, labels=labels)
