"""Plug-ins: found by their entry points or by --plugin, and refused in one line."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant import _registry
from calibrant.errors import CalibrantError, PluginWarning
from calibrant.losses import LOSSES
from tests.builders import draw_samples
from tests.processes import run_calibrant, run_python

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "plugin"
LOGITS, LABELS = draw_samples(spread=4.0)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Afterwards nothing of a plug-in is left."""
    registries = (calibrant.CALIBRATORS, calibrant.METRICS, LOSSES)
    before = [dict(registry) for registry in registries]
    loaded = set(sys.modules)
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    for name in set(sys.modules) - loaded:
        if name.partition(".")[0] in ("calibrant_example", "plugged"):
            del sys.modules[name]
    _registry.entry_points.cache_clear()


def make_visible(folder: Path, package: str, entry_points: str, monkeypatch) -> None:
    """As if a package of this name, with these entry points, were installed in ``folder``."""
    information = folder / f"{package}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (information / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(folder)
    _registry.entry_points.cache_clear()


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The example, installed; it is not imported yet."""
    folder = tmp_path / "site"
    shutil.copytree(EXAMPLE, folder)
    text = (EXAMPLE / "pyproject.toml").read_text()
    groups = re.findall(r'entry-points\."(.+)"\]\n(.+) = "(.+)"', text)
    lines = "\n".join(f"[{group}]\n{name} = {value}" for group, name, value in groups)
    make_visible(folder, "calibrant-example", lines, monkeypatch)


def installed(tmp_path, monkeypatch, code: str, *, group: str = "calibrators", name: str = "own"):
    """A package whose entry point ``name`` is ``thing`` of a module with this code."""
    folder = tmp_path / "plugged"
    folder.mkdir()
    (folder / "plugged.py").write_text(code)
    text = f"[calibrant.{group}]\n{name} = plugged:thing"
    make_visible(folder, "plugged", text, monkeypatch)


# --- entry points --------------------------------------------------------------------------------


def test_a_plugin_is_imported_when_its_name_is_asked_for(example):
    assert "even-mixture" not in calibrant.CALIBRATORS
    assert calibrant.METRICS["nll"]
    with pytest.raises(KeyError, match="even-mixture"):  # it is named, and not imported
        calibrant.CALIBRATORS["sorcery"]
    assert "calibrant_example" not in sys.modules
    assert calibrant.CALIBRATORS["even_mixture"].NAME == "even-mixture"
    assert calibrant.METRICS["sure-and-wrong"].lower_is_better
    assert "calibrant_example.losses" not in sys.modules
    assert LOSSES["fl-linear"]().gamma.highest == 4.0


def test_all_methods_include_those_of_plugins(example):
    from calibrant.calibrators.registry import make_calibrators

    assert "even-mixture" in make_calibrators()
    assert "even-mixture" in run_calibrant("fit", "--help").stdout


def test_fit_save_load_apply_and_export(example, tmp_path):
    fitted = calibrant.CALIBRATORS["even-mixture"]().fit(LOGITS, LABELS)
    assert fitted.report_.after < fitted.report_.before
    assert fitted.origin_.plugin.package == "calibrant-example 1.2"
    fitted.save(tmp_path / "cal.json")
    loaded = calibrant.load(tmp_path / "cal.json")
    logits = np.array([[2.0, 0.0, -np.inf], [900.0, 0.0, -900.0]])
    probs = loaded.predict_proba(logits)
    np.testing.assert_array_equal(probs, fitted.predict_proba(logits))
    assert probs.sum(axis=1) == pytest.approx(1.0)
    assert probs[0, 2] == 0.0 < probs[1, 2]
    calibrant.export(loaded, tmp_path / "cal.py")
    exported = runpy.run_path(str(tmp_path / "cal.py"))["predict_proba"]
    np.testing.assert_allclose(exported(logits), probs, rtol=1e-12)


def test_a_metric_in_evaluations_comparisons_and_reports(example, tmp_path):
    measured = calibrant.evaluate(logits=LOGITS, labels=LABELS, metrics=["sure_and_wrong"])
    found = measured["sure_and_wrong"]
    assert found.low < found.value < found.high
    half = slice(0, 200), slice(200, 400)
    arguments = [array[rows] for rows in half for array in (LOGITS, LABELS)]
    compared = calibrant.compare(
        *arguments,
        methods=["identity", "even-mixture"],
        metrics=["sure_and_wrong", "s99", "nll"],
        sort="sure_and_wrong",
        against="identity",
    )
    assert compared.metrics == ("sure_and_wrong", "s99")
    assert compared["even-mixture"].verdict("sure_and_wrong") == "better"
    assert compared["even-mixture"].verdict("s99") is None
    assert str(compared).count("sure_and_wrong") == 1
    assert compared.rows[0].name == "even-mixture"
    assert compared.to_dict()["methods"]["identity"]["metrics"]["s99"]["value"] > 0.0
    predictions = [
        calibrant.files.Predictions(logits=arguments[i], labels=arguments[i + 1]) for i in (0, 2)
    ]
    page = tmp_path / "page.html"
    calibrant.report.write_report(
        *predictions, page, methods=["even-mixture"], metrics=["sure_and_wrong"]
    )
    assert "sure_and_wrong</th>" in page.read_text(encoding="utf-8")


def test_a_metric_must_say_that_lower_is_better_to_sort_by_it(example):
    with pytest.raises(CalibrantError, match="sort must be one of"):
        calibrant.compare(LOGITS, LABELS, LOGITS, LABELS, metrics=["s99"], sort="s99")


def test_the_bins_of_an_evaluation_reach_a_metric(monkeypatch):
    seen = set()

    @calibrant.metrics.metric
    def binned(samples, *, n_bins=15):
        seen.add(n_bins)
        return samples.mean(samples.confidence)

    calibrant.evaluate(logits=LOGITS, labels=LABELS, metrics=["binned"], n_bins=7, n_resamples=20)
    assert seen == {7}


# --- what cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "code", "words"),
    [
        ("calibrators", "import nothing_of_that_name", "No module named"),
        ("calibrators", "raise RuntimeError('broken\\nin two lines')", "broken in two lines"),
        ("calibrators", "other = 1", "thing"),
        ("calibrators", "thing = 3", "expected a subclass of Calibrator, got int 3"),
        (
            "calibrators",
            "from calibrant import Identity as thing",
            "expected a calibrator whose NAME is 'own', got 'identity'",
        ),
        ("metrics", "def thing(samples): return 0.0", "with the decorator metric"),
        ("losses", "from calibrant.losses import SampleGamma as thing", "that makes a Loss"),
    ],
)
def test_a_plugin_that_cannot_be_used(group, code, words, tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, code, group=group)
    registry = {
        "calibrators": calibrant.CALIBRATORS,
        "metrics": calibrant.METRICS,
        "losses": LOSSES,
    }[group]
    with pytest.raises(CalibrantError, match=f"'own' of plugged 1.2 cannot be loaded: .*{words}"):
        registry["own"]
    with pytest.warns(PluginWarning, match="cannot be loaded"):
        assert "own" not in registry.with_plugins()


def test_a_name_of_calibrant_cannot_be_replaced(tmp_path, monkeypatch):
    code = "from calibrant.calibrators import CALIBRATORS, Identity\n"
    code += "class thing(Identity):\n    NAME = 'temperature'\n"
    installed(tmp_path, monkeypatch, code, name="temperature")
    assert calibrant.CALIBRATORS["temperature"] is calibrant.TemperatureScaling
    import plugged  # type: ignore[import-not-found]

    with pytest.raises(CalibrantError, match=r"'temperature' is that of calibrant.* another name"):
        calibrant.CALIBRATORS.register("temperature", plugged.thing)


def test_without_the_plugin_its_file_says_what_to_install(example, tmp_path):
    file = tmp_path / "cal.json"
    calibrant.CALIBRATORS["even-mixture"]().fit(LOGITS, LABELS).save(file)
    content = json.loads(file.read_text())
    content["method"] = content["report"]["method"] = "odd-mixture"
    file.write_text(json.dumps(content))
    line = (
        "there is no method 'odd-mixture'; the file says that the plug-in 'calibrant-example 1.2' "
        "wrote it. If you trust it, install it, or add --plugin 'calibrant_example'"
    )
    with pytest.raises(CalibrantError, match=re.escape(line)):
        calibrant.load(file)


# --- the command line ----------------------------------------------------------------------------


def test_a_module_by_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=LABELS, class_names=["cat", "dog", "cow"])
    file, cal = tmp_path / "a.npz", tmp_path / "cal.json"
    plugin = ("--plugin", "calibrant_example")
    done = run_calibrant("fit", file, "--method", "even-mixture", *plugin, "-o", cal)
    assert done.exit_code == 0, done.output
    shown = run_calibrant("info", cal, *plugin)
    assert re.search(r"^plug-in +no package, module calibrant_example$", shown.stdout, re.M)
    assert re.search(r"^classes +3: cat, dog, cow$", shown.stdout, re.M)
    done = run_calibrant("evaluate", file, *plugin, "--metric", "sure-and-wrong")
    assert "sure_and_wrong" in done.stdout


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("nothing_of_that_name", "found none called 'nothing_of_that_name'. Install its package"),
        ("..", "found none called '..'"),
        ("plugged", "the plug-in plugged cannot be imported: broken. Repair it"),
    ],
)
def test_a_module_that_cannot_be_imported(module, words, tmp_path, monkeypatch):
    (tmp_path / "plugged.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    done = run_calibrant("evaluate", "a.npz", "--plugin", module)
    assert done.exit_code == 2
    assert words in done.stderr


# --- installed -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_command_of_the_page_with_the_installed_package(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source)  # setuptools builds beside the source
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", site)
    run_python("-m", "pip", "install", *options, source, check=True)
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(600, 3))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    parts = {"val": slice(0, 300), "test": slice(300, 600)}
    arrays = {f"{part}_logits": 2.0 * truth[rows] for part, rows in parts.items()}
    arrays |= {f"{part}_labels": labels[rows] for part, rows in parts.items()}
    np.savez(tmp_path / "network.npz", **arrays)
    environment = {"PYTHONPATH": f"{site}:{ROOT / 'src'}"}
    page = (ROOT / "docs" / "plugins.md").read_text()
    commands = re.findall(r"^\$ calibrant (.+)$", page, flags=re.MULTILINE)
    assert len(commands) == 8
    printed = {}
    for command in commands:
        arguments = shlex.split(command)
        done = run_python(
            "-m", "calibrant", *arguments, cwd=tmp_path, environment=environment, check=True
        )
        printed[arguments[0]] = done.stdout
    assert "calibrant-example 1.2" in printed["info"]
    for command in ("evaluate", "compare"):
        assert "sure_and_wrong" in printed[command]
    assert "sure_and_wrong" in (tmp_path / "report.html").read_text(encoding="utf-8")
    code = (
        "import calibrant, sys\n"
        "calibrant.load('cal.json')\n"
        "assert calibrant.METRICS['sure_and_wrong']([[0.95, 0.05]], [1]) == 1.0\n"
        "assert calibrant.losses.LOSSES['fl-linear']().gamma.highest == 4.0\n"
    )
    run_python("-c", code, cwd=tmp_path, environment=environment, check=True)
    without = run_calibrant("info", tmp_path / "cal.json")
    assert without.exit_code == 2
    assert "the plug-in 'calibrant-example 1.2' wrote it" in without.stderr
