"""scikit-learn: proper scores, top-k, and the points of a reliability diagram."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import metrics
from tests.peers.cases import REASON, assert_differ, ordinary, top, two_classes
from tests.reference import metrics_slow as slow

peer = pytest.importorskip("sklearn.metrics", reason=REASON)
calibration = pytest.importorskip("sklearn.calibration", reason=REASON)


@pytest.mark.parametrize("weighted", [False, True])
def test_proper_scores_agree(weighted):
    probs, labels = ordinary()
    weight = np.random.default_rng(1).random(len(labels)) if weighted else None
    ours = [
        getattr(metrics, name)(probs, labels, sample_weight=weight)
        for name in ("nll", "brier", "error_rate")
    ]
    said = [
        peer.log_loss(labels, probs, sample_weight=weight),
        peer.brier_score_loss(labels, probs, sample_weight=weight),
        peer.zero_one_loss(labels, probs.argmax(axis=-1), sample_weight=weight),
    ]
    assert ours == pytest.approx(said, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_top_k_agrees(k):
    probs, labels = ordinary()
    said = peer.top_k_accuracy_score(labels, probs, k=k)
    assert metrics.top_k_error(probs, labels, k=k) == pytest.approx(1.0 - said, rel=1e-12)


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_the_largest_gap_of_a_calibration_curve_is_the_mce(n_bins):
    probs, labels = ordinary()
    confidence, correct = top(probs, labels)
    seen, said = calibration.calibration_curve(correct, confidence, n_bins=n_bins)
    largest = np.abs(seen - said).max()
    assert metrics.mce(probs, labels, n_bins=n_bins) == pytest.approx(largest, rel=1e-11)


@pytest.mark.parametrize("n_bins", [10, 15, 20, 25])
def test_an_edge_belongs_to_the_bin_below(n_bins):
    on_edges = [i / n_bins for i in range(n_bins // 2 + 1, n_bins + 1)]
    correct = [i % 2 for i in range(len(on_edges))]
    probs, labels = two_classes(on_edges, correct)
    seen, said = calibration.calibration_curve(correct, on_edges, n_bins=n_bins)
    largest = np.abs(seen - said).max()
    assert metrics.mce(probs, labels, n_bins=n_bins) == pytest.approx(largest, rel=1e-11)


def test_quantile_bins_agree_where_they_are_of_one_size():
    probs, labels = ordinary(n=3000)
    confidence, correct = top(probs, labels)
    seen, said = calibration.calibration_curve(correct, confidence, n_bins=15, strategy="quantile")
    ours = metrics.ada_ece(probs, labels, norm="max")
    assert ours == pytest.approx(np.abs(seen - said).max(), rel=1e-9)


def test_quantile_bins_spread_the_larger_bins():
    """Five samples in three bins: 2, 2, 1 by rank; theirs are 2, 1, 2."""
    probs, labels = two_classes([0.55, 0.6, 0.7, 0.8, 0.9], [1, 1, 1, 0, 0])
    confidence, correct = top(probs, labels)
    seen, said = calibration.calibration_curve(correct, confidence, n_bins=3, strategy="quantile")
    assert_differ(
        reference=slow.ada_ece(confidence, correct, 3, "max"),
        ours=metrics.ada_ece(probs, labels, n_bins=3, norm="max"),
        theirs=float(np.abs(seen - said).max()),
        stated=(0.9, 0.85),
    )


def test_tied_confidences_all_fall_on_one_side_of_a_quantile():
    probs, labels = two_classes([0.5, 0.9, 0.9, 0.9], [1, 0, 1, 1])
    confidence, correct = top(probs, labels)
    seen, said = calibration.calibration_curve(correct, confidence, n_bins=2, strategy="quantile")
    assert_differ(
        reference=slow.ada_ece(confidence, correct, 2, "max"),
        ours=metrics.ada_ece(probs, labels, n_bins=2, norm="max"),
        theirs=float(np.abs(seen - said).max()),
        stated=(0.2333, 0.05),
    )


@pytest.mark.parametrize(("dtype", "stated"), [(np.float64, 18.37), (np.float32, 8.318)])
def test_log_loss_of_an_impossible_label_is_finite(dtype, stated):
    """And which finite number depends on the type of the array."""
    probs, labels = np.array([[1.0, 0.0], [0.5, 0.5]], dtype=dtype), np.array([1, 0])
    assert slow.nll(probs, labels) == np.inf
    assert metrics.nll(probs, labels) == np.inf
    assert metrics.n_impossible(probs, labels) == 1
    assert peer.log_loss(labels, probs) == pytest.approx(stated, rel=1e-3)


def test_log_loss_is_cut_off_at_the_rounding_of_1():
    probs, labels = np.array([[1.0, 1e-20], [0.5, 0.5]]), np.array([1, 0])
    assert_differ(
        reference=slow.nll(probs, labels),
        ours=metrics.nll(probs, labels),
        theirs=peer.log_loss(labels, probs),
        stated=(23.3724, 18.3684),
    )


def test_brier_score_of_two_classes_is_half_of_it():
    probs, labels = two_classes([0.9, 0.4], [1, 0])
    assert_differ(
        reference=slow.brier(probs, labels),
        ours=metrics.brier(probs, labels),
        theirs=peer.brier_score_loss(labels, probs),
        stated=(0.17, 0.085),
    )
    whole = peer.brier_score_loss(labels, probs, scale_by_half=False)
    assert metrics.brier(probs, labels) == pytest.approx(whole)


def test_ties_at_the_kth_place_go_to_the_later_class():
    """The predicted class, in scikit-learn too, is the first of tied ones."""
    probs = np.array([[0.4, 0.3, 0.3]] * 2)
    labels = np.array([1, 1])
    assert_differ(
        reference=slow.top_k_error(probs, labels, 2),
        ours=metrics.top_k_error(probs, labels, k=2),
        theirs=1.0 - peer.top_k_accuracy_score(labels, probs, k=2, labels=[0, 1, 2]),
        stated=(0.0, 1.0),
    )


def test_nan_is_refused_by_the_scores_and_kept_by_the_curve():
    probs, labels = ordinary(n=50)
    confidence, correct = top(probs, labels)
    probs[1], confidence[1] = np.nan, np.nan
    with pytest.raises(ValueError, match="NaN"):
        peer.log_loss(labels, probs)
    assert np.isnan(calibration.calibration_curve(correct, confidence)[1]).any()
    with pytest.raises(ValueError, match="NaN in row 1"):
        metrics.nll(probs, labels)
