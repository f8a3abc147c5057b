"""A real browser for the tests of the report page; they are skipped where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from calibrant.files import Predictions
from calibrant.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = Path(__file__).resolve().parents[2] / "out" / "screenshots"

SCRIPT = "</script><script>window.hacked = 1</script>"
IMAGE = '"><img src=x onerror="window.hacked = 1">'
HANDLER = "' onmouseover='window.hacked = 1' x='"
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 1600)
LOGITS = 3.0 * (RNG.standard_normal((1600, 3)) + 1.5 * np.eye(3)[LABELS])
VAL, TEST = slice(0, 800), slice(800, 1600)
METHODS = ("auto", "temperature", "focal-temperature", "vector", "histogram", "isotonic")


class Written:
    """A page that was written, and what it is about."""

    def __init__(self, path: Path, **options: object) -> None:
        self.path = path
        self.address = path.resolve().as_uri()
        logits, labels = options.pop("samples", (LOGITS, LABELS))  # type: ignore[misc]
        self.logits, self.labels = logits[TEST], labels[TEST]
        self.summary = write_report(
            Predictions(logits=logits[VAL], labels=labels[VAL]),
            Predictions(
                logits=self.logits,
                labels=self.labels,
                class_names=options.pop("class_names", ("cat", "dog", "hen")),  # type: ignore[arg-type]
                ids=options.pop("ids", None),  # type: ignore[arg-type]
            ),
            path,
            methods=METHODS,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make test-browser"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on this machine: make test-browser")
    with playwright.sync_playwright() as driver:
        # A container's root has no sandbox; the pages are our own.
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """An open page, and everything it asked for or complained of."""

    def __init__(self, browser, address: str, **context: object) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)


@pytest.fixture
def visit(browser):
    visits: list[Visit] = []

    def open_page(address: str, **context: object) -> Visit:
        visits.append(Visit(browser, address, **context))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()


@pytest.fixture(scope="session")
def written(browser, tmp_path_factory):
    return Written(tmp_path_factory.mktemp("page") / "report.html", title="A network")


@pytest.fixture(scope="session")
def imbalanced(browser, tmp_path_factory):
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=1600) - 4.0
    labels = (rng.random(1600) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    return Written(
        tmp_path_factory.mktemp("two") / "report.html",
        samples=(np.stack([np.zeros(1600), x + 3.0], axis=1), labels),
        class_names=("ham", "spam"),
    )


@pytest.fixture(scope="session")
def hostile(browser, tmp_path_factory):
    return Written(
        tmp_path_factory.mktemp("hostile") / "report.html",
        class_names=(SCRIPT, IMAGE, HANDLER),
        ids=np.array([f"{(SCRIPT, IMAGE, HANDLER)[i % 3]}{i}" for i in range(800)]),
        title=IMAGE,
        notes=[SCRIPT],
    )
