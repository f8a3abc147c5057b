"""Temperature, the focal map and both, against a reference that tries every point."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import calibrant
from calibrant import FocalCalibration, FocalTemperatureScaling, Identity, TemperatureScaling
from calibrant.calibrators import CalibrationWarning
from tests.builders import draw_samples
from tests.reference import focal_mpmath, scaling_slow as slow

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

SMOOTH = ("nll", "brier", "focal")
CRITERIA = slow.CRITERIA
INF = math.inf


class Case(NamedTuple):
    logits: Any
    labels: Any
    weights: Any = None


def drawn(seed: int, n: int, k: int, **options: float) -> Case:
    return Case(*draw_samples(n, k, seed, **options))


def repeated(case: Case) -> Case:
    return Case(*(np.repeat(part, case.weights.astype(int), axis=0) for part in case[:2]))


@functools.cache
def cases() -> dict[str, Case]:
    rng = np.random.default_rng(7)
    whole, halves = drawn(20, 80, 4), drawn(21, 90, 3)
    duplicates = drawn(22, 40, 4)
    masked = drawn(23, 120, 6)
    absent = rng.random((120, 6)) < 0.3
    absent[np.arange(120), masked.labels] = False
    few = drawn(24, 150, 10)
    return {
        "one row of two, correct": Case(np.array([[1.0, 0.3]]), np.array([0])),
        "one row of three, wrong": Case(np.array([[1.0, 0.3, -0.4]]), np.array([2])),
        "two rows": drawn(1, 2, 2),
        "seven rows": drawn(2, 7, 3),
        "sixteen rows": drawn(3, 16, 2),
        "binary": drawn(4, 300, 2),
        "ten classes": drawn(5, 60, 10),
        "forty classes": drawn(6, 300, 40, margin=5.0),
        "over-confident": drawn(8, 200, 5, spread=6.0, margin=6.0),
        "under-confident": drawn(9, 200, 5, spread=0.2, margin=0.4),
        "wrong more often than chance": drawn(10, 100, 3, margin=-3.0),
        "saturated": drawn(11, 80, 4, spread=1000.0, margin=2000.0),
        "tiny logits": drawn(12, 50, 3, spread=1e-6, margin=1e-6),
        "shifted": Case(drawn(13, 60, 3).logits + 1e6, drawn(13, 60, 3).labels),
        "rows three times over": Case(
            np.tile(duplicates.logits, (3, 1)),
            np.concatenate([duplicates.labels, duplicates.labels, rng.integers(0, 4, size=40)]),
        ),
        "masked classes": Case(np.where(absent, -INF, masked.logits), masked.labels),
        "classes without labels": Case(few.logits, np.minimum(few.labels, 2)),
        "whole weights": Case(*whole[:2], rng.integers(1, 5, size=80).astype(float)),
        "weights with zeros": Case(*whole[:2], rng.integers(0, 3, size=80).astype(float)),
        "weights of any size": Case(*halves[:2], rng.random(90) + 0.05),
    }


QUICK = ("one row of two, correct", "saturated", "masked classes", "weights with zeros")
assert set(QUICK) <= set(cases())
CASES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in cases()]
"""A table of 5000 points takes seconds for each, so most are slow tests."""


@functools.cache
def tables(name: str) -> dict[str, Any]:
    case = cases()[name]
    present = np.full(len(case.labels), True) if case.weights is None else case.weights > 0
    weights = None if case.weights is None else case.weights[present]
    return slow.grid_tables(case.logits[present], case.labels[present], weights)


def value_at(case: Case, criterion: str, gamma: float, temperature: float, **options: Any) -> float:
    present = np.full(len(case.labels), True) if case.weights is None else case.weights > 0
    weights = None if case.weights is None else case.weights[present]
    return slow.value_at(
        criterion,
        case.logits[present],
        case.labels[present],
        gamma,
        temperature,
        weights,
        **options,
    )


def warned_fit(calibrator: Any, *args: Any, **options: Any) -> list[str]:
    """Fit, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calibrator.fit(*args, **options)
    assert {w.category for w in caught} <= {CalibrationWarning}
    return [str(w.message) for w in caught]


# --- the search over (gamma, T) ------------------------------------------------------------------


@functools.cache
def found_on_grid(name: str, criterion: str) -> FocalTemperatureScaling:
    return FocalTemperatureScaling(criterion=criterion, search="grid").fit(*cases()[name])


