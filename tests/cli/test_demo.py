"""The demo as a user meets it, with networks that learn for two epochs only."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import io
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant import _writing
from calibrant.calibrators.registry import make_calibrators
from calibrant.cli.demo import EXTRAS, TRAINED_WITH, run, usable_methods
from calibrant.cli.demo.folder import DemoFolder
from calibrant.cli.demo.seeds import Spread
from calibrant.cli.demo.training import data_of, gamma_of, recipe_of
from calibrant.files import read_predictions
from calibrant.losses import LOSSES
from calibrant.report.render import percent
from calibrant.training import Recipe
from calibrant.training.folders import RunFolder
from tests.processes import run_calibrant

ROOT = Path(__file__).resolve().parents[2]
METHODS = ["identity", "temperature", "auto"]
FEW = {"ce": "cross-entropy", "fl-3": "focal, gamma 3"}
OF_RUN = {
    *("config.json", "environment.json", "metrics.jsonl", "metrics.csv", "predictions.npz"),
    *("result.json", "checkpoints/epoch_00001.pt", "checkpoints/epoch_00002.pt"),
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A short demo: the folder it ran in, its own folder there, and what was printed.

    The name of its own folder has a space and what HTML would take for a tag.
    """
    folder, own = tmp_path_factory.mktemp("demo"), Path("out") / "my <b>demo"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run(own, n_seeds=2, epochs=2, losses=FEW, methods=[*METHODS, "focal"])
    return folder, folder / own, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def written(watched):
    return watched[1]


@pytest.fixture(scope="module")
def again(written, tmp_path_factory):
    """A demo of one loss where there was one of two, and where somebody has put a file."""
    folder = tmp_path_factory.mktemp("again") / "demo"
    shutil.copytree(written, folder)
    (folder / "notes.txt").write_text("mine")
    shutil.copy(folder / "ce/checkpoints/epoch_00002.pt", folder / "ce/checkpoints/epoch_00099.pt")
    left = folder / f"ce/checkpoints/.calibrant-{_writing._MACHINE}-1-{'0' * 16}.tmp"
    left.mkdir()
    (left / "epoch_00100.pt").write_text("half a file")
    run(folder, n_seeds=1, epochs=2, losses={"ce": "cross-entropy"}, methods=METHODS)
    return folder


def files_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def spoken(written: Path) -> str:
    """The text of the page."""
    page = (written / "index.html").read_text()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_it_writes_runs_logits_reports_and_the_page(written):
    of_runs = {f"{loss}/{name}" for loss in FEW for name in OF_RUN}
    beside = {f"{loss}.{ending}" for loss in FEW for ending in ("npz", "html")}
    binary = {"two-classes.html", "two-classes-val.csv", "two-classes-test.csv"}
    assert files_below(written) == {"index.html", *beside, *binary, *of_runs}
    page = (written / "index.html").read_text()
    assert set(re.findall(r'href="([^"]+)"', page)) == {
        *("data:,", "ce.html", "fl-3.html", "two-classes.html")
    }


def test_the_runs_are_those_of_calibrant_train(written):
    config = json.loads((written / "fl-3" / "config.json").read_text())
    recipe = Recipe.from_dict(config["recipe"])
    assert recipe == recipe_of("fl-3", seed=0, epochs=2)
    assert config["data"] == data_of(recipe).record
    records = (written / "fl-3" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(record)["epoch"] for record in records] == [0, 1]
    inside, beside = written / "fl-3" / "predictions.npz", written / "fl-3.npz"
    assert inside.read_bytes() == beside.read_bytes()


def test_calibrant_train_goes_on_with_a_run(written, tmp_path):
    shutil.copytree(written / "ce", tmp_path / "ce")
    (tmp_path / "ce" / "result.json").unlink()
    done = run_calibrant("train", "--resume", tmp_path / "ce", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["hash"] == recipe_of("ce", seed=0, epochs=2).hash


def test_the_files_are_read_by_every_command(written):
    from sklearn.datasets import load_digits

    parts = [read_predictions(f"{written}/ce.npz::{part}") for part in ("val", "test")]
    assert [len(part) for part in parts] == [360, 359]
    assert parts[0].class_names == tuple("0123456789")
    ids = np.concatenate([part.ids for part in parts])
    assert len(set(ids)) == len(ids)
    truth = load_digits().target[[int(name.removeprefix("digits/")) for name in ids]]
    np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), truth)
    two = read_predictions(written / "two-classes-val.csv")
    assert two.class_names == ("benign", "malignant")


