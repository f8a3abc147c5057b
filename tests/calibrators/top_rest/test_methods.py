"""Top-rest scaling against its formulas in many digits, and against a slow fit."""

from __future__ import annotations

import functools
import json
import math
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import assume, given, strategies as st
from hypothesis.extra import numpy as hnp

import calibrant
from calibrant import TemperatureScaling, TopRestScaling
from calibrant.calibrators import CalibrationWarning
from calibrant.calibrators.data import FitData
from calibrant.calibrators.export import export
from calibrant.calibrators.export.numpy_source import source
from calibrant.calibrators.top_rest import solver as top_rest_solver
from tests.builders import draw_overconfident
from tests.reference import top_rest_slow as slow

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

INF = math.inf


def with_state(k, **changes):
    """A calibrator that was never fitted, with temperature scaling changed in some respects."""
    calibrator = TopRestScaling()
    calibrator.n_classes_ = k
    calibrator.state_ = {
        "temperature": 1.0,
        "slopes": np.ones(5),
        "offset": 0.0,
        "contest": 0.0,
        "class_offsets": np.zeros(k),
        "rest_temperature": 1.0,
        "rest_biases": np.zeros(k),
        **changes,
    }
    return calibrator


def nll_of(calibrator, logits, labels, weight=None):
    """From its own log-probabilities."""
    losses = -calibrator.predict_log_proba(logits=logits.astype(np.float64))[
        np.arange(len(labels)), labels
    ]
    return float(np.average(losses, weights=weight))


# --- the map -------------------------------------------------------------------------------------


@st.composite
def states(draw, k, largest=3.0):
    numbers = st.floats(-largest, largest)
    return {
        "temperature": draw(st.floats(0.1, 10.0)),
        "slopes": np.array(draw(st.lists(st.floats(0.0, largest), min_size=5, max_size=5))),
        "offset": draw(numbers),
        "contest": draw(numbers),
        "class_offsets": np.array(draw(st.lists(numbers, min_size=k, max_size=k))),
        "rest_temperature": draw(st.floats(0.05, 20.0)),
        "rest_biases": np.array(draw(st.lists(numbers, min_size=k, max_size=k))),
    }


@st.composite
def maps_and_rows(draw, entries, largest=3.0):
    k = draw(st.integers(2, 6))
    row = np.array(draw(st.lists(entries, min_size=k, max_size=k)))
    assume(row.max() > -INF)
    return with_state(k, **draw(states(k, largest))), row


ORDINARY = st.one_of(st.floats(-40.0, 40.0), st.sampled_from([0.0, 1.0, 300.0, -INF]))


@given(maps_and_rows(ORDINARY))
def test_the_map_against_high_precision(case):
    calibrator, row = case
    exact = np.array([float(each) for each in slow.log_probs(row, calibrator.state_)])
    np.testing.assert_allclose(
        calibrator.predict_log_proba(logits=row[np.newaxis])[0], exact, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        calibrator.predict_proba(logits=row[np.newaxis])[0], np.exp(exact), rtol=1e-11, atol=1e-15
    )
    tensor = torch.from_numpy(row[np.newaxis])
    np.testing.assert_allclose(
        calibrator.predict_proba(logits=tensor)[0].numpy(), np.exp(exact), rtol=1e-11, atol=1e-15
    )


