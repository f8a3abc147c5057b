"""What every calibrator promises, whatever its method."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import warnings

import numpy as np
import pytest
import torch

import calibrant
from calibrant.calibrators import CALIBRATORS, CalibrationWarning, FitReport, NotFittedError
from calibrant.calibrators.data import PROBS_FLOOR
from tests.builders import REQUIRED, build, draw_samples

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

EVERY = sorted(CALIBRATORS)


@functools.cache
def fitted(name):
    return build(name).fit(*draw_samples())


every_method = pytest.mark.parametrize("name", EVERY)


def same_state(one, other):
    assert set(one.state_) == set(other.state_)
    for key, value in one.state_.items():
        np.testing.assert_array_equal(value, other.state_[key])


# --- parameters ----------------------------------------------------------------------------------


@every_method
def test_the_constructor_only_stores(name):
    calibrator = build(name)
    signature = inspect.signature(CALIBRATORS[name])
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY}
    params = calibrator.get_params()
    assert list(params) == list(signature.parameters)
    assert vars(calibrator) == params
    for key, parameter in signature.parameters.items():
        if key not in REQUIRED.get(name, {}):
            assert params[key] is parameter.default


@every_method
def test_parameters_make_the_same_calibrator_again(name):
    calibrator = build(name)
    again = type(calibrator)(**calibrator.get_params(deep=False))
    assert again.get_params() == calibrator.get_params()
    assert calibrator.set_params() is calibrator
    assert again.set_params(**calibrator.get_params()) is again
    assert repr(again) == repr(calibrator)


@every_method
def test_the_repr_is_the_call_that_builds_it(name):
    calibrator = build(name)
    built = eval(repr(calibrator), vars(calibrant.calibrators))
    assert type(built) is type(calibrator)
    assert built.get_params() == calibrator.get_params()
    assert repr(calibrator).startswith(f"{type(calibrator).__name__}(")


@every_method
def test_unknown_parameters_are_refused(name):
    with pytest.raises(ValueError, match=f"{CALIBRATORS[name].__name__} has no parameter"):
        build(name).set_params(no_such_parameter=1)
    with pytest.raises(TypeError, match=r"no_such_parameter|no arguments"):
        build(name, no_such_parameter=1)


def test_a_parameter_is_changed_by_name():
    calibrator = build("focal").set_params(gamma=0.5)
    assert calibrator.gamma == 0.5
    assert calibrator.get_params() == {"gamma": 0.5}


@every_method
def test_fitting_leaves_the_parameters_alone(name):
    calibrator = build(name)
    before = copy.deepcopy(calibrator.get_params())
    calibrator.fit(*draw_samples())
    assert calibrator.get_params() == before


# --- the life of a calibrator --------------------------------------------------------------------


@every_method
def test_nothing_works_before_the_fit(name, tmp_path):
    logits, _ = draw_samples(3)
    for call in (
        lambda c: c.predict_proba(logits=logits),
        lambda c: c.predict_log_proba(logits=logits),
        lambda c: c.predict(logits),
        lambda c: c.as_module(),
        lambda c: c.save(tmp_path / "a.json"),
    ):
        with pytest.raises(NotFittedError, match=r"has not been fitted\. Call fit"):
            call(build(name))
    assert not list(tmp_path.iterdir())
    assert issubclass(NotFittedError, ValueError)
    assert issubclass(NotFittedError, AttributeError)
    assert not build(name).__sklearn_is_fitted__()
    assert fitted(name).__sklearn_is_fitted__()


@every_method
def test_a_second_fit_forgets_the_first(name):
    calibrator = build(name).fit(*draw_samples(seed=1, spread=5.0))
    assert calibrator.fit(*draw_samples()) is calibrator
    same_state(calibrator, fitted(name))
    assert calibrator.report_ == fitted(name).report_


@every_method
def test_a_fit_that_fails_leaves_what_was_there(name):
    calibrator = build(name).fit(*draw_samples())
    with pytest.raises(ValueError, match="NaN"):
        calibrator.fit(np.full((5, 3), np.nan), np.zeros(5, dtype=int))
    same_state(calibrator, fitted(name))


@every_method
def test_copies_and_pickles_predict_the_same(name):
    logits, _ = draw_samples(50, seed=2)
    expected = fitted(name).predict_proba(logits=logits)
    for other in (copy.deepcopy(fitted(name)), pickle.loads(pickle.dumps(fitted(name)))):
        np.testing.assert_array_equal(other.predict_proba(logits=logits), expected)
        assert other.report_ == fitted(name).report_


@every_method
def test_inputs_are_left_alone(name):
    logits, labels = draw_samples()
    weight = np.linspace(0.0, 2.0, len(labels))
    copies = [part.copy() for part in (logits, labels, weight)]
    build(name).fit(logits=logits, labels=labels, sample_weight=weight).predict_proba(logits=logits)
    for part, before in zip((logits, labels, weight), copies, strict=True):
        np.testing.assert_array_equal(part, before)


# --- predictions ---------------------------------------------------------------------------------


@every_method
def test_predictions_are_probabilities(name):
    logits, _ = draw_samples(100, seed=3)
    probs = fitted(name).predict_proba(logits=logits)
    assert probs.shape == logits.shape
    assert ((probs >= 0) & (probs <= 1)).all()
    assert probs.sum(axis=-1) == pytest.approx(np.ones(100), abs=1e-12)
    log_probs = fitted(name).predict_log_proba(logits=logits)
    assert np.exp(log_probs) == pytest.approx(probs, abs=1e-14)
    assert (fitted(name).predict(logits) == log_probs.argmax(axis=-1)).all()


@every_method
def test_the_promise_to_keep_the_class_is_kept(name):
    logits, _ = draw_samples(1000, seed=4)
    calibrator = fitted(name)
    if calibrator.KEEPS_ARGMAX:
        assert (calibrator.predict(logits) == logits.argmax(axis=1)).all()
        assert calibrator.report_.accuracy_before == calibrator.report_.accuracy_after
    fit_logits, fit_labels = draw_samples()
    report = calibrator.report_
    assert report.accuracy_before == np.mean(fit_logits.argmax(axis=1) == fit_labels)
    assert report.accuracy_after == np.mean(calibrator.predict(fit_logits) == fit_labels)


@every_method
def test_rows_are_independent_of_each_other(name):
    logits, _ = draw_samples(64, seed=5)
    together = fitted(name).predict_proba(logits=logits)
    apart = np.concatenate([fitted(name).predict_proba(row[None]) for row in logits])
    assert together == pytest.approx(apart, rel=1e-13, abs=1e-300)


@every_method
def test_leading_axes(name, tmp_path):
    logits, labels = draw_samples()
    grid_logits, grid_labels = logits.reshape(4, 20, 5, 3), labels.reshape(4, 20, 5)
    weight = np.ones((4, 20, 5))
    calibrator = build(name).fit(logits=grid_logits, labels=grid_labels, sample_weight=weight)
    assert calibrator.report_.n_samples == 400
    probs = calibrator.predict_proba(logits=grid_logits)
    assert probs.shape == (4, 20, 5, 3)
    assert probs.reshape(-1, 3) == pytest.approx(
        fitted(name).predict_proba(logits=logits), abs=1e-9
    )
    assert calibrator.predict(grid_logits).shape == (4, 20, 5)
    assert calibrator.predict_proba(logits[0]).shape == (3,)
    assert calibrator.predict_proba(logits[:0]).shape == (0, 3)


@every_method
def test_hostile_logits_give_probabilities(name):
    rows = np.array(
        [
            [0.0, 0.0, 0.0],
            [1e4, -1e4, 0.0],
            [1e30, -1e30, 1e30],
            [-1e30, -1e30, -1e30],
            [5.0, -math.inf, 5.0],
            [-math.inf, -math.inf, 0.0],
            [1e-300, 0.0, -1e-300],
            [40.0, 3.0, 3.0],
        ]
    )
    for given in (rows, rows.astype(np.float32), np.clip(rows, -6e4, 6e4).astype(np.float16)):
        probs = fitted(name).predict_proba(logits=given)
        assert probs.dtype == (np.float64 if given.dtype == np.float64 else np.float32)
        assert np.isfinite(probs).all()
        assert probs.sum(axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-6)
        assert (probs[np.isneginf(given)] == 0).all()
        assert not np.isnan(fitted(name).predict_log_proba(logits=given)).any()


@every_method
def test_float32_predictions_are_close_to_float64(name):
    logits, _ = draw_samples(100, seed=6)
    single = logits.astype(np.float32)
    wide = fitted(name).predict_proba(single.astype(np.float64))
    assert fitted(name).predict_proba(logits=single) == pytest.approx(wide, abs=1e-5)


@every_method
def test_torch_in_torch_out(name):
    logits, labels = draw_samples()
    calibrator = build(name).fit(torch.from_numpy(logits), torch.from_numpy(labels))
    probs = calibrator.predict_proba(torch.from_numpy(logits))
    assert isinstance(probs, torch.Tensor)
    assert probs.dtype == torch.float64
    assert probs.numpy() == pytest.approx(fitted(name).predict_proba(logits=logits), abs=1e-9)
    assert isinstance(calibrator.predict(torch.from_numpy(logits)), torch.Tensor)
    single = calibrator.predict_proba(torch.from_numpy(logits).float())
    assert single.dtype == torch.float32


# --- samples -------------------------------------------------------------------------------------


@every_method
def test_rows_of_weight_zero_are_absent(name):
    logits, labels = draw_samples()
    rng = np.random.default_rng(8)
    strange = np.concatenate([logits, 50.0 * rng.normal(size=(30, 3))])
    strange[400:, 1] = -math.inf
    strange_labels = np.concatenate([labels, np.ones(30, dtype=int)])
    weight = np.concatenate([np.ones(400), np.zeros(30)])
    found = build(name).fit(logits=strange, labels=strange_labels, sample_weight=weight)
    assert found.report_.n_samples == 400
    probe = draw_samples(40, seed=9)[0]
    assert found.predict_proba(logits=probe) == pytest.approx(
        fitted(name).predict_proba(logits=probe), abs=1e-9
    )


@every_method
def test_whole_weights_are_repetitions(name):
    logits, labels = draw_samples()
    weight = np.random.default_rng(10).integers(0, 4, size=400)
    one = build(name).fit(logits=logits, labels=labels, sample_weight=weight)
    other = build(name).fit(np.repeat(logits, weight, axis=0), np.repeat(labels, weight))
    probe = draw_samples(40, seed=11)[0]
    assert one.predict_proba(logits=probe) == pytest.approx(
        other.predict_proba(logits=probe), abs=1e-5
    )


@every_method
def test_what_cannot_be_fitted_is_refused(name):
    logits, labels = draw_samples(5)
    make = functools.partial(build, name)
    with pytest.raises(ValueError, match="exactly one of logits or probs"):
        make().fit(labels=labels)
    with pytest.raises(ValueError, match="exactly one of logits or probs"):
        make().fit(logits, labels, probs=logits)
    with pytest.raises(ValueError, match="one entry per row"):
        make().fit(logits=logits, labels=labels[:4])
    with pytest.raises(ValueError, match="between 0 and 2"):
        make().fit(logits, labels + 3)
    with pytest.raises(ValueError, match="whole numbers or names"):
        make().fit(logits, labels + 0.5)
    with pytest.raises(ValueError, match="at least one sample"):
        make().fit(logits=logits[:0], labels=labels[:0])
    with pytest.raises(ValueError, match="at least one sample"):
        make().fit(logits, labels, np.zeros(5))
    with pytest.raises(ValueError, match="not negative"):
        make().fit(logits, labels, np.full(5, -1.0))
    masked = logits.copy()
    masked[2, labels[2]] = -math.inf
    with pytest.raises(ValueError, match=r"true class must be possible; .* row 2"):
        make().fit(logits=masked, labels=labels)
    with pytest.raises(ValueError, match="labels of two classes"):
        make().fit(logits=logits[:, :1], labels=labels)


@every_method
def test_missing_labels_get_a_clear_line(name):
    with pytest.raises(ValueError, match="labels are needed"):
        build(name).fit(draw_samples(5)[0])


@every_method
def test_another_number_of_classes_is_refused(name):
    for k in (2, 4):
        with pytest.raises(ValueError, match=f"fitted on 3 classes; found {k}"):
            fitted(name).predict_proba(np.zeros((2, k)))


# --- probabilities instead of logits -------------------------------------------------------------


@every_method
def test_probs_are_logits_by_another_name(name):
    logits, labels = draw_samples()
    probs = np.exp(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    found = build(name).fit(probs=probs, labels=labels)
    assert found.predict_proba(probs=probs) == pytest.approx(
        fitted(name).predict_proba(logits=logits), abs=1e-4
    )


@every_method
def test_exact_zeros_count_as_the_floor(name):
    rng = np.random.default_rng(12)
    probs = rng.multinomial(10, [0.6, 0.3, 0.1], size=300) / 10
    labels = rng.integers(0, 3, size=300)
    assert (probs == 0).any()
    assert PROBS_FLOOR == 2.0**-24
    found = build(name).fit(probs=probs, labels=labels)
    floored = build(name).fit(np.log(np.maximum(probs, PROBS_FLOOR)), labels)
    same_state(found, floored)
    calibrated = found.predict_proba(probs=probs)
    assert np.isfinite(calibrated).all()
    assert np.isfinite(found.predict_log_proba(probs=probs)).all()
    assert math.isfinite(found.report_.after)


@every_method
def test_logits_given_as_probs_are_refused(name):
    with pytest.raises(ValueError, match="If these are logits"):
        build(name).fit(probs=draw_samples()[0], labels=draw_samples()[1])
    with pytest.raises(ValueError, match="If these are logits"):
        fitted(name).predict_proba(probs=draw_samples()[0])


# --- the report ----------------------------------------------------------------------------------


@every_method
def test_the_report_says_how_it_went(name):
    report = fitted(name).report_
    assert report.method == name
    assert (report.n_samples, report.n_classes) == (400, 3)
    assert report.evaluations >= 0
    assert FitReport.from_dict(report.to_dict()) == report
    text = str(report)
    assert text.startswith(f"{name} on 400 samples of 3 classes: {report.criterion} from")
    assert "accuracy" in text


@every_method
def test_every_warning_is_given_and_kept(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = build(name).fit(*draw_samples(12))
    messages = [str(w.message) for w in caught]
    assert {w.category for w in caught} <= {CalibrationWarning}
    assert messages == [f"{name}: {warning}" for warning in found.report_.warnings]
    assert all(warning in str(found.report_) for warning in found.report_.warnings)
    assert all(w.filename == __file__ for w in caught), "a warning points at the caller's line"


@every_method
def test_a_class_without_samples_is_no_obstacle(name):
    logits, labels = draw_samples()
    found = build(name).fit(logits, np.minimum(labels, 1))
    probs = found.predict_proba(logits=logits)
    assert np.isfinite(probs).all()
    said = any("no sample" in warning for warning in found.report_.warnings)
    assert said == found.PER_CLASS


@every_method
def test_one_sample_is_no_obstacle(name):
    for row, label in (([2.0, 0.0, -1.0], 0), ([2.0, 0.0, -1.0], 2), ([0.0, 0.0, 0.0], 1)):
        found = build(name).fit(np.array([row]), np.array([label]))
        assert np.isfinite(found.predict_proba(np.array([row]))).all()
        assert math.isfinite(found.report_.after)


# --- files ---------------------------------------------------------------------------------------


@every_method
def test_a_saved_calibrator_comes_back_the_same(name, tmp_path):
    file = tmp_path / "cal.json"
    fitted(name).save(file)
    loaded = calibrant.load(file)
    assert type(loaded) is CALIBRATORS[name]
    assert loaded.get_params() == fitted(name).get_params()
    assert loaded.n_classes_ == 3
    assert loaded.report_ == fitted(name).report_
    same_state(loaded, fitted(name))
    logits, _ = draw_samples(100, seed=13)
    for given in (logits, logits.astype(np.float32), logits.astype(np.float16)):
        np.testing.assert_array_equal(
            loaded.predict_proba(logits=given), fitted(name).predict_proba(logits=given)
        )
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


@every_method
def test_a_loaded_calibrator_can_be_fitted_again(name, tmp_path):
    build(name).fit(*draw_samples(seed=14, spread=6.0)).save(tmp_path / "cal.json")
    found = calibrant.load(tmp_path / "cal.json").fit(*draw_samples())
    same_state(found, fitted(name))