# By the likelihood the reference takes two seconds a case.
@pytest.mark.parametrize(
    "criterion",
    [pytest.param(c, marks=pytest.mark.slow) if c == "nll" else c for c in CRITERIA],
)
@pytest.mark.parametrize("name", CASES)
def test_the_grid_finds_the_lowest_of_all_5000_points(name, criterion):
    case, table = cases()[name], tables(name)[criterion]
    found = found_on_grid(name, criterion)
    i = slow.PAPER_GAMMAS.index(found.gamma_)
    j = slow.PAPER_TEMPERATURES.index(found.temperature_)
    assert table[i, j] <= table.min() + 1e-9
    assert found.report_.after == pytest.approx(table[i, j], abs=1e-9)
    assert found.report_.before == pytest.approx(value_at(case, criterion, 0.0, 1.0), abs=1e-9)
    assert found.report_.criterion == criterion


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", CASES)
def test_refining_is_never_worse_than_the_grid(name, criterion):
    case, table = cases()[name], tables(name)[criterion]
    found = FocalTemperatureScaling(criterion=criterion, search="refine").fit(*case)
    assert found.temperature_ > 0
    assert found.gamma_ >= -1
    value = value_at(case, criterion, found.gamma_, found.temperature_)
    assert value <= table.min() + 1e-9
    assert found.report_.after == pytest.approx(value, abs=1e-9)
    assert found.report_.after <= found_on_grid(name, criterion).report_.after


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", CASES)
def test_the_line_needs_few_points_and_reports_what_it_found(name, criterion):
    case, table = cases()[name], tables(name)[criterion]
    found = FocalTemperatureScaling(criterion=criterion, search="line").fit(*case)
    # The value of the raw probabilities, for the report, is no point of the search.
    assert found.report_.evaluations <= 3 * 500 + 1
    assert found.temperature_ > 0
    assert found.gamma_ >= -1
    value = value_at(case, criterion, found.gamma_, found.temperature_)
    assert found.report_.after == pytest.approx(value, abs=1e-9)
    assert value <= np.median(table)


@pytest.mark.parametrize(
    "search", ["line", *(pytest.param(s, marks=pytest.mark.slow) for s in ("grid", "refine"))]
)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_whole_weights_are_repetitions(criterion, search):
    case = cases()["weights with zeros"]
    make = functools.partial(FocalTemperatureScaling, criterion=criterion, search=search)
    weighted, longer = make().fit(*case), make().fit(*repeated(case))
    assert weighted.report_.after == pytest.approx(longer.report_.after, abs=1e-9)
    ours = value_at(case, criterion, weighted.gamma_, weighted.temperature_)
    theirs = value_at(case, criterion, longer.gamma_, longer.temperature_)
    assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_order_of_the_rows_does_not_matter(criterion):
    case = cases()["rows three times over"]
    order = np.random.default_rng(0).permutation(len(case.labels))
    one = FocalTemperatureScaling(criterion=criterion).fit(*case)
    other = FocalTemperatureScaling(criterion=criterion).fit(case.logits[order], case.labels[order])
    assert one.report_.after == pytest.approx(other.report_.after, abs=1e-12)


@pytest.mark.parametrize("n_bins", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40))])
@pytest.mark.parametrize("criterion", ["ece", "ada_ece"])
def test_the_number_of_bins_is_that_asked_for(criterion, n_bins):
    case = cases()["ten classes"]
    table = slow.grid_tables(*case, criteria=(criterion,), n_bins=n_bins)[criterion]
    found = FocalTemperatureScaling(criterion=criterion, n_bins=n_bins).fit(*case)
    assert found.report_.after == pytest.approx(table.min(), abs=1e-9)
    scaled = TemperatureScaling(criterion=criterion, n_bins=n_bins).fit(*case)
    assert scaled.report_.after <= table[slow.PAPER_GAMMAS.index(0.0)].min() + 1e-9


@pytest.mark.parametrize("search", ["grid", "line", "refine"])
def test_the_edge_of_the_grid_is_warned_of(search):
    logits, labels = drawn(30, 400, 3)[:2]
    found = FocalTemperatureScaling(criterion="nll", search=search)
    messages = warned_fit(found, 20.0 * logits, labels)
    if search == "refine" and found.temperature_ > 5.0:
        return  # it went on beyond the grid, and nothing is lost
    assert found.report_.at_bound is not None
    assert any("temperature" in message for message in messages)
    assert len(found.report_.warnings) == len(messages)


