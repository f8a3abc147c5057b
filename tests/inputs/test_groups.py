"""Columns of groups: what their values are called, in what order, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import calibrant
from calibrant import _inputs
from calibrant._inputs import Groups
from calibrant.errors import CalibrantError


def texts(given, n):
    """The values of each row, by column."""
    return {
        column.name: [column.values[i] for i in column.index]
        for column in _inputs.groups(given, n).columns
    }


@pytest.mark.parametrize(
    "given",
    [
        {"year": [2015, None, 2016], "sex": ["f", "m", None]},
        {"year": np.array([2015.0, np.nan, 2016.0]), "sex": np.array(["f", "m", None])},
        pd.DataFrame({"year": [2015, None, 2016], "sex": pd.Categorical(["f", "m", None])}),
        {"year": pd.array([2015, None, 2016]), "sex": pd.array(["f", "m", None], "string")},
        {
            "year": np.ma.masked_equal([2015, 0, 2016], 0),
            "sex": pd.Categorical(["f", "m", None]),
        },
        {"year": [2015, float("nan"), 2016], "sex": ["f", "m", pd.NA]},
        pl.DataFrame({"year": [2015, None, 2016], "sex": ["f", "m", None]}),
        pa.table(
            {"year": [2015, None, 2016], "sex": pa.array(["f", "m", None]).dictionary_encode()}
        ),
    ],
)
def test_the_same_values_are_the_same_groups_in_every_library(given):
    assert texts(given, 3) == {"year": ["2015", "missing", "2016"], "sex": ["f", "m", "missing"]}


def test_one_column_without_a_name_is_called_group():
    assert texts(["a", "b"], 2) == texts(pd.Series(["a", "b"]), 2) == {"group": ["a", "b"]}
    assert texts(pd.Series(["a", "b"], name="sex"), 2) == {"sex": ["a", "b"]}


def test_numbers_are_in_order_and_missing_values_last():
    (column,) = _inputs.groups(["10", "b", None, "9", "-1"], 5).columns
    assert column.values == ("-1", "9", "10", "b", "missing")


def test_one_column_of_any_type():
    for given in (pd.Categorical(["a", "b"]), pd.array(["a", "b"], dtype="string")):
        assert texts(given, 2) == {"group": ["a", "b"]}


@pytest.mark.parametrize("text", ["", " ", "NA", "None", "nan", "null", " a", "a ", "missing"])
def test_text_stays_as_it_is(text):
    both = [text, "a"]
    for given in (both, np.array(both), pd.Series(both), pl.Series(both), pa.array(both)):
        assert texts(given, 2) == {"group": both}


def test_blank_text_of_a_file_is_no_value():
    columns = {"x": np.array(["NA", " ", "", "a"]), "y": pa.array(["", None, "None", "a"])}
    found = _inputs.groups_of_columns(columns, ["x", "y"], 4)
    assert {column.name: [column.values[i] for i in column.index] for column in found.columns} == {
        "x": ["NA", "missing", "missing", "a"],
        "y": ["missing", "missing", "None", "a"],
    }


def test_no_date_is_no_value():
    dates = np.array(["2015-01-01", "NaT"], dtype="datetime64[D]")
    for given in (dates, pd.Series(dates).dt.date, [*dates.tolist()]):
        assert texts(given, 2) == {"group": ["2015-01-01", "missing"]}


def test_text_that_is_nearly_a_number():
    values = ["--1", "-", "9" * 5000, "1" * 18, "²", "7"]
    (column,) = _inputs.groups(values, 6).columns
    assert column.values == ("7", "1" * 18, "-", "--1", "9" * 5000, "²")


def test_combinations_that_cannot_be_numbered():
    columns = {f"c{i}": np.arange(400) % (400 - i % 2) for i in range(9)}
    cells = dict(_inputs.groups(columns, 400).cells())
    assert [rows.tolist() for rows in cells.values()] == [[i] for i in range(400)]
    assert list(cells)[7] == ("7",) * 9
    with pytest.raises(CalibrantError, match="at most 500 groups; found 3996"):
        calibrant.evaluate(np.full(400, 0.5), np.arange(400) % 2, groups=columns)


def test_arrow_columns_have_the_values_that_occur():
    """Whatever their dictionaries hold, in however many chunks."""
    parts = [pa.array(part).dictionary_encode() for part in (["c", "a", None], ["a", "d"])]
    whole = pa.chunked_array(parts)
    (column,) = _inputs.groups({"x": whole}, 5).columns
    assert column.values == ("a", "c", "d", "missing")
    (column,) = _inputs.groups({"x": parts[0][1:]}, 2).columns
    assert (column.values, column.index.tolist()) == (("a", "missing"), [0, 1])
    with pytest.raises(CalibrantError, match=r"the column x has no groups: .* Name one of text"):
        _inputs.groups({"x": pa.array([[1], [2]])}, 2)


def test_cells_are_the_combinations_that_occur():
    found = _inputs.groups({"a": [1, 2, 1, 2], "b": ["x", "x", "y", "x"]}, 4)
    cells = {key: rows.tolist() for key, rows in found.cells()}
    assert cells == {("1", "x"): [0], ("1", "y"): [2], ("2", "x"): [1, 3]}
    assert dict(found[np.array([1, 2])].only(["b"]).cells()).keys() == {("x",), ("y",)}


def test_joined_parts_are_the_whole():
    values = np.random.default_rng(0).integers(0, 5, 40)
    parts = [_inputs.groups({"a": part}, len(part)) for part in (values[:7], values[7:])]
    joined, whole = Groups.joined(parts), _inputs.groups({"a": values}, 40)
    assert joined.columns[0].values == whole.columns[0].values
    assert (joined.columns[0].index == whole.columns[0].index).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [1, 2]}, "one value for each of the 3 rows; found 2 in a"),
        ({}, "at least one column"),
        ([{}, {}, {}], r"text, numbers or dates; found dict \{\} in group"),
        ({"a": np.array([[1], 2, 3], dtype=object)}, r"found list \[1\] in a"),
        (["a", None, "missing"], "without a value are the group 'missing'; found a group of that"),
        (pl.LazyFrame({"a": [1, 2, 3]}), "a frame, a dict of columns or one column"),
        (np.zeros((3, 2)), "a frame, a dict of columns or one column"),
    ],
)
def test_other_groups_are_refused(given, message):
    with pytest.raises(CalibrantError, match=message):
        _inputs.groups(given, 3)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(CalibrantError, match=r"no column 'six' to group by; found .*sex"):
        _inputs.groups({"sex": [1]}, 1).only(["six"])
