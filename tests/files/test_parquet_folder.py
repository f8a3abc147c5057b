"""What is wrong with a file or a row is said in one line, or left out and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import TemperatureScaling, TopRestScaling, scale
from calibrant._inputs.skipped import Skipped
from calibrant.files import read_predictions, write_predictions
from calibrant.files.parquet import footer, parquet_files
from calibrant.scale.data_set import open_data_set
from calibrant.scale.engine import InProcess
from calibrant.scale.samples import SamplesInFiles

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(300, 3))
LABELS = RNG.integers(0, 3, 300)


def write(path: Path, logits: np.ndarray, labels: np.ndarray, **options: object) -> Path:
    columns = {f"logit_{k}": logits[:, k].copy() for k in range(logits.shape[1])}
    pq.write_table(pa.table({"label": labels, **columns}), path, **options)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three good files of three row groups each."""
    for name in "abc":
        options = {"row_group_size": 100, "write_page_checksum": True}
        write(tmp_path / f"{name}.parquet", LOGITS, LABELS, **options)
    return tmp_path


def refused(folder: Path, *words: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refusal:
        scale.evaluate(folder)
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


def left(folder: Path, rows: int, words: str) -> None:
    result = scale.evaluate(folder, skip_bad=True)
    assert result.n == rows
    assert words in result.notes[-1]


def test_a_corrupt_footer(folder):
    file = folder / "b.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    refused(folder, str(file), "cannot be read as Parquet")
    left(folder, 600, "1 whole files")


def test_corrupt_pages_name_the_row_group(folder):
    file = folder / "b.parquet"
    content = bytearray(file.read_bytes())
    metadata = pq.ParquetFile(file).metadata
    place = metadata.row_group(1).column(2).data_page_offset
    size = metadata.row_group(1).column(2).total_compressed_size
    content[place + size - 40 : place + size - 20] = bytes(20)
    file.write_bytes(bytes(content))
    refused(folder, f"{file}, row group 1")
    left(folder, 800, "100 rows, 0 whole files, 1 damaged row groups")


def test_a_missing_column(folder):
    file = folder / "c.parquet"
    pq.write_table(pq.read_table(file).drop(["logit_1"]), file)
    refused(folder, str(file), "logit_2 but no logit_1")
    left(folder, 600, "300 rows, 1 whole files")


def test_another_class_count(folder):
    file = write(folder / "b.parquet", RNG.normal(size=(50, 4)), LABELS[:50])
    refused(folder, str(file), "the same columns", "logit_3", str(folder / "a.parquet"))
    left(folder, 600, "50 rows, 1 whole files")


def test_lists_of_another_length_name_the_row(tmp_path):
    lists = [[0.0, 1.0, 2.0]] * 10
    lists[7] = [0.0, 1.0]
    table = pa.table({"logits": lists, "label": [0] * 10})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    refused(tmp_path, "a.parquet, row group 1", "row 7")
    left(tmp_path, 9, "1 rows, 0 whole files")


def test_the_first_list_does_not_decide_for_all(tmp_path):
    lists = [[0.0, 1.0], *[[0.0, 1.0, 2.0]] * 9]
    pq.write_table(pa.table({"logits": lists, "label": [0] * 10}), tmp_path / "a.parquet")
    refused(tmp_path, "of one length; expected 3 numbers, found 2 in row 0")
    left(tmp_path, 9, "1 rows, 0 whole files")


@pytest.mark.parametrize(
    ("logit", "label", "words"),
    [
        (np.nan, 0, "NaN"),
        (np.inf, 0, "+inf"),
        (0.0, 3, "labels"),
        (0.0, -1, "labels"),
    ],
)
def test_bad_rows(folder, logit, label, words):
    logits, labels = LOGITS.copy(), LABELS.copy()
    for row in (5, 111, 112, 299):
        logits[row, 1], labels[row] = logit, label
    file = write(folder / "b.parquet", logits, labels, row_group_size=100)
    refused(folder, f"{file}, row group 0", words)
    left(folder, 896, "4 rows, 0 whole files, 0 damaged row groups")


def test_missing_values(folder):
    table = pq.read_table(folder / "b.parquet")
    labels = [None if row in (3, 250) else int(label) for row, label in enumerate(LABELS)]
    file = folder / "b.parquet"
    pq.write_table(table.set_column(0, "label", pa.array(labels)), file, row_group_size=100)
    refused(folder, f"{file}, row group 0", "row 3")
    left(folder, 898, "2 rows")


def test_a_file_that_changes_on_the_way(folder):
    data_set = open_data_set(folder)
    write(folder / "b.parquet", LOGITS[:70], LABELS[:70])
    with pytest.raises(OSError, match=r"b.parquet, row group 0 has changed.*had 100.*found 70"):
        list(data_set.checked_batches(data_set.ranges, lambda predictions: None, Skipped()))


def change(file: Path, how: str) -> None:
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-50])
    elif how == "rewritten":
        write(file, LOGITS[:70], LABELS[:70])
    elif how == "worse":  # as many rows, of which fewer can be used
        write(file, np.where(np.arange(300)[:, None] < 9, np.nan, LOGITS), LABELS)
    else:
        file.unlink()


