"""One-vs-rest calibrators against slow code written from the formulas, and what they promise."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.optimize import minimize

from calibrant import calibrators
from calibrant.calibrators import CalibrationWarning
from calibrant.calibrators.one_vs_rest.base import class_log_odds
from calibrant.calibrators.one_vs_rest.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
)
from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration, PlattScaling
from calibrant.calibrators.one_vs_rest.spline import SplineCalibration
from calibrant.calibrators.one_vs_rest.venn_abers import VennAbers
from tests.builders import draw_samples

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

drawn = functools.partial(draw_samples, every_class=True)

METHODS = {
    method.NAME: method
    for method in (
        PlattScaling,
        BetaCalibration,
        SplineCalibration,
        IsotonicCalibration,
        HistogramBinning,
        BayesianBinning,
        VennAbers,
    )
}
LOGISTIC = ("platt", "beta")
SMOOTH = ("platt", "beta", "spline", "isotonic")
"""Without steps."""
RISING = (*SMOOTH, "venn-abers")
MOST = 52 * math.log(2)

every_method = pytest.mark.parametrize("name", METHODS)


# --- the formulas, slowly ------------------------------------------------------------------------


def slow_log_odds(row, k):
    """s_k - log(sum of e^s over the others), with enough digits for any row."""
    with mpmath.workdps(60):
        others = [mpmath.mpf(float(s)) for i, s in enumerate(row) if i != k and s > -math.inf]
        if row[k] == -math.inf:
            return -MOST
        if not others:
            return MOST
        highest = max(others)
        rest = highest + mpmath.log(mpmath.fsum(mpmath.exp(s - highest) for s in others))
        return min(MOST, max(-MOST, float(mpmath.mpf(float(row[k])) - rest)))


def counted(weight, n):
    """How many samples each row counts for: broken weights sum to the effective number."""
    if weight is None:
        return [1.0] * n
    if all(float(w).is_integer() for w in weight):
        return list(weight)
    largest = max(weight)
    shares = [w / largest for w in weight]
    return [share * sum(shares) / sum(each**2 for each in shares) for share in shares]


def slow_problems(logits, labels, weight):
    """(x, hit, weight) of the samples that count, for each problem."""
    n_classes = len(logits[0])
    for k in [1] if n_classes == 2 else range(n_classes):
        rows = [
            (slow_log_odds(row, k), label == k, w)
            for row, label, w in zip(logits, labels, weight, strict=True)
            if w > 0
        ]
        counts = [
            row[k] > -math.inf and sum(s > -math.inf for s in row) > 1
            for row, w in zip(logits, weight, strict=True)
            if w > 0
        ]
        yield [r for r, c in zip(rows, counts, strict=True) if c] or rows


def sigmoid(z):
    return 1.0 / (1.0 + math.exp(-z))


def features(name, x):
    if name == "platt":
        return [x, 1.0]
    log_q, log_rest = -math.log1p(math.exp(-x)), -math.log1p(math.exp(x))
    return [log_q, -log_rest, 1.0]


def logistic_criterion(name, problem, n_classes):
    """Loss with Platt's targets and the ridge, in samples, as a function of the parameters."""
    n_hits = sum(w for _, hit, w in problem if hit)
    n_misses = sum(w for _, hit, w in problem if not hit)
    n = n_hits + n_misses
    mean = sum(w * x for x, _, w in problem) / n
    spread = sum(w * (x - mean) ** 2 for x, _, w in problem) / n
    ridge = 0.3 * min(1.0, max(1e-6, spread))
    share = 2.0 / n_classes
    table = np.array([features(name, x) for x, _, _ in problem])
    hit = np.array([hit for _, hit, _ in problem])
    weight = np.array([w for _, _, w in problem])
    target = np.where(hit, 1 - share / (n_hits + 2), share / (n_misses + 2))

    even = -math.log(n_classes - 1)
    at_even = np.array(features(name, even))

    def criterion(parameters):
        z = table @ parameters
        loss = target * np.logaddexp(0, -z) + (1 - target) * np.logaddexp(0, z)
        prior = (
            ridge * ((parameters[:-1] - 1) ** 2).sum() + 0.3 * (at_even @ parameters - even) ** 2
        )
        return float(weight @ loss + prior / 2)

    def slope(parameters):
        g = np.exp(-np.logaddexp(0, -table @ parameters))
        prior = ridge * np.append(parameters[:-1] - 1, 0.0)
        prior += 0.3 * (at_even @ parameters - even) * at_even
        return table.T @ (weight * (g - target)) + prior

    return criterion, slope


def slow_logistic(name, problem, n_classes):
    criterion, slope = logistic_criterion(name, problem, n_classes)
    n_slopes = {"platt": 1, "beta": 2}[name]
    bounds = [(0, None)] * n_slopes + [(None, None)]
    starts = [[1.0] * n_slopes + [0.0], [0.1] * n_slopes + [-1.0]]
    options = {"ftol": 1e-15, "gtol": 1e-10}
    found = [minimize(criterion, s, jac=slope, bounds=bounds, options=options) for s in starts]
    return min(found, key=lambda result: result.fun)


def pooled(problem):
    """Sorted (x, hits, misses) with equal x in one group."""
    groups = []
    for x, hit, w in sorted(problem):
        if not groups or x - groups[-1][0] > 1e-11 * max(1.0, abs(x)):
            groups.append([x, 0.0, 0.0])
        groups[-1][1 if hit else 2] += w
    return groups


def within(p, problem):
    n = sum(w for _, _, w in problem)
    return min(max(p, 1 / (n + 2)), 1 - 1 / (n + 2))


