"""Columns of groups: what their values are called, in what order, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

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
        {"year": [2015, None, 2016], "sex": ["f", "m", ""]},
        {"year": np.array([2015.0, np.nan, 2016.0]), "sex": np.array(["f", "m", "NA"])},
        pd.DataFrame({"year": [2015, None, 2016], "sex": pd.Categorical(["f", "m", None])}),
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
        (np.zeros((3, 2)), "a frame, a dict of columns or one column"),
    ],
)
def test_other_groups_are_refused(given, message):
    with pytest.raises(CalibrantError, match=message):
        _inputs.groups(given, 3)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(CalibrantError, match=r"no column 'six' to group by; found .*sex"):
        _inputs.groups({"sex": [1]}, 1).only(["six"])
