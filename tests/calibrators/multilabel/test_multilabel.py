"""Multi-label calibration: what it finds, what it keeps, and what it refuses."""

from __future__ import annotations

import runpy
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from mpmath import diff, log, mp, mpf

import calibrant
from calibrant import MultiLabelCalibration
from calibrant.calibrators import CalibrationWarning
from calibrant.calibrators.export import export
from calibrant.calibrators.multilabel.shrinkage import fit_label_terms
from calibrant.errors import CalibrantError

RNG = np.random.default_rng(0)


def draw(n, n_labels, *, spread=0.0, seed=0):
    """Over-confident logits; with ``spread``, the shift of each label is another one."""
    rng = np.random.default_rng(seed)
    shift = spread * rng.normal(size=n_labels)
    truth = rng.normal(-2.0, 2.0, size=(n, n_labels))
    labels = (rng.random(truth.shape) < sigmoid(truth)).astype(int)
    return 2.0 * (truth - shift), labels, truth


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def nll(probs, labels):
    return -np.log(np.where(labels == 1, probs, 1.0 - probs)).mean()


def quiet_fit(calibration, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibration.fit(*arguments, **options)


# --- the focal map of sigmoid outputs ---


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("logit", [-12.0, -3.0, -0.5, 0.25, 2.0, 9.0])
def test_focal_curve_inverts_the_optimum_of_the_sigmoid_focal_loss(gamma, logit):
    """Proposition 2: q minimises the expected loss if P(positive) is the result."""
    with mp.workdps(40):
        q = 1 / (1 + mp.exp(-mpf(logit)))
        of_positive = diff(lambda x: -((1 - x) ** gamma) * log(x), q)
        of_negative = diff(lambda x: -(x**gamma) * log(1 - x), q)
        expected = float(of_negative / (of_negative - of_positive))
    labels = np.array([[1], [0]])
    focal = MultiLabelCalibration(curve="focal", gamma=gamma, per_label=False)
    found = quiet_fit(focal, np.array([[1.0], [-1.0]]), labels).predict_proba([[logit]])
    np.testing.assert_allclose(found, [[expected]], rtol=1e-9, atol=3e-16)


@given(st.floats(0.01, 9.0), st.floats(-20.0, 20.0))
def test_focal_curve_lies_between_two_temperatures(gamma, logit):
    """Proposition 3, in its correct form."""
    focal = MultiLabelCalibration(curve="focal", gamma=gamma, per_label=False)
    (p,) = quiet_fit(focal, [[1.0], [-1.0]], [[1], [0]]).predict_proba([[logit]])[0]
    least, most = gamma + 1.0 - np.log(gamma + 1.0) / 2.0, gamma + 1.0
    low, high = sorted(sigmoid(np.array([least, most]) * logit))
    assert low * (1 - 1e-9) - 3e-16 <= p <= high * (1 + 1e-9) + 3e-16


def test_focal_temperature_finds_gamma_and_temperature_of_all_labels():
    from calibrant.focal import focal_log_probs

    logits = RNG.normal(-1.0, 3.0, size=(4000, 3))
    both = np.stack([np.zeros_like(logits), logits], axis=-1)
    truth = np.exp(focal_log_probs(both, gamma=1.0, temperature=2.0))[..., 1]
    labels = RNG.random(truth.shape) < truth
    found = MultiLabelCalibration(curve="focal-temperature", per_label=False).fit(logits, labels)
    assert np.abs(found.predict_proba(logits) - truth).max() < 0.03


# --- shrinkage ---


def test_terms_are_the_most_probable_under_the_prior():
    from scipy.optimize import minimize

    x = RNG.normal(-1.0, 2.0, size=(6, 300))
    positives = RNG.random(x.shape) < sigmoid(x + RNG.normal(size=(6, 1)))
    found = fit_label_terms(x, positives, np.ones(300))
    precision = np.linalg.inv(found.prior.covariance)
    for label in range(6):

        def criterion(terms, label=label):
            z = terms[0] * x[label] + terms[1]
            away = terms - found.prior.mean
            loss = np.logaddexp(0.0, np.where(positives[label], -z, z)).sum()
            return loss + away @ precision @ away / 2.0

        best = minimize(criterion, [1.0, 0.0], tol=1e-12).x
        np.testing.assert_allclose([found.slope[label], found.shift[label]], best, atol=2e-3)


def test_prior_is_that_of_the_labels():
    """A thousand samples of each of 200 labels tell mean and covariance."""
    covariance = np.array([[0.04, 0.05], [0.05, 0.25]])
    terms = RNG.multivariate_normal([1.2, -0.5], covariance, size=200)
    x = RNG.normal(0.0, 2.0, size=(200, 1000))
    positives = RNG.random(x.shape) < sigmoid(terms[:, :1] * x + terms[:, 1:])
    prior = fit_label_terms(x, positives, np.ones(1000)).prior
    np.testing.assert_allclose(prior.mean, [1.2, -0.5], atol=0.1)
    np.testing.assert_allclose(prior.covariance, covariance, atol=0.06)


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_never_far_behind_one_map_for_all_or_one_for_each(spread):
    """Equal labels are pooled, different ones kept apart, and in between it beats both."""
    logits, labels, _ = draw(200, 20, spread=spread)
    test, truth, _ = draw(4000, 20, spread=spread)
    shared = MultiLabelCalibration(curve="platt", per_label=False)
    together = nll(quiet_fit(shared, logits, labels).predict_proba(test), truth)
    apart = np.hstack(
        [
            quiet_fit(shared, logits[:, [i]], labels[:, [i]]).predict_proba(test[:, [i]])
            for i in range(20)
        ]
    )
    found = MultiLabelCalibration(curve="platt").fit(logits, labels)
    loss = nll(found.predict_proba(test), truth)
    assert loss <= min(together, nll(apart, truth)) * 1.01
    if spread == 0.3:
        assert loss < min(together, nll(apart, truth))


def test_a_label_without_positives_follows_the_others():
    logits, labels, _ = draw(2000, 8)
    labels[:, 3] = 0
    logits[:, 3] -= 12.0  # the model hardly expects it
    with pytest.warns(CalibrationWarning, match="1 of 8 labels have no positive sample"):
        found = MultiLabelCalibration(curve="platt").fit(logits, labels)
    shared = quiet_fit(MultiLabelCalibration(curve="platt", per_label=False), logits, labels)
    here, there = (each.predict_proba(logits)[:, 3] for each in (found, shared))
    assert (here < there).all()  # a little lower: one or two were expected
    assert (here > there / 3).all()


def test_weights_count_samples():
    logits, labels, _ = draw(300, 3)
    weight = RNG.integers(0, 3, 300)
    found = MultiLabelCalibration().fit(logits, labels, weight)
    repeated = MultiLabelCalibration().fit(logits.repeat(weight, 0), labels.repeat(weight, 0))
    np.testing.assert_allclose(found.slope_, repeated.slope_, atol=1e-4)
    np.testing.assert_allclose(found.shift_, repeated.shift_, atol=1e-4)


# --- properties ---


@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from(["platt", "beta", "spline", "temperature", "isotonic"]),
    st.integers(0, 2**32 - 1),
)
def test_any_sample_gives_probabilities_that_keep_the_order(n_labels, n, curve, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_labels)) * 10.0 ** rng.uniform(-3, 3)
    labels = rng.integers(0, 2, size=logits.shape) * rng.integers(0, 2, size=n_labels)
    found = quiet_fit(MultiLabelCalibration(curve=curve), logits, labels)
    probs = found.predict_proba(logits)
    assert np.isfinite(probs).all()
    assert ((probs >= 0.0) & (probs <= 1.0)).all()
    order = np.argsort(logits, axis=0)
    assert (np.diff(np.take_along_axis(probs, order, axis=0), axis=0) >= -1e-12).all()
    np.testing.assert_allclose(np.exp(found.predict_log_proba(logits)), probs, rtol=1e-9)
    np.testing.assert_array_equal(found.predict(logits=logits), probs > 0.5)


