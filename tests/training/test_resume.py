"""A killed run resumes to the same bits; errors are found before a run starts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
import time
from collections import namedtuple

import numpy as np
import pytest
import torch

from calibrant import _writing
from calibrant.training import Recipe, checkpoints, train
from calibrant.training.folders import RunFolder
from tests.processes import run_python

RECIPE = Recipe(
    data="digits",
    model="mlp",
    loss="adafocal",
    epochs=4,
    steps=(3,),
    batch_size=64,
    learning_rate=0.05,
    choice="best",
    limit=256,
    observed=100,
    model_options={"hidden": [32], "dropout": 0.2},
    data_options={"augment": "crop"},
)

MIDDLE_OF_AN_EPOCH = """
from calibrant.training.module import TrainingModule
original = TrainingModule.training_step
def step(self, batch, batch_idx):
    if self.epoch == 2 and batch_idx == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, batch, batch_idx)
TrainingModule.training_step = step
"""
WHILE_A_CHECKPOINT_IS_WRITTEN = """
from pathlib import Path
original = Path.write_bytes
def write_bytes(self, content):
    if self.name != "epoch_00003.pt":
        return original(self, content)
    original(self, content[: len(content) // 2])  # half of it has reached the disk
    os.kill(os.getpid(), signal.SIGKILL)
Path.write_bytes = write_bytes
"""
BEFORE_A_CHECKPOINT_HAS_ITS_NAME = """
original = os.replace
def replace(source, target):
    if str(target).endswith("epoch_00003.pt"):
        os.kill(os.getpid(), signal.SIGKILL)
    original(source, target)
os.replace = replace
"""
BEFORE_THE_PREDICTIONS = """
from calibrant.training.folders import RunFolder
def write_predictions(*_):
    os.kill(os.getpid(), signal.SIGKILL)
RunFolder.write_predictions = write_predictions
"""
KILLS = {
    "middle of an epoch": MIDDLE_OF_AN_EPOCH,
    "half a checkpoint": WHILE_A_CHECKPOINT_IS_WRITTEN,
    "before the rename": BEFORE_A_CHECKPOINT_HAS_ITS_NAME,
    "before the predictions": BEFORE_THE_PREDICTIONS,
}
NEXT_EPOCH = {
    "middle of an epoch": 2,
    "half a checkpoint": 2,
    "before the rename": 2,
    "before the predictions": 4,
}


CONVOLUTIONS = Recipe(
    data="digits",
    model="resnet8",
    loss="fls-531",
    epochs=4,
    batch_size=50,
    limit=256,
    observed=0,
    optimizer="adam",
    learning_rate=0.001,
    data_options={"augment": "crop"},
)


def killed(folder, how, recipe=RECIPE):
    program = textwrap.dedent(
        """
        import json, os, signal, sys, torch
        recipe, folder = json.loads(sys.argv[1]), sys.argv[2]
        """
    ) + textwrap.dedent(how)
    program += "\nfrom calibrant.training import Recipe, train\n"
    program += "train(Recipe.from_dict(recipe), folder, accelerator='cpu')\n"
    done = run_python("-c", program, json.dumps(recipe.to_dict()), folder)
    assert done.returncode == -signal.SIGKILL, done.stderr


def logits_of(folder):
    with np.load(RunFolder(folder).predictions) as stored:
        return stored["val_logits"], stored["test_logits"]


def measured(folder):
    return [{**record, "seconds": 0, "cpu": 0} for record in RunFolder(folder).records()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(RECIPE, folder, accelerator="cpu")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("how", KILLS)
def test_a_killed_run_resumes_to_the_same_bits(how, whole, tmp_path):
    folder = tmp_path / "run"
    killed(folder, KILLS[how])
    assert checkpoints.newest(folder / "checkpoints")["epoch"] == NEXT_EPOCH[how]
    assert not RunFolder(folder).predictions.exists()
    train(RECIPE, folder, resume=True, accelerator="cpu")
    for ours, expected in zip(logits_of(folder), logits_of(whole), strict=True):
        np.testing.assert_array_equal(ours, expected)
    assert measured(folder) == measured(whole)
    assert not list(folder.rglob(".*"))  # nothing half written is left
    ends = [checkpoints.newest(place / "checkpoints") for place in (folder, whole)]
    for name, tensor in ends[0]["module"].items():
        assert torch.equal(tensor, ends[1]["module"][name])
    starts = json.loads((folder / "environment.json").read_text())
    assert [start["from_epoch"] for start in starts] == [0, NEXT_EPOCH[how]]


@pytest.mark.slow
def test_a_network_with_batch_normalisation_does_too(tmp_path):
    """Its sums depend on the number of threads, which the first use of a kernel may change."""
    killed(tmp_path / "run", MIDDLE_OF_AN_EPOCH, CONVOLUTIONS)
    for name, resume in (("run", True), ("whole", False)):
        train(CONVOLUTIONS, tmp_path / name, resume=resume, accelerator="cpu", threads=1)
    for ours, expected in zip(
        logits_of(tmp_path / "run"), logits_of(tmp_path / "whole"), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.slow
def test_the_number_of_threads_stays(tmp_path):
    """Whatever sets it in the midst of a run."""
    seen = []

    def meddle(record):
        torch.set_num_threads(2)

    def look(*_):
        seen.append(torch.get_num_threads())

    before = torch.get_num_threads()
    train(
        CONVOLUTIONS,
        tmp_path / "run",
        accelerator="cpu",
        threads=1,
        on_epoch=meddle,
        on_step=look,
    )
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_a_damaged_checkpoint_leaves_the_one_before_it(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "predictions.npz").unlink()
    last = checkpoints.found(folder / "checkpoints")[-1]
    last.write_bytes(last.read_bytes()[:1000])
    train(RECIPE, folder, resume=True, accelerator="cpu")
    np.testing.assert_array_equal(logits_of(folder)[1], logits_of(whole)[1])


def test_a_checkpoint_holds_no_code(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.system, ("touch hacked",)

    torch.save({"epoch": 1, "module": Hostile()}, tmp_path / "epoch_00001.pt")
    assert checkpoints.newest(tmp_path) is None
    assert not os.path.exists("hacked")


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    before = (folder / "predictions.npz").stat().st_mtime_ns
    run = train(RECIPE, folder, resume=True, accelerator="cpu")
    assert (folder / "predictions.npz").stat().st_mtime_ns == before
    assert len(run.records) == RECIPE.epochs


@pytest.mark.slow
def test_another_environment_is_noted(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (start,) = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps([{**start, "threads": 99}]))
    assert train(RECIPE, folder, resume=True, accelerator="cpu").notes == ()  # nothing was run
    (folder / "predictions.npz").unlink()
    run = train(RECIPE, folder, resume=True, accelerator="cpu")
    assert "threads" in run.notes[0]
    assert json.loads((folder / "result.json").read_text())["notes"] == list(run.notes)


@pytest.mark.slow
def test_a_finished_run_without_its_checkpoints_stays_as_it_is(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    run = train(RECIPE, folder, resume=True, accelerator="cpu")
    assert len(run.records) == RECIPE.epochs
    for name in ("metrics.jsonl", "predictions.npz", "result.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_a_run_that_starts_again_says_so(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "predictions.npz").unlink()
    for path in checkpoints.found(folder / "checkpoints"):
        torch.save({"epoch": 2}, path)  # of another program
    run = train(RECIPE, folder, resume=True, accelerator="cpu")
    assert run.notes == ("No checkpoint of the run could be read: it started again.",)
    np.testing.assert_array_equal(logits_of(folder)[1], logits_of(whole)[1])


def test_two_processes_do_not_share_a_folder(whole, tmp_path):
    pytest.importorskip("fcntl")
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "predictions.npz").unlink()
    with (
        RunFolder(folder).held(),
        pytest.raises(ValueError, match=r"must be free; found another process writing to it\."),
    ):
        train(RECIPE, folder, resume=True, accelerator="cpu")
    assert not (folder / "predictions.npz").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "loss", "choice"),
    [("sgd", "fls-532", "last"), ("adam", "adafocal", "best"), ("adagrad", "mmce", "best")],
)
def test_every_optimiser_resumes_to_the_same_bits(optimizer, loss, choice, tmp_path, monkeypatch):
    changes = {"optimizer": optimizer, "loss": loss, "choice": choice, "weight_decay": 1e-3}
    more = {"learning_rate": 0.01, "epochs": 3, "steps": [2], "clip_norm": 0.5, "observed": 50}
    made = Recipe.from_dict({**RECIPE.to_dict(), **changes, **more})
    # The table of calibrators takes longer than all else, and is not asked for.
    monkeypatch.setattr("calibrant.training.run.METHODS", ("identity",))
    train(made, tmp_path / "whole", accelerator="cpu")

    def stop(epoch, step, _):
        if (epoch, step) == (2, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(made, tmp_path / "cut", accelerator="cpu", on_step=stop)
    train(made, tmp_path / "cut", resume=True, accelerator="cpu")
    pairs = zip(logits_of(tmp_path / "cut"), logits_of(tmp_path / "whole"), strict=True)
    for found, wanted in pairs:
        np.testing.assert_array_equal(found, wanted)
    assert measured(tmp_path / "cut") == measured(tmp_path / "whole")


def test_cpu_time_is_recorded_beside_wall_time(whole):
    records = RunFolder(whole).records()
    result = json.loads((whole / "result.json").read_text())
    for record in records:
        assert set(record["cpu"]) == set(record["seconds"]) == {"train", "measure"}
        assert all(value >= 0.0 for value in record["cpu"].values())
    spent = sum(sum(record["cpu"].values()) for record in records)
    assert result["cpu_seconds"] == pytest.approx(spent, abs=0.01)
    assert result["cpu_seconds"] > 0.0


def test_time_asleep_counts_as_wall_time_only(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.training.run.METHODS", ("identity",))
    made = Recipe.from_dict({**RECIPE.to_dict(), "epochs": 1, "steps": []})
    run = train(made, tmp_path / "run", accelerator="cpu", on_step=lambda *_: time.sleep(0.05))
    (record,) = run.records
    assert record["cpu"]["train"] < record["seconds"]["train"] - 0.1


def test_the_best_epoch_is_the_one_kept(whole):
    errors = [record["val"]["error"] for record in RunFolder(whole).records()]
    state = checkpoints.newest(whole / "checkpoints")
    assert state["best"]["epoch"] == int(np.argmin(errors))
    with np.load(whole / "predictions.npz") as stored:
        wrong = stored["val_logits"].argmax(1) != stored["val_labels"]
    assert wrong.mean() == pytest.approx(min(errors))


def never_called(*_):
    raise AssertionError("training has begun")


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr("lightning.Trainer.fit", never_called)


@pytest.mark.usefixtures("no_training")
class TestRefusedBeforeTraining:
    def test_a_folder_with_a_run_in_it(self, whole):
        with pytest.raises(FileExistsError, match=r"found a run in it\. Continue .* --resume"):
            train(RECIPE, whole)

    def test_a_folder_with_other_files(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("precious")
        with pytest.raises(FileExistsError, match="found other files in it"):
            train(RECIPE, tmp_path)

    def test_a_file(self, tmp_path):
        (tmp_path / "file").write_text("precious")
        with pytest.raises(FileExistsError, match="found a file"):
            train(RECIPE, tmp_path / "file")

    def test_a_folder_that_cannot_be_made(self):
        with pytest.raises(OSError, match=r"cannot write to /proc/run: .*Choose another folder"):
            train(RECIPE, "/proc/run")

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(_writing, "_locked_folder", refuse)
        with pytest.raises(OSError, match=r"cannot write to .*: Read-only file system\. Choose"):
            train(RECIPE, tmp_path / "run")

    def test_a_full_disk(self, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")(10**9, 10**9, 10**4)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(OSError, match=r"too little space: the run writes up to \d.* MiB"):
            train(RECIPE, tmp_path / "run")

    def test_another_recipe(self, whole):
        other = Recipe.from_dict({**RECIPE.to_dict(), "loss": "ce", "epochs": 5})
        match = r"another recipe: loss, epochs differ \(loss: 'adafocal' there, 'ce' here\)"
        with pytest.raises(ValueError, match=match):
            train(other, whole, resume=True)

    def test_other_data(self, whole, tmp_path):
        folder = shutil.copytree(whole, tmp_path / "run")
        config = json.loads((folder / "config.json").read_text())
        config["data"]["split"] = "another"
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match="started on other data: split differ"):
            train(RECIPE, folder, resume=True)

    def test_nothing_to_resume(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no run to resume"):
            train(RECIPE, tmp_path, resume=True)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", r"config\.json cannot be read: .* Start the run again"),
            ("[1]", r"config\.json cannot be used: it must be a dict; found list"),
            ('{"recipe": 3}', r"config\.json cannot be used: recipe must be a dict"),
            (json.dumps({"recipe": {}, "files": {}, "data": {}}), "cannot be used: .* required"),
            (json.dumps({"recipe": RECIPE.to_dict()}), "must have files; found recipe"),
        ],
    )
    def test_a_damaged_config(self, tmp_path, text, message):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            train(RECIPE, tmp_path, resume=True)

    def test_a_network_of_other_classes(self, tmp_path):
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 7))
        match = r"mlp does not fit digits: .* shape \(2, 10\) .* found \(2, 7\)"
        with pytest.raises(ValueError, match=match):
            train(RECIPE, tmp_path / "run", network=network, accelerator="cpu")
        assert not (tmp_path / "run").exists()

    def test_a_network_that_takes_something_else(self, tmp_path):
        network = torch.nn.Linear(3, 10)
        with pytest.raises(ValueError, match="the network mlp does not fit digits: mat1 and mat2"):
            train(RECIPE, tmp_path / "run", network=network, accelerator="cpu")
        assert not (tmp_path / "run").exists()

    def test_another_network_than_that_of_the_checkpoints(self, whole, tmp_path):
        folder = shutil.copytree(whole, tmp_path / "run")
        (folder / "predictions.npz").unlink()
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        with pytest.raises(ValueError, match=r"the checkpoint does not fit the network: .*\."):
            train(RECIPE, folder, resume=True, network=network, accelerator="cpu")

    def test_what_lightning_refuses(self, tmp_path):
        with pytest.raises(ValueError, match="accelerator='tpu' with 1 devices cannot be used: "):
            train(RECIPE, tmp_path / "run", accelerator="tpu")
        assert not (tmp_path / "run").exists()

    def test_tensorboard_that_is_not_there(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(ImportError, match="--logger tensorboard needs tensorboard"):
            train(RECIPE, tmp_path / "run", logger="tensorboard")
        assert not (tmp_path / "run").exists()


def test_the_room_that_a_run_needs_is_what_it_takes(whole):
    """More than what it leaves, which is two of three checkpoints, and not ten times as much."""
    from calibrant.training.datasets import load
    from calibrant.training.folders import bytes_needed
    from calibrant.training.models import build

    data = load("digits", limit=256)
    network = build("mlp", 10, n_features=64, hidden=(4096,))
    adam = Recipe(data="digits", model="mlp", epochs=1, optimizer="adam")
    weights = sum(t.nbytes for t in network.state_dict().values())
    assert 9 * weights < bytes_needed(adam, data, network) < 9 * weights + 2e6
    left = sum(f.stat().st_size for f in whole.rglob("*") if f.is_file())
    assert left < bytes_needed(RECIPE, data, build("mlp", 10, n_features=64, hidden=(32,)))
