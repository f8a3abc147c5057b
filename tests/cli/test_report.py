"""``calibrant report`` on good files and bad ones."""

from __future__ import annotations

import functools
import json
import re
import sys

import numpy as np
import pytest

from calibrant import CALIBRATORS, decide
from calibrant.calibrators.registry import required_params
from calibrant.files import write_predictions
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 400)
LOGITS = 3.0 * (RNG.standard_normal((400, 4)) + 1.5 * np.eye(4)[LABELS])
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
VAL, TEST = slice(0, 200), slice(200, 400)
QUICK = ("--method", "temperature")

run = functools.partial(run_calibrant, "report")


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


def without_tags(page: str) -> str:
    return re.sub(r"<[^>]+>", "", page)


def test_it_says_what_it_found_and_where_the_page_is(parts, tmp_path):
    page = tmp_path / "page.html"
    result = run(*parts, "-o", page, *QUICK, "--title", "Our network")
    assert result.exit_code == 0, result.output
    first, second, last = result.stdout.splitlines()
    assert first.startswith("As it is (identity): Over-confident: ECE ")
    assert second.startswith("Calibrate it with temperature. Log-loss ")
    assert second.endswith("(significant). It keeps every predicted class.")
    assert last == f"Written to {page}. Open it in a browser."
    assert result.stderr == ""  # no progress bar where nobody watches
    text = page.read_text(encoding="utf-8")
    assert "<h1>Our network</h1>" in text
    assert f"calibrant fit {parts[0]} --method temperature -o cal.json" in without_tags(text)