def test_an_earlier_demo_is_replaced_and_nothing_else(written, again):
    assert files_below(again) == {*files_below(written), "notes.txt"}
    assert (again / "notes.txt").read_text() == "mine"
    assert (again / "fl-3.html").read_bytes() == (written / "fl-3.html").read_bytes()
    assert "fl-3.html" not in (again / "index.html").read_text()


def test_the_same_seed_gives_the_same_logits(written, again):
    first, second = (read_predictions(f"{folder}/ce.npz::test") for folder in (written, again))
    np.testing.assert_array_equal(first.logits, second.logits)


def test_the_page_says_what_the_library_computes(written):
    test = read_predictions(f"{written}/ce.npz::test")
    val = read_predictions(f"{written}/ce.npz::val")
    fitted = calibrant.TemperatureScaling().fit(val.logits, val.labels)
    before = calibrant.ece(logits=test.logits, labels=test.labels)
    after = calibrant.ece(fitted.predict_proba(test.logits), test.labels)
    accuracy = 1 - calibrant.error_rate(logits=test.logits, labels=test.labels)
    probs = np.exp(test.logits - test.logits.max(axis=1, keepdims=True))
    confidence = (probs.max(axis=1) / probs.sum(axis=1)).mean()
    text = spoken(written)
    assert (
        f"a mean confidence of {percent(confidence)} and an accuracy of {percent(accuracy)}" in text
    )
    row = text.split("Losses, first seed")[1].split("auto cross-entropy ")[1]
    errors = rf"{percent(before)} \S+%? {percent(after)} "
    assert re.match(rf"{percent(confidence)} {percent(accuracy)} {errors}", row)


def test_the_parts_are_said_on_the_page(written):
    assert "1078 images to train on, 360 to calibrate on, 359 to measure on" in spoken(written)
    assert "Over 2 seeds" in spoken(written)
    assert "P(malignant)" in spoken(written)


def test_means_over_seeds():
    assert str(Spread.of([0.01, 0.02, 0.03])) == "2.0 ± 2.5"  # t = 4.303, sd = 1, n = 3
    assert Spread.of([0.5]) == Spread(0.5, 0.0)


def test_the_focal_map_is_tried_where_there_is_one_gamma(written):
    table = spoken(written).split("All methods")[1]
    assert re.search(r"focal \N{EN DASH} \d", table)


def test_only_a_loss_with_one_gamma_has_a_map():
    gammas = {loss: gamma_of(recipe_of(loss, seed=0)) for loss in TRAINED_WITH}
    assert gammas == {"ce": None, "fl-3": 3.0, "flsd-53": None, "adafocal": None}


def test_the_page_loads_nothing_and_takes_no_name_for_markup(written):
    page = (written / "index.html").read_text()
    assert not re.search(r"https?:|<script|<img|@import|url\(", page)
    assert re.findall(r"<link [^>]*>", page) == ['<link rel="icon" href="data:,">']
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    assert "my &lt;b&gt;demo" in page
    assert "<b>" not in page


