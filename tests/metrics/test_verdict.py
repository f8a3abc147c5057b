"""Verdicts: what they say of known models, in memory and in a stream, and how often wrongly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from calibrant import evaluate
from calibrant.metrics import StreamedEvaluation, calibration_test
from calibrant.metrics.calibration_test import CalibrationTest
from calibrant.metrics.evaluation import evaluate_samples
from calibrant.metrics.samples import samples_from_scores, samples_of_confidence
from calibrant.metrics.verdict import percentages
from tests.builders import draw_sharpened
from tests.metrics.test_positive import draw_two


def calibrated(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits, and labels."""
    rng = np.random.default_rng(1_000_000 + seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def favouring_class_2() -> tuple[np.ndarray, np.ndarray]:
    logits, labels = calibrated(4000, 5, seed=0)
    logits[:, 2] += 0.5
    return logits, labels


def sharpened(power: float) -> tuple[np.ndarray, np.ndarray]:
    probs, labels = draw_sharpened(4000, power, seed=2)
    return np.log(probs), labels


def up_and_down() -> tuple[np.ndarray, np.ndarray]:
    """Neither the mean nor the slope is off, and yet the curve is."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 6000)
    true = np.clip(p + 0.1 * np.sin(12 * np.pi * p), 0, 1)
    return np.stack([np.log1p(-p), np.log(p)], axis=1), (rng.random(6000) < true).astype(int)


MODELS = {
    "calibrated": calibrated(4000, 5, seed=1),
    "calibrated, two classes": draw_two(4000, 0.0, 1.0, seed=1),
    "over-confident": sharpened(3.0),
    "over-confident, two classes": draw_two(4000, 0.0, 0.5),
    "over-confident, few positives": draw_two(4000, 0.0, 0.5, mean=-4.0),
    "under-confident": sharpened(0.4),
    "under-confident, two classes": draw_two(4000, 0.0, 2.0),
    "prevalence off": draw_two(4000, -2.0, 1.0),
    "prevalence off, few positives": draw_two(4000, 1.0, 1.0, mean=-4.0),
    "classes off": favouring_class_2(),
    "miscalibrated": up_and_down(),
}


def streamed(logits: np.ndarray, labels: np.ndarray, parts: int = 3):
    stream = StreamedEvaluation()
    for rows in np.array_split(np.arange(len(labels)), parts):
        part = StreamedEvaluation()
        part.update(logits=logits[rows], labels=labels[rows])
        stream.merge(part)
    return stream.result()


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_verdict_names_what_is_off(name):
    logits, labels = MODELS[name]
    whole = evaluate(logits=logits, labels=labels, n_resamples=200)
    for result in (whole, streamed(logits, labels)):
        assert result.side == name.partition(",")[0]
        assert (result.judged.p_value < 0.05) == (result.side != "calibrated")
        assert result.verdict() in str(result)
        data = json.loads(result.to_json())
        assert (data["side"], data["verdict"]) == (result.side, result.verdict())


def test_classes_are_named_with_their_sizes():
    logits, labels = favouring_class_2()
    probs = samples_from_scores(logits=logits, labels=labels).probs()
    for result in (evaluate(logits=logits, labels=labels), streamed(logits, labels)):
        worst = result.classes_off[0]
        assert worst.class_index == 2
        assert worst.predicted == pytest.approx(probs[:, 2].mean())
        assert worst.observed == pytest.approx((labels == 2).mean())
        assert worst.p_value < 0.05
        assert "Right on the whole, but wrong about class 2 (mean probability 2" in result.verdict()
        assert json.loads(result.to_json())["classes_off"][0]["class_index"] == 2


def test_sizes_of_two_classes():
    logits, labels = MODELS["prevalence off"]
    words = evaluate(logits=logits, labels=labels).verdict()
    assert f"mean P(class 1) is {expit(logits[:, 1]).mean():.3f}" in words
    assert f"{labels.mean():.1%} of the samples are of class 1" in words


def test_small_sizes_of_two_classes_are_told_apart():
    rng = np.random.default_rng(0)
    odds = rng.normal(-6.5, 1.0, 100_000)
    labels = (rng.random(100_000) < expit(odds - 2.5)).astype(int)
    logits = np.stack([np.zeros_like(odds), odds], axis=1)
    mean, rate = expit(odds).mean(), labels.mean()
    assert f"{rate:.1%}" == "0.0%"
    for result in (
        evaluate(logits=logits, labels=labels, metrics=["error_rate"], n_resamples=20),
        streamed(logits, labels),
    ):
        words = f"mean P(class 1) is {mean:.2%}, where {rate:.3%} of the samples are of class 1"
        assert words in result.verdict()
    # And likewise of what nearly every sample is.
    words = evaluate(
        logits=-logits, labels=1 - labels, metrics=["error_rate"], n_resamples=20
    ).verdict()
    assert f"is {1 - mean:.2%}, where {1 - rate:.3%} of the samples are of class 1" in words


def test_small_sizes_of_many_classes_are_told_apart():
    probs = np.tile([0.5, 0.4996, 0.0004], (200_000, 1))
    labels = np.repeat([0, 1, 2], [100_000, 99_998, 2])
    words = evaluate(probs, labels, metrics=["error_rate"], n_resamples=20).verdict()
    assert "class 2 (mean probability 0.040%, rate 0.0010%" in words


@pytest.mark.parametrize("shares", [(0.3, 0.3), (0.0, 0.0), (1.0, 1.0), (5e-324, 0.0), (1e-9, 1.0)])
def test_percentages_at_the_ends(shares):
    first, second = percentages(*shares)
    assert (float(first[:-1]) == float(second[:-1])) == (shares[0] == shares[1])


def test_balanced_class_weights_are_found():
    """Logistic regression with balanced weights, on 8% positives."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.make_classification(6000, weights=[0.92], random_state=0)
    model = linear_model.LogisticRegression(class_weight="balanced").fit(x[:3000], y[:3000])
    probs = model.predict_proba(x[3000:])
    assert evaluate(probs, y[3000:]).side == "prevalence off"
    assert streamed(np.log(probs), y[3000:]).side == "prevalence off"


@pytest.mark.parametrize("level", [0.9, 0.99, 0.999])
def test_a_model_that_is_far_off_is_found_at_every_level(level):
    for name in ("over-confident", "prevalence off", "classes off"):
        logits, labels = MODELS[name]
        options = {"n_resamples": 20, "level": level}
        result = evaluate(logits=logits, labels=labels, metrics=["error_rate"], **options)
        assert result.side == name


def test_confidences_alone_are_judged_by_their_mean():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 3000)
    for shift, side in ((0.1, "over-confident"), (-0.1, "under-confident"), (0.0, "calibrated")):
        correct = rng.random(3000) < confidence - shift
        samples = samples_of_confidence(confidence, correct)
        stream = StreamedEvaluation()
        stream.count(samples)
        for result in (evaluate_samples(samples), stream.result()):
            assert result.side == side