def test_all_methods_by_default(parts, tmp_path):
    page = tmp_path / "page.html"
    assert run(*parts, "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    named = {name for name, cls in CALIBRATORS.items() if not required_params(cls)} - {"identity"}
    assert all(f">{name}</th>" in text for name in named)
    assert ">as it is</th>" in text
    assert f"calibrant fit {parts[0]} -o cal.json" in without_tags(text)
    assert run(*parts, "-o", page, "--gamma", 2, "--method", "focal").exit_code == 0
    assert ">focal</th>" in page.read_text(encoding="utf-8")


def test_a_file_name_that_a_shell_would_take_apart(tmp_path):
    name = tmp_path / "a b;<i>.npz"
    np.savez(name, logits=LOGITS[VAL], labels=LABELS[VAL])
    other = tmp_path / "test.npz"
    np.savez(other, logits=LOGITS[TEST], labels=LABELS[TEST])
    page = tmp_path / "page.html"
    assert run(name, other, "-o", page, *QUICK).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "calibrant fit &#39;" in text
    assert "<i>" not in text


def test_csv_and_parquet(tmp_path):
    write_predictions(tmp_path / "val.csv", probs=PROBS[VAL], labels=LABELS[VAL])
    names = ["cat", "dog", "hen", "cow"]
    ids = np.array([f"img{i}" for i in range(200)])
    write_predictions(
        tmp_path / "test.parquet",
        probs=PROBS[TEST],
        labels=LABELS[TEST],
        class_names=names,
        ids=ids,
    )
    page = tmp_path / "page.html"
    result = run(tmp_path / "val.csv", tmp_path / "test.parquet", "-o", page, *QUICK)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert ">cow</th>" in text
    assert '<th scope="row" class="name">img' in text


def test_a_terminal_sees_how_far_it_is(parts, tmp_path, monkeypatch):
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
    assert run(*parts, "-o", tmp_path / "page.html", *QUICK).exit_code == 0
    shown = "".join(written)
    assert "fitting on net.npz::val" in shown
    assert "100%" in shown


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "is empty"),
        (b"garbage", "cannot be read"),
        ({"logits": LOGITS}, "labels are needed"),
        ({"logits": np.full((2, 4), np.nan), "labels": [0, 1]}, "logits must not contain"),
        ({"probs": LOGITS, "labels": LABELS}, "probs"),
        ({"logits": LOGITS[:, :3], "labels": LABELS % 3}, "the same number of classes"),
        ({"probs": PROBS, "labels": LABELS}, "must be of one kind"),
        ({"confidence": np.ones(3), "correct": np.ones(3, bool)}, "must be of one kind"),
        ({"logits": LOGITS, "labels": LABELS + 9}, "labels"),
    ],
)
def test_a_bad_file_gets_one_clear_line(contents, message, parts, tmp_path):
    bad = tmp_path / "bad.npz"
    if isinstance(contents, bytes):
        bad.write_bytes(contents)
    else:
        np.savez(bad, **contents)
    page = tmp_path / "page.html"
    result = run(bad, parts[1], "-o", page, *QUICK)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""
    assert not page.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "page.pdf"], "a report is written as .html"),
        (["-o", "missing/page.html"], "there is no folder missing"),
        (["-o", "page.html", "--method", "temprature"], "Did you mean 'temperature'?"),
        (["-o", "page.html", "--method", "focal"], "focal needs gamma"),
        (["-o", "page.html", *QUICK, "--gamma", "2"], "--gamma is for methods that need it"),
        (["-o", "page.html", *QUICK, "--bins", "0"], "n_bins"),
        (["-o", "page.html", *QUICK, "--level", "2"], "level"),
        (["-o", "page.html", *QUICK, "--metric", "calibration_slope"], "of two classes; found"),
    ],
)
def test_options_that_cannot_be_used(arguments, message, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*parts, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_missing_file_and_one_that_is_read(parts, file, tmp_path):
    missing = run(tmp_path / "nte.npz", parts[1], "-o", tmp_path / "page.html")
    assert "Did you mean net.npz?" in missing.stderr
    hidden = tmp_path / "val.html"
    hidden.write_text("not predictions")
    assert run(hidden, parts[1], "-o", hidden).exit_code == 2
    assert hidden.read_text() == "not predictions"


def test_help_has_examples():
    text = " ".join(run("--help").stdout.split())
    assert "calibrant report network.npz::val network.npz::test" in text
    assert all(name in text for name in CALIBRATORS)


def test_an_imbalanced_model_and_the_commands_to_calibrate_it(tmp_path):
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=4000) - 4.0
    labels = (rng.random(4000) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    positive = 1.0 / (1.0 + np.exp(-x - 3.0))  # as with class_weight="balanced"
    probs = np.stack([1.0 - positive, positive], axis=1)
    for name, rows in (("val", slice(0, 2000)), ("test", slice(2000, 4000))):
        write_predictions(tmp_path / f"{name}.csv", probs=probs[rows], labels=labels[rows])
    val, page = tmp_path / "val.csv", tmp_path / "page.html"
    result = run(val, tmp_path / "test.csv", "-o", page, "--method", "auto,temperature")
    assert "Prevalence off: the mean P(class 1) is" in result.stdout
    assert "Calibrate it with auto (it selected " in result.stdout
    assert "To keep the predicted class: auto with --keep-class" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert f"calibrant fit {val} --keep-class -o cal.json" in without_tags(text)
    assert "Leave it as it is" not in text


def test_costs_add_a_section(parts, tmp_path):
    costs, page = tmp_path / "costs.csv", tmp_path / "page.html"
    costs.write_text("true,<act>,wait\n3,0,9\n0,5,0\n1,5,0\n2,5,0\n")
    assert run(*parts, "-o", page, *QUICK, "--costs", costs).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "What the decisions cost" in text
    assert "&lt;act&gt;" in text
    expected = decide(
        logits=LOGITS[TEST], labels=LABELS[TEST], costs=[[5, 0], [5, 0], [5, 0], [0, 9]]
    )
    assert f"{expected.realised.value:.4f}" in without_tags(text)
    found = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])["costs"]
    assert found["identity"]["realised_cost"]["value"] == expected.realised.value
    assert found["identity"]["saved"]["value"] == 0.0
    assert set(found) == {"identity", "temperature"}
    assert run(*parts, "-o", page, *QUICK).exit_code == 0
    assert "What the decisions cost" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true,act\na,1\nb,1\nc,1\nd,1\n", "found none for 0, only 'a', 'b', 'c', 'd'"),
        ("true,act\n0,1\n", "a row for each of the 4 classes; found 1 rows"),
        ("true,act\n0,one\n", "costs.csv: costs must be finite numbers; found 'one'"),
    ],
)
def test_costs_that_cannot_be_used(parts, tmp_path, text, message):
    costs = tmp_path / "costs.csv"
    costs.write_text(text)
    result = run(*parts, "-o", tmp_path / "page.html", *QUICK, "--costs", costs)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