ANY_SIZE = st.one_of(
    st.floats(-30.0, 30.0),
    st.floats(-1e30, 1e30),
    st.sampled_from([0.0, 1.0, 1.0 + 2**-23, 1e30, -1e30, 3e38, 1e-30, -INF]),
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(maps_and_rows(ANY_SIZE, largest=50.0))
def test_the_predicted_class_never_changes(dtype, case):
    calibrator, row = case
    logits = row.astype(dtype)[np.newaxis]
    for given_ in (logits, torch.from_numpy(logits)):
        probs = np.asarray(calibrator.predict_proba(logits=given_))
        log_probs = np.asarray(calibrator.predict_log_proba(logits=given_))
        assert probs.dtype == log_probs.dtype == dtype
        assert probs.argmax() == log_probs.argmax() == row.astype(dtype).argmax()
        assert (probs >= 0.0).all()
        assert (log_probs <= 0.0).all()
        assert (probs[logits == -INF] == 0.0).all()
        assert (log_probs[logits == -INF] == -INF).all()
        tolerance = 4.0 * float(np.finfo(dtype).eps)
        assert probs.sum(dtype=np.float64) == pytest.approx(1.0, abs=tolerance)


@given(maps_and_rows(st.floats(-20.0, 20.0)), st.lists(st.floats(0.0, 30.0), min_size=1))
def test_a_higher_logit_on_top_is_never_a_lower_probability(case, raised):
    calibrator, row = case
    top = row.argmax()
    rows = np.tile(row, (len(raised), 1))
    rows[:, top] += np.sort(raised)
    of_top = calibrator.predict_log_proba(logits=rows)[:, top]
    assert (np.diff(of_top) >= -1e-13).all()


@given(st.floats(0.05, 50.0), hnp.arrays(np.float64, (4, 5), elements=ORDINARY))
def test_slopes_of_one_and_nothing_else_are_temperature_scaling(temperature, logits):
    logits[:, 0] = np.where(np.isinf(logits[:, 0]), 0.0, logits[:, 0])
    plain = TemperatureScaling()
    plain.n_classes_, plain.state_ = 5, {"temperature": temperature}
    ours = with_state(5, temperature=temperature)
    np.testing.assert_allclose(
        ours.predict_log_proba(logits=logits),
        plain.predict_log_proba(logits=logits),
        rtol=4e-15,
        atol=4e-15,
    )
    np.testing.assert_allclose(
        ours.predict_proba(logits=logits),
        plain.predict_proba(logits=logits),
        rtol=1e-13,
        atol=1e-300,
    )


@pytest.mark.parametrize("far", [-INF, -1e5])
def test_an_absent_class_stays_absent_where_the_rest_is_flat(far):
    calibrator = with_state(3, rest_temperature=20.0, rest_biases=np.array([0.0, -300.0, 300.0]))
    probs = calibrator.predict_proba(np.array([[3.0, 1.0, far]]))
    assert probs[0, 2] == 0.0
    assert probs.sum() == pytest.approx(1.0)


def test_two_classes_that_tie_stay_together():
    calibrator = with_state(3, offset=5.0, rest_biases=np.array([0.0, -2.0, 2.0]))
    probs = calibrator.predict_proba(np.array([[2.0, 2.0, -4.0]]))[0]
    # The second is not the likeliest of the rest: there its bias counts, the tie does not.
    assert probs[0] > probs[1]
    probs = with_state(3, offset=5.0).predict_proba(np.array([[2.0, 2.0, -4.0]]))[0]
    assert probs[0] == pytest.approx(probs[1], rel=1e-15)


# --- the fit -------------------------------------------------------------------------------------


def problem_of(logits, labels, weight=None):
    return top_rest_solver.Problem.of(FitData(logits, labels, weight))


def objectives(problem, found):
    """What both regressions of our fit ended at, by the slow code."""
    given_ = problem.data.logits, problem.data.labels, problem.best.temperature
    top = np.concatenate([found.weights, found.class_offsets])
    rest = np.concatenate([[-found.log_rest_inverse_temperature], found.rest_biases])
    return (
        slow.top_objective(top, *given_, found.offset_strength, problem.count),
        slow.rest_objective(rest, *given_, found.bias_strength, problem.count),
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", [(500, 4, 1), (300, 3, 2), (120, 6, 3)])
def test_the_fit_is_the_minimum_that_a_slow_search_finds(case, weighted):
    n, k, seed = case
    logits, labels = draw_overconfident(n, k, seed, excess=np.linspace(0.0, 2.5, k))
    weight = np.random.default_rng(0).integers(1, 4, size=n).astype(float) if weighted else None
    problem = problem_of(logits, labels, weight)
    like = top_rest_solver.fit_top_rest(problem, classes=True)
    found = top_rest_solver._fit_top(problem, like, classes=True, estimate=False)
    found = top_rest_solver._fit_rest(problem, found, classes=True, estimate=False)
    given_ = logits, labels, problem.best.temperature
    count = np.ones(n) if weight is None else weight
    start = np.concatenate([np.ones(5), np.zeros(2 + k)])
    top = slow.minimum(slow.top_objective, start, *given_, found.offset_strength, count)
    rest = slow.minimum(slow.rest_objective, np.zeros(1 + k), *given_, found.bias_strength, count)
    ours = objectives(problem, found)
    assert ours[0] <= slow.top_objective(top, *given_, found.offset_strength, count) + 1e-4
    assert ours[1] <= slow.rest_objective(rest, *given_, found.bias_strength, count) + 0.02
    np.testing.assert_allclose(found.weights, top[:7], atol=0.01)
    np.testing.assert_allclose(found.class_offsets, top[7:], atol=0.01)
    np.testing.assert_allclose(-found.log_rest_inverse_temperature, rest[0], atol=0.03)
    np.testing.assert_allclose(found.rest_biases, rest[1:], atol=0.03)


@pytest.mark.parametrize("classes", [False, True])
def test_the_cross_fit_is_a_fit_on_the_other_folds(classes):
    logits, labels = draw_overconfident(600, 4, 5, excess=np.linspace(0.0, 2.5, 4))
    problem, fold = problem_of(logits, labels), np.arange(600) % 5
    whole = top_rest_solver.fit_top_rest(problem, classes=classes)
    fits = top_rest_solver.cross_fit(problem, fold, whole, classes=classes)
    for each, found in enumerate(fits):
        others = problem.rows(np.flatnonzero(fold != each))
        expected = top_rest_solver._fit_top(others, whole, classes=classes, estimate=False)
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-3)
        np.testing.assert_allclose(found.class_offsets, expected.class_offsets, atol=1e-3)
        if classes:
            expected = top_rest_solver._fit_rest(others, whole, classes=True, estimate=False)
        np.testing.assert_allclose(found.rest_biases, expected.rest_biases, atol=0.03)
        assert found.log_rest_inverse_temperature == pytest.approx(
            expected.log_rest_inverse_temperature, abs=0.03
        )


def test_without_classes_the_fit_is_the_minimum_too():
    logits, labels = draw_overconfident(600, 5, 4)
    found = TopRestScaling(classes=False).fit(logits=logits, labels=labels)
    state = found.state_
    given_ = (
        logits,
        labels,
        TemperatureScaling().fit(logits=logits, labels=labels).temperature_,
        0.0,
        np.ones(600),
    )
    top = slow.minimum(slow.top_objective, np.array([1.0] * 5 + [0.0] * 2), *given_)
    rest = slow.minimum(slow.rest_objective, np.zeros(1), *given_)
    np.testing.assert_allclose(state["slopes"], top[:5], atol=0.01)
    np.testing.assert_allclose([state["offset"], state["contest"]], top[5:], atol=0.01)
    assert math.log(found.rest_temperature_) == pytest.approx(rest[0], abs=0.03)
    assert not state["class_offsets"].any()
    assert not state["rest_biases"].any()


@functools.cache
def fit_cases():
    rng = np.random.default_rng(5)
    cases = {
        f"n = {n}, K = {k}": draw_overconfident(n, k, n)
        for n in (1, 2, 19, 20, 50)
        for k in (2, 3, 10)
    }
    logits, labels = draw_overconfident(300, 4, 6)
    masked = np.where(rng.random(logits.shape) < 0.4, -INF, logits)
    masked[np.arange(300), labels] = logits[np.arange(300), labels]
    return {
        **cases,
        "no mistake": (logits, logits.argmax(axis=1)),
        "nothing but mistakes": (logits, (logits.argmax(axis=1) + 1) % 4),
        "the last is correct": (logits, logits.argmin(axis=1)),
        "two classes, all wrong": (logits[:, :2], logits[:, :2].argmin(axis=1)),
        "two classes, all correct": (logits[:, :2], logits[:, :2].argmax(axis=1)),
        "a class without samples": (logits, np.minimum(labels, 2)),
        "one class only": (logits, 0 * labels),
        "masked": (masked, labels),
        "only the label": (np.where(np.arange(4) == labels[:, None], logits, -INF), labels),
        "nothing said": (np.zeros_like(logits), labels),
        "one-hot": (np.eye(4)[logits.argmax(axis=1)], labels),
        "ties": (np.round(logits), labels),
        "single precision": (logits.astype("float32"), labels),
        "half precision": (logits.astype("float16"), labels),
        "small": (1e-30 * logits, labels),
        "large": (1e30 * logits, labels),
        "largest": (1e300 * logits, labels),
        "far from 0": (logits + 1e15, labels),
        "rows of all sizes": (logits * 10.0 ** rng.integers(-20, 20, size=(300, 1)), labels),
        "rows of more sizes": (logits * 10.0 ** rng.integers(-150, 120, size=(300, 1)), labels),
        "many classes, few samples": draw_overconfident(5, 1000, 7),
    }


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("name", fit_cases())
def test_a_fit_is_no_worse_than_temperature_scaling(name, classes, tmp_path):
    logits, labels = fit_cases()[name]
    found = TopRestScaling(classes=classes).fit(logits=logits, labels=labels)
    report = found.report_
    plain = TemperatureScaling().fit(logits=logits, labels=labels).report_
    # Where no label lies below the top, T of temperature scaling is 0 and ours is 1.
    bar = plain.before if plain.at_bound == "T -> 0" else plain.after
    assert report.after <= bar * (1 + 1e-12) + 1e-12
    assert report.before == pytest.approx(plain.before, rel=1e-12)
    assert report.after == pytest.approx(nll_of(found, logits, labels), rel=1e-9, abs=1e-12)
    assert report.accuracy_before == report.accuracy_after
    assert np.array_equal(found.predict(logits=logits), logits.argmax(axis=1))
    assert np.array_equal(found.predict_proba(logits=logits).argmax(axis=1), logits.argmax(axis=1))
    # A search ends about 0.05 standard errors from the minimum; with few samples that is much.
    assert report.gradient <= 0.05 * max(1.0, 20.0 / len(labels))
    assert report.evaluations < 300
    found.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    assert loaded.report_ == report
    np.testing.assert_array_equal(
        loaded.predict_proba(logits=logits), found.predict_proba(logits=logits)
    )


@pytest.mark.parametrize("name", ["no mistake", "two classes, all correct"])
def test_without_a_mistake_the_models_own_temperature_stays(name):
    found = TopRestScaling()
    with pytest.warns(CalibrationWarning, match="nearly every sample is classified"):
        found.fit(*fit_cases()[name])
    assert found.temperature_ == 1.0
    assert found.rest_temperature_ == 1.0
    assert found.report_.at_bound == "T -> 0"


@pytest.mark.parametrize("factor", [1e-3, 7.3, 1e30])
def test_the_scale_of_the_logits_does_not_matter(factor):
    logits, labels = draw_overconfident(800, 5, 8)
    one, other = (TopRestScaling().fit(c * logits, labels) for c in (1.0, factor))
    assert other.temperature_ / factor == pytest.approx(one.temperature_, rel=1e-7)
    np.testing.assert_allclose(
        other.predict_proba(factor * logits), one.predict_proba(logits=logits), atol=1e-6
    )


def test_the_order_of_the_rows_does_not_matter():
    logits, labels = draw_overconfident(700, 5, 9)
    order = np.random.default_rng(0).permutation(700)
    one, other = (
        TopRestScaling().fit(logits=logits[o], labels=labels[o]) for o in (np.arange(700), order)
    )
    np.testing.assert_allclose(
        one.predict_proba(logits=logits), other.predict_proba(logits=logits), atol=1e-6
    )


# --- weights -------------------------------------------------------------------------------------


def test_whole_weights_are_repetitions():
    logits, labels = draw_overconfident(400, 4, 10)
    weight = np.random.default_rng(0).integers(0, 4, size=400)
    weighted = TopRestScaling().fit(logits=logits, labels=labels, sample_weight=weight)
    repeated = TopRestScaling().fit(*(np.repeat(each, weight, axis=0) for each in (logits, labels)))
    assert weighted.report_.after == pytest.approx(repeated.report_.after, rel=1e-7)
    np.testing.assert_allclose(
        weighted.predict_proba(logits=logits), repeated.predict_proba(logits=logits), atol=1e-6
    )


@pytest.mark.parametrize("unit", [1 / 3, 1e-300, 1e200])
def test_weights_in_another_unit_say_the_same(unit):
    logits, labels = draw_overconfident(400, 4, 11)
    weight = np.random.default_rng(0).random(400) + 0.1
    one, other = (
        TopRestScaling().fit(logits=logits, labels=labels, sample_weight=w)
        for w in (weight, unit * weight)
    )
    np.testing.assert_allclose(
        other.predict_proba(logits=logits), one.predict_proba(logits=logits), atol=1e-6
    )
    assert other.report_.after == pytest.approx(nll_of(other, logits, labels, weight), rel=1e-9)
    # Equal weights are no weights.
    plain, equal = (
        TopRestScaling().fit(logits=logits, labels=labels, sample_weight=w)
        for w in (None, np.full(400, unit))
    )
    np.testing.assert_allclose(
        equal.predict_proba(logits=logits), plain.predict_proba(logits=logits), atol=1e-6
    )


@pytest.mark.parametrize("exponents", [(-10, 10), (-300, 300), (0, 15)])
def test_weights_of_all_sizes(exponents):
    logits, labels = draw_overconfident(300, 5, 12)
    weight = 10.0 ** np.random.default_rng(0).integers(*exponents, size=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CalibrationWarning)
        found = TopRestScaling().fit(logits=logits, labels=labels, sample_weight=weight)
    plain = TemperatureScaling().fit(logits=logits, labels=labels, sample_weight=weight)
    assert found.report_.after <= plain.report_.after
    assert found.report_.after == pytest.approx(
        nll_of(found, logits, labels, weight / weight.max()), rel=1e-9
    )


# --- class terms ---------------------------------------------------------------------------------


def test_class_terms_fade_where_classes_do_not_differ():
    for seed in range(3):
        state = TopRestScaling().fit(*draw_overconfident(4000, 5, seed)).state_
        assert np.abs(state["class_offsets"]).max() < 0.15
        assert np.abs(state["rest_biases"]).max() < 0.15


def test_class_terms_are_found_where_classes_differ():
    logits, labels = draw_overconfident(4000, 4, 0, excess=[2.0, 0.0, 0.0, 2.0])
    offsets = TopRestScaling().fit(logits=logits, labels=labels).state_["class_offsets"]
    assert (offsets[[0, 3]] < -0.7).all()
    assert (offsets[[1, 2]] > 0.5).all()
    logits, labels = draw_overconfident(4000, 4, 0)
    logits[:, 0] += np.where(logits.argmax(axis=1) == 0, 0.0, -1.5)  # too low where not on top
    biases = TopRestScaling().fit(logits=logits, labels=labels).state_["rest_biases"]
    assert biases[0] > biases[1:].max() + 0.5


def test_with_few_samples_class_terms_are_small():
    found = TopRestScaling().fit(*draw_overconfident(60, 20, 13)).state_
    assert np.abs(found["class_offsets"]).max() < 0.5
    assert np.abs(found["rest_biases"]).max() < 0.5


# --- layers and files ----------------------------------------------------------------------------


def rich(k, seed=0):
    """Every number of the state away from temperature scaling."""
    rng = np.random.default_rng(seed)
    return {
        "temperature": 1.7,
        "slopes": np.array([0.4, 1.8, 0.0, 2.5, 0.6]),
        "offset": -0.7,
        "contest": 0.4,
        "class_offsets": 0.5 * rng.normal(size=k),
        "rest_temperature": 0.6,
        "rest_biases": rng.normal(size=k),
    }


def rows(k, dtype):
    rng = np.random.default_rng(1)
    ordinary = np.concatenate([size * rng.normal(size=(20, k)) for size in (0.1, 3.0, 60.0, 1e4)])
    masked = np.where(rng.random((20, k)) < 0.5, -INF, 3.0 * rng.normal(size=(20, k)))
    masked[:, 1] = rng.normal(size=20)
    tied = np.round(rng.normal(size=(20, k)))
    alone = np.where(np.arange(k) == k - 1, 5.0, -INF)[np.newaxis]
    return np.concatenate([ordinary, masked, tied, alone, 1e26 * ordinary]).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "dtype"), [(2, "float64"), (1000, "float32")])
