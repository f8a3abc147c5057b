"""``calibrant compare`` on good files and bad ones."""

from __future__ import annotations

import functools
import json
import sys
from unittest.mock import patch

import numpy as np
import pytest

from calibrant import CALIBRATORS, TemperatureScaling, evaluate
from calibrant.calibrators.registry import required_params
from calibrant.files import write_predictions
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 5, 400)
LOGITS = 3.0 * (RNG.standard_normal((400, 5)) + 1.5 * np.eye(5)[LABELS])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
VAL, TEST = slice(0, 200), slice(200, 400)

run = functools.partial(run_calibrant, "compare")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(
        path,
        val_logits=LOGITS[VAL],
        val_labels=LABELS[VAL],
        test_logits=LOGITS[TEST],
        test_labels=LABELS[TEST],
    )
    return path


@pytest.fixture
def parts(file):
    return f"{file}::val", f"{file}::test"


def test_a_table_and_what_to_do_next(parts):
    result = run(*parts, "--method", "identity,temperature")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Fitted on 200 samples, measured on 200; 5 classes"
    assert [line.split()[0] for line in lines[4:6]] == ["temperature", "identity"]
    assert f"calibrant fit {parts[0]} --method NAME" in lines[-1]
    assert result.stderr == ""  # no progress bar where nobody watches
    assert max(map(len, lines[:-1])) <= 100


def test_the_figures_are_those_of_evaluate(parts):
    data = json.loads(run(*parts, "--method", "identity", "--json").stdout)
    temperature = TemperatureScaling().fit(LOGITS[VAL], LABELS[VAL])
    metrics = ["ada_ece", "ece", "nll", "brier", "error_rate"]
    for name, logits in (
        ("identity", LOGITS[TEST]),
        ("temperature", temperature.predict_log_proba(LOGITS[TEST])),
    ):
        expected = evaluate(logits=logits, labels=LABELS[TEST], metrics=metrics).to_dict()
        found = data["methods"][name]
        for metric in metrics:
            assert found["metrics"][metric] == pytest.approx(expected["metrics"][metric])
        for key, value in expected["noise_floor"]["ada_ece"].items():
            assert found["noise_floor"]["ada_ece"][key] == pytest.approx(value)


def test_every_method_that_needs_nothing_is_compared(parts):
    # Whatever else is registered: two that are quick, one that needs gamma, and one that fails.
    class Refusing(TemperatureScaling):
        NAME = "refusing"

        def _fit(self, data):
            raise ValueError("found 5 classes. Use another")

    quick = {name: CALIBRATORS[name] for name in ("identity", "temperature", "focal")}
    with patch.dict(CALIBRATORS, {**quick, "refusing": Refusing}, clear=True):
        free = json.loads(run(*parts, "--json").stdout)["methods"]
        assert set(free) == {"identity", "temperature", "refusing"}
        assert free["refusing"]["failure"] == "found 5 classes. Use another"
        assert free["refusing"]["metrics"] is None
        with_gamma = json.loads(run(*parts, "--json", "--gamma", "2").stdout)["methods"]
        assert set(with_gamma) == {*free, "focal"}
        assert with_gamma["focal"]["params"] == {"gamma": 2.0}
        text = run(*parts).stdout
        assert "cannot be used here" in text
        assert "[1] found 5 classes. Use another" in text


def test_the_methods_are_named_in_any_way(parts):
    for arguments in (
        ["--methods", "identity, temperature"],
        ["--method", "identity", "--method", "temperature"],
        ["--method", "identity"],
    ):
        found = json.loads(run(*parts, *arguments, "--json").stdout)["methods"]
        assert set(found) == {"identity", "temperature"}


def test_hyphens_and_underscores_are_the_same(parts):
    options = ["--method", "top_rest", "--against", "top_rest", "--sort", "ada-ece", "--json"]
    data = json.loads(run(*parts, *options).stdout)
    assert (data["against"], data["sort"]) == ("top-rest", "ada_ece")
    assert list(data["methods"]) == ["top-rest"]


def test_sorting_and_the_reference_can_be_chosen(parts):
    options = ["--method", "temperature", "--against", "identity", "--sort", "nll", "--bins", "10"]
    text = run(*parts, *options).stdout
    assert text.splitlines()[2].split()[1:3] == ["nll", "95%"]
    assert "worse than identity" in text
    data = json.loads(run(*parts, *options, "--level", "0.9", "--seed", "3", "--json").stdout)
    assert (data["against"], data["sort"], data["n_bins"]) == ("identity", "nll", 10)
    assert (data["level"], data["seed"]) == (0.9, 3)
    assert data["methods"]["temperature"]["differences"]["nll"]["verdict"] == "better"


