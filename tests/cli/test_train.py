"""``calibrant train`` on digits, and on what cannot be."""

from __future__ import annotations

import functools
import io
import json
import signal
import sys

import pytest

from calibrant.cli.train import _train_with_bar
from calibrant.losses import LOSSES
from calibrant.training import recipe
from calibrant.training.models import MODELS
from tests.processes import run_calibrant

NESTEROV = ("--set", "optimizer=sgd", "--set", "nesterov=true")
THREE = ("--set", "model_options=3")
SHORT = ("--epochs", 2, "--limit", 128, "--observed", 50, "--accelerator", "cpu")

run = functools.partial(run_calibrant, "train")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = run("digits", "--loss", "fl_3", "--preset", "cpu", *SHORT, "-o", folder)
    assert result.exit_code == 0, result.output
    return folder, result


def test_a_table_with_all_methods_and_what_to_do_next(finished):
    folder, result = finished
    lines = result.stdout.splitlines()
    assert lines[0] == "digits/mlp/fl-3/0: 2 epochs (cpu preset; no paper has digits)"
    methods = {line.split()[0] for line in lines if line and line[0].isalpha()}
    assert {"identity", "temperature", "focal", "focal-temperature", "auto"} < methods
    assert "95% interval" in result.stdout
    assert lines[
        -1
    ] == f"To keep one: calibrant fit {folder}/predictions.npz::val --method NAME " + (
        "-o cal.json"
    )
    assert result.stderr == ""  # no bar where nobody watches


def test_a_finished_run_says_the_same_again(finished):
    folder, result = finished
    written = (folder / "predictions.npz").stat().st_mtime_ns
    again = run("--resume", folder, "--accelerator", "cpu", "--plugin", "json")
    assert again.exit_code == 0, again.output
    first = [line for line in again.stdout.splitlines() if not line.startswith(" ")][:3]
    assert first == [line for line in result.stdout.splitlines() if not line.startswith(" ")][:3]
    assert (folder / "predictions.npz").stat().st_mtime_ns == written


def test_json(finished):
    folder, _ = finished
    again = run("--resume", folder, "--accelerator", "cpu", "--json")
    data = json.loads(again.stdout)
    assert data["name"] == "digits/mlp/fl-3/0"
    assert data["recipe"]["limit"] == 128


