"""Shares by EM against another maximiser, intervals and the test by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import calibrant
from calibrant import CalibrantError, estimate_prevalence
from calibrant.calibrators.prior_shift.estimation import maximise
from experiments.prevalence.run import SHARES, draw, logits_of, shifted

OLD, NEW = SHARES["2, 10% to 30%"]


def simulated(seed, n=1000, shares="2, 10% to 30%", shift=None):
    old, new = SHARES[shares]
    rng = np.random.default_rng(seed)
    known, labels = draw(rng, n, old)
    features = draw(rng, n, new)[0] if shift is None else shifted(rng, n, old, shift)
    return estimate_prevalence(
        logits=logits_of(known, old), labels=labels, unlabelled=logits_of(features, old)
    )


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_em_finds_the_maximum_of_the_likelihood(k, seed):
    rng = np.random.default_rng(seed)
    ratios = rng.gamma(0.5, size=(300, k))
    ratios[:, 0] *= 0.3  # so that a share may be 0
    found = maximise(ratios, np.full(k, 1.0 / k))
    other = minimize(
        lambda shares: -np.log(ratios @ shares).mean(),
        np.full(k, 1.0 / k),
        jac=lambda shares: -(ratios / (ratios @ shares)[:, None]).mean(axis=0),
        bounds=[(0.0, 1.0)] * k,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1.0},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    ).x
    np.testing.assert_allclose(found, other, atol=2e-4)
    assert np.log(ratios @ found).mean() >= np.log(ratios @ other).mean() - 1e-8


def test_shares_intervals_and_p_values_under_label_shift():
    results = [simulated(seed) for seed in range(40)]
    shares = np.array([each.shares[1] for each in results])
    widths = np.array([each.high[1] - each.low[1] for each in results])
    assert shares.mean() == pytest.approx(NEW[1], abs=0.01)
    # The interval is as wide as the estimates spread.
    assert widths.mean() / 3.92 == pytest.approx(shares.std(), rel=0.25)
    covered = [each.low[1] <= NEW[1] <= each.high[1] for each in results]
    assert 0.87 <= np.mean(covered) <= 1.0
    assert np.mean([each.is_label_shift for each in results]) >= 0.87
    for each in results:
        assert each.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("shift", ["hard", "easy", "mean", "spread"])
def test_covariate_shift_is_refused(shift):
    found = [simulated(seed, n=3000, shift=shift) for seed in range(2)]
    assert not any(each.is_label_shift for each in found)
    assert "Label shift does not explain the scores" in found[0].verdict


def test_the_same_from_logits_probabilities_and_one_column():
    rng = np.random.default_rng(0)
    known, labels = draw(rng, 500, OLD)
    new, _ = draw(rng, 500, NEW)
    a, b = logits_of(known, OLD), logits_of(new, OLD)
    expected = estimate_prevalence(logits=a, labels=labels, unlabelled=b)
    probs, more = (np.exp(s) / np.exp(s).sum(axis=1, keepdims=True) for s in (a, b))
    names = np.array(["no", "yes"])[labels]
    for found in (
        estimate_prevalence(probs, labels, more),
        estimate_prevalence(probs[:, 1], names, more[:, 1], positive="yes"),
        estimate_prevalence(logits=3.0 * a + 1.0, labels=labels, unlabelled=3.0 * b + 1.0),
    ):
        np.testing.assert_allclose(found.shares, expected.shares, atol=1e-4)
        np.testing.assert_allclose(found.low, expected.low, atol=1e-3)
    by_name = estimate_prevalence(probs, names, more)
    assert by_name.p_value == pytest.approx(expected.p_value, rel=1e-3)
    assert "yes" in str(by_name)


def test_the_estimate_repairs_the_probabilities():
    rng = np.random.default_rng(3)
    known, labels = draw(rng, 5000, OLD)
    new, new_labels = draw(rng, 5000, NEW)
    a, b = logits_of(known, OLD), logits_of(new, OLD)
    found = estimate_prevalence(logits=a, labels=labels, unlabelled=b)
    stale = calibrant.TemperatureScaling().fit(a, labels)
    shift = calibrant.PriorShift(target=found.shares, base="temperature").fit(a, labels)
    losses = [calibrant.nll(each.predict_proba(b), new_labels) for each in (stale, shift)]
    best = calibrant.nll(logits=logits_of(new, NEW) / 2.0, labels=new_labels)
    assert losses[1] < losses[0] - 0.05
    assert losses[1] == pytest.approx(best, abs=0.01)


def test_hard_inputs():
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 3
    sure = np.where(np.eye(3)[labels] == 1.0, 1.0, 0.0)  # perfect, and exactly 0 and 1
    found = estimate_prevalence(sure, labels, sure[labels == 0])
    np.testing.assert_allclose(found.shares, [1.0, 0.0, 0.0], atol=1e-3)
    same = np.full((40, 3), 1.0 / 3.0)  # no information at all
    found = estimate_prevalence(same, np.arange(40) % 3, same[:5])
    assert np.isfinite(found.shares).all()
    assert (found.low.tolist(), found.high.tolist()) == ([0.0] * 3, [1.0] * 3)
    assert found.p_value == 1.0
    masked = np.where(rng.random((200, 3)) < 0.3, -np.inf, rng.normal(size=(200, 3)))
    masked[np.arange(200), np.arange(200) % 3] = 1.0
    found = estimate_prevalence(logits=masked, labels=np.arange(200) % 3, unlabelled=masked)
    np.testing.assert_allclose(found.shares, 1.0 / 3.0, atol=0.02)
    assert set(found.to_dict()) > {"shares", "low", "high", "p_value", "is_label_shift"}


def test_classes_that_the_scores_cannot_tell_apart_have_every_share():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    first = np.where(labels == 0, 2.0, -2.0) + rng.normal(size=2000)
    logits = np.stack([first, np.zeros(2000), np.zeros(2000)], axis=1)  # 1 and 2 are the same
    found = estimate_prevalence(logits=logits, labels=labels, unlabelled=logits[labels < 2])
    assert (found.low[1:].tolist(), found.high[1:].tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert found.high[0] - found.low[0] < 0.1
    assert found.low[0] < np.mean(labels[labels < 2] == 0) < found.high[0]
    one = estimate_prevalence(logits=logits, labels=labels, unlabelled=logits[:1])
    assert (one.high - one.low).max() == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unlabelled": None}, "unlabelled scores are needed"),
        ({"unlabelled": np.full((4, 2), 0.5)}, "fitted on 3 classes; found 2"),
        ({"unlabelled": np.full((4, 3), np.nan)}, "must not contain NaN"),
        ({"unlabelled": np.full((4, 3), 1.0)}, "must sum to 1"),
        ({"unlabelled": np.empty((0, 3))}, "at least one sample"),
        ({"labels": np.zeros(40, dtype=int)}, "every class must have a labelled sample"),
        ({"labels": None}, "labels are needed"),
        ({"level": 1.0}, "level must be strictly between 0 and 1"),
        ({"probs": None}, "exactly one of probs or logits is needed"),
    ],
)
def test_refused_in_one_line(changes, message):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), size=40)
    given = {"probs": probs, "labels": np.arange(40) % 3, "unlabelled": probs, **changes}
    with pytest.raises(CalibrantError, match=message) as refusal:
        estimate_prevalence(**given)
    assert "\n" not in str(refusal.value)
