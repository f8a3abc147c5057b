"""Decisions against every action tried out, and costs in every form."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

import calibrant
from calibrant import CalibrantError, decide
from calibrant.metrics import read_costs

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), size=300)
LABELS = (RNG.random((300, 1)) > PROBS.cumsum(axis=1)).sum(axis=1)
COSTS = np.array([[0.0, 5.0, 1.0, -2.0], [3.0, 0.0, 1.0, 7.0], [9.0, 2.0, 1.0, 0.5]])


def test_no_action_has_a_smaller_expected_cost():
    found = decide(PROBS, LABELS, costs=COSTS)
    for i, action in enumerate(found.actions):
        costs = [sum(PROBS[i, k] * COSTS[k, a] for k in range(3)) for a in range(4)]
        assert costs[action] == pytest.approx(min(costs))
    realised = [COSTS[k, a] for k, a in zip(LABELS, found.actions, strict=True)]
    assert found.realised.value == pytest.approx(np.mean(realised))
    low, high = stats.t.interval(0.95, 299, np.mean(realised), stats.sem(realised))
    assert (found.realised.low, found.realised.high) == pytest.approx((low, high))


def test_no_rule_on_calibrated_probabilities_costs_less():
    """All rules on three different probabilities, enumerated."""
    rows = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.2, 0.1, 0.7]])
    found = decide(rows, costs=COSTS)
    every = itertools.product(range(4), repeat=3)
    expected = {rule: (rows @ COSTS)[range(3), rule].mean() for rule in every}
    assert expected[tuple(found.actions.tolist())] == pytest.approx(min(expected.values()))
    assert found.expected.value == pytest.approx(min(expected.values()))


def test_expected_and_realised_cost_agree_if_calibrated():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(3), size=20_000)
    labels = (rng.random((20_000, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    found = decide(probs, labels, costs=COSTS)
    assert found.realised.low < found.expected.value < found.realised.high
    bold = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    off = decide(bold, labels, costs=COSTS, calibrated=probs)
    assert off.expected.value < off.realised.low
    better = COSTS[labels, found.actions] - COSTS[labels, off.actions]
    assert off.miscalibration.value == pytest.approx(-better.mean())
    assert off.miscalibration.low > 0.0
    # Without labels the calibrated probabilities stand for them, and no sample can gain.
    told = decide(bold, costs=COSTS, calibrated=probs)
    assert told.miscalibration.value == pytest.approx(off.miscalibration.value, rel=0.2)
    assert decide(probs, costs=COSTS, calibrated=probs).miscalibration.value == 0.0


def test_two_classes_are_a_threshold():
    p = np.linspace(0.0, 1.0, 1001)
    found = decide(p, costs={"treat": [10, 10], "wait": [0, 500]})
    np.testing.assert_array_equal(found.actions == 0, p >= 10 / 500)


def test_rejection_is_chows_rule():
    found = decide(PROBS, costs=1.0 - np.eye(3), reject=0.3)
    rejected = PROBS.max(axis=1) < 0.7
    np.testing.assert_array_equal(found.actions == 3, rejected)
    np.testing.assert_array_equal(found.actions[~rejected], PROBS[~rejected].argmax(axis=1))
    assert found.action_names == ("0", "1", "2", "reject")
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_costs_and_scores_in_every_form(tmp_path):
    expected = decide(PROBS, LABELS, costs=COSTS).to_dict()
    names, actions = np.array(["a", "b", "c"]), ["w", "x", "y", "z"]
    file = tmp_path / "costs.csv"
    shuffled = pd.DataFrame(COSTS, index=names, columns=actions).loc[["c", "a", "b"]]
    shuffled.to_csv(file, index_label="true")
    frame = pd.DataFrame(PROBS, columns=names)
    columns = {name: COSTS[:, i] for i, name in enumerate(actions)}
    for costs in (shuffled, file, str(file), read_costs(file), columns, pl.DataFrame(columns)):
        found = decide(frame, names[LABELS], costs=costs)
        assert found.action_names == tuple(actions)
        assert found.to_dict() | {"shares": expected["shares"]} == expected
    logits = torch.tensor(np.log(PROBS))
    found = decide(logits=logits, labels=torch.tensor(LABELS), costs=torch.tensor(COSTS))
    assert found.realised == decide(PROBS, LABELS, costs=COSTS).realised


def test_adding_to_all_actions_of_a_class_changes_none():
    moved = decide(PROBS, costs=COSTS + np.array([[5.0], [-3.0], [100.0]]))
    np.testing.assert_array_equal(moved.actions, decide(PROBS, costs=COSTS).actions)


def test_one_sample_has_no_interval():
    found = decide(PROBS[:1], LABELS[:1], costs=COSTS)
    assert found.expected.low is None
    assert "to" not in str(found).splitlines()[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs": COSTS[:2]}, "a row for each of the 3 classes; found 2 rows"),
        ({"costs": COSTS[0]}, "costs must be a matrix; found shape"),
        ({"costs": np.empty((3, 0))}, "costs must be a matrix"),
        ({"costs": np.where(COSTS == 0.0, np.nan, COSTS)}, "costs must be finite"),
        ({"costs": np.where(COSTS == 0.0, np.inf, COSTS)}, "costs must be finite"),
        ({"costs": {"a": [1, 2, 3], "b": [1, 2]}}, "costs must be a rectangular array"),
        ({"costs": None}, "costs must be a rectangular array"),
        ({"costs": {"a": {0: 1, 1: 2, 2: 3}}}, "costs of each action must be a list .* for 'a'"),
        ({"costs": {"a": 1, "b": 2}}, "costs of each action must be a list .* found int 1"),
        ({"costs": {"a": [[1], [2], [3]]}}, "costs of each action must be a list"),
        ({"costs": {1: [1, 2, 3], "1": [1, 2, 3]}}, "each action once; found '1' 2 times"),
        ({"costs": pd.DataFrame(COSTS, columns=list("abca"))}, "each action once; found 'a' 2"),
        ({"costs": pd.DataFrame(COSTS, index=list("aab"))}, "each class once; found 'a' 2"),
        (
            {"costs": pd.DataFrame(COSTS[:, :1], columns=["reject"]), "reject": 1},
            "each action once",
        ),
        (
            {
                "probs": np.eye(3),
                "labels": [0, 1, 2],
                "costs": np.array([[-1e308], [1e308], [0.0]]),
            },
            "finite means and intervals; found that the expected cost goes beyond",
        ),
        ({"costs": pd.DataFrame(COSTS, index=list("xyz"))}, "found none for 0"),
        ({"reject": np.nan}, "reject must be finite"),
        ({"reject": "no"}, "reject must be a number"),
        ({"calibrated": PROBS[:5]}, "must have the same shape"),
        ({"calibrated": 2.0 * PROBS}, "must sum to 1"),
        ({"labels": LABELS[:5]}, "labels must have one entry per row"),
        ({"probs": PROBS + 1.0}, "probs"),
        ({"labels": None, "classes": ["a", "a", "b"]}, "classes must be one different label"),
        ({"labels": None, "classes": ["a", "b"]}, "classes must be one different label"),
        ({"labels": None, "classes": 5}, "classes must be one different label"),
        ({"level": 2}, "level must be strictly between 0 and 1"),
    ],
)
def test_refused_in_one_line(changes, message):
    with pytest.raises(CalibrantError, match=message) as refusal:
        decide(**{"probs": PROBS, "labels": LABELS, "costs": COSTS, **changes})
    assert "\n" not in str(refusal.value)


def test_classes_may_be_an_array():
    rows = dict(zip("cab", COSTS, strict=True))
    table = pd.DataFrame.from_dict(rows, orient="index")
    found = decide(PROBS, costs=table.loc[list("abc")], classes=np.array(list("cab")))
    np.testing.assert_array_equal(found.actions, decide(PROBS, costs=COSTS).actions)


def test_a_file_of_costs_in_another_encoding(tmp_path):
    file = tmp_path / "costs.csv"
    file.write_bytes("true,séjour\nsick,1\n".encode("latin-1"))
    with pytest.raises(CalibrantError, match=r"costs must be UTF-8 text; found other bytes"):
        read_costs(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a first line of action names; found none"),
        ("true,treat\n", "every line of costs must have"),
        ("true\nsick\n", "every line of costs must have"),
        ("true,treat\nsick,1,2\n", "every line of costs must have"),
        ("true,treat\nsick,much\n", "costs must be finite numbers; found 'much'"),
        ("true,treat\nsick,nan\n", "costs must be finite numbers; found 'nan'"),
        ("true,treat\nsick,1\nsick,2\n", "costs.csv: costs must name each class once"),
        ("true,a, a\nsick,1,2\n", "costs.csv: costs must name each action once; found 'a' 2 times"),
    ],
)
def test_files_refused_in_one_line(tmp_path, text, message):
    file = tmp_path / "costs.csv"
    file.write_text(text)
    with pytest.raises(CalibrantError, match=message) as refusal:
        read_costs(file)
    assert "\n" not in str(refusal.value)


def test_a_file_of_costs_that_is_missing(tmp_path):
    file = tmp_path / "none.csv"
    for costs in (file, str(file)):
        with pytest.raises(FileNotFoundError) as refusal:
            decide(PROBS, costs=costs)
        assert str(refusal.value) == f"there is no file {file} of costs. Check the path"


@pytest.mark.parametrize("exponent", [-1050, -600, 520, 1018])
def test_costs_of_any_size(exponent):
    """A power of two changes no digit."""
    calibrated = PROBS[:, ::-1]
    plain = decide(PROBS, LABELS, costs=COSTS, reject=0.25, calibrated=calibrated)
    scaled = decide(
        PROBS,
        LABELS,
        costs=np.ldexp(COSTS, exponent),
        reject=np.ldexp(0.25, exponent),
        calibrated=calibrated,
    )
    np.testing.assert_array_equal(scaled.actions, plain.actions)
    for name in ("expected", "realised", "miscalibration"):
        for end in ("value", "low", "high"):
            expected = np.ldexp(getattr(getattr(plain, name), end), exponent)
            assert getattr(getattr(scaled, name), end) == expected


def test_the_largest_costs():
    found = decide(PROBS, LABELS, costs=[[1e308, 0], [0, 1e308], [0, 0]])
    assert 0.0 < found.expected.low < found.expected.value < found.expected.high < 1e308
    rejected = decide(PROBS, LABELS, costs=np.eye(3), reject=-1e308)
    assert (rejected.actions == 3).all()
    assert rejected.realised.value == rejected.realised.low == pytest.approx(-1e308)
    # An enormous cost of what is impossible takes no digits from the others.
    costs = np.array([[0.1, 0.7], [0.3, 0.2], [1e308, 1e308]])
    sure = np.stack([PROBS[:, 0], 1.0 - PROBS[:, 0], np.zeros(300)], axis=1)
    few = decide(sure[:, :2], costs=costs[:2])
    assert decide(sure, costs=costs).expected == few.expected


def test_the_top_level_name():
    assert calibrant.decide is decide
