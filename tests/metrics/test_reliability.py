"""The curves against slow bins written from the definitions, on ordinary and hostile inputs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import calibrant
from calibrant import metrics
from calibrant.metrics import reliability
from calibrant.metrics.binning import EqualMassSketch, EqualWidthBins
from calibrant.metrics.reliability import (
    classwise_curves,
    confidence_histogram,
    reliability_curve,
    risk_coverage_curve,
    wilson_interval,
)
from calibrant.metrics.samples import ScoredSamples
from tests.builders import draw_mixed
from tests.reference import metrics_slow as slow

SLOW_BINS = {"width": slow.width_bins, "mass": slow.mass_bins}


CASES = {
    "ordinary": draw_mixed(300, 5, seed=0),
    "two classes": draw_mixed(90, 2, seed=1),
    "many ties": draw_mixed(200, 3, seed=2, digits=1),
    "one sample": (np.array([[0.7, 0.2, 0.1]]), np.array([2])),
    "fewer samples than bins": draw_mixed(6, 3, seed=3),
    "all tied": (np.full((20, 2), 0.5), np.arange(20) % 2),
    "all certain": (np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])),
    "on the edges": (
        np.stack([np.arange(8, 16) / 15, 1 - np.arange(8, 16) / 15], axis=-1),
        np.arange(8) % 2,
    ),
}
EXACT = {"rel": 1e-12, "abs": 1e-13, "nan_ok": True}


def weights_of(kind: str, n: int) -> np.ndarray | None:
    rng = np.random.default_rng(11)
    if kind == "none":
        return None
    weight = rng.integers(0, 4, n).astype(float) if kind == "whole" else rng.random(n)
    weight[0] = 1.0 if kind == "whole" else 0.3
    return weight


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_bins_are_those_of_the_reference(case, binning):
    for n_bins, kind in itertools.product((1, 2, 15, 100), ("none", "whole", "fractions")):
        check_bins(case, binning, n_bins, kind)


def check_bins(case, binning, n_bins, kind):
    probs, labels = CASES[case]
    weight = weights_of(kind, len(labels))
    curve = reliability_curve(
        probs, labels, n_bins=n_bins, binning=binning, sample_weight=weight, top_class=True
    )
    top = slow.top_label(probs, labels)
    bins = SLOW_BINS[binning](*top, n_bins, weight)
    count, claimed, right = np.array(bins).T
    full = count > 0
    assert curve.count == pytest.approx(count, **EXACT)
    assert curve.full.tolist() == full.tolist()
    assert curve.confidence[full] == pytest.approx(claimed[full] / count[full], **EXACT)
    assert curve.accuracy[full] == pytest.approx(right[full] / count[full], rel=1e-11, abs=1e-12)
    for empty in (curve.confidence, curve.accuracy, curve.accuracy_low, curve.accuracy_high):
        assert np.isnan(empty[~full]).all()
    assert np.isnan(curve.gap[~full]).all()
    assert curve.n == pytest.approx(count.sum(), **EXACT)
    assert curve.overall_confidence == pytest.approx(claimed.sum() / count.sum(), **EXACT)
    assert curve.overall_accuracy == pytest.approx(right.sum() / count.sum(), rel=1e-11)
    inside = 1e-12
    assert (curve.lower[full] <= curve.confidence[full] + inside).all()
    assert (curve.confidence[full] <= curve.upper[full] + inside).all()
    metric = calibrant.ece if binning == "width" else calibrant.ada_ece
    assert curve.ece == metric(probs, labels, n_bins=n_bins, sample_weight=weight)
    assert (curve.binning, curve.level, curve.class_index) == (binning, 0.95, None)


def test_wilson_by_hand():
    """8 of 10: (0.8 + 3.8415/20) / 1.38415 -+ 1.95996/1.38415 sqrt(0.016 + 3.8415/400)."""
    probs = np.tile([0.9, 0.1], (10, 1))
    curve = reliability_curve(probs, np.array([0] * 8 + [1] * 2), n_bins=1, top_class=True)
    assert curve.accuracy_low[0] == pytest.approx(0.490162, abs=1e-6)
    assert curve.accuracy_high[0] == pytest.approx(0.943318, abs=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_the_ends_are_z_standard_errors_away(n, level):
    """What Wilson's ends are: shares p with (seen - p)^2 = z^2 p (1 - p) / n."""
    z = {0.5: 0.6744897501960817, 0.9: 1.6448536269514722, 0.99: 2.5758293035489004}[level]
    seen = np.arange(n + 1) / n
    for end in wilson_interval(seen, np.full(n + 1, float(n)), level):
        assert (seen - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / n, rel=1e-9, abs=1e-12)


