"""Rows of the largest logits: the truth lies within the bounds, and so does the estimate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf

import calibrant
from calibrant import FocalCalibration, FocalTemperatureScaling, Identity, TemperatureScaling
from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators import TruncatedRows, fit_truncated_rows
from calibrant.calibrators.data import FitData
from calibrant.calibrators.temperature.grid_pruning import node_sums
from calibrant.calibrators.temperature.rows import mapped_rows
from calibrant.calibrators.truncated.bounds import criterion_limits
from calibrant.calibrators.truncated.rows import stand_in_places, turning_point
from calibrant.focal import phi

GAMMAS = (-0.5, -0.25, 0.0, 0.05, 0.37, 1.0, 5.0)


def cut(logits: np.ndarray, labels: np.ndarray, k: int, **options: object) -> TruncatedRows:
    """The k largest logits of each row, in no order, and the normaliser."""
    logits = np.asarray(logits, dtype=np.float64)
    top = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    top = np.random.default_rng(0).permuted(top, axis=1)
    largest = logits.max(axis=1)
    normaliser = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    return TruncatedRows.of(
        np.take_along_axis(logits, top, axis=1),
        top,
        labels,
        n_classes=logits.shape[1],
        normaliser=normaliser,
        label_logits=logits[np.arange(len(logits)), labels],
        **options,
    )


def like_text(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose probabilities fall like a power of the rank, as those of language models."""
    rng = np.random.default_rng(seed)
    rank = np.log(np.arange(1, n_classes + 1))
    logits = -rng.uniform(0.9, 2.0, size=(n, 1)) * rank + 0.5 * rng.normal(size=(n, n_classes))
    logits[:, 0] += rng.exponential(2.0, size=n)
    labels = (logits / 1.4 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    order = rng.permutation(n_classes)
    return logits[:, np.argsort(order)], order[labels]


LOGITS, LABELS = like_text(1500, 300)
ROWS = cut(LOGITS, LABELS, 30)


def within(low: np.ndarray, value: np.ndarray, high: np.ndarray) -> bool:
    slack = 1e-9 * (1.0 + np.abs(value))
    return bool(((low <= value + slack) & (value <= high + slack)).all())


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    n_classes = draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = draw(st.sampled_from([0.0, 0.3, 3.0, 30.0]))
    logits = size * rng.normal(size=(4, n_classes)) + draw(st.sampled_from([0.0, -40.0, 500.0]))
    if draw(st.booleans()):  # all of the tail in classes as large as the smallest known
        logits = np.round(logits)
    return logits, rng.integers(0, n_classes, 4), draw(st.integers(1, n_classes))


@settings(max_examples=5 * settings.default.max_examples)
@given(rows(), st.sampled_from(GAMMAS), st.floats(0.05, 20.0))
def test_truth_and_estimate_lie_within_the_bounds(problem, gamma, temperature):
    logits, labels, k = problem
    known = cut(logits, labels, k)
    log_odds, log_prob, _ = mapped_rows(known, gamma, 1.0 / temperature)
    true_log_odds, true_log_prob, _ = mapped_rows(
        FitData(logits, labels, None), gamma, 1.0 / temperature
    )
    of_top, of_label, of_classes = known.bounds(gamma, 1.0 / temperature, of_classes=True)
    # Log-odds beyond rounding are compared as confidences.
    low, high = sigmoid(of_top)
    assert within(low, sigmoid(true_log_odds), high)
    assert within(low, sigmoid(log_odds), high)
    assert within(of_label[0], true_log_prob, of_label[1])
    assert within(of_label[0], log_prob, of_label[1])
    log_probs = known.log_probs(gamma, 1.0 / temperature)
    assert within(np.exp(of_classes[0]), np.exp(log_probs), np.exp(of_classes[1]))
    assert not np.isnan(of_top).any()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_label_whose_odds_round_to_zero_has_a_log_probability(gamma):
    logits, labels = np.array([[9.91, -39.09], [9.91, -39.09]]), np.array([1, 0])
    known = cut(logits, labels, 1)
    _, truth, _ = mapped_rows(FitData(logits, labels, None), gamma, 16.0)
    _, of_label, _ = known.bounds(gamma, 16.0)
    assert truth[0] < -300.0
    assert of_label[1, 0] < -300.0
    assert within(of_label[0], truth, of_label[1])


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("temperature", [0.3, 0.9, 1.3, 4.0])
def test_tails_like_those_of_text(gamma, temperature):
    full = FitData(LOGITS, LABELS, None)
    true_log_odds, true_log_prob, _ = mapped_rows(full, gamma, 1.0 / temperature)
    of_top, of_label, _ = ROWS.bounds(gamma, 1.0 / temperature)
    assert within(of_top[0], true_log_odds, of_top[1])
    assert within(of_label[0], true_log_prob, of_label[1])
    # The estimate is far better than the bounds: that is what it is for.
    _, log_prob, _ = mapped_rows(ROWS, gamma, 1.0 / temperature)
    width = (of_label[1] - of_label[0]).mean()
    assert abs(log_prob - true_log_prob).mean() < 0.12 * width + 1e-9


def test_nothing_is_estimated_at_temperature_one():
    log_odds, log_prob, _ = mapped_rows(ROWS, 0.0, 1.0)
    full = FitData(LOGITS, LABELS, None)
    true_log_odds, true_log_prob, _ = mapped_rows(full, 0.0, 1.0)
    confidence = sigmoid(true_log_odds)
    np.testing.assert_allclose(sigmoid(log_odds), confidence, rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_prob, true_log_prob, rtol=0, atol=1e-12)
    of_top, of_label, _ = ROWS.bounds(0.0, 1.0)
    assert np.ptp(sigmoid(of_top), axis=0).max() < 1e-12
    assert np.ptp(of_label, axis=0).max() < 1e-12


def test_the_sums_of_a_tail_by_hand():
    """R, and what the stand-ins and the two extreme tails give, in forty digits."""
    with mp.workdps(40):
        probs = [mpf(2) ** -j for j in range(1, 12)] + [mpf(2) ** -11]
        logits = np.array([[float(mp.log(p)) for p in probs]])
        known = cut(logits, np.array([0]), 4)
        start, exponent, count, log_c, low, high = known.tails[0]
        share = 1 - sum(probs[:4])
        assert count == 8
        assert log_c == pytest.approx(float(mp.log(probs[3])), rel=1e-14)
        assert low < float(mp.log(share)) < high
        assert high - low < 1e-12
        places, shares = stand_in_places(4, 12)
        assert start == log_c  # c < R
        values = [mp.exp(log_c - exponent * p) for p in places]
        total = sum(count * s * x for s, x in zip(shares, values, strict=True))
        assert abs(total - share) < 1e-14
        for inverse_temperature in (0.2, 0.8, 1.7):
            sums = sorted(
                [
                    share * probs[3] ** (mpf(inverse_temperature) - 1),
                    mpf(count) ** (1 - mpf(inverse_temperature))
                    * share ** mpf(inverse_temperature),
                ]
            )
            others = sum((p / probs[0]) ** inverse_temperature for p in probs[1:4])
            of_top, _, _ = known.bounds(0.0, inverse_temperature)
            for end, tail in zip(of_top[::-1, 0], sums, strict=True):
                expected = -mp.log(others + tail / probs[0] ** inverse_temperature)
                assert end == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("gamma", [-0.9, *GAMMAS, 100.0])
def test_phi_turns_once(gamma):
    turn = turning_point(gamma)
    q = np.linspace(1e-6, 1.0 - 1e-6, 20001)
    slope = np.diff(phi(q, gamma=gamma)) * np.sign(gamma)
    assert (slope[q[1:] < turn] >= -1e-15).all()
    assert (slope[q[:-1] > turn] <= 1e-15).all()


@pytest.mark.parametrize(
    "calibrator",
    [
        Identity(),
        FocalCalibration(gamma=1.0),
        TemperatureScaling(),
        TemperatureScaling(criterion="focal"),
        TemperatureScaling(criterion="ece"),
        FocalTemperatureScaling(criterion="nll"),
        pytest.param(FocalTemperatureScaling(criterion="ece"), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_with_all_classes_known_the_fit_is_the_ordinary_one(calibrator):
    logits = 0.7 * np.random.default_rng(1).normal(size=(600, 20)) ** 3
    labels = (logits / 1.5 + np.random.default_rng(2).gumbel(size=logits.shape)).argmax(axis=1)
    bounds = fit_truncated_rows(calibrator, cut(logits, labels, 20)).report_.tail_bounds
    ours, report = calibrator.state_, calibrator.report_
    calibrator.fit(logits, labels)
    assert ours == pytest.approx(calibrator.state_, rel=1e-9)
    for name in ("before", "after", "accuracy_before", "n_classes"):
        assert getattr(report, name) == pytest.approx(getattr(calibrator.report_, name), abs=1e-9)
    assert bounds.low == pytest.approx(report.after, abs=1e-9)
    assert bounds.high == pytest.approx(report.after, abs=1e-9)


def test_the_best_temperature_lies_where_the_bounds_allow():
    scaling = TemperatureScaling()
    bounds = fit_truncated_rows(scaling, ROWS).report_.tail_bounds
    whole = TemperatureScaling().fit(LOGITS, LABELS)
    assert bounds.everywhere
    assert bounds.lowest < whole.temperature_ < bounds.highest
    assert bounds.lowest < scaling.temperature_ < bounds.highest
    nll = calibrant.nll(scaling.predict_proba(LOGITS), LABELS)
    assert bounds.low <= scaling.report_.after <= bounds.high
    assert bounds.low <= nll <= bounds.high
    assert scaling.temperature_ == pytest.approx(whole.temperature_, rel=0.02)
    assert "are worse" in str(bounds)


@pytest.mark.parametrize("n_bins", [1, 15])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_calibration_error_lies_within_its_bounds(gamma, n_bins):
    temperatures = (0.8, 1.0, 1.2, 2.0)
    limits = criterion_limits(
        ROWS, "ece", [(gamma, t) for t in temperatures], n_bins=n_bins, focal_gamma=0.0
    )
    for temperature, (low, high) in zip(temperatures, limits, strict=True):
        true_log_odds, _, _ = mapped_rows(FitData(LOGITS, LABELS, None), gamma, 1.0 / temperature)
        correct = LOGITS.argmax(axis=1) == LABELS
        confidence = sigmoid(true_log_odds)
        inside = np.digitize(confidence, np.linspace(0, 1, n_bins + 1)[1:-1], right=True)
        gaps = np.bincount(inside, weights=confidence - correct, minlength=n_bins)
        assert low - 1e-12 <= np.abs(gaps).sum() / len(correct) <= high + 1e-12


def test_fits_by_confidence_find_much_the_same():
    for criterion in ("ece", "ada_ece"):
        ours = TemperatureScaling(criterion=criterion)
        bounds = fit_truncated_rows(ours, ROWS).report_.tail_bounds
        whole = TemperatureScaling(criterion=criterion).fit(LOGITS, LABELS)
        assert ours.report_.after == pytest.approx(whole.report_.after, abs=0.01)
        assert (bounds is None) == (criterion == "ada_ece")


def test_many_known_classes_are_searched_as_few_are(monkeypatch):
    gammas, nodes = np.array([-0.5, 0.0, 1.0, 5.0]), np.log([0.2, 1.0, 3.0])
    fast = node_sums(ROWS, gammas, nodes)
    monkeypatch.setattr("calibrant.calibrators.temperature.search_kernels.ALL_NEAR", 100)
    np.testing.assert_allclose(fast, node_sums(ROWS, gammas, nodes), rtol=2e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rounded_logits_are_allowed_for(dtype):
    logits = LOGITS[:300]
    order = np.argsort(-logits, axis=1)
    sorted_logits = np.take_along_axis(logits, order, axis=1)
    log_probs = sorted_logits - np.log(np.exp(sorted_logits).sum(axis=1, keepdims=True))
    places = np.argmax(order == LABELS[:300, None], axis=1)
    known = TruncatedRows.of(
        log_probs[:, :30].astype(dtype),
        order[:, :30],
        LABELS[:300],
        n_classes=300,
        label_logits=log_probs[np.arange(300), places].astype(dtype),
    )
    share = np.log(
        np.exp(log_probs[:, 30:]).sum(axis=1)
        - np.where(places >= 30, np.exp(log_probs[np.arange(300), places]), 0.0)
    )
    assert (known.tails[:, 4] <= share).all()
    assert (share <= known.tails[:, 5]).all()


GOOD = {
    "top_logits": np.log([[0.5, 0.2], [0.4, 0.3]]),
    "top_classes": np.array([[0, 1], [2, 3]]),
    "labels": np.array([0, 4]),
    "n_classes": 6,
    "label_logits": np.array([np.nan, np.log(0.1)]),
}


def refused(match: str, **changes: object) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        TruncatedRows.of(**{**GOOD, **changes})


def test_what_cannot_be_is_refused():
    assert len(TruncatedRows.of(**GOOD)) == 2
    refused("row 1: logits must be numbers below", top_logits=[[-1.0, -2.0], [np.nan, -1.0]])
    refused("row 0: logits must be numbers below", top_logits=[[np.inf, -1.0], [-1.0, -2.0]])
    refused(r"row 0: classes must be 0 to 5; found \[7\]", top_classes=[[7, 1], [2, 3]])
    refused("row 1: classes of a row must be distinct; found 3 twice", top_classes=[[0, 1], [3, 3]])
    refused("row 0: the normaliser must be finite", normaliser=np.array([np.nan, 0.0]))
    refused("row 1: labels must be 0 to 5; found 6", labels=[0, 6])
    refused("row 1: labels must be 0 to 5; found -", labels=[0, -1])
    refused("the label 4 is not among the known .* 1 rows", label_logits=None)
    refused("row 1: the label's logit must not be above", label_logits=[0.0, np.log(0.35)])
    refused("row 1: the label 4 has probability 0", label_logits=[0.0, -np.inf])
    refused("row 0: no class", top_logits=[[-np.inf, -np.inf], [0.0, -30.0]])
    refused(
        "row 0: the probabilities of the known classes must sum",
        top_logits=np.log([[0.9, 0.2]] * 2),
    )
    refused("row 0: no unknown class may be more probable", top_logits=np.log([[0.3, 0.1]] * 2))
    refused("must not have more columns", top_logits=np.zeros((1, 7)), n_classes=6)
    refused("top_classes must have the shape", top_classes=[[0, 1]])
    refused("top_classes must be whole numbers", top_classes=np.zeros((2, 2)))
    refused("top_logits must have the shape", top_logits=np.zeros(3))


def test_methods_that_need_every_class_are_refused():
    with pytest.raises(ValueError, match=r"for truncated rows \(identity, temperature"):
        fit_truncated_rows(calibrant.CALIBRATORS["vector"](), ROWS)
    with pytest.raises(ValueError, match="criterion must be"):
        fit_truncated_rows(TemperatureScaling(criterion="brier"), ROWS)
    with pytest.raises(ValueError, match="needs the logits of all classes"):
        ROWS.in_memory()


def test_networks_on_photographs(shared_data):
    file = next(iter(sorted((shared_data / "logits").glob("imagenet*.npz"))), None)
    if file is None:
        pytest.skip("no logits of a network with many classes on this machine")
    with np.load(file) as arrays:
        names = [name for name in arrays.files if name.endswith("logits")]
        logits = arrays[names[0]][:2000].astype(np.float64)
        labels = arrays[names[0].replace("logits", "labels")][:2000].astype(np.int64)
    known = cut(logits, labels, 64)
    full = FitData(logits, labels, None)
    for gamma in (0.0, 1.0):
        for temperature in (0.5, 1.5, 3.0):
            true_log_odds, true_log_prob, _ = mapped_rows(full, gamma, 1.0 / temperature)
            of_top, of_label, _ = known.bounds(gamma, 1.0 / temperature)
            low, high = sigmoid(of_top)
            assert within(low, sigmoid(true_log_odds), high)
            assert within(of_label[0], true_log_prob, of_label[1])
