"""A folder of files counts every row once, whatever names its files have."""

from __future__ import annotations

import os

import numpy as np
import pytest

from calibrant.files import count_rows, read_predictions, write_predictions
from calibrant.files.parquet import parquet_files
from calibrant.scale import evaluate
from tests.processes import run_python

LABELS = np.arange(40) % 4
PROBS = np.full((40, 4), 0.25)


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "set"
    inside.mkdir()
    for name in ("a", "b"):
        write_predictions(inside / f"{name}.parquet", probs=PROBS, labels=LABELS)
    return inside


def add_link_beside_its_target(folder):
    (folder / "0-latest.parquet").symlink_to(folder / "b.parquet")


def add_relative_link(folder):
    (folder / "c.parquet").symlink_to("a.parquet")


def add_chain_of_links(folder):
    (folder / "c.parquet").symlink_to("a.parquet")
    (folder / "d.parquet").symlink_to("c.parquet")


def add_hard_link(folder):
    os.link(folder / "a.parquet", folder / "c.parquet")


ADDED = (add_link_beside_its_target, add_relative_link, add_chain_of_links, add_hard_link)


@pytest.mark.parametrize("add", ADDED)
def test_a_second_name_of_a_file_adds_no_rows(folder, add):
    add(folder)
    assert [file.name for file in parquet_files(folder)] == ["a.parquet", "b.parquet"]
    assert count_rows(folder) == 80
    assert len(read_predictions(folder)) == 80
    assert evaluate(folder).n == 80


def test_links_to_files_elsewhere_count_once(folder, tmp_path):
    write_predictions(tmp_path / "elsewhere.parquet", probs=PROBS, labels=LABELS)
    for name in ("c", "d"):
        (folder / f"{name}.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    assert [file.name for file in parquet_files(folder)] == [f"{n}.parquet" for n in "abc"]


def test_a_link_in_a_folder_inside_counts_once(folder):
    (folder / "inside").mkdir()
    (folder / "inside" / "a.parquet").symlink_to(folder / "a.parquet")
    (folder / "inside" / "loop").symlink_to(folder)
    assert evaluate(folder).n == 80


def test_copies_count_as_often_as_they_are_there(folder):
    (folder / "c.parquet").write_bytes((folder / "a.parquet").read_bytes())
    assert count_rows(folder) == 120


def test_names_that_differ_in_case_are_two_files(folder):
    (folder / "A.PARQUET").write_bytes((folder / "a.parquet").read_bytes())
    if len(list(folder.iterdir())) == 2:
        pytest.skip("this file system does not tell upper from lower case")
    assert count_rows(folder) == 120


NOT_TEXT = """
import sys
import numpy as np
from calibrant.cli import main

texts = np.array(["cat", "dog"] if sys.argv[1] == "class_names" else ["x"] * 4)
texts = texts.astype(texts.dtype.newbyteorder(sys.argv[2]))
texts.view(np.dtype("u4").newbyteorder(sys.argv[2]))[1] = 0xFFFFFFFF
arrays = {"probs": np.full((4, 2), 0.5), "labels": [0, 1, 0, 1], sys.argv[1]: texts}
np.savez("net.npz", **arrays)
main(["evaluate", "net.npz"])
"""


@pytest.mark.parametrize(("name", "order"), [("class_names", "<"), ("ids", ">")])
def test_a_number_that_is_no_character(name, order, tmp_path):
    done = run_python("-c", NOT_TEXT, name, order, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"{name} must be text; found the code point 0xffffffff" in done.stderr
    assert len(done.stderr.splitlines()) == 1
