"""The figures that independent sources agree on for real networks."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import ece, nll
from calibrant.files import read_predictions
from calibrant.metrics import METRICS
from calibrant.metrics.samples import samples_of_confidence
from tests.processes import run_calibrant

AGREED = {
    "resnet110_c10": 0.0475035,
    "resnet110_c100": 0.1848045,
    "densenet40_c10": 0.0550027,
    "densenet40_c100": 0.2115629,
    "resnet50_birds": 0.0235350,
}


@pytest.mark.parametrize("name", sorted(AGREED))
def test_agreed_ece(shared_data, name):
    rows = read_predictions(shared_data / "top1" / f"markus93__probs_{name}_logits.npz")
    samples = samples_of_confidence(rows.confidence, rows.correct)
    assert METRICS["ece"].of(samples) == pytest.approx(AGREED[name], abs=1e-7)


def test_printed_figures_of_the_networks(shared_data):
    """ECE and NLL in the table of the data's own README, to its digits."""
    lines = (shared_data / "README.md").read_text().splitlines()
    checked = 0
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        file = shared_data / "logits" / f"{cells[0]}.npz"
        if len(cells) != 11 or not file.is_file():
            continue
        rows = read_predictions(f"{file}::test")
        said = ece(logits=rows.logits, labels=rows.labels)
        assert 100 * said == pytest.approx(float(cells[4]), abs=0.0051), cells[0]
        said = nll(logits=rows.logits, labels=rows.labels)
        assert said == pytest.approx(float(cells[5]), abs=5.1e-5), cells[0]
        checked += 1
    assert checked > 40


def test_the_command_on_a_network(shared_data, tmp_path):
    picture = tmp_path / "reliability.png"
    file = shared_data / "logits" / "c10_resnet44.npz"
    result = run_calibrant("evaluate", f"{file}::test", "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "0.0373" in result.output
    assert "Over-confident" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_random_forests_have_impossible_labels(shared_data):
    with np.load(shared_data / "probs" / "mnist_random_forest.npz") as data:
        probs, labels = data["test_probs"], data["test_labels"]
    impossible = METRICS["n_impossible"](probs, labels)
    assert (nll(probs, labels) == np.inf) == (impossible > 0)