def test_the_interval_at_its_limits():
    share, count = np.array([0.0, 0.3, 1.0, np.nan, 1 / 3]), np.array([3.0, 1e15, 7.0, 0.0, 1e-9])
    low, high = wilson_interval(share, count, 0.95)
    assert low[0] == 0.0
    assert high[2] == 1.0
    assert np.isnan(low[3])
    assert np.isnan(high[3])
    full = count > 0
    assert (low[full] <= share[full]).all()
    assert (share[full] <= high[full]).all()
    low, high = wilson_interval(share, count, 0.0)
    assert low[full] == pytest.approx(share[full])
    assert high[full] == pytest.approx(share[full])
    low, high = wilson_interval(share, count, 1.0)
    assert low[full].tolist() == [0.0] * 4
    assert high[full].tolist() == [1.0] * 4


def same(first, second, **close) -> None:
    for field in dataclasses.fields(first):
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if isinstance(ours, str | int | None):
            assert ours == theirs
        else:
            assert ours == pytest.approx(theirs, nan_ok=True, **close), field.name


MAKERS = {
    "reliability": lambda *a, **k: [reliability_curve(*a, **k)],
    "equal mass": lambda *a, **k: [reliability_curve(*a, binning="mass", **k)],
    "classwise": lambda *a, **k: list(classwise_curves(*a, **k)),
    "histogram": lambda *a, **k: [confidence_histogram(*a, **k)],
    "risk": lambda *a, **k: [risk_coverage_curve(*a, **k)],
}


