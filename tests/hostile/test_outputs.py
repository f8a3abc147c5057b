"""Outputs that cannot be written, or must not be replaced, are refused before the work."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from calibrant import TemperatureScaling, load
from calibrant.calibrators.export import export
from calibrant.files import write_predictions, written_whole
from calibrant.report import write_report
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 300)
LOGITS = RNG.standard_normal((300, 3)) + 2.0 * np.eye(3)[LABELS]
CALIBRATOR = TemperatureScaling().fit(LOGITS, LABELS)
NOBODY = 65534

COMMANDS = {
    "fit": (["fit", "val.npz", "--method", "temperature", "-o"], "out.json"),
    "apply": (["apply", "cal.json", "val.npz", "-o"], "out.npz"),
    "report": (["report", "val.npz", "val.npz", "-o"], "out.html"),
    "export": (["export", "cal.json", "-o"], "out.py"),
    "evaluate": (["evaluate", "val.npz", "--plot"], "out.png"),
    "theory": (["theory", "--plot"], "out.png"),
}
"""Every command that writes one file: its arguments before the output, and a name for that."""
WORK = (
    ("calibrant.calibrators.temperature.methods", "TemperatureScaling.fit"),
    ("calibrant.calibrators.temperature.methods", "TemperatureScaling.predict_proba"),
    ("calibrant.report.page", "summarise"),
    ("calibrant.calibrators.export.numpy_source", "source"),
    ("calibrant.cli.evaluate", "iter_predictions"),
    ("calibrant.cli.theory", "theory_of"),
    ("calibrant.cli.demo.training", "train"),
)
commands = pytest.mark.parametrize("command", COMMANDS)


def never(*_, **__):
    raise AssertionError("the work has begun")


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Files to read, in the current folder."""
    monkeypatch.chdir(tmp_path)
    np.savez("val.npz", logits=LOGITS, labels=LABELS)
    CALIBRATOR.save("cal.json")
    return tmp_path


@pytest.fixture
def no_work(inputs, monkeypatch):
    for module, name in WORK:
        owner, _, attribute = name.rpartition(".")
        place = importlib.import_module(module)  # a command has the name of its module
        monkeypatch.setattr(getattr(place, owner) if owner else place, attribute, never)


def run(command: str, out: object) -> Result:
    return run_calibrant(*COMMANDS[command][0], out)


def refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, (result.output, result.exception)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@commands
@pytest.mark.usefixtures("no_work")
class TestRefusedBeforeTheWork:
    def test_a_folder(self, command):
        out = Path(COMMANDS[command][1])
        out.mkdir()
        refused(run(command, out), f"cannot write to {out}: it is a folder")

    def test_a_pipe(self, command):
        out = COMMANDS[command][1]
        os.mkfifo(out)
        refused(run(command, out), f"cannot write to {out}: it is not a file")

    def test_a_link_that_leads_back(self, command):
        out = Path(COMMANDS[command][1])
        out.symlink_to(out)
        refused(run(command, out), "it is a link to itself")

    def test_a_folder_that_is_missing(self, command):
        refused(run(command, f"missing/{COMMANDS[command][1]}"), "there is no folder missing")

    def test_a_link_into_a_folder_that_is_missing(self, command, tmp_path):
        out = Path(COMMANDS[command][1])
        out.symlink_to(tmp_path / "missing" / out)
        refused(run(command, out), f"there is no folder {tmp_path / 'missing'}")

    def test_a_folder_that_takes_no_files(self, command, closed):
        with as_a_user():
            result = run(command, closed / COMMANDS[command][1])
        refused(result, f"cannot write to {closed}: Permission denied. Choose another folder")


