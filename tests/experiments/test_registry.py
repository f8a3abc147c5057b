"""The experiments: each has what it promises, and what was published is what is expected."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest

from experiments.__main__ import PAGE, main
from experiments.catalogue import HERE, Expected, Experiment, NothingToReadError, catalogue
from experiments.page import OF_A_FURTHER_RUN, counted, searched, with_results
from experiments.processes import single_threads
from experiments.quick import run_quick
from experiments.results import changed_verdicts, differences
from experiments.tables import Table

ABOUT = {"title", "source", "needs", "minutes", "study", "pending"}
KEYS = ABOUT | {"parameters", "reads", "shows", "draws"}
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
    assert RESULTS[name].picture is None or RESULTS[name].picture.exists(), "publish it again"
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
    assert Expected(here=0.0, paper="2", within=0.5).same_as_paper(2.4)
    assert Expected(here=0.0, paper="much lower").same_as_paper(1.0) is None


@pytest.mark.parametrize(
    ("paper", "value", "same"),
    [
        ("0", 0.0, True),
        ("0", 1e-3, False),  # exceptions are counted, not rounded away
        ("2", 2.4, False),
        ("none", 4.0, False),
        ("below 0.001", 0.0012, False),
        ("below 0", -0.1, True),
        ("above 0", 0.0, False),
        ("at least 0.33", 0.3299, False),
        ("at most 5", 6.0, False),
        ("0.4-0.5", 0.3563, False),
        ("0.4-0.5", 0.4646, True),
        ("about 2", 2.2, None),
        ("-0.5", -0.51, True),
    ],
)
def test_bounds_and_ranges_are_compared(paper, value, same):
    assert Expected(here=0.0, paper=paper).same_as_paper(value) is same


def test_a_result_is_that_of_the_grids_it_was_made_with(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.catalogue.HERE", tmp_path)
    (tmp_path / "grid.toml").write_text("seed = 0")
    (tmp_path / "config.toml").write_text('reads = ["grid.toml"]')
    before = Experiment(tmp_path).hash
    (tmp_path / "grid.toml").write_text("# the same\nseed = 0")
    assert Experiment(tmp_path).hash == before
    (tmp_path / "grid.toml").write_text("seed = 1")
    assert Experiment(tmp_path).hash != before


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


@pytest.mark.slow
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


def test_a_mistyped_target_is_told_what_is_near(capsys):
    with pytest.raises(SystemExit):
        main(["closest-temprature"])
    assert "Nearest: closest-temperature" in capsys.readouterr().err


class MadeUp:
    """An experiment whose run does what it is told."""

    is_quick, missing, folder = True, "", HERE / "closest_temperature"

    def __init__(self, name, outcome, minutes):
        self.name, self.outcome = name, outcome
        self.config = {"title": f"title of {name}", "minutes": minutes}

    def expected(self):
        return {}


def test_quick_goes_on_after_a_failure(monkeypatch, tmp_path, capsys):
    started = []

    def reproduce(experiment, out, *, publish):
        started.append(experiment.name)
        assert out == tmp_path / experiment.name
        if isinstance(experiment.outcome, Exception):
            raise experiment.outcome
        return experiment.outcome

    monkeypatch.setattr("experiments.quick.reproduce", reproduce)
    outcomes = {"a": FileNotFoundError("bad"), "b": NothingToReadError("no runs")}
    outcomes |= {"c": [], "d": ["x is 2"]}
    made_up = [MadeUp(k, v, minutes) for minutes, (k, v) in enumerate(outcomes.items())]
    code = run_quick(made_up, tmp_path, publish=False)
    *lines, _, counts = capsys.readouterr().out.splitlines()
    said = [line.split(maxsplit=1)[1] for line in lines[-4:]]
    assert code == 1
    assert started == ["d", "c", "b", "a"]  # the longest first
    assert said[0].startswith("failed: FileNotFoundError('bad')")
    assert said[1] == "skipped: no runs"
    assert said[2].startswith("as expected (0 values)")
    assert said[3].startswith("x is 2")
    assert counts == "1 as expected, 2 not as expected, 1 skipped"
    for name in outcomes:
        assert f"## {name}: title of {name}" in lines
    assert "FileNotFoundError: bad" in lines  # of the traceback


def test_quick_runs_experiments_in_processes_of_their_own(tmp_path, capsys):
    few = [ALL[name] for name in ("risk-isolines", "proper-part", "scoreboard")]
    with single_threads(2) as pool:
        assert run_quick(few, tmp_path, publish=False, apply=pool.map) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("2 as expected, 0 not as expected, 0 skipped\n")
    assert {path.name for path in tmp_path.iterdir()} == {"risk-isolines", "proper-part"}


class Published:
    """An experiment with made-up values and comparisons."""

    name = "made up"

    def __init__(self, *expected, **values):
        self.rows = {f"row {i}": each for i, each in enumerate(expected)}
        self.values = dict.fromkeys(self.rows, 2.0) | values

    def published(self):
        return {"values": self.values}

    def expected(self):
        return self.rows


def test_printed_numbers_are_counted_by_outcome():
    experiment = Published(
        Expected(here=2.0, paper="2.0"),
        Expected(here=2.0, paper="2.0", again=True),
        Expected(here=2.0, paper="3.0", why="a smaller network"),
        Expected(here=2.0, paper="3.0", why="a smaller network; not tested"),
        Expected(here=2.0, paper="much larger"),
        Expected(here=2.0, paper="much larger", why="the same words"),
        Expected(here=2.0, paper="0"),
        Expected(here=2.0),
        **dict(zip(OF_A_FURTHER_RUN, (9.0, 6.0), strict=True)),
    )
    assert counted([experiment]) == [1, 6, 1, 1 + 3, 1]
    assert counted([]) == [0] * 5


def test_statements_about_all_cases_are_counted_by_their_exceptions():
    experiment = Published(
        Expected(here=2.0, paper="0"),
        Expected(here=2.0, paper="none", again=True),
        Expected(here=0.0, paper="0", tolerance=3.0),
        Expected(here=2.0, paper="2.0"),
    )
    assert searched([experiment]) == [1, 1]


def test_a_verdict_that_changes_is_not_as_expected():
    experiment = ALL["temperature-line"]
    values = dict(experiment.published()["values"])
    assert changed_verdicts(experiment, values) == []
    for choice in ("ECE", "NLL"):
        name = f"R² of T over gamma, T chosen by {choice}"
        values[f"{name}: data sets with a median from 0.95 on"] = 0
    (line,) = changed_verdicts(experiment, values)
    assert "holds in part here; published: holds here" in line


def test_processes_on_one_thread_leave_the_environment(monkeypatch):
    """Numba would refuse to compile in this process otherwise, once it has more threads."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with single_threads(1) as pool:
        assert pool.submit(os.getenv, "NUMBA_NUM_THREADS").result() == "1"
        assert pool.submit(os.getenv, "MKL_NUM_THREADS").result() == "1"
    assert os.environ["NUMBA_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in os.environ
