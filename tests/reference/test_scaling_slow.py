"""The reference of temperature scaling judged by known values, mpmath and the slow metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from . import focal_mpmath, metrics_slow
from .scaling_slow import (
    CRITERIA,
    PAPER_GAMMAS,
    PAPER_TEMPERATURES,
    best_temperature,
    criterion_value,
    equal_mass_ece,
    equal_width_ece,
    focal_log_probs,
    grid_tables,
    log_softmax_and_rest,
    softmax,
    value_at,
)

INF = math.inf


def problem(seed: int, n: int, k: int, spread: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, size=n)
    logits = spread * rng.normal(size=(n, k))
    logits[np.arange(n), labels] += 1.5
    return logits, labels


# --- the maps ----------------------------------------------------------------------------------


def test_softmax_by_hand() -> None:
    assert softmax([[math.log(3.0), 0.0]], 1.0) == pytest.approx(np.array([[0.75, 0.25]]))
    assert softmax([[math.log(9.0), 0.0]], 2.0) == pytest.approx(np.array([[0.75, 0.25]]))
    assert softmax([[1e4, 0.0, -INF]], 1.0).tolist() == [[1.0, 0.0, 0.0]]


ROWS = [
    [2.0, 1.0, -1.0],
    [0.0, 0.0, 0.0],
    [3.0, 3.0, 1.0],
    [40.0, 0.0, 39.0],
    [1000.0, 0.0, -5.0],
    [1e6, 1e6 - 1e-3, 0.0],
    [2.0, -INF, 1.0],
    [1e30, -1e30, 0.0],
]


@pytest.mark.parametrize("gamma", PAPER_GAMMAS)
@pytest.mark.parametrize("temperature", [0.01, 0.37, 1.0, 5.0])
def test_the_map_agrees_with_mpmath(gamma: float, temperature: float) -> None:
    ours = focal_log_probs(ROWS, gamma, temperature)
    for row, found in zip(ROWS, ours, strict=True):
        exact = focal_mpmath.stable(focal_mpmath.focal_log_probs, row, gamma, temperature)
        for a, b in zip(found, exact, strict=True):
            if b == -mp.inf:
                assert a == -INF
            else:
                # exp(log q) is what the criteria see; far down, the logarithm itself counts.
                assert abs(mpf(float(a)) - b) <= 1e-13 * max(1, abs(b))


def test_one_class_left_is_certain() -> None:
    for gamma in (-0.5, 0.0, 5.0):
        assert focal_log_probs([[1.0, -INF]], gamma, 0.5).tolist() == [[0.0, -INF]]


def test_the_rest_is_never_lost() -> None:
    log_q, log_rest = log_softmax_and_rest([[50.0, 0.0], [0.0, 1000.0]], 1.0)
    assert log_rest[0, 0] == pytest.approx(-50.0, rel=1e-15)
    assert log_q[0, 0] == pytest.approx(-math.exp(-50.0), rel=1e-13)
    assert log_rest[1, 1] == -1000.0


def test_gamma_zero_is_the_softmax() -> None:
    logits, _ = problem(0, 20, 5)
    assert np.exp(focal_log_probs(logits, 0.0, 1.7)) == pytest.approx(softmax(logits, 1.7))


# --- the criteria ------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("n_bins", [1, 4, 15])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 100])
def test_binned_errors_agree_with_exact_fractions(
    n: int, n_bins: int, ties: bool, whole: bool
) -> None:
    rng = np.random.default_rng(n + n_bins)
    confidence = rng.integers(0, 9, size=n) / 8 if ties else rng.random(n)
    correct = rng.integers(0, 2, size=n).astype(float)
    w = rng.integers(1, 4, size=n).astype(float) if whole else rng.random(n) + 0.01
    for ours, exact in [
        (equal_width_ece, metrics_slow.ece),
        (equal_mass_ece, metrics_slow.ada_ece),
    ]:
        assert ours(confidence, correct, n_bins, w) == pytest.approx(
            exact(confidence, correct, n_bins, weights=w), abs=1e-14
        )


def test_criteria_agree_with_the_slow_metrics() -> None:
    logits, labels = problem(1, 60, 4)
    w = np.random.default_rng(2).integers(1, 4, size=60)
    log_probs = focal_log_probs(logits, 0.75, 1.3)
    probs = np.exp(log_probs)
    confidence, correct = metrics_slow.top_label(probs, labels)
    expected = {
        "nll": metrics_slow.nll(probs, labels, w),
        "brier": metrics_slow.brier(probs, labels, w),
        "focal": metrics_slow.focal(probs, labels, 2.0, w),
        "ece": metrics_slow.ece(confidence, correct, 10, weights=w),
        "ada_ece": metrics_slow.ada_ece(confidence, correct, 10, weights=w),
    }
    for name, value in expected.items():
        found = criterion_value(name, log_probs, logits, labels, w, focal_gamma=2.0, n_bins=10)
        assert found == pytest.approx(value, abs=1e-13)


def test_criteria_by_hand() -> None:
    logits, labels = [[math.log(3.0), 0.0], [math.log(3.0), 0.0]], [0, 1]
    assert value_at("nll", logits, labels, 0.0, 1.0) == pytest.approx(math.log(16 / 3) / 2)
    assert value_at("brier", logits, labels, 0.0, 1.0) == pytest.approx((2 / 16 + 18 / 16) / 2)
    assert value_at("focal", logits, labels, 0.0, 1.0, focal_gamma=2.0) == pytest.approx(
        (math.log(4 / 3) / 16 + math.log(4) * 9 / 16) / 2
    )
    assert value_at("ece", logits, labels, 0.0, 1.0) == pytest.approx(0.25)
    assert value_at("ada_ece", logits, labels, 0.0, 1.0) == pytest.approx(0.25)
    # Two bins of one each: without the rule for ties, one row order would give (.25 + .75) / 2.
    assert value_at("ada_ece", logits, labels, 0.0, 1.0, n_bins=2) == pytest.approx(0.25)


# --- the grid ----------------------------------------------------------------------------------


def test_the_grid_is_that_of_the_paper() -> None:
    assert len(PAPER_TEMPERATURES) == 500
    assert PAPER_TEMPERATURES[0] == 0.01
    assert PAPER_TEMPERATURES[28] == 0.29  # 0.01 added 29 times gives 0.29000000000000004
    assert PAPER_TEMPERATURES[-1] == 5.0
    assert len(PAPER_GAMMAS) == 10
    assert 0.0 in PAPER_GAMMAS


def test_tables_hold_what_value_at_gives() -> None:
    logits, labels = problem(3, 40, 3)
    tables = grid_tables(logits, labels, temperatures=(0.5, 1.0, 2.0))
    assert set(tables) == set(CRITERIA)
    for name, table in tables.items():
        assert table.shape == (10, 3)
        assert np.isfinite(table).all()
        for i, gamma in enumerate(PAPER_GAMMAS):
            for j, temperature in enumerate((0.5, 1.0, 2.0)):
                assert table[i, j] == value_at(name, logits, labels, gamma, temperature)


def test_the_grid_finds_the_map_that_made_the_data() -> None:
    # Two kinds of rows whose right shares are those of gamma 1 at T 2: a proper score is lowest
    # there, and the calibration error is 0.
    logits = np.array([[2.0, 0.0]] * 1000 + [[5.0, 0.0]] * 1000)
    shares = np.exp(focal_log_probs(logits, 1.0, 2.0))[[0, 1000], 0]
    labels = np.concatenate([np.arange(1000) >= round(1000 * share) for share in shares])
    tables = grid_tables(
        logits, labels.astype(int), gammas=(0.0, 0.5, 1.0, 5.0), temperatures=(1.0, 1.5, 2.0, 2.5)
    )
    for name in ("nll", "brier", "ece"):
        best = np.unravel_index(tables[name].argmin(), (4, 4))
        assert tuple(map(int, best)) == (2, 2), name


# --- the best temperature ----------------------------------------------------------------------


def test_best_temperature_in_closed_form() -> None:
    # One gap s in every row, right with the share a: the best p is a, so T = s / log(a / (1 - a)).
    logits, labels = [[3.0, 0.0]] * 4, [0, 0, 0, 1]
    with mp.workdps(40):
        expected = 3 / mp.log(3)
        for criterion in ("nll", "brier"):
            found = best_temperature(criterion, logits, labels)
            assert abs(found / expected - 1) < mpf(10) ** -30, criterion
        weighted = best_temperature("nll", logits[:2], [0, 1], [2.5, 0.5])
        assert abs(weighted - 3 / mp.log(5)) < mpf(10) ** -30


def test_best_temperature_of_the_focal_loss_is_the_inverse_of_the_map() -> None:
    # The focal loss is lowest where the map gives the share: q* = .6266 for .8 and gamma 2.
    found = best_temperature("focal", [[3.0, 0.0]] * 5, [0, 0, 0, 0, 1], focal_gamma=2.0)
    q = 1 / (1 + mp.exp(-3 / found))
    assert float(q) == pytest.approx(0.6266, abs=5e-5)
    exact = focal_mpmath.stable(focal_mpmath.inverse_focal_map, [0.8, 0.2], 2.0)[0]
    assert abs(q - exact) < 1e-15  # 0.8 is a double


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["nll", "brier", "focal"])
def test_best_temperature_scales_with_the_logits(criterion: str) -> None:
    logits, labels = problem(4, 25, 3)
    base = best_temperature(criterion, logits, labels)
    assert abs(best_temperature(criterion, 1024.0 * logits, labels) / base - 1024) < 1e-25
    assert abs(best_temperature(criterion, logits / 1024.0, labels) * 1024 / base - 1) < 1e-25


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["nll", "brier", "focal"])
def test_best_temperature_beats_the_grid(criterion: str) -> None:
    logits, labels = problem(5, 40, 4)
    table = grid_tables(logits, labels, gammas=(0.0,), criteria=(criterion,))[criterion][0]
    found = float(best_temperature(criterion, logits, labels))
    value = value_at(criterion, logits, labels, 0.0, found)
    assert value <= table.min()
    assert abs(found - PAPER_TEMPERATURES[int(table.argmin())]) < 0.011


@pytest.mark.parametrize("criterion", ["nll", "brier", "focal"])
def test_best_temperature_at_its_limits(criterion: str) -> None:
    logits, _ = problem(6, 10, 3)
    right, lowest = logits.argmax(axis=1), logits.argmin(axis=1)
    assert best_temperature(criterion, logits, right) == 0
    assert best_temperature(criterion, logits, lowest) == mp.inf
    with pytest.raises(ValueError, match="any temperature"):
        best_temperature(criterion, [[1.0, 1.0]], [0])


@pytest.mark.slow
def test_absent_classes_do_not_move_the_temperature() -> None:
    logits, labels = problem(7, 20, 3)
    masked = np.concatenate([logits, np.full((20, 1), -INF)], axis=1)
    for criterion in ("nll", "brier", "focal"):
        assert best_temperature(criterion, masked, labels) == best_temperature(
            criterion, logits, labels
        )