def slow_isotonic(problem):
    """g as a function of x: adjacent violators pooled one by one, and lines in between."""
    blocks = []  # first x, last x, hits, weight
    for x, hits, misses in pooled(problem):
        blocks.append([x, x, hits, hits + misses])
        while len(blocks) > 1 and blocks[-2][2] * blocks[-1][3] >= blocks[-1][2] * blocks[-2][3]:
            _, last, hits, weight = blocks.pop()
            blocks[-1][1] = last
            blocks[-1][2] += hits
            blocks[-1][3] += weight
    points = []
    for first, last, hits, weight in blocks:
        points += [(first, within(hits / weight, problem)), (last, within(hits / weight, problem))]

    def g(x):
        if x <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in itertools.pairwise(points):
            if left <= x <= right and right > left:
                return low + (high - low) * (x - left) / (right - left)
        return points[-1][1]

    return g


def slow_spline(problem, n_classes):
    """g as a function of x: the best of five random walks over cells, pooled where it falls."""
    groups = pooled(problem)
    cells = [[group] for group in groups] if len(groups) <= 32 else slow_bins(problem, 32)
    hits, misses = (np.array([sum(g[j] for g in cell) for cell in cells]) for j in (1, 2))
    weight = hits + misses
    x = [sum(g[0] * (g[1] + g[2]) for g in cell) for cell in cells] / weight
    share = weight / weight.sum()
    even = -math.log(n_classes - 1)
    smoothing = 2 / n_classes
    target = hits * (1 - smoothing / (hits.sum() + 2)) + misses * smoothing / (misses.sum() + 2)
    spread = share @ (x - share @ x) ** 2
    table = np.zeros((len(x), len(x) + 1))  # of a, b and the steps of the walk
    table[:, 0], table[:, 1] = x - even, 1.0
    for j in range(1, len(x)):
        table[j:, j + 1] = 1.0
        table[:, j + 1] -= share[j:].sum()
    prior = np.zeros(len(x) + 1)
    prior[:2] = 1.0, even
    best = None
    for variance in (0.001, 0.1, 1.0, 10.0, 100.0):
        precision = 1 / (variance * (share[1:] + share[:-1]) / 2)
        precision = np.array([0.3 * min(1.0, max(1e-6, spread)), 0.3, *precision])

        def criterion(theta, precision=precision):
            z = table @ theta
            loss = weight @ np.logaddexp(0, z) - target @ z
            return loss + precision @ (theta - prior) ** 2 / 2

        def slope(theta, precision=precision):
            g = np.exp(-np.logaddexp(0, -table @ theta))
            return table.T @ (weight * g - target) + precision * (theta - prior)

        def curvature(theta, precision=precision):
            z = table @ theta
            curved = weight * np.exp(-np.logaddexp(0, -z) - np.logaddexp(0, z))
            return (table.T * curved) @ table + np.diag(precision)

        found = minimize(
            criterion, prior, jac=slope, hess=curvature, method="trust-exact", tol=1e-9
        )
        evidence = np.log(precision).sum() - np.linalg.slogdet(curvature(found.x))[1]
        evidence = evidence / 2 - found.fun
        if best is None or evidence > best[0]:
            best = evidence, found.x
    a, z = max(best[1][0], 0.0), table @ best[1]
    blocks = []  # weight, sum of probabilities, number of cells
    for value, w in zip(1 / (1 + np.exp(-z)), weight, strict=True):
        blocks.append([w, w * value, 1])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][0] >= blocks[-1][1] * blocks[-2][0]:
            top = blocks.pop()
            blocks[-1] = [one + other for one, other in zip(blocks[-1], top, strict=True)]
    z = [math.log(p / (w - p)) for w, p, n in blocks for _ in range(n)]
    knots = [-100.0, *x, 100.0]
    values = [z[0] - a * (x[0] + 100.0), *z, z[-1] + a * (100.0 - x[-1])]
    return lambda x: sigmoid(float(np.interp(x, knots, values)))


def slow_venn_abers(problem):
    """p0 and p1 of x: the sample joins the others, once with each label, and all are pooled."""
    xs = [x for x, _, _ in problem]

    def ends(x):
        nearest = min(xs, key=lambda known: abs(known - x))
        if abs(nearest - x) <= 2**-16 * max(1.0, abs(nearest)):
            x = nearest
        return [fitted_at(x, [*problem, (x, hit, 1.0)]) for hit in (False, True)]

    return ends


def fitted_at(x, problem):
    """The isotonic fit at one of its samples: the largest of the lowest means around it."""
    groups = np.array(pooled(problem))
    place = np.searchsorted(groups[:, 0], x - 1e-11 * max(1.0, abs(x)))
    hits, misses = np.cumsum(np.insert(groups[:, 1:], 0, 0.0, axis=0), axis=0).T
    # From each first group, at or before x, to each last one, at or after it.
    more_hits = hits[place + 1 :] - hits[: place + 1, np.newaxis]
    more_misses = misses[place + 1 :] - misses[: place + 1, np.newaxis]
    return float((more_hits / (more_hits + more_misses)).min(axis=1).max())


def slow_bins(problem, n_bins):
    """Filled equal-mass bins as lists of groups: by the middle of a group's share of samples."""
    groups = pooled(problem)
    n = sum(hits + misses for _, hits, misses in groups)
    bins = [[] for _ in range(n_bins)]
    below = 0.0
    for group in groups:
        middle = below + (group[1] + group[2]) / 2
        bins[math.floor(n_bins * middle / n + 1e-9)].append(group)
        below += group[1] + group[2]
    return [content for content in bins if content]


def slow_edges(bins):
    """Upper edges of bins in log-odds."""
    return [(a[-1][0] + b[0][0]) / 2 for a, b in itertools.pairwise(bins)] + [math.inf]


def looked_up(edges, values, x):
    return next(value for edge, value in zip(edges, values, strict=True) if x <= edge)


def slow_histogram(problem, n_classes, n_bins=20):
    bins = slow_bins(problem, n_bins)
    values = []
    for content in bins:
        hits, misses = (sum(group[j] for group in content) for j in (1, 2))
        values.append((hits + 1 / n_classes) / (hits + misses + 1))
    return lambda x: looked_up(slow_edges(bins), values, x)