def test_probabilities_and_other_formats(tmp_path):
    write_predictions(tmp_path / "val.csv", probs=PROBS[VAL], labels=LABELS[VAL])
    write_predictions(tmp_path / "test.parquet", probs=PROBS[TEST], labels=LABELS[TEST])
    result = run(tmp_path / "val.csv", tmp_path / "test.parquet", "--method", "identity", "--json")
    nll = json.loads(result.stdout)["methods"]["identity"]["metrics"]["nll"]["value"]
    expected = -np.log(PROBS[TEST][np.arange(200), LABELS[TEST]]).mean()
    assert nll == pytest.approx(expected, rel=1e-5)


def test_what_speaks_against_a_method_is_a_footnote(tmp_path, parts):
    # Warnings are errors in these tests, so one that got out would fail here.
    np.savez(tmp_path / "few.npz", logits=LOGITS[:30], labels=LABELS[:30])
    result = run(tmp_path / "few.npz", parts[1], "--method", "identity")
    assert result.output.count("30 samples only") == 1
    assert "[1] fitted on 30 samples only" in result.stdout


def test_a_terminal_sees_how_far_it_is(parts, monkeypatch):
    written: list[str] = []

    class Terminal:
        def isatty(self):
            return True

        def write(self, text):
            written.append(text)

        def flush(self):
            pass

    class System:
        stderr = Terminal()

    monkeypatch.setattr(sys.modules["calibrant.cli.progress"], "sys", System)
    assert run(*parts, "--method", "identity").exit_code == 0
    shown = "".join(written)
    assert "fitting on net.npz::val" in shown
    assert "100%" in shown


def test_help_lists_the_methods_and_examples():
    text = " ".join(run("--help").stdout.split())
    assert all(name in text for name in CALIBRATORS)
    assert "calibrant compare network.npz::val network.npz::test" in text


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": LOGITS}, "bad.npz: labels are needed"),
        ({"logits": np.full((2, 5), np.nan), "labels": [0, 1]}, "bad.npz: logits must not contain"),
        ({"logits": LOGITS, "labels": LABELS + 9}, "bad.npz: labels must be between 0 and 4"),
        ({"logits": LOGITS[:, :4], "labels": LABELS % 4}, "the same number of classes; found"),
        ({"probs": PROBS, "labels": LABELS}, "must be of one kind; found"),
        ({"confidence": [0.5], "correct": [True]}, "must be of one kind; found"),
        ({"other": LOGITS}, "neither logits nor probs"),
    ],
)
def test_a_bad_file_gets_one_line_on_either_side(tmp_path, parts, arrays, message):
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    for files in ((path, parts[1]), (parts[0], path)):
        result = run(*files)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert result.stdout == ""


def test_a_true_class_that_cannot_be_is_refused_in_val_and_counted_in_test(tmp_path, parts):
    logits = LOGITS[VAL].copy()
    logits[3, LABELS[3]] = -np.inf
    np.savez(tmp_path / "masked.npz", logits=logits, labels=LABELS[VAL])
    result = run(tmp_path / "masked.npz", parts[1], "--method", "identity")
    assert result.exit_code == 2
    assert "masked.npz: the true class must be possible" in result.stderr
    result = run(parts[0], tmp_path / "masked.npz", "--method", "identity", "--json")
    entry = json.loads(result.stdout, parse_constant=pytest.fail)["methods"]["identity"]
    assert entry["n_impossible"] == 1
    assert entry["metrics"]["nll"]["value"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "temprature"], "Did you mean 'temperature'?"),
        (["--against", "temprature"], "--against must be one of auto, "),
        (["--method", "identity,,focal"], "found ''"),
        (["--method", "focal"], "focal needs gamma"),
        (["--method", "identity", "--gamma", "2"], "Leave it out"),
        (["--gamma", "nan"], "gamma must be finite"),
        (["--against", "x"], "found 'x'"),
        (["--against", "focal"], "focal needs gamma"),
        (["--sort", "acc"], "--sort must be one of"),
        (["--level", "95"], "For 95% pass 0.95"),
        (["--bins", "0"], "n_bins must be from 1"),
        (["--seed", "-1"], "seed must be from 0"),
    ],
)
def test_a_bad_option_gets_one_line(parts, options, message):
    result = run(*parts, *options)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize("name", [n for n, cls in CALIBRATORS.items() if not required_params(cls)])
def test_every_registered_method_on_a_real_network(shared_data, name):
    net = shared_data / "logits" / "c10_resnet20.npz"
    result = run(f"{net}::val", f"{net}::test", "--method", name, "--json")
    assert result.exit_code == 0, result.output
    entry = json.loads(result.stdout)["methods"][name]
    if entry["failure"] is None:
        assert entry["metrics"]["accuracy"]["value"] > 0.8  # ties of histogram binning cost some
        assert entry["metrics"]["ada_ece"]["value"] < 0.1
    else:
        assert "classes" in entry["failure"]  # methods for two classes say so
