"""Evaluation of multi-label predictions against the metrics of two classes, and by simulation."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant
from calibrant import evaluate_multilabel
from calibrant.errors import CalibrantError
from calibrant.metrics import calibration_intercept, calibration_slope, positive_ece

RNG = np.random.default_rng(0)


def draw(n, n_labels, seed=0):
    """Calibrated probabilities, most of them small, and labels."""
    rng = np.random.default_rng(seed)
    probs = rng.beta(0.3, 6.0, size=(n, n_labels))
    return probs, (rng.random(probs.shape) < probs).astype(int)


def test_each_label_has_the_metrics_of_two_classes():
    probs, labels = draw(300, 4)
    result = evaluate_multilabel(probs, labels, label_names=["a", "b", "c", "d"])
    for i, label in enumerate(result.labels):
        both = np.stack([1 - probs[:, i], probs[:, i]], axis=1)
        assert label.name == "abcd"[i]
        assert label.n_positive == labels[:, i].sum()
        assert label.ece == pytest.approx(positive_ece(both, labels[:, i]))
        assert label.slope == pytest.approx(calibration_slope(both, labels[:, i]), abs=1e-6)
        assert label.intercept == pytest.approx(calibration_intercept(both, labels[:, i]), abs=1e-6)
    flat = np.stack([1 - probs.ravel(), probs.ravel()], axis=1)
    assert result.nll == pytest.approx(calibrant.nll(flat, labels.ravel()))
    assert result.brier == pytest.approx(calibrant.brier(flat, labels.ravel()) / 2)
    assert result.macro_ece == pytest.approx(np.mean([each.ece for each in result.labels]))


@pytest.mark.slow
def test_a_calibrated_model_is_rarely_called_off():
    """In about 5% of models any of 30 labels is, most of which have few positives."""
    called = [
        bool(evaluate_multilabel(*draw(300, 30, seed), n_simulations=200).off) for seed in range(40)
    ]
    assert sum(called) <= 6  # P(more) < 1% at a rate of 5%


def test_labels_that_are_off_are_found_and_come_first():
    probs, labels = draw(4000, 20)
    shifted = probs.copy()
    shifted[:, 7] = probs[:, 7] ** 0.6
    odds = np.log(probs[:, 3]) - np.log1p(-probs[:, 3])
    middle = np.average(odds, weights=probs[:, 3] * (1 - probs[:, 3]))
    shifted[:, 3] = 1 / (1 + np.exp(-middle - 2.5 * (odds - middle)))
    result = evaluate_multilabel(shifted, labels)
    sides = {each.name: each.side for each in result.off}
    assert sides == {"7": "prevalence off", "3": "over-confident"}
    assert {result.order[0], result.order[1]} == {3, 7}
    assert "2 of 20 labels are off" in result.verdict()
    assert result.worst_first[0].name in str(result).splitlines()[3]


def test_logits_and_probs_agree():
    probs, labels = draw(200, 3)
    logits = np.log(probs) - np.log1p(-probs)
    one = evaluate_multilabel(probs, labels)
    other = evaluate_multilabel(labels=labels, logits=logits)
    assert other.nll == pytest.approx(one.nll)
    for here, there in zip(one.labels, other.labels, strict=True):
        assert there.p_value == pytest.approx(here.p_value, abs=0.01)


def test_certain_and_wrong_is_off():
    probs, labels = np.zeros((50, 2)), np.zeros((50, 2), dtype=int)
    labels[:9, 0] = 1
    result = evaluate_multilabel(probs, labels)
    assert [each.name for each in result.off] == ["0"]
    assert result.n_impossible == 9
    assert result.nll == np.inf
    assert json.loads(result.to_json())["nll"] is None


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (7, 1)])
def test_small_samples(shape):
    probs = np.full(shape, 0.5)
    for labels in (np.zeros(shape), np.ones(shape)):
        result = evaluate_multilabel(probs, labels)
        assert len(result.labels) == shape[1]
        assert json.loads(result.to_json())["n_labels"] == shape[1]
        assert str(result).endswith(result.verdict())
        assert "<table>" in result._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": np.zeros((5, 2))}, "shape of probs"),
        ({"labels": np.full((5, 3), 2)}, "0 or 1"),
        ({"labels": [[0, 1, 0], [0]]}, "rectangular"),
        ({"label_names": ["a", "a", "b"]}, "label_names must be different; found 'a' twice"),
        ({"label_names": ["a"]}, "one name for each of the 3 labels"),
        ({"probs": np.full((5, 3), 1.5)}, "between 0 and 1"),
        ({"n_bins": 0}, "n_bins"),
    ],
)
def test_bad_input_is_refused(options, message):
    given = {"probs": np.full((5, 3), 0.5), "labels": np.zeros((5, 3))}
    with pytest.raises(CalibrantError, match=message):
        evaluate_multilabel(**{**given, **options})


LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def in_columns(frame, values, names):
    return LIBRARIES[frame]({name: values[:, i] for i, name in enumerate(names)})


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("called", [("", ""), ("prob_", "label_"), ("prob_", ""), ("y_", "y_")])
def test_columns_of_frames_are_matched_by_name(library, called):
    probs, labels = draw(300, 3)
    names = [[f"{prefix}{name}" for name in "abc"] for prefix in called]
    p = in_columns(library, probs, names[0])
    turned = in_columns(library, labels[:, [2, 0, 1]], [names[1][i] for i in (2, 0, 1)])
    found = evaluate_multilabel(p, turned)
    expected = evaluate_multilabel(
        probs, labels, label_names=[n.replace("prob_", "") for n in names[0]]
    )
    assert found == expected


def test_the_names_come_from_whichever_frame_has_them():
    probs, labels = draw(300, 3)
    named = pd.DataFrame(labels > 0, columns=list("abc"))
    for p in (probs, pd.DataFrame(probs)):
        assert [each.name for each in evaluate_multilabel(p, named).labels] == ["a", "b", "c"]
    p = pd.DataFrame(probs, columns=list("abc"))
    for y in (labels, pd.DataFrame(labels), labels.tolist()):
        assert [each.name for each in evaluate_multilabel(p, y).labels] == ["a", "b", "c"]
    numbered = pd.DataFrame(labels).iloc[:, ::-1]
    assert evaluate_multilabel(probs, numbered) == evaluate_multilabel(probs, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            lambda y: y.rename(columns={"c": "d"}),
            "those of probs, 'a', 'b', 'c'; found 'a', 'b', 'd'",
        ),
        (lambda y: y[["a", "b"]], "those of probs, 'a', 'b', 'c'; found 'a', 'b'"),
        (lambda y: y.sample(frac=1.0, random_state=0), "labels must have the row index"),
        (lambda y: pl.DataFrame(y).lazy(), "array or a frame in memory; found LazyFrame"),
    ],
)
def test_frames_that_do_not_fit_are_refused(labels, message):
    probs, y = (pd.DataFrame(each, columns=list("abc")) for each in draw(50, 3))
    with pytest.raises(CalibrantError, match=message):
        evaluate_multilabel(probs, labels(y))