def next_lines(printed: str) -> list[list[str]]:
    """The words of the lines that the demo ends with."""
    lines = re.findall(r"^  (calibrant .+)$", printed, flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_it_says_what_it_does_and_where_to_look(watched):
    _, _, out, err = watched
    assert "Open out/my <b>demo/index.html" in out
    assert err.splitlines() == [
        *("training with cross-entropy", "training with focal, gamma 3"),
        *("calibrating cross-entropy", "calibrating focal, gamma 3", "two classes"),
    ]
    assert [words[1] for words in next_lines(out)] == ["report", "fit", "apply", "evaluate"]


@pytest.mark.parametrize(
    ("commands", "leave"),
    [
        (("fit", "apply", "evaluate"), {"cal.json", "calibrated.npz"}),
        pytest.param(("report",), {"report.html"}, marks=pytest.mark.slow),
    ],
)
def test_what_it_prints_at_the_end_runs(commands, leave, watched, monkeypatch):
    folder, _, printed, _ = watched
    monkeypatch.chdir(folder)
    for words in next_lines(printed):
        if words[1] in commands:
            done = run_calibrant(*words[1:])
            assert done.exit_code == 0, done.output
    assert leave <= {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_the_readme_shows_what_the_demo_prints(tmp_path):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run(tmp_path / "demo", losses={"ce": "cross-entropy"}, methods=METHODS)
    figures = [
        [float(number) for number in re.findall(r"[\d.]+", row)]
        for text in (out.getvalue(), (ROOT / "README.md").read_text())
        for row in re.findall(r"^cross-entropy +([\d. ±]+)$", text, flags=re.MULTILINE)
    ]
    np.testing.assert_allclose(*figures, atol=0.7)  # machines differ in the last digits


def test_another_seed_gives_other_data(written):
    first = data_of(recipe_of("ce", seed=0)).test.ids
    assert set(first) == set(read_predictions(f"{written}/ce.npz::test").ids)
    assert set(first) != set(data_of(recipe_of("ce", seed=1)).test.ids)


@pytest.mark.parametrize("missing", [["lightning"], ["sklearn"], ["torch", "sklearn"]])
def test_without_what_it_needs_one_line_says_what_to_install(tmp_path, monkeypatch, missing):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    done = run_calibrant("demo", "--out", tmp_path / "demo")
    assert done.exit_code == 2
    found_none = f"found no {', '.join(missing)}. "
    assert f"{found_none}Run: pip install 'calibrant[lightning,sklearn,report]'" in done.output
    assert list(tmp_path.iterdir()) == []


def test_what_it_needs_are_extras_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "taken"], "--out must be a folder; taken is"),
        (["--out", "taken/below"], "--out must be a folder; taken/below is a file or is inside"),
        (["--seed", "-1"], "--seed must be"),
        (["--seed", "x"], "not a valid integer"),
    ],
)
def test_bad_input_gets_one_line_and_status_two(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("mine")
    done = run_calibrant("demo", *arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert Path("taken").read_text() == "mine"


def its(folder: Path, *names: str) -> DemoFolder:
    """A folder with these files, of which the demo has written none."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}" if name.endswith(".json") else "mine")
    return DemoFolder(folder, FEW)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((name, name) for name in ("index.html", "ce.npz", "fl-3.html", "ce", "ce/config.json")),
        ("fl-3/checkpoints/epoch_00001.pt", "fl-3/checkpoints"),
    ],
)
def test_what_no_demo_has_written_is_not_replaced(name, named, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"found {tmp_path / named}, which is not from")):
        its(tmp_path, name).prepare()
    assert files_below(tmp_path) == {name}


@pytest.mark.parametrize("name", ["ce/cal.json", "ce/checkpoints/best.pt"])
def test_a_file_among_those_of_a_run_is_not_lost(name, written, tmp_path):
    folder = tmp_path / "demo"
    shutil.copytree(written, folder)
    before = files_below(folder)
    with pytest.raises(ValueError, match=re.escape(f"found {folder / name}, which is not from")):
        its(folder, name).prepare()
    assert files_below(folder) == {*before, name}


def test_a_run_of_another_recipe_is_not_lost(written, tmp_path):
    shutil.copytree(written / "ce", tmp_path / "ce")
    config = tmp_path / "ce" / "config.json"
    config.write_text(config.read_text().replace("calibrant demo", "no paper has digits"))
    with pytest.raises(ValueError, match="must be new, empty or from an earlier demo; found"):
        DemoFolder(tmp_path, FEW).prepare()


def test_other_files_are_no_obstacle(tmp_path):
    its(tmp_path, "notes.txt", "ce.json", "other/index.html").prepare()
    DemoFolder(tmp_path / "new" / "below", FEW).prepare()
    assert (tmp_path / "new" / "below").is_dir()


@pytest.mark.parametrize("left", [["ce/config.json"], ["ce/config.json", "ce.npz"], ["index.html"]])
def test_a_demo_that_was_stopped_can_be_begun_anew(left, written, tmp_path):
    for name in left:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(written / name, tmp_path / name)
    folder = DemoFolder(tmp_path, FEW)
    folder.prepare()
    folder.make_room("ce")
    assert files_below(tmp_path) == {name for name in left if "/" not in name}


def test_a_demo_at_work_is_left_to_it(written, tmp_path):
    pytest.importorskip("fcntl")
    shutil.copytree(written, tmp_path / "demo")
    folder = DemoFolder(tmp_path / "demo", FEW)
    with RunFolder(folder.run("ce")).held(), pytest.raises(ValueError, match="another process"):
        folder.make_room("ce")
    assert files_below(tmp_path / "demo") == files_below(written)


def test_every_loss_of_the_demo_is_one_of_the_library():
    assert set(TRAINED_WITH) <= set(LOSSES)


def test_every_method_of_the_demo_can_be_made():
    for gamma in (None, 3.0):
        names = usable_methods(None, gamma)
        assert set(names) == set(make_calibrators(names, gamma=gamma))
        assert ("focal" in names) == (gamma is not None)
        assert "prior-shift" not in names
    assert usable_methods(["temperature", "focal"]) == ["temperature"]
