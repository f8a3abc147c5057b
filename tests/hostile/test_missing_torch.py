"""What needs torch says which extra to install, where torch is missing."""

from __future__ import annotations

import pytest

from tests.processes import run_python

WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
FITTED = """
import numpy, calibrant
labels = numpy.arange(300) % 3
fitted = calibrant.Identity().fit(3.0 * numpy.eye(3)[labels], labels)
"""


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import calibrant.losses", "torch"),
        ("from calibrant.losses import LOSSES", "torch"),
        ("from calibrant.losses.focal import FocalLoss", "torch"),
        ("from calibrant import calibrate", "torch"),
        ("import calibrant.integrations.torchmetrics", "torchmetrics"),
        ("import calibrant.integrations.lightning", "lightning"),
        ("import calibrant.integrations.hugging_face", "torch"),
        ("import calibrant.training.models", "lightning"),
        ("import calibrant.training.datasets", "lightning"),
        ("import calibrant.metrics.torch", "torch"),
        ("import calibrant.calibrators.torch_layer", "torch"),
        ("import calibrant.training", "lightning"),
        ("from calibrant.training.grid import run_grid", "lightning"),
        (f"{FITTED}\nfitted.as_module()", "torch"),
        (
            f"{FITTED}\nfrom calibrant.calibrators.export import export\nexport(fitted, 'out.pt2')",
            "torch",
        ),
        (
            f"{FITTED}\nfrom calibrant.calibrators.export import export\n"
            "export(fitted, 'out.onnx')",
            "onnx",
        ),
    ],
)
def test_the_extra_is_named(code, extra, tmp_path):
    done = run_python("-c", WITHOUT_TORCH + code, cwd=tmp_path)
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("calibrant.errors.MissingExtraError: ")
    assert "needs torch" in said
    assert "found no torch" in said
    assert said.endswith(f"Run: pip install 'calibrant[{extra}]'")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_says_it_in_one_line(tmp_path):
    cal = tmp_path / "cal.json"
    code = f"{WITHOUT_TORCH}{FITTED}fitted.save({str(cal)!r})\nfrom calibrant.cli import main\n"
    for arguments in (["export", str(cal), "--format", "torch"], ["train", "digits", "-o", "out"]):
        done = run_python("-c", f"{code}main({arguments!r})", cwd=tmp_path)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "found no torch. Run: pip install 'calibrant[" in line
    assert [path.name for path in tmp_path.iterdir()] == ["cal.json"]
