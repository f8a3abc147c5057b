"""What the report page says is what the library computes, for good samples and odd ones."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import patch

import numpy as np
import pytest

import calibrant
from calibrant import CALIBRATORS, TemperatureScaling, ada_ece, classwise_ece, ece
from calibrant.calibrators import FitReport, compare
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.focal import focal_log_probs
from calibrant.report import explorer as explorer_module, write_report
from calibrant.report.render import render, safe_json
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 5, 1200)
LOGITS = 3.0 * (RNG.standard_normal((1200, 5)) + 1.5 * np.eye(5)[LABELS])
VAL, TEST = slice(0, 600), slice(600, 1200)
FEW = ("auto", "temperature", "vector", "histogram")
SCRIPT = "</script><script>window.hacked = 1</script>"
IMAGE = '"><img src=x onerror="window.hacked = 1">'


def predictions(part: slice, **more: object) -> Predictions:
    return Predictions(logits=LOGITS[part], labels=LABELS[part], **more)  # type: ignore[arg-type]


def data_of(path) -> dict:
    text = path.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found, parse_constant=pytest.fail)  # no NaN, no infinity


class Elements(HTMLParser):
    """The tags of a page, how often each occurs, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words += data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    summary = write_report(predictions(VAL), predictions(TEST), path, methods=FEW)
    return summary, path


def test_the_figures_are_those_of_compare(written):
    summary, path = written
    expected = compare(
        LOGITS[VAL],
        LABELS[VAL],
        LOGITS[TEST],
        LABELS[TEST],
        methods=["identity", *FEW],
        against="identity",
    )
    found = data_of(path)["comparison"]
    for name, row in expected.to_dict()["methods"].items():
        for key in ("metrics", "noise_floor", "differences", "params", "failure"):
            assert found["methods"][name][key] == row[key]
    text = Elements(path.read_text(encoding="utf-8")).words
    assert f"{100 * expected['auto']['ece'].value:.2f}%" in text
    assert summary.side == "over-confident"
    assert "Over-confident:" in text


def test_the_curves_are_those_of_the_library(written):
    summary, _ = written
    temperature = TemperatureScaling().fit(LOGITS[VAL], LABELS[VAL])
    probs = temperature.predict_proba(LOGITS[TEST])
    method = summary["temperature"]
    curve = calibrant.reliability_curve(probs, LABELS[TEST])
    np.testing.assert_allclose(method.curve.accuracy, curve.accuracy)
    np.testing.assert_allclose(method.curve.confidence, curve.confidence)
    assert method.curve.ece == pytest.approx(method.row["ece"].value)
    assert method.histogram.correct.sum() == (probs.argmax(axis=1) == LABELS[TEST]).sum()
    assert method.risk.risk[-1] == pytest.approx(1.0 - method.row["accuracy"].value)
    errors = [each.errors["temperature"] for each in summary.worst_classes]
    assert np.mean(errors) == pytest.approx(classwise_ece(probs, LABELS[TEST]))


def test_the_worst_samples_come_first(written):
    summary, _ = written
    probs = np.exp(LOGITS[TEST]) / np.exp(LOGITS[TEST]).sum(axis=1, keepdims=True)
    wrong = np.flatnonzero(probs.argmax(axis=1) != LABELS[TEST])
    order = wrong[np.argsort(-probs[wrong].max(axis=1))]
    assert [each.row for each in summary.wrong_samples] == order[:40].tolist()
    assert summary.n_wrong == len(wrong)
    first = summary.wrong_samples[0]
    assert first.confidence["identity"] == pytest.approx(probs[order[0]].max())
    assert first.label == str(LABELS[TEST][order[0]])
    vector = CALIBRATORS["vector"]().fit(LOGITS[VAL], LABELS[VAL]).predict(LOGITS[TEST])
    for each in summary.wrong_samples:
        assert ("vector" in each.corrected) == (vector[each.row] == LABELS[TEST][each.row])
        assert ("vector" in each.otherwise) == (str(vector[each.row]) != each.predicted)


