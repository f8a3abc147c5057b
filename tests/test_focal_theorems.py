"""The theorems of the papers, asked of calibrant.focal.

Paper 1: Mukhoti et al. (2020). Paper 2: Komisarenko and Kull (2024). Paper 3: Charoenphakdee et al.
(2021). Where a statement is strict and doubles cannot show it, the numbers of the library are
judged in 50 digits.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import entr, expit, rel_entr

from calibrant.focal import (
    confidence_bias,
    confidence_thresholds,
    focal_log_probs,
    focal_loss,
    focal_map,
    inverse_focal_map,
    phi,
    proper_focal_loss,
    temperature_bounds,
)
from tests.reference import focal_mpmath as oracle

EPS = float(np.finfo(np.float64).eps)
KINDS = ["plain", "zeros", "ties", "near uniform", "near one-hot"]
check = settings(derandomize=True, deadline=None, max_examples=60)

seeds = st.integers(0, 2**32 - 1)
gammas = st.sampled_from([0.05, 0.5, 1.0, 2.0, 5.0]) | st.floats(0.001, 20.0)
class_counts = st.integers(2, 12) | st.sampled_from([100, 300, 1000])


@st.composite
def posteriors(draw, counts=class_counts, kinds=KINDS):
    n_classes, kind = draw(counts), draw(st.sampled_from(kinds))
    if n_classes <= 12:
        size = {"min_size": n_classes, "max_size": n_classes}
        logits = np.array(draw(st.lists(st.floats(-20.0, 20.0), **size)))
    else:
        logits = np.random.default_rng(draw(seeds)).uniform(-20.0, 20.0, n_classes)
    if kind == "ties":
        logits = np.round(logits / 10.0)
    if kind == "near uniform":
        logits = logits * 10.0 ** -draw(st.integers(1, 12))
    weights = np.exp(logits)
    if kind == "zeros":
        weights[1::2] = 0.0
    if kind == "near one-hot":
        weights[draw(st.integers(0, n_classes - 1))] *= 10.0 ** draw(st.integers(10, 250))
    return weights / weights.sum()


def row_with_top(seed, n_classes, top):
    """Return a row of at least `n_classes` classes, with `top` as its largest probability."""
    rng = np.random.default_rng(seed)
    n_others = max(n_classes, math.floor(1.0 / top) + 1) - 1
    even, shape = 1.0 / n_others, rng.dirichlet(np.full(n_others, rng.choice([0.1, 1.0, 10.0])))
    room = (top / (1.0 - top) - even) / max(shape.max() - even, EPS)
    others = even + min(room, 1.0) * rng.uniform(0.01, 1.0) * (shape - even)
    return np.insert((1.0 - top) * others, rng.integers(n_others + 1), top)


def in_fixed_set(row):
    """Say whether the row is in S^K: uniform over some classes, 0 elsewhere."""
    return bool(np.all((row == 0.0) | (row == row.max())))


def rounding(row, gamma, n=8):
    """Return n roundings of the logarithms of a row, as the map to the power 1 + gamma shows them.

    The row is seen through log q, whose rounding grows with |log q|.
    """
    return n * EPS * (1.0 + gamma) * (1.0 - math.log(row[row > 0.0].min()))


def exact_risk(output, posterior, gamma):
    """Return sum_y eta_y (1 - q_y)^gamma (-log q_y) in 50 digits, q proportional to `output`."""
    with mp.workdps(50):
        odds = oracle.odds_against([mpf(q) for q in output])
        return sum(
            mpf(eta) * mp.exp(-mpf(gamma) * mp.log1p(1 / t)) * mp.log1p(t)
            for eta, t in zip(posterior, odds, strict=True)
            if eta and t
        )


def exact_excess(row, gamma):
    """Return by how much the map raises the odds against the top class: > 0 is over-confident."""
    top = int(np.argmax(row))
    with mp.workdps(50):
        before = oracle.odds_against([mpf(q) for q in row])[top]
        return oracle.odds_against(oracle.focal_map(row, gamma))[top] / before - 1


def risk(losses, posterior):
    """Return sum_y eta_y loss_y; a class that never occurs costs nothing."""
    present = posterior > 0.0
    return float(np.sum(posterior[present] * losses[present]))


def focal_losses(output, gamma):
    """Return the focal loss of the output for every label."""
    rows = np.tile(
        np.log(output, out=np.full(len(output), -np.inf), where=output > 0.0), (len(output), 1)
    )
    return focal_loss(rows, np.arange(len(output)), gamma=gamma)


def proper_losses(output, gamma):
    """Return the properised focal loss of the output for every label."""
    rows = np.tile(output, (len(output), 1))
    return proper_focal_loss(rows, np.arange(len(output)), gamma=gamma)


# --- paper 3 -----------------------------------------------------------------------------------


@check
@given(posteriors(), gammas)
def test_theorem_3_the_minimiser_keeps_the_order(eta, gamma):
    q = inverse_focal_map(eta, gamma=gamma)
    assert q.argmax() == eta.argmax()
    order = np.argsort(eta)
    low, high, q = eta[order[:-1]], eta[order[1:]], q[order]
    apart = high > low * (1.0 + rounding(eta, gamma))
    assert np.all(q[1:][apart] > q[:-1][apart])
    assert np.all(q[1:] >= q[:-1] * (1.0 - rounding(eta, 0.0)))
    assert np.array_equal(q == 0.0, np.sort(eta) == 0.0)


@check
@given(posteriors(), gammas, seeds)
def test_theorem_5_the_minimiser_is_not_the_posterior(eta, gamma, seed):
    q = inverse_focal_map(eta, gamma=gamma)
    lowest = exact_risk(q, eta, gamma)
    assert risk(focal_losses(q, gamma), eta) == pytest.approx(
        float(lowest), rel=rounding(q, gamma), abs=0.0
    )
    if in_fixed_set(eta):
        assert q == pytest.approx(eta, rel=rounding(eta, gamma), abs=0.0)
        return
    others = (eta > 0.0) & (np.arange(len(eta)) != eta.argmax())
    moved = np.average(np.abs(np.log(q[others] / eta[others])), weights=eta[others])
    if moved > rounding(eta, gamma):
        assert lowest < exact_risk(eta, eta, gamma)
    rng = np.random.default_rng(seed)
    for size in [1e-8, 1e-4, 1.0]:
        perturbed = q * np.exp(size * rng.standard_normal(len(q)))
        assert lowest < exact_risk(perturbed, eta, gamma), size


def test_a_fixed_point_outside_the_set_of_proposition_6():
    # phi rises and falls, so phi(a) = phi(b) at a < b: then (b, a, ..., a) stays as it is.
    with mp.workdps(50):
        b = mp.findroot(
            lambda v: oracle.phi(v, 1) - oracle.phi((1 - v) / 9, 1), (0.15, 0.3), solver="anderson"
        )
    row = np.r_[float(b), np.full(9, float((1 - b) / 9))]
    assert 0.18 < row[0] < 0.2
    assert focal_map(row, gamma=1.0) == pytest.approx(row, rel=8 * EPS, abs=0.0)


@check
@given(st.floats(1e-8, 1e4))
def test_theorem_8_the_thresholds(gamma):
    tau_oc, tau_uc = confidence_thresholds(gamma=gamma)
    assert 0.0 < tau_oc < tau_uc < 0.5
    with mp.workdps(50):
        exact = [float(tau) for tau in oracle.confidence_thresholds(gamma)]
    assert [tau_oc, tau_uc] == pytest.approx(exact, rel=16 * EPS, abs=0.0)


@check
@given(seeds, class_counts, gammas, st.floats(0.05, 1.0))
def test_theorem_8_over_confident_up_to_tau_oc(seed, n_classes, gamma, fraction):
    tau_oc, _ = confidence_thresholds(gamma=gamma)
    q = row_with_top(seed, n_classes, fraction * tau_oc)
    assert exact_excess(q, gamma) > 0
    assert q.max() > focal_map(q, gamma=gamma).max()
    assert confidence_bias(q, gamma=gamma) == 1


@check
@given(seeds, class_counts, gammas, st.floats(0.0, 0.999))
def test_theorem_8_under_confident_from_tau_uc(seed, n_classes, gamma, fraction):
    _, tau_uc = confidence_thresholds(gamma=gamma)
    q = row_with_top(seed, n_classes, tau_uc + fraction * (1.0 - tau_uc))
    assert exact_excess(q, gamma) < 0
    assert q.max() < focal_map(q, gamma=gamma).max()
    assert confidence_bias(q, gamma=gamma) == -1


@check
@given(seeds, class_counts, gammas, st.floats(0.01, 0.99))
def test_theorem_8_between_the_thresholds(seed, n_classes, gamma, fraction):
    tau_oc, tau_uc = confidence_thresholds(gamma=gamma)
    q = row_with_top(seed, n_classes, tau_oc + fraction * (tau_uc - tau_oc))
    excess = exact_excess(q, gamma)
    if abs(excess) > rounding(q, gamma):
        assert confidence_bias(q, gamma=gamma) == np.sign(float(excess))
        assert np.sign(q.max() - focal_map(q, gamma=gamma).max()) == np.sign(float(excess))


@check
@given(posteriors(), gammas)
def test_confidence_bias_is_the_sign_of_the_oracle(q, gamma):
    excess = exact_excess(q, gamma) if q.max() < 1.0 or np.count_nonzero(q) > 1 else 0
    if in_fixed_set(q) or abs(excess) > rounding(q, gamma):
        expected = 0 if in_fixed_set(q) else np.sign(float(excess))
        assert confidence_bias(q, gamma=gamma) == expected


@check
@given(seeds, class_counts, gammas, st.floats(0.5, 1.0, exclude_min=True, exclude_max=True))
def test_corollary_9_under_confident_above_one_half(seed, n_classes, gamma, top):
    q = row_with_top(seed, n_classes, top)
    assert confidence_bias(q, gamma=gamma) == -1
    assert exact_excess(q, gamma) < 0
    assert focal_map(q, gamma=gamma).max() >= top * (1.0 - rounding(q, gamma))


@check
@given(st.floats(1e-300, 1.0, exclude_max=True), gammas)
def test_corollary_10_two_classes(p, gamma):
    q = np.array([p, 1.0 - p])
    assert confidence_bias(q, gamma=gamma) == (0 if p == 0.5 else -1)
    assert confidence_bias(q[::-1].copy(), gamma=gamma) == (0 if p == 0.5 else -1)
    if abs(p - 0.5) > rounding(q, gamma) and p > 1e-3:
        assert (focal_map(q, gamma=gamma)[0] < p) == (p < 0.5)


@check
@given(seeds, class_counts, st.floats(0.0, 1.0), gammas | st.floats(-1.0, 0.0))
def test_proposition_6_fixed_points(seed, n_classes, fraction, gamma):
    n_present = 1 + round(fraction * (n_classes - 1))
    row = np.r_[np.full(n_present, 1.0 / n_present), np.zeros(n_classes - n_present)]
    np.random.default_rng(seed).shuffle(row)
    mapped = [focal_map(row, gamma=gamma)]
    if gamma >= 0.0:
        mapped.append(inverse_focal_map(row, gamma=gamma))
        assert confidence_bias(row, gamma=gamma) == 0
    for image in mapped:
        assert image == pytest.approx(row, rel=rounding(row, abs(gamma)), abs=0.0)
        assert in_fixed_set(image)


@check
@given(posteriors(), gammas)
def test_theorem_11_the_map_recovers_the_posterior(eta, gamma):
    q = inverse_focal_map(eta, gamma=gamma)
    assert focal_map(q, gamma=gamma) == pytest.approx(eta, rel=rounding(q, gamma), abs=0.0)


@check
@given(posteriors(), gammas | st.floats(-1.0, 0.0))
def test_proposition_12_the_map_keeps_the_argmax(q, gamma):
    largest = q == q.max()
    mapped = focal_map(q, gamma=gamma)
    assert np.array_equal(mapped == mapped.max(), largest)
    with np.errstate(divide="ignore"):
        log_mapped = focal_log_probs(np.log(q), gamma=gamma)
    assert np.array_equal(log_mapped == log_mapped.max(), largest)


@pytest.mark.parametrize("function", [focal_map, inverse_focal_map])
@pytest.mark.parametrize("p", [0.34, 0.35, 0.45, 0.5 - EPS / 4])
def test_one_rounding_apart_is_not_a_tie(function, p):
    # The logarithms of neighbouring doubles are often equal; the probabilities are not.
    q = np.array([p, np.nextafter(p, 1.0), 1.0 - 2 * p])
    image = function(q, gamma=2.0)
    assert image[0] < image[1]
    assert image[2] < image[0]


# --- paper 2 -----------------------------------------------------------------------------------


def one_against_equals(n_classes, top):
    return np.r_[top, np.full(n_classes - 1, (1.0 - top) / (n_classes - 1))]


@pytest.mark.parametrize(
    ("q", "gamma", "mapped", "digits"),
    [
        (np.array([0.322, 0.32, 0.32, 0.038]), 0.1, 0.321966, 6),
        (np.array([0.33, 0.33, 0.33, 0.01]), 0.5, 0.329923, 6),
        (one_against_equals(10, 0.15), 0.25, 0.1494, 4),
        (one_against_equals(100, 0.05), 1.0, 0.0472, 4),
        (one_against_equals(1000, 0.1), 1.0, 0.0899, 4),
    ],
)
def test_proposition_5_of_paper_2_is_false(q, gamma, mapped, digits):
    assert round(float(focal_map(q, gamma=gamma).max()), digits) == mapped
    assert focal_map(q, gamma=gamma).max() < q.max()
    assert confidence_bias(q, gamma=gamma) == 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_proposition_5_of_paper_2_holds_up_to_three_classes(n_classes):
    rng = np.random.default_rng(0)
    shapes = [rng.dirichlet(np.full(n_classes, a), 20_000) for a in [0.2, 1.0, 30.0, 1000.0]]
    axis = np.arange(1, 300) / 300
    first, second = (np.ravel(v) for v in np.meshgrid(axis, axis))
    grid = np.stack([first, second, 1.0 - first - second], axis=-1)
    grid = grid[grid[:, 2] > 0.001] if n_classes == 3 else np.stack([axis, 1.0 - axis], axis=-1)
    q = np.concatenate([*shapes, grid])
    for gamma in [0.001, 0.03, 0.1, 0.5, 1.0, 3.0, 10.0]:
        assert confidence_bias(q, gamma=gamma).max() <= 0
        assert np.all(focal_map(q, gamma=gamma).max(-1) >= q.max(-1) * (1 - 8 * EPS * (1 + gamma)))


@check
@given(st.integers(1, 2**40 - 1), st.integers(1, 2**40 - 1), st.just(0.0) | gammas)
def test_proposition_1_of_paper_2_the_loss_is_convex(first, second, gamma):
    # On this grid p, 1 - p and the midpoint are exact.
    p = np.array([first, second, (first + second) / 2]) / 2.0**40
    logits = np.stack([np.log(p), np.log1p(-p)], axis=-1)
    one, two, middle = focal_loss(logits, np.zeros(3, int), gamma=gamma)
    tolerance = 4 * EPS * (1.0 + gamma) * (1.0 + np.abs(logits).max())
    assert middle <= (one + two) / 2 * (1.0 + tolerance)


@pytest.mark.parametrize("gamma", [0.05, 0.5, 1.0, 2.0, 4.0, 9.0, 20.0])
def test_proposition_3_bounds_by_temperatures(gamma):
    low, high = temperature_bounds(gamma=gamma)
    assert 1.0 / low == pytest.approx(gamma + 1.0, rel=2 * EPS)
    assert 1.0 / high == pytest.approx(gamma + 1.0 - math.log(gamma + 1.0) / 2, rel=2 * EPS)
    s = np.r_[np.geomspace(1e-6, 0.1, 50), np.arange(1, 501) / 10]
    tolerance = 4 * EPS * (1.0 + 1.0 / s)
    for sign in [1.0, -1.0]:
        log_fc = focal_log_probs(np.stack([sign * s, 0.0 * s], axis=-1), gamma=gamma)
        inverse_temperature = (log_fc[:, 0] - log_fc[:, 1]) / (sign * s)
        assert np.all(inverse_temperature >= 1.0 / high * (1.0 - tolerance))
        assert np.all(inverse_temperature <= 1.0 / low * (1.0 + tolerance))
        fc, near, far = np.exp(log_fc[:, 0]), expit(sign * s / high), expit(sign * s / low)
        ordered = [near, fc, far] if sign > 0 else [far, fc, near]
        for smaller, larger in pairwise(ordered):
            assert np.all(smaller <= larger * (1.0 + 4 * EPS * (1.0 + gamma) * (1.0 + s)))


@pytest.mark.parametrize(
    ("gamma", "lowest", "highest"),
    [
        (0.5, 1.3566, 1.4797),
        (1.0, 1.7718, 1.9653),
        (2.0, 2.6762, 2.9451),
        (4.0, 4.5904, 4.9195),
        (9.0, 9.5162, 9.8849),
    ],
)
def test_tightest_temperatures_within_twenty(gamma, lowest, highest):
    s = np.arange(-2000, 2001) / 100
    s = s[s != 0.0]
    log_fc = focal_log_probs(np.stack([s, 0.0 * s], axis=-1), gamma=gamma)
    found = (log_fc[:, 0] - log_fc[:, 1]) / s
    assert [round(float(v), 4) for v in (found.min(), found.max())] == [lowest, highest]


@check
@given(posteriors(), gammas, seeds)
def test_proposition_4_the_proper_loss_is_proper(eta, gamma, seed):
    rng = np.random.default_rng(seed)
    at_truth = risk(proper_losses(eta, gamma), eta)
    noise = rounding(eta, gamma)
    for size in [1e-6, 1e-2, 1.0]:
        rival = eta * np.exp(size * rng.standard_normal(len(eta)))
        at_rival = risk(proper_losses(rival / rival.sum(), gamma), eta)
        assert at_rival >= at_truth * (1.0 - noise)
        if size > 1e-3 and np.count_nonzero(eta) > 1:
            assert at_rival > at_truth * (1.0 + noise)


@check
@given(posteriors(st.integers(2, 8), ["plain", "ties", "near uniform"]), gammas)
def test_proposition_4_gradient(eta, gamma):
    logits = np.log(eta) / 4.0
    labels = np.arange(len(eta))
    rows = torch.tensor(np.tile(logits, (len(eta), 1)), requires_grad=True)
    proper_focal_loss(torch.softmax(rows, -1), torch.tensor(labels), gamma=gamma).sum().backward()
    gradient = rows.grad.numpy()

    def losses(shift):
        moved = np.exp(logits + shift)
        return proper_losses(moved / moved.sum(), gamma)

    # Five points: an error of the order h^4 and of the order eps / h balance at h = eps^(1/5).
    h = EPS**0.2
    for k, unit in enumerate(np.eye(len(eta))):
        near, far = (losses(n * h * unit) - losses(-n * h * unit) for n in (1, 2))
        difference = (8.0 * near - far) / (12.0 * h)
        scale = 1.0 + losses(0.0)
        assert np.all(np.abs(gradient[:, k] - difference) <= 8 * EPS**0.8 * scale)
    # At the truth the expected loss is stationary, far beyond what differences can show.
    q = np.exp(logits) / np.exp(logits).sum()
    assert np.all(np.abs(q @ gradient) <= 8 * EPS * (q @ np.abs(gradient)))


# --- paper 1 -----------------------------------------------------------------------------------


@check
@given(st.data(), class_counts, st.sampled_from([1.0, 2.0]) | st.floats(1.0, 20.0))
def test_appendix_h_bounds_a_regularised_divergence(data, n_classes, gamma):
    p, q = (data.draw(posteriors(st.just(n_classes))) for _ in range(2))
    if np.any((q == 0.0) & (p > 0.0)):
        assert risk(focal_losses(q, gamma), p) == np.inf
        return
    divergence = np.sum(rel_entr(p, q))
    bound = divergence + np.sum(entr(p)) - gamma * np.sum(entr(q))
    noise = 4 * EPS * (divergence + np.sum(entr(p)) + gamma * np.sum(entr(q)))
    assert risk(focal_losses(q, gamma), p) >= bound - noise


LOGITS = [
    [0.3, -1.2, 2.0, 0.7],
    [1.5, 1.5, -0.5, 1.5],
    [0.0, 0.0, 0.0, 0.0],
    [50.0, 0.0, -3.0, 1.0],
    [0.0, 50.0, 50.0, 49.0],
    [1000.0, 0.0, 990.0, -1000.0],
    [-1000.0, 1000.0, 1000.0, 0.0],
]


@pytest.mark.parametrize("gamma", [0.0, 0.05, 0.3, 0.9, 1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("row", LOGITS)
def test_proposition_1_of_paper_1_phi_times_the_cross_entropy_gradient(row, gamma):
    labels = torch.arange(4)
    logits = torch.tensor([row] * 4, dtype=torch.float64, requires_grad=True)
    focal_loss(logits, labels, gamma=gamma).sum().backward()
    with mp.workdps(50):
        odds = oracle.odds_against([mp.exp(s) for s in row])
        q = [1 / (1 + t) for t in odds]
        exact = [
            [
                float(oracle.phi_at_odds(t, gamma) * (-t * q[y] if k == y else q[k]))
                for k in range(4)
            ]
            for y, t in enumerate(odds)
        ]
    tolerance = 8 * EPS * (1.0 + gamma) * (1.0 + min(max(row) - min(row), 745.0))
    assert logits.grad.numpy() == pytest.approx(np.array(exact), rel=tolerance, abs=1e-300)


@check
@given(posteriors(st.integers(2, 12), ["plain", "ties", "near uniform"]), st.just(0.0) | gammas)
def test_proposition_1_of_paper_1_with_phi_of_the_library(q, gamma):
    labels = torch.arange(len(q))
    ours, native = (
        torch.tensor(np.tile(np.log(q), (len(q), 1)), requires_grad=True) for _ in range(2)
    )
    focal_loss(ours, labels, gamma=gamma).sum().backward()
    torch.nn.functional.cross_entropy(native, labels, reduction="sum").backward()
    expected = phi(q, gamma=gamma)[:, None] * native.grad.numpy()
    # 1 - q by subtraction has lost |log2(1 - q)| bits.
    tolerance = rounding(q, gamma) / np.clip(1.0 - q, EPS, None)
    assert np.all(
        np.abs(ours.grad.numpy() - expected) <= tolerance[:, None] * np.abs(expected) + EPS
    )
