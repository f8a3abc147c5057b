"""The grid runner: every run once, none stopped by another, a table at the end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

from calibrant.training.grid import GridResult, folder_of, jobs_of, read_grid, run_grid

GRID = {
    "data": "digits",
    "loss": ["ce", "fl-3"],
    "seed": [0, 1],
    "settings": {"epochs": 1, "limit": 128, "observed": 0},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A grid with one run that cannot be: there is no such option."""
    root = tmp_path_factory.mktemp("grid")
    impossible = {**GRID["settings"], "data_options": {"colour": 1}}
    jobs = jobs_of({**GRID, "seed": 0}) + jobs_of(
        {**GRID, "loss": "ce", "seed": 1, "settings": impossible}
    )
    said = []
    return root, jobs, run_grid(jobs, root, processes=2, say=said.append), said


def test_the_product_of_the_axes():
    names = [job.recipe.name for job in jobs_of(GRID)]
    assert names == [f"digits/mlp/{loss}/{seed}" for loss in ("ce", "fl-3") for seed in (0, 1)]
    assert all(job.recipe.epochs == 1 for job in jobs_of(GRID))


def test_a_run_that_is_there_twice_is_run_once():
    assert len(jobs_of({**GRID, "loss": ["ce", "ce"], "seed": 3})) == 1


def test_the_files_of_each_data_set():
    grid = {"data": ["digits", "tabular"], "files": {"tabular": {"data": "iris.csv"}}}
    assert [job.data_folder for job in jobs_of(grid)] == [None, "iris.csv"]


@pytest.mark.slow
def test_the_others_finish_and_the_failure_is_named(done):
    root, jobs, result, said = done
    assert result.n_runs == 3
    assert [entry["recipe"]["loss"] for entry in result.results] == ["ce", "fl-3"]
    assert set(result.failures) == {"digits/mlp/ce/1"}
    assert "has no option 'colour'" in result.failures["digits/mlp/ce/1"]
    assert said[0] == "3 runs: 0 finished, 3 to run"
    assert not folder_of(jobs[-1], root).exists()


@pytest.mark.slow
def test_the_table(done):
    root, _, result, _ = done
    table = (root / "table.md").read_text()
    lines = table.splitlines()
    assert lines[0].startswith("| data | model | loss | seeds | test error % | ECE % |")
    assert lines[2].startswith("| digits | mlp | ce | 1 | ")
    assert "Failed: digits/mlp/ce/1" in table
    plain = json.loads((root / "table.json").read_text())
    first = json.loads((folder_of(done[1][0], root) / "result.json").read_text())
    assert plain["runs"][0]["test error %"] == first["test"]["error"]
    assert (
        plain["rows"][0]["NLL"]["mean"]
        == (first["comparison"]["methods"]["identity"]["metrics"]["nll"]["value"])
    )
    assert plain["rows"][0]["ECE % focal map"] is None  # cross-entropy has no gamma
    assert plain["rows"][1]["ECE % focal map"] is not None
    assert str(result) == table.rstrip("\n")


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_what_was_cut_is_resumed(done, tmp_path):
    root, jobs, _, _ = done
    shutil.copytree(root, tmp_path / "grid")
    cut = folder_of(jobs[1], tmp_path / "grid")
    (cut / "result.json").unlink()
    (cut / "predictions.npz").unlink()
    said = []
    result = run_grid(jobs[:2], tmp_path / "grid", processes=1, say=said.append)
    assert said[0] == "2 runs: 1 finished, 1 to run"
    assert not result.failures
    ours = json.loads((cut / "result.json").read_text())
    whole = json.loads((folder_of(jobs[1], root) / "result.json").read_text())
    assert ours["test"] == whole["test"]
    assert len(json.loads((cut / "environment.json").read_text())) == 2


def test_a_killed_run_is_named(tmp_path, monkeypatch):
    import subprocess
    import sys

    kills_itself = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    original = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **kept: original(kills_itself, **kept))
    result = run_grid({**GRID, "loss": "ce", "seed": 0}, tmp_path, processes=1)
    assert result.failures == {"digits/mlp/ce/0": "killed by signal 9"}


def test_mean_and_deviation_over_the_seeds():
    def entry(seed, error):
        methods = {}
        recipe = {"data": "d", "model": "m", "loss": "l", "seed": seed}
        return {
            "hash": str(seed),
            "recipe": recipe,
            "seconds": 1.0,
            "test": {"error": error},
            "comparison": {"methods": methods},
        }

    result = GridResult(2, (entry(0, 0.1), entry(1, 0.3)), {})
    (row,) = result.rows()
    assert row["seeds"] == [0, 1]
    assert row["test error %"]["mean"] == pytest.approx(0.2)
    assert row["test error %"]["sd"] == pytest.approx(0.1 * 2**0.5)
    assert "20.00 ± 14.14" in str(result)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("grid.json", "{", "cannot be read"),
        ("grid.toml", "data = ", "cannot be read"),
        ("grid.json", "[]", "must be a dict"),
        ("grid.yaml", "data: digits", r"must be one of \.json, \.toml; found '\.yaml'"),
    ],
)
def test_a_bad_file(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, TypeError), match=message):
        read_grid(tmp_path / name)


def test_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "a.toml").write_text('data = "digits"\nseed = [0, 1]\n[settings]\nepochs = 2\n')
    (tmp_path / "a.json").write_text(
        '{"data": "digits", "seed": [0, 1], "settings": {"epochs": 2}}'
    )
    assert read_grid(tmp_path / "a.toml") == read_grid(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": []}, "data of a grid must have an entry; found an empty list"),
        ({"data": "digit"}, "Did you mean 'digits'"),
        ({"loss": "fl3"}, "loss must be one of .* Did you mean 'fl-3'"),
        ({"model": "resnet-8"}, "Did you mean 'resnet8'"),
        ({"model": 8}, "model must be a name; found int 8"),
        ({"seed": "a"}, "seed must be a whole number; found str 'a'"),
        ({"preset": "gpu"}, "preset must be one of paper, cpu"),
        ({"settings": 3}, r"settings of a grid must be names with values; found int 3"),
        ({"settings": {"epoch": 3}}, "a recipe has no parameter 'epoch'"),
        ({"settings": {"loss": "ce"}}, r"loss is not a setting .* Write loss = \.\.\. above"),
        ({"settings": {"loss_options": {"gama": 3}}}, "loss_options of ce: .*gama"),
        ({"files": "data"}, "files of a grid must be names with values"),
        ({"files": {"digits": "data"}}, "digits of a grid must be names with values"),
        ({"files": {"digit": {"data": "x"}}}, "files of a grid must be one of digits; found 'dig"),
        ({"files": {"digits": {"folder": "x"}}}, "files.digits of a grid has no parameter 'folder"),
        ({"files": {"digits": {"data": 3}}}, r"files\.digits\.data must be a name; found int 3"),
    ],
)
def test_typos_are_refused_before_the_first_run(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        jobs_of({"data": "digits", **changes})


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to .*file: .* Choose another folder"):
        run_grid({"data": "digits"}, tmp_path / "file")


def test_a_stop_leaves_nobody_behind(tmp_path, monkeypatch):
    begun = []
    original = subprocess.Popen
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]

    def popen(*_, **options):
        begun.append(original(sleep, **options))
        return begun[-1]

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_grid({"data": "digits"}, tmp_path, processes=1)
    (process,) = begun
    assert process.returncode == -signal.SIGTERM


def test_an_unknown_axis():
    with pytest.raises(ValueError, match="a grid has no parameter 'losses'"):
        jobs_of({"data": "digits", "losses": "ce"})
