"""The demo as a user meets it, with networks that learn for two epochs only."""

from __future__ import annotations

import html
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import calibrant
from calibrant.cli import main
from calibrant.cli.demo import NEEDED, TRAINED_WITH, run, training as loop
from calibrant.files import read_predictions
from calibrant.losses import LOSSES

ROOT = Path(__file__).resolve().parents[1]
METHODS = ["identity", "temperature", "auto"]
FEW = {"ce": "cross-entropy", "fl-3": "focal, gamma 3"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a short demo; a name with a space, as folders have."""
    folder = tmp_path_factory.mktemp("demo") / "my demo"
    run(folder, epochs=2, losses=FEW, methods=[*METHODS, "focal"])
    return folder


def spoken(written: Path) -> str:
    """The text of the page."""
    page = (written / "index.html").read_text()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_it_writes_logits_a_report_for_each_loss_and_the_page(written):
    names = {path.name for path in written.iterdir()}
    assert names == {"index.html", "ce.npz", "ce.html", "fl-3.npz", "fl-3.html"}
    page = (written / "index.html").read_text()
    assert set(re.findall(r'href="([^"]+)"', page)) == {"ce.html", "fl-3.html"}


def test_the_files_are_read_by_every_command(written):
    val, test = (read_predictions(f"{written}/ce.npz::{part}") for part in ("val", "test"))
    assert (len(val), len(test)) == (loop.N_VAL, 1797 - loop.N_TRAIN - loop.N_VAL)
    assert val.class_names == loop.CLASS_NAMES
    assert np.intersect1d(val.ids, test.ids).size == 0
    labels = np.concatenate([val.labels, test.labels])
    from sklearn.datasets import load_digits

    truth = load_digits().target[np.concatenate([val.ids, test.ids])]
    changed = (labels != truth).mean()
    assert 0.5 * loop.MISLABELLED < changed < 1.5 * loop.MISLABELLED


def test_the_page_says_what_the_library_computes(written):
    test = read_predictions(f"{written}/ce.npz::test")
    val = read_predictions(f"{written}/ce.npz::val")
    fitted = calibrant.TemperatureScaling().fit(val.logits, val.labels)
    before = calibrant.ece(logits=test.logits, labels=test.labels)
    after = calibrant.ece(fitted.predict_proba(test.logits), test.labels)
    right = 1 - calibrant.error_rate(logits=test.logits, labels=test.labels)
    probs = np.exp(test.logits - test.logits.max(axis=1, keepdims=True))
    says = (probs.max(axis=1) / probs.sum(axis=1)).mean()
    text = spoken(written)
    assert f"says {says:.1%} on average and is right {right:.1%} of the time" in text
    row = text.split("auto cross-entropy ")[1]
    assert re.match(
        rf"{100 * says:.1f} {100 * right:.1f} {100 * before:.1f} \S+ to \S+ {100 * after:.1f} ", row
    )


def test_label_noise_is_said_on_the_page_and_in_the_reports(written):
    assert "600 to calibrate on, 997 to measure on" in spoken(written)
    for name in ("index.html", "ce.html"):
        text = (written / name).read_text()
        assert f"Label noise: {loop.MISLABELLED:.0%} of all labels, in every part" in text


def test_the_focal_map_is_tried_where_there_is_one_gamma(written):
    table = spoken(written).split("Every method")[1]
    assert re.search(r"focal \N{EN DASH} \d", table)


def test_the_page_loads_nothing(written):
    page = (written / "index.html").read_text()
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", page)


def test_the_same_seed_gives_the_same_logits(written):
    def again(seed: int) -> np.ndarray:
        digits = loop.noisy_digits(seed)
        said = loop.train("ce", digits, seed=seed, epochs=2, after_epoch=lambda: None)
        return said["test"].logits

    first = read_predictions(f"{written}/ce.npz::test").logits
    np.testing.assert_array_equal(first, again(0))
    assert not np.array_equal(first, again(1))


def test_what_it_prints_at_the_end_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(Path("out") / "my demo", epochs=2, losses={"ce": "cross-entropy"}, methods=METHODS)
    printed = capsys.readouterr()
    assert "Open out/my demo/index.html" in printed.out
    assert "training with cross-entropy" in printed.err
    lines = re.findall(r"^  (calibrant .+)$", printed.out, flags=re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        done = CliRunner().invoke(main, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    assert {"report.html", "cal.json", "calibrated.npz"} <= {p.name for p in tmp_path.iterdir()}


def test_the_readme_shows_what_the_demo_prints(tmp_path, capsys):
    run(tmp_path, losses={"ce": "cross-entropy"}, methods=METHODS)
    (printed,), (shown,) = (
        re.findall(r"^cross-entropy +([\d. ]+)$", text, flags=re.MULTILINE)
        for text in (capsys.readouterr().out, (ROOT / "README.md").read_text())
    )
    figures = [[float(figure) for figure in row.split()] for row in (printed, shown)]
    np.testing.assert_allclose(*figures, atol=0.5)  # machines differ in the last digits


@pytest.mark.parametrize("missing", [["torch"], ["sklearn"], ["torch", "sklearn"]])
def test_without_torch_or_scikit_learn_one_line_says_what_to_install(
    tmp_path, monkeypatch, missing
):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")])
    assert done.exit_code == 2
    needs = f"the demo needs {' and '.join(missing)}: pip install 'calibrant[torch,sklearn,"
    assert needs in done.output
    assert list(tmp_path.iterdir()) == []


def test_what_it_needs_are_extras_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(NEEDED.values()) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "taken"], "--out must be a folder; taken is"),
        (["--out", "taken/below"], "--out must be a folder; taken/below is, or lies in, a file"),
        (["--seed", "-1"], "--seed must be"),
        (["--seed", "x"], "not a valid integer"),
    ],
)
def test_bad_input_gets_one_line_and_status_two(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("mine")
    done = CliRunner().invoke(main, ["demo", *arguments])
    assert done.exit_code == 2
    assert message in done.output
    assert Path("taken").read_text() == "mine"


def test_every_loss_of_the_demo_is_one_of_the_library():
    assert set(TRAINED_WITH) <= set(LOSSES)
