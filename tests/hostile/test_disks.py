"""A disk that is full gets one line, leaves what was there, and leaves nothing half written."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from calibrant import VectorScaling
from calibrant.files import write_predictions
from calibrant.training import checkpoints
from tests.processes import run_calibrant, run_python

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 40, 4000)
LOGITS = RNG.standard_normal((4000, 40)) + 4.0 * np.eye(40)[LABELS]
ROOM = 1024
"""Bytes that a file may have: to the programs, the disk is full."""

COMMANDS = {
    "fit": (["fit", "val.npz", "--method", "vector", "-o"], "out.json"),
    "apply .npz": (["apply", "cal.json", "val.npz", "-o"], "out.npz"),
    "apply .parquet": (["apply", "cal.json", "val.npz", "-o"], "out.parquet"),
    "apply .csv": (["apply", "cal.json", "val.npz", "-o"], "out.csv"),
    "report": (["report", "val.npz", "val.npz", "--method", "temperature", "-o"], "out.html"),
    "export .py": (["export", "cal.json", "--force", "-o"], "out.py"),
    "export .onnx": (["export", "cal.json", "--force", "-o"], "out.onnx"),
    "evaluate": (["evaluate", "val.npz", "--plot"], "out.png"),
    "theory": (["theory", "--plot"], "out.png"),
}


@pytest.fixture(autouse=True)
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("val.npz", logits=LOGITS, labels=LABELS)
    VectorScaling().fit(LOGITS, LABELS).save("cal.json")


@contextmanager
def full_disk():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_gets_one_line(command, tmp_path):
    arguments, out = COMMANDS[command]
    assert run_calibrant(*arguments, out).exit_code == 0  # compiled, and cached
    before = Path(out).read_bytes()
    with full_disk():
        result = run_calibrant(*arguments, out)
    assert result.exit_code == 2, (result.output, result.exception)
    expected = f"Error: cannot write {tmp_path / out}: File too large. Make room, or choose another"
    assert result.stderr == f"{expected} disk\n"
    assert Path(out).read_bytes() == before
    assert sorted(os.listdir()) == sorted({"val.npz", "cal.json", out})


EXPORTS_TO_A_FULL_DISK = """
import resource, sys
from calibrant.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
main(["export", "cal.json", "-o", "out.pt2"])
"""


def test_an_export_for_torch_gets_one_line_too():
    done = run_python("-c", EXPORTS_TO_A_FULL_DISK)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("out.pt2: File too large. Make room, or choose another disk\n")
    assert len(done.stderr.splitlines()) == 1
    assert sorted(os.listdir()) == ["cal.json", "val.npz"]


def test_a_checkpoint_gets_one_line_and_the_one_before_it_stays(tmp_path):
    import torch

    state = {"epoch": 1, "module": torch.zeros(1000), "optimizer": {}, "best": None}
    checkpoints.save(tmp_path / "checkpoints", state)
    message = r"cannot write .*epoch_00002\.pt: File too large\. Make room"
    with full_disk(), pytest.raises(OSError, match=message):
        checkpoints.save(tmp_path / "checkpoints", {**state, "epoch": 2})
    assert os.listdir("checkpoints") == ["epoch_00001.pt"]
    assert checkpoints.newest(tmp_path / "checkpoints")["epoch"] == 1


def test_a_tiny_disk(tmp_path):
    """The same on a real disk that is full."""
    Path("disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path / "disk")]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this user cannot mount a disk")
    try:
        for name in ("a.npz", "a.parquet", "a.csv"):
            with pytest.raises(OSError, match=r"No space left on device\. Make room"):
                write_predictions(f"disk/{name}", logits=LOGITS)
            assert os.listdir("disk") == []
    finally:
        subprocess.run(["umount", str(tmp_path / "disk")], check=True)
