"""The commands on logs of language models: from the example's log to a report."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.files import read_predictions
from examples.language_model.make_log import answers, main as make_log
from tests.processes import run_calibrant

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "language_model"
OPTIONS = ("--options", "A,B,C,D")


def run(*arguments: object) -> str:
    done = run_calibrant(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def log(tmp_path):
    for name in ("val.jsonl", "test.jsonl"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    return tmp_path


def test_the_example_is_what_its_script_writes(tmp_path):
    make_log(tmp_path)
    for name in ("val.jsonl", "test.jsonl"):
        assert (tmp_path / name).read_bytes() == (EXAMPLE / name).read_bytes()


def test_evaluate_gives_the_verdict_at_both_ends(log):
    text = run("evaluate", log / "test.jsonl", *OPTIONS)
    assert "samples an option is not among the logged tokens" in text
    assert "With these options at 0: Over-confident" in text
    assert "With as much as they can have: Over-confident" in text
    assert "class 0" not in text
    (found,) = json.loads(run("evaluate", log / "test.jsonl", *OPTIONS, "--json")).values()
    assert found["side"] == "over-confident"
    assert not found["missing_options"]["differ"]


def test_a_log_and_an_npz_of_its_numbers_agree(log):
    read = read_predictions(log / "test.jsonl", options=[*"ABCD"])
    np.savez(log / "same.npz", logits=read.logits, labels=read.labels)
    texts = [log / "same.npz", log / "test.jsonl"]
    both = [json.loads(run("evaluate", texts[0], "--json")), None]
    both[1] = json.loads(run("evaluate", texts[1], *OPTIONS, "--json"))
    first, second = (next(iter(each.values())) for each in both)
    assert first["metrics"] == second["metrics"]


def test_fit_and_apply_write_the_same_lines_with_probs(log):
    said = run("fit", log / "val.jsonl", *OPTIONS, "--method", "temperature", "-o", log / "c.json")
    assert "FILE --options A,B,C,D" in said
    for out in ("out.jsonl", "out.npz"):
        run("apply", log / "c.json", log / "test.jsonl", *OPTIONS, "-o", log / out)
    before = [json.loads(line) for line in (log / "test.jsonl").read_text().splitlines()]
    after = [json.loads(line) for line in (log / "out.jsonl").read_text().splitlines()]
    assert [
        {key: line[key] for key in old} for line, old in zip(after, before, strict=True)
    ] == before
    assert after[0].keys() - before[0].keys() == {"probs", "calibrator"}
    assert after[0]["probs"].keys() == set("ABCD")
    again, arrays = read_predictions(log / "out.jsonl"), read_predictions(log / "out.npz")
    np.testing.assert_array_equal(again.probs, arrays.probs)
    np.testing.assert_array_equal(again.labels, arrays.labels)
    assert "No miscalibration" in run("evaluate", log / "out.jsonl")


def test_only_the_lines_of_one_source_are_calibrated(log):
    lines = (log / "val.jsonl").read_text().splitlines()
    lines.insert(3, json.dumps({"confidence": 0.7, "correct": False, "source": "verbal"}))
    (log / "both.jsonl").write_text("\n".join(lines))
    done = run_calibrant("fit", log / "both.jsonl", *OPTIONS, "-o", log / "c.json")
    assert done.exit_code == 2
    assert "mixes the sources logprob (400 lines), verbal (1 lines)" in done.output
    assert not (log / "c.json").exists()
    chosen = (*OPTIONS, "--source", "logprob")
    run("fit", log / "both.jsonl", *chosen, "--method", "temperature", "-o", log / "c.json")
    run("apply", log / "c.json", log / "both.jsonl", *chosen, "-o", log / "out.jsonl")
    assert len((log / "out.jsonl").read_text().splitlines()) == 400


def test_compare_and_report_say_what_is_missing(log):
    methods = ("--method", "identity,temperature")
    text = run("compare", log / "val.jsonl", log / "test.jsonl", *OPTIONS, *methods)
    assert "samples an option is not among the logged tokens" in text
    assert "val.jsonl --options A,B,C,D --method NAME" in text
    page = log / "page.html"
    run("report", log / "val.jsonl", log / "test.jsonl", *OPTIONS, *methods, "-o", page)
    written = re.sub("<[^>]+>", "", page.read_text())
    assert "samples an option is not among the logged tokens" in written
    assert "With these options at 0: Over-confident" in written
    assert "val.jsonl --options A,B,C,D" in written
    assert "FILE --options A,B,C,D -o" in written
    assert "question-" in written


def test_the_report_of_an_undecided_log(tmp_path):
    rng = np.random.default_rng(0)
    files = [tmp_path / "val.jsonl", tmp_path / "test.jsonl"]
    for file in files:
        lines = answers(rng, 1000, stretch=1.0, top_logprobs=2)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "page.html"
    said = run("report", *files, *OPTIONS, "--method", "temperature", "-o", page)
    assert "Undecided: " in said
    assert "the verdict depends on options that the log leaves out" in page.read_text()


def test_confidences_to_calibrate_need_not_say_which_are_correct(tmp_path):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 300)
    lines = [
        {"confidence": each, "correct": bool(rng.random() < each - 0.2)} for each in confidence
    ]
    for name, rows in (
        ("val", lines),
        ("new", [{"confidence": line["confidence"]} for line in lines]),
        ("mixed", [*lines[:2], {"confidence": 0.5}]),
    ):
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / f"{name}.jsonl").write_text(text)
    run("fit", tmp_path / "val.jsonl", "--method", "platt", "-o", tmp_path / "c.json")
    for name in ("val", "new"):
        out = tmp_path / f"{name}-out.jsonl"
        run("apply", tmp_path / "c.json", tmp_path / f"{name}.jsonl", "-o", out)
    written = [(tmp_path / f"{name}-out.jsonl").read_text().splitlines() for name in ("val", "new")]
    for with_correct, without in zip(*written, strict=True):
        assert json.loads(without)["confidence"] == json.loads(with_correct)["confidence"]
    refused = {
        "new.jsonl, line 1: a confidence needs correct": ("evaluate", tmp_path / "new.jsonl"),
        "mixed.jsonl, line 3: all lines must have a label or none": (
            *("apply", tmp_path / "c.json", tmp_path / "mixed.jsonl"),
            *("-o", tmp_path / "mixed-out.jsonl"),
        ),
    }
    for message, command in refused.items():
        done = run_calibrant(*command)
        assert done.exit_code == 2
        assert message in done.output


BAD_LINES = {
    1: '{"probs": {"A": 0.5}, "label": "A"}',
    2: "{cut off",
    5: "[1, 2]",
    8: '{"probs": {"A": 0.9, "B": 0.9, "C": 0, "D": 0}, "label": "A"}',
    9: '{"probs": {"A": 0.9, "B": 0.1, "C": 0, "D": 0}, "label": "E"}',
}


def test_lines_that_cannot_be_used_are_skipped_and_counted(log):
    rng = np.random.default_rng(0)
    good = [
        json.dumps({"probs": dict(zip("ABCD", row, strict=True)), "label": "ABCD"[row.argmax()]})
        for row in rng.dirichlet(np.ones(4), 200)
    ]
    bad = good.copy()
    for number, line in BAD_LINES.items():
        bad.insert(number - 1, line)
    for name, lines in (("good", good), ("bad", bad)):
        (log / f"{name}.jsonl").write_text("\n".join(lines))
    refused = run_calibrant("evaluate", log / "bad.jsonl")
    assert refused.exit_code == 2
    assert "bad.jsonl, line 1: a line must have two or more options" in refused.output
    said = run("evaluate", log / "bad.jsonl", "--skip-bad")
    assert "Skipped: 5 rows, 0 whole files, 0 damaged row groups" in said
    assert all(f"line {number}" in said for number in BAD_LINES)
    found = [
        next(iter(json.loads(run("evaluate", *arguments, "--json")).values()))["metrics"]
        for arguments in ([log / "good.jsonl"], [log / "bad.jsonl", "--skip-bad"])
    ]
    assert found[0] == found[1]
    fit = ("fit", log / "bad.jsonl", "--method", "temperature", "-o", log / "c.json")
    assert "Skipped: 5 rows" in run(*fit, "--skip-bad")
    for name, options in (("good", ()), ("bad", ("--skip-bad",))):
        out = log / f"{name}-out.jsonl"
        said = run("apply", log / "c.json", log / f"{name}.jsonl", "-o", out, *options)
        assert ("Skipped: 5 rows" in said) == (name == "bad")
    assert (log / "good-out.jsonl").read_text() == (log / "bad-out.jsonl").read_text()


def test_a_log_of_bad_lines_alone_is_refused(log):
    (log / "bad.jsonl").write_text("\n".join(BAD_LINES.values()))
    done = run_calibrant("evaluate", log / "bad.jsonl", "--skip-bad", "--options", "A,B,C")
    assert done.exit_code == 2
    assert "bad.jsonl has no usable row. Skipped: 5 rows" in done.output


def test_a_calibrator_is_for_one_source(tmp_path):
    rng = np.random.default_rng(0)
    for source in ("verbal", "judge"):
        lines = [
            {"confidence": round(p, 3), "correct": bool(rng.random() < p), "source": source}
            for p in rng.uniform(0.5, 1.0, size=60)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{source}.jsonl").write_text(text)
    cal, out = tmp_path / "cal.json", tmp_path / "out.jsonl"
    run("fit", tmp_path / "verbal.jsonl", "--method", "temperature", "-o", cal)
    assert calibrant.load(cal).origin_.source == "verbal"
    assert re.search("source +verbal", run("info", cal))
    done = run_calibrant("apply", cal, tmp_path / "judge.jsonl", "-o", out)
    assert done.exit_code == 2
    assert "this calibrator is for the source verbal; found judge" in done.output
    assert not out.exists()
    run("apply", cal, tmp_path / "verbal.jsonl", "-o", out)


def test_a_log_is_read_by_one_process(log):
    done = run_calibrant("evaluate", log / "test.jsonl", *OPTIONS, "--scheduler", "local")
    assert done.exit_code == 2
    assert "--scheduler is for Parquet files and folders; found" in done.stderr
    assert "test.jsonl, the log of a language model. Leave it out" in " ".join(done.stderr.split())