def test_the_explorer_has_the_numbers_of_the_library(written):
    summary, path = written
    data = data_of(path)["explorer"]
    for g, gamma in enumerate(data["gammas"]):
        for t in range(g % 5, len(data["temperatures"]), 5):
            temperature = data["temperatures"][t]
            log_probs = focal_log_probs(LOGITS[TEST], gamma=gamma, temperature=temperature)
            gaps = np.subtract(data["confidence"][g][t], data["correct"][g][t])
            expected = ece(logits=log_probs, labels=LABELS[TEST])
            assert np.abs(gaps).sum() / data["n"] == pytest.approx(expected, abs=1e-7)
    g, t = summary.explorer.marks["temperature"]
    assert data["gammas"][g] == 0.0
    fitted = TemperatureScaling().fit(LOGITS[VAL], LABELS[VAL]).temperature_
    assert data["temperatures"][t] == pytest.approx(fitted, rel=1e-3)
    g, t = summary.explorer.marks["as it is"]
    assert (data["gammas"][g], data["temperatures"][t]) == (0.0, 1.0)
    assert summary.explorer.errors[g, t] == pytest.approx(summary.error("identity").value)


def test_the_explorer_says_how_many_rows_it_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(explorer_module, "MOST_NUMBERS", 500)
    path = tmp_path / "page.html"
    summary = write_report(predictions(VAL), predictions(TEST), path, methods=["temperature"])
    assert (summary.explorer.n, summary.explorer.n_all) == (100, 600)
    words = " ".join(Elements(path.read_text(encoding="utf-8")).words.split())
    assert "Counted on 100 of the 600 test samples" in words
    assert summary.explorer.count.sum(axis=-1).max() == 100


def test_best_is_marked_only_where_it_can_be_told(tmp_path):
    # Temperature scaling is right here, and the model far off: told apart. Two equal maps are not.
    clear = write_report(
        predictions(VAL), predictions(TEST), tmp_path / "clear.html", methods=["temperature"]
    )
    assert clear.best["nll"] == ("temperature",)
    assert clear.best["accuracy"] == ()
    equal = write_report(
        predictions(VAL),
        predictions(TEST),
        tmp_path / "equal.html",
        methods={"one": TemperatureScaling(), "other": TemperatureScaling()},
    )
    assert set(equal.best["nll"]) == {"one", "other"}
    close = write_report(
        predictions(VAL), predictions(TEST), tmp_path / "close.html", methods=["platt", "vector"]
    )
    assert not any(close.best.values())
    assert "★</abbr>" not in (tmp_path / "close.html").read_text(encoding="utf-8")


def page_of(val: Predictions, test: Predictions, path, **options: object) -> tuple[object, str]:
    summary = write_report(val, test, path, **options)  # type: ignore[arg-type]
    return summary, " ".join(Elements(path.read_text(encoding="utf-8")).words.split())


SHIFTED = LOGITS + np.array([4.0, 0.0, 0.0, 0.0, 0.0])
"""One class is said far too often."""


def parts(logits: np.ndarray, labels: np.ndarray, **more: object) -> tuple[Predictions, ...]:
    return tuple(
        Predictions(logits=logits[part], labels=labels[part], **more)  # type: ignore[arg-type]
        for part in (VAL, TEST)
    )


def test_a_distinguishably_better_method_is_named(tmp_path):
    methods = ["temperature", "vector"]
    summary, words = page_of(*parts(SHIFTED, LABELS), tmp_path / "page.html", methods=methods)
    assert (summary.after, summary.recommendation.rival) == ("temperature", "vector")
    assert "vector has a still smaller log-loss" in words


def test_classes_that_are_off_are_named_and_auto_mends_them(tmp_path):
    both = parts(SHIFTED, LABELS, class_names=("cat", "dog", "hen", "cow", "fox"))
    summary, words = page_of(*both, tmp_path / "page.html", methods=["auto", "temperature"])
    assert not summary.recommendation.trusted
    assert (summary.after, summary.recommendation.advice) == ("auto", "calibrate")
    (off,) = (each for each in summary.worst_classes if each.name == "cat")
    assert off.off
    said = f"cat (mean probability {off.mean_prob:.1%}, rate {off.frequency:.1%})"
    assert f"Its probabilities are wrong about {said}" in words
    changed = summary["auto"].row.changed
    assert changed > 0
    assert f"It changes {changed} of 600 predictions" in words
    assert "interval of the change: +" in words
    assert "To keep the predicted class: cal = calibrant.AutoCalibration(keep_class=True)" in words


