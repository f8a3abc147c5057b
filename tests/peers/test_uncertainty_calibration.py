"""uncertainty-calibration: errors by width, by mass, by class, and without the noise."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import metrics
from tests.peers.cases import REASON, assert_differ, ordinary, top, two_classes
from tests.reference import metrics_slow as slow

peer = pytest.importorskip("calibration.utils", reason=REASON)


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_errors_agree(n_bins):
    probs, labels = ordinary()
    bins, their_bins = {"n_bins": n_bins}, {"num_bins": n_bins}
    pairs = {
        "ece": (
            metrics.ece(probs, labels, **bins),
            peer.get_ece(probs, labels, **their_bins),
        ),
        "classwise_ece": (
            metrics.classwise_ece(probs, labels, **bins),
            peer.get_ece(probs, labels, mode="marginal", **their_bins),
        ),
        "ada_ece": (
            metrics.ada_ece(probs, labels, **bins),
            peer.get_ece_em(probs, labels, **their_bins),
        ),
        "ada_ece, l2": (
            metrics.ada_ece(probs, labels, norm="l2", **bins),
            peer.lower_bound_scaling_top_ce(probs, labels, debias=False, **their_bins),
        ),
        "debiased_ece": (
            metrics.debiased_ece(probs, labels, **bins),
            peer.lower_bound_scaling_top_ce(probs, labels, **their_bins),
        ),
    }
    for name, (ours, theirs) in pairs.items():
        assert ours == pytest.approx(theirs, rel=1e-10), name


def test_an_edge_belongs_to_the_bin_below():
    for n_bins in (10, 15, 20):
        on_edges = [i / n_bins for i in range(n_bins // 2 + 1, n_bins + 1)]
        probs, labels = two_classes(on_edges, [i % 2 for i in range(len(on_edges))])
        said = peer.get_ece(probs, labels, num_bins=n_bins)
        assert metrics.ece(probs, labels, n_bins=n_bins) == pytest.approx(said, rel=1e-12)


def test_risk_coverage_agrees():
    probs, labels = ordinary()
    area, _ = peer.get_selective_stats(*top(probs, labels))
    assert metrics.aurc(probs, labels) == pytest.approx(1.0 - area, rel=1e-11)


def test_tied_confidences_all_fall_on_one_side_of_an_edge():
    """Two bins of two samples each, the edge inside a tie of three: theirs is one bin of four."""
    probs, labels = two_classes([0.5, 0.9, 0.9, 0.9], [1, 0, 1, 1])
    assert_differ(
        reference=slow.ada_ece(*top(probs, labels), 2),
        ours=metrics.ada_ece(probs, labels, n_bins=2),
        theirs=peer.get_ece_em(probs, labels, num_bins=2),
        stated=(0.1833, 0.05),
    )


def test_a_bin_of_one_sample_counts_nothing():
    """Its variance cannot be estimated: theirs takes its gap as 0, ours as it is."""
    probs, labels = two_classes([0.6, 0.7, 0.8], [0, 0, 1])
    assert_differ(
        reference=slow.debiased_ece(*top(probs, labels), 3),
        ours=metrics.debiased_ece(probs, labels, n_bins=3),
        theirs=peer.lower_bound_scaling_top_ce(probs, labels, num_bins=3),
        stated=(0.5447, 0.0),
    )


def test_repeated_values_change_the_bins_of_get_calibration_error():
    """Fewer distinct values than a quarter of the samples: one bin for each in place of 15."""
    rng = np.random.default_rng(0)
    confidence = np.round(0.5 + 0.5 * rng.random(4000), 2)
    correct = (rng.random(4000) < confidence - 0.1).astype(int)
    probs, labels = two_classes(confidence, correct)
    assert_differ(
        reference=slow.debiased_ece(*top(probs, labels)),
        ours=metrics.debiased_ece(probs, labels),
        theirs=peer.get_calibration_error(probs, labels, mode="top-label"),
        stated=(0.1004, 0.0995),
    )


def test_risk_coverage_depends_on_the_order_of_tied_rows():
    for correct, stated in (([1, 1, 0, 0], 0.208), ([0, 0, 1, 1], 0.792)):
        probs, labels = two_classes([0.9] * 4, correct)
        area, _ = peer.get_selective_stats(*top(probs, labels))
        assert_differ(
            reference=slow.aurc(*top(probs, labels)),
            ours=metrics.aurc(probs, labels),
            theirs=1.0 - area,
            stated=(0.5, stated),
        )


def test_half_precision_is_rounded_in_every_step():
    """Nine of ten right at the half-precision 0.9, which is 0.89990."""
    probs = np.tile(np.array([0.9, 0.1], dtype=np.float16), (5000, 1))
    labels = np.where(np.arange(5000) % 10 == 0, 1, 0)
    reference = slow.ece([float(np.float16(0.9))], [0.9])
    assert reference == pytest.approx(9.77e-5, rel=1e-3)
    assert metrics.ece(probs, labels) == pytest.approx(reference, rel=1e-9)
    assert peer.get_ece(probs, labels) == 0.0


def test_nan_stays_nan():
    probs, labels = ordinary(n=50)
    probs[1] = np.nan
    assert np.isnan(peer.get_ece(probs, labels))
    with pytest.raises(ValueError, match="NaN in row 1"):
        metrics.ece(probs, labels)
