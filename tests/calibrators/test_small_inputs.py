"""Rows too few to compile for: the same numbers as the compiled passes, and the same refusals."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from mpmath import mp

from calibrant import AutoCalibration, StructuredScaling, TemperatureScaling, TopRestScaling
from calibrant.calibrators.auto.curves import STEPS
from calibrant.calibrators.data import FEW_NUMBERS
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
from calibrant.calibrators.temperature import kernels
from calibrant.calibrators.temperature.floored import FlooredTemperatureScaling
from calibrant.calibrators.temperature.methods import small_softmax
from calibrant.calibrators.top_rest.map import _compiled_probs
from tests.builders import draw_samples
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
def fitted(name: str) -> TemperatureScaling | AutoCalibration:
    if name in FIRST_PARTS:
        chosen = AutoCalibration().with_state({}, 6)
        last = TopRestScaling().with_state(state("without classes"), 6)
        chosen.parts_ = (*FIRST_PARTS[name], last)
        return chosen
    logits, labels = draw_samples(1000, 6)
    if name == "temperature":
        return TemperatureScaling().fit(2 * logits, labels)
    return AutoCalibration(keep_class=name == "auto, keep_class").fit(logits, labels)


every_method = pytest.mark.parametrize(
    "name", ["temperature", "auto", "auto, keep_class", *FIRST_PARTS]
)


@every_method
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_one_row_is_that_row_of_a_batch(name: str, dtype: str) -> None:
    logits = hostile_rows("float32" if dtype == "float16" else dtype)
    logits = logits.clip(-6e4, 6e4, where=logits > -np.inf, out=logits).astype(dtype)
    rows = np.tile(logits, (FEW_NUMBERS // logits.size + 1, 1))
    batch = fitted(name).predict_proba(logits=rows)
    for row, expected in zip(logits, batch, strict=False):
        found = fitted(name).predict_proba(row[np.newaxis])
        assert found.dtype == batch.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=TOLERANCE[found.dtype.name])
        np.testing.assert_array_equal(found, fitted(name).predict_proba(logits=row[np.newaxis]))


@pytest.mark.parametrize("method", [step.curve for step in STEPS])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_one_row_of_two_classes_is_that_row_of_a_batch(method: type, dtype: str) -> None:
    samples, labels = draw_samples(1000, 2)
    curve = method().fit(samples, labels)
    huge = np.finfo(dtype).max
    special = [[1, 1], [0, -np.inf], [-np.inf, 2], [huge, -huge], [-huge, huge], [0, 1e-9]]
    logits = np.concatenate([samples[:50], special]).astype(dtype)
    batch = curve.predict_proba(logits=np.tile(logits, (2, 1)))
    for row, expected in zip(logits, batch, strict=False):
        found = curve.predict_proba(logits=row[np.newaxis])
        assert found.dtype == dtype
        np.testing.assert_allclose(found[0], expected, rtol=1e-12 if dtype == "float64" else 1e-6)


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