def test_a_result_inside_the_grid_has_no_bound():
    logits, labels = drawn(31, 4000, 3, spread=1.0, margin=1.5)[:2]
    found = FocalTemperatureScaling(criterion="nll")
    assert warned_fit(found, logits, labels) == []
    assert found.report_.at_bound is None


def test_a_given_grid_is_saved_and_its_edges_are_warned_of(tmp_path):
    case = cases()["ten classes"]
    found = FocalTemperatureScaling(gammas=np.array([2.0]), temperatures=(0.5, 0.1, 0.2))
    messages = warned_fit(found, *case)
    assert any("at a bound of the search (T = 0.5)" in message for message in messages)
    found.save(tmp_path / "cal.json")
    again = calibrant.load(tmp_path / "cal.json")
    assert again.state_ == found.state_ == {"gamma": 2.0, "temperature": 0.5}
    assert again.get_params() == found.get_params() | {
        "gammas": [2.0],
        "temperatures": [0.5, 0.1, 0.2],
    }


# --- one temperature -----------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", CASES)
def test_temperature_scaling_is_no_worse_than_any_point_of_the_grid(name, criterion):
    case, table = cases()[name], tables(name)[criterion][slow.PAPER_GAMMAS.index(0.0)]
    found = TemperatureScaling(criterion=criterion).fit(*case)
    assert 0 < found.temperature_ < INF
    value = value_at(case, criterion, 0.0, found.temperature_)
    assert value <= table.min() + 1e-9
    assert found.report_.after == pytest.approx(value, abs=1e-9)
    assert found.report_.before == pytest.approx(value_at(case, criterion, 0.0, 1.0), abs=1e-9)


@functools.cache
def small_cases() -> dict[str, Case]:
    saturated = drawn(43, 12, 3, spread=300.0, margin=300.0)
    masked = drawn(44, 20, 4)
    logits = masked.logits.copy()
    logits[::2, 3] = np.where(masked.labels[::2] == 3, logits[::2, 3], -INF)
    return {
        "binary": drawn(40, 25, 2),
        "five classes": drawn(41, 30, 5),
        "over-confident": drawn(42, 20, 3, spread=5.0, margin=4.0),
        "saturated": saturated,
        "masked": Case(logits, masked.labels),
        "ties": Case(np.round(drawn(45, 30, 3).logits), drawn(45, 30, 3).labels),
        "weights": Case(*drawn(46, 20, 3)[:2], np.random.default_rng(0).random(20) + 0.1),
    }


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        pytest.param(
            name,
            criterion,
            marks=[] if name in ("masked", "weights") else pytest.mark.slow,
        )
        for name, criterion in itertools.product(small_cases(), SMOOTH)
    ],
)
def test_the_temperature_is_that_of_mpmath(name, criterion):
    case = small_cases()[name]
    exact = slow.best_temperature(criterion, *case, digits=12)
    assert 0 < exact < INF
    found = TemperatureScaling(criterion=criterion).fit(*case)
    assert found.temperature_ == pytest.approx(float(exact), rel=1e-6)
    assert found.report_.at_bound is None
    if criterion == "nll":
        assert abs(found.report_.gradient) < 1e-6


@pytest.mark.parametrize(
    "focal_gamma", [0.0, 2.0, *(pytest.param(g, marks=pytest.mark.slow) for g in (1.0, 5.0))]
)
def test_the_focal_criterion_has_its_gamma(focal_gamma):
    case = small_cases()["five classes"]
    exact = slow.best_temperature("focal", *case, focal_gamma=focal_gamma, digits=12)
    found = TemperatureScaling(criterion="focal", focal_gamma=focal_gamma).fit(*case)
    assert found.temperature_ == pytest.approx(float(exact), rel=1e-6)
    expected = value_at(case, "focal", 0.0, found.temperature_, focal_gamma=focal_gamma)
    assert found.report_.after == pytest.approx(expected, abs=1e-12)
    if focal_gamma == 0.0:
        nll = TemperatureScaling().fit(*case)
        assert found.temperature_ == pytest.approx(nll.temperature_, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 0.1, 7.0, 1e3, 1e6])
@pytest.mark.parametrize("criterion", SMOOTH)
def test_the_temperature_scales_with_the_logits(criterion, factor):
    logits, labels = drawn(50, 200, 4)[:2]
    base = TemperatureScaling(criterion=criterion).fit(logits=logits, labels=labels)
    scaled = TemperatureScaling(criterion=criterion).fit(factor * logits, labels)
    assert scaled.temperature_ / factor == pytest.approx(base.temperature_, rel=1e-6)
    assert scaled.report_.after == pytest.approx(base.report_.after, rel=1e-9)
    assert scaled.report_.at_bound is None