def imbalanced(shift: float, n: int = 1200) -> tuple[Predictions, ...]:
    """Two classes, 8% of class 1, and log-odds that are ``shift`` too high."""
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=n) - 4.0
    labels = (rng.random(n) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    logits = np.stack([np.zeros(n), x + shift], axis=1)
    return parts(logits, labels, class_names=("ham", "spam"))


def test_two_classes_are_one_probability(tmp_path):
    summary, words = page_of(*imbalanced(3.0), tmp_path / "page.html", methods=["auto", "platt"])
    assert summary.side == "prevalence off"
    assert "Prevalence off: mean P(spam)" in words
    assert "Not as it is: on average its P(spam) is" in words
    assert "ECE of P(spam)" in words
    assert "Yes, as far as" not in words
    assert "Leave it as it is" not in words
    for method in summary.drawn:
        assert method.curve.class_index == method.histogram.class_index == 1
        assert method.curve.ece == pytest.approx(method.row["positive_ece"].value)
    after = summary.curve("auto")
    assert after.overall_confidence == pytest.approx(after.overall_accuracy, abs=0.02)
    assert summary.error("auto").name == "positive_ece"
    explorer = summary.explorer
    assert explorer.errors[explorer.marks["as it is"]] == pytest.approx(
        summary.error("identity").value
    )
    assert summary.recommendation.gain("positive_ece") == "better"


def test_nothing_to_gain_for_two_calibrated_classes(tmp_path):
    summary, words = page_of(*imbalanced(0.0), tmp_path / "page.html", methods=["auto"])
    assert summary.recommendation.trusted
    assert "Yes, as far as 600 samples can tell." in words
    assert "Leave it as it is." in words


def test_a_model_that_can_be_improved_gets_no_yes(written):
    """Even if no test calls it miscalibrated."""
    summary, _ = written
    found = summary.recommendation
    unseen = replace(found.verdict, judged=replace(found.verdict.judged, side="calibrated"))
    as_it_is = replace(found.before, evaluation=unseen)
    found = replace(found, before=as_it_is)
    summary = replace(
        summary,
        comparison=replace(summary.comparison, recommendation=found),
        methods=tuple(
            replace(each, row=as_it_is) if each.name == "identity" else each
            for each in summary.methods
        ),
    )
    assert summary.side == "calibrated"
    assert not found.trusted
    words = " ".join(Elements(render(summary)).words.split())
    assert "Not fully: 600 samples show no miscalibration, but auto lowers the log-loss." in words
    assert "Calibrate it with auto" in words
    assert "Leave it as it is" not in words


def test_an_honest_model_is_left_as_it_is(tmp_path):
    labels = (LOGITS + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)
    path = tmp_path / "page.html"
    summary = write_report(
        Predictions(logits=LOGITS[VAL], labels=labels[VAL]),
        Predictions(logits=LOGITS[TEST], labels=labels[TEST]),
        path,
        methods=["temperature"],
    )
    assert (summary.side, summary.recommendation.advice) == ("calibrated", "avoid")
    assert summary.recommendation.trusted
    text = " ".join(Elements(path.read_text(encoding="utf-8")).words.split())
    assert "No miscalibration that 600 samples can show" in text
    assert "Leave it as it is." in text


def test_the_page_speaks_for_what_was_asked_for_first(tmp_path):
    val, test = predictions(VAL), predictions(TEST)
    summary, words = page_of(val, test, tmp_path / "a.html", methods=["vector", "platt"])
    assert summary.after == "vector"
    # Even where the model as it is has the smaller error.
    summary, words = page_of(val, test, tmp_path / "b.html", methods=["focal"], gamma=3.0)
    assert summary.after == "focal"
    assert "none was fitted" not in words
    summary, words = page_of(val, test, tmp_path / "c.html", methods=["identity"])
    assert summary.after == "identity"
    assert "Compare it with a method: none was fitted." in words


def test_a_method_that_harms_is_not_recommended(tmp_path):
    """A few mistakes of huge logits decide the log-loss: no temperature can be good."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 600)
    logits = 4.0 * (rng.standard_normal((600, 3)) + 2.0 * np.eye(3)[labels])
    wrong = rng.random(600) < 0.05
    logits[wrong] = 1e8 * np.eye(3)[(labels[wrong] + 1) % 3]
    parts = [Predictions(logits=logits[i::2], labels=labels[i::2]) for i in (0, 1)]
    summary, words = page_of(*parts, tmp_path / "page.html", methods=["temperature"])
    assert summary.error("temperature").value > 2 * summary.error("identity").value
    assert "raises the calibration error here, though it lowers the log-loss" in words
    assert "calibrant.CALIBRATORS" not in words
    assert "mistakes with huge logits" in words


def test_what_the_page_says_to_write_can_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("net.npz", val_logits=LOGITS[VAL], val_labels=LABELS[VAL],
             test_logits=LOGITS[TEST], test_labels=LABELS[TEST])  # fmt: skip
    files = "net.npz::val", "net.npz::test"
    mine = {"focal": calibrant.FocalCalibration(gamma=2.0), "x; rm": calibrant.TemperatureScaling()}
    summary = write_report(*files, "a.html", methods=mine)
    assert summary.lines_to_fit("focal")[0] == (
        "calibrant fit net.npz::val --method focal --set gamma=2.0 -o cal.json"
    )
    assert summary.lines_to_fit("x; rm")[0] == (
        "calibrant fit net.npz::val --method temperature -o cal.json"
    )
    keeping = {"auto": calibrant.AutoCalibration(keep_class=True)}
    kept = write_report(*files, "k.html", methods=keeping)
    lines = [kept.lines_to_fit("auto")[0], kept.line_to_keep_class]
    assert lines[0] == "calibrant fit net.npz::val --set keep_class=true -o cal.json"
    page = (tmp_path / "k.html").read_text(encoding="utf-8")
    assert "\n".join(kept.lines_to_fit("auto")) in Elements(page).words
    assert '<span class="nowrap">-o</span>' in page  # no line break after the hyphen
    for line in (*lines, *summary.lines_to_fit("focal")):
        words = shlex.split(line.replace("FILE", "net.npz::test"))[1:]
        outcome = run_calibrant(*words)
        assert outcome.exit_code == 0, outcome.output

    class Own(calibrant.TemperatureScaling):
        """Not in the registry."""

    summary = write_report(*files, "b.html", methods={"own": Own()})
    assert summary.lines_to_fit("own") == ()
    cal, fit, use = write_report(
        predictions(VAL), predictions(TEST), "c.html", methods=["focal"], gamma=2.0
    ).lines_to_fit("focal")
    names = {"calibrant": calibrant, "logits": LOGITS[VAL], "labels": LABELS[VAL], "new": LOGITS}
    exec(f"{cal}\n{fit}\nprobs = {use}", names)
    assert names["probs"].shape == LOGITS.shape


def test_a_method_that_is_worse_in_all_is_to_be_avoided(tmp_path):
    path = tmp_path / "page.html"
    summary, words = page_of(
        predictions(VAL), predictions(TEST), path, methods=["focal"], gamma=3.0
    )
    assert summary.recommendation.advice == "avoid"
    assert "focal makes it worse here: do not use it" in words


def test_few_samples_get_no_yes(tmp_path):
    few = Predictions(logits=LOGITS[:1], labels=LABELS[:1])
    _, words = page_of(predictions(VAL), few, tmp_path / "page.html", methods=["temperature"])
    assert "1 sample cannot tell" in words
    assert "1 samples" not in words.split('{"title"')[0]


def test_probabilities_of_half_precision(tmp_path):
    probs = np.exp(calibrant.focal.focal_log_probs(LOGITS / 3.0, gamma=0.0)).astype(np.float16)
    parts = [Predictions(probs=probs[part], labels=LABELS[part]) for part in (VAL, TEST)]
    summary, _ = page_of(*parts, tmp_path / "page.html", methods=["temperature", "histogram"])
    assert all(method.row.failure is None for method in summary.methods)


def test_names_that_are_not_text_are_shown_as_far_as_they_are(tmp_path):
    _, words = page_of(
        predictions(VAL), predictions(TEST), tmp_path / "a.html", methods=[], title="caf\udce9"
    )
    assert "caf?" in words


def test_hostile_names_are_text(tmp_path):
    names = (SCRIPT, IMAGE, "a & b", "\u2028", "x" * 500)
    ids = np.array([f"{IMAGE}{i}" for i in range(600)])
    path = tmp_path / "page.html"
    summary = write_report(
        predictions(VAL),
        predictions(TEST, class_names=names, ids=ids),
        path,
        methods={IMAGE: TemperatureScaling()},
        title=SCRIPT,
        notes=[IMAGE],
    )
    text = path.read_text(encoding="utf-8")
    page = Elements(text)
    assert page.tags["script"] == 2
    assert "img" not in page.tags
    assert page.handlers == []
    assert page.words.count(SCRIPT) >= 2  # the heading, and a class
    assert IMAGE in page.words
    assert "\u2028" not in safe_json(summary.to_dict())
    assert data_of(path) == summary.to_dict()
    assert max(len(each.name) for each in summary.worst_classes) <= 80


def test_the_page_loads_nothing(written):
    _, path = written
    text = path.read_text(encoding="utf-8")
    addresses = Elements(text).addresses
    assert addresses
    assert all(address.startswith(("#", "data:,")) for address in addresses)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(http" not in text
    assert "@import" not in text


def test_the_page_is_the_same_every_time(written, tmp_path):
    _, path = written
    write_report(predictions(VAL), predictions(TEST), tmp_path / "again.html", methods=FEW)
    pages = [
        re.sub(r'"fit_seconds":[^,]*|data-value="[^"]*">[\d.]+</td>\s*</tr>', "", page)
        for page in (path.read_text("utf-8"), (tmp_path / "again.html").read_text("utf-8"))
    ]
    assert pages[0] == pages[1]


def test_slow_methods_are_left_out_and_named(monkeypatch, tmp_path):
    few = {name: CALIBRATORS[name] for name in ("auto", "identity", "matrix")}
    with patch.dict(CALIBRATORS, few, clear=True):
        monkeypatch.setattr("calibrant.calibrators.comparison.duration.PATIENCE", 0.0)
        path = tmp_path / "page.html"
        summary = write_report(predictions(VAL), predictions(TEST), path)
        assert summary["matrix"].curve is None
        assert "left out: its fit would take about" in path.read_text(encoding="utf-8")


def test_a_method_that_fails_says_why(tmp_path):
    class Refusing(TemperatureScaling):
        def _fit(self, data):
            raise ValueError("found <5> classes. Use another")

    path = tmp_path / "page.html"
    methods = {"refusing": Refusing(), "temperature": TemperatureScaling()}
    summary = write_report(predictions(VAL), predictions(TEST), path, methods=methods)
    assert summary.after == "temperature"
    assert "found &lt;5&gt; classes. Use another" in path.read_text(encoding="utf-8")


def test_calibrators_that_are_given_stay_as_they_are(tmp_path):
    given = TemperatureScaling(criterion="brier")
    page = tmp_path / "page.html"
    summary = write_report(predictions(VAL), predictions(TEST), page, methods={"mine": given})
    assert not hasattr(given, "state_")
    assert summary["mine"].row.params["criterion"] == "brier"
    with pytest.raises(ValueError, match="must be a Calibrator"):
        write_report(predictions(VAL), predictions(TEST), page, methods={"mine": "temperature"})


def odd_samples() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    masked = LOGITS[:200].copy()
    masked[np.arange(200), (LABELS[:200] + 1) % 5] = -np.inf
    sure = np.full((200, 5), -80.0)
    sure[np.arange(200), LABELS[:200]] = 80.0
    present = LABELS[:200] % 4
    return {
        "two classes": (LOGITS[:200, :2], LABELS[:200] % 2),
        "one sample": (LOGITS[:1], LABELS[:1]),
        "masked": (masked, LABELS[:200]),
        "never wrong": (sure, LABELS[:200]),
        "always wrong": (sure, (LABELS[:200] + 1) % 5),
        "a class absent": (LOGITS[:200], present),
        "ties": (np.zeros((200, 5)), LABELS[:200]),
        "half precision": (LOGITS[:200].astype(np.float16), LABELS[:200]),
        "huge": (1e30 * LOGITS[:200], LABELS[:200]),
        "many classes": (RNG.standard_normal((60, 1000)), RNG.integers(0, 1000, 60)),
    }


ODD_AND_SLOW = (
    "two classes",
    "half precision",
    "never wrong",
    "always wrong",
    "ties",
    "huge",
    "many classes",
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ODD_AND_SLOW else [])
        for name in odd_samples()
    ],
)
def test_odd_samples_make_a_page(case, tmp_path):
    logits, labels = odd_samples()[case]
    part = Predictions(logits=logits, labels=labels)
    path = tmp_path / "page.html"
    summary = write_report(part, part, path, methods=["auto", "focal-temperature", "histogram"])
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 1_500_000
    data_of(path)
    page = Elements(re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S))
    assert not re.search(r"\b(nan|inf|None|undefined)\b", page.words)
    assert not re.search(r'="(nan|inf|None)"', text.split("<script")[0])
    assert "so all figures are too good" in page.words  # fitted and measured on the same samples
    assert summary.comparison.n == len(labels)


def test_probabilities_with_zeros(tmp_path):
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    probs[probs < 1e-3] = 0.0
    probs /= probs.sum(axis=1, keepdims=True)
    path = tmp_path / "page.html"
    summary = write_report(
        Predictions(probs=probs[VAL], labels=LABELS[VAL]),
        Predictions(probs=probs[TEST], labels=LABELS[TEST]),
        path,
        methods=["temperature"],
    )
    assert summary["identity"].row["ada_ece"].value == pytest.approx(
        ada_ece(probs[TEST], LABELS[TEST]), abs=1e-5
    )
    assert "cal.fit(probs=probs" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("val", "message"),
    [
        (Predictions(logits=LOGITS[VAL]), "val: labels are needed"),
        (Predictions(confidence=np.ones(3), correct=np.ones(3, bool)), "must be of one kind"),
        (predictions(VAL, class_names=("a",)), "class_names must have one entry for each of the 5"),
        (predictions(VAL, ids=np.arange(3)), "ids must have one entry for each of the 600"),
        (Predictions(probs=LOGITS[VAL], labels=LABELS[VAL]), "val: probs"),
        (Predictions(logits=LOGITS[VAL, :3], labels=LABELS[VAL] % 3), "the same number of classes"),
    ],
)
def test_samples_that_cannot_be_used(val, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        write_report(val, predictions(TEST), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["page.txt", "missing/page.html"])
def test_a_page_that_cannot_be_written(name, tmp_path):
    with pytest.raises(ValueError, match=r"written as \.html|there is no folder"):
        write_report(predictions(VAL), predictions(TEST), tmp_path / name)


def test_progress_names_what_comes_next(tmp_path):
    seen: list[str] = []
    write_report(
        predictions(VAL),
        predictions(TEST),
        tmp_path / "page.html",
        methods=["temperature"],
        progress=seen.append,
    )
    assert seen == ["identity", "temperature", "page"]


def test_a_fit_report_shows_itself_in_a_notebook():
    report = CALIBRATORS["auto"]().fit(LOGITS[VAL], LABELS[VAL]).report_
    shown = report._repr_html_()
    assert shown.startswith("<table>")
    assert f"{report.after:.6f}" in shown
    assert "Held out: temperature" in shown
    hostile = FitReport.from_dict({**report.to_dict(), "warnings": [IMAGE], "at_bound": SCRIPT})
    assert "<img" not in hostile._repr_html_()
    assert "<script" not in hostile._repr_html_()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val": (LOGITS, LABELS)}, "a prediction file must be a str or a Path; found tuple"),
        ({"n_resamples": "20"}, "n_resamples must be"),
        ({"by": "sex"}, "'sex'"),
        ({"columns": {"labels": "y"}}, "'labels'. Did you mean 'label'?"),
        ({"metrics": ["calibration_slope"]}, "P(class 1) of two classes; found"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(changes, message, tmp_path):
    given = {"val": predictions(VAL), "test": predictions(TEST), "methods": ["temperature"]}
    begun: list[str] = []
    with pytest.raises(CalibrantError, match=re.escape(message)) as refusal:
        write_report(path=tmp_path / "page.html", progress=begun.append, **{**given, **changes})
    assert "temperature" not in begun
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "page.html").exists()