def slow_bbq(problem):
    n = sum(w for _, _, w in problem)
    most = min(math.ceil(n / 5), math.ceil(10 * n ** (1 / 3)))
    models = []
    for n_bins in range(max(1, math.floor(n ** (1 / 3) / 10)), most + 1):
        bins = slow_bins(problem, n_bins)
        edges = slow_edges(bins)
        uppers = [sigmoid(edge) if edge < math.inf else 1.0 for edge in edges]
        lowers = [0.0, *uppers[:-1]]
        score, values = 0.0, []
        for content, low, high in zip(bins, lowers, uppers, strict=True):
            hits, misses = (sum(group[j] for group in content) for j in (1, 2))
            middle = min(max((low + high) / 2, 0.005), 0.995)
            a, b = 2 * middle, 2 * (1 - middle)
            score += (
                math.lgamma(hits + a) + math.lgamma(misses + b) - math.lgamma(hits + misses + 2)
            )
            score += math.lgamma(2) - math.lgamma(a) - math.lgamma(b)
            values.append((hits + a) / (hits + misses + 2))
        models.append((score, edges, values))
    best = max(score for score, _, _ in models)
    total = sum(math.exp(score - best) for score, _, _ in models)

    def g(x):
        said = sum(
            math.exp(score - best) / total * looked_up(edges, values, x)
            for score, edges, values in models
        )
        return within(said, problem)

    return g


def slow_curve(name, problem, n_classes):
    """g_k as a function of x, fitted to one problem."""
    if name in LOGISTIC:
        parameters = slow_logistic(name, problem, n_classes).x
        return lambda x: sigmoid(float(np.dot(parameters, features(name, x))))
    if name == "isotonic":
        return slow_isotonic(problem)
    if name == "spline":
        return slow_spline(problem, n_classes)
    if name == "venn-abers":
        ends = slow_venn_abers(problem)

        def g(x):
            p0, p1 = ends(x)
            return p1 / (1 - p0 + p1)

        return g
    return slow_histogram(problem, n_classes) if name == "histogram" else slow_bbq(problem)


def slow_probs(curves, row):
    n_classes = len(row)
    if n_classes == 2:
        one = curves[0](slow_log_odds(row, 1))
        g = [1 - one, one]
    else:
        g = [curve(slow_log_odds(row, k)) for k, curve in enumerate(curves)]
    g = [0.0 if s == -math.inf else value for s, value in zip(row, g, strict=True)]
    return [value / sum(g) for value in g]


# --- samples -------------------------------------------------------------------------------------


@st.composite
def samples(draw, fewest_classes=2, most_classes=4):
    """Few logits on a coarse grid, so that ties abound; some masked; whole and broken weights."""
    k = draw(st.integers(fewest_classes, most_classes))
    n = draw(st.integers(1, 25))
    levels = st.sampled_from([-30.0, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.25, 60.0])
    smooth = st.floats(-8, 8).map(lambda s: round(s, 6))  # equal or clearly not
    entry = draw(st.sampled_from([levels, smooth, levels | smooth]))
    logits = np.array(
        draw(st.lists(st.lists(entry, min_size=k, max_size=k), min_size=n, max_size=n))
    )
    labels = np.array(draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    if draw(st.booleans()):
        masked = draw(
            st.lists(st.lists(st.integers(0, 3), min_size=k, max_size=k), min_size=n, max_size=n)
        )
        masked = np.array(masked) == 0
        masked[np.arange(n), labels] = False
        logits[masked] = -np.inf
    weight = draw(
        st.none()
        | st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=n, max_size=n)
        | st.lists(st.floats(0.1, 5.0), min_size=n, max_size=n)
    )
    return logits, labels, None if weight is None else np.array(weight)


def awkward_rows(k, seed=3):
    """Ordinary, saturated, tied, masked, lonely and huge rows."""
    rng = np.random.default_rng(seed)
    masked = np.where(rng.random((8, k)) < 0.5, -np.inf, rng.normal(size=(8, k)))
    masked[:, 0] = 0.0
    alone = np.full((2, k), -np.inf)
    alone[0, -1] = 5.0
    alone[1, 0] = -1e30
    return np.concatenate(
        [
            3 * rng.normal(size=(12, k)),
            60 * rng.normal(size=(6, k)),
            np.zeros((1, k)),
            masked,
            alone,
            1e4 * rng.normal(size=(4, k)),
            1e30 * rng.normal(size=(4, k)),
        ]
    )