@pytest.mark.parametrize("size", [1e20, 1e30, 1e-30])
@pytest.mark.parametrize("criterion", SMOOTH)
def test_logits_of_any_size(criterion, size):
    logits, labels = drawn(51, 150, 3)[:2]
    base = TemperatureScaling(criterion=criterion).fit(logits=logits, labels=labels)
    scaled = TemperatureScaling(criterion=criterion).fit(size * logits, labels)
    assert scaled.temperature_ / size == pytest.approx(base.temperature_, rel=1e-6)


@pytest.mark.parametrize("criterion", SMOOTH)
def test_weights_count_as_repetitions(criterion):
    case = cases()["whole weights"]
    weighted = TemperatureScaling(criterion=criterion).fit(*case)
    longer = TemperatureScaling(criterion=criterion).fit(*repeated(case))
    assert weighted.temperature_ == pytest.approx(longer.temperature_, rel=1e-7)
    scaled = TemperatureScaling(criterion=criterion).fit(*case[:2], 1e-9 * case.weights)
    assert scaled.temperature_ == pytest.approx(weighted.temperature_, rel=1e-7)


# --- the two limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("criterion", SMOOTH)
def test_worse_than_chance_ends_at_the_uniform_limit(criterion, k, size):
    logits = size * drawn(60, 200, k).logits
    labels = logits.argmin(axis=1)
    found = TemperatureScaling(criterion=criterion)
    messages = warned_fit(found, logits, labels)
    assert 0 < found.temperature_ < INF
    assert found.report_.at_bound is not None
    assert any("chance" in message for message in messages)
    probs = found.predict_proba(logits=logits)
    assert np.abs(probs - 1 / k).max() < 1e-4
    assert (probs.argmax(axis=1) == logits.argmax(axis=1)).all()


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("criterion", SMOOTH)
def test_all_right_ends_at_the_certain_limit(criterion, k, size):
    logits = size * drawn(61, 200, k).logits
    labels = logits.argmax(axis=1)
    found = TemperatureScaling(criterion=criterion)
    messages = warned_fit(found, logits, labels)
    assert 0 < found.temperature_ < INF
    assert found.report_.at_bound is not None
    assert messages
    probs = found.predict_proba(logits=logits)
    assert np.isfinite(probs).all()
    assert (probs.argmax(axis=1) == labels).all()
    assert found.report_.after < 1e-6


@pytest.mark.parametrize("search", ["grid", "line", "refine"])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("limit", ["correct", "wrong"])
def test_both_limits_of_the_search(limit, criterion, search):
    logits = drawn(62, 150, 3).logits
    labels = logits.argmax(axis=1) if limit == "correct" else logits.argmin(axis=1)
    found = FocalTemperatureScaling(criterion=criterion, search=search)
    messages = warned_fit(found, logits, labels)
    assert 0 < found.temperature_ < INF
    probs = found.predict_proba(logits=logits)
    assert np.isfinite(probs).all()
    assert (probs.argmax(axis=1) == logits.argmax(axis=1)).all()
    if criterion in SMOOTH:
        assert messages
        assert found.report_.at_bound is not None


@pytest.mark.parametrize(
    ("make", "criterion"),
    [
        *itertools.product([TemperatureScaling], CRITERIA),
        *itertools.product([FocalTemperatureScaling], SMOOTH),
        *(
            pytest.param(FocalTemperatureScaling, criterion, marks=pytest.mark.slow)
            for criterion in ("ece", "ada_ece")  # every point of the grid is as good
        ),
    ],
)
def test_one_sample(make, criterion):
    for row, label in itertools.product(
        ([0.0, 0.0], [2.0, -1.0], [0.0, 1e30], [5.0, -INF, 4.0], [1e-30, 0.0]), (0, 1)
    ):
        if row[label] == -INF:
            continue
        found = make(criterion=criterion).fit(np.array([row]), np.array([label]))
        assert 0 < found.temperature_ < INF
        assert math.isfinite(found.report_.after)
        probs = found.predict_proba(np.array([row]))
        assert np.isfinite(probs).all()
        assert probs.argmax() == np.argmax(row)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("make", [TemperatureScaling, FocalTemperatureScaling])
def test_rows_that_say_nothing(make, criterion):
    found = make(criterion=criterion).fit(np.full((150, 3), 4.0), np.arange(150) % 3)
    assert 0 < found.temperature_ < INF
    assert found.predict_proba(np.full((1, 3), 4.0)) == pytest.approx(np.full((1, 3), 1 / 3))


