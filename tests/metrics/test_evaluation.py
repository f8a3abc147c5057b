"""evaluate and paired_difference: values, intervals, noise floor, words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant import METRICS, evaluate, paired_difference
from calibrant.metrics import StreamedEvaluation
from calibrant.metrics.evaluation import DEFAULT_METRICS, POSITIVE_METRICS
from calibrant.metrics.resampling import ERRORS_WITHOUT_BINS
from tests.builders import draw_sharpened


def test_values_are_those_of_the_metrics():
    probs, labels = draw_sharpened(2000, 2.0, seed=0)
    names = sorted(set(METRICS) - set(POSITIVE_METRICS))
    result = evaluate(probs, labels, metrics=names, n_resamples=50)
    for row in result.measured:
        assert row.value == METRICS[row.name](probs, labels)
        if row.name in ERRORS_WITHOUT_BINS:
            assert row.low is None
        else:
            assert row.low <= row.high
    few = evaluate(probs, labels, metrics=["debiased_ece"], n_bins=3)["debiased_ece"]
    assert few.value == METRICS["debiased_ece"](probs, labels, n_bins=3)


def test_the_same_seed_gives_the_same_result():
    probs, labels = draw_sharpened(500, 2.0, seed=1)
    first, again = (evaluate(probs, labels, n_resamples=100, random_state=5) for _ in range(2))
    assert first == again
    assert evaluate(probs, labels, n_resamples=100, random_state=6) != first


def test_a_miscalibrated_model_is_told_from_a_calibrated_one():
    for sharpness, words in ((3.0, "Over-confident"), (0.4, "Under-confident"), (1.0, "No misc")):
        result = evaluate(*draw_sharpened(4000, sharpness, seed=2))
        assert result.verdict().startswith(words)
        assert words in str(result)
    floor = result.noise_floors[0]
    assert floor.p_value > 0.05
    assert floor.expected < floor.usual_up_to


@pytest.mark.slow
def test_the_noise_floor_falls_with_the_square_root_of_n():
    small, large = (
        evaluate(*draw_sharpened(n, 1.0, seed=3), metrics=["ece"]) for n in (1000, 64_000)
    )
    ratio = small.noise_floors[0].expected / large.noise_floors[0].expected
    assert ratio == pytest.approx(8.0, rel=0.1)


def test_as_data_and_as_a_page():
    probs, labels = draw_sharpened(300, 2.0, seed=4)
    probs[0], labels[0] = [1.0, 0.0, 0.0, 0.0], 1
    result = evaluate(probs, labels, n_resamples=50)
    data = json.loads(result.to_json())
    assert data["metrics"]["nll"]["value"] is None
    assert data["n_impossible"] == 1
    assert set(data["metrics"]) == set(DEFAULT_METRICS)
    assert "1 rows give their true class probability 0" in str(result)
    assert result._repr_html_().startswith("<table>")
    with pytest.raises(KeyError, match="smooth_ece was not measured"):
        result["smooth_ece"]


def test_tiny_and_odd_samples():
    assert evaluate([[0.7, 0.3]], [0])["ece"].low is None
    for n in (2, 3, 14):
        result = evaluate(*draw_sharpened(n, 1.0, seed=n), n_resamples=50)
        assert result["ece"].low <= result["ece"].high <= 1.0
    certain = evaluate(np.eye(3)[[0, 1, 2]], [0, 1, 2], n_resamples=50)
    assert certain["ece"].value == certain["ece"].high == 0.0
    assert certain.noise_floors[0].p_value == 1.0


def test_weights_move_the_value_and_its_interval():
    probs, labels = draw_sharpened(1000, 3.0, seed=5)
    correct = probs.argmax(axis=1) == labels
    result = evaluate(probs, labels, sample_weight=np.where(correct, 1.0, 0.1), n_resamples=200)
    assert result["error_rate"].high < evaluate(probs, labels)["error_rate"].low
    assert result["error_rate"].low < result["error_rate"].value < result["error_rate"].high


def test_unknown_names_and_levels_are_refused():
    probs, labels = draw_sharpened(50, 1.0, seed=6)
    with pytest.raises(ValueError, match=r"found 'adaece'. Did you mean 'ada_ece'\?"):
        evaluate(probs, labels, metrics=["adaece"])
    with pytest.raises(ValueError, match=r"level must be strictly .* For 95% pass 0\.95"):
        evaluate(probs, labels, level=95)
    with pytest.raises(ValueError, match="n_resamples must be from 20"):
        evaluate(probs, labels, n_resamples=1)


def test_a_stream_gives_what_the_whole_gives():
    probs, labels = draw_sharpened(30_000, 2.0, seed=7)
    whole = evaluate(probs, labels)
    parts = [StreamedEvaluation() for _ in range(3)]
    for start in range(0, 30_000, 1000):
        parts[start % 3].update(probs[start : start + 1000], labels[start : start + 1000])
    stream = StreamedEvaluation()
    for part in parts:
        stream.merge(part)
    result = stream.result()
    for row in result.measured:
        near = stream.mass.error_bound(15) if row.name == "ada_ece" else 1e-12
        assert row.value == pytest.approx(whole[row.name].value, rel=1e-9, abs=near)
        if row.name not in ("mce", "classwise_ece"):
            width = whole[row.name].high - whole[row.name].low
            assert row.low == pytest.approx(whole[row.name].low, abs=0.15 * width)
            assert row.high == pytest.approx(whole[row.name].high, abs=0.15 * width)
    theirs = {floor.name: floor.expected for floor in whole.noise_floors}
    for floor in result.noise_floors:
        assert floor.expected == pytest.approx(theirs[floor.name], rel=0.05)
    with pytest.raises(ValueError, match="same number of classes"):
        stream.update(np.full((2, 3), 1 / 3), [0, 1])
    with pytest.raises(ValueError, match="at least one sample"):
        StreamedEvaluation().result()


def test_a_better_model_is_told_from_a_worse_one():
    honest, labels = draw_sharpened(3000, 1.0, seed=8)
    bold = honest**2 / (honest**2).sum(axis=1, keepdims=True)
    result = paired_difference(honest, bold, labels)
    assert result["ece"].verdict == "better"
    assert result["nll"].verdict == "better"
    assert result["error_rate"].verdict == "not distinguishable"
    assert result["error_rate"].difference == 0.0
    assert "ece: a is better than b" in str(result)
    back = paired_difference(bold, honest, labels)
    assert back["ece"].verdict == "worse"
    assert back["ece"].difference == -result["ece"].difference
    assert json.dumps(result.to_dict())


def test_a_row_without_weight_is_not_there():
    probs, labels = draw_sharpened(200, 2.0, seed=9)
    weight = np.ones(200)
    weight[:3] = 0.0
    probs[0] = [1.0, 0.0, 0.0, 0.0]
    labels[0] = 1  # infinitely wrong, if it were there
    assert evaluate(probs, labels, sample_weight=weight) == evaluate(
        probs[3:], labels[3:], sample_weight=weight[3:]
    )
    same = paired_difference(probs, probs, labels, sample_weight=weight)
    assert {row.verdict for row in same.differences} == {"not distinguishable"}


def test_weights_of_any_size():
    probs, labels = draw_sharpened(200, 2.0, seed=10)
    plain = evaluate(probs, labels, n_resamples=50)
    for size in (1e-300, 2.0**60, 1e19, 1e308):
        result = evaluate(probs, labels, sample_weight=np.full(200, size), n_resamples=50)
        for row in result.measured:
            # Masses are cut exactly into fifteenths, whole samples are dealt out.
            close = 0.03 if row.name == "ada_ece" and size < 1 else 1e-9
            assert row.value == pytest.approx(plain[row.name].value, rel=1e-9, abs=close)


WIDE = {
    "one row": np.where(np.arange(400) == 7, 1.0, 1e-17),
    "one row, the others subnormal": np.where(np.arange(400) == 7, 1.0, 5e-324),
    "log-normal": np.exp(np.random.default_rng(0).normal(0.0, 15.0, 400)),
}


@pytest.mark.parametrize("n_columns", [2, 4])
@pytest.mark.parametrize("weight", WIDE.values(), ids=WIDE)
def test_weights_that_vanish_next_to_others(weight, n_columns):
    probs, labels = draw_sharpened(400, 2.0, seed=12)
    probs = probs[:, :n_columns] / probs[:, :n_columns].sum(axis=1, keepdims=True)
    labels = np.minimum(labels, n_columns - 1)
    result = evaluate(probs, labels, sample_weight=weight, n_resamples=50)
    for row in result.measured:
        assert np.isfinite(row.value)
    for floor in result.noise_floors:
        assert 0.0 <= floor.expected <= 1.0
        assert 0.0 < floor.p_value <= 1.0
    both = paired_difference(probs, probs[::-1], labels, sample_weight=weight, n_resamples=50)
    for difference in both.differences:
        assert difference.low is None or np.isfinite([difference.low, difference.high]).all()


def test_equal_weights_change_nothing_however_small():
    probs, labels = draw_sharpened(200, 2.0, seed=10)
    groups = {"half": np.arange(200) % 2}
    plain = evaluate(probs, labels, groups=groups, n_resamples=50)
    for size in (2.0**-1074, 2.0**-1060, 2.0**-400):
        weight = np.full(200, size)
        result = evaluate(probs, labels, sample_weight=weight, groups=groups, n_resamples=50)
        for row in result.measured:
            assert row.value == pytest.approx(plain[row.name].value, rel=1e-9, abs=1e-12)
        assert [each.side for each in result.by_group.groups] == [
            each.side for each in plain.by_group.groups
        ]
        both = paired_difference(probs, probs[::-1], labels, sample_weight=weight, n_resamples=50)
        without = paired_difference(probs, probs[::-1], labels, n_resamples=50)
        for name in ("ece", "ada_ece", "nll"):
            assert both[name].low == pytest.approx(without[name].low, rel=1e-9, abs=1e-12)
    assert METRICS["ada_ece"](logits=[[1.0, 0.0]], labels=[0], sample_weight=[5e-324]) == (
        pytest.approx(1.0 / (1.0 + np.e))
    )


@pytest.mark.parametrize("shift", [100.0, -1000.0, 1e5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_of_logits_is_no_difference(shift, dtype):
    rng = np.random.default_rng(1)
    logits = (2.0 * rng.normal(size=(400, 3))).astype(dtype)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    for a, b in ((logits, logits + dtype(shift)), (logits + dtype(shift), logits)):
        result = paired_difference(logits_a=a, logits_b=b, labels=labels, n_resamples=100)
        assert {row.verdict for row in result.differences} == {"not distinguishable"}


@pytest.mark.parametrize("row", [[0.3, 0.7], [0.001, 0.999], [1e-9, 1.0 - 1e-9]])
def test_rounding_of_probabilities_is_no_difference(row):
    """All rows are rounded in the same direction."""
    probs, labels = np.tile(row, (400, 1)), np.arange(400) % 10 > 2
    narrow = probs.astype(np.float32)
    assert paired_difference(probs, narrow, labels, metrics=["nll"])["nll"].difference != 0.0
    for a, b in ((probs, narrow), (narrow, probs)):
        result = paired_difference(a, b, labels, n_resamples=100)
        assert {row.verdict for row in result.differences} == {"not distinguishable"}


def test_small_differences_of_narrow_types_are_found():
    """Classes that are masked by a large number make no rounding error."""
    probs, labels = draw_sharpened(3000, 1.0, seed=8)
    logits = np.log(probs).astype(np.float32)
    logits[:, 3], labels = -1e9, np.where(labels == 3, 0, labels)
    other = logits.copy()
    other[:, 0] += 1e-3
    result = paired_difference(logits_a=logits, logits_b=other, labels=labels)
    assert result["nll"].verdict == "worse"
    assert 0.0 < result["nll"].difference < 1e-3


def test_what_has_no_interval_alone_has_none_in_a_comparison(monkeypatch):
    probs, labels = draw_sharpened(300, 2.0, seed=11)
    other = draw_sharpened(300, 1.0, seed=11)[0]
    monkeypatch.setattr("calibrant.metrics.resampling.LARGEST_CLASSWISE", 100)
    names = [*ERRORS_WITHOUT_BINS, "classwise_ece"]
    alone = evaluate(probs, labels, metrics=names)
    both = paired_difference(probs, other, labels, metrics=names)
    for name in names:
        assert alone[name].low is None
        assert both[name].low is None
        assert both[name].verdict == "not distinguishable"
        assert "no interval" in str(both[name])


@pytest.mark.slow
def test_two_calibrated_models_are_not_distinguishable():
    """Very different noise floors, and both errors 0 in truth."""
    alarms = {"ece": 0, "ada_ece": 0}
    for seed in range(80):
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.5, 1.0, 1000)
        labels = (rng.random(1000) > p).astype(int)
        spread, constant = np.stack([p, 1 - p], axis=-1), np.tile([0.75, 0.25], (1000, 1))
        result = paired_difference(
            spread, constant, labels, metrics=list(alarms), n_resamples=200, random_state=seed
        )
        for name in alarms:
            alarms[name] += result[name].verdict != "not distinguishable"
    assert max(alarms.values()) <= 10  # of 80; at 5% more than 10 come about twice in a thousand


@pytest.mark.slow
def test_equally_over_confident_models_are_not_distinguishable():
    """Few samples, where the interval of a difference was too narrow."""
    alarms = {"ece": 0, "ada_ece": 0}
    rng = np.random.default_rng(0)
    for seed in range(200):
        truth = 2.0 * rng.normal(size=(300, 10))
        labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        a, b = (truth + rng.normal(size=truth.shape) for _ in range(2))
        result = paired_difference(
            logits_a=a,
            logits_b=b,
            labels=labels,
            metrics=list(alarms),
            n_resamples=200,
            random_state=seed,
        )
        for name in alarms:
            alarms[name] += result[name].verdict != "not distinguishable"
    assert max(alarms.values()) <= 14  # of 200; at 4% more than 14 come about twice in a hundred


def test_the_worst_bin_is_never_better_than_the_average_one():
    """An MCE is at least the ECE over the same bins, and so are the ends of its interval."""
    for seed, n in enumerate((20, 60, 200, 200, 1000, 5000)):
        probs, labels = draw_sharpened(n, 0.5 + 0.3 * seed, seed=seed)
        stream = StreamedEvaluation()
        stream.update(probs, labels)
        for result in (evaluate(probs, labels), stream.result()):
            assert result["mce"].low >= result["ece"].low
            assert result["mce"].high >= result["ece"].high


def test_noise_is_not_taken_for_a_difference():
    """Two equally good models: the share of false alarms stays near 5%."""
    alarms = 0
    for seed in range(60):
        probs, labels = draw_sharpened(800, 1.0, seed=100 + seed)
        rng = np.random.default_rng(seed)
        other = probs * np.exp(0.3 * rng.standard_normal(probs.shape))
        twin = probs * np.exp(0.3 * rng.standard_normal(probs.shape))
        other, twin = (p / p.sum(axis=1, keepdims=True) for p in (other, twin))
        result = paired_difference(other, twin, labels, metrics=["ece", "nll"], n_resamples=200)
        alarms += sum(row.verdict != "not distinguishable" for row in result.differences)
    assert alarms <= 14  # of 120; at 5% more than 14 come about once in two thousand times


def test_an_interval_below_its_value_is_explained():
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.normal(size=(300, 30))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    found = evaluate(logits=logits, labels=labels, metrics=["classwise_ece", "nll"])
    assert found["classwise_ece"].high < found["classwise_ece"].value
    assert str(found).count("An interval below its value is of the error without noise") == 1
    assert "without noise" not in str(evaluate(logits=logits, labels=labels, metrics=["nll"]))
