"""No command opens a socket to the outside, and local workers come and go with their command."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from calibrant import TemperatureScaling
from calibrant.files import write_predictions

pytestmark = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="reads the sockets of a process from /proc"
)

ROWS, CLASSES, FILES = 20_000, 10, 6
BUNDLE = 10_000
"""Rows of a bundle in the commands, so that small folders are many tasks."""
PATIENCE = 300
"""Seconds in which a command must end on a loaded machine."""
MARK = "CALIBRANT_TEST_MARK"
LISTENS = "0A"
"""State of a TCP socket that listens, in /proc/net/tcp."""
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
ACCEPTS = 1 << 16
"""Flag of a Unix socket that listens, in /proc/net/unix."""

RUN = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from calibrant import _thresholds
_thresholds.BUNDLE_ROWS = {BUNDLE}
from calibrant.cli import main
print("ready", flush=True)
main(prog_name="calibrant")
"""
"""The command. An interrupt before the first line of output meets the imports of Python.

It does not inherit that interrupts are ignored, as in the background jobs of a shell.
"""

AUDIT = """
import os, sys

def note(event, arguments):
    if event in ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg"):
        family, address = arguments[0].family.name, arguments[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        family, address = event, arguments[0]
    else:
        return
    with open(os.environ["CALIBRANT_TEST_LOG"], "a") as log:
        print(event, family, repr(address), file=log)

sys.addaudithook(note)
"""
"""A sitecustomize that every Python process of a command runs first."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    where = tmp_path_factory.mktemp("data") / "logs"
    where.mkdir()
    for number in range(FILES):
        logits = 3.0 * rng.standard_normal((ROWS, CLASSES), dtype=np.float32)
        labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        write_predictions(where / f"{number}.parquet", logits=logits, labels=labels)
    return where


@pytest.fixture(scope="module")
def calibrator(folder: Path) -> Path:
    file = folder.parent / "cal.json"
    rng = np.random.default_rng(1)
    logits = 3.0 * rng.standard_normal((500, CLASSES))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    TemperatureScaling().fit(logits, labels).save(file)
    return file


@pytest.fixture(scope="module")
def npz(folder: Path) -> Path:
    file = folder.parent / "network.npz"
    rng = np.random.default_rng(2)
    arrays = {}
    for part in ("val", "test"):
        logits = 3.0 * rng.standard_normal((400, 3))
        labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        arrays |= {f"{part}_logits": logits, f"{part}_labels": labels}
    np.savez(file, **arrays)
    return file


class Command:
    """A running command, with all processes that it has started, found by their environment."""

    def __init__(self, *arguments: object, code: str = RUN, log: Path | None = None) -> None:
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, MARK: self.mark}
        if log is not None:
            (log.parent / "sitecustomize.py").write_text(AUDIT)
            paths = (str(log.parent), *filter(None, [os.environ.get("PYTHONPATH")]))
            environment |= {
                "PYTHONPATH": os.pathsep.join(paths),
                "CALIBRANT_TEST_LOG": str(log),
            }
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def pids(self) -> list[int]:
        """The processes of the command that are alive."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for each in Path("/proc").iterdir():
            try:
                if each.name.isdigit() and wanted in (each / "environ").read_bytes().split(b"\0"):
                    found.append(int(each.name))
            except OSError:  # it has ended, or belongs to another user
                continue
        return found

    def workers(self) -> list[int]:
        return [pid for pid in self.pids() if pid != self.process.pid]

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_until(lambda: condition() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.stderr.read()

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.removeprefix("ready\n"), err

    def end(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def one(*arguments: object, **options: object) -> Command:
        started.append(Command(*arguments, **options))
        return started[-1]

    yield one
    for command in started:
        command.end()


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.01)


def links_of(pid: int) -> set[str]:
    """What the open files of a process are."""
    links = set()
    with suppress(OSError):  # it has ended, or belongs to another user
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed by now
                links.add(os.readlink(link))
    return links


def sockets_of(pids: list[int]) -> set[str]:
    """Every socket of these processes that a network or another process can reach."""
    held = set()
    for pid in pids:
        held |= {link[8:-1] for link in links_of(pid) if link.startswith("socket:[")}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in _lines(table):
            address, state, inode = line[1], line[3], line[9]
            inside = address.startswith(LOOPBACK) and state != LISTENS
            if inode in held and not inside:
                found.add(f"{table} {address} state {state}")
    for line in _lines("unix"):
        if line[6] in held and int(line[3], 16) & ACCEPTS:
            found.add(f"unix {' '.join(line[7:])}")
    return found


def _lines(table: str) -> list[list[str]]:
    file = Path("/proc/net") / table
    return [line.split() for line in file.read_text().splitlines()[1:]] if file.exists() else []


def test_the_check_of_sockets_sees_them(tmp_path):
    here = [os.getpid()]
    before = sockets_of(here)
    with socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        assert len(sockets_of(here) - before) == 2


def watched(command: Command) -> tuple[set[str], int]:
    """All sockets seen while a command runs, and the most processes at once."""
    seen, most = set(), 0
    while command.process.poll() is None:
        pids = command.pids()
        most = max(most, len(pids))
        seen |= sockets_of(pids)
        time.sleep(0.1)
    return seen, most


@pytest.fixture
def scaled(folder, calibrator, tmp_path) -> dict[str, tuple[object, ...]]:
    local = ("--scheduler", "local")
    out = tmp_path / "out"
    return {
        "evaluate": ("evaluate", folder, *local),
        "fit": ("fit", folder, "--method", "temperature", "-o", tmp_path / "c.json", *local),
        "apply": ("apply", calibrator, folder, "-o", out, *local),
    }


@pytest.mark.parametrize("name", ["evaluate", "fit", "apply"])
def test_local_workers_open_no_socket(name, scaled, start, tmp_path):
    log = tmp_path / "sockets.log"
    command = start(*scaled[name], log=log)
    seen, most = watched(command)
    status, _, err = command.finish()
    assert (status, err) == (0, "")
    assert most > 1
    assert seen == set()
    assert not log.exists()


OTHERS = {
    "theory": ("theory", "--gamma", 3, "--classes", 10),
    "evaluate": ("evaluate", "{npz}::test"),
    "fit": ("fit", "{npz}::val", "-o", "{tmp}/c.json"),
    "apply": ("apply", "{cal}", "{logs}/0.parquet", "-o", "{tmp}/o.parquet"),
    "compare": ("compare", "{npz}::val", "{npz}::test"),
    "report": ("report", "{npz}::val", "{npz}::test", "-o", "{tmp}/report.html"),
    "export": ("export", "{cal}", "--format", "numpy", "-o", "{tmp}/exported.py"),
    "export-torch": ("export", "{cal}", "--format", "torch", "-o", "{tmp}/exported.pt2"),
    "export-onnx": ("export", "{cal}", "--format", "onnx", "-o", "{tmp}/exported.onnx"),
    "train": (
        *("train", "digits", "--preset", "cpu", "--epochs", 1, "--limit", 128),
        *("--accelerator", "cpu", "-o", "{tmp}/run"),
    ),
    "info": ("info", "{cal}"),
    "watch": ("watch", "{tmp}/day=1", "--time", "day", "--state", "{tmp}/state.json"),
    "train-grid": ("train", "--grid", "{grid}", "-o", "{tmp}/grid"),
}
DEMO = """
import sys
from pathlib import Path
from calibrant.cli.demo import run
methods = ["identity", "temperature", "auto"]
run(Path(sys.argv[1]), epochs=1, losses={"ce": "cross-entropy"}, methods=methods)
"""


EXPORT_AND_WAIT = """
import os, sys, time, calibrant
calibrant.export(calibrant.load(sys.argv[1]), sys.argv[2])
end = time.monotonic() + 15
while time.monotonic() < end:  # its sockets are open for a moment, so it looks all the time
    for file in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink("/proc/self/fd/" + file)
        except OSError:
            continue
        if link.startswith("socket:"):
            print(link)
    time.sleep(0.0005)
"""


def test_onnxruntime_sends_nothing_later(calibrator, start, tmp_path):
    """It sends usage data some seconds after its import, unless it is told not to."""
    command = start(calibrator, tmp_path / "exported.onnx", code=EXPORT_AND_WAIT)
    assert command.finish() == (0, "", "")
    assert (tmp_path / "exported.onnx").exists()


def test_every_command_is_covered():
    from calibrant.cli import main

    assert set(main.commands) == {arguments[0] for arguments in OTHERS.values()} | {"demo"}


@pytest.mark.parametrize("name", [*OTHERS, "demo"])
def test_no_command_opens_a_socket(name, folder, calibrator, npz, start, tmp_path):
    grid = tmp_path / "grid.json"
    settings = {"epochs": 1, "limit": 128}
    grid.write_text(json.dumps({"data": "digits", "preset": "cpu", "settings": settings}))
    (tmp_path / "day=1").mkdir()
    even = {"probs": np.full((200, 2), 0.5), "labels": np.arange(200) % 2}
    write_predictions(tmp_path / "day=1" / "0.parquet", **even)
    log = tmp_path / "sockets.log"
    if name == "demo":
        command = start(tmp_path / "demo", code=DEMO, log=log)
    else:
        places = {"tmp": tmp_path, "npz": npz, "cal": calibrator, "logs": folder, "grid": grid}
        arguments = [str(argument).format(**places) for argument in OTHERS[name]]
        command = start(*arguments, log=log)
    seen, _ = watched(command)
    status, out, err = command.finish()
    assert status == 0, (out, err)
    assert seen == set()
    assert not log.exists(), log.read_text()


def test_a_worker_is_reached_through_the_pipes_of_its_command_alone(folder, start):
    command = start("evaluate", *[folder] * 50, "--scheduler", "local")
    # Between fork and exec, a child still has the input of its parent.
    command.wait_for(lambda: _inputs(command.workers()) - _inputs([command.process.pid]))
    wait_until(lambda: _inputs(command.workers()) <= _pipes(command.process.pid))
    pipes = _pipes(command.process.pid)
    own = {link for link in pipes if link not in _pipes(os.getpid())}  # less its output
    assert own

    def strangers() -> list[int]:
        """Other processes with such a pipe; a process that is just starting has no name yet."""
        found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        holding = [pid for pid in found if own & _pipes(pid)]
        return [pid for pid in holding if pid not in command.pids()]

    wait_until(lambda: not strangers())


def _inputs(pids: list[int]) -> set[str]:
    """What the standard inputs of processes are."""
    found = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            found.add(os.readlink(f"/proc/{pid}/fd/0"))
    return found


def _pipes(pid: int) -> set[str]:
    """Pipes of a process. They have no name by which another process could open them."""
    return {link for link in links_of(pid) if link.startswith("pipe:[")}


@pytest.mark.parametrize("seed", range(12))
def test_an_interrupt_at_any_moment_ends_the_command(seed, folder, start):
    command = start("evaluate", *[folder] * 200, "--scheduler", "local")
    assert command.process.stdout.readline() == "ready\n"
    time.sleep(random.Random(seed).uniform(0.0, 3.0))
    assert command.process.poll() is None
    # The C code of a library may clear the exception of the first interrupt, which happened about
    # once in 500 commands; a user presses Ctrl-C again.
    for _ in range(3):
        os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does
        with suppress(subprocess.TimeoutExpired):
            command.process.wait(timeout=PATIENCE / 10)
            break
    status, out, err = command.finish()
    assert (status, out, err.strip()) == (1, "", "Aborted!")
    wait_until(lambda: not command.pids())


def test_an_interrupt_leaves_no_output(folder, calibrator, start, tmp_path):
    command = start("apply", calibrator, folder, "-o", tmp_path / "out", "--scheduler", "local")
    # Unlike rglob, walk accepts that a folder is renamed meanwhile.
    command.wait_for(
        lambda: any(".parquet" in name for *_, names in os.walk(tmp_path) for name in names)
    )
    os.killpg(command.process.pid, signal.SIGINT)
    status, _, err = command.finish()
    assert (status, err.strip()) == (1, "Aborted!")
    assert list(tmp_path.iterdir()) == []


def test_workers_ignore_interrupts(folder, start):
    """Some tools send them to every process."""
    command = start("evaluate", folder, "--scheduler", "local")
    command.wait_for(lambda: any(map(_ignores_interrupts, command.workers())))
    for worker in filter(_ignores_interrupts, command.workers()):
        os.kill(worker, signal.SIGINT)
    status, _, err = command.finish()
    assert (status, err) == (0, "")


def _ignores_interrupts(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    mask = next(line for line in lines if line.startswith("SigIgn:")).split()[1]
    return bool(int(mask, 16) & 1 << (signal.SIGINT - 1))


@pytest.mark.parametrize("delay", [0.0, 0.5, 1.0])
def test_the_answer_is_the_same_after_a_worker_was_killed(delay, folder, start, monkeypatch):
    from calibrant import scale

    monkeypatch.setattr("calibrant._thresholds.BUNDLE_ROWS", BUNDLE)
    expected = scale.evaluate(folder).to_dict()
    command = start("evaluate", *[folder] * 3, "--scheduler", "local", "--json")
    command.wait_for(command.workers)
    time.sleep(delay)
    killed = command.workers()[:1]
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    status, out, err = command.finish()
    assert (status, err) == (0, "")
    assert killed
    assert json.loads(out)[str(folder)] == json.loads(json.dumps(expected))


def test_workers_end_when_their_command_is_killed(folder, start):
    command = start("evaluate", *[folder] * 50, "--scheduler", "local")
    command.wait_for(command.workers)
    time.sleep(1.0)
    command.process.kill()
    _, _, err = command.finish()
    assert err == ""
    wait_until(lambda: not command.pids())
