"""Log likelihood ratios and the e-process, against direct computation and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calibrant.monitoring.alternatives import alternatives, log_ratios, log_weights
from calibrant.monitoring.e_process import ALL, SHARE_OF_GROUPS, EProcess, onset
from calibrant.monitoring.periods import (
    Coded,
    Key,
    PeriodSums,
    classes_of,
    length_of,
    ratios_of,
    shared_of,
    sums_of,
    sums_of_group,
)


def draw(n: int, k: int, seed: int = 0, spread: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of a calibrated model, and labels."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), labels


def ratio_slow(probs: list[float], label: int, each) -> float:
    """q / p of one label, from the definition."""
    top = max(range(len(probs)), key=probs.__getitem__)
    if each.what == "temperature":
        tilted = [p**each.amount for p in probs]
    else:
        k = top if each.what == "confidence" else each.of
        tilted = [p * math.exp(each.amount * (i == k)) for i, p in enumerate(probs)]
    return tilted[label] / sum(tilted) / probs[label]


@pytest.mark.parametrize("k", [2, 3, 7])
def test_ratios_are_those_of_the_definition(k):
    log_probs, labels = draw(20, k)
    found = log_ratios(log_probs, labels)
    for each, value in zip(alternatives(k), found, strict=True):
        rows = zip(np.exp(log_probs).tolist(), labels.tolist(), strict=True)
        slow = sum(math.log(ratio_slow(probs, label, each)) for probs, label in rows)
        assert value == pytest.approx(slow, abs=1e-9)


@given(st.lists(st.floats(-25.0, 0.0), min_size=2, max_size=6))
def test_every_ratio_has_mean_1_under_calibration(logits):
    log_probs = np.array([logits]) - np.logaddexp.reduce(logits)
    probs = np.exp(log_probs[0])
    every = np.array([log_ratios(log_probs, np.array([k])) for k in range(len(probs))])
    np.testing.assert_allclose(probs @ np.exp(every), 1.0, rtol=1e-9)
    of_group = [sums_of_group(log_probs, np.array([k]))[5:] for k in range(len(probs))]
    np.testing.assert_allclose(probs @ np.exp(of_group), 1.0, rtol=1e-9)


@pytest.mark.parametrize("k", [2, 3, 100])
def test_weights_are_those_of_a_mixture(k):
    assert np.exp(log_weights(k)).sum() == pytest.approx(1.0)
    assert len(log_weights(k)) == len(alternatives(k))


def test_a_vector_has_its_parts():
    log_probs, labels = draw(50, 3)
    vector = sums_of(log_probs, labels)
    assert len(vector) == length_of(ALL, 3)
    assert len(sums_of_group(log_probs, labels)) == length_of("g=1", 3)
    probs = np.exp(log_probs)
    stated, variance, count = classes_of(vector, 3)
    np.testing.assert_allclose(stated, probs.sum(axis=0))
    np.testing.assert_allclose(variance, (probs * (1 - probs)).sum(axis=0))
    np.testing.assert_array_equal(count, np.bincount(labels, minlength=3))
    shared = shared_of(vector)
    assert shared.n == 50
    assert shared.stated == pytest.approx(probs.max(axis=1).sum())
    assert shared.happened == (probs.argmax(axis=1) == labels).sum()
    assert shared.nll == pytest.approx(-log_probs[np.arange(50), labels].sum())


def test_of_two_classes_the_event_is_class_1():
    log_probs, labels = draw(50, 2)
    shared = shared_of(sums_of(log_probs, labels))
    assert shared.stated == pytest.approx(np.exp(log_probs[:, 1]).sum())
    assert shared.happened == labels.sum()


def test_sums_of_parts_add_up():
    log_probs, labels = draw(60, 3)
    groups = [Coded(["g=a", "g=b"], np.arange(60) % 2)]
    periods = Coded(["1", "2", "10"], np.arange(60) // 20)
    together, first, second = (PeriodSums(3) for _ in range(3))
    together.count("f", periods, groups, log_probs, labels)
    for sums, rows in ((first, np.arange(25)), (second, np.arange(25, 60))):
        sums.count(
            "f", periods.of(rows), [g.of(rows) for g in groups], log_probs[rows], labels[rows]
        )
    first.merge(second)
    assert first.vectors.keys() == together.vectors.keys()
    for key, vector in together.vectors.items():
        np.testing.assert_allclose(first.vectors[key], vector, atol=1e-9)
    assert list(together.by_period()) == ["1", "2", "10"]
    expected = sums_of(log_probs[20:40], labels[20:40])
    np.testing.assert_allclose(together.vectors[Key("f", "2")], expected)


def mixture_slow(steps: list[dict[str, np.ndarray]], weights: np.ndarray, n_of_group: int) -> float:
    """The mixture over alternatives and starting periods, enumerated; starts far ahead have 1."""
    order = [name for step in steps for name in step if name != ALL]
    groups = list(dict.fromkeys(order))
    share = SHARE_OF_GROUPS if groups else 0.0
    total, used = 0.0, 0.0
    members = [(ALL, j, (1 - share) * w) for j, w in enumerate(weights)]
    for place, name in enumerate(groups, start=1):
        each = share / (place * (place + 1) * n_of_group)
        members += [(name, j, each) for j in range(n_of_group)]
    for name, j, weight in members:
        for start in range(1, len(steps) + 1):
            ratio = sum(step[name][j] for step in steps[start - 1 :] if name in step)
            total += weight / (start * (start + 1)) * math.exp(ratio)
            used += weight / (start * (start + 1))
    return total + 1.0 - used


@pytest.mark.parametrize("grouped", [False, True])
def test_the_evidence_is_the_mixture(grouped):
    rng = np.random.default_rng(3)
    weights = np.array([0.5, 0.3, 0.2])
    process = EProcess(np.log(weights), n_of_group=2, grouped=grouped)
    steps: list[dict[str, np.ndarray]] = []
    for period in range(6):
        step = {ALL: rng.normal(size=3)}
        if grouped and period >= 1:  # groups appear late, and not in every period
            step |= {f"g={g}": rng.normal(size=2) for g in range(period % 3 + 1)}
        process.update(step)
        steps.append(step)
        if not grouped or period >= 1:
            assert math.exp(process.log_e) == pytest.approx(mixture_slow(steps, weights, 2))


def test_the_evidence_starts_at_1_and_has_mean_1():
    process = EProcess(log_weights(2), n_of_group=10, grouped=True)
    assert process.log_e == 0.0
    log_probs = np.log(np.array([[0.3, 0.7]]))
    found = []
    for label in (0, 1):
        process = EProcess(log_weights(2), n_of_group=10, grouped=True)
        sample = log_probs, np.array([label])
        own = ratios_of(sums_of_group(*sample), "g=1", 2)
        process.update({ALL: log_ratios(*sample), "g=1": own})
        found.append(math.exp(process.log_e))
    assert np.array([0.3, 0.7]) @ found == pytest.approx(1.0)


def stream_alarms(k: int, tilt: float, streams: int, seed: int) -> float:
    """The share of short streams that ever alarm at 5%, if class 1 is stated too high."""
    alarms = 0
    for stream in range(streams):
        log_probs, labels = draw(1200, k, seed=seed + stream)
        stated = log_probs + tilt * (np.arange(k) == 1)
        stated -= np.logaddexp.reduce(stated, axis=1, keepdims=True)
        process = EProcess(log_weights(k), n_of_group=10)
        for start in range(0, 1200, 60):
            rows = slice(start, start + 60)
            process.update({ALL: log_ratios(stated[rows], labels[rows])})
            if process.log_e >= math.log(20.0):
                alarms += 1
                break
    return alarms / streams


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 4])
def test_few_false_alarms_and_many_true_ones(k):
    assert stream_alarms(k, 0.0, 200, seed=100) <= 0.05
    assert stream_alarms(k, 1.0, 20, seed=900) >= 0.9


def test_the_interval_of_the_onset_covers():
    """Normal samples whose mean changes to one of four at a random time."""
    rng = np.random.default_rng(0)
    means, covered, widths = np.array([-1.0, -0.5, 0.5, 1.0]), 0, []
    for _ in range(400):
        began, mean = rng.integers(0, 30), rng.choice(means)
        drawn = rng.normal(size=(30, 4)) + mean * (np.arange(30) >= began)[:, np.newaxis]
        ratios = drawn.sum(axis=1)[:, np.newaxis] * means - 4 * means**2 / 2
        found = onset(ratios, np.log(np.full(4, 0.25)))
        covered += found.earliest <= began <= found.latest
        widths.append(found.latest - found.earliest)
    assert covered / 400 >= 0.93
    assert np.median(widths) <= 10
