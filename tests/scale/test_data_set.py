"""Which rows a task gets, and how its sums are added up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant import _thresholds
from calibrant.files import write_predictions
from calibrant.files.parquet import ParquetFolder, RowRange, Skipped
from calibrant.scale.data_set import bundles, open_data_set
from calibrant.scale.engine import FAN_IN, InProcess, total


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in "abc":
        logits, labels = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
        write_predictions(tmp_path / f"{name}.parquet", logits=logits, labels=labels)
    return tmp_path


def test_bundles_hold_every_row_group_once_in_order(folder):
    data_set = open_data_set(folder)
    groups = tuple(RowRange("x", g, 400_000, g * 400_000, g * 400_000) for g in range(10))
    large = ParquetFolder(**{**vars(data_set), "ranges": groups})
    found = bundles(large)
    assert tuple(group for bundle in found for group in bundle) == groups
    assert all(sum(group.rows for group in bundle) <= _thresholds.BUNDLE_ROWS for bundle in found)
    assert len(found) == 5


@pytest.mark.parametrize("n", [1, 2, FAN_IN, FAN_IN + 1, FAN_IN**2 + 3])
def test_the_tree_of_sums_is_that_of_a_cluster(n):
    values = list(np.random.default_rng(n).normal(size=n))
    level = values
    while len(level) > 1:
        level = [total(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
    assert InProcess().reduce(lambda value: value, values) == level[0]


def test_adding_up_leaves_the_terms_as_they_are():
    terms = [(np.ones(2), Skipped(rows=1)), (np.ones(2), Skipped(rows=2))]
    sums, skipped = total(terms)
    assert sums.tolist() == [2.0, 2.0]
    assert skipped.rows == 3
    assert terms[0][0].tolist() == [1.0, 1.0]
    assert terms[0][1].rows == 1


def test_tasks_are_not_sent_all_files(folder):
    data_set = open_data_set(folder)
    sent = data_set.without_ranges()
    assert (sent.files, sent.ranges) == ((), ())
    assert sent.rows == data_set.rows == 900


def test_bundles_of_many_classes_are_shorter(folder):
    groups = tuple(RowRange("x", g, 500, g * 500, g * 500) for g in range(6))
    wide = ParquetFolder(**{**vars(open_data_set(folder)), "ranges": groups, "width": 100_000})
    assert [len(bundle) for bundle in bundles(wide)] == [1] * 6