def test_options_reach_the_recipe(tmp_path):
    options = ("--set", "model_options.hidden=[8]", "--set", "nesterov=true", "--seed", 3)
    more = (
        "--set",
        "optimizer=sgd",
        "--learning-rate",
        0.2,
        "--clip-norm",
        1.0,
        "--batch-size",
        50,
    )
    result = run("digits", *SHORT, *options, *more, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["recipe"]
    assert stored["model_options"] == {"hidden": [8]}
    assert (stored["nesterov"], stored["optimizer"], stored["seed"]) == (True, "sgd", 3)
    assert (stored["learning_rate"], stored["clip_norm"], stored["batch_size"]) == (0.2, 1.0, 50)


def test_a_bar_where_somebody_watches(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    short = recipe("digits", epochs=2, limit=128, observed=50)
    _train_with_bar(short, tmp_path / "run", accelerator="cpu")
    assert "digits/mlp/ce/0" in screen.getvalue()
    assert "epoch 2: error 0." in screen.getvalue()
    assert "100%" in screen.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digits",), "one of -o FOLDER (a new run) and --resume FOLDER is needed; found neither"),
        (("-o", "FOLDER/new"), "DATASET is needed; found none"),
        (("digit", "-o", "FOLDER/new"), "Did you mean 'digits'?"),
        (("digits", "--loss", "focal", "-o", "FOLDER/new"), "loss must be one of ce,"),
        (("digits", "--model", "resnet-8", "-o", "FOLDER/new"), "Did you mean 'resnet8'?"),
        (("digits", "--logger", "wandb", "-o", "FOLDER/new"), "logger must be one of csv"),
        (("digits", "--set", "depth", "-o", "FOLDER/new"), "--set takes NAME=VALUE"),
        (("digits", "--set", "depth=3", "-o", "FOLDER/new"), "a recipe has no parameter 'depth'"),
        (("digits", "--epochs", 0, "-o", "FOLDER/new"), "epochs must be"),
        (("cifar10", "-o", "FOLDER/new"), "cifar10"),
        (("digits", "-o", "FOLDER/run"), "must be new or empty; found a run in it"),
        (("digits", "--resume", "FOLDER/run"), "was started with another recipe"),
        (("--resume", "FOLDER/nothing"), "holds no run to resume"),
        (("digits", "-o", "/proc/run"), "cannot write to /proc/run"),
        (("digits", "--grid", "grid.toml", "-o", "FOLDER/grid"), "Leave it out"),
        (("--grid", "grid.toml"), "a grid needs -o FOLDER"),
        (("--grid", "FOLDER/none.toml", "-o", "FOLDER/grid"), "No such file"),
        # What Lightning or torch would refuse when the folder is there already.
        (("digits", "--accelerator", "foo", "-o", "FOLDER/new"), "accelerator='foo' with 1 dev"),
        (("digits", "--devices", 0, "-o", "FOLDER/new"), "devices must be from 1"),
        (("digits", "--nodes", -1, "-o", "FOLDER/new"), "nodes must be from 1"),
        (
            ("digits", "--devices", 2, "--batch-size", 1, "-o", "FOLDER/new"),
            "batch_size must be at least the number of processes, 2; found 1",
        ),
        (
            ("digits", "--devices", 2, "--limit", 1, "-o", "FOLDER/new"),
            "the training split must be at least the number of processes, 2; found 1",
        ),
        (("digits", "--model", "text-cnn", "-o", "FOLDER/new"), "text-cnn takes tokens; found im"),
        (("digits", "--model", "tree-lstm", "-o", "FOLDER/new"), "takes trees; found images in d"),
        (("digits", "--model", "torch.nn:Linear", "-o", "FOLDER/new"), "out_features"),
        (("digits", "--set", "loss_options.gama=2", "-o", "FOLDER/new"), "loss_options of ce: "),
        (
            ("digits", "--set", "loss_options.reduction=none", "-o", "FOLDER/new"),
            "must be one number; found reduction='none'. Pass 'mean' or 'sum'",
        ),
        # Values of the wrong kind, and those that would silently count as another.
        (("digits", "--set", "nesterov=yes", "-o", "FOLDER/new"), "nesterov must be true or fal"),
        (
            ("digits", *NESTEROV, "--set", "momentum=0", "-o", "FOLDER/new"),
            "nesterov needs a momentum above 0",
        ),
        (("digits", "--set", "steps=5", "-o", "FOLDER/new"), "steps must be a list; found int 5"),
        (("digits", "--set", "betas=[0.9]", "-o", "FOLDER/new"), "betas must be a list of 2 num"),
        (("digits", "--set", "betas=0.9", "-o", "FOLDER/new"), "betas must be a list"),
        (("digits", "--set", "model_options=3", "-o", "FOLDER/new"), "model_options must be opt"),
        (
            ("digits", *THREE, "--set", "model_options.x=3", "-o", "FOLDER/new"),
            "model_options must be options by name; found int 3",
        ),
        (("digits", "--set", "model_options.hidden=64", "-o", "FOLDER/new"), "hidden must be a l"),
        (("digits", "--set", "loss=fl-3", "-o", "FOLDER/new"), "Pass --loss NAME"),
        (("digits", "--set", "data=digits", "-o", "FOLDER/new"), "Pass it as DATASET"),
        (("digits", "--learning-rate", "nan", "-o", "FOLDER/new"), "learning_rate must be finite"),
        (("digits", "--seed", -1, "-o", "FOLDER/new"), "seed must be from 0"),
        (("digits", "--limit", 0, "-o", "FOLDER/new"), "limit must be from 1"),
        # Options without an effect.
        (
            ("--resume", "FOLDER/run", "--epochs", 9, "--loss", "ce"),
            "--loss, --epochs cannot be combined with",
        ),
        (
            ("--resume", "FOLDER/run", "--set", "momentum=0"),
            "--set cannot be combined",
        ),
        (
            ("digits", "--processes", 2, "-o", "FOLDER/new"),
            "--processes cannot be combined",
        ),
        (
            ("--grid", "grid.toml", "--epochs", 2, "-o", "FOLDER/new"),
            "--epochs cannot be combined with --grid FILE",
        ),
        (("--grid", "g.toml", "-o", "FOLDER/a", "--resume", "FOLDER/b"), "a grid has one folder"),
        (("--grid", "g.toml", "-o", "FOLDER/a", "--plugin", "json"), "Install the plug-in"),
    ],
)
def test_one_line_and_exit_status_2(arguments, message, finished):
    folder = finished[0].parent
    result = run(*(str(a).replace("FOLDER", str(folder)) for a in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "new").exists()


def test_a_folder_with_a_space_in_its_name(tmp_path):
    folder = tmp_path / "über zwei"
    result = run("digits", *SHORT, "--observed", 0, "-o", folder)
    assert result.exit_code == 0, result.output
    assert f"calibrant fit '{folder}/predictions.npz::val' --method" in result.stdout


@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_says_in_one_line_how_to_go_on(begun, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    where = "TrainingModule.on_train_epoch_end" if begun else "_try_out"
    place = "calibrant.training.module" if begun else "calibrant.training.run"
    monkeypatch.setattr(f"{place}.{where}", stop)
    heard = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "a run"
    result = run("digits", *SHORT, "-o", folder)
    assert result.exit_code == 130
    (line,) = result.stderr.splitlines()
    if begun:
        assert line.endswith(f"0 complete epochs. To resume: calibrant train --resume '{folder}'")
        monkeypatch.undo()
        assert run("--resume", folder, "--accelerator", "cpu").exit_code == 0
    else:
        assert line == "Error: stopped before the run started; nothing was written"
        assert not folder.exists()
    assert signal.getsignal(signal.SIGINT) is heard  # Lightning would have it ignored


def test_the_help_lists_the_names():
    # Names are broken between lines.
    said = "".join(run("--help").stdout.split())
    for name in (*MODELS, *LOSSES):
        assert name in said


@pytest.mark.slow
def test_a_grid(tmp_path):
    (tmp_path / "grid.json").write_text(
        json.dumps(
            {"data": "digits", "settings": {"epochs": 1, "limit": 64, "observed": 0}, "seed": 7}
        )
    )
    result = run("--grid", tmp_path / "grid.json", "-o", tmp_path / "grid", "--processes", 1)
    assert result.exit_code == 0, result.output
    assert "| digits | mlp | ce | 1 |" in result.stdout
    assert "done: digits/mlp/ce/7; 0 left" in result.stderr


@pytest.mark.slow
def test_a_grid_with_a_failure(tmp_path):
    grid = {"data": "digits", "settings": {"data_options": {"colour": 1}}}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    result = run("--grid", tmp_path / "grid.json", "-o", tmp_path / "grid")
    assert result.exit_code == 1
    assert "1 of 1 runs failed: digits/mlp/ce/0" in result.stderr
