"""Without an optional package a command names the extra at once: before any work or file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.files import write_predictions
from tests.processes import run_python

OPTIONAL = (
    "jinja2",
    "markupsafe",
    "matplotlib",
    "pyarrow",
    "torch",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "sklearn",
    "lightning",
    "dask",
    "distributed",
    "PIL",
    "tensorboard",
)
WITHOUT = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {missing!r}:
            return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
COMMAND = "from calibrant.cli import main\nmain(prog_name='calibrant')"


def run(
    missing: tuple[str, ...], folder: Path, *arguments: str, code: str = COMMAND
) -> subprocess.CompletedProcess[str]:
    """A process that does not find the packages ``missing``."""
    return run_python("-c", WITHOUT.format(missing=missing) + code, *arguments, cwd=folder)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    logits = rng.normal(size=(60, 3)) + 2.0 * np.eye(3)[labels]
    (folder / "data").mkdir()
    for name in ("a.npz", "a.parquet", "a.csv", "data/1.parquet"):
        write_predictions(folder / name, logits=logits, labels=labels)
    calibrant.Identity().fit(logits, labels).save(folder / "cal.json")
    return folder


DEMO = ("demo", "--out", "demo")
TRAIN = ("train", "digits", "--preset", "cpu", "-o", "run")
ONNX = ("export", "cal.json", "--format", "onnx")
CASES = [
    ("jinja2", "report", ("report", "a.npz", "a.npz", "-o", "page.html")),
    ("markupsafe", "report", ("report", "a.npz", "a.npz", "-o", "page.html")),
    ("matplotlib", "plots", ("evaluate", "a.npz", "--plot", "picture.png")),
    ("matplotlib", "plots", ("theory", "--plot", "picture.png")),
    ("torch", "onnx", ONNX),
    ("onnx", "onnx", ONNX),
    ("onnxscript", "onnx", ONNX),
    ("onnxruntime", "onnx", ONNX),
    ("torch", "torch", ("export", "cal.json", "--format", "torch")),
    *((package, "lightning,sklearn,report", DEMO) for package in ("torch", "lightning", "sklearn")),
    *((package, "lightning,sklearn,report", DEMO) for package in ("jinja2", "markupsafe")),
    ("torch", "lightning", TRAIN),
    ("lightning", "lightning", TRAIN),
    ("sklearn", "sklearn", TRAIN),
    ("tensorboard", "tensorboard", (*TRAIN, "--logger", "tensorboard")),
    ("pyarrow", "files", ("evaluate", "a.parquet")),
    ("pyarrow", "files", ("fit", "data", "-o", "new.json")),
    ("pyarrow", "files", ("compare", "a.npz", "a.parquet")),
    ("pyarrow", "files", ("report", "a.npz", "a.parquet", "-o", "page.html")),
    ("pyarrow", "files", ("apply", "cal.json", "a.npz", "-o", "out.parquet")),
    ("pyarrow", "files", ("apply", "cal.json", "a.csv", "-o", "out.parquet")),
    *(
        (package, "scale", (*command, "--scheduler", "tcp://127.0.0.1:9"))
        for package in ("dask", "distributed")
        for command in (
            ("evaluate", "data"),
            ("fit", "data", "--method", "temperature", "-o", "new.json"),
            ("apply", "cal.json", "data", "-o", "out"),
        )
    ),
]


COMMANDS = """
import json
from click.testing import CliRunner
from calibrant.cli import main

done = [CliRunner().invoke(main, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stderr] for each in done]))
"""


@pytest.mark.parametrize(
    ("package", "has_output"),
    sorted({(package, "-o" in arguments) for package, _, arguments in CASES}),
)
def test_the_extra_is_named_before_any_work(inputs: Path, package: str, has_output: bool) -> None:
    cases = [case[1:] for case in CASES if case[0] == package and ("-o" in case[2]) == has_output]
    before = {path: path.stat().st_mtime_ns for path in inputs.rglob("*")}
    if not has_output:  # outputs are tried out first
        before[inputs] = inputs.stat().st_mtime_ns  # changes with what was there for a moment
    # Without Numba, work that has begun ends with another message.
    commands = json.dumps([arguments for _, arguments in cases])
    done = run((package, "numba"), inputs, commands, code=COMMANDS)
    assert done.returncode == 0, done.stderr
    for (extra, arguments), (status, said) in zip(cases, json.loads(done.stdout), strict=True):
        assert status == 2, (arguments, said)
        (line,) = said.splitlines()
        assert line.startswith("Error: ")
        assert package in line
        assert f"pip install 'calibrant[{extra}]'" in line, arguments
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert set(inputs.rglob("*")) | {inputs} == set(before) | {inputs}


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "a.npz"),
        ("evaluate", "a.csv"),
        ("fit", "a.npz", "--method", "temperature", "-o", "new.json"),
        ("fit", "a.csv", "--method", "temperature", "-o", "new.json"),
        ("compare", "a.npz", "a.npz", "--method", "temperature"),
        ("apply", "cal.json", "a.npz", "-o", "out.npz"),
        ("apply", "cal.json", "a.csv", "-o", "out.csv"),
        ("export", "cal.json", "--format", "numpy"),
        ("theory",),
        ("train", "--help"),
    ],
)
def test_a_core_installation_does_the_core_work(
    inputs: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    for name in ("a.npz", "a.csv", "cal.json"):
        (tmp_path / name).write_bytes((inputs / name).read_bytes())
    done = run(OPTIONAL, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_scikit_learn_wrapper_names_its_extra(tmp_path: Path) -> None:
    done = run(("sklearn",), tmp_path, code="from calibrant import CalibratedClassifier")
    assert "CalibratedClassifier needs sklearn" in done.stderr
    assert "pip install 'calibrant[sklearn]'" in done.stderr
