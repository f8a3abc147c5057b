"""The report page in a real browser: what moves, what it loads, and how it looks."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import METRICS, reliability_curve
from calibrant.focal import focal_log_probs
from calibrant.focal.simplex import simplex_grid, to_plane
from calibrant.report.render import percent
from calibrant.report.simplex import STEPS

from .conftest import HANDLER, IMAGE, SCREENSHOTS, SCRIPT

WIDTHS = {1280: 800, 390: 844}

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  };
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    }
    return layers.reduce((below, layer) => [...over(layer, below), 1], [1, 1, 1, 1]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.querySelectorAll("main *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.getClientRects().length || element.tagName === "title") continue;
    const style = getComputedStyle(element);
    const below = background(element);
    const color = element.closest("svg") ? style.fill : style.color;
    const [light, dark] = [luminance(over(rgba(color), below)), luminance(below)].sort().reverse();
    found.push([(light + 0.05) / (dark + 0.05), element.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


def set_point(page, g: int, t: int) -> None:
    """Both sliders, as a person would leave them."""
    for name, value in (("gamma", g), ("temperature", t)):
        page.locator(f"#{name}").fill(str(value))


def shown_error(page) -> str:
    return page.locator("#explored-error").text_content()


def visible_panels(page, section: str) -> list[str]:
    panels = page.locator(f"#{section} figure:visible")
    names = panels.evaluate_all("all => all.map((f) => [Number(f.style.order), f.dataset.method])")
    return [name for _, name in sorted(names)]


def test_it_opens_from_disk_and_asks_for_nothing(written, visit):
    opened = visit(written.address)
    opened.page.wait_for_timeout(300)
    assert opened.requests == [written.address]
    assert opened.complaints == []
    assert "A network" in opened.page.title()
    assert opened.page.locator("h2").first.inner_text().startswith("Over-confident:")
    # The first screen has the three answers, without scrolling.
    for heading in ("Can I trust it?", "What should I do?", "What do I gain?"):
        box = opened.page.get_by_role("heading", name=heading).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 720


@pytest.mark.parametrize("name", ["written", "imbalanced"])
def test_the_sliders_move_the_diagram_and_the_number_is_the_librarys(name, request, visit):
    written = request.getfixturevalue(name)
    page = visit(written.address).page
    explorer, error = written.summary.explorer, METRICS[written.summary.metric]
    assert page.locator("#gamma-value").text_content() == "0"  # opens at temperature scaling
    svg = page.locator("#explored")
    top, size = (float(svg.get_attribute(f"data-{name}")) for name in ("top", "size"))
    for g, t in ((0, 0), (1, 20), (3, 31), (11, 42), explorer.marks["focal-temperature"]):
        g, t = min(g, len(explorer.gammas) - 1), min(t, len(explorer.temperatures) - 1)
        set_point(page, g, t)
        gamma, temperature = explorer.gammas[g], explorer.temperatures[t]
        log_probs = focal_log_probs(written.logits, gamma=gamma, temperature=temperature)
        assert shown_error(page) == percent(error(logits=log_probs, labels=written.labels))
        assert page.locator("#gamma-value").text_content() == f"{gamma:g}"
        curve = reliability_curve(logits=log_probs, labels=written.labels)
        bars = svg.locator(".bar").evaluate_all(
            "all => all.map((b) => [b, 'y', 'height'].slice(1).map((n) => +b.getAttribute(n)))"
        )
        accuracy = np.nan_to_num(curve.accuracy)
        np.testing.assert_allclose([height for _, height in bars], size * accuracy, atol=0.02)
        np.testing.assert_allclose([y for y, _ in bars], top + size * (1 - accuracy), atol=0.02)
        low, high = curve.accuracy_low, curve.accuracy_high
        pale = svg.locator(".gap").evaluate_all("all => all.map((g) => g.matches('.pale'))")
        expected = (low <= curve.confidence) & (curve.confidence <= high)
        assert np.array(pale)[curve.full].tolist() == expected[curve.full].tolist()


def test_the_sliders_and_buttons_work_by_keyboard(written, visit):
    page = visit(written.address).page
    before = shown_error(page)
    page.locator("#temperature").focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert shown_error(page) != before
    assert page.locator("#temperature").get_attribute("aria-valuetext").startswith("T ")
    page.locator(".marks").get_by_role("button", name="as it is").focus()
    page.keyboard.press("Enter")
    assert shown_error(page) == percent(written.summary.error("identity").value)
    page.get_by_role("button", name="smallest error").click()
    assert shown_error(page) == percent(written.summary.explorer.errors.min())
    # A click on the map of errors goes there: its first cell is the first gamma and T.
    page.locator("#heat rect").first.click()
    assert page.locator("#gamma").input_value() == "0"
    assert page.locator("#temperature").input_value() == "0"
    assert shown_error(page) == percent(written.summary.explorer.errors[0, 0])


@pytest.mark.parametrize("point", [(0, 5), (2, 20), (9, 36)])
def test_the_arrows_are_those_of_the_map(written, visit, point):
    page = visit(written.address).page
    set_point(page, *point)
    gamma = written.summary.explorer.gammas[point[0]]
    temperature = written.summary.explorer.temperatures[point[1]]
    svg = page.locator("#simplex")
    left, floor, size = (float(svg.get_attribute(f"data-{n}")) for n in ("left", "floor", "size"))
    ends = svg.locator(".arrow").evaluate_all(
        "all => all.map((a) => ['x2', 'y2'].map((n) => Number(a.getAttribute(n))))"
    )
    mapped = np.exp(
        focal_log_probs(np.log(simplex_grid(STEPS)), gamma=gamma, temperature=temperature)
    )
    expected = to_plane(mapped)
    found = np.stack(
        [(np.array(ends)[:, 0] - left) / size, (floor - np.array(ends)[:, 1]) / size], axis=-1
    )
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_any_two_methods_can_be_compared(written, visit):
    page = visit(written.address).page
    assert visible_panels(page, "reliability") == ["identity", "auto"]
    page.locator("#reliability [data-chooser=first]").select_option("vector")
    page.locator("#risk [data-chooser=second]").select_option("histogram")
    for section in ("reliability", "histograms"):
        assert visible_panels(page, section) == ["vector", "histogram"]
    heads = page.locator("#classes thead th:visible").all_inner_texts()
    assert heads[4:] == ["error, vector", "error, histogram"]
    curves = page.locator("#risk polyline:visible")
    assert curves.evaluate_all("all => all.map((c) => c.dataset.method).sort()") == [
        "histogram",
        "vector",
    ]
    page.locator("#classes [data-chooser=first]").select_option("histogram")
    assert visible_panels(page, "reliability") == ["histogram"]


def test_the_table_sorts(written, visit):
    page = visit(written.address).page
    table = page.locator("#methods table")
    names = table.locator("tbody th")
    rows = {method.title: method.row for method in written.summary.drawn}

    def order() -> list[str]:
        return names.all_inner_texts()

    for head, metric in (("ECE", "ece"), ("NLL", "nll"), ("Brier score", "brier")):
        button = table.get_by_role("button", name=head, exact=True)
        button.click()
        values = [rows[name][metric].value for name in order()]
        assert values == sorted(values)
        button.press("Enter")
        assert [rows[name][metric].value for name in order()] == sorted(values, reverse=True)
        assert table.locator("[aria-sort]").count() == 1
        assert table.locator("[aria-sort=descending]").inner_text() == head
    table.get_by_role("button", name="accuracy").click()
    values = [rows[name]["accuracy"].value for name in order()]
    assert values == sorted(values, reverse=True)
    table.get_by_role("button", name="method").click()
    assert order() == sorted(rows)
    samples = page.locator("#samples table")
    assert samples.locator("thead th:visible").count() == 5
    samples.get_by_role("button", name="auto").click()
    cells = samples.locator("tbody tr td:nth-child(5)")
    shown = cells.evaluate_all("all => all.map((c) => Number(c.dataset.value))")
    assert shown == sorted(shown, reverse=True)


def test_hostile_names_are_inert(hostile, visit):
    opened = visit(hostile.address)
    page = opened.page
    for row in page.locator("#samples tbody tr").all()[:6]:
        row.hover()
    page.locator("h1").hover()
    set_point(page, 2, 10)
    page.locator("#methods thead button").first.click()
    page.locator("#classes thead button").first.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.evaluate("document.querySelectorAll('[onmouseover],[onerror]').length") == 0
    assert opened.requests == [hostile.address]
    assert opened.complaints == []
    assert page.locator("h1").inner_text() == IMAGE
    classes = page.locator("#classes tbody th").all_text_contents()
    assert set(classes) == {SCRIPT, IMAGE, HANDLER}
    ids = [each.id for each in hostile.summary.wrong_samples]
    assert page.locator("#samples tbody th").all_text_contents() == ids
    names = page.evaluate("data.worst_classes.map((each) => each.name)")
    assert set(names) == {SCRIPT, IMAGE, HANDLER}


def test_a_script_that_got_in_would_not_run(written, visit, tmp_path):
    # The second lock: only the page's own script has the right hash.
    page = tmp_path / "page.html"
    text = written.path.read_text(encoding="utf-8")
    page.write_text(text.replace("</main>", f"{SCRIPT[9:]}</main>", 1), encoding="utf-8")
    opened = visit(page.as_uri())
    assert opened.page.locator("main script").count() == 1
    assert opened.page.evaluate("window.hacked") is None


def test_it_reads_without_javascript(written, visit):
    page = visit(written.address, java_script_enabled=False).page
    assert page.locator("h2").first.inner_text().startswith("Over-confident:")
    assert page.locator("#reliability figure:visible").count() == 2
    assert page.locator("select:visible, input:visible, button:visible").count() == 0
    assert page.locator(".no-script:visible").count() == 1
    assert page.locator("#methods tbody tr:visible").count() == len(written.summary.methods)


def test_everything_is_reached_by_keyboard(written, visit):
    page = visit(written.address).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(() => { const a = document.activeElement;"
                " return a.id || a.dataset.chooser || a.className || a.tagName; })()"
            )
        )
    assert {"gamma", "temperature", "smallest", "first", "second", "scroll", "SUMMARY"} <= reached
    unnamed = page.evaluate(
        "[...document.querySelectorAll('svg[role=img], [role=region], [role=group], nav')]"
        ".filter((e) => !e.getAttribute('aria-label')).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(written, visit, scheme):
    page = visit(written.address, color_scheme=scheme).page
    found = page.evaluate(CONTRAST)
    assert len(found) > 200
    assert min(found)[0] >= 4.5, min(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_the_screen(written, hostile, visit, width, scheme):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for each in (hostile, written):
        size = {"width": width, "height": WIDTHS[width]}
        page = visit(each.address, viewport=size, color_scheme=scheme).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=SCREENSHOTS / f"report-{width}-{scheme}-top.png")
    page.screenshot(path=SCREENSHOTS / f"report-{width}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_two_classes_and_cards_that_hold_their_text(written, hostile, imbalanced, visit, width):
    for each in (imbalanced, written, hostile):
        size = {"width": width, "height": WIDTHS[width]}
        page = visit(each.address, viewport=size).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = page.locator(".card, .card p, .card dd, .card dt, .card pre, .answer p, .verdict h2")
        assert (
            wide.evaluate_all("all => all.filter((e) => e.scrollWidth > e.clientWidth + 1)") == []
        )
        assert "identity" not in page.locator("main").inner_text()
    page = visit(imbalanced.address, viewport=size).page
    assert page.locator("h2").first.inner_text().startswith("Prevalence off: mean P(spam)")
    for svg in ("#reliability svg:visible", "#explored"):
        assert page.locator(f"{svg} .axis").first.text_content() == "P(spam)"
    page.screenshot(path=SCREENSHOTS / f"report-{width}-two-classes.png", full_page=True)


def test_it_prints(written, visit):
    paper = {"width": 794, "height": 1123}  # A4
    page = visit(written.address, color_scheme="dark", viewport=paper).page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= paper["width"]
    assert page.locator("nav").is_hidden()
    assert page.locator("select:visible, input:visible").count() == 0
    assert page.locator("#reliability figure:visible").count() == 2
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"  # no ink for a dark page
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert len(page.pdf(path=SCREENSHOTS / "report.pdf")) > 10_000
