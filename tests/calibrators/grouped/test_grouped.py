"""Grouped calibration: what it finds, how far it shrinks, and what it refuses."""

from __future__ import annotations

import json
import runpy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

import calibrant
from calibrant import GroupedCalibration
from calibrant.calibrators.export import export
from calibrant.calibrators.grouped.shrinkage import fit_group_terms
from calibrant.errors import CalibrantError

BIASES = {"a": [0.0, 0.0, 0.0], "b": [1.5, 0.0, 0.0], "c": [0.0, -1.0, 1.0]}


def draw(n=6000, seed=0, *, differ=True):
    """Logits of three classes, twice too large, with other frequencies in each group."""
    rng = np.random.default_rng(seed)
    truth, group = 1.5 * rng.normal(size=(n, 3)), rng.choice(["a", "b", "c"], n)
    bias = np.array([BIASES[each] for each in group]) * differ
    labels = (truth + bias + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return 2.0 * truth, labels, group


@pytest.fixture(scope="module")
def fitted():
    logits, labels, group = draw()
    return GroupedCalibration(base="temperature").fit(logits, labels, groups={"g": group})


def test_groups_that_differ_get_their_own_map(fitted):
    logits, labels, group = draw(seed=1)
    common = calibrant.TemperatureScaling().fit(*draw()[:2]).predict_proba(logits)
    grouped = fitted.predict_proba(logits, groups=group)
    assert calibrant.nll(grouped, labels) < calibrant.nll(common, labels) - 0.05
    differences = fitted.bias_ - fitted.bias_[0]
    expected = np.array(list(BIASES.values()))
    centred = differences - differences.mean(axis=1, keepdims=True)
    assert centred == pytest.approx(expected - expected.mean(axis=1, keepdims=True), abs=0.3)


def test_groups_that_do_not_differ_share_one_map():
    logits, labels, group = draw(differ=False)
    found = GroupedCalibration(base="temperature").fit(logits, labels, groups=group)
    assert np.abs(found.bias_).max() < 0.15
    assert found.inverse_temperature_ == pytest.approx(1.0, abs=0.1)


def test_a_group_with_few_samples_stays_with_the_others():
    logits, labels, group = draw()
    few = np.append(group[:-3].astype(object), ["x"] * 3)
    labels[-3:] = 2
    found = GroupedCalibration(base="temperature").fit(logits, labels, groups=few)
    x = found.bias_[found.group_keys_.index(("x",))]
    free = 5.0  # three samples of one class alone would ask for an infinite bias
    assert 0.0 < x[2] - x[:2].mean() < free


def test_another_column_is_refused(fitted):
    logits, _, group = draw(10)
    expected = fitted.predict_proba(logits, groups={"g": group})
    np.testing.assert_array_equal(fitted.predict_proba(logits, groups=group), expected)
    with pytest.raises(CalibrantError, match="there is no column 'g' to group by; found 'other'"):
        fitted.predict_proba(logits, groups={"other": group})


def test_unseen_groups_get_the_common_map(fitted):
    logits, _, _ = draw(20, seed=2)
    common = calibrant.TemperatureScaling().fit(*draw()[:2])
    found = fitted.predict_proba(logits, groups=["new"] * 20)
    assert found == pytest.approx(common.predict_proba(logits), abs=1e-12)


def test_the_terms_are_the_minimum_under_their_variances():
    logits, labels, group = draw(900, seed=3)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = [np.flatnonzero(group == name) for name in "abc"]
    found = fit_group_terms(log_probs, labels, np.ones(900), rows)
    s2, t2 = found.variances

    def loss(terms):
        z = terms[0] * log_probs[rows[1]] + terms[1:]
        own = z[np.arange(len(z)), labels[rows[1]]]
        nll = (np.log(np.exp(z).sum(axis=1)) - own).sum()
        return nll + (terms[0] - 1.0) ** 2 / (2 * s2) + (terms[1:] ** 2).sum() / (2 * t2)

    best = minimize(loss, np.array([1.0, 0.0, 0.0, 0.0]), tol=1e-10)
    assert found.inverse_temperature[1] == pytest.approx(best.x[0], abs=2e-3)
    assert found.bias[1] == pytest.approx(best.x[1:], abs=2e-3)


def test_saved_and_loaded_it_is_the_same(fitted, tmp_path):
    logits, _, group = draw(50, seed=4)
    fitted.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    assert loaded.group_columns_ == ("g",)
    expected = fitted.predict_proba(logits, groups=group)
    assert np.array_equal(loaded.predict_proba(logits, groups=group), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("groups"),
        lambda content: content["groups"].update(values=[["a"]]),
        lambda content: content["groups"].update(columns=["g", "h"]),
        lambda content: content["groups"].update(values=[["a"], [1], ["c"]]),
        lambda content: content["state"].update(inverse_temperature=[1.0, -1.0, 1.0]),
    ],
)
def test_a_damaged_file_is_refused(fitted, tmp_path, change):
    file = tmp_path / "cal.json"
    fitted.save(file)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(CalibrantError, match="cannot be read as a calibrator"):
        calibrant.load(file)


def test_exported_source_gives_the_same_probabilities(fitted, tmp_path):
    logits, _, group = draw(50, seed=5)
    group[0] = "new"
    export(fitted, tmp_path / "exported.py")
    exported = runpy.run_path(str(tmp_path / "exported.py"))["predict_proba"]
    found = exported(logits, [(each,) for each in group])
    assert found == pytest.approx(fitted.predict_proba(logits, groups=group), abs=1e-12)


def test_frames_tensors_and_one_column_keep_their_form():
    rng = np.random.default_rng(0)
    p, sex = rng.uniform(0.05, 0.95, 2000), rng.choice(["f", "m"], 2000)
    labels = (rng.random(2000) < p - 0.04 * (sex == "m")).astype(int)
    frame = pd.DataFrame({"sex": sex, "other": 1})
    found = GroupedCalibration().fit(probs=pd.Series(p), labels=labels, groups=frame[["sex"]])
    series = found.predict_proba(probs=pd.Series(p), groups=frame)
    tensor = found.predict_proba(probs=torch.tensor(p), groups=sex)
    assert isinstance(series, pd.Series)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.numpy() == pytest.approx(series.to_numpy(), abs=1e-12)
    predicted = found.predict(probs=p, groups=sex)
    assert (predicted == (series > 0.5)).mean() > 0.999


def test_whole_weights_count_as_repetitions():
    logits, labels, group = draw(600, seed=6)
    weight = np.random.default_rng(0).integers(0, 4, 600)
    weighted = GroupedCalibration(base="temperature").fit(logits, labels, weight, groups=group)
    rows = np.repeat(np.arange(600), weight)
    repeated = GroupedCalibration(base="temperature").fit(
        logits[rows], labels[rows], groups=group[rows]
    )
    assert weighted.bias_ == pytest.approx(repeated.bias_, abs=1e-4)


def test_groups_are_needed(fitted):
    logits, labels, group = draw(50)
    with pytest.raises(CalibrantError, match="needs the group of each row"):
        fitted.predict_proba(logits)
    with pytest.raises(CalibrantError, match="needs the group of each row"):
        GroupedCalibration().fit(logits, labels)
    with pytest.raises(CalibrantError, match="does not get"):
        fitted.as_module()
    two = GroupedCalibration(base="identity").fit(logits, labels, groups={"g": group, "h": group})
    with pytest.raises(CalibrantError, match="no column 'h' to group by"):
        two.predict_proba(logits, groups={"g": group})