def test_one_impossible_sample_is_enough():
    """If every prediction was certain, one mistake cannot happen."""
    probs, labels = np.eye(2)[np.arange(500) % 2], np.arange(500) % 2
    assert evaluate(probs, labels).side == "calibrated"
    labels[0] = 1
    assert evaluate(probs, labels).side != "calibrated"
    many = np.eye(4)[np.arange(500) % 4]
    assert evaluate(many, np.append(3, np.arange(1, 500) % 4)).side != "calibrated"


def test_a_rare_class_with_one_sample_is_no_finding():
    probs = np.tile([0.6, 0.4 - 1e-6, 1e-6], (1000, 1))
    labels = np.repeat([0, 1, 2], [600, 399, 1])
    assert evaluate(probs, labels).classes_off == ()


def test_weights_are_repetitions_in_the_statistics():
    logits, labels = calibrated(300, 4, seed=5)
    weight = np.random.default_rng(0).integers(1, 4, 300)
    again = np.repeat(np.arange(300), weight)
    one, _ = calibration_test.class_test(
        samples_from_scores(logits=logits, labels=labels, sample_weight=weight), 15, 20, 0
    )
    other, _ = calibration_test.class_test(
        samples_from_scores(logits=logits[again], labels=labels[again]), 15, 20, 0
    )
    for name in ("ece", "classwise_ece"):
        assert one.observed[name] == pytest.approx(other.observed[name])
    for size in (1e-300, 1e300):
        result = evaluate(
            probs=np.full((20, 3), 1 / 3), labels=[0] * 20, sample_weight=np.full(20, size)
        )
        assert result.side != "calibrated"


def test_simulated_labels_follow_the_probabilities():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(6), size=4)
    probs[0] = [0.0, 0.3, 0.0, 0.7, 0.0, 0.0]
    for row in probs:
        samples = samples_from_scores(np.tile(row, (50, 1)), np.full(50, 3))
        everything = np.ones((50, 1))
        chunks = [*calibration_test._drawn_labels(samples, everything, 15, 1000, 7)]
        counts = [drawn for _, drawn in chunks]
        share = np.concatenate(counts, axis=-1).sum(axis=(1, 2)) / 50_000
        assert share == pytest.approx(row, abs=0.01)
        assert share[row == 0.0].tolist() == [0.0] * int((row == 0.0).sum())
        assert chunks[0][0].sum() / 50_000 == pytest.approx(row.max(), abs=0.01)


def test_the_smallest_p_value_has_its_own_distribution():
    """Of four independent statistics, one of 1000 models is beyond 1/1000 in four of 1000."""
    rng = np.random.default_rng(0)
    names = "abcd"
    test = CalibrationTest(
        dict.fromkeys(names, 0.0) | {"a": 99.0}, {name: rng.normal(size=999) for name in names}
    )
    assert test.p_value("a") == pytest.approx(0.001)
    assert test.overall == pytest.approx(0.004)
    assert test.adjusted(1.0) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_false_alarms_are_rare(n_classes):
    """At 5%; `experiments/verdict_level` measures it on more models."""
    alarms = 0
    for seed in range(200):
        logits, labels = calibrated(200, n_classes, seed)
        result = evaluate(
            logits=logits, labels=labels, metrics=["error_rate"], n_resamples=200, random_state=seed
        )
        alarms += result.side != "calibrated"
    assert 2 <= alarms <= 20  # at 5% less or more come about twice in a thousand times
