"""Top-rest scaling over files: the same numbers as in memory, and few passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant import TopRestScaling, scale
from calibrant.calibrators import CalibrationWarning
from tests.builders import draw_overconfident
from tests.scale.test_fitting import same_report, write

ROWS = 6000


def written(folder: Path, logits: np.ndarray, labels: np.ndarray, ends: list[int]) -> Path:
    for number, (start, stop) in enumerate(zip([0, *ends], [*ends, len(labels)], strict=True)):
        part = folder / f"part-{number}.parquet"
        write(part, logits[start:stop], labels[start:stop], row_group_size=700)
    return folder


def same_state(one: TopRestScaling, other: TopRestScaling) -> None:
    for name, values in one.state_.items():
        np.testing.assert_allclose(other.state_[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
    same_report(one.report_, other.report_)
    assert one.report_.evaluations == other.report_.evaluations
    assert one.report_.gradient == pytest.approx(other.report_.gradient, abs=1e-9)


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize(
    "ends",
    [[], [1, 17, 5000], [0, 2000, 2000, 4000, ROWS], [700, 1400, 2300, 3000, 3900, 4500, 5100]],
    ids=["one", "uneven", "with empty ones", "eight"],
)
def test_the_same_as_in_memory(tmp_path, ends, classes):
    logits, labels = draw_overconfident(ROWS, 10, excess=np.linspace(0.5, 2.5, 10))
    whole = TopRestScaling(classes=classes).fit(logits, labels)
    found = scale.fit(TopRestScaling(classes=classes), written(tmp_path, logits, labels, ends))
    same_state(whole, found)
    assert found.report_.passes <= 15
    np.testing.assert_allclose(
        found.predict_proba(logits), whole.predict_proba(logits), rtol=0, atol=1e-9
    )


def test_any_order_of_rows(tmp_path):
    logits, labels = draw_overconfident(3000, 5, excess=np.linspace(0.5, 2.5, 5))
    order = np.random.default_rng(1).permutation(3000)
    whole = TopRestScaling().fit(logits, labels)
    folder = written(tmp_path, logits[order], labels[order], [100])
    same_state(whole, scale.fit(TopRestScaling(), folder))


def test_bundles_count_the_mistakes_that_come_before_them(tmp_path, monkeypatch):
    """One in so many mistakes is taken: the same ones as in memory, however rows are bundled."""
    monkeypatch.setattr("calibrant.calibrators.top_rest.solver.MOST_ENTRIES", 1000)
    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", 800)
    logits, labels = draw_overconfident(4000, 5, excess=np.linspace(0.5, 2.5, 5))
    wrong = np.flatnonzero(logits.argmax(axis=1) != labels)
    assert len(wrong) * 5 > 4 * 1000
    whole = TopRestScaling().fit(logits, labels)
    folder = written(tmp_path, logits, labels, [3, 1000, 1004, 2900])
    same_state(whole, scale.fit(TopRestScaling(), folder))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_classes(tmp_path, n_classes):
    logits, labels = draw_overconfident(2000, n_classes, excess=np.linspace(0.5, 2.5, n_classes))
    whole = TopRestScaling().fit(logits, labels)
    folder = written(tmp_path, logits, labels, [900])
    same_state(whole, scale.fit(TopRestScaling(), folder))


def test_without_a_mistake(tmp_path):
    logits, _ = draw_overconfident(2000, 4, excess=np.linspace(0.5, 2.5, 4))
    labels = logits.argmax(axis=1)
    with pytest.warns(CalibrationWarning, match="T = 0"):
        whole = TopRestScaling().fit(logits, labels)
    with pytest.warns(CalibrationWarning, match="T = 0"):
        apart = scale.fit(TopRestScaling(), written(tmp_path, logits, labels, [900]))
    same_state(whole, apart)


@pytest.mark.parametrize("size", [1e-120, 1e120])
def test_logits_of_any_size_with_absent_classes(tmp_path, size):
    logits, labels = draw_overconfident(1500, 4, excess=np.linspace(0.5, 2.5, 4))
    logits[np.arange(0, 1500, 7), (labels[::7] + 1) % 4] = -np.inf
    logits *= size
    whole = TopRestScaling().fit(logits, labels)
    folder = written(tmp_path, logits, labels, [10])
    apart = scale.fit(TopRestScaling(), folder)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    np.testing.assert_allclose(
        apart.predict_proba(logits), whole.predict_proba(logits), rtol=0, atol=1e-9
    )


def test_rows_that_were_left_out_do_not_shift_the_mistakes(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.calibrators.top_rest.solver.MOST_ENTRIES", 1000)
    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", 500)
    logits, labels = draw_overconfident(3000, 5, excess=np.linspace(0.5, 2.5, 5))
    bad = np.arange(5, 3000, 701)
    holed = logits.copy()
    holed[bad, 2] = np.nan
    folder = written(tmp_path, holed, labels, [1400])
    kept = np.delete(np.arange(3000), bad)
    whole = TopRestScaling().fit(logits[kept], labels[kept])
    found = scale.fit(TopRestScaling(), folder, skip_bad=True)
    assert found.report_.skipped.rows == len(bad)
    np.testing.assert_allclose(
        found.predict_proba(logits), whole.predict_proba(logits), rtol=0, atol=1e-6
    )
