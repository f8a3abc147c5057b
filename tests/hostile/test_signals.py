"""A command that is stopped leaves nothing; what a kill leaves is removed when nobody owns it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from calibrant import TemperatureScaling, _writing
from calibrant.cli import main
from calibrant.files import read_predictions, written_whole
from tests.processes import run_calibrant, run_python

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 300)
LOGITS = RNG.standard_normal((300, 3)) + 2.0 * np.eye(3)[LABELS]
APPLY = ["apply", "cal.json", "val.npz", "-o", "out.npz"]
PATIENCE = 600

APPLIES_SLOWLY = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
import calibrant.cli
from calibrant.calibrators.temperature.methods import TemperatureScaling

at_once = TemperatureScaling.predict_proba

def slowly(self, *given, **named):
    print("begun", flush=True)
    sys.stdin.readline()
    return at_once(self, *given, **named)

TemperatureScaling.predict_proba = slowly
calibrant.cli.main(sys.argv[1:])
"""
TRAINS_SLOWLY = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import calibrant.cli
from calibrant.training.run import _Writer

at_once = _Writer.__call__

def slowly(self, record):
    at_once(self, record)
    print("begun", flush=True)
    time.sleep(600)

_Writer.__call__ = slowly
calibrant.cli.main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("val.npz", logits=LOGITS, labels=LABELS)
    TemperatureScaling().fit(LOGITS, LABELS).save("cal.json")


@contextlib.contextmanager
def begun(script: str, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is in the middle of its work."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n", process.stderr.read()
            yield process
        finally:
            process.kill()


def private() -> list[str]:
    """The hidden folders in the current one."""
    return [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_is_stopped_leaves_nothing(name):
    Path("out.npz").write_text("before")
    number = getattr(signal, name)
    with begun(APPLIES_SLOWLY, APPLY) as process:
        assert len(private()) == 1
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
        assert process.stderr.read() == ""
    assert private() == []
    assert Path("out.npz").read_text() == "before"


def test_a_training_that_is_stopped_can_go_on():
    arguments = ["train", "digits", "--epochs", "2", "--limit", "100", "-o", "run"]
    with begun(TRAINS_SLOWLY, arguments) as process:
        process.terminate()
        assert process.wait(PATIENCE) == 143
    assert list(Path("run").rglob(".*")) == []
    result = run_calibrant("train", "--resume", "run")
    assert result.exit_code == 0, result.output


def test_a_signal_that_is_ignored_stays_ignored():
    ignoring = APPLIES_SLOWLY.replace("SIG_DFL", "SIG_IGN")
    with begun(ignoring, APPLY) as process:
        process.send_signal(signal.SIGHUP)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0


def test_the_library_handles_no_signals():
    code = "import signal, calibrant, calibrant.cli, calibrant.training, calibrant.scale\n"
    code += "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    run_python("-c", code, check=True)
    before = signal.getsignal(signal.SIGTERM)
    assert run_calibrant("theory").exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_works_outside_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(main(["theory"], standalone_mode=False))
    )
    thread.start()
    thread.join()
    assert results == [None]


def test_what_a_kill_leaves_is_removed_by_the_next_command():
    with begun(APPLIES_SLOWLY, APPLY) as process:
        process.kill()
        process.wait(PATIENCE)
        assert len(private()) == 1
    run_python("-m", "calibrant", *APPLY, check=True)
    assert private() == []


def test_what_a_living_process_writes_stays():
    with begun(APPLIES_SLOWLY, APPLY) as process:
        (of_the_other,) = private()
        _writing.sweep(Path())
        assert run_calibrant(*APPLY[:-1], "other.npz").exit_code == 0
        assert private() == [of_the_other]
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
    assert private() == []
    assert len(read_predictions("out.npz")) == len(read_predictions("other.npz")) == 300


def test_what_this_process_writes_stays():
    with written_whole("a.txt") as outer:
        outer.write_text("outer")
        _writing.sweep(Path())
        with written_whole("a.txt") as inner:
            inner.write_text("inner")
    assert Path("a.txt").read_text() == "outer"
    assert private() == []


def left(name: str, *, machine: str = _writing._MACHINE) -> Path:
    """A folder with the name of one that a dead process has left."""
    return Path(f".calibrant-{machine}-{name}.tmp")


STALE = f"4711-{'a' * 16}"


def test_a_stale_folder_is_removed_with_what_is_in_it():
    (left(STALE) / "folder" / "inside").mkdir(parents=True)
    (left(STALE) / "folder" / "file").write_text("half")
    left(f"1-{'0' * 16}").mkdir()
    _writing.sweep(Path())
    assert private() == []


def look_alike_file():
    left(STALE).write_text("mine")


def look_alike_link():
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("mine")
    left(STALE).symlink_to("mine")


def folder_of_another_machine():
    left(STALE, machine="0" * 8).mkdir()


def folders_of_others():
    for name in (".out.npz.k3j2h1x0", ".calibrant", ".calibrant-2024-projects", f"x{left(STALE)}"):
        Path(name).mkdir()
        Path(name, "thesis.tex").write_text("mine")


def folder_of_another_user():
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    left(STALE).mkdir()
    os.chown(left(STALE), 65534, 65534)


FOREIGN = (
    look_alike_file,
    look_alike_link,
    folder_of_another_machine,
    folders_of_others,
    folder_of_another_user,
)


@pytest.mark.parametrize("make", FOREIGN)
def test_what_calibrant_did_not_leave_stays(make):
    make()
    before = sorted(Path().rglob("*"))
    _writing.sweep(Path())
    with written_whole("new.txt") as temporary:
        temporary.write_text("new")
    assert sorted({*Path().rglob("*")} - {Path("new.txt")}) == before


WRITES_AND_SWEEPS = """
import sys
from pathlib import Path
from calibrant import _writing

for number in range(150):
    _writing.sweep(Path())
    content = f"{sys.argv[1]} {number} ".encode() * 100
    _writing.write_whole("shared.txt", content)
    _writing.write_whole(f"own-{sys.argv[1]}.txt", content)
    assert Path(f"own-{sys.argv[1]}.txt").read_bytes() == content
    assert len(set(Path("shared.txt").read_text().split(" ")[0::2])) == 2  # a name, and the end
"""


def test_many_writers_and_sweepers_do_not_disturb_each_other():
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITES_AND_SWEEPS, str(number)])
        for number in range(4)
    ]
    assert [writer.wait(PATIENCE) for writer in writers] == [0] * 4
    assert private() == []


def test_a_sweeper_that_comes_before_the_lock_makes_the_owner_try_again(monkeypatch):
    mkdir, made = Path.mkdir, []

    def swept_at_once(path, *given, **named):
        mkdir(path, *given, **named)
        made.append(path)
        if len(made) == 1:
            _writing.sweep(path.parent)

    monkeypatch.setattr(Path, "mkdir", swept_at_once)
    with written_whole("a.txt") as temporary:
        temporary.write_text("whole")
    assert len(made) == 2
    assert Path("a.txt").read_text() == "whole"
