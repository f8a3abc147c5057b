"""torchmetrics: the calibration error of two and of many classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant import metrics
from tests.peers.cases import REASON, assert_differ, ordinary, three_classes, top, two_classes
from tests.reference import metrics_slow as slow

peer = pytest.importorskip("torchmetrics.functional.classification", reason=REASON)
regression = pytest.importorskip("torchmetrics.functional.regression", reason=REASON)


def theirs(probs: np.ndarray, labels: np.ndarray, **options: object) -> float:
    return float(
        peer.multiclass_calibration_error(
            torch.as_tensor(probs), torch.as_tensor(labels), num_classes=probs.shape[1], **options
        )
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_ece_agrees_to_single_precision(n_bins, norm):
    probs, labels = ordinary()
    said = theirs(probs, labels, n_bins=n_bins, norm=norm)
    assert metrics.ece(probs, labels, n_bins=n_bins, norm=norm) == pytest.approx(said, abs=2e-6)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_ece_of_logits_agrees_to_single_precision(norm):
    probs, labels = ordinary()
    logits = (np.log(probs) + 3.0).astype(np.float32)
    said = theirs(logits, labels, norm=norm)
    ours = metrics.ece(logits=logits, labels=labels, norm=norm)
    assert ours == pytest.approx(said, abs=2e-6)


def test_binary_calibration_error_is_the_classwise_error_of_two_classes():
    probs, labels = ordinary(n_classes=2)
    said = float(peer.binary_calibration_error(torch.tensor(probs[:, 1]), torch.tensor(labels)))
    assert metrics.classwise_ece(probs, labels) == pytest.approx(said, abs=2e-6)


def test_accuracy_and_top_k_agree():
    probs, labels = ordinary()
    tensors = torch.from_numpy(probs), torch.from_numpy(labels)
    for k in (1, 2, 4):
        said = peer.multiclass_accuracy(*tensors, num_classes=5, average="micro", top_k=k)
        assert metrics.top_k_error(probs, labels, k=k) == pytest.approx(1 - float(said), abs=1e-6)


def test_kl_divergence_agrees():
    probs, _ = ordinary()
    other = 0.5 * probs + 0.1
    said = float(regression.kl_divergence(torch.from_numpy(probs), torch.from_numpy(other)))
    assert metrics.kl_to_posterior(other, probs) == pytest.approx(said, rel=1e-12)


def test_confidence_one_falls_into_a_bin_of_its_own():
    """0.95 and 1.0 are both in the last of 15 bins; theirs are 16."""
    probs, labels = two_classes([1.0, 1.0, 0.95, 0.95], [1, 0, 1, 1])
    assert_differ(
        reference=slow.ece(*top(probs, labels)),
        ours=metrics.ece(probs, labels),
        theirs=theirs(probs, labels),
        stated=(0.225, 0.275),
    )


def test_an_edge_belongs_to_the_bin_above():
    """0.6 = 9/15 ends the bin of 0.55; theirs begins the next one with it."""
    probs, labels = three_classes([0.55, 0.6], [1, 0])
    assert_differ(
        reference=slow.ece(*top(probs, labels)),
        ours=metrics.ece(probs, labels),
        theirs=theirs(probs, labels),
        stated=(0.075, 0.525),
    )


@pytest.mark.slow
def test_counters_in_single_precision_stop_at_16_million():
    """20 million predictions of 0.95, half of them right."""
    n = 20_000_000
    probs = torch.tensor([[0.95, 0.05]]).expand(n, 2)
    labels = torch.zeros(n, dtype=torch.int8)
    labels[::2] = 1
    assert_differ(
        reference=slow.ece([0.95, 0.95], [1, 0], weights=[n // 2, n // 2]),
        ours=metrics.ece(probs, labels),
        theirs=float(
            peer.multiclass_calibration_error(probs, labels, num_classes=2, validate_args=False)
        ),
        stated=(0.45, 0.404),
    )


def test_nan_gives_a_number():
    probs, labels = three_classes([0.55, 0.6, 0.7, 0.9], [1, 0, 1, 1])
    probs[1] = np.nan
    assert theirs(probs, labels) == pytest.approx(0.397, abs=6e-4)
    with pytest.raises(ValueError, match="NaN in row 1"):
        metrics.ece(probs, labels)


def test_logits_between_0_and_1_are_taken_for_probabilities():
    logits = np.array([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1], [0.3, 0.1, 0.7]])
    labels = np.array([0, 1, 0])
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    assert_differ(
        reference=slow.ece(*top(probs, labels)),
        ours=metrics.ece(logits=logits, labels=labels),
        theirs=theirs(logits, labels),
        stated=(0.483, 0.333),
    )


def test_one_entry_above_1_turns_all_rows_into_logits():
    """Ten rows of 0.9, nine right; in one of them rounding has left 1 + 2^-23."""
    probs = np.tile(np.array([0.9, 0.1], dtype=np.float32), (10, 1))
    probs[0] = [1.0 + 2.0**-23, 0.0]
    labels = np.array([0] * 9 + [1])
    assert_differ(
        reference=slow.ece(*top(np.minimum(probs, 1.0), labels)),
        ours=metrics.ece(probs, labels),
        theirs=theirs(probs, labels),
        stated=(0.010, 0.206),
    )


def test_rows_that_do_not_sum_to_1_give_a_number():
    probs, labels = three_classes([0.55, 0.6, 0.7], [1, 0, 1])
    assert np.isfinite(theirs(probs * 0.7, labels))
    with pytest.raises(ValueError, match="sum to 1"):
        metrics.ece(probs * 0.7, labels)
