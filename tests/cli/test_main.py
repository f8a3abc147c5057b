"""The command as a user meets it."""

from __future__ import annotations

import json

import pytest

from tests.processes import run_calibrant, run_python


def test_theory_prints_what_the_library_computes():
    text = run_calibrant("theory", "--gamma", "3", "--classes", "3").output
    for fact in ("0.085461", "0.252584", "T = 0.2500", "T = 0.3563", "gamma = 4.8506"):
        assert fact in text


def test_theory_as_json():
    facts = json.loads(
        run_calibrant(
            "theory", "--gamma", "1", "--classes", "1000", "--posterior", "0.1", "--json"
        ).output
    )
    assert facts["over_confident_up_to"] == pytest.approx(0.135335, abs=1e-6)
    assert facts["closest_temperature"] is None
    (row,) = facts["optimum"]
    assert row["output"] > row["posterior"] == 0.1
    assert row["output_is"] == "over-confident"


def test_theory_of_cross_entropy():
    facts = json.loads(run_calibrant("theory", "--gamma", "0", "--json").output)
    assert facts["under_confident_from"] is None
    assert facts["closest_temperature"] == pytest.approx(1.0, abs=1e-5)
    assert {row["output_is"] for row in facts["optimum"]} == {"exact"}
    assert "cross-entropy" in run_calibrant("theory", "--gamma", "0").output


@pytest.mark.parametrize("ending", ["png", pytest.param("svg", marks=pytest.mark.slow)])
def test_theory_draws(tmp_path, ending):
    target = tmp_path / f"theory.{ending}"
    result = run_calibrant("theory", "--classes", "5", "--plot", str(target))
    assert result.exit_code == 0, result.output
    start = target.read_bytes()[:8]
    assert start.startswith(b"\x89PNG" if ending == "png" else b"<?xml")
    assert [p.name for p in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gamma", "-1"], "gamma must be at least 0"),
        (["--gamma", "nan"], "gamma must be finite"),
        (["--gamma", "x"], "not a valid float"),
        (["--classes", "1"], "n_classes must be from 2"),
        (["--classes", "3", "--posterior", "0.2"], "at least 1/3"),
        (["--posterior", "1.2"], "between 0 and 1"),
        (["--threshold", "0.6"], "p0 must be between 1e-300 and 0.5"),
        (["--plot", "missing/folder/t.png"], "there is no folder"),
        (["--plot", "t.docx"], "must end in .png"),
    ],
)
def test_bad_input_gets_one_line_and_status_two(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_calibrant("theory", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_runs_as_a_module():
    done = run_python("-m", "calibrant", "--version", check=True)
    assert done.stdout.startswith("calibrant, version")
