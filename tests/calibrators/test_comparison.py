"""Methods side by side: the figures, the signs, and what happens to a method that fails."""

from __future__ import annotations

import functools
import json
import math
import re
import weakref
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from calibrant import CALIBRATORS, FocalCalibration, Identity, TemperatureScaling
from calibrant.calibrators.comparison import MethodComparison, compare
from calibrant.calibrators.comparison.duration import (
    NANOSECONDS,
    NANOSECONDS_PER_CLASS,
    too_slow,
)
from calibrant.calibrators.registry import make_calibrators, required_params
from calibrant.metrics import intervals

CHEAP = ["identity", "temperature"]


def problem(n: int, seed: int, boldness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of four classes whose true temperature is ``boldness``."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    logits = rng.standard_normal((n, 4))
    logits[np.arange(n), labels] += 1.5
    return 1.5 * boldness * logits, labels


VAL, VAL_LABELS = problem(1500, seed=0)
TEST, TEST_LABELS = problem(1500, seed=1)


def compared(**options) -> MethodComparison:
    given = {"methods": CHEAP, "n_resamples": 200, **options}
    return compare(VAL, VAL_LABELS, TEST, TEST_LABELS, **given)


@pytest.fixture(scope="module")
def result() -> MethodComparison:
    return compared()


class Refusing(TemperatureScaling):
    """Suits no samples."""

    NAME = "refusing"

    def _fit(self, data):
        raise ValueError("this method is for two classes;\n found four. Use another")


class Poisoned(TemperatureScaling):
    """Fits, and then gives NaN."""

    NAME = "poisoned"

    def _probs(self, logits, state):
        return np.full_like(logits, np.nan)


class Impossible(TemperatureScaling):
    """Sure of the first class, always."""

    NAME = "impossible"

    def _log_probs(self, logits, state):
        return np.where(np.arange(logits.shape[-1]) == 0, 0.0, -np.inf) + 0.0 * logits

    def _probs(self, logits, state):
        return np.exp(self._log_probs(logits, state))


def by_hand(logits: np.ndarray, labels: np.ndarray, temperature: float) -> dict[str, float]:
    """The figures from their definitions."""
    scaled = logits / temperature
    probs = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    order = np.argsort(confidence, kind="stable")
    gaps = [(confidence - right)[bin_].sum() for bin_ in np.array_split(order, 15)]
    width = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    return {
        "ada_ece": np.abs(gaps).sum() / len(labels),
        "ece": np.abs(np.bincount(width, confidence - right)).sum() / len(labels),
        "nll": -np.log(probs[np.arange(len(labels)), labels]).mean(),
        "brier": ((probs - np.eye(logits.shape[1])[labels]) ** 2).sum(axis=1).mean(),
        "accuracy": right.mean(),
    }


def test_the_figures_are_those_of_the_definitions(result):
    fitted = TemperatureScaling().fit(logits=VAL, labels=VAL_LABELS).temperature_
    for name, temperature in (("identity", 1.0), ("temperature", fitted)):
        expected = by_hand(TEST, TEST_LABELS, temperature)
        for metric, value in expected.items():
            measured = result[name][metric]
            assert measured.value == pytest.approx(value, abs=1e-9)
            assert measured.low is not None
            assert measured.high is not None
            assert 0.0 <= measured.low < measured.high
        assert result[name]["nll"].low < expected["nll"] < result[name]["nll"].high
        assert result[name]["accuracy"].low < expected["accuracy"] < result[name]["accuracy"].high


def test_only_what_can_be_told_apart_gets_a_sign(result):
    identity = result["identity"]
    assert {identity.verdict(metric) for metric in ("ada_ece", "ece", "nll", "brier")} == {"worse"}
    assert identity.verdict("accuracy") == "not distinguishable"  # the same predictions
    assert result["temperature"].verdict("nll") is None
    (line,) = (row for row in str(result).splitlines() if row.startswith("identity"))
    assert line.count(" - ") == 4
    assert "+ better, - worse than temperature" in str(result)


def test_a_method_is_not_distinguishable_from_itself():
    twice = compared(methods={"one": TemperatureScaling(), "temperature": TemperatureScaling()})
    assert twice["one"]["nll"] == twice["temperature"]["nll"]
    assert twice["one"].verdict("nll") == twice["one"].verdict("ada_ece") == "not distinguishable"


def test_better_than_the_reference_is_a_plus():
    turned = compared(against="identity")
    assert turned["temperature"].verdict("nll") == "better"
    line = next(row for row in str(turned).splitlines() if row.startswith("temperature"))
    assert line.count(" + ") == 4


def test_the_noise_floor_says_which_are_calibrated(result):
    assert result.calibrated() == ("temperature",)
    text = " ".join(str(result).split())
    assert "No miscalibration of the confidence or single classes after: temperature." in text
    floor = result["temperature"].noise_floor
    assert floor is not None
    assert 0.0 < floor.expected < floor.usual_up_to


@pytest.mark.parametrize("metric", ["ada_ece", "ece", "nll", "brier", "accuracy"])
def test_the_best_comes_first_with_its_interval(result, metric):
    ordered = result.sorted_by(metric)
    values = [row[metric].value for row in ordered.rows]
    assert values == sorted(values, reverse=metric == "accuracy")
    head = next(line for line in str(ordered).splitlines() if line.startswith("method"))
    assert re.match(rf"method +{metric} +95% interval", head)
    assert compared(sort=metric).rows[0].name == ordered.rows[0].name


def test_a_method_that_fails_does_not_stop_the_others():
    methods = {"refusing": Refusing(), "poisoned": Poisoned(), **make_calibrators(CHEAP)}
    result = compared(methods=methods)
    assert [row.name for row in result.rows[:2]] == ["temperature", "identity"]
    refusing, poisoned = result["refusing"], result["poisoned"]
    assert refusing.failure == "this method is for two classes; found four. Use another"
    assert "NaN" in (poisoned.failure or "")
    assert refusing.evaluation is refusing.report is refusing.differences is None
    assert str(result).count("this method is for two classes") == 1
    with pytest.raises(KeyError, match="two classes"):
        refusing["nll"]
    assert result["identity"].verdict("nll") == "worse"


def test_without_the_reference_there_are_no_signs():
    result = compared(methods={"temperature": Refusing(), "identity": Identity()})
    assert result["identity"].differences is None
    assert "No signs: temperature cannot be used here" in str(result)
    assert json.loads(result.to_json())["methods"]["identity"]["differences"] is None


def test_what_speaks_against_a_method_is_said_once_and_not_warned_of():
    # Warnings are errors in these tests, so one that got out would fail here.
    methods = {"a": TemperatureScaling(), "b": TemperatureScaling(), "temperature": Identity()}
    result = compare(VAL[:20], VAL_LABELS[:20], TEST, TEST_LABELS, methods=methods, n_resamples=20)
    text = str(result)
    assert text.count("fitted on 20 samples only") == 1
    assert [line[0] for line in text.splitlines() if line.endswith(" [1]")] == ["a", "b"]
    assert "20 samples only" in result["a"].report.warnings[0]


def test_the_reference_is_added_and_the_methods_given_are_left_as_they_are():
    own = FocalCalibration(gamma=1.0)
    result = compared(methods={"mine": own})
    assert sorted(row.name for row in result.rows) == ["mine", "temperature"]
    assert result["mine"].params == {"gamma": 1.0}
    assert not own.__sklearn_is_fitted__()
    assert {row.name for row in compared(methods="identity").rows} == set(CHEAP)


def test_the_default_is_every_method_that_needs_nothing():
    free = {name for name, cls in CALIBRATORS.items() if not required_params(cls)}
    assert set(make_calibrators()) == free
    assert "focal" not in free
    assert set(make_calibrators(gamma=2.0)) == free | {"focal"}
    assert make_calibrators(["focal"], gamma=2.0)["focal"].get_params() == {"gamma": 2.0}


def test_probabilities_are_dropped_before_the_next_method():
    made: list[weakref.ref[np.ndarray]] = []

    class Watched(TemperatureScaling):
        NAME = "watched"

        def _fit(self, data):
            assert all(probs() is None for probs in made)
            return super()._fit(data)

        def _probs(self, logits, state):
            out = super()._probs(logits, state)
            made.append(weakref.ref(out))
            return out

    result = compared(methods={f"watched-{number}": Watched() for number in range(3)})
    assert [row.failure for row in result.rows] == [None] * 4
    assert len(made) == 3


def test_progress_hears_of_every_method_before_it_is_fitted():
    heard: list[str] = []
    compared(progress=heard.append)
    assert heard == ["temperature", "identity"]  # the reference first


def test_json_holds_everything_and_no_infinity():
    methods = {"refusing": Refusing(), "impossible": Impossible(), **make_calibrators(CHEAP)}
    result = compared(methods=methods, sort="nll")
    assert [row.name for row in result.rows[2:]] == ["impossible", "refusing"]
    data = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert list(data["methods"]) == [row.name for row in result.rows]
    entry = data["methods"]["identity"]
    for metric in ("ada_ece", "ece", "nll", "brier", "error_rate", "accuracy"):
        assert entry["metrics"][metric]["low"] < entry["metrics"][metric]["high"]
    assert entry["metrics"]["accuracy"]["value"] == pytest.approx(
        1.0 - entry["metrics"]["error_rate"]["value"]
    )
    assert entry["differences"]["nll"]["verdict"] == "worse"
    assert entry["noise_floor"]["ada_ece"]["expected"] > 0.0
    assert entry["fit"]["n_samples"] == len(VAL)
    assert entry["fit_seconds"] >= 0.0
    impossible = data["methods"]["impossible"]
    assert impossible["metrics"]["nll"] == {"value": None, "low": None, "high": None}
    assert impossible["n_impossible"] == (TEST_LABELS != 0).sum()
    assert math.isinf(result["impossible"]["nll"].value)
    assert "get probability 0 for their true class" in " ".join(str(result).split())


def test_log_probabilities_are_used_where_probabilities_would_round_to_zero():
    result = compare(VAL, VAL_LABELS, 1e4 * TEST, TEST_LABELS, methods=["identity"], n_resamples=20)
    top = TEST.max(axis=1)
    expected = 1e4 * (top - TEST[np.arange(len(TEST)), TEST_LABELS]).mean()
    assert result["identity"]["nll"].value == pytest.approx(expected, rel=1e-9)


def test_tensors_and_further_axes_will_do(result):
    shaped = compare(
        torch.tensor(VAL).reshape(3, 500, 4),
        torch.tensor(VAL_LABELS).reshape(3, 500),
        torch.tensor(TEST),
        TEST_LABELS.tolist(),
        methods=CHEAP,
        n_resamples=200,
    )
    for row in result.rows:
        assert shaped[row.name]["nll"] == row["nll"]


def test_probabilities_in_place_of_logits(result):
    val, test = (np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in (VAL, TEST))
    options = {"methods": CHEAP, "n_resamples": 20}
    same = compare(
        val_probs=val,
        val_labels=VAL_LABELS,
        test_probs=test,
        test_labels=TEST_LABELS,
        **options,
    )
    for row in result.rows:
        assert same[row.name]["nll"].value == pytest.approx(row["nll"].value, rel=1e-4)
    test[0] = [1.0, 0.0, 0.0, 0.0]
    noted = compare(
        val_probs=val,
        val_labels=VAL_LABELS,
        test_probs=test,
        test_labels=TEST_LABELS,
        **options,
    )
    assert any("were raised to it" in note for note in noted.notes)
    assert math.isfinite(noted["identity"]["nll"].value)


def test_measuring_on_what_was_fitted_on_is_said():
    result = compare(VAL, VAL_LABELS, VAL, VAL_LABELS, methods=CHEAP, n_resamples=20)
    assert "very samples they were fitted on" in " ".join(str(result).split())


def test_the_work_of_all_methods_together_is_bounded(monkeypatch):
    monkeypatch.setattr(intervals, "MOST_DRAWS", 150 * len(TEST) * 4)
    methods = {f"method-{number}": Identity() for number in range(3)}
    assert compared(methods=methods, n_resamples=1000).n_resamples == 150
    assert compared(methods=methods, n_resamples=120).n_resamples == 120


@functools.cache
def two_classes(shift: float, **options) -> MethodComparison:
    """8% of class 1, and log-odds that are ``shift`` too high."""
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=4000) - 4.0
    labels = (rng.random(4000) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    logits = np.stack([np.zeros(4000), x + shift], axis=1)
    rows = slice(0, 2000), slice(2000, 4000)
    arrays = (each[part] for part in rows for each in (logits, labels))
    return compare(*arrays, methods=["identity", "temperature", "auto"], **options)


def test_two_classes_are_one_probability():
    result = two_classes(3.0)
    assert (result.sort, result.rows[0].name) == ("positive_ada_ece", "auto")
    for row in result.rows:
        assert row["positive_ece"].low is not None
        assert row.noise_floor.name == "positive_ada_ece"
    assert result["identity"].evaluation.side == "prevalence off"
    assert abs(result["auto"]["prevalence_gap"].value) < 0.01 < result["identity"][
        "prevalence_gap"].value  # fmt: skip
    assert result.calibrated() == ("auto",)
    text = str(result)
    assert "As it is (identity): Prevalence off" in text
    assert "floor: the positive_ada_ece that" in text
    assert max(map(len, text.splitlines())) <= 120
    with pytest.raises(ValueError, match="sort must be one of"):
        compared(sort="positive_ece")


def test_the_recommendation_says_what_it_gains_and_costs():
    found = two_classes(3.0).recommendation
    assert (found.after.name, found.advice, found.trusted) == ("auto", "calibrate", False)
    wrong = found.differences["error_rate"]
    assert wrong.high < 0.0
    assert f"It changes {found.after.changed} of 2000 predictions" in found.cost
    assert f"interval of the change: {-100 * wrong.high:+.1f} to" in found.cost
    assert "--keep-class" in str(found)
    assert json.loads(two_classes(3.0).to_json())["recommendation"]["method"] == "auto"


def test_what_is_calibrated_is_left_as_it_is():
    found = two_classes(0.0).recommendation
    assert found.trusted
    assert "Leave it as it is." in str(found)


def test_a_method_that_gains_nothing_gives_way_to_one_that_does():
    """A temperature cannot mend a class that is said too often; biases can."""
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(3000, 3))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    shifted = truth + np.array([0.7, 0.0, 0.0])
    arrays = shifted[:1500], labels[:1500], shifted[1500:], labels[1500:]
    result = compare(*arrays, methods=["identity", "temperature", "vector"])
    found = result.recommendation
    assert (found.after.name, found.advice, found.rival) == ("vector", "calibrate", None)
    assert found.verdict.classes_off[0].class_index == 0
    assert "class 0 (mean probability" in " ".join(str(result).split())
    assert (
        found.after.changed
        == (found.after.calibrator.predict(arrays[2]) != arrays[2].argmax(axis=1)).sum()
    )


