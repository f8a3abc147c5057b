"""The code of the pages runs, and the built pages load nothing from the network."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.cli import main
from calibrant.files import write_truncated_predictions
from experiments.catalogue import catalogue
from tests.processes import run_calibrant

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW_COMMANDS = ("demo", "train")
"""Commands that are only parsed here; they have their own tests."""
PACKAGES = (
    *("calibrant", "focal", "losses", "metrics", "plots", "report", "calibrators", "files"),
    "monitoring",
)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.M)


def commands_of(page: Path, start: str) -> list[str]:
    """Lines of shell blocks, and code in backquotes, that begin with ``start``."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M)
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    # Code in backquotes may span two lines; a shell comment ends with its line.
    found = [re.sub(r"\s+#.*", "", line).strip() for line in lines] + inline
    return [command for command in found if command.startswith(f"{start} ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: a network's logits in every format."""
    from pyarrow import csv, parquet, table

    where = tmp_path_factory.mktemp("user")
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(400, 3))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    parts = {"val": slice(0, 200), "test": slice(200, 400)}
    arrays = {}
    for name, rows in parts.items():
        logits = 2 * truth[rows]
        arrays |= {f"{name}_logits": logits, f"{name}_labels": labels[rows]}
        columns = {f"logit_{k}": logits[:, k] for k in range(3)} | {"label": labels[rows]}
        csv.write_csv(table(columns), where / f"{name}.csv")
        groups = {"country": ["FR", "DE"] * 100, "sex": ["f"] * 100 + ["m"] * 100}
        groups |= {"age_band": ["18-30", "30-50", "50-99", "50-99"] * 50, "device": ["tv"] * 200}
        parquet.write_table(table(columns | groups), where / f"{name}.parquet")
    for copy in ("predictions", "new"):
        shutil.copy(where / "test.parquet", where / f"{copy}.parquet")
    np.savez(where / "network.npz", **arrays)
    tags = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(int)
    np.savez(
        where / "tagger.npz",
        **{f"{name}_logits": truth[rows] for name, rows in parts.items()},
        **{f"{name}_labels": tags[rows] for name, rows in parts.items()},
    )
    odds = 2.0 * rng.normal(size=1200) - 1.0
    sick = np.where(rng.random(1200) < 1 / (1 + np.exp(-odds)), "sick", "healthy")
    months = {"march": slice(0, 400), "april": slice(400, 800), "november": slice(800, None)}
    for month, rows in months.items():
        scores = {"score": 1 / (1 + np.exp(-odds[rows]))}
        known = {} if month == "november" else {"label": sick[rows]}
        csv.write_csv(table(scores | known), where / f"{month}.csv")
    (where / "costs.csv").write_text("true,treat,wait\nsick,0,500\nhealthy,10,0\n")
    for log in (ROOT / "examples" / "language_model").glob("*.jsonl"):
        shutil.copy(log, where)
    (where / "serving").mkdir()
    (where / "logs").mkdir()
    of_day = {"day": ["2026-10-01"] * 200, "country": ["FR"] * 200, "sex": ["f", "m"] * 100}
    of_day |= {"month": ["2026-10"] * 200, "age": [17, 40] * 100}
    parquet.write_table(table(columns | of_day), where / "logs" / "day.parquet")
    (where / "tokens").mkdir()
    log_probs = truth - np.log(np.exp(truth).sum(axis=1, keepdims=True))
    write_truncated_predictions(
        where / "tokens" / "day.parquet",
        top_logprobs=log_probs,
        top_classes=np.tile(np.arange(3), (400, 1)),
        labels=labels,
        n_classes=128256,
    )
    return where


@pytest.mark.slow
def test_every_console_line_of_the_pages_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = [
        re.sub(r"\s+#.*", "", line)
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("calibrant ")
    ]
    lines = [
        line
        for line in dict.fromkeys(lines)
        if line.split()[1] not in SLOW_COMMANDS and "tcp://" not in line  # no cluster to talk to
    ]
    assert len(lines) > 10
    for line in lines:
        done = run_calibrant(*shlex.split(line)[1:])
        alarm = line.startswith("calibrant watch") and "ALARM" in done.output
        assert done.exit_code == int(alarm), f"{line}: {done.output}"
    written = {"report.html", "cal.json", "calibrated.npz", "rel.png", "cal.onnx"}
    assert written <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_page_have_valid_options(page):
    for command in commands_of(page, "calibrant"):
        name, *arguments = shlex.split(command)[1:]
        assert name in main.commands, command
        if arguments and arguments != ["--help"]:  # a page may name a command without arguments
            main.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_extras_and_files_on_a_page_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for command in commands_of(page, "make"):
        assert command.split()[1] in targets, command
    for command in commands_of(page, "python -m experiments"):
        assert command.split()[3] in {*catalogue(), "quick", "page", "keep", "--list"}, command
    text = page.read_text()
    for extras in re.findall(r"pip install '(?:calibrant|\.)\[([a-z,]+)\]'", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), extras
    for file in re.findall(r"`((?:examples|tests|docs|experiments)/[\w./-]*\w)`", text):
        assert (ROOT / file).exists() or file.startswith("docs/_build"), file


def test_the_reproduction_page_lists_every_experiment():
    page = ROOT / "docs" / "reproduction.md"
    listed = {command.split()[3] for command in commands_of(page, "python -m experiments")}
    assert set(catalogue()) <= listed | {"scoreboard"}


def test_the_architecture_page_lists_every_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "calibrant"
    listed = set(re.findall(r"^\| \d+ \| `(\w+)/?` \|", page, flags=re.MULTILINE))
    packages = {path.stem for path in source.iterdir() if path.suffix in ("", ".py")}
    ignored = {"__init__", "__main__", "__pycache__", "_types", "_version"}
    assert listed == packages - ignored


def test_the_architecture_page_names_existing_modules():
    page = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "calibrant"
    sections = {"": page.split("## Where to find things")[1].split("\n## ")[0]}
    sections |= dict(re.findall(r"^## `(\w+)/`\n(.*?)(?=^## )", page, flags=re.S | re.M))
    for package, text in sections.items():
        column = -1 if package == "" else 0
        for row in re.findall(r"^\| (.+) \|$", text, flags=re.MULTILINE):
            for name in re.findall(r"`([\w/]+)`", row.split(" | ")[column]):
                path = source / package / name
                assert path.exists() or path.with_suffix(".py").exists(), f"{package}/{name}"


def test_figures_of_the_method_chart_match_the_scoreboard():
    picture = (ROOT / "docs" / "pictures" / "choosing.svg").read_text()
    evidence = " ".join(re.findall(r'class="evidence"[^>]*>([^<]+)<', picture))
    scoreboard = (ROOT / "docs" / "scoreboard.md").read_text()
    rows = {}
    for heading, table in re.findall(r"^## (.+?)\n(.*?)(?=^## )", scoreboard, flags=re.S | re.M):
        for name, *cells in re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|", table, flags=re.M):
            rows[heading, name] = [cell.strip() for cell in cells]
    for heading, networks in (("CIFAR-10: 27", "27 CIFAR-10"), ("CIFAR-100: 8", "8 CIFAR-100")):
        heading = f"{heading} networks"
        before, one, auto = (
            rows[heading, name][1] for name in ("identity", "temperature by nll", "auto")
        )
        assert f"{networks} networks: {before}% to {one}%" in evidence
        floor = re.search(rf"## {heading}\n\nNoise floor of ada_ece: (\S+)%\.", scoreboard)[1]
        assert f"{networks} networks: {before}% to {auto}% (noise floor {floor}%)" in evidence
    nll = {
        name: re.search(rf"^\| {name} \| 43 \| \S+ \| \S+ \| (\S+) \|", scoreboard, flags=re.M)[1]
        for name in ("auto, keep_class=True", "auto")
    }
    assert f"all 43 networks: NLL {', but '.join(nll.values())}" in evidence
    (tabular,) = re.findall(r"^\| tabular \| 140 \|(.+)$", scoreboard, flags=re.MULTILINE)
    one, auto, vector, dirichlet, *_ = (cell.strip(" *") for cell in tabular.split("|"))
    assert f"140 tabular models: NLL {one} to {auto}" in evidence
    assert f"({dirichlet} dirichlet, {vector} vector)" in evidence
    digits = (ROOT / "docs" / "focal-trained-models.md").read_text()
    as_it_is, mapped = (
        re.findall(r"\((\S+)\)", re.search(rf"^\| {row} \|(.+)$", digits, flags=re.MULTILINE)[1])
        for row in ("as it is", "map")
    )
    assert f"linear model {as_it_is[0]}% to {mapped[0]}%" in evidence
    assert f"memorised its training set {as_it_is[2]}% to {mapped[2]}%" in evidence


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The built pages, with warnings as errors: broken links are warnings."""
    target = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "docs", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


class Loaded(HTMLParser):
    """Addresses that a browser loads with a page, without the links to click on."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.n_formulas = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.n_formulas += tag == "math"
        wanted = {"src", "srcset", "data", "poster", *({"href"} if tag == "link" else ())}
        self.addresses += [value or "" for name, value in attributes if name in wanted]


def loaded_by(page: Path) -> Loaded:
    parser = Loaded()
    parser.feed(page.read_text())
    return parser


def test_the_parser_finds_loaded_addresses(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<script src="https://x"></script><link href="//y"><a href="http://z">z</a>')
    assert loaded_by(page).addresses == ["https://x", "//y"]


@pytest.mark.slow
def test_the_built_pages_load_nothing_from_the_network(built):
    pages = list(built.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        remote = [a for a in loaded_by(page).addresses if re.match(r"(\w+:)?//", a)]
        assert not remote, f"{page.name} loads {remote}"
    for sheet in built.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_formulas_are_in_the_pages(built):
    assert loaded_by(built / "mathematics.html").n_formulas > 30
    assert loaded_by(built / "api.html").n_formulas > 20
    for page in built.rglob("*.html"):
        assert not re.search(r"\\\(|\\\[", page.read_text()), f"{page.name} has formulas as LaTeX"


@pytest.mark.slow
def test_the_reference_has_every_public_name(built):
    documented = set()
    for name in re.findall(r'<dt class="sig[^"]*" id="(calibrant[\w.]+)"', page_of(built, "api")):
        thing, _, attribute = name.rpartition(".")
        documented.add(id(_resolved(thing, attribute)))
    for package in PACKAGES:
        module = importlib.import_module(
            "calibrant" if package == "calibrant" else f"calibrant.{package}"
        )
        for name in module.__all__:
            thing = getattr(module, name)
            if not isinstance(thing, type(calibrant) | str):
                assert id(thing) in documented, f"{module.__name__}.{name}"


def page_of(built: Path, name: str) -> str:
    return (built / f"{name}.html").read_text()


def _resolved(owner: str, attribute: str) -> object:
    """The object ``owner.attribute``; the owner is a module or a class in one."""
    try:
        return getattr(importlib.import_module(owner), attribute)
    except ImportError:
        outer, _, inner = owner.rpartition(".")
        return getattr(_resolved(outer, inner), attribute, None)