@given(
    logits=hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 12), st.integers(2, 5)),
        elements=st.one_of(
            st.floats(-5, 5), st.floats(-1e30, 1e30), st.sampled_from([0.0, 1.0, -INF, 1e4, -1e4])
        ),
    ),
    data=st.data(),
)
@pytest.mark.parametrize(
    ("make", "criterion"),
    [
        *itertools.product([TemperatureScaling], SMOOTH),
        (FocalTemperatureScaling, "nll"),
        pytest.param(TemperatureScaling, "ece", marks=pytest.mark.slow),
        pytest.param(TemperatureScaling, "ada_ece", marks=pytest.mark.slow),
        pytest.param(FocalTemperatureScaling, "ada_ece", marks=pytest.mark.slow),  # a second each
    ],
)
def test_never_nan_never_another_class(make, criterion, logits, data):
    logits[np.isneginf(logits).all(axis=1), 0] = 0.0
    labels = np.array([data.draw(st.sampled_from(np.flatnonzero(row > -INF))) for row in logits])
    found = make(criterion=criterion).fit(logits=logits, labels=labels)
    assert 0 < found.temperature_ < INF
    assert math.isfinite(found.report_.after)
    probs, log_probs = found.predict_proba(logits=logits), found.predict_log_proba(logits=logits)
    assert np.isfinite(probs).all()
    assert not np.isnan(log_probs).any()
    assert probs.sum(axis=1) == pytest.approx(np.ones(len(probs)), abs=1e-12)
    assert (probs.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert (found.predict(logits=logits) == logits.argmax(axis=1)).all()
    assert (probs[np.isneginf(logits)] == 0).all()


# --- what comes in, and what goes out ------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("make", [TemperatureScaling, FocalTemperatureScaling])
def test_half_precision(make, criterion):
    case = drawn(70, 150, 4)
    half = case.logits.astype(np.float16)
    found = make(criterion=criterion).fit(half, case.labels)
    wide = make(criterion=criterion).fit(half.astype(np.float64), case.labels)
    assert found.report_.after == pytest.approx(wide.report_.after, abs=1e-6)
    probs = found.predict_proba(logits=half)
    assert probs.dtype == np.float32
    assert probs == pytest.approx(found.predict_proba(half.astype(np.float64)), abs=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("make", [TemperatureScaling, FocalTemperatureScaling])
def test_single_precision_is_as_good_as_double(make, criterion):
    case = drawn(71, 300, 6)
    single = case.logits.astype(np.float32)
    found = make(criterion=criterion).fit(single, case.labels)
    wide = make(criterion=criterion).fit(single.astype(np.float64), case.labels)
    assert found.report_.after == pytest.approx(wide.report_.after, abs=1e-9)
    assert found.temperature_ == pytest.approx(wide.temperature_, rel=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        Identity,
        TemperatureScaling,
        functools.partial(FocalTemperatureScaling, criterion="nll"),
        functools.partial(FocalCalibration, gamma=2.0),
    ],
)
def test_every_library_gets_its_own_arrays_back(make, library):
    logits, labels = drawn(72, 120, 4)[:2]
    expected = make().fit(logits=logits, labels=labels)
    found = make().fit(library.make(logits), library.make(labels))
    assert found.state_ == expected.state_
    for method in ("predict_proba", "predict_log_proba", "predict"):
        ours = library.numpy(getattr(found, method)(library.make(logits)))
        assert ours == pytest.approx(getattr(expected, method)(logits), rel=1e-12)


def test_torch_keeps_type_device_and_gradient():
    logits, labels = drawn(73, 120, 4)[:2]
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    found = TemperatureScaling().fit(tensor, torch.tensor(labels))
    log_probs = found.predict_log_proba(logits=tensor)
    assert log_probs.dtype == torch.float32
    log_probs[:, 0].sum().backward()
    assert torch.isfinite(tensor.grad).all()
    assert bool((tensor.grad != 0).any())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [-1.0, -0.5, 0.0, 1.0, 5.0])