@pytest.mark.parametrize("method", [TemperatureScaling, TopRestScaling])
@pytest.mark.parametrize("how", ["cut", "rewritten", "worse", "gone"])
def test_a_file_that_changes_between_passes_is_not_left_out(folder, method, how):
    """The first pass has counted its rows: sums without them would be divided by too many."""
    for name in "abc":
        write(folder / f"{name}.parquet", LOGITS, LABELS)

    def after_the_first_pass(number: int, done: int, of: int) -> None:
        if (number, done) == (1, of):
            change(folder / "b.parquet", how)

    with pytest.raises(OSError, match=r"has changed while it was being read.*[Ss]tart again"):
        scale.fit(method(), folder, skip_bad=True, progress=after_the_first_pass)


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_vanishes_is_refused_in_one_line(folder, skip_bad):
    data_set = open_data_set(folder, skip_bad=skip_bad)
    (folder / "b.parquet").unlink()
    with pytest.raises(
        OSError, match=r"b.parquet, row group 0 has changed.*: the file is gone"
    ) as gone:
        list(data_set.checked_batches(data_set.ranges, lambda predictions: None, Skipped()))
    assert "\n" not in str(gone.value)


def test_mistakes_of_a_file_that_changes(folder):
    samples = SamplesInFiles.of(open_data_set(folder, skip_bad=True), InProcess())
    change(folder / "b.parquet", "worse")
    with pytest.raises(OSError, match="has changed"):
        samples.some_mistakes(1)


