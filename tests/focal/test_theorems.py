"""The theorems of the papers, asked of calibrant.focal.

Paper 1: Mukhoti et al. (2020). Paper 2: Komisarenko and Kull (2024). Paper 3, meant where none is
named: Charoenphakdee et al. (2021). Where a statement is strict and doubles cannot show it, the
numbers of the library are judged in 50 digits.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st
from mpmath import mp, mpf
from scipy.special import entr, expit, rel_entr, xlogy

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
log = partial(xlogy, 1.0)  # -inf at 0, without a warning

seeds = st.integers(0, 2**32 - 1)
gammas = st.sampled_from([0.05, 0.5, 1.0, 2.0, 5.0]) | st.floats(0.001, 20.0)
few, many = st.integers(2, 12), st.sampled_from([100, 300, 1000])
MILD = ["plain", "ties", "near uniform"]
NEIGHBOURS = np.array([0.34, np.nextafter(0.34, 1.0), 0.32])  # no tie, but equal logarithms
KINDS = [*MILD, "zeros", "near one-hot"]


@st.composite
def posteriors(draw, counts=few | many, kinds=KINDS):
    n_classes, kind = draw(counts), draw(st.sampled_from(kinds))
    if n_classes <= 12:
        size = {"min_size": n_classes, "max_size": n_classes}
        logits = np.array(draw(st.lists(st.floats(-20.0, 20.0), **size)))
    else:
        logits = np.random.default_rng(draw(seeds)).uniform(-20.0, 20.0, n_classes)
    if kind == "ties":
        logits = np.round(logits / 10.0)
    if kind == "near uniform":
        logits = logits * 10.0 ** -draw(st.integers(1, 17))
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


def rounding(row, gamma):
    """Return four roundings of log q for the smallest q of a row, times the power 1 + gamma."""
    return 4 * EPS * (1.0 + gamma) * (1.0 - math.log(row[row > 0.0].min()))


def every_label(loss, rows, gamma):
    """Return the loss of each row for each label."""
    rows = np.repeat(rows[..., None, :], rows.shape[-1], axis=-2)
    return loss(rows, np.broadcast_to(np.arange(rows.shape[-1]), rows.shape[:-1]), gamma=gamma)


def risk(losses, eta):
    """Return sum_y eta_y loss_y; a class that never occurs costs nothing."""
    return float(np.sum(eta[eta > 0.0] * losses[eta > 0.0]))


def exact_risk(output, eta, gamma):
    """Return sum_y eta_y (1 - q_y)^gamma (-log q_y) in 50 digits, q proportional to `output`."""
    with mp.workdps(50):
        odds = oracle.odds_against([mpf(q) for q in output])
        return sum(
            mpf(share) * mp.exp(-mpf(gamma) * mp.log1p(1 / t)) * mp.log1p(t)
            for share, t in zip(eta, odds, strict=True)
            if share and t
        )


def exact_excess(row, gamma):
    """Return by which part the map raises the odds against the top: > 0 is over-confident."""
    top = int(np.argmax(row))
    with mp.workdps(50):
        before = oracle.odds_against([mpf(q) for q in row])[top]
        return oracle.odds_against(oracle.focal_map(row, gamma))[top] / before - 1


@given(posteriors(), gammas)
@example(NEIGHBOURS, 2.0)
def test_theorems_3_and_11_the_minimiser_keeps_the_order_and_the_map_recovers(eta, gamma):
    q = inverse_focal_map(eta, gamma=gamma)
    assert focal_map(q, gamma=gamma) == pytest.approx(eta, rel=rounding(q, gamma), abs=0.0)
    assert np.array_equal(q == q.max(), eta == eta.max())
    assert np.array_equal(q == 0.0, eta == 0.0)
    order = np.argsort(eta)
    eta, q = eta[order], q[order]
    apart = eta[1:] > eta[:-1] * (1.0 + rounding(eta, gamma))
    assert np.all(q[1:][apart] > q[:-1][apart])
    assert np.all(q[1:] >= q[:-1] * (1.0 - rounding(eta, 0.0)))


@pytest.mark.slow
@given(posteriors(), gammas, seeds)
def test_theorem_5_the_minimiser_is_not_the_posterior(eta, gamma, seed):
    q = inverse_focal_map(eta, gamma=gamma)
    lowest = exact_risk(q, eta, gamma)
    found = risk(every_label(focal_loss, log(q), gamma), eta)
    assert found == pytest.approx(float(lowest), rel=rounding(q, gamma), abs=0.0)
    others = (eta > 0.0) & (np.arange(len(eta)) != eta.argmax())
    if not others.any():
        return
    moved = np.average(np.abs(np.log(q[others] / eta[others])), weights=eta[others])
    if moved > rounding(eta, gamma):
        assert lowest < exact_risk(eta, eta, gamma)
    rng = np.random.default_rng(seed)
    for size in [1e-8, 1e-4, 1.0]:
        perturbed = q * np.exp(size * rng.standard_normal(len(q)))
        assert lowest < exact_risk(perturbed, eta, gamma)


def test_a_fixed_point_outside_the_set_of_proposition_6():
    # phi rises and falls. Where phi(a) = phi(b), the row (b, a, ..., a) stays as it is.
    with mp.workdps(50):
        b = mp.findroot(lambda v: oracle.phi(v, 1) - oracle.phi((1 - v) / 9, 1), 0.19)
    row = np.r_[float(b), np.full(9, float((1 - b) / 9))]
    assert row[0] > 0.15 > row[1]
    assert focal_map(row, gamma=1.0) == pytest.approx(row, rel=8 * EPS, abs=0.0)


@given(st.floats(1e-8, 1e4))
def test_theorem_8_the_thresholds(gamma):
    tau_oc, tau_uc = confidence_thresholds(gamma=gamma)
    assert 0.0 < tau_oc < tau_uc < 0.5
    with mp.workdps(50):
        exact = [float(tau) for tau in oracle.confidence_thresholds(gamma)]
    assert [tau_oc, tau_uc] == pytest.approx(exact, rel=16 * EPS, abs=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("region", [1, 0, -1])
@given(seeds, few | many, gammas, st.floats(0.05, 1.0))
def test_theorem_8_over_and_under_confidence(region, seed, n_classes, gamma, fraction):
    tau_oc, tau_uc = confidence_thresholds(gamma=gamma)
    low, high = {1: (0.0, tau_oc), 0: (tau_oc, tau_uc), -1: (1.0, tau_uc)}[region]
    q = row_with_top(seed, n_classes, low + fraction * (high - low))
    excess = exact_excess(q, gamma)
    if region == 0 and abs(excess) <= rounding(q, gamma):
        return
    expected = region or (1 if excess > 0 else -1)
    assert excess * expected > 0
    assert (q.max() - focal_map(q, gamma=gamma).max()) * expected > 0
    assert confidence_bias(q, gamma=gamma) == expected


@pytest.mark.slow
@given(seeds, few | many, gammas, st.floats(0.5, 1.0, exclude_min=True, exclude_max=True))
def test_corollary_9_under_confident_above_one_half(seed, n_classes, gamma, top):
    q = row_with_top(seed, n_classes, top)
    assert exact_excess(q, gamma) < 0
    assert confidence_bias(q, gamma=gamma) == -1
    assert focal_map(q, gamma=gamma).max() >= top * (1.0 - rounding(q, gamma))


@given(st.floats(1e-300, 1.0, exclude_max=True) | st.just(0.5), gammas)
def test_corollary_10_two_classes_are_never_over_confident(p, gamma):
    q = np.array([[p, 1.0 - p], [1.0 - p, p]])
    assert confidence_bias(q, gamma=gamma).tolist() == ([0, 0] if p == 0.5 else [-1, -1])
    if p > 1e-3 and abs(p - 0.5) > rounding(q[0], gamma):
        assert (focal_map(q, gamma=gamma)[0, 0] < p) == (p < 0.5)


@given(seeds, few | many, st.floats(0.0, 1.0), gammas | st.floats(-1.0, 0.0))
def test_proposition_6_fixed_points(seed, n_classes, fraction, gamma):
    n_present = 1 + round(fraction * (n_classes - 1))
    row = np.r_[np.full(n_present, 1.0 / n_present), np.zeros(n_classes - n_present)]
    np.random.default_rng(seed).shuffle(row)
    images = [focal_map(row, gamma=gamma)]
    if gamma >= 0.0:
        images.append(inverse_focal_map(row, gamma=gamma))
        assert confidence_bias(row, gamma=gamma) == 0
    for image in images:
        assert image == pytest.approx(row, rel=rounding(row, abs(gamma)), abs=0.0)
        assert np.all((image == 0.0) | (image == image.max()))


@given(posteriors(), gammas | st.floats(-1.0, 0.0))
@example(NEIGHBOURS, 2.0)
def test_proposition_12_the_map_keeps_the_argmax(q, gamma):
    mapped = focal_map(q, gamma=gamma)
    assert np.array_equal(mapped == mapped.max(), q == q.max())
    log_mapped, log_q = focal_log_probs(log(q), gamma=gamma), log(q)
    assert np.array_equal(log_mapped == log_mapped.max(), log_q == log_q.max())


@pytest.mark.parametrize(
    ("q", "gamma", "mapped"),
    [
        ([0.322, 0.32, 0.32, 0.038], 0.1, "0.321966"),
        ([0.33, 0.33, 0.33, 0.01], 0.5, "0.329923"),
        (np.r_[0.15, np.full(9, 0.85 / 9)], 0.25, "0.1494"),
        (np.r_[0.05, np.full(99, 0.95 / 99)], 1.0, "0.0472"),
        (np.r_[0.1, np.full(999, 0.9 / 999)], 1.0, "0.0899"),
    ],
)
def test_proposition_5_of_paper_2_is_false(q, gamma, mapped):
    assert f"{focal_map(q, gamma=gamma).max():.{len(mapped) - 2}f}" == mapped
    assert float(mapped) < max(q)
    assert confidence_bias(q, gamma=gamma) == 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_proposition_5_of_paper_2_holds_up_to_three_classes(n_classes):
    rng = np.random.default_rng(0)
    q = np.concatenate([rng.dirichlet([a] * n_classes, 5_000) for a in [0.2, 1.0, 30.0, 1e3]])
    for gamma in [0.001, 0.03, 0.1, 0.5, 1.0, 3.0, 10.0]:
        assert confidence_bias(q, gamma=gamma).max() <= 0
        assert np.all(focal_map(q, gamma=gamma).max(-1) >= q.max(-1) * (1 - 4 * EPS * (1 + gamma)))


@given(st.integers(1, 2**40 - 1), st.integers(1, 2**40 - 1), st.just(0.0) | gammas)
def test_proposition_1_of_paper_2_the_loss_is_convex(first, second, gamma):
    # On this grid p, 1 - p and the midpoint are exact.
    p = np.array([first, second, (first + second) / 2]) / 2.0**40
    logits = np.stack([np.log(p), np.log1p(-p)], axis=-1)
    one, two, middle = focal_loss(logits, np.zeros(3, int), gamma=gamma)
    tolerance = 4 * EPS * (1.0 + gamma) * (1.0 + np.abs(logits).max())
    assert middle <= (one + two) / 2 * (1.0 + tolerance)


LOWEST = {0.5: "1.3566", 1.0: "1.7718", 2.0: "2.6762", 4.0: "4.5904", 9.0: "9.5162"}
HIGHEST = {0.5: "1.4797", 1.0: "1.9653", 2.0: "2.9451", 4.0: "4.9195", 9.0: "9.8849"}


@pytest.mark.parametrize("gamma", [0.05, *LOWEST, 20.0])
def test_proposition_3_of_paper_2_bounds_by_temperatures(gamma):
    low, high = temperature_bounds(gamma=gamma)
    expected = [gamma + 1.0, gamma + 1.0 - math.log(gamma + 1.0) / 2]
    assert [1.0 / low, 1.0 / high] == pytest.approx(expected, rel=2 * EPS)
    s = np.r_[np.geomspace(1e-6, 0.01, 50), np.arange(2, 5001) / 100]
    s = np.r_[-s[::-1], s]
    log_fc = focal_log_probs(np.stack([s, 0.0 * s], axis=-1), gamma=gamma)
    slope = (log_fc[:, 0] - log_fc[:, 1]) / s
    tolerance = 4 * EPS * (1.0 + 1.0 / np.abs(s))
    assert np.all(slope >= (1.0 - tolerance) / high)
    assert np.all(slope <= (1.0 + tolerance) / low)
    fc, near, far = np.exp(log_fc[:, 0]), expit(s / high), expit(s / low)
    tolerance = 4 * EPS * (1.0 + (1.0 + gamma) * np.abs(s))
    assert np.all(np.where(s > 0, near, far) <= fc * (1.0 + tolerance))
    assert np.all(fc <= np.where(s > 0, far, near) * (1.0 + tolerance))
    inside = slope[np.abs(s) <= 20.0]
    assert f"{inside.min():.4f}" == LOWEST.get(gamma, f"{inside.min():.4f}")
    assert f"{inside.max():.4f}" == HIGHEST.get(gamma, f"{inside.max():.4f}")


@given(posteriors(few | st.just(100)), gammas, seeds)
def test_proposition_4_of_paper_2_the_proper_loss_is_proper(eta, gamma, seed):
    sizes = np.array([0.0, 1e-6, 1e-2, 1.0, 10.0])[:, None]
    rows = eta * np.exp(sizes * np.random.default_rng(seed).standard_normal((5, len(eta))))
    rows /= rows.sum(-1, keepdims=True)
    losses = every_label(proper_focal_loss, rows, gamma)
    truth, nearest, *rivals = [risk(row, eta) for row in losses]
    noise = rounding(eta, gamma)
    assert nearest >= truth * (1.0 - noise)
    assert np.count_nonzero(eta) == 1 or min(rivals) > truth * (1.0 + noise)


@given(posteriors(few, MILD), gammas)
def test_proposition_4_of_paper_2_gradient_of_the_proper_loss(eta, gamma):
    k, logits = len(eta), np.log(eta) / 4.0
    rows = torch.tensor(np.tile(logits, (k, 1)), requires_grad=True)
    proper_focal_loss(torch.softmax(rows, -1), torch.arange(k), gamma=gamma).sum().backward()
    # Five points: an error of the order h^4 and one of the order eps / h balance at h = eps^(1/5).
    h = EPS**0.2
    shifts = h * np.array([0, -2, -1, 1, 2])[:, None, None] * np.eye(k)
    q = np.exp(logits + shifts)
    q /= q.sum(-1, keepdims=True)
    losses = every_label(proper_focal_loss, q, gamma)
    difference = np.tensordot([1, -8, 8, -1], losses[1:], 1).T / (12.0 * h)
    scale = 1.0 + losses[0, 0][:, None]
    assert np.all(np.abs(rows.grad.numpy() - difference) <= 4 * EPS**0.8 * (1.0 + gamma) * scale)
    # At the truth the expected loss is stationary, far beyond what differences can show.
    gradient, truth = rows.grad.numpy(), q[0, 0]
    assert np.all(np.abs(truth @ gradient) <= rounding(truth, gamma) * (truth @ np.abs(gradient)))


@given(st.data(), few | many, st.sampled_from([1.0, 2.0]) | st.floats(1.0, 20.0))
def test_appendix_h_of_paper_1_bounds_a_regularised_divergence(data, n_classes, gamma):
    p, q = (data.draw(posteriors(st.just(n_classes))) for _ in range(2))
    kl, entropy_p, entropy_q = np.sum(rel_entr(p, q)), np.sum(entr(p)), np.sum(entr(q))
    noise = 4 * EPS * (kl + entropy_p + gamma * entropy_q) if math.isfinite(kl) else 0.0
    bound = kl + entropy_p - gamma * entropy_q
    assert risk(every_label(focal_loss, log(q), gamma), p) >= bound - noise


MODERATE = [[0.3, -1.2, 2.0], [1.5, 1.5, -0.5], [0.0, 0.0, 0.0]]
SATURATED = [[50.0, 0.0, 1.0], [0.0, 50.0, 50.0], [1000.0, 0.0, 1.0], [0.0, -1000.0, 0.0]]


@pytest.mark.parametrize("gamma", [0.0, 0.05, 0.3, 0.9, 1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("row", [*MODERATE, *SATURATED])
def test_proposition_1_of_paper_1_phi_times_the_cross_entropy_gradient(row, gamma):
    labels = torch.arange(3)
    ours, native = (torch.tensor([row] * 3, dtype=float, requires_grad=True) for _ in range(2))
    focal_loss(ours, labels, gamma=gamma).sum().backward()
    torch.nn.functional.cross_entropy(native, labels, reduction="sum").backward()
    with mp.workdps(50):
        odds = oracle.odds_against([mp.exp(s) for s in row])
        factors = np.array([float(oracle.phi_at_odds(t, gamma)) for t in odds])
    relative = 4 * EPS * (1.0 + gamma) * (1.0 + min(max(row) - min(row), 745.0))
    if row in MODERATE:
        q = torch.softmax(native[0].detach(), -1).numpy()
        assert phi(q, gamma=gamma) == pytest.approx(factors, rel=relative, abs=0.0)
    expected = factors[:, None] * native.grad.numpy()
    # q_y - 1 of the true class, in both gradients, is exact to a rounding of 1.
    tolerance = relative * np.abs(expected) + EPS * factors[:, None]
    assert np.all(np.abs(ours.grad.numpy() - expected) <= tolerance)
