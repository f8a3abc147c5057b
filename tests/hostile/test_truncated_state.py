"""Files of a run that were cut short: refused in one line, which says how to go on."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calibrant.integrations.hugging_face import TrainerLoss
from calibrant.losses import LOSSES
from tests.processes import run_calibrant

SHORT = ("--preset", "cpu", "--epochs", "1", "--limit", "64", "--observed", "0")
CPU = ("--accelerator", "cpu")

run = functools.partial(run_calibrant, "train")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    done = run("digits", *SHORT, *CPU, "-o", folder)
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize("content", ["", "[", '[{"torch": "2', "{}", "3", "null", "[" * 100_000])
def test_an_environment_that_was_cut_short(finished, tmp_path, content):
    folder = shutil.copytree(finished, tmp_path / "run")
    for name in ("result.json", "predictions.npz"):
        (folder / name).unlink()
    (folder / "environment.json").write_text(content)
    refusal = run("--resume", folder, *CPU)
    assert refusal.exit_code == 2
    (line,) = refusal.stderr.splitlines()
    assert "environment.json cannot be" in line
    assert line.endswith("Delete it and resume: the run does not need it")
    (folder / "environment.json").unlink()  # as it says
    assert run("--resume", folder, *CPU).exit_code == 0
    assert len(json.loads((folder / "environment.json").read_text())) == 1


@pytest.mark.parametrize("first", [1, "a", None, [], {"torch": []}])
def test_an_environment_of_other_values_differs(finished, tmp_path, first):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "predictions.npz").unlink()
    (folder / "environment.json").write_text(json.dumps([first]))
    resumed = run("--resume", folder, *CPU)
    assert resumed.exit_code == 0, resumed.output
    assert "resumed with another torch, numpy" in resumed.stdout


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_result_that_was_cut_short(finished, tmp_path, content):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "result.json").write_text(content)
    refusal = run("--resume", folder, *CPU)
    assert refusal.exit_code == 2
    (line,) = refusal.stderr.splitlines()
    assert line.endswith("Delete it and resume the run")
    (folder / "result.json").unlink()
    assert run("--resume", folder, *CPU).exit_code == 0
    assert json.loads((folder / "result.json").read_text())["name"] == "digits/mlp/ce/0"


# ---------------------------------------------------------------- the state of a loss


def arguments(folder: Path) -> Any:
    return SimpleNamespace(
        output_dir=str(folder), label_smoothing_factor=0.0, eval_strategy="epoch"
    )


STATE: Any = SimpleNamespace(global_step=6, is_world_process_zero=True)
CONTROL: Any = SimpleNamespace()


def saved(folder: Path) -> tuple[TrainerLoss, Path]:
    """A loss, and the state that it has written beside a checkpoint."""
    (folder / "checkpoint-6").mkdir()
    loss = TrainerLoss(LOSSES["adafocal"]())
    loss.on_save(arguments(folder), STATE, CONTROL)
    return loss, folder / "checkpoint-6" / "calibrant_loss.pt"


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_state_of_the_loss_that_was_cut_short(tmp_path, part):
    loss, path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"calibrant_loss\.pt cannot be read") as caught:
        loss.on_train_begin(arguments(tmp_path), STATE, CONTROL)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("or delete the file to continue without it")
    path.unlink()  # as it says
    with pytest.warns(UserWarning, match="the loss keeps its current state"):
        loss.on_train_begin(arguments(tmp_path), STATE, CONTROL)


@pytest.mark.parametrize("content", [{}, {"other": torch.zeros(3)}, [1, 2], 3])
def test_the_state_of_something_else(tmp_path, content):
    loss, path = saved(tmp_path)
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"calibrant_loss\.pt cannot be read") as caught:
        loss.on_train_begin(arguments(tmp_path), STATE, CONTROL)
    assert "\n" not in str(caught.value)


def test_a_state_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    loss, path = saved(tmp_path)
    before = path.read_bytes()

    def full(state, target):
        target.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        loss.on_save(arguments(tmp_path), STATE, CONTROL)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
