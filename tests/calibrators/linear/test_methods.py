"""The linear calibrators beside references that are written from the formulas."""

from __future__ import annotations

import json
import math
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from calibrant.calibrators import (
    BiasCorrectedTemperatureScaling,
    CalibrationWarning,
    DirichletCalibration,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    load,
)
from calibrant.calibrators.data import FitData
from calibrant.calibrators.linear import (
    loss as linear_loss,
    map as linear_map,
    solver as linear_solver,
)
from tests.builders import draw_tilted

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

METHODS = (VectorScaling, BiasCorrectedTemperatureScaling, MatrixScaling, DirichletCalibration)
ON_LOGITS = METHODS[:3]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.NAME)
on_logits = pytest.mark.parametrize("method", ON_LOGITS, ids=lambda method: method.NAME)


# --- the formulas, once more ---------------------------------------------------------------------


def centre(logits):
    """Logits minus the mean of the finite ones of their row, 0 for the others."""
    return np.array(
        [[0.0 if v == -np.inf else v - row[row > -np.inf].mean() for v in row] for row in logits]
    )


def log_softmax(z):
    finite = [[v for v in row if v > -np.inf] for row in z]
    return z - np.array(
        [[max(row) + math.log(math.fsum(math.exp(v - max(row)) for v in row))] for row in finite]
    )