@pytest.mark.parametrize("make", sorted(MAKERS))
def test_what_does_not_matter(make):
    """Row order, weights of 1, an ignored label, leading axes, the array library, logits."""
    probs, labels = CASES["ordinary"]
    maker = MAKERS[make]
    curves = maker(probs, labels)
    order = np.random.default_rng(3).permutation(len(labels))
    more = np.concatenate([probs, np.full((4, 5), 0.2)]), np.append(labels, [-1] * 4)
    others = [
        maker(probs[order], labels[order]),
        maker(probs, labels, sample_weight=np.ones(300)),
        maker(*more, ignore_label=-1),
        maker(probs.reshape(20, 15, 5), labels.reshape(20, 15)),
        maker(torch.from_numpy(probs), torch.from_numpy(labels)),
        maker(logits=np.log(probs) + 7.0, labels=labels),
    ]
    for other in others:
        for a, b in zip(curves, other, strict=True):
            same(a, b, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("make", ["reliability", "equal mass", "classwise", "histogram"])
def test_whole_weights_are_repetitions(make):
    probs, labels = CASES["many ties"]
    weight = np.random.default_rng(5).integers(0, 4, len(labels))
    again = np.repeat(np.arange(len(labels)), weight)
    weighted = MAKERS[make](probs, labels, sample_weight=weight)
    repeated = MAKERS[make](probs[again], labels[again])
    for a, b in zip(weighted, repeated, strict=True):
        same(a, b, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", sorted(CASES))
def test_one_curve_a_class(case):
    probs, labels = CASES[case]
    curves = classwise_curves(probs, labels, n_bins=10)
    assert [curve.class_index for curve in curves] == list(range(probs.shape[1]))
    for k, curve in enumerate(curves):
        count, claimed, seen = np.array(slow.width_bins(probs[:, k], labels == k, 10)).T
        assert curve.count.tolist() == count.tolist()
        full = count > 0
        assert curve.confidence[full] == pytest.approx(claimed[full] / count[full], **EXACT)
        assert curve.accuracy[full] == pytest.approx(seen[full] / count[full], **EXACT)
    mean = np.mean([curve.ece for curve in curves])
    assert mean == pytest.approx(calibrant.classwise_ece(probs, labels, n_bins=10), **EXACT)


def test_probabilities_a_little_above_one():
    over = np.array([[1.00005, 0.0], [0.5, 0.5]])
    first, second = classwise_curves(over, [0, 1])
    assert first.count[-1] == second.count[0] == 1
    assert reliability_curve(over, [0, 1], top_class=True).count[-1] == 1
    assert reliability_curve(over[:, ::-1], [0, 1]).count[-1] == 1


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("kind", ["none", "fractions"])
def test_histogram(case, kind):
    probs, labels = CASES[case]
    weight = weights_of(kind, len(labels))
    histogram = confidence_histogram(probs, labels, n_bins=7, sample_weight=weight, top_class=True)
    confidence, correct = slow.top_label(probs, labels)
    bins = np.array(slow.width_bins(confidence, correct, 7, weight))
    assert histogram.edges == pytest.approx(np.arange(8) / 7)
    assert histogram.correct == pytest.approx(bins[:, 2], **EXACT)
    assert histogram.wrong == pytest.approx(bins[:, 0] - bins[:, 2], **EXACT)
    assert (histogram.wrong >= 0).all()


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("kind", ["none", "whole", "fractions"])
def test_risk_and_coverage(case, kind):
    probs, labels = CASES[case]
    weight = weights_of(kind, len(labels))
    curve = risk_coverage_curve(probs, labels, sample_weight=weight)
    confidence, correct = slow.top_label(probs, labels)
    rows = list(
        zip(confidence, correct, np.ones(len(labels)) if weight is None else weight, strict=True)
    )
    rows = [(c, hit, Fraction(w)) for c, hit, w in rows if w > 0]
    assert curve.confidence.tolist() == sorted((c for c, _, _ in rows), reverse=True)
    total = sum(w for _, _, w in rows)
    for threshold in set(curve.confidence.tolist()):
        answered = [(hit, w) for c, hit, w in rows if c >= threshold]
        covered = sum(w for _, w in answered)
        wrong = sum(w for hit, w in answered if not hit)
        last = np.flatnonzero(curve.confidence == threshold)[-1]
        assert curve.coverage[last] == pytest.approx(float(covered / total), **EXACT)
        assert curve.risk[last] == pytest.approx(float(wrong / covered), rel=1e-11, abs=1e-13)
    assert (np.diff(curve.coverage) > 0).all()
    assert curve.coverage[-1] == 1.0
    assert curve.aurc == metrics.aurc(probs, labels, sample_weight=weight)
    if weight is None:  # inside a group of ties too
        assert curve.aurc == pytest.approx(slow.aurc(confidence, correct), **EXACT)
        assert curve.aurc == pytest.approx(curve.risk.mean(), **EXACT)


@pytest.mark.parametrize("case", ["two classes", "all tied", "on the edges"])
def test_two_classes_show_the_probability_of_class_1(case):
    probs, labels = CASES[case]
    for binning, metric in (("width", "positive_ece"), ("mass", "positive_ada_ece")):
        curve = reliability_curve(probs, labels, binning=binning)
        assert curve.class_index == 1
        assert curve.ece == calibrant.METRICS[metric](probs, labels)
    same(reliability_curve(probs, labels), classwise_curves(probs, labels)[1], rel=1e-12)
    histogram = confidence_histogram(probs, labels)
    assert histogram.correct.sum() == labels.sum()
    assert (histogram.class_index, histogram.names[0]) == (1, "of class 1")


def test_confidence_and_correct_are_enough():
    probs, labels = CASES["ordinary"]
    confidence, correct = map(np.array, slow.top_label(probs, labels))
    samples = ScoredSamples(confidence, correct.astype(bool), None)
    same(reliability.reliability_of(samples), reliability_curve(probs, labels), rel=1e-12)
    same(reliability.histogram_of(samples), confidence_histogram(probs, labels), rel=1e-12)
    same(reliability.risk_coverage_of(samples), risk_coverage_curve(probs, labels), rel=1e-12)


def test_bins_counted_in_parts():
    probs, labels = CASES["ordinary"]
    confidence, correct = map(np.array, slow.top_label(probs, labels))
    bins, sketch = EqualWidthBins(15), EqualMassSketch()
    for part in (slice(0, 100), slice(100, None)):
        bins.update(confidence[part], correct[part])
        sketch.update(confidence[part], correct[part])
    curve = reliability.reliability_of_table(bins.table(), binning="width")
    same(curve, reliability_curve(probs, labels), rel=1e-12)
    curve = reliability.reliability_of_table(sketch.table(15), binning="mass")
    assert curve.ece == pytest.approx(
        calibrant.ada_ece(probs, labels), abs=sketch.error_bound(15) + 1e-12
    )


@pytest.mark.parametrize("make", sorted(MAKERS))
@pytest.mark.parametrize("case", ["ordinary", "one sample", "all certain"])
def test_json_and_back(make, case):
    for curve in MAKERS[make](*CASES[case]):
        plain = curve.to_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain
        assert list(plain) == [field.name for field in dataclasses.fields(curve)]
        for name, value in plain.items():
            ours = getattr(curve, name)
            if isinstance(ours, np.ndarray):
                back = np.array([math.nan if v is None else v for v in value])
                assert np.array_equal(back, ours, equal_nan=True)
            else:
                assert value == ours


@pytest.mark.parametrize("make", sorted(MAKERS))
@pytest.mark.parametrize("case", sorted(CASES))
def test_a_notebook_shows_a_table(make, case):
    for curve in MAKERS[make](*CASES[case]):
        table = ElementTree.fromstring(curve._repr_html_())
        caption, head, *rows = list(table)
        assert (table.tag, caption.tag) == ("table", "caption")
        assert 1 <= len(rows) <= reliability.MOST_ROWS + 1
        assert all(len(row) == len(head) for row in rows)
        assert "nan" not in "".join(table.itertext())


def test_a_long_table_says_what_it_leaves_out():
    text = reliability_curve(*CASES["ordinary"], n_bins=1000)._repr_html_()
    table = ElementTree.fromstring(text)
    left = int((reliability_curve(*CASES["ordinary"], n_bins=1000).count > 0).sum()) - 30
    assert "".join(list(table)[-1].itertext()) == f"and {left} more"


def test_the_table_is_escaped():
    curve = reliability_curve(*CASES["ordinary"])
    text = dataclasses.replace(curve, binning="<script>")._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_curves_are_frozen():
    curve = reliability_curve(*CASES["ordinary"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.ece = 0.0


def test_bad_input_is_refused():
    probs, labels = CASES["ordinary"]
    with pytest.raises(ValueError, match=r"binning must be one of width, mass; found 'mas'.*mass"):
        reliability_curve(probs, labels, binning="mas")
    with pytest.raises(ValueError, match=r"level must be strictly between 0 and 1; found 95"):
        reliability_curve(probs, labels, level=95)
    for maker in (reliability_curve, classwise_curves, confidence_histogram):
        with pytest.raises(ValueError, match="n_bins must be from 1"):
            maker(probs, labels, n_bins=0)
    for maker in MAKERS.values():
        with pytest.raises(ValueError, match="sum to 1"):
            maker(2 * probs, labels)
        with pytest.raises(ValueError, match="at least one sample"):
            maker(probs, np.full(300, -1), ignore_label=-1)
        with pytest.raises(ValueError, match="exactly one of probs or logits"):
            maker(probs, labels, logits=probs)
