"""Focal temperature scaling's tables: lines, closest temperatures, gains and the paper's cells."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import FocalTemperatureScaling, TemperatureScaling
from calibrant.focal import closest_temperature, focal_log_probs
from experiments.catalogue import catalogue
from experiments.claims import CLAIMS
from experiments.composed_temperature.run import (
    BY_OWN,
    BY_SIMPLEX,
    Pair,
    found_over_composed,
    mean_ratio,
)
from experiments.focal_temperature.gains import counts, gain, over_data_sets
from experiments.focal_temperature.methods import CHANGED, FOCAL, compared, counting
from experiments.focal_temperature.paper import table_1
from experiments.line_search.run import TEMPERATURE, gains_of_line, title_of
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.methods import Fitted, Method
from experiments.temperature_line.closest import closest_after, closest_before
from experiments.temperature_line.lines import Line, best_line, r_squared


def drawn(gamma: float, temperature: float, *, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels that are calibrated after the map at this gamma and temperature."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(n, k))
    truth = focal_log_probs(logits, gamma=gamma, temperature=temperature)
    return logits, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


def test_the_line_passes_through_the_gamma_and_temperature_that_made_the_labels():
    logits, labels = drawn(2.0, 3.0, n=6000, k=3)
    lines = best_line(logits, labels, [0.0, 2.0])
    assert lines["nll"].temperatures[1] == pytest.approx(3.0, rel=0.05)
    assert lines["ada_ece"].temperatures[1] == pytest.approx(3.0, rel=0.15)
    assert lines["nll"].at_edge == 0


def test_at_gamma_0_the_line_is_temperature_scaling():
    logits, labels = drawn(0.0, 2.0, n=3000, k=4)
    found = best_line(logits, labels, [0.0])["nll"].at_zero
    assert found == pytest.approx(
        TemperatureScaling(criterion="nll").fit(logits, labels).temperature_, rel=0.003
    )


def test_a_line_knows_how_straight_and_how_steep_it_is():
    gammas = np.array([-0.5, 0.0, 1.0, 3.0])
    line = Line(gammas, 2.0 + 3.0 * gammas, at_edge=0)
    assert line.straightness == pytest.approx(1.0)
    assert line.straightness_of_inverse < 0.9
    assert line.slope_from_zero == pytest.approx(1.5)


def test_curves_have_the_r_squared_that_the_rule_names():
    gammas = np.array(catalogue()["temperature-line"].parameters["gammas"])
    claim = "T and the gamma of the map lie close to a line"
    rule = next(each.rule for each in CLAIMS if each.says == claim)
    assert f"{r_squared(gammas, np.sqrt(1.0 + gammas)):.3f} with sqrt(1 + gamma)" in rule
    assert f"{r_squared(gammas, (1.0 + gammas) ** 2):.3f} with (1 + gamma)²" in rule


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_the_closest_temperature_on_many_outputs_is_that_of_the_simplex(gamma):
    gap = np.linspace(-20.0, 20.0, 4001)
    logits = np.stack([gap, np.zeros_like(gap)], axis=1)
    wanted = closest_temperature(gamma=gamma, n_classes=2)
    assert closest_after(logits, gamma) == pytest.approx(wanted, rel=2e-3)
    assert closest_before(logits, gamma) == pytest.approx(1.0 / wanted, rel=2e-3)


def result(name: str, value: float, rng: np.random.Generator, spread: float) -> Result:
    resampled = value + spread * rng.normal(size=200)
    noise = np.abs(spread * rng.normal(size=200))
    return Result(
        name, "m", {"ada_ece": value}, {}, {"ada_ece": resampled, "ada_ece_noise": noise}, {}
    )


def test_a_gain_is_of_the_means_and_inside_its_interval():
    rng = np.random.default_rng(0)
    mine = [result("a", 0.01, rng, 1e-4), result("b", 0.03, rng, 1e-4)]
    reference = [result("a", 0.02, rng, 1e-4), result("b", 0.03, rng, 1e-4)]
    found = gain(mine, reference, "ada_ece")
    assert found.value == pytest.approx(20.0)
    assert found.low is not None
    assert found.high is not None
    assert 18.0 < found.low < 20.0 < found.high < 22.0
    assert counts(mine, reference, "ada_ece") == (1, 0)
    worse = gain(reference, mine, "ada_ece")
    assert worse.value == pytest.approx(-25.0)
    assert worse.high is not None
    assert worse.high < 0.0


def test_what_a_line_gives_up_is_between_the_grid_and_temperature_scaling():
    rng, errors = np.random.default_rng(0), {"grid": 0.01, "line": 0.015, TEMPERATURE: 0.03}
    found = gains_of_line(
        {
            title_of(name, "ada_ece"): [result(data, error, rng, 1e-4) for data in ("c10_a", "b_a")]
            for name, error in errors.items()
        }
    )
    lost, won = "points of test ECE, line minus grid", "points of test ECE, grid minus temperature"
    assert [found[lost], found[won]] == pytest.approx([0.5, -2.0])
    assert found[f"{lost}: 95% from"] < 0.5 < found[f"{lost}: 95% to"] < 0.6
    assert found["gain in ECE of the line over temperature, %"] == pytest.approx(50.0)
    assert found["gain in ECE of the line over the grid, %"] == pytest.approx(-50.0)
    half = "gain in ECE of the line over halfway from temperature to the grid, %"
    assert found[half] == pytest.approx(25.0)
    assert 20.0 < found[f"{half}: 95% from"] < 25.0 < found[f"{half}: 95% to"] < 30.0
    name = "gain in ECE of the line over the grid, %: data sets resampled, from"
    assert found[name] == pytest.approx(-50.0)


def test_networks_that_gain_alike_leave_no_doubt_and_others_do():
    rng = np.random.default_rng(0)
    reference = [result(name, value, rng, 0.0) for name, value in (("a", 0.02), ("b", 0.04))]
    alike = [result(name, value, rng, 0.0) for name, value in (("a", 0.01), ("b", 0.02))]
    apart = ("a", "b")
    assert over_data_sets(alike, reference, "ada_ece", apart) == pytest.approx((50.0, 50.0))
    one = [result(name, value, rng, 0.0) for name, value in (("a", 0.01), ("b", 0.04))]
    assert over_data_sets(one, reference, "ada_ece", apart) == pytest.approx((0.0, 50.0))
    together = ("c", "c")
    assert over_data_sets(one, reference, "ada_ece", together) == pytest.approx((0.0, 50.0))


@pytest.mark.slow
def test_networks_on_the_same_data_are_drawn_together():
    rng = np.random.default_rng(0)
    names = [f"n{i}" for i in range(20)]
    reference = [result(name, 0.02, rng, 0.0) for name in names]
    mine = [result(name, 0.01 if i < 10 else 0.02, rng, 0.0) for i, name in enumerate(names)]
    data = ["a"] * 10 + ["b"] * 10
    assert over_data_sets(mine, reference, "ada_ece", data) == pytest.approx((0.0, 50.0))
    low, high = over_data_sets(mine, reference, "ada_ece", names)
    assert 10.0 < low < high < 40.0


def test_a_changed_prediction_is_counted():
    turned = Method("t", "calibrant", lambda logits, labels: Fitted(lambda new: -new, {}))
    new = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]])
    fitted = counting(turned).fit(new, np.array([0, 0, 1]))
    fitted.apply(new)
    assert fitted.facts[CHANGED] == 2


def test_the_methods_are_those_of_the_library_and_change_nothing():
    logits, labels = drawn(1.0, 2.0, n=500, k=3)
    method = next(each for each in compared() if each.title == FOCAL["ada_ece"])
    fitted = method.fit(logits, labels)
    own = FocalTemperatureScaling(criterion="ada_ece").fit(logits, labels)
    np.testing.assert_array_equal(fitted.apply(logits), own.predict_proba(logits))
    assert fitted.facts[CHANGED] == 0


def test_the_paper_s_table_is_whole():
    rows = table_1()
    assert len(rows) == 18
    for row in rows.values():
        assert 0.0 < float(row.focal_ece) < float(row.ece)
        assert float(row.gamma) in {-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0}
        assert all(0.01 <= float(t) <= 5.0 for t in (row.nll_t, row.ece_t, row.focal_ece_t))


def test_a_mean_ratio_has_an_interval_from_three_pairs_on():
    assert mean_ratio([2.0, 8.0]) == (pytest.approx(4.0), None, None)
    value, low, high = mean_ratio([2.0, 4.0, 8.0])
    assert value == pytest.approx(4.0)
    # t(0.975, 2) = 4.302653, sd of the logs is log 2
    half = 4.302653 * np.log(2.0) / np.sqrt(3.0)
    assert low == pytest.approx(4.0 * np.exp(-half), rel=1e-6)
    assert high == pytest.approx(4.0 * np.exp(half), rel=1e-6)


def pair(data: str, network: str, ratio: float) -> Pair:
    return Pair(data, network, gamma=1.0, plain=2.0, focal=ratio, simplex=0.5, own=0.25)


def test_the_losses_of_one_network_count_once():
    pairs = [pair("a", "small", ratio) for ratio in (1.0, 2.0, 4.0)]
    pairs += [pair("a", "large", 8.0), pair("b", "small", 1.0), pair("c", "small", 1.0)]
    found = found_over_composed("here", pairs, BY_SIMPLEX)
    ratios = [2.0, 8.0, 1.0, 1.0]
    assert found["found / composed, here"] == pytest.approx(2.0)
    assert found["found / composed, here: 95% to"] == pytest.approx(mean_ratio(ratios).high)
    # On "a" the mean of its two networks is 4, whatever the number of their losses.
    by_data = "found / composed, here, by data set"
    assert found[by_data] == pytest.approx(4.0 ** (1 / 3))
    assert found[f"{by_data}: 95% from"] == pytest.approx(mean_ratio([4.0, 1.0, 1.0]).low)
    assert found_over_composed("here", pairs, BY_OWN)["found / composed, here"] == pytest.approx(4)


def test_data_sets_with_one_network_each_are_not_counted_twice():
    pairs = [pair(data, "small", ratio) for data in "abc" for ratio in (1.0, 4.0)]
    assert set(found_over_composed("here", pairs, BY_SIMPLEX)) == {
        "found / composed, here",
        "found / composed, here: 95% from",
        "found / composed, here: 95% to",
    }