def typical(features, logits, weight):
    """Weighted median over rows of the root mean square of the possible classes."""
    possible = logits > -np.inf
    sizes = np.sqrt((features**2).sum(axis=1) / possible.sum(axis=1))
    repeated = np.sort(np.repeat(sizes, weight))
    repeated = repeated[repeated > 0]
    return repeated[(len(repeated) - 1) // 2]


class Reference:
    """The penalised criterion of one method in the user's own parameters, by autograd."""

    def __init__(self, method, logits, labels, weight=None, **params):
        self.method = method
        self.k = logits.shape[1]
        self.weight = np.ones(len(labels), dtype=int) if weight is None else weight
        self.labels = torch.from_numpy(labels)
        self.absent = torch.from_numpy(logits == -np.inf)
        centred = centre(logits)
        log_q = np.where(logits == -np.inf, 0.0, log_softmax(logits))
        self.features = torch.from_numpy(log_q if method is DirichletCalibration else centred)
        self.centred = torch.from_numpy(centred)
        self.r = typical(self.features.numpy(), logits, self.weight)
        self.size = typical(centred, logits, self.weight)
        self.ridge = params.get("ridge", 1e-4)
        self.off_diagonal = params.get("off_diagonal")
        self.intercept = params.get("intercept")
        self.inverse_temperature = self._best_inverse_temperature()

    def _best_inverse_temperature(self):
        """Bisection on the gradient of the NLL of softmax(inverse_temperature s)."""
        low, high = 1e-9, 1e9
        for _ in range(80):
            middle = math.sqrt(low * high)
            inverse_temperature = torch.tensor(middle, dtype=torch.float64, requires_grad=True)
            gradient = torch.autograd.grad(
                self.nll(inverse_temperature * self.centred), inverse_temperature
            )[0]
            low, high = (low, middle) if gradient > 0 else (middle, high)
        return math.sqrt(low * high)

    def nll(self, z):
        z = torch.where(self.absent, -torch.inf, z)
        losses = torch.nn.functional.cross_entropy(z, self.labels, reduction="none")
        weight = torch.from_numpy(self.weight)
        return (weight * losses).sum() / weight.sum()

    def parts(self, p):
        """W as a matrix, and b."""
        b = p[-self.k :]
        if self.method is VectorScaling:
            return torch.diag(p[: self.k]), b
        if self.method is BiasCorrectedTemperatureScaling:
            return p[0] * torch.eye(self.k, dtype=p.dtype), b
        return p[: -self.k].reshape(self.k, self.k), b

    def penalty(self, p):
        w, b = self.parts(p)
        k, off = self.k, w - torch.diag(torch.diag(w))
        diagonal = ((self.r * (torch.diag(w) - self.inverse_temperature)) ** 2).sum()
        if self.method is VectorScaling:
            return self.ridge * (diagonal + (b**2).sum())
        if self.method is BiasCorrectedTemperatureScaling:
            return self.ridge * (b**2).sum()
        if self.method is MatrixScaling:
            lam, mu = self.off_diagonal or 5e-4, self.intercept or 1e-3
            squares = lam * k * ((self.r * off) ** 2).sum() + mu * (b**2).sum()
        else:
            lam = self.off_diagonal or 1e-4 * k**2 * (k - 1) * self.r**2
            mu = self.intercept or 1e-3 * k
            squares = lam / (k * (k - 1)) * (off**2).sum() + mu / k * (b**2).sum()
        return squares + 1e-4 * diagonal

    def criterion(self, p):
        w, b = self.parts(p)
        return self.nll(self.features @ w.T + b) + self.penalty(p)

    def minimum(self):
        """Newton's method with exact second derivatives and halved steps."""
        k = self.k
        w = self.inverse_temperature * np.eye(k)
        start = {
            VectorScaling: np.full(k, self.inverse_temperature),
            BiasCorrectedTemperatureScaling: [self.inverse_temperature],
        }.get(self.method, w.ravel())
        p = torch.tensor(np.concatenate([start, np.zeros(k)]))
        for _ in range(30):
            gradient = torch.autograd.functional.jacobian(self.criterion, p)
            if gradient.abs().max() < 1e-11:
                break
            hessian = torch.autograd.functional.hessian(self.criterion, p)
            step = torch.linalg.solve(hessian, gradient)
            size = 1.0
            while self.criterion(p - size * step) > self.criterion(p) and size > 1e-10:
                size /= 2
            p = p - size * step
        return p

    def of(self, calibrator):
        """The parameters of a fitted calibrator, in the order used here."""
        first = {
            VectorScaling: lambda: calibrator.weights_,
            BiasCorrectedTemperatureScaling: lambda: [1 / calibrator.temperature_],
        }.get(self.method, lambda: calibrator.matrix_.ravel())()
        return torch.tensor(np.concatenate([first, calibrator.bias_]))


CASES = {
    "ordinary": ({}, {}),
    "masked": ({"masked": 0.2}, {}),
    "two classes": ({"k": 2}, {}),
    "large logits": ({"sharpness": 40.0}, {}),
}


@every_method
@pytest.mark.parametrize(
    "case",
    ["ordinary", *(pytest.param(c, marks=pytest.mark.slow) for c in CASES if c != "ordinary")],
)
def test_the_minimum_is_that_of_an_exact_newton_search(method, case):
    logits, labels = draw_tilted(**CASES[case][0])
    found = method().fit(logits=logits, labels=labels)
    reference = Reference(method, logits, labels)
    best = reference.minimum()
    assert found.report_.gradient < 1e-7
    at_best, at_found = (float(reference.criterion(p)) for p in (best, reference.of(found)))
    assert at_found == pytest.approx(at_best, abs=1e-11)
    assert reference.of(found).numpy() == pytest.approx(best.numpy(), rel=1e-3, abs=1e-4)
    w, b = reference.parts(best)
    z = torch.where(reference.absent, -torch.inf, reference.features @ w.T + b)
    assert found.predict_proba(logits=logits) == pytest.approx(
        torch.softmax(z, dim=1).numpy(), abs=1e-5
    )
    assert found.report_.after == pytest.approx(float(reference.nll(z)), abs=1e-6)
    assert found.report_.before == pytest.approx(float(reference.nll(torch.from_numpy(logits))))


@every_method
def test_weights_and_given_strengths_are_those_of_the_formula(method):
    logits, labels = draw_tilted(seed=1)
    weight = np.random.default_rng(1).integers(1, 5, size=len(labels))
    params = {"off_diagonal": 0.03, "intercept": 0.2} if method in METHODS[2:] else {"ridge": 0.02}
    found = method(**params).fit(logits=logits, labels=labels, sample_weight=weight)
    reference = Reference(method, logits, labels, weight, **params)
    gradient = torch.autograd.functional.jacobian(reference.criterion, reference.of(found))
    assert float(gradient.abs().max()) < 1e-6
    other = Reference(method, logits, labels, weight)
    elsewhere = torch.autograd.functional.jacobian(other.criterion, reference.of(found))
    assert float(elsewhere.abs().max()) > 1e-3, "the strengths make a difference"


@every_method
@pytest.mark.parametrize("masked", [0.0, 0.3])
def test_slopes_are_those_of_finite_differences(method, masked):
    logits, labels = draw_tilted(n=40, masked=masked)
    weight = np.linspace(0.5, 2.0, 40)
    data = FitData(logits, labels, weight)
    rows = linear_loss.RowsInMemory.of(data, log_probs=method.ON_LOG_PROBS)
    calibrator = method()
    shape = calibrator._shape(4)
    criterion = linear_loss.LossInMemory(rows, 1.7, shape, calibrator._penalty(rows))
    rng = np.random.default_rng(2)
    at = 0.3 * rng.normal(size=math.prod(shape) + 4)
    _, slopes = criterion(at)
    step = 1e-5
    for i in range(len(at)):
        ahead, behind = at.copy(), at.copy()
        ahead[i] += step
        behind[i] -= step
        numeric = (criterion(ahead)[0] - criterion(behind)[0]) / (2 * step)
        assert slopes[i] == pytest.approx(numeric, abs=1e-8)


# --- what does not matter ------------------------------------------------------------------------


@every_method
def test_classes_have_no_order(method):
    logits, labels = draw_tilted(masked=0.1)
    order = np.array([2, 0, 3, 1])
    place = np.argsort(order)
    one = method().fit(logits=logits, labels=labels).predict_proba(logits=logits)
    other = (
        method().fit(logits=logits[:, order], labels=place[labels]).predict_proba(logits[:, order])
    )
    assert other == pytest.approx(one[:, order], abs=1e-6)


@every_method
def test_rows_have_no_order(method):
    logits, labels = draw_tilted()
    back = slice(None, None, -1)
    one, other = (
        method().fit(logits=logits, labels=labels),
        method().fit(logits=logits[back], labels=labels[back]),
    )
    assert other.predict_proba(logits=logits) == pytest.approx(
        one.predict_proba(logits=logits), abs=1e-6
    )


@every_method
def test_a_constant_added_to_a_row_changes_nothing(method):
    logits, labels = draw_tilted(masked=0.1)
    shift = np.random.default_rng(3).choice([-64.0, 0.0, 1000.0, 2.0**20], size=(len(labels), 1))
    rounded = np.round(logits * 2**20) / 2**20  # exact also after the shift
    one, other = method().fit(logits=rounded, labels=labels), method().fit(rounded + shift, labels)
    for key, value in one.state_.items():
        assert other.state_[key] == pytest.approx(value, abs=1e-9)
    assert one.predict_proba(rounded + shift) == pytest.approx(
        one.predict_proba(logits=rounded), abs=1e-12
    )


@every_method
def test_probabilities_say_all_there_is(method):
    logits, labels = draw_tilted()
    probs = np.exp(log_softmax(logits))
    one, other = (
        method().fit(logits=logits, labels=labels),
        method().fit(probs=probs, labels=labels),
    )
    assert other.predict_proba(probs=probs) == pytest.approx(
        one.predict_proba(logits=logits), abs=1e-5
    )


@on_logits
@pytest.mark.parametrize("factor", [1e-25, 1e-6, 1e3, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_logits_does_not_matter(method, factor, dtype):
    logits, labels = draw_tilted()
    one = method().fit(logits=logits, labels=labels)
    scaled = (factor * logits).astype(dtype)
    other = method().fit(logits=scaled, labels=labels)
    assert other.report_.after == pytest.approx(one.report_.after, abs=1e-6)
    assert other.predict_proba(logits=scaled) == pytest.approx(
        one.predict_proba(logits=logits), abs=1e-4
    )
    assert other.bias_ == pytest.approx(one.bias_, abs=1e-3)


@pytest.mark.parametrize("factor", [1e-25, 1e-6, 1e-2, 1e3, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dirichlet_calibration_works_in_every_unit(factor, dtype):
    """Log-probabilities are not proportional to logits; a bias and a temperature always fit."""
    logits, labels = draw_tilted()
    scaled = (factor * logits).astype(dtype)
    found = DirichletCalibration().fit(logits=scaled, labels=labels)
    assert (
        found.report_.after
        < BiasCorrectedTemperatureScaling().fit(logits=logits, labels=labels).report_.after + 0.01
    )
    probs = found.predict_proba(logits=scaled)
    measured = -np.log(probs[np.arange(len(labels)), labels]).mean()
    assert measured == pytest.approx(found.report_.after, abs=1e-4)


def test_a_few_rows_of_another_size_do_not_set_the_unit():
    logits, labels = draw_tilted()
    logits[:5] *= 1e6
    labels[:5] = logits[:5].argmax(axis=1)
    expected = VectorScaling().fit(logits=logits[5:], labels=labels[5:])
    found = VectorScaling().fit(logits=logits, labels=labels)
    assert found.weights_ == pytest.approx(expected.weights_, abs=0.02)
    assert found.bias_ == pytest.approx(expected.bias_, abs=0.05)


@every_method
@pytest.mark.parametrize("mask", [-1e4, -1e9])
def test_finite_masks_do_not_set_the_unit(method, mask):
    logits, labels = draw_tilted(n=2000, k=6, masked=0.3)
    finite = np.where(logits == -np.inf, mask, logits)
    with pytest.warns(CalibrationWarning, match="use -inf"):
        found = method().fit(logits=finite, labels=labels)
    n_masked = (np.isfinite(logits).sum(axis=1) > 1) & (logits == -np.inf).any(axis=1)
    assert f"{n_masked.sum()} of 2000 rows have logits more" in found.report_.warnings[0]
    assert found.report_.at_bound is None
    assert (
        found.report_.after <= TemperatureScaling().fit(logits=finite, labels=labels).report_.after
    )


@pytest.mark.parametrize("mask", [-1e4, -1e9])
@pytest.mark.filterwarnings("ignore:.*use -inf:calibrant.calibrators.CalibrationWarning")
def test_one_temperature_and_biases_are_the_same_with_finite_masks(mask):
    logits, labels = draw_tilted(n=2000, k=6, masked=0.3)
    exact = BiasCorrectedTemperatureScaling().fit(logits=logits, labels=labels)
    finite = np.where(logits == -np.inf, mask, logits)
    found = BiasCorrectedTemperatureScaling().fit(logits=finite, labels=labels)
    assert found.temperature_ == pytest.approx(exact.temperature_, rel=1e-6)
    assert found.bias_ == pytest.approx(exact.bias_, abs=1e-5)
    probs = found.predict_proba(logits=finite)
    np.testing.assert_allclose(probs, exact.predict_proba(logits=logits), rtol=0, atol=1e-5)


@every_method
def test_masks_beyond_all_digits_are_named_first(method):
    logits, labels = draw_tilted(n=2000, k=6, masked=0.3)
    with pytest.warns(CalibrationWarning, match="use -inf"):
        found = method().fit(np.where(logits == -np.inf, -1e30, logits), labels)
    assert "use -inf" in found.report_.warnings[0]
    assert not any("T = " in warning for warning in found.report_.warnings)
    assert found.report_.after <= found.report_.before


@every_method
def test_a_class_that_is_ruled_out_everywhere_is_not_there(method):
    logits, labels = draw_tilted(k=4)
    padded = np.insert(logits, 2, -np.inf, axis=1)
    params, padded_params = {}, {}
    if method is MatrixScaling:  # its penalty has a factor K
        params, padded_params = {"off_diagonal": 0.005}, {"off_diagonal": 0.004}
    if method is DirichletCalibration:  # mean squares
        params = {"off_diagonal": 0.3 * 12, "intercept": 0.01 * 4}
        padded_params = {"off_diagonal": 0.3 * 20, "intercept": 0.01 * 5}
    one = method(**params).fit(logits=logits, labels=labels)
    other = method(**padded_params).fit(padded, labels + (labels >= 2))
    probs = other.predict_proba(logits=padded)
    assert (probs[:, 2] == 0).all()
    assert np.delete(probs, 2, axis=1) == pytest.approx(one.predict_proba(logits=logits), abs=1e-6)
    assert other.bias_[2] == pytest.approx(0.0, abs=1e-5)
    assert np.isneginf(other.predict_log_proba(logits=padded)[:, 2]).all()


# --- what is promised ----------------------------------------------------------------------------


@every_method
def test_it_is_never_worse_than_temperature_scaling_on_its_samples(method):
    for seed in range(5):
        logits, labels = draw_tilted(seed=seed, n=150, k=5)
        found = method().fit(logits=logits, labels=labels).report_
        assert (
            found.after
            <= TemperatureScaling().fit(logits=logits, labels=labels).report_.after + 1e-12
        )
        assert found.criterion == "nll"
        assert found.at_bound is None


def test_vectors_and_matrices_are_found_again():
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(40_000, 3))
    scores -= scores.mean(axis=1, keepdims=True)
    factors, bias = np.array([1.0, 2.0, 3.0]), np.array([-0.5, 0.2, 0.3])
    labels = (factors * scores + bias + rng.gumbel(size=scores.shape)).argmax(axis=1)
    vector = VectorScaling().fit(5 * scores, labels)
    assert 5 * vector.weights_ == pytest.approx(factors, abs=0.06)
    assert vector.bias_ == pytest.approx(bias, abs=0.03)
    matrix = np.array([[2.0, 0.6, -0.6], [0.0, 1.5, 0.0], [0.5, -0.5, 2.5]])
    labels = (scores @ matrix.T + rng.gumbel(size=scores.shape)).argmax(axis=1)
    found = MatrixScaling(off_diagonal=1e-8).fit(logits=scores, labels=labels)
    # A centred row has K - 1 numbers, and a softmax K - 1 differences: more cannot be seen.
    seen = np.eye(3) - 1 / 3
    assert seen @ found.matrix_ @ seen == pytest.approx(seen @ matrix @ seen, abs=0.08)


def test_the_biases_undo_a_shift_of_frequencies():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(50_000, 3))
    shift = np.array([1.0, 0.0, -1.0])
    labels = (scores + shift + rng.gumbel(size=scores.shape)).argmax(axis=1)
    found = BiasCorrectedTemperatureScaling().fit(7 * scores, labels)
    assert found.temperature_ == pytest.approx(7.0, rel=0.03)
    assert found.bias_ == pytest.approx(shift, abs=0.03)
    assert abs(found.bias_.sum()) < 1e-12


def test_default_strengths_of_dirichlet_are_the_rule_it_states():
    logits, labels = draw_tilted(k=4)
    log_q = log_softmax(logits)
    r = typical(log_q, logits, np.ones(len(labels), dtype=int))
    stated = DirichletCalibration(off_diagonal=1e-4 * 4**2 * 3 * r**2, intercept=1e-3 * 4)
    one, other = (
        stated.fit(logits=logits, labels=labels),
        DirichletCalibration().fit(logits=logits, labels=labels),
    )
    assert one.matrix_ == pytest.approx(other.matrix_, abs=1e-6)


@every_method
def test_a_class_without_samples_keeps_a_finite_share(method):
    logits, labels = draw_tilted(k=4)
    present = labels != 3
    found = method().fit(logits=logits[present], labels=labels[present])
    assert np.abs(found.bias_).max() < 30.0
    assert any("no sample" in warning for warning in found.report_.warnings)
    probs = found.predict_proba(logits=logits)
    assert (probs[:, 3] > 1e-30).all()
    assert np.isfinite(probs).all()


@every_method
@pytest.mark.parametrize("clear", [False, True])
def test_samples_without_a_mistake_end_at_a_reported_limit(method, clear):
    logits, _ = draw_tilted()
    if clear:  # by so much that all slopes round to 0 on the way, and to either side of it
        order = np.sort(logits, axis=1)
        logits = logits[order[:, -1] - order[:, -2] > 0.3]
    found = method().fit(logits, logits.argmax(axis=1))
    assert found.report_.at_bound == "T -> 0"
    assert any("T = 0" in warning for warning in found.report_.warnings)
    assert found.report_.after < 1e-3
    probs = found.predict_proba(logits=logits)
    assert np.isfinite(probs).all()
    assert (probs.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_a_model_worse_than_chance_ends_at_a_reported_limit():
    logits, _ = draw_tilted()
    found = BiasCorrectedTemperatureScaling().fit(logits, logits.argmin(axis=1))
    assert found.report_.at_bound == "T -> infinity"
    assert 1e5 < found.temperature_ < math.inf
    assert any("T = infinity" in warning for warning in found.report_.warnings)
    # What the others can do about it is not bounded.
    vector = VectorScaling().fit(logits, logits.argmin(axis=1))
    assert vector.report_.at_bound is None
    assert (vector.weights_ < 0).all()


@pytest.mark.parametrize("method", METHODS[:2])
def test_a_ridge_that_decides_is_reported(method):
    def held(logits, labels, **params):
        found = method(**params).fit(logits=logits, labels=labels)
        return [w for w in found.report_.warnings if "do not determine" in w]

    logits, labels = draw_tilted(n=2000)
    assert not held(logits, labels)
    present = labels != 3
    (without_a_class,) = held(logits[present], labels[present])
    assert "of 1 of 4 classes" in without_a_class
    assert not held(logits[present], labels[present], ridge=0.1), "then it is meant to decide"
    # One more class, which its own logit tells from the others without an error.
    fifth = np.arange(2000) < 100
    logits = np.concatenate([logits, np.where(fifth, 9.0, -9.0)[:, None]], axis=1)
    assert len(held(logits, np.where(fifth, 4, labels))) == (method is VectorScaling)


@every_method
def test_a_search_that_fails_leaves_the_probabilities_as_they_are(method, monkeypatch):
    logits, labels = draw_tilted()
    minimise = linear_map.minimise

    def lost(criterion):
        found = minimise(criterion)
        found.parameters[-1] += 50.0
        return found

    monkeypatch.setattr(linear_map, "minimise", lost)
    with pytest.warns(CalibrationWarning, match="so these were kept"):
        found = method().fit(logits=logits, labels=labels)
    assert found.report_.after == found.report_.before
    assert found.predict_log_proba(logits=logits) == pytest.approx(log_softmax(logits), abs=1e-12)


@every_method
def test_a_search_cut_short_says_so(method, monkeypatch):
    monkeypatch.setattr(linear_solver, "NEWTON_STEPS", 0)
    monkeypatch.setattr(linear_solver, "STEPS", 1)
    monkeypatch.setattr(linear_solver, "MOST_ROUNDS", 1)
    with pytest.warns(CalibrationWarning, match="stopped before the minimum"):
        found = method().fit(*draw_tilted())
    assert found.report_.gradient > 1e-5
    assert found.report_.after <= found.report_.before


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_strengths_that_are_none_are_refused(value):
    logits, labels = draw_tilted(n=5)
    for calibrator in (
        VectorScaling(ridge=value),
        BiasCorrectedTemperatureScaling(ridge=value),
        MatrixScaling(off_diagonal=value),
        MatrixScaling(intercept=value),
        DirichletCalibration(off_diagonal=value),
        DirichletCalibration(intercept=value),
    ):
        with pytest.raises(ValueError, match=r"must be (above 0|finite); found"):
            calibrator.fit(logits=logits, labels=labels)
    with pytest.raises(ValueError, match="ridge must be a number"):
        VectorScaling(ridge="weak").fit(logits=logits, labels=labels)
    with pytest.raises(ValueError, match="intercept must be a number"):
        MatrixScaling(intercept=None).fit(logits=logits, labels=labels)


# --- hostile input -------------------------------------------------------------------------------

HOSTILE = {
    "one sample": (np.array([[2.0, 0.0, -1.0]]), [1]),
    "equal logits": (np.zeros((30, 3)), np.arange(30) % 2),
    "one class only": (draw_tilted(n=50, k=3)[0], np.zeros(50, dtype=int)),
    "huge": (1e30 * draw_tilted(n=50, k=3)[0], draw_tilted(n=50, k=3)[1]),
    "at the end of float64": (
        1e307 * np.clip(draw_tilted(n=50, k=3)[0], -9, 9),
        draw_tilted(n=50, k=3)[1],
    ),
    "tiny": (1e-30 * draw_tilted(n=50, k=3)[0], draw_tilted(n=50, k=3)[1]),
    "below all numbers": (1e-310 * draw_tilted(n=50, k=3)[0], draw_tilted(n=50, k=3)[1]),
    "one huge row, wrong": (
        np.concatenate([draw_tilted(n=50, k=3)[0], [[1e30, 0.0, -1e30]]]),
        np.append(draw_tilted(n=50, k=3)[1], 2),
    ),
    "one-hot rows": (1e4 * np.eye(3)[np.arange(60) % 3], np.arange(60) // 2 % 3),
    "single possible class": (
        np.where(np.eye(3)[np.arange(30) % 3] == 1, 1.0, -np.inf),
        np.arange(30) % 3,
    ),
    "ties": (np.round(draw_tilted(n=80, k=3)[0]), draw_tilted(n=80, k=3)[1]),
    "two samples of many classes": (draw_tilted(n=2, k=50)[0], [5, 49]),
}


@every_method
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_samples_are_no_obstacle(method, case, tmp_path):
    for dtype in (np.float16, np.float32, np.float64):
        check_hostile_samples(method, case, dtype, tmp_path / "cal.json")


def check_hostile_samples(method, case, dtype, file):
    logits, labels = HOSTILE[case]
    limits = np.finfo(dtype)
    logits = np.where(np.isneginf(logits), logits, np.clip(logits, limits.min, limits.max))
    logits = logits.astype(dtype)
    labels = np.asarray(labels)
    found = method().fit(logits=logits, labels=labels)
    assert found.report_.after <= found.report_.before
    assert math.isfinite(found.report_.gradient)
    assert all(np.isfinite(value).all() for value in found.state_.values())
    assert found.state_.get("temperature", 1.0) > 0.0
    log_probs = found.predict_log_proba(logits=logits)
    assert not np.isnan(log_probs).any()
    assert (np.isneginf(log_probs) == np.isneginf(logits)).all()
    assert found.predict_proba(logits=logits).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    # As a user would meet them later: rows of quite another size.
    others = np.array([[6e4, 0.0, -6e4], [-np.inf, 1.0, 0.0], [1e-7, 0.0, 0.0]], dtype=dtype)
    others = np.concatenate([others, np.zeros((3, logits.shape[1] - 3), dtype=dtype)], axis=1)
    assert found.predict_proba(logits=others).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    if case != "at the end of float64":
        found.save(file)
        assert (load(file).predict_log_proba(logits=logits) == log_probs).all()


@every_method
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_differences_that_no_float_can_hold(method, tmp_path):
    logits = np.where(np.arange(180).reshape(60, 3) % 7 < 3, 1.7e308, -1.7e308)
    found = method().fit(logits, np.arange(60) % 3)
    assert found.predict_proba(logits=logits).sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert found.report_.after <= found.report_.before
    with pytest.raises(ValueError, match="whose differences are finite in their dtype"):
        found.save(tmp_path / "cal.json")


@every_method
@given(data=st.data())
def test_no_samples_break_it(method, data):
    n, k = data.draw(st.integers(1, 12)), data.draw(st.integers(2, 4))
    logit = st.one_of(
        st.floats(-50, 50), st.floats(-1e30, 1e30), st.sampled_from([0.0, 1.0, -np.inf])
    )
    logits = np.array(data.draw(st.lists(logit, min_size=n * k, max_size=n * k))).reshape(n, k)
    labels = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    rows = np.arange(n)
    logits[rows, labels] = np.maximum(logits[rows, labels], -1e30)
    weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = method().fit(logits=logits, labels=labels, sample_weight=weight)
    assert found.report_.after <= found.report_.before
    # Rows of very different sizes may lead nowhere; then nothing is changed, and it says so.
    if any("so these were kept" in warning for warning in found.report_.warnings):
        assert found.report_.gradient is None
        assert found.report_.after == found.report_.before
    else:
        assert math.isfinite(found.report_.gradient)
    log_probs = found.predict_log_proba(logits=logits)
    assert (np.isneginf(log_probs) == np.isneginf(logits)).all()
    assert not np.isnan(log_probs).any()
    assert np.exp(log_probs).sum(axis=1) == pytest.approx(1.0, abs=1e-9)


def test_where_the_search_leads_nowhere_nothing_is_changed():
    logits = np.array([[0.0, 1.0], [3.2e-27, 0.0]])
    with pytest.warns(CalibrationWarning, match="so these were kept"):
        found = DirichletCalibration().fit(logits, np.array([0, 0]))
    assert found.report_.after == found.report_.before
    assert found.report_.gradient is None
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found.predict_log_proba(logits=logits), log_probs, atol=1e-12)


@every_method
def test_files_that_could_overflow_are_refused(method, tmp_path):
    file = tmp_path / "cal.json"
    method().fit(*draw_tilted()).save(file)
    content = json.loads(file.read_text())
    for name, value in content["state"].items():
        scalar = isinstance(value, float)
        strange = 0.0 if scalar else (1e36 * np.ones_like(value)).tolist()
        file.write_text(json.dumps({**content, "state": {**content["state"], name: strange}}))
        with pytest.raises(ValueError, match="not above 0" if scalar else f"'{name}' holds"):
            load(file)


# --- array libraries, torch, size ----------------------------------------------------------------


@every_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_map_for_every_library(method, dtype, library):
    logits, labels = draw_tilted(masked=0.1)
    found = method().fit(logits=logits, labels=labels)
    log_probs = library.numpy(found.predict_log_proba(library.make(logits, dtype)))
    assert log_probs.dtype == dtype
    finite = np.isfinite(logits)
    assert log_probs[finite] == pytest.approx(
        found.predict_log_proba(logits=logits)[finite], abs=1e-4 if dtype == "float32" else 1e-12
    )
    assert np.isneginf(log_probs[~finite]).all()


@every_method
def test_gradients_pass_to_the_logits(method):
    logits, labels = draw_tilted(n=60, k=3)
    layer = method().fit(logits=logits, labels=labels).as_module()
    assert torch.autograd.gradcheck(layer, torch.from_numpy(logits[:4]).requires_grad_())
    masked = torch.tensor([[1.0, -torch.inf, 0.5]], dtype=torch.float64, requires_grad=True)
    layer(masked)[0, 0].backward()
    assert torch.isfinite(masked.grad).all()
    assert masked.grad[0, 1] == 0.0


@pytest.mark.parametrize("method", [MatrixScaling, DirichletCalibration])
def test_truncated_newton_steps_end_where_lbfgs_does(method, monkeypatch):
    data = FitData(*draw_tilted(n=600, k=12, masked=0.1), None)

    def minimum():
        fitted = method()
        rows = linear_loss.regression_rows(data, log_probs=fitted.ON_LOG_PROBS)
        loss = rows.loss(1.0, (12, 12), fitted._penalty(rows))
        found = linear_solver.minimise(loss)
        return loss(found.parameters)[0], found

    value, found = minimum()
    monkeypatch.setattr(linear_solver, "ROWS_PER_CLASS", 0)
    value_of_lbfgs, by_lbfgs = minimum()
    assert value <= value_of_lbfgs + 1e-13
    assert found.parameters == pytest.approx(by_lbfgs.parameters, abs=1e-5)
    assert found.gradient_in_units <= linear_solver.CLOSE
    assert found.evaluations < by_lbfgs.evaluations / 2


@pytest.mark.slow
@every_method
def test_memory_stays_at_one_copy_in_double_precision(method, monkeypatch):
    monkeypatch.setattr(linear_solver, "STEPS", 2)
    monkeypatch.setattr(linear_solver, "MOST_ROUNDS", 2)
    monkeypatch.setattr("calibrant.calibrators.data.BLOCK_ENTRIES", 1 << 14)
    logits, labels = draw_tilted(n=50_000, k=20)
    data = FitData(logits.astype(np.float32), labels, None)
    some = FitData(data.logits[:10_000], labels[:10_000], None)
    method()._fit(some)  # imports and compilation are not counted
    tracemalloc.start()
    method()._fit(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * logits.nbytes


@pytest.mark.parametrize("method", [VectorScaling, BiasCorrectedTemperatureScaling])
def test_a_thousand_classes(method):
    rng = np.random.default_rng(7)
    scores = 3.0 * rng.normal(size=(300, 1000))
    labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    found = method().fit((2 * scores).astype(np.float32), labels)
    assert found.report_.gradient < 1e-7
    assert found.report_.after < found.report_.before


@pytest.mark.slow
@pytest.mark.parametrize("method", [MatrixScaling, DirichletCalibration])
def test_a_matrix_of_a_thousand_classes(method, monkeypatch):
    monkeypatch.setattr(linear_solver, "STEPS", 4)  # all of them would take a minute
    monkeypatch.setattr(linear_solver, "MOST_ROUNDS", 1)
    rng = np.random.default_rng(8)
    scores = 3.0 * rng.normal(size=(200, 1000))
    labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    logits = (2 * scores).astype(np.float32)
    found = method().fit(logits=logits, labels=labels)
    assert (
        found.report_.after < TemperatureScaling().fit(logits=logits, labels=labels).report_.after
    )
    assert found.predict_proba(logits=logits).sum(axis=1) == pytest.approx(1.0, abs=1e-5)


@every_method
def test_real_networks(method, shared_data):
    for name in ("c10_resnet20", "c10_densenet40_nncal", "pathmnist_resnet50", "emotion_final_psr"):
        with np.load(shared_data / "logits" / f"{name}.npz") as file:
            logits, labels = file["val_logits"], file["val_labels"]
        found = method().fit(logits=logits, labels=labels)
        report = found.report_
        assert report.gradient < 1e-7
        assert report.after <= TemperatureScaling().fit(logits=logits, labels=labels).report_.after
        assert report.at_bound is None
        assert report.warnings == ()
