"""Prior shift against Bayes' rule, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import calibrant
from calibrant import CalibrantError, PriorShift
from calibrant.calibrators import CalibrationWarning
from tests.builders import draw_tilted

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet([1.0, 2.0, 0.5], size=200)
LABELS = np.concatenate([np.arange(3), RNG.integers(0, 3, size=197)])
TRAIN, TARGET = np.array([0.2, 0.5, 0.3]), np.array([0.7, 0.05, 0.25])


def reweighted(probs, ratio):
    """Bayes' rule, row by row."""
    classes = range(len(ratio))
    return np.array([[row[k] * ratio[k] / (row @ ratio) for k in classes] for row in probs])


def shifted(probs=PROBS, labels=LABELS, **params):
    return PriorShift(base="identity", **params).fit(probs=probs, labels=labels)


def test_known_shares_are_bayes_rule():
    found = shifted(train=TRAIN, target=TARGET).predict_proba(probs=PROBS)
    np.testing.assert_allclose(found, reweighted(PROBS, TARGET / TRAIN), rtol=1e-9)


def test_the_shares_of_the_fit_by_default():
    shares = np.bincount(LABELS) / len(LABELS)
    found = shifted(target=TARGET).predict_proba(probs=PROBS)
    np.testing.assert_allclose(found, reweighted(PROBS, TARGET / shares), rtol=1e-9)
    weight = RNG.integers(1, 4, size=len(LABELS))
    weighted = PriorShift(target=TARGET, base="identity").fit(
        probs=PROBS, labels=LABELS, sample_weight=weight
    )
    repeated = shifted(PROBS.repeat(weight, axis=0), LABELS.repeat(weight), target=TARGET)
    np.testing.assert_allclose(
        weighted.predict_proba(probs=PROBS), repeated.predict_proba(probs=PROBS), rtol=1e-9
    )


def test_class_weights_and_rates_are_undone():
    weights, rates = np.array([1.0, 2.0, 8.0]), np.array([0.1, 1.0, 3.0])
    found = shifted(target=None, weights=weights, rates=rates).predict_proba(probs=PROBS)
    np.testing.assert_allclose(found, reweighted(PROBS, 1.0 / (weights * rates)), rtol=1e-9)


def test_there_and_back_again():
    there = shifted(train=TRAIN, target=TARGET).predict_proba(probs=PROBS)
    back = shifted(there, train=TARGET, target=TRAIN).predict_proba(probs=there)
    np.testing.assert_allclose(back, PROBS, rtol=1e-9)


def test_one_number_is_the_second_of_two_classes():
    one = PROBS[:, 0]
    labels = (LABELS == 0).astype(int)
    number = PriorShift(train=0.5, target=0.1, weights=3.0, base="identity")
    lists = PriorShift(train=[0.5, 0.5], target=[0.9, 0.1], weights=[1.0, 3.0], base="identity")
    found = number.fit(probs=one, labels=labels).predict_proba(probs=one)
    np.testing.assert_array_equal(
        found, lists.fit(probs=one, labels=labels).predict_proba(probs=one)
    )
    np.testing.assert_allclose(found, one / (one + 27.0 * (1.0 - one)), rtol=1e-9)


def draw_classes(rng, n, shares):
    """Features of three normal classes, and labels."""
    labels = rng.choice(3, size=n, p=shares)
    return rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[labels], labels


def test_exact_under_label_shift_of_a_model_trained_with_weights():
    rng = np.random.default_rng(1)
    weights = np.array([4.0, 1.0, 1.0])
    old, old_labels = draw_classes(rng, 4000, TRAIN)
    new, new_labels = draw_classes(rng, 4000, TARGET)

    def model(features):  # over-confident
        return 2.0 * (1.5 * features + np.log(TRAIN * weights))

    shift = PriorShift(target=TARGET, weights=weights**2, base="temperature")
    shift.fit(model(old), old_labels)
    truth = 1.5 * new + np.log(TARGET)
    assert shift.parts_[1].temperature_ == pytest.approx(2.0, rel=0.1)
    found = calibrant.nll(shift.predict_proba(model(new)), new_labels)
    assert found == pytest.approx(calibrant.nll(logits=truth, labels=new_labels), abs=2e-3)
    # The report is about the target: it weights the old samples.
    assert shift.report_.after == pytest.approx(found, abs=0.03)
    assert shift.report_.before > shift.report_.after


