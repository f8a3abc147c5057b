"""The choice of ``auto``, and what it rests on."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

import calibrant
from calibrant import AutoCalibration, TemperatureScaling, TopRestScaling
from calibrant.calibrators import CalibrationWarning, Evidence
from calibrant.calibrators.auto import keeping
from calibrant.calibrators.folds import standard_errors
from tests.reference import top_rest_slow as slow

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

NAMES = ["temperature", "top-rest, classes=False", "top-rest"]


def honest(n, k, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, k))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def shouting(n, k, seed=0, by=2.0):
    """Too sure of the predicted class; by how much may depend on it."""
    logits, labels = honest(n, k, seed)
    top = logits.argmax(axis=1)
    logits[np.arange(n), top] += np.broadcast_to(by, k)[top]
    return logits, labels


def wrong_about_a_class(n=2000, k=5, by=3.0):
    """One class is predicted far too often, which only another prediction could mend."""
    logits, labels = honest(n, k)
    logits[:, 0] += by
    return logits, labels


# --- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "factor"), [(100, 0.3), (100, 5.0), (1000, 0.3), (12_000, 1.0)])
def test_temperature_where_it_is_the_truth(n, factor):
    for seed in range(5):
        logits, labels = honest(n, 6, seed)
        assert AutoCalibration().fit(factor * logits, labels).chosen_ == "temperature"


def test_top_rest_where_it_is_not():
    for seed in range(5):
        assert AutoCalibration().fit(*shouting(4000, 6, seed)).chosen_ == "top-rest, classes=False"
        by = [2.0, 0.0, 0.0, 2.0]
        assert AutoCalibration().fit(*shouting(4000, 4, seed, by)).chosen_ == "top-rest"


@pytest.mark.parametrize(
    ("data", "chosen", "same"),
    [
        (honest(500, 4), NAMES[0], TemperatureScaling()),
        (shouting(4000, 6), NAMES[1], TopRestScaling(classes=False)),
        (shouting(4000, 4, by=[2.0, 0.0, 0.0, 2.0]), NAMES[2], TopRestScaling()),
    ],
)
def test_the_result_is_that_of_the_chosen_method(data, chosen, same):
    found = AutoCalibration(keep_class=True).fit(*data)
    assert found.chosen_ == chosen
    assert [each.method for each in found.report_.evidence] == NAMES
    assert [each.chosen for each in found.report_.evidence] == [name == chosen for name in NAMES]
    assert f"Held out: {chosen}" in str(found.report_)
    same.fit(*data)
    np.testing.assert_allclose(found.predict_proba(data[0]), same.predict_proba(data[0]), rtol=1e-9)
    assert found.report_.after == pytest.approx(same.report_.after, rel=1e-12)


def test_below_twenty_samples_nothing_is_compared():
    for n in (1, 2, 19):
        found = AutoCalibration(keep_class=True).fit(*shouting(n, 3))
        assert found.chosen_ == "temperature"
        assert len(found.report_.evidence) == 1
        assert found.report_.evidence[0].gain is None
    assert len(AutoCalibration(keep_class=True).fit(*shouting(20, 3)).report_.evidence) == 3
    logits, labels = shouting(10, 3)
    assert (
        len(AutoCalibration(keep_class=True).fit(logits, labels, np.full(10, 2.0)).report_.evidence)
        == 3
    )
    assert (
        len(AutoCalibration(keep_class=True).fit(logits, labels, np.full(10, 2.5)).report_.evidence)
        == 1
    )


def test_class_terms_that_harm_the_calibration_are_refused():
    found = AutoCalibration(keep_class=True)
    with pytest.warns(CalibrationWarning, match="class terms would lower the nll by"):
        found.fit(*wrong_about_a_class())
    temperature, _, classes = found.report_.evidence
    assert found.chosen_ == "top-rest, classes=False"
    assert classes.gain > 5 * classes.gain_error
    assert classes.ada_ece > temperature.ada_ece + 2.0 * classes.ada_ece_error


# --- methods that may change the class -----------------------------------------------------------


def accuracy(method, logits, labels):
    return (method.predict(logits=logits) == labels).mean()


def nll(method, logits, labels):
    return -method.predict_log_proba(logits=logits)[np.arange(len(labels)), labels].mean()


def test_a_model_that_is_wrong_about_a_class_is_mended():
    logits, labels = wrong_about_a_class()
    found = AutoCalibration().fit(logits=logits, labels=labels)
    kept = AutoCalibration(keep_class=True).fit(logits=logits, labels=labels)
    assert found.chosen_ == "structured, then temperature"
    assert [part.NAME for part in found.parts_] == ["structured", "top-rest"]
    fresh, truth = honest(4000, 5, seed=1)
    fresh[:, 0] += 3.0
    assert nll(found, fresh, truth) < nll(kept, fresh, truth) - 0.1
    assert accuracy(found, fresh, truth) > accuracy(kept, fresh, truth) + 0.05
    chosen = found.report_.evidence[-1]
    assert chosen.chosen
    assert chosen.changed > 0.1
    assert chosen.accuracy_gain > 2.0 * chosen.accuracy_gain_error
    assert "of the predictions, accuracy +" in str(chosen)
    assert found.report_.accuracy_after > found.report_.accuracy_before + 0.05
    np.testing.assert_array_equal(kept.predict(fresh), fresh.argmax(axis=1))


def test_the_held_out_accuracy_is_what_fresh_samples_show():
    logits, labels = wrong_about_a_class(1000)
    evidence = AutoCalibration().fit(logits=logits, labels=labels).report_.evidence[-1]
    fresh, truth = wrong_about_a_class(20_000)
    found = AutoCalibration().fit(logits=logits, labels=labels)
    gain = accuracy(found, fresh, truth) - (fresh.argmax(axis=1) == truth).mean()
    assert abs(gain - evidence.accuracy_gain) < 4.0 * evidence.accuracy_gain_error
    changed = (found.predict(fresh) != fresh.argmax(axis=1)).mean()
    assert changed == pytest.approx(evidence.changed, abs=0.05)


def test_a_calibrated_model_keeps_its_classes():
    for seed in range(10):
        found = AutoCalibration().fit(*honest(1000, 5, seed))
        kept = AutoCalibration(keep_class=True).fit(*honest(1000, 5, seed))
        if found.chosen_ == kept.chosen_:
            assert found.report_.after == kept.report_.after
    assert found.chosen_ == "temperature"


def test_many_classes_of_wrong_frequency_get_biases():
    logits, labels = honest(4000, 30)
    logits[:, 0] += 4.0
    found = AutoCalibration().fit(logits=logits, labels=labels)
    assert found.chosen_ == "bias-corrected-temperature, then temperature"
    biases = found.parts_[0].bias_
    assert biases[0] - np.median(biases) == pytest.approx(-4.0, abs=0.3)


def test_a_few_huge_gaps_do_not_decide():
    logits, labels = honest(2000, 4)
    wrong = np.flatnonzero(logits.argmax(axis=1) != labels)[:20]
    logits[wrong] *= 1e5
    found = AutoCalibration().fit(logits=logits, labels=labels)
    assert found.parts_[0].NAME == "floored-temperature"
    fresh, truth = honest(4000, 4, seed=1)
    plain = TemperatureScaling().fit(logits=logits, labels=labels)
    assert nll(found, fresh, truth) < nll(plain, fresh, truth) / 1.3


def test_few_samples_are_not_worse_than_temperature_scaling():
    gains = []
    for seed in range(40):
        logits, labels = honest(60, 4, seed)
        fresh, truth = honest(1000, 4, seed + 1000)
        plain, found = (
            m.fit(logits=logits, labels=labels) for m in (TemperatureScaling(), AutoCalibration())
        )
        gains.append(nll(plain, fresh, truth) - nll(found, fresh, truth))
    assert np.mean(gains) > -2.0 * np.std(gains) / np.sqrt(40) - 0.002


# --- what a step needs ---------------------------------------------------------------------------


def step(**changes):
    plain = {"gain": 0.02, "gain_error": 0.01, "ada_ece": 0.01, "ada_ece_error": 0.01}
    return Evidence(method="top-rest", nll=1.0, **{**plain, "moved_confidence": 0.01, **changes})


@pytest.mark.parametrize(
    ("changes", "better"),
    [
        ({}, True),
        ({"gain": 0.01}, False),
        ({"gain": -0.02}, False),
        ({"gain": 0.0, "gain_error": 0.0}, False),
        ({"gain": None, "gain_error": None}, False),
        ({"ada_ece": 0.03}, True),
        ({"ada_ece": 0.031}, False),
        ({"moved_confidence": 0.029}, True),
        ({"moved_confidence": 0.031}, False),
    ],
)
def test_what_a_step_needs(changes, better):
    temperature = step(gain=None, gain_error=None, moved_confidence=0.0)
    assert keeping.is_better(step(**changes), temperature, 1.0, before=step()) is better


@pytest.mark.parametrize(("n", "better"), [(50, False), (100, False), (101, True), (5000, True)])
def test_few_samples_must_show_more(n, better):
    """A gain of two standard errors."""
    assert keeping.is_better(step(), step(gain=None), standard_errors(n)) is better


def test_without_class_terms_the_confidence_may_be_moved():
    temperature = step(gain=None, gain_error=None, moved_confidence=0.0)
    assert keeping.is_better(step(moved_confidence=0.5), temperature, 1.0, before=temperature)


# --- the evidence --------------------------------------------------------------------------------


def ada_ece_of(confidence, right, n_bins=15):
    """Bins of as many samples each, which their number must be a multiple of."""
    gap = (confidence - right)[np.argsort(confidence)]
    return np.abs(gap.reshape(n_bins, -1).sum(axis=1)).sum() / len(gap)


@functools.cache
def cross_fitted_slowly():
    """Held-out log-loss and confidence without class terms, every fold fitted by scipy."""
    logits, labels = shouting(450, 3)
    whole = TopRestScaling(classes=False).fit(logits=logits, labels=labels)
    t, t_rest = whole.temperature_, whole.rest_temperature_
    m, _, lead = slow.features(logits, t)
    fold_of = np.empty(450, dtype=int)
    fold_of[np.argsort(lead)] = np.arange(450) % 5
    loss, confidence = np.empty(450), np.empty(450)
    for fold in range(5):
        fit, out = fold_of != fold, np.flatnonzero(fold_of == fold)
        given = logits[fit], labels[fit], t, 0.0, np.ones(fit.sum())
        top = slow.minimum(slow.top_objective, np.array([1.0] * 5 + [0.0] * 2), *given)
        state = {
            "temperature": t,
            "slopes": top[:5],
            "offset": top[5],
            "contest": top[6],
            "class_offsets": np.zeros(3),
            "rest_temperature": t_rest,
            "rest_biases": np.zeros(3),
        }
        for i in out:
            log_probs = slow.log_probs(logits[i], state)
            loss[i], confidence[i] = -log_probs[labels[i]], np.exp(float(log_probs[m[i]]))
    return logits, labels, t, loss, confidence


def test_the_evidence_is_that_of_an_independent_cross_fit():
    logits, labels, t, loss, confidence = cross_fitted_slowly()
    plain = TemperatureScaling().fit(logits=logits, labels=labels)
    assert plain.temperature_ == pytest.approx(t, rel=1e-12)
    probs, right = plain.predict_proba(logits=logits), logits.argmax(axis=1) == labels
    simple = -np.log(probs[np.arange(450), labels])
    temperature, found, _ = AutoCalibration().fit(logits=logits, labels=labels).report_.evidence

    assert temperature.nll == pytest.approx(simple.mean(), rel=1e-9)
    assert temperature.gain is None
    assert temperature.gain_error is None
    assert temperature.ada_ece == pytest.approx(ada_ece_of(probs.max(axis=1), right), abs=1e-9)

    gain = simple - loss
    assert found.nll == pytest.approx(loss.mean(), abs=1e-4)
    assert found.gain == pytest.approx(gain.mean(), abs=1e-4)
    assert found.gain_error == pytest.approx(gain.std() / np.sqrt(450), rel=1e-2)
    assert found.ada_ece == pytest.approx(ada_ece_of(confidence, right), abs=1e-3)
    spread = np.sqrt(np.mean((confidence - right) ** 2) / 450)
    assert found.ada_ece_error == pytest.approx(spread, rel=1e-3)


def same_evidence(one, other, rel=1e-5):
    for ours, theirs in zip(one.report_.evidence, other.report_.evidence, strict=True):
        assert (ours.method, ours.chosen) == (theirs.method, theirs.chosen)
        for name in ("nll", "gain", "gain_error", "ada_ece", "ada_ece_error"):
            number = getattr(theirs, name)
            expected = None if number is None else pytest.approx(number, rel=rel, abs=1e-6)
            assert getattr(ours, name) == expected


def test_the_same_samples_give_the_same_result():
    logits, labels = shouting(600, 4)
    one, other = (AutoCalibration().fit(logits=logits, labels=labels) for _ in range(2))
    assert one.report_ == other.report_
    order = np.random.default_rng(0).permutation(600)
    turned = AutoCalibration().fit(logits=logits[order], labels=labels[order])
    same_evidence(one, turned)
    same_evidence(one, AutoCalibration().fit(1e3 * logits, labels))
    np.testing.assert_allclose(
        turned.predict_proba(logits=logits), one.predict_proba(logits=logits), atol=1e-6
    )


def test_whole_weights_are_repetitions():
    logits, labels = shouting(300, 3)
    weight = np.random.default_rng(0).integers(0, 12, size=300)
    weighted = AutoCalibration().fit(logits=logits, labels=labels, sample_weight=weight)
    repeated = AutoCalibration().fit(*(np.repeat(a, weight, axis=0) for a in (logits, labels)))
    same_evidence(weighted, repeated)
    np.testing.assert_allclose(
        weighted.predict_proba(logits=logits), repeated.predict_proba(logits=logits), atol=1e-6
    )


@pytest.mark.parametrize("unit", [1 / 3, 1e-300, 1e200])
def test_the_unit_of_weights_does_not_matter(unit):
    logits, labels = shouting(300, 3)
    plain, equal = (
        AutoCalibration().fit(logits=logits, labels=labels, sample_weight=w)
        for w in (None, np.full(300, unit))
    )
    same_evidence(plain, equal)
    weight = np.random.default_rng(0).random(300) + 0.01
    one, other = (
        AutoCalibration().fit(logits=logits, labels=labels, sample_weight=w)
        for w in (weight, unit * weight)
    )
    same_evidence(one, other)


def test_one_row_that_weighs_as_much_as_many():
    logits, labels = shouting(30, 3)
    weight = np.where(np.arange(30) == 7, 1e12, 1.0)
    assert (
        len(
            AutoCalibration(keep_class=True)
            .fit(logits=logits, labels=labels, sample_weight=weight)
            .report_.evidence
        )
        == 3
    )
    assert (
        len(AutoCalibration(keep_class=True).fit(logits, labels, 0.3 * weight).report_.evidence)
        == 1
    )


# --- garbage -------------------------------------------------------------------------------------


def garbage():
    rng = np.random.default_rng(0)
    logits, labels = shouting(200, 4)
    inf = np.inf
    return {
        "nothing said": (np.zeros((200, 4)), labels),
        "no mistake": (logits, logits.argmax(axis=1)),
        "nothing but mistakes": (logits, logits.argmin(axis=1)),
        "one class only": (logits, 0 * labels),
        "only the label": (np.where(np.arange(4) == labels[:, None], logits, -inf), labels),
        "one-hot": (np.eye(4)[logits.argmax(axis=1)], labels),
        "rows of all sizes": (logits * 10.0 ** rng.integers(-250, 250, size=(200, 1)), labels),
        "single precision": (logits.astype("float32"), labels),
        "two classes": shouting(200, 2),
        "more classes than samples": shouting(25, 1000),
        "weights": (logits, labels, 10.0 ** rng.integers(-300, 300, size=200)),
    }


@pytest.mark.parametrize("keep_class", [True, False])
@pytest.mark.parametrize("name", garbage())
def test_garbage_in_probabilities_out(name, keep_class, tmp_path):
    logits, labels, weight = (*garbage()[name], None)[:3]
    found = AutoCalibration(keep_class=keep_class).fit(
        logits=logits, labels=labels, sample_weight=weight
    )
    probs = found.predict_proba(logits=logits)
    np.testing.assert_allclose(probs.sum(axis=1, dtype=float), 1.0, atol=1e-6)
    if keep_class:
        assert np.array_equal(probs.argmax(axis=1), logits.argmax(axis=1))
    assert np.isfinite(found.report_.after)
    assert found.report_.gradient is None or np.isfinite(found.report_.gradient)
    found.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    assert loaded.report_ == found.report_
    assert loaded.chosen_ == found.chosen_


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    file = tmp_path_factory.mktemp("auto") / "cal.json"
    AutoCalibration().fit(*shouting(300, 3)).save(file)
    return json.loads(file.read_text())


def test_the_evidence_is_saved_as_plain_numbers(content):
    first, second, _ = content["report"]["evidence"]
    assert first["method"] == "temperature"
    assert first["gain"] is None
    assert isinstance(second["gain"], float)
    assert isinstance(second["chosen"], bool)


def without(entry, name):
    return {key: value for key, value in entry.items() if key != name}


GOOD = {
    "method": "temperature",
    "nll": 1.0,
    "gain": None,
    "gain_error": None,
    "ada_ece": 0.1,
    "ada_ece_error": 0.1,
    "moved_confidence": 0.0,
    "changed": 0.0,
    "accuracy_gain": 0.0,
    "accuracy_gain_error": 0.0,
    "chosen": True,
}


@pytest.mark.parametrize(
    "evidence",
    [
        None,
        "temperature",
        {},
        {"0": GOOD},
        [None],
        ["temperature"],
        [[GOOD]],
        [without(GOOD, "nll")],
        [without(GOOD, "chosen")],
        [{**GOOD, "more": 1}],
        [{**GOOD, "method": 7}],
        [{**GOOD, "nll": "1.0"}],
        [{**GOOD, "nll": None}],
        [{**GOOD, "gain": True}],
        [{**GOOD, "ada_ece": [0.1]}],
        [{**GOOD, "chosen": 1}],
        [{**GOOD, "nll": 10**400}],
        [],
        [{**GOOD, "chosen": False}],
        [GOOD, GOOD],
        [{**GOOD, "no\nsuch\x1b[31mentry" * 99: 1}],
    ],
)
def test_hostile_evidence_is_refused_in_one_line(evidence, content, tmp_path):
    changed = {**content, "report": {**content["report"], "evidence": evidence}}
    (tmp_path / "cal.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="cannot be read as a calibrator") as caught:
        calibrant.load(tmp_path / "cal.json")
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 500 + len(str(tmp_path))


def test_a_report_without_evidence_is_refused(content, tmp_path):
    changed = {**content, "report": without(content["report"], "evidence")}
    (tmp_path / "cal.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="'evidence' is missing"):
        calibrant.load(tmp_path / "cal.json")
