"""Rows too few to compile for: the same numbers as the compiled passes, and the same refusals."""

from __future__ import annotations

import copy
import functools
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from mpmath import mp

from calibrant import AutoCalibration, StructuredScaling, TemperatureScaling, TopRestScaling
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import below_top, split_top
from calibrant.calibrators import CALIBRATORS, Calibrator
from calibrant.calibrators.data import FEW_NUMBERS
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling, VectorScaling
from calibrant.calibrators.one_vs_rest.base import (
    MOST_LOG_ODDS,
    OneVsRest,
    _row_log_odds,
    class_log_odds,
)
from calibrant.calibrators.one_vs_rest.parametric import PlattScaling
from calibrant.calibrators.one_vs_rest.tables import places
from calibrant.calibrators.temperature import kernels
from calibrant.calibrators.temperature.floored import FlooredTemperatureScaling
from calibrant.calibrators.temperature.methods import small_softmax
from calibrant.calibrators.top_rest.map import _compiled_probs
from tests.builders import build, draw_samples
from tests.reference import focal_mpmath, top_rest_slow

pytestmark = [
    pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning"),
    pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning"),  # _apply ignores it
]

TOLERANCE = {"float64": 1e-14, "float32": 1e-7}
STATES = {
    "temperature": {},
    "without classes": {"slopes": [0.3, 1.4, 1.1, 0.2, 0.9], "offset": 0.4, "contest": -0.3},
    "with classes": {
        "temperature": 0.07,
        "slopes": [1.5, 0.6, 0.9, 1.2, 0.1],
        "class_offsets": [0.3, -0.4, 0.1, 0.0, 0.2, -0.2],
        "rest_temperature": 0.5,
        "rest_biases": [0.0, 0.7, -0.6, 0.1, 0.3, -0.5],
    },
}