# --- the formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 7])
def test_log_odds_are_exact_close_to_0_and_1(library, k):
    rows = np.concatenate([awkward_rows(k), 12 * np.eye(k), 35 * np.eye(k)])
    found = library.numpy(class_log_odds(library.make(rows)))
    expected = [[slow_log_odds(row, i) for i in range(k)] for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", LOGISTIC)
@given(samples())
def test_the_logistic_fit_is_the_minimum(name, drawn_samples):
    logits, labels, weight = drawn_samples
    n_classes = logits.shape[1]
    calibrator = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    ours = np.stack([calibrator.state_[part] for part in calibrator.STATE], axis=1)
    assert (ours[:, :-1] >= 0).all()
    problems = slow_problems(logits, labels, counted(weight, len(labels)))
    for parameters, problem in zip(ours, problems, strict=True):
        criterion, _ = logistic_criterion(name, problem, n_classes)
        theirs = slow_logistic(name, problem, n_classes)
        assert criterion(parameters) <= theirs.fun + 1e-9 * (1 + abs(theirs.fun))
        nearby = parameters + 1e-4 * np.eye(len(parameters))
        assert all(criterion(p) >= criterion(parameters) for p in nearby)


@every_method
@given(samples())
def test_agrees_with_the_formula(name, drawn_samples):
    logits, labels, weight = drawn_samples
    n_classes = logits.shape[1]
    calibrator = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    weight = counted(weight, len(labels))
    curves = [slow_curve(name, p, n_classes) for p in slow_problems(logits, labels, weight)]
    # Between the samples too; exactly on an edge, rounding decides which side a row is on.
    rows = logits[:6]
    if len(labels) > 2:  # between so few samples the criterion is flat, and the oracle stops early
        rows = np.concatenate([rows, 0.37 * rows + 0.011 * np.arange(n_classes)])
    expected = [slow_probs(curves, row) for row in rows]
    tolerance = {"bbq": 5e-3, "platt": 1e-4, "beta": 2e-4, "spline": 1e-3}.get(name, 1e-9)
    np.testing.assert_allclose(calibrator.predict_proba(logits=rows), expected, rtol=tolerance)


@every_method
@pytest.mark.parametrize("k", [2, 3])
def test_agrees_with_the_formula_on_more_samples(name, k):
    logits, labels = drawn(700, k, 8)
    calibrator = METHODS[name]().fit(logits=logits, labels=labels)
    curves = [slow_curve(name, p, k) for p in slow_problems(logits, labels, [1.0] * 700)]
    rows = np.random.default_rng(0).normal(scale=3.0, size=(30, k))
    expected = [slow_probs(curves, row) for row in rows]
    tolerance = {"bbq": 4e-3, "platt": 1e-5, "beta": 1e-5, "spline": 1e-5}.get(name, 1e-11)
    np.testing.assert_allclose(calibrator.predict_proba(logits=rows), expected, rtol=tolerance)


def test_platt_is_the_textbook_for_two_classes():
    """Without the ridge, which a thousand samples drown out."""
    logits, labels = drawn(2000, 2, 1)
    calibrator = PlattScaling().fit(logits=logits, labels=labels)
    x = logits[:, 1] - logits[:, 0]
    n_hits = labels.sum()
    target = np.where(labels == 1, (n_hits + 1) / (n_hits + 2), 1 / (2000 - n_hits + 2))
    best = minimize(
        lambda p: np.mean(np.logaddexp(0, p[0] * x + p[1]) - target * (p[0] * x + p[1])),
        [1.0, 0.0],
        tol=1e-12,
    )
    assert calibrator.slope_ == pytest.approx(best.x[:1], abs=5e-3)
    assert calibrator.shift_ == pytest.approx(best.x[1:], abs=5e-3)


def test_a_slope_is_not_below_0():
    logits, labels = drawn()
    platt = PlattScaling().fit(-logits, labels)
    assert platt.report_.at_bound == "slope = 0 in 3 of 3 problems"
    assert (platt.slope_ == 0).all()
    beta = BetaCalibration().fit(-logits, labels)
    assert beta.report_.at_bound == "a = 0 in 3 of 3 problems, b = 0 in 3 of 3 problems"
    share = np.bincount(labels) / len(labels)
    np.testing.assert_allclose(platt.predict_proba(logits[:1])[0], share, atol=0.01)


def test_beta_holds_one_slope_at_0():
    """Where the truth falls at small q and rises at large q, and the other way round."""
    rng = np.random.default_rng(0)
    x = rng.normal(scale=3.0, size=4000)
    falls_then_rises = 0.3 * np.logaddexp(0, -x) + 1.5 * np.logaddexp(0, x) - 2.0
    labels = (rng.random(4000) < 1 / (1 + np.exp(-falls_then_rises))).astype(int)
    found = BetaCalibration().fit(np.stack([np.zeros_like(x), x], axis=1), labels)
    assert found.a_ == 0
    assert found.b_ > 1
    mirrored = BetaCalibration().fit(np.stack([x, np.zeros_like(x)], axis=1), 1 - labels)
    assert mirrored.b_ == 0
    np.testing.assert_allclose(mirrored.a_, found.b_, rtol=1e-6)


# --- the spline ----------------------------------------------------------------------------------


def test_the_spline_of_logistic_samples_is_platt_scaling():
    rng = np.random.default_rng(0)
    for n, bound in ((30, 0.05), (3000, 0.03)):
        x = 2 * rng.normal(size=n)
        labels = (rng.random(n) < 1 / (1 + np.exp(1 - 0.5 * x))).astype(int)
        rows = np.stack([np.zeros(n), x], axis=1)
        spline, platt = (
            method().fit(logits=rows, labels=labels) for method in (SplineCalibration, PlattScaling)
        )
        apart = np.abs(spline.predict_proba(logits=rows) - platt.predict_proba(logits=rows))
        assert apart.max() < bound


def test_the_spline_bends_where_the_truth_does():
    rng = np.random.default_rng(1)
    x = 2 * rng.normal(size=20_000)
    truth = np.where(x > 0, 0.2 * x, 2 * x)
    labels = (rng.random(20_000) < 1 / (1 + np.exp(-truth))).astype(int)
    spline = SplineCalibration().fit(np.stack([np.zeros_like(x), x], axis=1), labels)
    rows = np.stack([np.zeros(5), [-2.0, -1.0, 0.0, 2.0, 4.0]], axis=1)
    expected = 1 / (1 + np.exp(-np.array([-4.0, -2.0, 0.0, 0.4, 0.8])))
    np.testing.assert_allclose(spline.predict_proba(logits=rows)[:, 1], expected, atol=0.03)


def test_a_value_keeps_its_own_rate_as_far_as_its_count_supports_it():
    """Three in ten are correct below 0.9 and seven above; at exactly 0.9, like one of the two."""
    rng = np.random.default_rng(0)
    q = rng.uniform(0.8, 0.97, size=2000)
    answers = rng.random(2000) < np.where(q < 0.9, 0.3, 0.7)
    for rate in (7, 13):
        off = []
        for count in (4, 40, 400):
            said = np.append(q, np.full(count, 0.9))
            labels = np.append(answers, np.arange(count) % 20 < rate).astype(int)
            probs = np.stack([1 - said, said], axis=1)
            found = SplineCalibration().fit(probs=probs, labels=labels)
            off.append(abs(found.predict_proba(probs=probs[-1:])[0, 1] - rate / 20))
        assert off[0] > off[1] > off[2]
        assert off[2] < 0.03


# --- Venn-Abers intervals ------------------------------------------------------------------------


@given(samples())
def test_the_interval_is_that_of_the_definition(drawn_samples):
    logits, labels, weight = drawn_samples
    k = logits.shape[1]
    venn = VennAbers().fit(logits=logits, labels=labels, sample_weight=weight)
    weight = counted(weight, len(labels))
    intervals = [slow_venn_abers(problem) for problem in slow_problems(logits, labels, weight)]
    rows = np.concatenate([logits[:6], 0.37 * logits[:6] + 0.011 * np.arange(k)])
    found = venn.predict_interval(logits=rows)
    assert found.shape == ((len(rows), 2) if k == 2 else (len(rows), k, 2))
    for row, ends in zip(rows, found.reshape(len(rows), -1, 2), strict=True):
        for j, interval, pair in zip([1] if k == 2 else range(k), intervals, ends, strict=True):
            if row[j] == -math.inf:
                expected = [0.0, 0.0]
            elif (row > -math.inf).sum() == 1:
                expected = [1.0, 1.0]
            else:
                expected = interval(slow_log_odds(row, j))
            np.testing.assert_allclose(pair, expected, atol=1e-12)


@given(samples(2, 2))
def test_the_probability_is_within_the_interval_and_both_ends_rise(drawn_samples):
    venn = VennAbers().fit(*drawn_samples)
    x = np.sort(np.append(np.linspace(-40, 40, 300), class_log_odds(drawn_samples[0])[:, 1]))
    rows = np.stack([np.zeros_like(x), x], axis=1)
    p0, p1 = venn.predict_interval(logits=rows).T
    p = venn.predict_proba(logits=rows)[:, 1]
    assert (np.diff(p0) >= 0).all()
    assert (np.diff(p1) >= 0).all()
    assert ((p0 <= p * (1 + 1e-14)) & (p <= p1 * (1 + 1e-14)) & (p > 0) & (p < 1)).all()


def test_the_interval_in_every_array_library(library):
    for k in (2, 3):
        venn, rows = VennAbers().fit(*drawn(300, k)), awkward_rows(k)
        expected = venn.predict_interval(logits=rows)
        np.testing.assert_array_equal(
            library.numpy(venn.predict_interval(library.make(rows))), expected
        )
        blocks = venn.predict_interval(rows[:24].reshape(2, 3, 4, k))
        np.testing.assert_array_equal(blocks.reshape(expected[:24].shape), expected[:24])
    narrow = venn.predict_interval(probs=np.full((1, 3), 1 / 3, dtype=np.float32))
    assert narrow.dtype == np.float32


def test_the_interval_of_a_stated_value_is_narrow_in_either_precision():
    stated = np.repeat([0.9, 0.95, 0.999], 200)
    correct = (np.arange(600) % 10 < np.repeat([4, 5, 7], 200)).astype(int)
    venn = VennAbers().fit(probs=np.stack([1 - stated, stated], axis=1), labels=correct)
    for dtype in (np.float64, np.float32):
        said = np.array([0.9, 0.95, 0.999], dtype=dtype)
        p0, p1 = venn.predict_interval(probs=np.stack([1 - said, said], axis=1)).T
        np.testing.assert_allclose(p1 - p0, 1 / 201, rtol=1e-5)
        np.testing.assert_allclose((p0 + p1) / 2, [0.4, 0.5, 0.7], atol=0.002)


def test_one_of_the_ends_is_calibrated():
    """The guarantee of the method: among predictions with the same p of the label, p is right.

    Over every set of five samples, with its probability.
    """
    outcomes = list(itertools.product([-1.0, 0.0, 1.0], [0, 1]))
    rate = {x: 0.3 + 0.3 * x**2 for x, _ in outcomes}  # not even rising
    chance = {(x, y): (rate[x] if y else 1 - rate[x]) / 3 for x, y in outcomes}
    rows = np.array([[0.0, x] for x, _ in outcomes])
    total, hits = collections.Counter(), collections.Counter()
    for chosen in itertools.combinations_with_replacement(outcomes, 5):
        repeats = collections.Counter(chosen).values()
        orders = math.factorial(5) // math.prod(map(math.factorial, repeats))
        likely = orders * math.prod(chance[each] for each in chosen)
        x, labels = np.array(chosen).T
        venn = VennAbers().fit(logits=np.stack([np.zeros(5), x], axis=1), labels=labels.astype(int))
        for (x, y), ends in zip(outcomes, venn.predict_interval(logits=rows), strict=True):
            said = round(ends[y], 9)
            total[said] += likely * chance[x, y]
            hits[said] += likely * chance[x, y] * y
    assert sum(total.values()) == pytest.approx(1.0)
    for said, mass in total.items():
        assert hits[said] / mass == pytest.approx(said, abs=1e-8)


# --- what all of them promise --------------------------------------------------------------------


@every_method
@given(samples())
def test_rows_are_probabilities(name, drawn_samples):
    logits, labels, weight = drawn_samples
    k = logits.shape[1]
    calibrator = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    for dtype in (np.float64, np.float32):
        rows = np.concatenate([logits, awkward_rows(k)]).astype(dtype)
        probs, logs = (
            calibrator.predict_proba(logits=rows),
            calibrator.predict_log_proba(logits=rows),
        )
        eps = float(np.finfo(dtype).eps)
        assert probs.dtype == logs.dtype == dtype
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=4 * k * eps)
        np.testing.assert_array_equal(probs == 0, rows == -np.inf)
        np.testing.assert_array_equal(logs == -np.inf, rows == -np.inf)
        possible = rows > -np.inf
        off = np.abs(np.exp(logs[possible], dtype=np.float64) / probs[possible] - 1.0)
        assert (off <= 4 * eps * (1.0 + np.abs(logs[possible]))).all()
        alone = (rows > -np.inf).sum(axis=1) == 1
        assert (probs[alone].max(axis=1) == 1).all()