def test_focal_calibration_is_the_map(gamma, temperature):
    case = drawn(74, 120, 3, spread=8.0)
    found = FocalCalibration(gamma=gamma).fit(*case)
    assert found.gamma_ == gamma
    rows = case.logits[:5] / temperature
    log_probs = found.predict_log_proba(logits=rows)
    for row, ours in zip(rows, log_probs, strict=True):
        exact = focal_mpmath.stable(focal_mpmath.focal_log_probs, row.tolist(), gamma)
        assert ours == pytest.approx([float(v) for v in exact], rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("search", ["grid", "refine"])
def test_both_numbers_make_the_map(search):
    case = cases()["over-confident"]
    found = FocalTemperatureScaling(search=search).fit(*case)
    expected = slow.focal_log_probs(case.logits, found.gamma_, found.temperature_)
    assert found.predict_log_proba(case.logits) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_identity_is_the_softmax():
    case = cases()["ten classes"]
    found = Identity().fit(*case)
    assert found.predict_proba(case.logits) == pytest.approx(slow.softmax(case.logits, 1.0))
    assert found.report_.before == found.report_.after
    assert found.report_.after == pytest.approx(value_at(case, "nll", 0.0, 1.0))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [TemperatureScaling, FocalTemperatureScaling])
def test_unknown_names_and_counts_are_refused(make):
    case = cases()["binary"]
    with pytest.raises(ValueError, match=r"criterion must be one of .*Did you mean 'brier'"):
        make(criterion="briar").fit(*case)
    with pytest.raises(ValueError, match="n_bins must be"):
        make(criterion="ece", n_bins=0).fit(*case)
    with pytest.raises(ValueError, match="n_bins must be a whole number"):
        make(criterion="ece", n_bins=2.5).fit(*case)


def test_options_of_the_search_are_checked():
    case = cases()["binary"]
    with pytest.raises(ValueError, match="search must be one of grid, line, refine"):
        FocalTemperatureScaling(search="random").fit(*case)
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        TemperatureScaling(criterion="focal", focal_gamma=-1.0).fit(*case)
    with pytest.raises(ValueError, match="gamma must be at least -1"):
        FocalCalibration(gamma=-1.5).fit(*case)
    with pytest.raises(ValueError, match=r"grid must be one or more numbers from 0.001 to 1000"):
        TemperatureScaling(grid=[]).fit(*case)
    with pytest.raises(ValueError, match=r"temperatures must be .* found list \[0.0, 1.0\]"):
        FocalTemperatureScaling(temperatures=[0.0, 1.0]).fit(*case)
    with pytest.raises(ValueError, match=r"gammas must be .* found float 3.0. Pass them as a seq"):
        FocalTemperatureScaling(gammas=3.0).fit(*case)
    with pytest.raises(ValueError, match="gammas can only be given with search='grid'"):
        FocalTemperatureScaling(gammas=[3.0], search="line").fit(*case)


# --- what others get wrong -----------------------------------------------------------------------


def test_probabilities_in_single_precision_are_calibrated():
    """Elsewhere a tolerance on float32 gradients stops the search where it started, at 1."""
    logits, labels = drawn(80, 2000, 3, spread=1.0, margin=1.5)[:2]
    probs = slow.softmax(4.0 * logits, 1.0).astype(np.float32)
    found = TemperatureScaling().fit(probs=probs, labels=labels)
    exact = TemperatureScaling().fit(4.0 * logits, labels)
    assert exact.temperature_ > 2.0
    assert found.temperature_ == pytest.approx(exact.temperature_, rel=1e-3)
    assert found.report_.after < found.report_.before - 0.1


def test_no_temperature_turns_the_order_round():
    """Elsewhere a model that is worse than chance gets T < 0, and predicts the other class."""
    logits = drawn(81, 500, 2).logits
    with pytest.warns(CalibrationWarning, match="chance"):
        found = TemperatureScaling().fit(logits, 1 - logits.argmax(axis=1))
    assert found.temperature_ > 0
    assert (found.predict(logits=logits) == logits.argmax(axis=1)).all()


def test_large_logits_need_no_more_steps():
    """Elsewhere T starts at 1 and runs out of steps: 17.8 instead of 2001."""
    logits, labels = drawn(82, 1000, 5)[:2]
    base = TemperatureScaling().fit(logits=logits, labels=labels)
    large = TemperatureScaling().fit(1000.0 * logits, labels)
    assert large.temperature_ == pytest.approx(1000.0 * base.temperature_, rel=1e-6)
    assert large.report_.evaluations < 100


def test_the_public_names():
    assert calibrant.CALIBRATORS["temperature"] is TemperatureScaling
    assert calibrant.CALIBRATORS["focal-temperature"] is FocalTemperatureScaling
    assert calibrant.CALIBRATORS["focal"] is FocalCalibration
    assert calibrant.CALIBRATORS["identity"] is Identity