def test_labels_may_be_permuted():
    logits, labels, _ = draw(400, 5, spread=0.5)
    order = np.array([3, 0, 4, 1, 2])
    found = MultiLabelCalibration().fit(logits, labels)
    permuted = MultiLabelCalibration().fit(logits[:, order], labels[:, order])
    np.testing.assert_allclose(permuted.slope_, found.slope_[order], rtol=1e-6)


def test_probs_and_logits_agree():
    logits, labels, _ = draw(400, 5)
    logits = logits.clip(-10, 10)
    probs = sigmoid(logits)
    from_logits = MultiLabelCalibration().fit(logits, labels)
    from_probs = MultiLabelCalibration().fit(probs=probs, labels=labels.astype(bool))
    np.testing.assert_allclose(
        from_probs.predict_proba(probs=probs), from_logits.predict_proba(logits), rtol=1e-6
    )


def test_certain_probabilities_are_calibrated():
    probs = np.tile([0.0, 1.0], 100)[:, np.newaxis]
    labels = (np.arange(200) % 10 < 5)[:, np.newaxis]
    found = MultiLabelCalibration(curve="platt").fit(probs=probs, labels=labels)
    assert np.abs(found.predict_proba(probs=probs) - 0.5).max() < 0.1


# --- files, torch, export ---


