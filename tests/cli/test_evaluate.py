"""``calibrant evaluate`` on good files and bad ones."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from calibrant import ece
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LOGITS = 2.0 * RNG.standard_normal((400, 5))
LABELS = RNG.integers(0, 5, 400)

run = functools.partial(run_calibrant, "evaluate")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, test_logits=LOGITS, test_labels=LABELS, val_logits=LOGITS, val_labels=LABELS)
    return path


def test_json_holds_every_file(file):
    result = run(f"{file}::test", f"{file}::val", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert len(data) == 2
    expected = ece(logits=LOGITS, labels=LABELS)
    for entry in data.values():
        assert entry["metrics"]["ece"]["value"] == pytest.approx(expected)


def test_other_metrics_and_bins(file):
    result = run(f"{file}::test", "--metric", "smooth_ece", "--metric", "ece", "--bins", "10")
    assert "smooth_ece" in result.output
    assert f"{ece(logits=LOGITS, labels=LABELS, n_bins=10):.4f}" in result.output


def test_confidence_and_correct_will_do(tmp_path):
    path = tmp_path / "top.npz"
    np.savez(path, confidence=np.array([0.9, 0.8, 0.7]), correct=np.array([True, False, True]))
    result = run(str(path))
    assert result.exit_code == 0, result.output
    assert "nll" not in result.output


def test_a_large_file_is_counted_in_parts(file, monkeypatch):
    whole = json.loads(run(f"{file}::test", "--json").stdout)
    monkeypatch.setattr("calibrant._thresholds.NUMBERS_TO_EVALUATE_IN_MEMORY", 100)
    result = run(f"{file}::test", "--json")
    parts = json.loads(result.stdout)
    (one,), (other,) = whole.values(), parts.values()
    assert other["metrics"]["ece"]["value"] == pytest.approx(one["metrics"]["ece"]["value"])
    assert "fine grid" in other["notes"][0]
    assert run(f"{file}::test", "--metric", "nll").exit_code == 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": LOGITS}, "labels are needed; found none"),
        ({"logits": np.full((2, 3), np.nan), "labels": [0, 1]}, "NaN in row 0"),
        ({"probs": np.full((2, 3), 0.9), "labels": [0, 1]}, "found 2.7 in row 0"),
        ({"logits": LOGITS, "labels": LABELS + 9}, "labels must be between 0 and 4"),
        ({"logits": LOGITS[:0], "labels": LABELS[:0]}, "has no rows"),
        ({"other": LOGITS}, "bad.npz"),
        ({"logits": LOGITS, "probs": LOGITS, "labels": LABELS}, "bad.npz"),
    ],
)
def test_a_bad_file_gets_one_line(tmp_path, arrays, message):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    result = run(str(path), "--plot", str(tmp_path / "out.png"))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) <= 2  # the reading line, and the error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.npz"]


def test_other_mistakes(file, tmp_path):
    for arguments in (
        [str(tmp_path / "missing.npz")],
        [f"{file}::nothing"],
        [f"{file}::test", "--bins", "0"],
        [f"{file}::test", "--level", "95"],
        [f"{file}::test", "--metric", "acc"],
        [f"{file}::test", f"{file}::val", "--plot", "x.png"],
        [f"{file}::test", "--plot", str(tmp_path / "no" / "x.png")],
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert "Traceback" not in result.output


@pytest.fixture
def two_classes(tmp_path):
    path = tmp_path / "two.npz"
    odds = RNG.normal(0.0, 2.0, 2000)
    labels = (RNG.logistic(size=2000) < odds - 2.0).astype(int)
    np.savez(path, logits=np.stack([np.zeros(2000), odds], axis=1), labels=labels)
    return path


def test_two_classes_are_one_probability(two_classes, monkeypatch):
    whole = run(str(two_classes))
    assert whole.output.index("positive_ece") < whole.output.index("\nece ")
    assert "Prevalence off: the mean P(class 1) is 0.4" in whole.output
    monkeypatch.setattr("calibrant._thresholds.NUMBERS_TO_EVALUATE_IN_MEMORY", 100)
    (parts,) = json.loads(run(str(two_classes), "--json").stdout).values()
    assert parts["side"] == "prevalence off"
    assert parts["classes_off"] == []


def test_the_plot_of_two_classes_can_be_that_of_papers(two_classes, tmp_path):
    for options, said in (([], "probability of class 1"), (["--top-class"], "confidence")):
        path = tmp_path / "plot.svg"
        result = run(str(two_classes), "--plot", str(path), *options)
        assert result.exit_code == 0, result.output
        assert said in path.read_text()


def test_two_class_metrics_refuse_more(file):
    result = run(f"{file}::test", "--metric", "calibration_slope")
    assert result.exit_code == 2
    assert "of two classes; found 5 classes" in result.output