def test_exported_files_agree(k, dtype, tmp_path):
    calibrator, logits = with_state(k, **rich(k)), rows(k, dtype)
    calibrator.report_ = TopRestScaling().fit(*draw_overconfident(30, 3)).report_
    expected = calibrator.predict_proba(logits=logits)
    names: dict = {}
    exec(source(calibrator), names)
    export(calibrator, tmp_path / "cal.onnx", dtype=dtype)
    export(calibrator, tmp_path / "cal.pt2", dtype=dtype)
    session = onnxruntime.InferenceSession(tmp_path / "cal.onnx")
    program = torch.export.load(tmp_path / "cal.pt2").module()
    for found in (
        names["predict_proba"](logits),
        session.run(["probs"], {"logits": logits})[0],
        program(torch.from_numpy(logits)).numpy(),
        calibrator.as_module()(torch.from_numpy(logits)).exp().numpy(),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert (found[logits == -INF] == 0.0).all()


def test_gradients_are_those_of_small_steps():
    layer = with_state(4, **rich(4)).as_module()
    logits = torch.tensor(draw_overconfident(12, 4, 14)[0], requires_grad=True)
    assert torch.autograd.gradcheck(layer, logits, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite(dtype):
    layer = with_state(5, **rich(5)).as_module()
    logits = torch.from_numpy(rows(5, "float64")).to(dtype).requires_grad_()
    log_probs = layer(logits)
    torch.where(log_probs.isfinite(), log_probs.clamp(min=-1e3), 0.0).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_a_state_that_cannot_be_used_is_refused(tmp_path):
    file = tmp_path / "cal.json"
    TopRestScaling().fit(*draw_overconfident(200, 3)).save(file)
    content = json.loads(file.read_text())
    for name, value, message in (
        ("temperature", 0.0, "its temperature is 0, not between 1e-300 and 1e300"),
        ("rest_temperature", -1.0, r"its rest_temperature is -1, not between 1e-6 and 1e6"),
        ("slopes", [1.0] * 4, "it has 4 slopes, not 5"),
        ("slopes", [1.0, 1.0, 1.0, 1.0, -0.1], "its slopes are not all at least 0"),
        ("slopes", [1.0, 1.0, 1.0, 1.0, 2e6], "its slopes holds numbers beyond 1e"),
        ("contest", 1e7, "its contest holds numbers beyond 1e"),
        ("rest_biases", [0.0, 0.0, 1e7], "its rest_biases holds numbers beyond 1e"),
        ("class_offsets", [0.0, 0.0], r"'class_offsets' has shape \(2,\), not K"),
    ):
        changed = {**content, "state": {**content["state"], name: value}}
        file.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message) as caught:
            calibrant.load(file)
        assert str(caught.value).isprintable()


def test_the_largest_numbers_a_file_may_hold_do_no_harm():
    largest = dict.fromkeys(("offset", "contest"), -1e6)
    for sign in (1.0, -1.0):
        calibrator = with_state(
            3,
            **largest,
            slopes=np.full(5, 1e6),
            class_offsets=np.array([sign * 1e6, 0.0, -1e6]),
            rest_biases=np.array([1e6, sign * 1e6, -1e6]),
        )
        logits = rows(3, "float64")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            probs = calibrator.predict_proba(logits=logits)
            assert not np.isnan(calibrator.predict_log_proba(logits=logits)).any()
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)
        assert np.array_equal(probs.argmax(axis=1), logits.argmax(axis=1))


def test_classes_is_true_or_false():
    with pytest.raises((TypeError, ValueError), match="classes"):
        TopRestScaling(classes="yes").fit(*draw_overconfident(50, 3))