def test_nothing_left(tmp_path):
    write(tmp_path / "a.parquet", np.full((3, 2), np.nan), np.zeros(3, dtype=int))
    with pytest.raises(ValueError, match=r"no usable row\. Skipped: 3 rows"):
        scale.evaluate(tmp_path, skip_bad=True)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="has no rows besides 1 skipped files"):
        scale.evaluate(tmp_path, skip_bad=True)


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match=r"expected \.parquet files in .*, found none"):
        scale.evaluate(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        scale.evaluate(tmp_path / "none")
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(ValueError, match=r"expected a \.parquet file"):
        scale.evaluate(tmp_path / "a.csv")


def test_confidence_alone_will_do(tmp_path):
    confidence, correct = RNG.random(100), RNG.random(100) < 0.5
    pq.write_table(pa.table({"confidence": confidence, "correct": correct}), tmp_path / "a.parquet")
    result = scale.evaluate(tmp_path)
    assert result.n == 100
    assert result["error_rate"].value == pytest.approx(1.0 - correct.mean())
    with pytest.raises(ValueError, match="scores of all classes"):
        scale.fit(scale.fitting.Identity(), tmp_path)


def test_without_labels(tmp_path):
    pq.write_table(pa.table({"logit_0": [0.0], "logit_1": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="labels are needed"):
        scale.evaluate(tmp_path)


def test_a_file_is_opened_once_a_bundle(folder, monkeypatch):
    data_set = open_data_set(folder)
    opened: list[str] = []
    original = footer.open_file

    def noted(file):
        opened.append(file.name)
        return original(file)

    monkeypatch.setattr("calibrant.files.parquet.folder.open_file", noted)
    batches = list(
        data_set.checked_batches(data_set.ranges, lambda rows: len(rows.labels), Skipped())
    )
    assert [rows for _, rows in batches] == [100] * 9
    assert opened == ["a.parquet", "b.parquet", "c.parquet"]


def test_links_are_followed(folder, tmp_path):
    logs = tmp_path / "logs"
    (logs / "day").mkdir(parents=True)
    (folder / "a.parquet").rename(logs / "day" / "a.parquet")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in "bc":
        (folder / f"{name}.parquet").rename(elsewhere / f"{name}.parquet")
    (logs / "more").symlink_to(elsewhere)
    (logs / "one.parquet").symlink_to(elsewhere / "b.parquet")
    # more/b.parquet and one.parquet are two names of one file, whose rows count once.
    found = [logs / "day/a.parquet", logs / "more/c.parquet", logs / "one.parquet"]
    assert parquet_files(logs) == found
    assert scale.evaluate(logs).n == 900


def test_links_that_lead_back_or_to_a_neighbour_count_nothing_twice(tmp_path):
    for name in ("deep/day", "deep/_draft"):
        (tmp_path / name).mkdir(parents=True)
    file = write(tmp_path / "deep" / "day" / "a.parquet", LOGITS, LABELS)
    (tmp_path / "a link before it").symlink_to(tmp_path / "deep" / "day")
    (tmp_path / "deep" / "day" / "round").symlink_to(tmp_path)
    (tmp_path / "itself.txt").symlink_to("itself.txt")
    assert parquet_files(tmp_path) == [file]


@pytest.mark.parametrize("name", ["d.parquet", "inside/d.parquet", "folder"])
def test_a_link_to_nowhere(folder, name):
    (folder / "inside").mkdir()
    link = folder / name
    link.symlink_to("/nowhere/there")
    with pytest.raises(FileNotFoundError, match=r"is a link to /nowhere/there, which does not"):
        scale.evaluate(folder)
    left(folder, 900, "0 rows, 1 whole files")
    if link.parent == folder:
        with pytest.raises(FileNotFoundError, match=r"is a link to /nowhere/there, which does not"):
            read_predictions(folder)


def test_relative_paths_mean_the_same_on_workers_elsewhere(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(Path("a.parquet"), LOGITS, LABELS)
    write(tmp_path / "there" / "a.parquet", -LOGITS, LABELS)
    data_set = open_data_set(Path("a.parquet"))
    monkeypatch.chdir(tmp_path / "there")
    ((predictions, _),) = data_set.checked_batches(data_set.ranges, lambda rows: None, Skipped())
    np.testing.assert_array_equal(predictions.logits, LOGITS)
    assert data_set.ranges[0].where == "a.parquet, row group 0"


def test_files_that_name_their_classes_in_another_order(tmp_path):
    names = {"a": None, "b": ("ant", "bee", "cat"), "c": ("ant", "cat", "bee")}
    for name, of_file in names.items():
        content = {"logits": LOGITS, "labels": LABELS, "class_names": of_file}
        write_predictions(tmp_path / f"{name}.parquet", **content)
    said = r"c.parquet: .*same class names.*; found 'cat' for class 1 here and 'bee' in .*b.parquet"
    for read in (scale.evaluate, read_predictions):
        with pytest.raises(ValueError, match=said):
            read(tmp_path)
    left(tmp_path, 600, "300 rows, 1 whole files")
    assert open_data_set(tmp_path, skip_bad=True).class_names == names["b"]
    (tmp_path / "c.parquet").unlink()
    assert read_predictions(tmp_path).class_names == names["b"]


@pytest.mark.parametrize("as_lists", [False, True])
def test_as_many_class_names_as_classes(tmp_path, as_lists):
    file = tmp_path / "a.parquet"
    if as_lists:
        table = pa.table({"label": LABELS, "logits": LOGITS.tolist()})
    else:
        table = pq.read_table(write(file, LOGITS, LABELS))
    named = table.replace_schema_metadata({"calibrant.class_names": '["ant", "bee"]'})
    pq.write_table(named, file)
    for read in (scale.evaluate, read_predictions):
        with pytest.raises(ValueError, match="one class name per class, 3 in all; found 2"):
            read(file)
    whole = table.replace_schema_metadata({"calibrant.class_names": '["ant", "bee", "cat"]'})
    pq.write_table(whole, tmp_path / "0.parquet")
    refused(tmp_path, "a.parquet: ", "found 2 names here and 3 in ")