def hostile_rows(dtype: str) -> np.ndarray:
    """Six classes: all sizes, ties, near ties, masks, one-hot rows and the largest numbers."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(24, 6)) * np.logspace(-8, 4, 24)[:, np.newaxis]
    inf, huge = np.inf, float(np.finfo(dtype).max)
    below = np.nextafter(np.array(1, dtype), np.array(0, dtype))
    special = [
        [5, 5, 1, 0, 0, -1],
        [0, 0, 0, 0, 0, 0],
        [1, below, 0, 0, 0, 0],
        [below, 1, 1, 0, -inf, 0],
        [2, -inf, 1, -inf, 0, 1],
        [-inf, 3, 3, -inf, -inf, -inf],
        [-inf, -inf, -7, -inf, -inf, -inf],
        [800, 0, 0, 0, 0, 0],
        [40, 0, 1, 2, -inf, 0],
        [huge, 0, 0, 1, -1, 2],
        [huge, -huge, 0, 0, huge, -inf],
        [-huge, 0, 1, -huge, -huge, 1],
    ]
    return np.concatenate([rows, special]).astype(dtype)


def state(name: str) -> dict[str, object]:
    plain = {
        "temperature": 1.7,
        "slopes": [1.0] * 5,
        "offset": 0.0,
        "contest": 0.0,
        "class_offsets": [0.0] * 6,
        "rest_temperature": 1.0,
        "rest_biases": [0.0] * 6,
    }
    given = {**plain, **STATES[name]}
    return {n: np.array(v) if isinstance(v, list) else v for n, v in given.items()}


def agree(logits: np.ndarray, *, small: np.ndarray, compiled: np.ndarray, exact: list) -> None:
    """Both ways give the exact numbers, and the top class stays first."""
    expected = np.array(exact, dtype=np.float64)
    for found in (small, compiled):
        assert found.dtype == logits.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[logits.dtype.name])
        assert np.array_equal(found.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("temperature", [0.01, 1.0, 7.0])
def test_small_softmax(dtype: str, temperature: float) -> None:
    logits = hostile_rows(dtype)
    small, compiled = small_softmax(logits, temperature), np.empty_like(logits)
    kernels.map_probs(logits, 1.0 / temperature, 0.0, float(np.finfo(dtype).eps), compiled)
    with mp.workdps(50):
        log_probs = [focal_mpmath.focal_log_probs(row, 0, temperature) for row in logits.tolist()]
        exact = [[mp.exp(each) for each in row] for row in log_probs]
    agree(logits, small=small, compiled=compiled, exact=exact)
    tied = logits == logits.max(axis=1, keepdims=True)
    assert np.array_equal(small == small.max(axis=1, keepdims=True), tied)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", STATES)
def test_top_rest_row_by_row(dtype: str, name: str) -> None:
    logits, fitted = hostile_rows(dtype), state(name)
    exact = [[mp.exp(each) for each in top_rest_slow.log_probs(row, fitted)] for row in logits]
    agree(
        logits,
        small=TopRestScaling()._probs(logits, fitted),
        compiled=_compiled_probs(logits, fitted),
        exact=exact,
    )


# --- predict_proba of one row --------------------------------------------------------------------


FIRST_PARTS = {
    "floored, then": (
        FlooredTemperatureScaling().with_state({"floor": 9.0, "temperature": 1.3}, 6),
    ),
    "biases, then": (
        BiasCorrectedTemperatureScaling().with_state(
            {"temperature": 1.5, "bias": np.linspace(-0.6, 0.9, 6)}, 6
        ),
    ),
    "structured, then": (
        StructuredScaling().with_state(
            {
                "temperature": 1.2,
                "matrix": np.eye(6) + np.linspace(-0.2, 0.2, 36).reshape(6, 6),
                "bias": np.linspace(-0.6, 0.9, 6),
            },
            6,
        ),
    ),
}
FIRST_PARTS["both, then"] = FIRST_PARTS["floored, then"] + FIRST_PARTS["structured, then"]


@functools.cache
def fitted(name: str) -> Calibrator:
    if name in FIRST_PARTS:
        chosen = AutoCalibration().with_state({}, 6)
        last = TopRestScaling().with_state(state("without classes"), 6)
        chosen.parts_ = (*FIRST_PARTS[name], last)
        return chosen
    logits, labels = draw_samples(1000, 6)
    if name == "auto, keep_class":
        return AutoCalibration(keep_class=True).fit(logits, labels)
    return build(name).fit(2 * logits, labels)


every_method = pytest.mark.parametrize(
    "name", ["temperature", "auto", "auto, keep_class", *FIRST_PARTS]
)


@pytest.mark.parametrize("name", [*CALIBRATORS, "auto, keep_class", *FIRST_PARTS])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_one_row_is_that_row_of_a_batch(name: str, dtype: str) -> None:
    logits = hostile_rows("float32" if dtype == "float16" else dtype)
    logits = logits.clip(-6e4, 6e4, where=logits > -np.inf, out=logits).astype(dtype)
    rows = np.tile(logits, (FEW_NUMBERS // logits.size + 1, 1))
    batch = fitted(name).predict_proba(logits=rows)
    for row, expected in zip(logits, batch, strict=False):
        found = fitted(name).predict_proba(row[np.newaxis])
        assert found.dtype == batch.dtype == ("float64" if dtype == "float64" else "float32")
        atol = 1e-12 if dtype == "float64" else TOLERANCE["float32"]
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=atol)
        np.testing.assert_array_equal(found, fitted(name).predict_proba(logits=row[np.newaxis]))


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_one_row_of_two_classes_is_that_row_of_a_batch(name: str, dtype: str) -> None:
    samples, labels = draw_samples(1000, 2)
    curve = build(name).fit(samples, labels)
    huge = np.finfo(dtype).max
    special = [[1, 1], [0, -np.inf], [-np.inf, 2], [huge, -huge], [-huge, huge], [0, 1e-9]]
    logits = np.concatenate([samples[:50], special]).astype(dtype)
    batch = curve.predict_proba(logits=np.tile(logits, (2, 1)))
    for row, expected in zip(logits, batch, strict=False):
        found = curve.predict_proba(logits=row[np.newaxis])
        assert found.dtype == dtype
        np.testing.assert_allclose(found[0], expected, rtol=1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("base", [TemperatureScaling, TopRestScaling, VectorScaling, PlattScaling])
def test_a_subclass_with_another_map(base: type[Calibrator]) -> None:
    class Uniform(base):
        def _log_probs(self, logits: np.ndarray, state: dict) -> np.ndarray:
            return np.full(logits.shape, -np.log(logits.shape[-1]))

        _probs = Calibrator._probs

        def _probs_are_compiled(self, state: dict) -> bool:
            return False

    logits, labels = draw_samples(200, 3)
    uniform = Uniform().fit(logits, labels)
    for n in (1, 200):
        np.testing.assert_allclose(uniform.predict_proba(logits[:n]), 1 / 3)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bias", [0.0, -2.0, 2.0, -50.0, 50.0])
def test_a_tied_row_with_class_terms_keeps_its_class(bias: float, dtype: str) -> None:
    terms = {"rest_biases": np.full(6, bias), "class_offsets": np.linspace(-0.3, 0.3, 6)}
    tried = TopRestScaling().with_state(state("without classes") | terms, 6)
    row = np.array([[1, 2, 2, 0, 0, 0]], dtype)
    (found,) = tried.predict_proba(row)
    assert found[1] > found[2] == np.partition(found, -2)[-2]
    batch = tried.predict_proba(np.repeat(row, FEW_NUMBERS, axis=0))
    np.testing.assert_allclose(found, batch[0], rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-300, 1e300])
@pytest.mark.parametrize("name", [*FIRST_PARTS, "temperature", "top-rest", "focal-temperature"])
def test_no_temperature_overflows(name: str, temperature: float) -> None:
    """However large the row, as long as it is not masked; nothing but the answer comes out."""
    rows = np.array([[3, 1, 1, 0, -2, 5], [1, 1, 0, 0, 0, 0]]) * np.array([[1e-290], [1e29]])
    tried = copy.deepcopy(fitted(name))
    for part in tried.parts_ or (tried,):
        part.state_["temperature"] = temperature
    batch = tried.predict_proba(logits=np.repeat(rows, 500, axis=0))[::500]
    for row, expected in zip(rows, batch, strict=True):
        found = tried.predict_proba(logits=row[np.newaxis])
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)


ROW = arrays(np.float64, 5, elements=st.floats(-50, 50) | st.floats(-1e30, 1e30))


@given(ROW, st.floats(1e-90, 1e90))
def test_what_a_row_is_below_its_top(row: np.ndarray, temperature: float) -> None:
    found, expected = below_top(row, temperature), split_top(row, temperature).z
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@given(ROW)
def test_log_odds_of_a_row(row: np.ndarray) -> None:
    np.testing.assert_allclose(_row_log_odds(row), class_log_odds(row), rtol=1e-13, atol=1e-13)


@given(
    arrays(np.float64, 6, elements=st.floats(-4, 4)),
    arrays(np.float64, (6, 7), elements=st.integers(-4, 4) | st.floats(-4, 4)),
)
def test_places_in_a_table(row: np.ndarray, knots: np.ndarray) -> None:
    knots.sort(axis=1)
    for found, expected in zip(places(row, knots), places(row[np.newaxis], knots), strict=True):
        np.testing.assert_array_equal(found, expected[0])


@functools.cache
def curve_of_two(name: str) -> OneVsRest:
    return build(name).fit(*draw_samples(1000, 2))


@pytest.mark.parametrize(
    "name", [n for n, each in CALIBRATORS.items() if issubclass(each, OneVsRest)]
)
@given(log_odds=st.floats(-MOST_LOG_ODDS, MOST_LOG_ODDS))
def test_one_number_is_calibrated_as_an_array(name: str, log_odds: float) -> None:
    curve = curve_of_two(name)
    found = curve._calibrated(log_odds, curve.state_)
    assert type(found) is float
    (expected,) = curve._calibrated(np.array([[log_odds]]), curve.state_)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@given(st.floats(-700, 700), st.floats(-700, 700))
def test_functions_of_a_float_are_those_of_numpy(x: float, y: float) -> None:
    xp = array_namespace(x)
    for name in ("abs", "exp", "zeros_like"):
        np.testing.assert_allclose(getattr(xp, name)(x), getattr(np, name)(x), rtol=1e-15)
    for name in ("log", "log1p"):
        found, expected = getattr(xp, name)(1e-300 + abs(x)), getattr(np, name)(1e-300 + abs(x))
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    for name in ("maximum", "minimum", "logaddexp"):
        found, expected = getattr(xp, name)(x, y), getattr(np, name)(x, y)
        np.testing.assert_allclose(found, expected, rtol=1e-15, atol=1e-15)
    assert xp.clip(x, min=-y) == np.clip(x, min=-y)
    assert xp.clip(x, min=-abs(y), max=abs(y)) == np.clip(x, -abs(y), abs(y))
    assert xp.where(x < y, x, y) == np.where(x < y, x, y)
    assert xp.log(0.0) == -np.inf


@every_method
def test_a_row_between_0_and_1_is_refused_by_position_only_if_it_sums_to_1(name: str) -> None:
    row = np.array([[0.1, 0.2, 0.3, 0.4, 0.0, 0.0]])
    with pytest.raises(ValueError, match="look like probabilities"):
        fitted(name).predict_proba(row)
    believed = fitted(name).predict_proba(logits=row)
    for other in (row + 0.01, row - 0.01):
        np.testing.assert_allclose(fitted(name).predict_proba(other), believed, atol=0.02)


@every_method
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[np.nan, 0, 1, 2, 3, 4]], "found NaN in row 0"),
        ([[0, 1, 2, 3, 4, np.inf]], "found +inf in row 0"),
        ([[-np.inf] * 6], "found only -inf in row 0"),
        ([[0, 1, 2, 3, 4]], "fitted on 6 classes; found 5"),
        ([[3]], "fitted on 6 classes; found 2"),
        ([[1j] * 6], "must be real numbers"),
        ([["a"] * 6], "must be real numbers"),
    ],
)
def test_what_a_row_must_not_be(name: str, bad: list, message: str) -> None:
    row = np.array(bad)
    for call in (fitted(name).predict_proba, lambda x: fitted(name).predict_proba(logits=x)):
        with pytest.raises(ValueError, match=re.escape(message)):
            call(row)


@every_method
def test_scores_are_given_once(name: str) -> None:
    row = np.arange(6.0)[np.newaxis]
    with pytest.raises(ValueError, match="Pass them once"):
        fitted(name).predict_proba(row, logits=row)
    with pytest.raises(ValueError, match="exactly one of logits or probs"):
        fitted(name).predict_proba(row, probs=row)
