"""Measures of P(positive): slope and intercept against a general optimiser, and at their limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from calibrant import METRICS, evaluate
from calibrant.metrics import calibration_intercept, calibration_slope
from calibrant.metrics.evaluation import POSITIVE_METRICS, default_metrics, evaluate_samples
from calibrant.metrics.positive import positive, recalibration
from calibrant.metrics.samples import samples_from_scores, samples_of_confidence


def draw_two(n: int, intercept: float, slope: float, seed: int = 0, *, mean: float = 0.0):
    """Logits of two classes, and labels whose log-odds are linear in those of the logits."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(mean, 2.0, n)
    labels = (rng.random(n) < expit(intercept + slope * odds)).astype(int)
    return np.stack([np.zeros(n), odds], axis=1), labels


def best(odds: np.ndarray, labels: np.ndarray, *, slope: float | None = None) -> np.ndarray:
    """Intercept, and slope if it is not given, of the largest likelihood."""
    sign = 2 * labels - 1

    def loss(c: np.ndarray) -> float:
        return -log_expit(sign * (c[0] + (c[1] if slope is None else slope) * odds)).mean()

    return minimize(loss, np.zeros(2 if slope is None else 1), tol=1e-12).x


@pytest.mark.parametrize("truth", [(0.0, 1.0), (-2.0, 1.0), (0.5, 0.4), (1.0, 2.5)])
def test_slope_and_intercept_have_the_largest_likelihood(truth):
    logits, labels = draw_two(1500, *truth)
    assert calibration_slope(logits=logits, labels=labels) == pytest.approx(
        best(logits[:, 1], labels)[1], abs=1e-4
    )
    assert calibration_intercept(logits=logits, labels=labels) == pytest.approx(
        best(logits[:, 1], labels, slope=1.0)[0], abs=1e-4
    )


def test_a_calibrated_model_has_slope_1_and_intercept_0():
    logits, labels = draw_two(200_000, 0.0, 1.0)
    assert calibration_slope(logits=logits, labels=labels) == pytest.approx(1.0, abs=0.02)
    assert calibration_intercept(logits=logits, labels=labels) == pytest.approx(0.0, abs=0.02)


HOSTILE = {
    "separated": (np.array([[0.8, 0.2]] * 5 + [[0.3, 0.7]] * 5), np.repeat([0, 1], 5)),
    "one class": (np.array([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]]), np.zeros(3, dtype=int)),
    "certain and right": (np.eye(2)[[0, 1, 1]], np.array([0, 1, 1])),
    "certain and wrong": (np.eye(2)[[0, 1, 1]], np.array([1, 0, 1])),
    "always wrong": (np.eye(2)[[0, 1, 1]], np.array([1, 0, 0])),
    "constant": (np.full((7, 2), 0.5), np.arange(7) % 2),
    "one sample": (np.array([[0.3, 0.7]]), np.array([0])),
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_every_measure_is_finite(case):
    probs, labels = HOSTILE[case]
    result = evaluate(probs, labels, metrics=POSITIVE_METRICS, n_resamples=50)
    for row in result.measured:
        assert np.isfinite(row.value)
        assert row.low is None or row.low <= row.high
    with np.errstate(divide="ignore"):
        huge = 1e4 * np.maximum(np.log(probs), -1.0)
    assert np.isfinite(calibration_slope(logits=huge, labels=labels))


def test_the_measures_come_first_and_need_two_classes():
    logits, labels = draw_two(300, 0.0, 1.0)
    result = evaluate(logits=logits, labels=labels, n_resamples=50)
    assert tuple(row.name for row in result.measured)[:5] == POSITIVE_METRICS
    assert {floor.name for floor in result.noise_floors} >= {"positive_ece", "positive_ada_ece"}
    assert default_metrics(3)[0] == "ece"
    for name in POSITIVE_METRICS:
        with pytest.raises(ValueError, match="of two classes; found 3 classes"):
            METRICS[name](np.full((4, 3), 1 / 3), [0, 1, 2, 0])


def test_a_column_of_confidences_is_the_probability_of_being_correct():
    logits, labels = draw_two(500, 0.3, 0.8)
    view = positive(samples_from_scores(logits=logits, labels=labels))
    column = samples_of_confidence(view.confidence, view.correct)
    two = evaluate(logits=logits, labels=labels, n_resamples=50)
    one = evaluate_samples(column, n_resamples=50)
    for ours, theirs in (("ece", "positive_ece"), ("confidence_gap", "prevalence_gap")):
        assert one[ours].value == pytest.approx(two[theirs].value, rel=1e-12)
    for name in ("calibration_slope", "calibration_intercept"):
        assert one[name].value == pytest.approx(two[name].value, rel=1e-9)


def test_the_interval_of_a_slope_is_that_of_refits():
    logits, labels = draw_two(800, -1.0, 0.7, seed=3)
    row = evaluate(logits=logits, labels=labels, metrics=["calibration_slope"])["calibration_slope"]
    rng = np.random.default_rng(1)
    refits = []
    for _ in range(300):
        weight = np.bincount(rng.integers(0, 800, 800), minlength=800).astype(float)
        refits.append(1 + recalibration(logits[:, 1], weight, weight * labels).change[1])
    low, high = np.quantile(refits, [0.025, 0.975])
    assert (row.low, row.high) == pytest.approx((low, high), abs=0.2 * (high - low))