def test_no_recommendation_without_the_model_as_it_is():
    assert compared(methods=["temperature"]).recommendation is None
    assert compared(methods=["identity"], against="identity").recommendation is None


def test_a_notebook_gets_a_table(result):
    page = result._repr_html_()
    assert page.count("<tr>") == 2 + len(result.rows)
    assert "+ better" in page
    assert "<x>" not in compared(methods={"<x>": Identity()})._repr_html_()


def test_the_text_is_at_most_a_hundred_columns_wide():
    long = {"bias-corrected-temperature": Identity(), "refusing": Refusing(), "t": Poisoned()}
    result = compared(methods=long)
    for metric in ("ada_ece", "nll", "accuracy"):
        assert max(map(len, str(result.sorted_by(metric)).splitlines())) <= 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sort": "mce"}, "sort must be one of ada_ece"),
        ({"methods": ["temprature"]}, "Did you mean 'temperature'"),
        ({"methods": ["focal"]}, "focal needs gamma"),
        ({"methods": None, "gamma": math.nan}, "gamma must be finite"),
        ({"methods": {"x": TemperatureScaling}}, "must be a Calibrator"),
        ({"against": "x"}, "against must be one of"),
        ({"level": 95}, "For 95% pass 0.95"),
        ({"n_bins": 0}, "n_bins must be from 1"),
        ({"n_resamples": 2}, "n_resamples must be from 20"),
        ({"random_state": -1}, "random_state must be from 0"),
        ({"metrics": ["calibration_slope"]}, "P(class 1) of two classes; found"),
        ({"val_logits": np.full((1500, 4), np.nan)}, "NaN in row 0"),
        ({"val_logits": np.where(np.eye(4)[VAL_LABELS] > 0, -np.inf, VAL)}, "must be possible"),
        ({"val_labels": VAL_LABELS[:-1]}, "one entry per row"),
        ({"val_labels": VAL_LABELS + 4}, "labels must be between 0 and 3"),
        ({"val_labels": None}, "labels are needed"),
        ({"test_logits": TEST[:0], "test_labels": TEST_LABELS[:0]}, "at least one sample"),
        ({"test_logits": np.pad(TEST, ((0, 0), (0, 1)))}, "found 4 and 5"),
        ({"test_logits": None}, "exactly one of logits or probs"),
        ({"test_logits": None, "test_probs": np.full((1500, 4), 0.25)}, "logits and probs"),
    ],
)
def test_bad_input_is_refused_before_anything_is_fitted(change, message):
    arguments = {
        "val_logits": VAL,
        "val_labels": VAL_LABELS,
        "test_logits": TEST,
        "test_labels": TEST_LABELS,
        "methods": {"temperature": Refusing()},
        **change,
    }
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        compare(**arguments, progress=pytest.fail)


