"""Over files the same as in memory: however the rows lie, and wherever they are summed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant import FocalTemperatureScaling, Identity, TemperatureScaling, scale
from calibrant.calibrators import CalibrationWarning, FitReport, SearchBounds, origin
from calibrant.calibrators.data import FitData
from calibrant.calibrators.temperature.criterion import evaluator_of
from calibrant.calibrators.temperature.solver import TO_LOOK, TO_START
from calibrant.files import write_predictions
from calibrant.scale import equal_mass
from calibrant.scale.data_set import open_data_set
from calibrant.scale.engine import InProcess
from calibrant.scale.equal_mass import EqualMassErrors
from calibrant.scale.regression import median, search_together
from calibrant.scale.samples import SamplesInFiles

ROWS, CLASSES = 6000, 4
RNG = np.random.default_rng(0)
LOGITS = 3.0 * RNG.normal(size=(ROWS, CLASSES))
LABELS = (LOGITS / 2.0 + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)


def write(path: Path, logits: np.ndarray, labels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {f"logit_{k}": logits[:, k].copy() for k in range(logits.shape[1])}
    pq.write_table(pa.table({"label": labels, **columns}), path, **options)
    return path


def cut(folder: Path, ends: list[int]) -> Path:
    """The rows between ``ends``, a file each; files without rows where two of them are equal."""
    for number, (start, stop) in enumerate(zip([0, *ends], [*ends, ROWS], strict=True)):
        part = folder / f"part-{number}.parquet"
        write(part, LOGITS[start:stop], LABELS[start:stop], row_group_size=700)
    return folder


CUTS = {
    "one": [],
    "two": [3000],
    "uneven": [1, 17, 5000],
    "with empty ones": [0, 2000, 2000, 4000, ROWS],
    "eight": [700, 1400, 2300, 3000, 3900, 4500, 5100],
}


@pytest.fixture(params=sorted(CUTS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return cut(tmp_path / "data", CUTS[request.param])


def same_report(one: FitReport, other: FitReport) -> None:
    for name in ("n_samples", "n_classes", "criterion", "at_bound", "warnings"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("before", "after", "accuracy_before", "accuracy_after"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0, abs=1e-9)


def test_the_same_evaluation(folder):
    whole = calibrant.evaluate(logits=LOGITS, labels=LABELS, n_resamples=20)
    apart = scale.evaluate(folder)
    assert apart.n == ROWS
    assert apart.n_classes == CLASSES
    for measured in whole.measured:
        if measured.name != "ada_ece":
            assert apart[measured.name].value == pytest.approx(measured.value, rel=0, abs=1e-9)
    bound = float(apart.notes[0].split()[-1].rstrip("."))
    assert abs(apart["ada_ece"].value - whole["ada_ece"].value) <= bound


@pytest.mark.parametrize("most_hashed", [1 << 20, 5000])
def test_the_same_fingerprint(folder, most_hashed, monkeypatch):
    monkeypatch.setattr(origin, "MOST_HASHED", most_hashed)
    whole = Identity().fit(LOGITS, LABELS).origin_
    apart = scale.fit(Identity(), folder).origin_
    assert len(whole.data.sha256) == 64
    assert (apart.input, apart.data) == (whole.input, whole.data)


def test_probabilities_are_hashed_as_they_are(tmp_path):
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    write_predictions(tmp_path / "probs.parquet", probs=probs, labels=LABELS)
    whole = Identity().fit(probs=probs, labels=LABELS).origin_
    apart = scale.fit(Identity(), tmp_path / "probs.parquet").origin_
    assert (apart.input, apart.data) == ("probs", whole.data)


def test_other_rows_have_another_fingerprint(tmp_path):
    found = set()
    for number, row in enumerate((None, 0, ROWS - 1)):
        logits = LOGITS.copy()
        if row is not None:
            logits[row, 0] += 1e-9
        write(tmp_path / str(number) / "part.parquet", logits, LABELS, row_group_size=700)
        found.add(scale.fit(Identity(), tmp_path / str(number)).origin_.data.sha256)
    assert len(found) == 3


def test_skipped_rows_are_not_hashed(tmp_path):
    logits, labels = LOGITS.copy(), LABELS
    logits[5] = np.nan
    write(tmp_path / "part.parquet", logits, labels)
    rest = Identity().fit(np.delete(LOGITS, 5, axis=0), np.delete(LABELS, 5)).origin_
    assert scale.fit(Identity(), tmp_path, skip_bad=True).origin_.data == rest.data


def test_the_same_temperature(folder):
    whole = TemperatureScaling().fit(LOGITS, LABELS)
    found = scale.fit(TemperatureScaling(), folder)
    assert found.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    assert found.report_.passes == whole.report_.evaluations + 1
    same_report(found.report_, whole.report_)


@pytest.mark.parametrize("criterion", ["brier", "focal"])
@pytest.mark.parametrize("rows", [3000, ROWS])  # all of them are scanned, or some
def test_the_same_temperature_by_other_losses(tmp_path, criterion, rows):
    whole = TemperatureScaling(criterion=criterion).fit(LOGITS[:rows], LABELS[:rows])
    for number, part in enumerate([slice(0, 10), slice(10, rows)]):
        write(tmp_path / f"{number}.parquet", LOGITS[:rows][part], LABELS[:rows][part])
    found = scale.fit(TemperatureScaling(criterion=criterion), tmp_path)
    assert found.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    assert found.report_.passes <= 8
    same_report(found.report_, whole.report_)


@pytest.mark.parametrize("criterion", ["brier", "focal"])
def test_a_minimum_that_few_rows_do_not_show(tmp_path, criterion):
    """Every so many rows are looked at first, and here they are all alike and all right."""
    logits, labels = LOGITS.copy(), LABELS.copy()
    looked_at = slice(None, None, ROWS // TO_LOOK)
    labels[looked_at] = logits[looked_at].argmax(axis=1)
    whole = TemperatureScaling(criterion=criterion).fit(logits, labels)
    write(tmp_path / "a.parquet", logits, labels)
    found = scale.fit(TemperatureScaling(criterion=criterion), tmp_path)
    assert whole.report_.at_bound is None
    assert whole.report_.gradient < 1e-9
    assert found.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    assert found.report_.passes <= 10


def test_nothing_fitted_is_the_same_too(folder):
    same_report(scale.fit(Identity(), folder).report_, Identity().fit(LOGITS, LABELS).report_)


@pytest.mark.parametrize("criterion", ["nll", "ece"])
def test_the_same_gamma_and_temperature(tmp_path, criterion):
    whole = FocalTemperatureScaling(criterion=criterion).fit(LOGITS, LABELS)
    found = scale.fit(FocalTemperatureScaling(criterion=criterion), cut(tmp_path, CUTS["uneven"]))
    assert found.state_ == whole.state_
    assert found.report_.search_bounds is None
    assert found.report_.passes <= 8
    same_report(found.report_, whole.report_)


@pytest.mark.parametrize("method", [TemperatureScaling, FocalTemperatureScaling])
def test_the_same_by_an_equal_mass_error(tmp_path, method):
    whole = method(criterion="ada_ece").fit(LOGITS, LABELS)
    found = scale.fit(method(criterion="ada_ece"), cut(tmp_path, CUTS["eight"]))
    assert found.state_ == whole.state_
    assert found.report_.search_bounds == SearchBounds(off_by=0.0, better_by=0.0)
    assert found.report_.passes <= 6
    same_report(found.report_, whole.report_)
    assert "off by at most 0;" in str(found.report_)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_where_rows_are_tied_but_for_rounding(tmp_path, seed):
    """Whole numbers: many rows are the same but for the order of their classes."""
    rng = np.random.default_rng(seed)
    logits = np.round(3.0 * rng.normal(size=(1500, 5)))
    labels = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    for i, rows in enumerate((np.s_[:400], np.s_[400:])):
        write(tmp_path / f"{i}.parquet", logits[rows], labels[rows])
    whole = TemperatureScaling(criterion="ada_ece").fit(logits, labels)
    found = scale.fit(TemperatureScaling(criterion="ada_ece"), tmp_path)
    assert found.state_ == whole.state_
    assert found.report_.after == pytest.approx(whole.report_.after, rel=1e-9)


@pytest.mark.parametrize("ties", ["none", "some", "many"])
@pytest.mark.parametrize("collected", [0, 500])
def test_equal_mass_errors_narrow_until_they_are_exact(tmp_path, monkeypatch, ties, collected):
    monkeypatch.setattr(equal_mass, "MOST_COLLECTED", collected)
    monkeypatch.setattr(equal_mass, "MOST_CELLS", 4096)
    logits = {"none": LOGITS, "some": LOGITS.round(1), "many": LOGITS.round(0)}[ties]
    write(tmp_path / "a.parquet", logits, LABELS, row_group_size=1300)
    samples = SamplesInFiles.of(open_data_set(tmp_path), InProcess())
    points = [(0.0, 1.0), (1.0, 1.0), (0.0, 0.01)]  # the last makes most rows certain
    errors = EqualMassErrors(samples, 15)
    errors.look(points)
    together = evaluator_of(FitData(logits, LABELS, None), "ada_ece", n_bins=15, focal_gamma=0.0)
    more = True
    while more:
        for point, true_error in zip(points, together.at(points), strict=True):
            value, off = errors[point]
            assert abs(value - true_error) <= off + 1e-12
        more = errors.look_closer(points)
    assert [off for _, off in map(errors.__getitem__, points)] == [0.0] * 3


@pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")
@pytest.mark.parametrize("criterion", ["nll", "ece", "ada_ece"])
def test_the_same_on_a_given_grid_that_is_worse_than_no_change(tmp_path, criterion):
    method = FocalTemperatureScaling(criterion=criterion, gammas=[0.5, 3], temperatures=[0.1, 50])
    state = method.fit(LOGITS, LABELS).state_
    assert scale.fit(method, cut(tmp_path, CUTS["uneven"])).state_ == state


@pytest.mark.parametrize("criterion", ["nll", "ece", "ada_ece"])
def test_the_same_on_a_line(tmp_path, criterion):
    logits, labels = LOGITS[:2000], LABELS[:2000]
    whole = FocalTemperatureScaling(criterion=criterion, search="line").fit(logits, labels)
    write(tmp_path / "a.parquet", logits, labels, row_group_size=700)
    found = scale.fit(FocalTemperatureScaling(criterion=criterion, search="line"), tmp_path)
    assert found.state_ == whole.state_
    assert found.report_.passes <= 12
    same_report(found.report_, whole.report_)


def test_order_changes_nothing_but_rounding(tmp_path):
    order = np.random.default_rng(1).permutation(ROWS)
    write(tmp_path / "b.parquet", LOGITS[order[:100]], LABELS[order[:100]])
    write(tmp_path / "a" / "day=2" / "c.parquet", LOGITS[order[100:]], LABELS[order[100:]])
    whole = TemperatureScaling().fit(LOGITS, LABELS)
    apart = scale.fit(TemperatureScaling(), tmp_path)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)


@pytest.mark.parametrize("size", [1e-120, 1e120])
def test_logits_of_any_size(tmp_path, size):
    write(tmp_path / "a.parquet", size * LOGITS[:500], LABELS[:500])
    whole = TemperatureScaling().fit(size * LOGITS[:500], LABELS[:500])
    apart = scale.fit(TemperatureScaling(), tmp_path)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)


def test_every_label_on_top(tmp_path):
    labels = LOGITS.argmax(axis=1)
    write(tmp_path / "a.parquet", LOGITS, labels)
    with pytest.warns(CalibrationWarning, match="T = 0"):
        whole = TemperatureScaling().fit(LOGITS, labels)
    with pytest.warns(CalibrationWarning, match="T = 0"):
        apart = scale.fit(TemperatureScaling(), tmp_path)
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)
    same_report(apart.report_, whole.report_)


def test_probabilities_in_lists_of_half_precision(tmp_path):
    probs = RNG.dirichlet(np.ones(3), size=5000).astype(np.float16)
    labels = (np.log(probs + 1e-4) / 2 + RNG.gumbel(size=probs.shape)).argmax(axis=1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(probs.reshape(-1)), 3)
    pq.write_table(pa.table({"probs": lists, "label": labels}), tmp_path / "a.parquet")
    whole = TemperatureScaling().fit(probs=probs, labels=labels)
    apart = scale.fit(TemperatureScaling(), tmp_path / "a.parquet")
    assert apart.temperature_ == pytest.approx(whole.temperature_, rel=1e-9)


@pytest.mark.parametrize("method", ["vector", "bias-corrected-temperature"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_same_numbers_for_each_class(tmp_path, method, masked):
    logits = LOGITS[:3000].copy()
    if masked:
        logits[np.arange(0, 3000, 7), (LABELS[:3000:7] + 1) % CLASSES] = -np.inf
    for number, rows in enumerate([slice(0, 10), slice(10, 1700), slice(1700, 3000)]):
        write(tmp_path / f"{number}.parquet", logits[rows], LABELS[:3000][rows])
    whole = calibrant.CALIBRATORS[method]().fit(logits, LABELS[:3000])
    found = scale.fit(calibrant.CALIBRATORS[method](), tmp_path)
    assert found.report_.passes <= 12
    for name, values in whole.state_.items():
        np.testing.assert_allclose(found.state_[name], values, rtol=1e-9, atol=1e-9)
    same_report(found.report_, whole.report_)


@pytest.mark.parametrize("method", ["vector", "bias-corrected-temperature"])
def test_rows_with_masks_and_rows_of_other_sizes(tmp_path, method):
    logits = LOGITS[:2000] * np.where(np.arange(2000) % 50 == 0, 30.0, 1.0)[:, np.newaxis]
    logits[::9, 3] = np.where(LABELS[:2000:9] == 3, logits[::9, 3], -1e5)
    write(tmp_path / "a.parquet", logits[:300], LABELS[:300])
    write(tmp_path / "b.parquet", logits[300:], LABELS[300:2000])
    with pytest.warns(CalibrationWarning, match="rows have logits more than"):
        whole = calibrant.CALIBRATORS[method]().fit(logits, LABELS[:2000])
    with pytest.warns(CalibrationWarning, match="rows have logits more than"):
        found = scale.fit(calibrant.CALIBRATORS[method](), tmp_path)
    np.testing.assert_allclose(
        found.predict_proba(logits), whole.predict_proba(logits), rtol=0, atol=1e-9
    )
    same_report(found.report_, whole.report_)


@pytest.mark.parametrize("method", ["vector", "bias-corrected-temperature"])
def test_with_many_parameters_the_search_is_another(tmp_path, monkeypatch, method):
    monkeypatch.setattr("calibrant.calibrators.linear.solver.MOST_NEWTON", 0)
    write(tmp_path / "a.parquet", LOGITS[:1000], LABELS[:1000])
    whole = calibrant.CALIBRATORS[method]().fit(LOGITS[:1000], LABELS[:1000])
    found = scale.fit(calibrant.CALIBRATORS[method](), tmp_path)
    np.testing.assert_allclose(
        found.predict_proba(LOGITS), whole.predict_proba(LOGITS), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("n", [1, 2, 9, 3000])
@pytest.mark.parametrize("few", [1, 1 << 16])
def test_medians_are_exact(tmp_path, monkeypatch, n, few):
    monkeypatch.setattr("calibrant._thresholds.MOST_GATHERED_VALUES", few)
    write(tmp_path / "a.parquet", LOGITS[:n], LABELS[:n])
    samples = SamplesInFiles.of(open_data_set(tmp_path), InProcess())
    sizes = np.sort(np.abs(LOGITS[:n, 0]))
    of_sizes, of_zeros = (
        median(lambda data: np.abs(data.logits[:, 0])),
        median(lambda data: np.zeros(len(data))),
    )
    assert search_together(samples, of_sizes, of_zeros) == [sizes[(n + 1) // 2 - 1], None]


@pytest.mark.slow
@pytest.mark.parametrize("about", [TO_START, TO_LOOK])
def test_a_pattern_of_bad_rows_does_not_hit_those_to_start_from(tmp_path, about):
    logits = LOGITS.copy()
    logits[:: ROWS // about, 1] = np.nan
    bad = np.isnan(logits[:, 1])
    write(tmp_path / "a.parquet", logits, LABELS, row_group_size=700)
    samples = SamplesInFiles.of(open_data_set(tmp_path, skip_bad=True), InProcess())
    some = samples.some_rows(about)
    assert isinstance(some, FitData)
    np.testing.assert_array_equal(some.logits, logits[~bad][:: ROWS // about])


def test_where_few_rows_can_be_used_a_fit_starts_from_all_of_them(tmp_path):
    logits = np.where(np.arange(1100)[:, None] < 200, LOGITS[:1100], np.nan)
    write(tmp_path / "a.parquet", logits, LABELS[:1100])
    samples = SamplesInFiles.of(open_data_set(tmp_path, skip_bad=True), InProcess())
    assert TO_START in samples.facts.strided
    assert samples.some_rows(TO_START) is samples


def test_what_cannot_be_summed_is_refused(tmp_path):
    cut(tmp_path, [])
    with pytest.raises(ValueError, match=r"can be fitted over files \(identity, temperature"):
        scale.fit(calibrant.CALIBRATORS["isotonic"](), tmp_path)
    with pytest.raises(ValueError, match="the search is 'grid' or 'line'"):
        scale.fit(FocalTemperatureScaling(search="refine"), tmp_path)
