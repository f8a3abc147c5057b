"""Conditions on columns: what they choose, and what is refused."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.files import iter_predictions, read_predictions
from calibrant.files.condition import Condition
from calibrant.files.layout import Asked
from calibrant.files.parquet import count_rows_in, open_folder, parquet_files

N = 120
rng = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "prob": rng.random(N),
        "label": rng.integers(0, 2, N),
        "month": np.repeat(["2026-09", "2026-10", "2026-11"], N // 3),
        "year": np.tile([2025, 2026], N // 2),
        "age": rng.integers(0, 90, N),
        "age band": rng.choice(["young", "old"], N),
        "weight": rng.random(N).astype(np.float32),
        "country": pd.Categorical(rng.choice(["FR", "DE", "IT"], N)),
        "day": [date(2026, 10, 1 + i // 5) for i in range(N)],
        "time": [datetime(2026, 10, 1 + i // 5, 12) for i in range(N)],
        "new": rng.random(N) < 0.5,
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files by month and year, which only their paths say; each of several row groups."""
    root = tmp_path_factory.mktemp("logs")
    for (month, year), rows in TABLE.groupby(["month", "year"]):
        where = root / f"month={month}" / f"year={year}"
        where.mkdir(parents=True)
        table = pa.Table.from_pandas(rows.drop(columns=["month", "year"]), preserve_index=False)
        pq.write_table(table, where / "0.parquet", row_group_size=7)
    return root


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "all.parquet"
    pq.write_table(pa.Table.from_pandas(TABLE), path, row_group_size=16)
    return path


CHOICES = {
    "month == '2026-10'": TABLE.month == "2026-10",
    "month != '2026-10'": TABLE.month != "2026-10",
    "month in ('2026-09', '2026-11') and year == 2026": (TABLE.month != "2026-10")
    & (TABLE.year == 2026),
    "year <= 2025": TABLE.year == 2025,
    "year == '2025'": TABLE.year == 2025,
    "age >= 17.5": TABLE.age >= 18,
    "age > -1": TABLE.age > -1,
    "age < 1e300": TABLE.age < 1000,
    "'age band' == 'old'": TABLE["age band"] == "old",
    "country in ['FR', 'DE']": TABLE.country != "IT",
    "country == 'IT' and age < 50": (TABLE.country == "IT") & (TABLE.age < 50),
    f"weight == {TABLE.weight[3]}": TABLE.weight == TABLE.weight[3],
    "day >= '2026-10-05'": TABLE.day >= date(2026, 10, 5),
    "time < '2026-10-05 13:00'": TABLE.time < datetime(2026, 10, 5, 13),
    "new == True": TABLE.new,
}


@pytest.mark.parametrize("text", CHOICES)
def test_the_rows_of_a_condition(text, folder, file):
    chosen = TABLE[CHOICES[text]]
    for source in (file, folder):
        found = read_predictions(source, where=text)
        assert found.labels.sum() == chosen.label.sum()
        np.testing.assert_array_equal(np.sort(found.probs[:, 1]), np.sort(chosen.prob))
    batches = list(iter_predictions(file, batch_rows=10, where=text))
    np.testing.assert_array_equal(np.concatenate([b.probs for b in batches])[:, 1], chosen.prob)


def test_columns_of_the_path_are_columns(folder):
    found = read_predictions(folder, keep=["month", "year", "age"])
    groups = found.groups(["month", "year"])
    assert groups.columns[0].values == ("2026-09", "2026-10", "2026-11")
    assert groups.columns[1].values == ("2025", "2026")
    assert len(found.others["age"]) == N


def test_row_groups_that_cannot_meet_it_are_not_read(folder, file):
    condition = Condition.parsed("day >= '2026-10-20'")
    assert count_rows_in(file, condition) == 16 + 16 + 8
    opened = open_folder("", [file], asked=Asked(where=condition))
    assert [group.group for group in opened.ranges] == [5, 6, 7]
    condition = Condition.parsed("month == '2026-10' and year == 2026")
    assert count_rows_in(folder, condition) == 20
    opened = open_folder("", parquet_files(folder), asked=Asked(where=condition))
    assert {group.file for group in opened.ranges} == {
        str(folder / "month=2026-10" / "year=2026" / "0.parquet")
    }


def test_missing_values_meet_nothing(tmp_path):
    table = pa.table({"prob": [0.1, 0.2, 0.3], "label": [0, 1, 0], "sex": ["f", None, "m"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for text, expected in (("sex != 'f'", [0.3]), ("sex == 'f'", [0.1])):
        assert read_predictions(tmp_path, where=text).probs[:, 1].tolist() == expected
    for value in ("1", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"k={value}").mkdir()
        pq.write_table(table, tmp_path / f"k={value}" / "b.parquet")
    (tmp_path / "a.parquet").unlink()
    assert len(read_predictions(tmp_path, where="k == 1")) == 3
    assert read_predictions(tmp_path, keep=["k"]).groups(["k"]).columns[0].values == (
        "1",
        "missing",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("month = '2026-10'", r"expected a condition such as .*; found \"month = '2026-10'\""),
        ("", "found ''"),
        ("__import__('os').system('true')", 'found "__import__'),
        ("age == f(3)", r"found 'f\(3\)'"),
        ("age == year", "found 'year'"),
        ("3 < age < 5", "found '3 < age < 5'"),
        ("age < -1 + 0", r"found '-1 \+ 0'"),
        ("age == 3 or age == 4", "found 'age == 3 or age == 4'"),
        ("age in ()", r"found '\(\)'"),
        ("age == (3, 4)", r"found '\(3, 4\)'"),
        ("age == None", "found 'None'"),
        ("age == b'3'", "found \"b'3'\""),
        ("age == 3\0", "found 'age == 3"),
        ("(" * 500 + "age == 3" + ")" * 500, r"found '\(\(\("),
        ("mnth == 3", "has no column mnth; found prob, label, age"),
        ("month == 10", "month holds values of the type string; found 10 .* Write '10'"),
        ("day == '2026-10'", "day holds values of the type date32.day.; found '2026-10'"),
        ("age == 'x'", "age holds values of the type int64; found 'x'"),
        (
            "month == '2026-13'",
            r"\(rows where month == '2026-13'\) has no rows. Change the condition",
        ),
        ("age == 17 and age == 18", "has no rows"),
    ],
)
def test_what_is_refused(text, message, folder):
    with pytest.raises(ValueError, match=message) as refused:
        read_predictions(folder, where=text)
    assert "\n" not in str(refused.value)


def test_other_files_have_no_conditions(tmp_path):
    np.savez(tmp_path / "a.npz", probs=np.full((3, 2), 0.5), labels=[0, 1, 0])
    with pytest.raises(ValueError, match="is for Parquet files and folders of them; found"):
        read_predictions(tmp_path / "a.npz", where="age == 3")


def test_a_message_counts_the_rows_that_are_read(tmp_path):
    table = pa.table({"prob": [0.1, 0.2, None], "label": [0, 1, 0], "age": [1, 2, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"row group 0 \(rows where age == 2\): .* in row 1\."):
        read_predictions(tmp_path, where="age == 2")
    assert len(read_predictions(tmp_path, where="age == 1")) == 1