def test_an_unknown_method_of_a_result_is_named(result):
    with pytest.raises(KeyError, match="there are temperature, identity"):
        result["vector"]


@given(
    n=st.integers(1, 20),
    n_classes=st.integers(2, 5),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1e4, 1e30]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    seed=st.integers(0, 99),
)
def test_small_and_strange_samples_give_numbers_or_a_reason(n, n_classes, scale, dtype, seed):
    rng = np.random.default_rng(seed)
    largest = float(np.finfo(dtype).max) / 4
    logits = np.clip(scale * rng.standard_normal((2, n, n_classes)), -largest, largest)
    labels = rng.integers(0, n_classes, (2, n))
    val, test = logits.astype(dtype)
    result = compare(val, labels[0], test, labels[1], methods=["identity"], n_resamples=20)
    for row in result.rows:
        assert row.failure is None
        for metric in ("ada_ece", "ece", "nll", "brier", "accuracy"):
            measured = row[metric]
            assert math.isfinite(measured.value)
            assert (measured.low is None) == (measured.high is None)
    assert str(result)
    json.loads(result.to_json(), parse_constant=pytest.fail)


def test_a_real_network_is_over_confident_and_one_temperature_mends_most_of_it(shared_data):
    net = np.load(shared_data / "logits" / "c10_resnet20.npz")
    parts = (net[f"{part}_{what}"] for part in ("val", "test") for what in ("logits", "labels"))
    result = compare(*parts, methods=CHEAP)
    assert result.rows[0].name == "temperature"
    assert result["identity"].verdict("ada_ece") == result["identity"].verdict("nll") == "worse"
    assert result["identity"].verdict("accuracy") == "not distinguishable"
    assert result["temperature"]["ada_ece"].value < 0.015 < result["identity"]["ada_ece"].value


def test_slow_methods_are_left_out_of_many_samples():
    assert too_slow(CALIBRATORS, 10_000, 100) == {}
    slow = NANOSECONDS.keys() | NANOSECONDS_PER_CLASS.keys()
    assert too_slow(CALIBRATORS, 50_000, 1000).keys() == slow - {"bias-corrected-temperature"}
    assert slow < CALIBRATORS.keys()
    assert "matrix" in too_slow(CALIBRATORS, 5, 2000)  # a parameter for each pair


def test_methods_left_out_say_so_unless_they_are_requested(monkeypatch):
    monkeypatch.setattr("calibrant.calibrators.comparison.duration.PATIENCE", 0.0)
    few = {name: CALIBRATORS[name] for name in ("identity", "temperature", "platt")}
    with patch.dict(CALIBRATORS, few, clear=True):
        result = compared(methods=None)
        assert "left out: its fit would take about" in str(result)
        assert result["platt"].evaluation is None
        assert result["temperature"].evaluation is not None
    assert compared(methods=["platt"])["platt"].evaluation is not None