@pytest.fixture(scope="module")
def fitted():
    logits, labels, _ = draw(500, 6, spread=0.4)
    return MultiLabelCalibration().fit(logits, labels)


@pytest.mark.parametrize(
    "options",
    [{}, {"curve": "auto"}, {"curve": "focal", "gamma": 2.0}, {"per_label": False}],
    ids=str,
)
@pytest.mark.parametrize("n_labels", [1, 4])
def test_saved_and_exported_calibrators_agree(tmp_path, options, n_labels):
    logits, labels, _ = draw(300, n_labels, spread=0.4)
    found = quiet_fit(MultiLabelCalibration(**options), logits, labels)
    probs = found.predict_proba(logits)
    found.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    assert repr(loaded) == repr(found)
    assert loaded.report_ == found.report_
    np.testing.assert_array_equal(loaded.predict_proba(logits), probs)
    export(found, tmp_path / "cal.py")
    exported = runpy.run_path(str(tmp_path / "cal.py"))["predict_proba"]
    np.testing.assert_allclose(exported(logits), probs, atol=1e-12)
    with pytest.raises(ValueError, match="labels on the last axis"):
        exported(np.zeros((2, n_labels + 1)))


@pytest.mark.slow
def test_torch_layer_and_program(tmp_path, fitted):
    import torch

    logits = RNG.normal(-2.0, 5.0, size=(20, 6)).astype(np.float32)
    probs = fitted.predict_proba(logits)
    layer = fitted.as_module().half()
    given = torch.tensor(logits)
    np.testing.assert_allclose(torch.sigmoid(layer(given)).numpy(), probs, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(given).numpy(), probs, atol=1e-6)
    export(fitted, tmp_path / "cal.pt2")
    program = torch.export.load(tmp_path / "cal.pt2").module()
    np.testing.assert_allclose(program(given).numpy(), probs, atol=1e-6)


