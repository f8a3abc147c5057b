"""The choice of a curve for two classes, and the evidence it rests on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calibrant.calibrators.auto.curves import STEPS, choose_curve
from calibrant.calibrators.data import checked_samples
from calibrant.calibrators.folds import Folds
from calibrant.calibrators.temperature.methods import TemperatureScaling

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

CURVES = {step.curve.NAME: step.curve for step in STEPS}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def drawn(n, truth, seed=0, spread=2.0):
    """Log-odds x as two columns, and labels with P(1) = sigmoid(truth(x))."""
    rng = np.random.default_rng(seed)
    x = spread * rng.normal(size=n)
    labels = (rng.random(n) < sigmoid(truth(x))).astype(int)
    return np.stack([np.zeros(n), x], axis=1), labels


def stated(n, seed=0):
    """Stated confidences of a few values, hardly related to whether the answer is correct."""
    rng = np.random.default_rng(seed)
    said = rng.choice([0.0, 0.8, 0.9, 0.95, 1.0], p=[0.1, 0.3, 0.2, 0.2, 0.2], size=n)
    rate = {0.0: 0.25, 0.8: 0.3, 0.9: 0.35, 0.95: 0.5, 1.0: 0.55}
    correct = (rng.random(n) < np.vectorize(rate.get)(said)).astype(int)
    return np.stack([1 - said, said], axis=1), correct, rate


def chosen(logits, labels, weight=None):
    calibrator, evidence = choose_curve(checked_samples(logits, labels, weight))
    names = [each.method for each in evidence if each.chosen]
    assert names == [calibrator.NAME]
    return calibrator, evidence


def nll(probs, labels):
    return -np.log(probs[np.arange(len(labels)), labels]).mean()


# --- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 1000, 12_000])
def test_no_lookup_table_where_temperature_is_the_truth(n):
    for seed in range(5):
        logits, labels = drawn(n, lambda x: x / 3, seed)
        calibrator, _ = chosen(logits, labels)
        assert calibrator.NAME not in ("isotonic", "venn-abers")
        rows, answers = drawn(5000, lambda x: x / 3, 100 + seed)
        temperature = TemperatureScaling().fit(logits=logits, labels=labels)
        held = nll(temperature.predict_proba(logits=rows), answers)
        assert nll(calibrator.predict_proba(logits=rows), answers) < held + 4.0 / n


def test_a_wrong_prevalence_is_mended():
    """A classifier trained with balanced classes, 8% positives."""
    for seed in range(5):
        logits, labels = drawn(3000, lambda x: x - 3.3, seed)
        calibrator, _ = chosen(logits, labels)
        assert calibrator.NAME in ("platt", "beta", "spline")
        assert abs(calibrator.predict_proba(logits=logits)[:, 1].mean() - labels.mean()) < 0.005


def test_a_bend_takes_more_than_platt():
    for seed in range(3):
        logits, labels = drawn(4000, lambda x: np.where(x > 0, 0.0, 3 * x), seed)
        calibrator, evidence = chosen(logits, labels)
        assert calibrator.NAME not in ("temperature", "platt")
        best = next(each for each in evidence if each.chosen)
        assert best.gain > 0
        assert best.ada_ece < 0.04


def test_values_that_occur_often_keep_their_rates():
    probs, correct, rate = stated(5000)
    data = checked_samples(None, correct, probs=probs)
    calibrator, evidence = choose_curve(data)
    said = np.array(list(rate))
    found = calibrator.predict_proba(probs=np.stack([1 - said, said], axis=1))[:, 1]
    np.testing.assert_allclose(found, list(rate.values()), atol=0.04)
    assert evidence[0].ada_ece > 0.1
    assert next(each for each in evidence if each.chosen).ada_ece < 0.02


def test_the_evidence():
    logits, labels = drawn(2000, lambda x: x - 2.0)
    calibrator, evidence = chosen(logits, labels)
    assert [each.method for each in evidence] == ["temperature", *CURVES]
    assert evidence[0].gain is None
    step = next(each for each in evidence if each.chosen)
    moved = calibrator.predict(logits=logits) != logits.argmax(axis=1)
    assert step.changed == pytest.approx(moved.mean(), abs=0.02)
    correct = (calibrator.predict(logits=logits) == labels).mean() - (
        logits.argmax(1) == labels
    ).mean()
    assert step.accuracy_gain == pytest.approx(correct, abs=0.02)
    assert 0 < step.accuracy_gain_error < 0.02


def test_it_is_cross_fitting():
    """Each curve judged by fits without a fold, slowly, on folds found in the same way."""
    logits, labels = drawn(300, lambda x: x - 1.0)
    _, evidence = chosen(logits, labels)
    x = logits[:, 1]
    order = np.lexsort((x, (x > 0) == (labels == 1), np.abs(x)))
    folds = Folds.of(np.ones(300), order)
    for each in evidence:
        method = {"temperature": TemperatureScaling, **CURVES}[each.method]
        losses = np.empty(300)
        for fold in range(5):
            inside = folds.row[folds.of_piece == fold]
            outside = folds.row[folds.of_piece != fold]
            fitted = method().fit(logits=logits[outside], labels=labels[outside])
            log_probs = fitted.predict_log_proba(logits[inside])
            losses[inside] = -log_probs[np.arange(len(inside)), labels[inside]]
        assert each.nll == pytest.approx(losses.mean(), rel=1e-6)


# --- few samples, and strange ones ---------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 19])
def test_below_twenty_samples_nothing_is_compared(n):
    logits, labels = drawn(n, lambda x: 0 * x, seed=3)
    labels[0] = int(logits[0, 1] < 0)  # a mistake
    calibrator, evidence = chosen(logits, labels)
    assert calibrator.NAME == "temperature"
    assert len(evidence) == 1


@pytest.mark.parametrize("n", [1, 2, 10, 60])
def test_without_a_mistake_nothing_is_certain(n):
    x = np.linspace(-3, 3, n + 1)[:n]
    labels = (x > 0).astype(int)
    logits = np.stack([np.zeros(n), x], axis=1)
    calibrator, evidence = chosen(logits, labels)
    assert evidence[0].method == "platt"
    log_probs = calibrator.predict_log_proba(np.array([[0.0, 30.0], [0.0, -30.0]]))
    assert np.isfinite(log_probs).all()
    probs = calibrator.predict_proba(logits=logits)
    assert probs.max() < 1 - 1e-4


@pytest.mark.slow
def test_small_samples_are_not_worse_than_temperature():
    """Over many small samples of what temperature scaling can and cannot do."""
    rows, answers = {}, {}
    truths = {"scaled": lambda x: x / 2, "shifted": lambda x: x / 2 - 1.5}
    for name, truth in truths.items():
        rows[name], answers[name] = drawn(4000, truth, 999)
    for (name, truth), n in itertools.product(truths.items(), (20, 200)):
        excess = []
        for seed in range(25):
            logits, labels = drawn(n, truth, seed)
            scores = [
                nll(method.predict_proba(rows[name]), answers[name])
                for method in (
                    chosen(logits, labels)[0],
                    TemperatureScaling().fit(logits=logits, labels=labels),
                )
            ]
            excess.append(scores[0] - scores[1])
        error = np.std(excess) / 5
        assert np.mean(excess) < 2 * error + 0.5 / n, (name, n)


HOSTILE = {
    "all one class": (np.random.default_rng(0).normal(size=(60, 2)), np.ones(60, dtype=int)),
    "all equal": (np.zeros((60, 2)), np.arange(60) % 2),
    "one value, one class": (np.zeros((60, 2)), np.zeros(60, dtype=int)),
    "inverted": (np.stack([np.zeros(60), np.linspace(3, -3, 60)], axis=1), np.arange(60) // 30),
    "huge": (1e200 * np.random.default_rng(1).normal(size=(60, 2)), np.arange(60) % 2),
    "tiny": (1e-300 * np.random.default_rng(1).normal(size=(60, 2)), np.arange(60) % 2),
    "certain": (np.where(np.arange(60)[:, None] % 2 == [0, 1], 0.0, -np.inf), np.arange(60) % 2),
    "some certain": (
        np.where(np.arange(60)[:, None] % 4 == [1, 2], -np.inf, np.eye(2)[np.arange(60) % 3 // 2]),
        np.where(np.arange(60) % 4 == 1, 1, np.where(np.arange(60) % 4 == 2, 0, 1)),
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_samples(case):
    logits, labels = HOSTILE[case]
    for weight in (None, np.full(60, 1e-300), np.full(60, 1e12)):
        calibrator, evidence = chosen(logits, labels, weight)
        assert all(np.isfinite([each.nll, each.ada_ece]).all() for each in evidence)
        probs = calibrator.predict_proba(logits=logits)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0)


# --- what does not matter ------------------------------------------------------------------------


@st.composite
def samples(draw):
    n = draw(st.integers(20, 60))
    x = draw(st.lists(st.sampled_from(np.linspace(-4, 4, 33)), min_size=n, max_size=n))
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    return np.stack([np.zeros(n), x], axis=1), labels


@pytest.mark.slow
@given(samples(), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(drawn_samples, random):
    logits, labels = drawn_samples
    order = list(range(len(labels)))
    random.shuffle(order)
    count = np.array([random.choice([1, 1, 2, 3]) for _ in labels])
    weighted = chosen(logits, labels, count.astype(float))
    rows = np.repeat(order, count[order])
    repeated = chosen(logits[rows], labels[rows])
    for one, other in zip(weighted[1], repeated[1], strict=True):
        assert one.nll == pytest.approx(other.nll, rel=1e-6)
        assert one.ada_ece == pytest.approx(other.ada_ece, abs=1e-6)
    np.testing.assert_allclose(
        weighted[0].predict_proba(logits=logits),
        repeated[0].predict_proba(logits=logits),
        rtol=1e-5,
    )


@given(samples())
def test_the_order_of_predictions_is_kept(drawn_samples):
    calibrator, _ = chosen(*drawn_samples)
    x = np.linspace(-30, 30, 301)
    probs = calibrator.predict_proba(np.stack([np.zeros(301), x], axis=1))[:, 1]
    assert (np.diff(probs) >= -1e-12).all()
    assert ((probs >= 0) & (probs <= 1)).all()


def test_classes_can_be_swapped():
    for seed in range(3):
        logits, labels = drawn(600, lambda x: np.where(x > 0, 0.3 * x, 2 * x) - 1.0, seed)
        straight, evidence = chosen(logits, labels)
        swapped, mirrored = chosen(logits[:, ::-1].copy(), 1 - labels)
        for one, other in zip(evidence, mirrored, strict=True):
            assert one.nll == pytest.approx(other.nll, rel=1e-3)
        assert straight.NAME == swapped.NAME


def test_single_precision_chooses_the_same():
    logits, labels = drawn(1500, lambda x: x - 1.0)
    wide, narrow = chosen(logits, labels)[0], chosen(logits.astype(np.float32), labels)[0]
    assert wide.NAME == narrow.NAME
    np.testing.assert_allclose(
        wide.predict_proba(logits=logits), narrow.predict_proba(logits=logits), rtol=1e-3
    )


def test_the_result_is_the_method_fitted_on_all_samples():
    logits, labels = drawn(1500, lambda x: x - 1.0)
    calibrator, _ = chosen(logits, labels)
    alone = type(calibrator)().fit(logits=logits, labels=labels)
    np.testing.assert_array_equal(
        calibrator.predict_proba(logits=logits), alone.predict_proba(logits=logits)
    )