@every_method
@given(samples(), st.data())
def test_weights_are_repetitions(name, drawn_samples, data):
    logits, labels, _ = drawn_samples
    count = data.draw(st.lists(st.integers(0, 3), min_size=len(labels), max_size=len(labels)))
    count[0] = 2
    weighted = METHODS[name]().fit(logits, labels, np.array(count, dtype=float))
    repeated = METHODS[name]().fit(np.repeat(logits, count, axis=0), np.repeat(labels, count))
    rows = np.concatenate([logits, awkward_rows(logits.shape[1])])
    np.testing.assert_allclose(
        weighted.predict_proba(logits=rows), repeated.predict_proba(logits=rows), rtol=1e-6
    )


@every_method
@given(samples(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(name, drawn_samples, random):
    logits, labels, weight = drawn_samples
    order = list(range(len(labels)))
    random.shuffle(order)
    straight = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    weight = None if weight is None else weight[order]
    shuffled = METHODS[name]().fit(logits=logits[order], labels=labels[order], sample_weight=weight)
    rows = np.concatenate([logits, awkward_rows(logits.shape[1])])
    np.testing.assert_allclose(
        straight.predict_proba(logits=rows), shuffled.predict_proba(logits=rows), rtol=bound(name)
    )


@every_method
@given(samples(3, 5), st.randoms(use_true_random=False))
def test_classes_can_be_renamed(name, drawn_samples, random):
    logits, labels, weight = drawn_samples
    k = logits.shape[1]
    order = list(range(k))
    random.shuffle(order)
    straight = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    renamed = METHODS[name]().fit(logits[:, order], np.argsort(order)[labels], weight)
    rows = np.concatenate([logits, awkward_rows(k)])
    np.testing.assert_allclose(
        straight.predict_proba(logits=rows)[:, order],
        renamed.predict_proba(rows[:, order]),
        rtol=bound(name),
    )


def bound(name):
    """How far rounding can move a result: BBQ rounds to 1/256, the others not at all."""
    return 5e-3 if name == "bbq" else 1e-6


@pytest.mark.parametrize("name", RISING)
@given(samples(2, 2))
def test_two_classes_can_be_swapped(name, drawn_samples):
    logits, labels, weight = drawn_samples
    straight = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    swapped = METHODS[name]().fit(logits[:, ::-1], 1 - labels, weight)
    rows = np.concatenate([logits, awkward_rows(2)])
    np.testing.assert_allclose(
        straight.predict_proba(logits=rows),
        swapped.predict_proba(rows[:, ::-1])[:, ::-1],
        rtol=1e-6,
    )


@pytest.mark.parametrize("name", RISING)
@given(samples())
def test_a_class_is_never_less_probable_by_itself_for_a_higher_score(name, drawn_samples):
    logits, labels, weight = drawn_samples
    calibrator = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
    n_problems = 1 if logits.shape[1] == 2 else logits.shape[1]
    log_odds = np.repeat(np.linspace(-37, 37, 500)[:, np.newaxis], n_problems, axis=1)
    rises = np.diff(calibrator._calibrated(log_odds, calibrator.state_), axis=0)
    assert (rises >= -1e-12).all()


@every_method
@pytest.mark.parametrize("k", [2, 3, 10])
def test_array_libraries_agree(library, name, k):
    logits, labels = drawn(500, k, 2)
    calibrator = METHODS[name]().fit(logits=logits, labels=labels)
    rows = awkward_rows(k)
    expected = calibrator.predict_log_proba(logits=rows)
    found = library.numpy(calibrator.predict_log_proba(library.make(rows)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    block = library.make(rows[:24].reshape(2, 3, 4, k))
    for part, rest in ((block, expected[:24]), (library.make(rows[3:4]), expected[3:4])):
        found = library.numpy(calibrator.predict_log_proba(logits=part)).reshape(-1, k)
        np.testing.assert_allclose(found, rest, rtol=1e-12, atol=1e-14)


@every_method
@pytest.mark.parametrize("k", [2, 5])
def test_single_precision_is_close(name, k):
    logits, labels = drawn(500, k, 4)
    calibrator = METHODS[name]().fit(logits=logits, labels=labels)
    narrow = METHODS[name]().fit(logits.astype(np.float32), labels)
    rows = 3 * np.random.default_rng(0).normal(size=(200, k))
    wide = calibrator.predict_proba(logits=rows)
    for found in (
        calibrator.predict_proba(rows.astype(np.float32)),
        narrow.predict_proba(rows.astype(np.float32)),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wide, rtol=5e-3 if name == "bbq" else 3e-3)
    half = METHODS[name]().fit(logits.astype(np.float16), labels)
    assert half.predict_proba(rows.astype(np.float16)).dtype == np.float32


# --- hostile input -------------------------------------------------------------------------------


@functools.cache
def hostile():
    rng = np.random.default_rng(0)
    logits, labels = drawn(120, 4)
    separable = np.where(np.eye(4)[labels] == 1, 5.0, -5.0)
    masked = logits.copy()
    masked[:, 3] = -np.inf
    only_two = np.full((120, 4), -np.inf)
    only_two[:, :2] = logits[:, :2]
    certain = np.where(np.eye(4)[labels] == 1, 1.0, -np.inf)
    return {
        "one row": (logits[:1], labels[:1]),
        "one row of two classes": (logits[:1, :2], np.array([0])),
        "two rows": (logits[:2], labels[:2]),
        "separable": (separable, labels),
        "always wrong": (-separable, labels),
        "all equal": (np.zeros((120, 4)), labels),
        "all equal, one class": (np.zeros((50, 2)), np.zeros(50, dtype=int)),
        "one class only": (logits, np.zeros(120, dtype=int)),
        "absent class": (logits, np.minimum(labels, 2)),
        "class masked everywhere": (masked, np.minimum(labels, 2)),
        "two classes left": (only_two, np.minimum(labels, 1)),
        "every row certain": (certain, labels),
        "two classes, every row certain": (certain[:, :2][labels < 2], labels[labels < 2]),
        "1e4": (1e4 * logits, labels),
        "1e30": (1e30 * logits, labels),
        "1e200": (1e200 * logits, labels),
        "1e30 single": ((1e30 * logits).astype(np.float32), labels),
        "1e38 single": ((1e38 * np.sign(logits)).astype(np.float32), labels),
        "tiny": (1e-12 * logits, labels),
        "subnormal": (1e-310 * logits, labels),
        "half": (logits.astype(np.float16), labels),
        "one hot": (1e3 * np.eye(4)[rng.integers(0, 4, 120)], labels),
        "mixed sizes": (logits * 10.0 ** rng.uniform(-12, 30, size=(120, 1)), labels),
        "masks of -1e9": (np.where(rng.random((120, 4)) < 0.3, -1e9, logits), labels),
        "many classes": drawn(30, 1000),
    }


@every_method
def test_hostile_samples(name):
    for case in hostile().keys() - {"many classes"}:
        check_hostile_samples(name, case)


@pytest.mark.slow
@every_method
def test_many_classes_of_few_samples(name):
    check_hostile_samples(name, "many classes")


def check_hostile_samples(name, case):
    logits, labels = hostile()[case]
    for weight in (None, np.full(len(labels), 1e-300), np.full(len(labels), 1e15)):
        calibrator = METHODS[name]().fit(logits=logits, labels=labels, sample_weight=weight)
        assert math.isfinite(calibrator.report_.after)
        assert all(np.isfinite(value).all() for value in calibrator.state_.values())
        rows = np.concatenate([logits.astype(np.float64), awkward_rows(logits.shape[1])])
        probs = calibrator.predict_proba(logits=rows)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(probs == 0, rows == -np.inf)


@every_method
def test_a_class_without_samples_is_improbable(name):
    logits, labels = drawn(3000)
    labels[labels == 2] = 1
    with pytest.warns(CalibrationWarning, match="1 of 3 classes have no sample"):
        calibrator = METHODS[name]().fit(logits=logits, labels=labels)
    probs = calibrator.predict_proba(logits=logits)[:, 2]
    # The highest of the samples could be the first hit: Venn-Abers gives it 1/3 by definition.
    assert (probs.mean() if name == "venn-abers" else probs.max()) < 5e-3


@every_method
def test_a_class_that_is_apart_gets_bounded_odds(name):
    """Without smoothing the odds of a class told apart without an error are infinite."""
    labels = np.arange(200) % 2
    logits = np.stack([np.zeros(200), np.where(labels == 1, 8.0, -8.0)], axis=1)
    probs = METHODS[name]().fit(logits=logits, labels=labels).predict_proba(logits=logits)
    right = probs[np.arange(200), labels]
    assert (right > 0.95).all()
    assert (right < 1 - 1e-3).all()


@every_method
def test_nothing_is_certain_beyond_the_samples(name):
    logits, labels = drawn(200)
    far = METHODS[name]().fit(logits=logits, labels=labels).predict_log_proba(1e4 * np.eye(3))
    assert np.isfinite(far).all()
    assert far.min() >= -MOST - math.log(3)


@every_method
def test_many_classes_divide_properly(name):
    """All g tiny: many classes, none of which is ever likely."""
    rng = np.random.default_rng(0)
    logits, labels = 0.1 * rng.normal(size=(300, 300)), rng.permutation(300)
    calibrator = METHODS[name]().fit(logits=logits, labels=labels)
    probs = calibrator.predict_proba(logits=logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-12)
    assert (probs > 0).all()


@pytest.mark.parametrize("name", LOGISTIC)
@pytest.mark.parametrize("k", [2, 4])
def test_a_ridge_goes_from_the_free_fit_to_no_change(name, k):
    logits, labels = drawn(600, k, 9)
    rows = awkward_rows(k)[:12]
    exact = np.exp(rows - np.logaddexp.reduce(rows, axis=1, keepdims=True))
    distances, losses = [], []
    for ridge in (1e-300, 1e-6, 0.3, 30.0, 3e3, 1e6, 1e300):
        calibrator = METHODS[name](ridge=ridge).fit(2.5 * logits, labels)
        distances.append(np.abs(calibrator.predict_proba(logits=rows) - exact).max())
        slopes = np.stack([calibrator.state_[part] for part in calibrator.STATE][:-1])
        losses.append(np.abs(slopes - 1).max())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-6 < 0.3 < losses[0]
    # Each class by itself is left alone; for more than two, the sum that is divided out is then 1.
    assert distances[-1] < 1e-6


@pytest.mark.parametrize("name", LOGISTIC)
@pytest.mark.parametrize(
    ("ridge", "error", "message"),
    [
        (0, ValueError, "ridge must be above 0; found 0"),
        (-1.0, ValueError, "ridge must be above 0; found -1"),
        ("much", ValueError, "ridge must be a number"),
        (math.nan, ValueError, "ridge must be finite"),
    ],
)
def test_a_ridge_is_a_number_above_0(name, ridge, error, message):
    with pytest.raises(error, match=message):
        METHODS[name](ridge=ridge).fit(*drawn())


def test_small_units_are_no_obstacle():
    """The ridge must not hold the slope at 1 where the logits were divided by a thousand."""
    logits, labels = drawn(3000, seed=5)
    usual = PlattScaling().fit(logits=logits, labels=labels)
    for name in LOGISTIC:
        small = METHODS[name]().fit(1e-3 * logits, labels)
        assert small.report_.after < usual.report_.after + 0.1


@pytest.mark.parametrize("name", LOGISTIC)
def test_a_large_negative_number_for_a_mask_does_not_tilt_the_curve(name):
    logits, labels = drawn(3000, 4, 6)
    clean = METHODS[name]().fit(logits=logits, labels=labels)
    hidden = np.random.default_rng(1).random(logits.shape) < 0.3
    hidden[np.arange(3000), labels] = False
    masked = METHODS[name]().fit(np.where(hidden, -np.inf, logits), labels)
    large = METHODS[name]().fit(np.where(hidden, -1e9, logits), labels)
    rows, answers = drawn(3000, 4, 7)
    scores = [
        -np.mean(fit.predict_log_proba(logits=rows)[np.arange(3000), answers])
        for fit in (clean, masked, large)
    ]
    assert max(scores) < scores[0] + 0.05


# --- report, files, torch ------------------------------------------------------------------------


@every_method
def test_the_report(name):
    logits, labels = drawn(2000)
    calibrator = METHODS[name]().fit(2.5 * logits, labels)
    report = calibrator.report_
    rows = np.arange(2000)
    assert report.criterion == "nll"
    assert report.after == pytest.approx(
        -np.mean(calibrator.predict_log_proba(2.5 * logits)[rows, labels])
    )
    exact = 2.5 * logits - np.logaddexp.reduce(2.5 * logits, axis=1, keepdims=True)
    assert report.before == pytest.approx(-np.mean(exact[rows, labels]))
    assert report.after < report.before
    assert report.warnings == ()
    if name in LOGISTIC:
        assert 0 <= report.gradient < 1e-8
        assert 1 < report.evaluations < 40
    else:
        assert report.gradient is None
        assert report.evaluations == 1


def test_a_worse_result_is_said():
    logits, labels = drawn(600, 30, spread=1.5)
    with pytest.warns(CalibrationWarning, match=r"the nll rose from .* to .* compare with temp"):
        report = HistogramBinning(n_bins=2).fit(logits=logits, labels=labels).report_
    assert report.after > report.before


@every_method
def test_too_many_numbers_for_the_samples_are_said(name):
    logits, labels = drawn(150, 100)
    with pytest.warns(CalibrationWarning, match="numbers were fitted on 150 samples"):
        METHODS[name]().fit(logits=logits, labels=labels)


@pytest.mark.parametrize(
    ("n_bins", "error", "message"),
    [
        (0, ValueError, "n_bins must be from 1 to 10000; found 0"),
        (10_001, ValueError, "n_bins must be from 1 to 10000; found 10001"),
        (2.0, ValueError, "n_bins must be a whole number; found float 2.0"),
    ],
)
def test_bins_are_counted(n_bins, error, message):
    with pytest.raises(error, match=message):
        HistogramBinning(n_bins=n_bins).fit(*drawn())


@pytest.mark.parametrize("n_bins", [1, 2, 7, 10_000])
def test_equal_mass(n_bins):
    logits, labels = drawn(100, 2)
    calibrator = HistogramBinning(n_bins=n_bins).fit(logits=logits, labels=labels)
    x = class_log_odds(logits)[:, 1:]
    bins = np.searchsorted(calibrator.state_["knots"][0], x[:, 0])
    sizes = np.unique(bins, return_counts=True)[1]
    assert len(sizes) == min(n_bins, 100)
    assert np.ptp(sizes) <= 1


@every_method
@pytest.mark.parametrize("k", [2, 4])
def test_files(name, k, tmp_path, monkeypatch):
    monkeypatch.setitem(calibrators.CALIBRATORS, name, METHODS[name])
    calibrator = METHODS[name]().fit(*drawn(k=k))
    calibrator.save(tmp_path / "cal.json")
    loaded = calibrators.load(tmp_path / "cal.json")
    rows = awkward_rows(k)
    np.testing.assert_array_equal(
        loaded.predict_proba(logits=rows), calibrator.predict_proba(logits=rows)
    )

    def refused(message, change):
        content = json.loads((tmp_path / "cal.json").read_text())
        change(content["state"])
        (tmp_path / "changed.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            calibrators.load(tmp_path / "changed.json")

    first = next(iter(calibrator.STATE))
    n_problems = 1 if k == 2 else k
    refused(
        f"is for {n_problems + 1} problems, not {n_problems}",
        lambda state: [values.append(values[-1]) for values in state.values()],
    )
    if name in LOGISTIC:
        refused("below 0", lambda state: state[first].__setitem__(0, -1e-9))
        refused("beyond 1e.30", lambda state: state[first].__setitem__(0, 1e31))
    else:
        refused("knots are not sorted", lambda state: state["knots"][0].reverse())
        refused("beyond 1e.30", lambda state: state["knots"][0].__setitem__(0, -1e31))


@pytest.mark.slow
@every_method
def test_a_torch_program_of_two_classes(name):
    """They are one problem; ``calibrators/test_export.py`` has more classes."""
    calibrator = METHODS[name]().fit(*drawn(k=2))
    module = calibrator.as_module()
    rows = torch.tensor(awkward_rows(2))
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (rows,), dynamic_shapes=({0: batch},))
    for part in (rows, rows[:5]):
        expected = calibrator.predict_log_proba(logits=part).numpy()
        np.testing.assert_allclose(program.module()(part).numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("k", [2, 3])
def test_gradients(name, k):
    calibrator = METHODS[name]().fit(*drawn(k=k))
    ordinary = torch.tensor(awkward_rows(k)[:10], requires_grad=True)
    assert torch.autograd.gradcheck(calibrator.predict_log_proba, ordinary, atol=1e-4)
    rows = torch.tensor(awkward_rows(k), requires_grad=True)
    log_probs = calibrator.predict_log_proba(logits=rows)
    log_probs[torch.isfinite(log_probs)].sum().backward()
    assert torch.isfinite(rows.grad).all()


@every_method
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0 / 700, 2.5])
def test_equal_weights_of_any_size_change_nothing(name, scale):
    logits, labels = drawn(700, 3, 8)
    plain = METHODS[name]().fit(logits=logits, labels=labels)
    weighted = METHODS[name]().fit(logits, labels, np.full(700, scale))
    found = weighted.predict_proba(logits=logits)
    np.testing.assert_allclose(found, plain.predict_proba(logits=logits), rtol=1e-6)