@pytest.mark.slow  # translating takes seconds, as for the other methods in ``test_export.py``
def test_onnx_model(tmp_path, fitted):
    import onnxruntime

    logits = RNG.normal(-2.0, 5.0, size=(20, 6)).astype(np.float32)
    export(fitted, tmp_path / "cal.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "cal.onnx")
    found = session.run(["probs"], {"logits": logits})[0]
    np.testing.assert_allclose(found, fitted.predict_proba(logits), atol=1e-6)


def test_damaged_files_are_refused(tmp_path, fitted):
    import json

    fitted.save(tmp_path / "cal.json")
    content = json.loads((tmp_path / "cal.json").read_text())
    (part,) = content["parts"]
    state = {"slope": [1.0, 1.0], "shift": [0.0, 0.0]}
    two = {"method": "multi-label", "params": {}, "state": state}
    for change, message in (
        ({"parts": []}, "cannot have 0 parts"),
        ({"parts": [{**part, **two}]}, "made of parts"),
        ({"state": {**content["state"], "slope": [-1.0] * 6}}, "below 0"),
        ({"state": {**content["state"], "shift": [1.0]}}, "shape"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(CalibrantError, match=message):
            calibrant.load(tmp_path / "bad.json")


# --- refusals ---

LOGITS, LABELS, _ = draw(50, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"logits": LOGITS, "labels": LABELS[:, 0]}, r"shape of logits, \(50, 3\).*\(50,\)"),
        ({"logits": LOGITS, "labels": LABELS + 1}, "labels must be 0 or 1; found 2"),
        ({"logits": LOGITS, "labels": np.where(LABELS == 1, np.nan, 0.0)}, "0 or 1; found nan"),
        ({"logits": LOGITS, "labels": None}, "labels are needed"),
        ({"logits": LOGITS * np.nan, "labels": LABELS}, "must be finite; found nan"),
        ({"logits": LOGITS * np.inf, "labels": LABELS}, "must be finite; found"),
        ({"logits": LOGITS[0], "labels": LABELS[0]}, r"labels on the last axis.*\(3,\)"),
        ({"probs": LOGITS, "labels": LABELS}, "between 0 and 1"),
        ({"logits": LOGITS[:0], "labels": LABELS[:0]}, "at least one sample"),
        ({"probs": np.eye(3) * 0.7 + 0.1, "labels": np.eye(3)}, "These are classes"),
        ({"logits": LOGITS, "probs": LOGITS, "labels": LABELS}, "exactly one of logits or probs"),
        ({"logits": [["a"]], "labels": [[1]]}, "rectangular array of numbers"),
    ],
)
def test_bad_input_is_refused_in_one_line(options, message):
    with pytest.raises(CalibrantError, match=message) as caught:
        MultiLabelCalibration().fit(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curve": "nothing"}, "nothing"),
        ({"curve": 3}, "curve"),
        ({"curve": "focal"}, "focal needs gamma"),
        ({"gamma": 2.0}, "parameter of the curve focal"),
        ({"curve": "focal", "gamma": -3.0}, "gamma must be at least -1"),
        ({"per_label": 1}, "per_label"),
    ],
)
def test_bad_parameters_are_refused(options, message):
    with pytest.raises(CalibrantError, match=message):
        MultiLabelCalibration(**options).fit(LOGITS, LABELS)


def test_other_numbers_of_labels_are_refused(fitted):
    with pytest.raises(CalibrantError, match="fitted on 6"):
        fitted.predict_proba(-np.ones((2, 5)))


def test_probabilities_must_be_named(fitted):
    for call in (MultiLabelCalibration().fit, fitted.predict_proba):
        with pytest.raises(CalibrantError, match="look like probabilities"):
            call(np.full((5, 6), 0.25))


def test_classes_are_refused():
    logits, labels = RNG.normal(size=(20, 3)), RNG.integers(0, 3, 20)
    methods = {"ml": MultiLabelCalibration()}
    table = calibrant.compare(logits, labels, logits, labels, methods=methods)
    assert "needs 0 or 1" in str(table["ml"].failure)


def test_columns_of_frames_are_matched_by_name(tmp_path):
    logits, labels, _ = draw(400, 3)
    probs = sigmoid(logits)
    names = list("abc")
    p, y = pd.DataFrame(probs, columns=names), pd.DataFrame(labels, columns=names)
    expected = MultiLabelCalibration().fit(probs=probs, labels=labels)
    named = MultiLabelCalibration().fit(probs=p, labels=y[["c", "b", "a"]])
    assert named.classes_ == ("a", "b", "c")
    named.save(tmp_path / "cal.json")
    turned = p[["b", "c", "a"]].iloc[50:60]
    for calibration in (named, calibrant.load(tmp_path / "cal.json")):
        np.testing.assert_array_equal(calibration.slope_, expected.slope_)
        found = calibration.predict_proba(probs=turned)
        assert list(found.columns) == ["b", "c", "a"]
        assert found.index.equals(turned.index)
        np.testing.assert_array_equal(found[names], expected.predict_proba(probs=probs)[50:60])
        assert calibration.predict(probs=turned).equals((found > 0.5).astype(np.int64))
        logs = calibration.predict_log_proba(probs=turned)
        np.testing.assert_allclose(np.exp(logs), found, rtol=1e-12)
    with pytest.raises(CalibrantError, match="the columns must be the classes 'a', 'b', 'c'"):
        named.predict_proba(probs=p.rename(columns={"c": "d"}))
    with pytest.raises(CalibrantError, match="sample_weight must have the row index of the scores"):
        MultiLabelCalibration().fit(
            probs=p, labels=y, sample_weight=pd.Series(1.0, index=y.index[::-1])
        )
