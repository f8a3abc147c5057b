"""netcal: ECE, MCE, equal-mass ECE and MMCE."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import metrics
from tests.peers.cases import REASON, assert_differ, ordinary, three_classes, top, two_classes
from tests.reference import metrics_slow as slow

peer = pytest.importorskip("netcal.metrics", reason=REASON)


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_ece_and_mce_agree(n_bins):
    probs, labels = ordinary()
    ours = metrics.ece(probs, labels, n_bins=n_bins), metrics.mce(probs, labels, n_bins=n_bins)
    said = peer.ECE(n_bins).measure(probs, labels), peer.MCE(n_bins).measure(probs, labels)
    assert ours == pytest.approx(said, rel=1e-11)


def test_equal_mass_ece_agrees_where_bins_are_of_one_size():
    probs, labels = ordinary(n=3000)
    said = peer.ECE(15, equal_intervals=False).measure(probs, labels)
    assert metrics.ada_ece(probs, labels) == pytest.approx(said, rel=1e-11)


def test_mmce_agrees():
    probs, labels = ordinary(n=1000)
    assert metrics.mmce(probs, labels) == pytest.approx(
        peer.MMCE().measure(probs, labels), rel=1e-11
    )


def test_two_columns_are_the_error_of_the_second_class():
    """They are read as one probability, that of class 1, and not as a prediction."""
    probs, labels = ordinary(n_classes=2)
    said = peer.ECE(15).measure(probs, labels)
    assert metrics.classwise_ece(probs, labels) == pytest.approx(said, rel=1e-11)
    probs, labels = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([1, 1])
    assert_differ(
        reference=slow.ece(*top(probs, labels)),
        ours=metrics.ece(probs, labels),
        theirs=peer.ECE(15).measure(probs, labels),
        stated=(0.4, 0.5),
    )


def test_an_edge_belongs_to_the_bin_above():
    """0.6 = 9/15 ends the bin of 0.55; theirs begins the next one with it."""
    probs, labels = three_classes([0.55, 0.6], [1, 0])
    confidence, correct = top(probs, labels)
    assert_differ(
        reference=slow.ece(confidence, correct),
        ours=metrics.ece(probs, labels),
        theirs=peer.ECE(15).measure(confidence, correct.astype(int)),
        stated=(0.075, 0.525),
    )


def test_an_edge_that_rounds_belongs_to_the_bin_below():
    """With ten bins 0.5 is in a bin with 0.6: the edge 6 * 0.1 is above 0.6, that of 0.5 exact."""
    probs, labels = three_classes([0.5, 0.6], [1, 0])
    confidence, correct = top(probs, labels)
    assert_differ(
        reference=slow.ece(confidence, correct, 10),
        ours=metrics.ece(probs, labels, n_bins=10),
        theirs=peer.ECE(10).measure(confidence, correct.astype(int)),
        stated=(0.55, 0.05),
    )


def test_nan_gives_a_number():
    probs, labels = three_classes([0.55, 0.6, 0.7, 0.9], [1, 0, 1, 1])
    probs[1] = np.nan
    correct = np.array([1, 0, 1, 1])
    assert peer.ECE(15).measure(probs.max(axis=-1), correct) == pytest.approx(0.283, abs=6e-4)
    with pytest.raises(ValueError, match="NaN in row 1"):
        metrics.ece(probs, labels)


def test_equal_mass_bins_are_refused_where_many_are_certain():
    """Two quantiles fall on one value: an error, where the bins have an answer."""
    probs, labels = two_classes([1.0, 1.0, 0.95, 0.95], [1, 0, 1, 1])
    confidence, correct = top(probs, labels)
    with pytest.raises(ValueError, match="smallest edge difference"):
        peer.ECE(15, equal_intervals=False).measure(confidence, correct.astype(int))
    assert slow.ada_ece(confidence, correct) == pytest.approx(0.275)
    assert metrics.ada_ece(probs, labels) == pytest.approx(0.275)


def test_many_classes_of_which_the_labels_hold_two_are_refused():
    probs, labels = three_classes([0.55, 0.65], [1, 0])
    with pytest.raises(RuntimeError, match="Asserted binary"):
        peer.ECE(15).measure(probs, labels)
    assert slow.ece(*top(probs, labels)) == pytest.approx(0.55)
    assert metrics.ece(probs, labels) == pytest.approx(0.55)
