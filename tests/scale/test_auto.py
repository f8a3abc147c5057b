"""The method auto over files: compared on some rows, fitted on all where sums allow it."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import AutoCalibration, TemperatureScaling, TopRestScaling, load, scale
from calibrant.files import write_predictions

N, SOME = 12_000, 3000


def samples(case: str, n_classes: int = 4):
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(N, n_classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    changed = {
        "temperature": 2 * truth,
        "top-rest": np.where(truth == truth.max(axis=1, keepdims=True), truth + 2, truth),
        "shifted": truth + 2.0 * (np.arange(n_classes) == 0),
    }
    return changed[case], labels


@pytest.fixture
def folder(tmp_path):
    def written(logits, labels):
        for part in range(4):
            rows = slice(part * N // 4, (part + 1) * N // 4)
            file = tmp_path / f"part={part}" / "0.parquet"
            file.parent.mkdir()
            write_predictions(file, logits=logits[rows], labels=labels[rows])
        return tmp_path

    return written


@pytest.mark.parametrize(("case", "n_classes"), [("top-rest", 3), ("shifted", 3), ("shifted", 2)])
def test_few_rows_are_compared_and_fitted_as_in_memory(case, n_classes, folder):
    logits, labels = samples(case, n_classes)
    expected = AutoCalibration().fit(logits, labels)
    found = scale.fit(AutoCalibration(), folder(logits, labels))
    assert found.chosen_ == expected.chosen_
    assert found.report_.evidence == expected.report_.evidence
    assert found.report_.compared_on is None
    assert found.report_.after == pytest.approx(expected.report_.after, rel=1e-9)
    np.testing.assert_allclose(
        found.predict_proba(logits), expected.predict_proba(logits), atol=1e-9
    )


@pytest.mark.parametrize(
    ("case", "chosen", "alone"),
    [
        ("temperature", "temperature", TemperatureScaling()),
        ("top-rest", "top-rest, classes=False", TopRestScaling(classes=False)),
    ],
)
def test_what_can_be_summed_is_fitted_on_all_rows(case, chosen, alone, folder, monkeypatch):
    monkeypatch.setattr("calibrant._thresholds.ROWS_TO_COMPARE", SOME)
    logits, labels = samples(case)
    where = folder(logits, labels)
    found = scale.fit(AutoCalibration(), where)
    expected = scale.fit(alone, where)
    assert found.chosen_ == chosen
    assert found.report_.n_samples == N
    assert found.report_.compared_on == (
        f"Methods were compared on 3,000 evenly spread rows; {chosen} was fitted on all."
    )
    assert found.report_.compared_on in str(found.report_)
    assert found.report_.after == pytest.approx(expected.report_.after, rel=1e-9)
    np.testing.assert_allclose(
        found.predict_proba(logits), expected.predict_proba(logits), atol=1e-9
    )


@pytest.mark.parametrize("n_classes", [2, 4])
def test_what_cannot_be_summed_is_fitted_on_some_rows(n_classes, folder, monkeypatch, tmp_path):
    monkeypatch.setattr("calibrant._thresholds.ROWS_TO_COMPARE", SOME)
    logits, labels = samples("shifted", n_classes)
    found = scale.fit(AutoCalibration(), folder(logits, labels))
    some = AutoCalibration().fit(logits[:: N // SOME], labels[:: N // SOME])
    assert found.chosen_ == some.chosen_
    assert "needs rows in memory, was fitted on these" in found.report_.compared_on
    log_probs = found.predict_log_proba(logits)
    nll = -log_probs[np.arange(N), labels].mean()
    assert found.report_.after == pytest.approx(nll, rel=1e-6)  # on all rows
    found.save(tmp_path / "auto.json")
    np.testing.assert_array_equal(load(tmp_path / "auto.json").predict_log_proba(logits), log_probs)
