"""relplot: smooth ECE, whose authors wrote it, and a binned ECE."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import metrics
from tests.peers.cases import REASON, assert_differ, ordinary, three_classes, top, two_classes
from tests.reference import metrics_slow as slow

peer = pytest.importorskip("relplot.metrics", reason=REASON)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [30, 300, 3000])
def test_smooth_ece_agrees_to_its_search(n, seed):
    """relplot looks for the width in steps of 2^-10."""
    probs, labels = ordinary(n=n, seed=seed)
    said = peer.smECE(*top(probs, labels))
    assert metrics.smooth_ece(probs, labels) == pytest.approx(said, abs=2.0**-10)


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_binned_ece_agrees(n_bins):
    probs, labels = ordinary()
    said = peer.binnedECE(*top(probs, labels), nbins=n_bins)
    assert metrics.ece(probs, labels, n_bins=n_bins) == pytest.approx(said, rel=1e-11)


def test_the_gaussian_is_cut_off_at_a_distance_of_one_half():
    """Unsure and right, sure and wrong: the width is large, and so is what the cut takes away."""
    confidence, correct = [0.55] * 10 + [0.99] * 10, [1] * 10 + [0] * 10
    probs, labels = two_classes(confidence, correct)
    assert_differ(
        reference=slow.smooth_ece(confidence, correct),
        ours=metrics.smooth_ece(probs, labels),
        theirs=peer.smECE(np.array(confidence), np.array(correct)),
        stated=(0.340, 0.462),
    )


def test_confidence_one_falls_into_a_bin_of_its_own():
    """0.95 and 1.0 are both in the last of 15 bins; theirs are 16."""
    probs, labels = two_classes([1.0, 1.0, 0.95, 0.95], [1, 0, 1, 1])
    confidence, correct = top(probs, labels)
    assert_differ(
        reference=slow.ece(confidence, correct),
        ours=metrics.ece(probs, labels),
        theirs=peer.binnedECE(confidence, correct, nbins=15),
        stated=(0.225, 0.275),
    )


def test_an_edge_belongs_to_the_bin_above():
    """0.6 = 9/15 ends the bin of 0.55; theirs begins the next one with it."""
    probs, labels = three_classes([0.55, 0.6], [1, 0])
    confidence, correct = top(probs, labels)
    assert_differ(
        reference=slow.ece(confidence, correct),
        ours=metrics.ece(probs, labels),
        theirs=peer.binnedECE(confidence, correct, nbins=15),
        stated=(0.075, 0.525),
    )


def test_an_edge_that_rounds_belongs_to_the_bin_below():
    """0.5 / 0.1 is 5 and 0.6 / 0.1 is 5.999...: both are in one bin."""
    probs, labels = three_classes([0.5, 0.6], [1, 0])
    confidence, correct = top(probs, labels)
    assert_differ(
        reference=slow.ece(confidence, correct, 10),
        ours=metrics.ece(probs, labels, n_bins=10),
        theirs=peer.binnedECE(confidence, correct, nbins=10),
        stated=(0.55, 0.05),
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_nan_is_an_error_of_the_index():
    with pytest.raises(IndexError):
        peer.binnedECE(np.array([0.9, np.nan]), np.array([1.0, 0.0]))
