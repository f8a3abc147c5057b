"""The experiments: each has what it promises, and what was published is what is expected."""

from __future__ import annotations

import csv
import io
import json

import pytest

from experiments.__main__ import PAGE, main
from experiments.catalogue import HERE, Expected, catalogue
from experiments.page import with_results
from experiments.results import differences
from experiments.tables import Table

KEYS = {"title", "source", "needs", "minutes", "parameters", "study", "pending"}
ALL = catalogue()
RESULTS = {name: each for name, each in ALL.items() if not each.is_study}
PUBLISHED = [
    pytest.param(name, marks=pytest.mark.skipif(bool(each.pending), reason=each.pending))
    for name, each in RESULTS.items()
]


@pytest.mark.parametrize("name", ALL)
def test_a_folder_says_what_it_is(name):
    experiment = ALL[name]
    config = experiment.config
    assert set(config) <= KEYS
    assert config["title"]
    assert config["minutes"] > 0
    assert isinstance(config["source"], str)
    assert (experiment.folder / "README.md").read_text().startswith("# ")
    assert (experiment.folder / "run.py").exists()


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_differs_from_the_paper_is_explained(name):
    experiment = RESULTS[name]
    published = experiment.published()
    expected = experiment.expected()
    assert published is not None, "python -m experiments ... --publish"
    assert expected
    for value, each in expected.items():
        same = each.same_as_paper(published["values"][value])
        assert same or each.why or not each.paper, f"{value} differs from {each.paper}: why?"


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_was_published_is_what_is_expected(name):
    published = RESULTS[name].published()
    assert published["config_hash"] == RESULTS[name].hash, "made by another config: run it again"
    assert differences(RESULTS[name], published["values"]) == []


def test_what_is_pending_is_not_published():
    assert not [name for name, each in RESULTS.items() if each.pending and each.published()]


def test_every_folder_with_a_run_is_in_the_catalogue():
    assert {path.parent.name for path in HERE.glob("*/run.py")} == {
        each.folder.name for each in ALL.values()
    }


def test_the_page_has_what_was_published():
    page = HERE.parent / PAGE
    assert with_results(page.read_text(), ALL) == page.read_text(), "python -m experiments page"


def test_a_paper_s_digits_decide_what_is_the_same():
    assert Expected(here=0.0, paper="0.95").same_as_paper(0.954)
    assert not Expected(here=0.0, paper="0.95").same_as_paper(0.956)
    assert Expected(here=0.0, paper="0.95", within=0.1).same_as_paper(0.86)
    assert Expected(here=0.0, paper="2").same_as_paper(2.4)
    assert Expected(here=0.0, paper="below 2").same_as_paper(1.0) is None


def test_a_wrong_or_missing_value_is_named():
    experiment = ALL["closest-temperature"]
    values = {name: each.here for name, each in experiment.expected().items()}
    assert differences(experiment, values) == []
    values["slope, 2 classes"] += 0.01
    del values["offset, 2 classes"]
    wrong = differences(experiment, values)
    assert [line.split(": ")[1].split(" is ")[0] for line in wrong] == [
        "slope, 2 classes",
        "offset, 2 classes",
    ]


def test_a_run_leaves_its_tables_in_three_forms_and_where_it_came_from(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["closest-temperature", "--out", str(tmp_path)])
    assert stop.value.code == 0
    assert "As expected." in capsys.readouterr().out
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["config_hash"] == ALL["closest-temperature"].hash
    assert record["commit"]
    rows = list(csv.reader(io.StringIO((tmp_path / "fits.csv").read_text())))
    assert [row[0] for row in rows] == ["classes", "2", "3", "4"]
    assert (tmp_path / "fits.md").read_text().count("|") == 4 * 5
    assert r"\begin{tabular}{lrr}" in (tmp_path / "fits.tex").read_text()
    assert (tmp_path / "fits.svg").exists()


def test_tables_keep_what_their_languages_use_as_signs():
    table = Table("t", ["a|b", "c_d"], [["**1 & 2**", "3 % of {x}"]])
    assert table.markdown().splitlines()[0] == r"| a\|b | c_d |"
    assert list(csv.reader(io.StringIO(table.csv())))[1] == ["1 & 2", "3 % of {x}"]
    assert r"\textbf{1 \& 2} & 3 \% of \{x\} \\" in table.latex()
