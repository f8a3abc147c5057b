"""The compiled passes and the search, against slow and exact ways to the same numbers."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit

from calibrant import FocalTemperatureScaling, TemperatureScaling, ada_ece, ece
from calibrant._numerics.compiled import log_positive
from calibrant.calibrators import CalibrationWarning
from calibrant.calibrators.data import FitData
from calibrant.calibrators.temperature import kernels, search_kernels
from calibrant.calibrators.temperature.criterion import EvaluatorInMemory
from calibrant.calibrators.temperature.grid_pruning import (
    chebyshev_nodes,
    interpolation,
    smallest_on_grid,
    tail_coefficients,
)
from calibrant.calibrators.temperature.interpolated_errors import mass_error, width_error
from calibrant.calibrators.temperature.search import GAMMAS, TEMPERATURES, grid, line, refine
from calibrant.focal import focal_log_probs, phi
from calibrant.metrics.binning import all_whole, mass_edges, width_edges

CRITERIA = {"ada_ece": ada_ece, "ece": ece}


@njit
def logs(values: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    for i in range(len(values)):
        out[i] = log_positive(values[i])
    return out


def samples(n: int, k: int, *, scale: float = 2.0, seed: int = 0) -> FitData:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, k)) * scale
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return FitData(truth * rng.uniform(0.4, 2.5), labels, None)


def evaluator(data: FitData, criterion: str = "ada_ece", n_bins: int = 15) -> EvaluatorInMemory:
    return EvaluatorInMemory(data, criterion, n_bins=n_bins, focal_gamma=3.0)


def public_values(data: FitData, criterion: str, temperatures: np.ndarray) -> np.ndarray:
    """The criterion at every point of a grid, through the public functions alone."""
    metric = CRITERIA[criterion]
    return np.array(
        [
            [
                metric(
                    np.exp(focal_log_probs(data.logits, gamma=float(g), temperature=float(t))),
                    data.labels,
                    sample_weight=data.weight,
                )
                for t in temperatures
            ]
            for g in GAMMAS
        ]
    )


def test_logarithm_is_exact_to_rounding() -> None:
    values = np.exp(np.random.default_rng(0).uniform(-700, 700, 20_000))
    values[:4] = [1.0, np.nextafter(1.0, 0), np.nextafter(1.0, 2), math.sqrt(0.5)]
    expected = np.log(values)
    assert np.all(np.abs(logs(values) - expected) <= 2e-16 + 3e-16 * np.abs(expected))


def hostile_logits(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 6)) * np.logspace(-3, 4, 200)[:, None]
    rows[10, 2:] = -np.inf
    rows[11, 1:] = -np.inf
    rows[12] = 0.0
    rows[13] = [5, 5, 1, 0, 0, -1]
    rows[14] = [1e30, -1e30, 0, 0, 0, 0]
    rows[15] = [800, 0, 0, 0, 0, 0]
    rows[16] = [1.0, np.nextafter(np.float32(1.0), np.float32(0)), 0, 0, 0, 0]
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gamma", [-0.9, -0.5, 0.0, 0.05, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 7.0])
def test_compiled_map_is_the_map(dtype: str, gamma: float, temperature: float) -> None:
    logits = hostile_logits(dtype)
    step = float(np.finfo(dtype).eps)
    out = np.empty_like(logits)
    kernels.map_probs(logits, 1.0 / temperature, gamma, step, out)
    expected = focal_log_probs(logits.astype(np.float64), gamma=gamma, temperature=temperature)
    assert np.all(np.isfinite(out))
    tolerance = step + 4e-14 * (1.0 + gamma)
    np.testing.assert_allclose(out, np.exp(expected), atol=tolerance)
    assert np.array_equal(out.argmax(axis=1), logits.argmax(axis=1))
    tied = logits == logits.max(axis=1, keepdims=True)
    assert np.array_equal(out == out.max(axis=1, keepdims=True), tied)

    labels = np.where(logits[:, 3] > -np.inf, 3, 0)
    log_odds, true_log_prob, distances = (np.empty(len(logits)) for _ in range(3))
    kernels.map_rows(logits, labels, 1.0 / temperature, gamma, log_odds, true_log_prob, distances)
    np.testing.assert_allclose(
        true_log_prob, expected[np.arange(len(logits)), labels], rtol=1e-12, atol=1e-13
    )
    others = np.where(np.arange(logits.shape[1]) == labels[:, np.newaxis], 0.0, np.exp(expected))
    exact = others.sum(axis=1) ** 2 + (others**2).sum(axis=1)  # 1 - p without a difference
    np.testing.assert_allclose(distances, exact, rtol=1e-11)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            1.0 / (1.0 + np.exp(-log_odds)), np.exp(expected).max(axis=1), rtol=1e-12
        )


@pytest.mark.parametrize("gamma", GAMMAS.tolist())
def test_tail_coefficients_make_up_the_map(gamma: float) -> None:
    coefficients = tail_coefficients(np.array([gamma]))[0]
    q = np.geomspace(1e-12, 1.0 / (search_kernels.NEAR + 2), 3000)
    order = search_kernels.ORDER
    made_up = sum(
        coefficients[a, b] * q**a * np.log(q) ** b for a in range(order + 1) for b in range(a + 1)
    )
    assert np.abs(made_up - 1.0 / phi(q, gamma=gamma)).max() < 2e-6


@pytest.mark.parametrize("n_classes", [2, 3, 10, 17, 18, 60, 300])
def test_log_odds_at_nodes(n_classes: int) -> None:
    data = samples(40, n_classes, scale=3.0)
    data.logits[3, 1:] = -np.inf
    data.logits[4] = 0.0
    data.logits[5, : n_classes // 2] = -np.inf
    inverse_temperatures = np.geomspace(0.2, 100.0, 16)
    out = np.empty((len(GAMMAS), len(data), len(inverse_temperatures)))
    none = np.empty((len(data), 0))
    confidence = search_kernels.node_log_odds.sum(
        data.logits,
        none,
        none,
        np.empty(0),
        inverse_temperatures,
        GAMMAS,
        tail_coefficients(GAMMAS),
        out,
    )
    for c, gamma in enumerate(GAMMAS):
        for j, inverse_temperature in enumerate(inverse_temperatures):
            exact = evaluator(data).log_odds(float(gamma), 1.0 / float(inverse_temperature))
            finite = np.isfinite(exact)
            off = np.abs(out[c, :, j] * inverse_temperature - exact)[finite]
            assert np.all(off <= 4e-6 + 1e-12 * np.abs(exact[finite]))
            assert np.all(out[c, ~finite, j] == search_kernels.CERTAIN)
            with np.errstate(over="ignore"):
                expected = (1.0 / (1.0 + np.exp(-exact))).sum()
            assert confidence[c, j] == pytest.approx(expected, rel=1e-6)


def test_interpolation_between_nodes() -> None:
    nodes = chebyshev_nodes(-1.0, 2.0, 10, 1e-12)
    x = np.append(np.linspace(-1.0, 2.0, 50), nodes[3])
    np.testing.assert_allclose(
        interpolation(nodes, x) @ np.tanh(np.exp(-nodes)), np.tanh(np.exp(-x)), atol=1e-11
    )


@pytest.mark.parametrize("criterion", ["ada_ece", "ece"])
def test_grid_is_as_good_as_the_public_functions_at_every_point(criterion: str) -> None:
    data, temperatures = samples(60, 8, scale=4.0), TEMPERATURES[9::20]
    best = smallest_on_grid(evaluator(data, criterion), GAMMAS, temperatures)
    values = public_values(data, criterion, temperatures)
    assert best.value == pytest.approx(values.min(), abs=1e-9)
    at = values[GAMMAS.tolist().index(best.gamma), temperatures.tolist().index(best.temperature)]
    assert at == pytest.approx(best.value, abs=1e-12)


@pytest.mark.parametrize("criterion", ["ada_ece", "ece"])
@pytest.mark.parametrize(
    ("n", "k", "scale"),
    [
        (2, 2, 1.0),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(60, 10, 30.0), (400, 3, 2.0), (200, 40, 3.0), (1, 4, 1.0)]
        ),
    ],
)
def test_grid_is_as_good_as_trying_every_point(
    criterion: str, n: int, k: int, scale: float
) -> None:
    exact = evaluator(samples(n, k, scale=scale, seed=n), criterion)
    best = grid(exact)
    lowest = min(exact(float(g), float(t)) for g in GAMMAS for t in TEMPERATURES)
    assert best.value == pytest.approx(lowest, abs=1e-12)


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    k=st.integers(2, 25),
    n_bins=st.integers(1, 20),
    weighted=st.sampled_from(["no", "whole", "any"]),
    criterion=st.sampled_from(["ada_ece", "ece"]),
)
def test_no_point_of_the_grid_is_better(
    seed: int, n: int, k: int, n_bins: int, weighted: str, criterion: str
) -> None:
    rng = np.random.default_rng(seed)
    data = samples(n, k, scale=float(rng.choice([0.3, 3.0, 40.0])), seed=seed)
    if n > 3:
        data.logits[1] = data.logits[0]  # tied rows
    weight = {
        "no": None,
        "whole": rng.integers(1, 4, n).astype(float),
        "any": rng.uniform(0.1, 3.0, n),
    }[weighted]
    exact = evaluator(FitData(data.logits, data.labels, weight), criterion, n_bins)
    gammas, temperatures = np.array([-0.5, 0.0, 1.0, 5.0]), TEMPERATURES[9::20]
    best = smallest_on_grid(exact, gammas, temperatures)
    lowest = min(exact(float(g), float(t)) for g in gammas for t in temperatures)
    assert best.value == pytest.approx(lowest, abs=1e-12)


@pytest.mark.parametrize(
    ("criterion", "n"),
    [
        *(("nll", 300), ("brier", 300), ("focal", 300), ("nll", 1)),
        pytest.param("brier", 9000, marks=pytest.mark.slow),
    ],
)
def test_grid_by_smooth_criteria(criterion: str, n: int) -> None:
    exact = evaluator(samples(n, 3, seed=n), criterion)
    best = grid(exact)
    every = TEMPERATURES if n < 9000 else TEMPERATURES[::10]  # 9000 rows start from some of them
    lowest = min(exact(float(g), float(t)) for g in GAMMAS for t in every)
    assert best.value <= lowest + 1e-9
    if n == 9000:
        return
    assert best.value == pytest.approx(lowest, abs=1e-9)


@pytest.mark.parametrize("criterion", ["ada_ece", "nll"])
def test_line_and_refinement(criterion: str) -> None:
    exact = evaluator(samples(800, 6, seed=5), criterion)
    on_grid, on_line, refined = grid(exact), line(exact), refine(exact)
    plain = grid(exact, gammas=np.zeros(1))
    assert refined.value <= on_grid.value <= plain.value
    assert on_line.value <= plain.value
    for point in (on_grid, on_line, refined):
        assert exact(point.gamma, point.temperature) == pytest.approx(point.value, abs=1e-12)


@given(
    seed=st.integers(0, 10_000),
    gammas=st.lists(st.sampled_from([-0.9, -0.5, 0.0, 0.4, 1.0, 3.0, 7.0, 20.0]), min_size=1),
    temperatures=st.lists(st.integers(1, 100).map(lambda t: t / 10), min_size=1, max_size=40),
    criterion=st.sampled_from(["ada_ece", "ece", "nll", "brier", "focal"]),
)
def test_a_given_grid_is_as_good_as_trying_every_point(
    seed: int, gammas: list[float], temperatures: list[float], criterion: str
) -> None:
    data = samples(50, 2 + seed % 25, scale=3.0, seed=seed)
    exact = evaluator(data, criterion)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = FocalTemperatureScaling(
            criterion=criterion, gammas=gammas, temperatures=temperatures
        ).fit(data.logits, data.labels)
        one = TemperatureScaling(criterion=criterion, grid=temperatures).fit(
            data.logits, data.labels
        )
    for state, allowed in ((found, gammas), (one, [0.0])):
        at = state.state_.get("gamma", 0.0), state.temperature_
        assert at[0] in allowed
        assert at[1] in temperatures
        lowest = min(exact(g, t) for g in allowed for t in temperatures)
        assert exact(*at) == pytest.approx(lowest, abs=1e-12)
        assert state.report_.after == pytest.approx(lowest, abs=1e-12)


@pytest.mark.slow
def test_equal_values_change_the_probabilities_least() -> None:
    # With one sample whose logits are all equal, every point has the same criterion.
    data = FitData(np.zeros((1, 4)), np.array([0]), None)
    for criterion in ("ada_ece", "ece", "nll"):
        best = grid(evaluator(data, criterion))
        assert (best.gamma, best.temperature) == (0.0, 1.0)
        best = grid(evaluator(data, criterion), np.array([-0.4, 0.3, 2.0]), np.array([0.2, 3.0]))
        assert (best.gamma, best.temperature) == (0.3, 3.0)


def test_fitting_is_the_same_in_single_and_double_precision() -> None:
    data = samples(3000, 12, seed=9)
    single = data.logits.astype(np.float32)
    for calibrator in (TemperatureScaling(), FocalTemperatureScaling()):
        first = calibrator.fit(single, data.labels).state_
        second = calibrator.fit(single.astype(np.float64), data.labels).state_
        assert first == second


@pytest.mark.parametrize("seed", range(3))
def test_tied_rows_do_not_hide_the_best_point(seed: int) -> None:
    """Whole-number logits: many rows are the same but for the order of their classes."""
    rng = np.random.default_rng(seed)
    logits = np.round(3.0 * rng.normal(size=(1500, 5)))
    labels = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    found = TemperatureScaling(criterion="ada_ece").fit(logits=logits, labels=labels)
    errors = {t: ada_ece(logits=logits / t, labels=labels) for t in np.arange(100, 250) / 100}
    assert errors[min(errors, key=errors.__getitem__)] == pytest.approx(
        ada_ece(logits=logits / found.temperature_, labels=labels), rel=1e-12
    )


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("doubt", [1e-6, 1e-3, 0.3])
def test_an_error_is_off_by_no_more_than_it_says(doubt: float, share: float) -> None:
    rng = np.random.default_rng(0)
    for trial in range(60):
        n, n_bins = int(rng.integers(1, 60)), int(rng.integers(1, 16))
        log_odds = rng.normal(size=n) * (0.01, 1.0, 5.0, 40.0)[trial % 4]
        weight = (np.ones(n), rng.integers(1, 4, n).astype(float), rng.random(n))[trial % 3]
        correct = weight * (rng.random(n) < share)
        if trial % 5 == 0:
            log_odds = np.round(log_odds, 1)
        values, where = np.unique(log_odds, return_inverse=True)  # ties stay ties
        off = log_odds + rng.uniform(-doubt, doubt, size=len(values))[where]
        edges = mass_edges(float(weight.sum()), n_bins, whole=all_whole(weight))
        (before, slack), (after, _) = (
            mass_error(each[order], correct[order], weight[order], edges, doubt)
            for each in (log_odds, off)
            for order in [np.argsort(each, kind="stable")]
        )
        assert abs(after - before) <= slack + 1e-12
        (before, slack), (after, _) = (
            width_error(each, correct, weight, width_edges(n_bins), doubt)
            for each in (log_odds, off)
        )
        assert abs(after - before) <= slack + 1e-12
