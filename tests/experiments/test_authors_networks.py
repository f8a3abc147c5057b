"""The paper's own networks: the authors' equal-mass bins, and every cell that is printed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from experiments.authors_networks.equal_mass import N_BINS, published_ada_ece
from experiments.authors_networks.measuring import DATA, LOSSES, NETWORKS, measure
from experiments.authors_networks.run import as_printed, compared, named
from experiments.catalogue import catalogue
from experiments.loss_tables import paper

EXPERIMENT = catalogue()["authors-networks"]


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return 2.0 * rng.normal(size=(n, 4)), rng.integers(4, size=n)


@pytest.mark.parametrize("n", [16, 100, 150, 1000])
def test_the_authors_bins_are_those_between_interpolated_confidences(n):
    logits, labels = drawn(n)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    ranks = np.linspace(0, n, N_BINS + 1)
    edges = np.interp(ranks, np.arange(n), np.sort(confidence))
    error = 0.0
    for low, high in pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        error += abs((correct[inside] - confidence[inside]).sum()) / n
    assert published_ada_ece(logits=logits, labels=labels) == pytest.approx(error, abs=1e-12)


def test_the_least_confident_sample_counts_only_if_it_is_asked_for():
    logits, labels = drawn(150)
    least = np.exp(logits).max(axis=1) / np.exp(logits).sum(axis=1)
    logits[least.argmin()] = 0.0  # confidence 1/4, whatever the label
    found = []
    for label in (0, 1):
        labels[least.argmin()] = label
        every = published_ada_ece(logits=logits, labels=labels, drop_least=False)
        found.append((published_ada_ece(logits=logits, labels=labels), every))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_every_printed_cell_of_the_networks_is_expected():
    of_sets = [name.split("_") for name in EXPERIMENT.parameters["sets"]]
    losses = {(DATA[data], LOSSES[loss]) for data, loss in of_sets}
    printed = [
        text
        for (_, _, data, network), row in paper.cells().items()
        for loss, text in row.items()
        if (data, loss) in losses and network in NETWORKS.values() and text
    ]
    expected = [each.paper for each in EXPERIMENT.expected().values() if each.paper]
    assert sorted(expected) == sorted(printed)


def test_another_value_shows_the_printed_one():
    assert as_printed("0.95", 0.9528)
    assert compared("0.95", 0.9528) == "0.95"
    assert compared("0.95", 0.9428) == "**0.94** [0.95]"


def test_a_network_of_the_paper_has_its_printed_cells(shared_data):
    found = measure(shared_data / "mukhoti" / "c10_flsd53_resnet50.npz", paper.cells(), [8, 13])
    expected = EXPERIMENT.expected()
    assert len(found.printed) == 15
    for key, text in found.printed.items():
        each = expected[named(found, *key)]
        assert each.paper == text
        assert each.holds(found.cells[key])