@pytest.fixture
def closed(inputs, monkeypatch):
    """A read-only folder that any user can enter, with the inputs in the current one beside it."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        for file in ("val.npz", "cal.json"):
            (base / file).write_bytes((inputs / file).read_bytes())
        (base / "closed").mkdir()
        (base / "closed").chmod(0o555)
        monkeypatch.chdir(base)
        yield base / "closed"
        (base / "closed").chmod(0o755)


class as_a_user:  # noqa: N801
    """Root may write everywhere, so drop the capability that lets it (CAP_DAC_OVERRIDE).

    Another user might not even read the modules that a command imports.
    """

    def __enter__(self) -> None:
        self.header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
        self.before = (ctypes.c_uint32 * 6)()
        self._call("capget", self.before)
        after = (ctypes.c_uint32 * 6)(*self.before)
        after[0] &= ~(1 << 1)
        self._call("capset", after)

    def __exit__(self, *_: object) -> None:
        self._call("capset", self.before)

    def _call(self, name: str, data: object) -> None:
        if os.geteuid() == 0:
            assert getattr(ctypes.CDLL(None), name)(self.header, data) == 0


@pytest.mark.usefixtures("no_work")
def test_a_demo_in_a_folder_that_takes_no_files(closed):
    for out in (closed, closed / "new"):
        with as_a_user():
            result = run_calibrant("demo", "--out", out)
        refused(result, f"cannot write to {out}: Permission denied. Choose another folder")


@pytest.mark.usefixtures("no_work")
def test_an_apply_into_a_folder_that_takes_no_files(closed):
    write_predictions(closed.parent / "rows.parquet", logits=LOGITS)
    for command in (["rows.parquet"], ["rows.parquet", "--scheduler", "local"]):
        out = str(closed / "out") + (".parquet" if len(command) == 1 else "")
        with as_a_user():
            result = run_calibrant("apply", "cal.json", *command, "-o", out)
        refused(result, f"cannot write to {closed}: Permission denied")


@pytest.mark.parametrize("target", ["out", "nowhere", "val.npz"])
@pytest.mark.usefixtures("no_work")
def test_an_apply_to_a_folder_that_is_a_link(target, inputs):
    write_predictions("rows.parquet", logits=LOGITS)
    Path("out").symlink_to(target)
    arguments = ["apply", "cal.json", "rows.parquet", "--scheduler", "local", "-o", "out"]
    refused(run_calibrant(*arguments), "out exists already")


@pytest.mark.parametrize("out", ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_device_or_a_stream(out, inputs):
    with pytest.raises(FileExistsError, match="a device or a stream, not a file"):
        export(CALIBRATOR, out, format="numpy")
    with pytest.raises(FileExistsError, match="a device or a stream, not a file"):
        CALIBRATOR.save(out)


def test_a_link_to_nowhere_is_written_through(inputs):
    Path("link.json").symlink_to("real.json")
    CALIBRATOR.save("link.json")
    assert Path("link.json").is_symlink()
    assert load("real.json").temperature_ == CALIBRATOR.temperature_


def test_a_name_as_long_as_the_system_takes(inputs):
    out = "x" * 250 + ".json"
    CALIBRATOR.save(out)
    assert load(out).NAME == "temperature"


def save(path):
    CALIBRATOR.save(path)


def write(path):
    write_predictions(path, logits=LOGITS)


def report(path):
    predictions = "val.npz"
    write_report(predictions, predictions, path, methods=["temperature"])


def whole(path):
    with written_whole(path) as temporary:
        temporary.write_text("new")


WRITERS = [(save, "a.json"), (write, "a.npz"), (write, "a.csv"), (write, "a.parquet")]
WRITERS += [(report, "a.html"), (whole, "a.txt")]


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode_when_it_is_replaced(write, name, mode, inputs):
    Path(name).touch()
    Path(name).chmod(mode)
    write(name)
    assert Path(name).stat().st_size > 0
    assert stat.S_IMODE(Path(name).stat().st_mode) == mode


def test_a_new_file_has_the_usual_mode(inputs):
    Path("usual").touch()
    CALIBRATOR.save("new.json")
    assert Path("new.json").stat().st_mode == Path("usual").stat().st_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_keeps_its_owner_when_root_replaces_it(inputs):
    CALIBRATOR.save("a.json")
    os.chown("a.json", NOBODY, NOBODY)
    CALIBRATOR.save("a.json")
    found = os.stat("a.json")
    assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)


@pytest.mark.parametrize("content", ['{"name": "my-app"}', "[1]", "not JSON", "\xff", "[" * 99_999])
@pytest.mark.usefixtures("no_work")
def test_a_fit_does_not_replace_what_is_no_calibrator(content, inputs):
    Path("package.json").write_text(content, encoding="latin-1")
    result = run("fit", "package.json")
    refused(result, "expected package.json to be new, or a calibrator that calibrant wrote")
    assert "--force" in result.stderr
    assert Path("package.json").read_text(encoding="latin-1") == content


def test_a_fit_replaces_it_with_force(inputs):
    Path("package.json").write_text('{"name": "my-app"}')
    fit = [*COMMANDS["fit"][0], "package.json"]
    assert run_calibrant(*fit, "--force").exit_code == 0
    assert load("package.json").NAME == "temperature"
    assert run_calibrant(*fit).exit_code == 0


def test_a_fit_replaces_a_calibrator_of_another_version(inputs):
    newer = json.loads(Path("cal.json").read_text()) | {"version": 99}
    Path("newer.json").write_text(json.dumps(newer))
    assert run("fit", "newer.json").exit_code == 0
    assert load("newer.json").NAME == "temperature"


def test_an_export_refuses_before_it_makes_the_file(inputs, monkeypatch):
    Path("x.py").write_text("print('mine')")
    monkeypatch.setattr("calibrant.calibrators.export.numpy_source.source", never)
    with pytest.raises(FileExistsError, match=r"x\.py .*found another file.*force=True"):
        export(CALIBRATOR, "x.py")
    assert Path("x.py").read_text() == "print('mine')"


def test_an_export_onto_another_name_of_the_calibrator(inputs):
    os.link("cal.json", "hard")
    result = run_calibrant("export", "cal.json", "--format", "numpy", "-o", "hard")
    assert result.exit_code == 2
    assert "is the calibrator itself" in result.output
