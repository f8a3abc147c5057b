"""``calibrant export`` on good files and bad ones."""

from __future__ import annotations

import functools
import runpy
import sys

import numpy as np
import onnxruntime
import pytest
import torch

from calibrant import FocalCalibration
from calibrant.calibrators.export import FORMATS
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LOGITS = 2.0 * RNG.standard_normal((400, 5))
CALIBRATOR = FocalCalibration(gamma=2.0).fit(LOGITS, RNG.integers(0, 5, 400))

run = functools.partial(run_calibrant, "export")
every_format = pytest.mark.parametrize(
    "kind", ["numpy", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("onnx", "torch"))]
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cal.v2.json"
    CALIBRATOR.save(path)
    return path


def test_a_python_file_beside_the_calibrator(file, monkeypatch):
    result = run(file, "--format", "numpy")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        f"{file.with_suffix('.py')}: focal for 5 classes. Use it with\n"
        '  runpy.run_path("cal.v2.py")["predict_proba"](logits)\n'
    )
    monkeypatch.chdir(file.parent)
    found = runpy.run_path("cal.v2.py")["predict_proba"](LOGITS)
    np.testing.assert_allclose(found, CALIBRATOR.predict_proba(LOGITS), rtol=0, atol=1e-12)


def test_a_python_file_with_the_name_of_a_module(file, monkeypatch):
    result = run(file, "-o", file.parent / "exported_for_a_test.py")
    assert result.stdout.endswith("  from exported_for_a_test import predict_proba\n")
    monkeypatch.syspath_prepend(file.parent)
    from exported_for_a_test import predict_proba

    assert predict_proba(LOGITS).shape == LOGITS.shape


@pytest.mark.slow
def test_the_ending_of_out_tells_the_format(file):
    out = file.parent / "there.pt2"
    result = run(file, "-o", out)
    assert result.exit_code == 0, result.output
    assert 'torch.export.load("there.pt2").module()(logits)' in result.stdout
    found = torch.export.load(out).module()(torch.from_numpy(LOGITS).float())
    expected = CALIBRATOR.predict_proba(LOGITS.astype("float32"))
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_onnx_model_of_either_type(file, capfd):
    result = run(file, "--format", "onnx", "--dtype", "float64")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert capfd.readouterr() == ("", "")
    session = onnxruntime.InferenceSession(file.with_suffix(".onnx"))
    (found,) = session.run(["probs"], {"logits": LOGITS})
    np.testing.assert_allclose(found, CALIBRATOR.predict_proba(LOGITS), rtol=0, atol=1e-12)


@every_format
def test_an_earlier_export_is_replaced(kind, file):
    out = file.with_suffix(FORMATS[kind].extension)
    assert run(file, "--format", kind).exit_code == 0
    before = out.stat().st_ino
    result = run(file, "--format", kind)
    assert result.exit_code == 0, result.output
    assert out.stat().st_ino != before
    assert sorted(path.name for path in file.parent.iterdir()) == sorted([file.name, out.name])


@every_format
def test_another_file_is_replaced_with_force_only(kind, file):
    out = file.with_suffix(FORMATS[kind].extension)
    out.write_text("import calibrant  # somebody's own work")
    result = run(file, "--format", kind)
    assert result.exit_code == 2
    assert f"expected {out} to be new, or an export that calibrant wrote" in result.output
    assert "--force" in result.output
    assert out.read_text() == "import calibrant  # somebody's own work"
    assert run(file, "--format", kind, "--force").exit_code == 0
    assert FORMATS[kind].is_ours(out)


def test_an_empty_file_is_replaced(file):
    file.with_suffix(".py").touch()
    assert run(file, "--format", "numpy").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a format is needed: add --format numpy, onnx, torch, or -o"),
        (["--format", "pickle"], "--format must be one of numpy, onnx, torch; found 'pickle'"),
        (["-o", "out.txt"], "expected the extension .py, .onnx, .pt2; found '.txt'"),
        (["-o", "missing/out.py"], "there is no folder"),
        (["--format", "numpy", "--dtype", "float32"], "which takes logits of any dtype"),
        (["--format", "torch", "-o", "cal.v2.json"], "is the calibrator itself"),
        (["--format", "onnx", "-o", "x.py"], "onnx is written to .onnx files; found 'x.py'"),
    ],
)
def test_bad_arguments_get_one_line_and_status_two(arguments, message, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    result = run("cal.v2.json", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert [path.name for path in file.parent.iterdir()] == ["cal.v2.json"]


@pytest.mark.parametrize("content", ["", "{", '{"format": "other"}', "\0\xff"])
def test_what_is_not_a_calibrator_is_refused(content, tmp_path):
    (tmp_path / "cal.json").write_text(content, encoding="latin-1")
    result = run(tmp_path / "cal.json", "--format", "numpy")
    assert result.exit_code == 2
    assert "cannot be read as a calibrator" in result.output
    assert len(result.output.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cal.json"]


def test_a_missing_file_or_package_is_named(file, monkeypatch):
    for path, message in (
        (file.parent / "none.json", "none.json. Pass the path of a .json file written by"),
        (file / "inside.json", "there is no file"),
        (file.parent, "is a folder. Pass the path of a .json file written by"),
    ):
        result = run(path, "--format", "numpy")
        assert (result.exit_code, message in result.output) == (2, True), result.output
        assert len(result.output.splitlines()) == 1
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = run(file, "--format", "onnx")
    assert result.exit_code == 2
    assert "pip install 'calibrant[onnx]'" in result.output


def test_the_help_teaches():
    result = run("--help")
    assert result.exit_code == 0
    assert "calibrant export cal.json --format numpy" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