@pytest.mark.parametrize("base", ["auto", "vector", "isotonic", "focal-temperature"])
@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
def test_composes_with_other_calibrators(base, tmp_path):
    logits, labels = draw_tilted(k=3)
    shift = PriorShift(train=TRAIN, target=TARGET, base=base).fit(logits, labels)
    alone = calibrant.CALIBRATORS[base]().fit(logits, labels).predict_proba(logits)
    found = shift.predict_proba(logits)
    np.testing.assert_allclose(found, reweighted(alone, TARGET / TRAIN), rtol=1e-6, atol=1e-12)
    shift.save(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        calibrant.load(tmp_path / "cal.json").predict_proba(logits), found
    )
    calibrant.export(shift, tmp_path / "cal.py")
    exported: dict = {}
    exec((tmp_path / "cal.py").read_text(), exported)
    np.testing.assert_allclose(exported["predict_proba"](logits), found, atol=1e-9)


def test_warnings_of_the_base_are_passed_on():
    labels = PROBS[:50].argmax(axis=1)  # no mistake
    with pytest.warns(CalibrationWarning, match="prior-shift: the base temperature: ") as told:
        PriorShift(target=None, base="temperature").fit(probs=PROBS[:50], labels=labels)
    assert any("fitted on 50 samples only" in str(each.message) for each in told)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"target": [0.5, 0.5]}, "target must have one number for each of the 3 classes"),
        ({"target": [0.5, 0.5, 0.0]}, "target must be above 0 and finite; found 0 in row 2"),
        ({"target": [0.5, 0.6, -0.1]}, "target must be above 0 and finite; found -0.1"),
        ({"target": [0.5, np.nan, 0.1]}, "target must be above 0 and finite; found nan"),
        ({"target": [5, 3, 2]}, "target must be shares that sum to 1; found a sum of 10"),
        ({"target": 1.0}, "target must be a share between 0 and 1; found 1"),
        ({"target": 0.1}, "target must have one number for each of the 3 classes"),
        ({"target": "much"}, "target must be a rectangular array of numbers"),
        ({"target": [[0.5, 0.5]]}, "target must have one number for each class"),
        ({"target": {"a": 1}}, "target must be"),
        ({"target": None, "train": [1.0, 0.0, 0.0]}, "train must be above 0"),
        ({"target": None, "weights": [1.0, np.inf, 1.0]}, "weights must be above 0 and finite"),
        ({"target": None, "rates": 0.1}, "rates must have one number for each class"),
        ({"target": None, "base": "prior-shift"}, "base must be another method"),
        ({"target": None, "base": "focal"}, "focal needs gamma"),
        ({"target": None, "base": "nothing"}, "base must be one of"),
        ({"target": None, "base": 3}, "base must be a str"),
    ],
)
def test_refused_in_one_line(params, message):
    with pytest.raises(CalibrantError, match=message) as refusal:
        PriorShift(**{"base": "identity", **params}).fit(probs=PROBS, labels=LABELS)
    assert "\n" not in str(refusal.value)


def test_a_class_without_samples_needs_train():
    with pytest.raises(CalibrantError, match="every class must have a sample; found none of class"):
        shifted(labels=np.zeros(200, dtype=int), target=TARGET)


def test_files_with_bad_shares_are_refused(tmp_path):
    shifted(target=TARGET).save(tmp_path / "cal.json")
    content = json.loads((tmp_path / "cal.json").read_text())
    content["params"]["target"] = [0.5, 0.5, -1]
    (tmp_path / "cal.json").write_text(json.dumps(content))
    with pytest.raises(CalibrantError, match="its params do not fit prior-shift"):
        calibrant.load(tmp_path / "cal.json")


def test_names_of_a_series_are_not_ignored():
    probs, labels = np.full((6, 3), 1.0 / 3.0), np.array([0, 1, 2, 0, 1, 2])
    shares = pd.Series({"c": 0.5, "a": 0.2, "b": 0.3})
    with pytest.raises(CalibrantError, match="names, 'c', 'a', 'b', which are not matched"):
        PriorShift(target=shares, base="identity").fit(probs=probs, labels=labels)
    plain = PriorShift(target=shares.reset_index(drop=True), base="identity")
    found = plain.fit(probs=probs, labels=labels).predict_proba(probs=probs)
    np.testing.assert_allclose(found[0], [0.5, 0.2, 0.3])
