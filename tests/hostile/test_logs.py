"""Wrong lines of a language model's log get one line with their number, and nothing is written."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from calibrant.errors import CalibrantError
from calibrant.files import read_predictions
from tests.processes import run_calibrant

GOOD = '{"logprobs": {"A": -0.2, "B": -2.0}, "label": "A"}'
TOKEN = {"token": "The", "logprob": -0.1, "top_logprobs": [{"token": "The", "logprob": -0.1}]}
WORDS = {"choices": [{"logprobs": {"content": [TOKEN, {**TOKEN, "token": " end"}]}}]}
BAD = {
    '{"logprobs": {"A": -0.2,': "line 2: expected one JSON object; found an error: .* at column",
    "[1, 2]": "line 2: expected one JSON object; found a list. Write one object per line",
    '{"a": 1, "a": 2}': "line 2: .*the key 'a' occurs 2 times",
    '{"a": ' + 5000 * "9" + "}": "line 2: expected one JSON object",
    20_000 * '{"a":': "line 2: expected one JSON object",
    '{"x": "\udcff"}': "line 2: expected one JSON object; found an error: .*decode",
    '{"logprobs": {"A": NaN, "B": -1}}': "line 2: a log-probability must be .* found float nan",
    '{"logprobs": {"A": 2.5, "B": -1}}': "line 2: .* up to 0; found float 2.5. Write log-prob",
    '{"logprobs": {"A": true, "B": -1}}': "line 2: .* found bool True",
    '{"logprobs": {"A": "x", "B": -1}}': "line 2: .* found str 'x'",
    '{"logprobs": {"A": 1' + 400 * "0" + "}}": "line 2: a log-probability must be",
    '{"logprobs": {"A": -0.1, "B": -0.1}}': "line 2: the probabilities .* at most 1; found 1.81",
    '{"logprobs": {"A": -0.1, "C": -3}}': "line 2: the options must be those of the first line",
    '{"logprobs": {"A": -0.2, "B": -2}, "label": "E"}': "line 2: the label .* A, B.* found str 'E'",
    '{"logprobs": {"A": -0.2, "B": -2}, "label": 2}': "line 2: the label .* found int 2",
    '{"logprobs": {"A": -0.2, "B": -2}, "label": true}': "line 2: the label .* found bool True",
    '{"logprobs": {"A": -0.2, "B": -2}}': "line 2: all lines must have a label or none; found none",
    '{"logprobs": 3, "label": 0}': "line 2: logprobs must have the shape .*; found another",
    '{"logprobs": {"content": [{"token": "A"}]}}': "line 2: logprobs must have the shape",
    '{"logprobs": {"content": null}}': "line 2: logprobs is empty. Ask the server for them",
    '{"choices": [{"message": {}, "logprobs": null}]}': "line 2: there are no logprobs; found the "
    "fields message, logprobs. Ask the server for them: logprobs=true and top_logprobs=20",
    '{"text": "A"}': "line 2: there are no logprobs; found the fields text. Ask",
    '{"choices": []}': "line 2: there are no logprobs",
    json.dumps(WORDS): "line 2: the options are not known: .* --options A,B,C,D",
    '{"filtered_resps": ["the answer"], "target": 0}': "line 2: resps must hold a log-likelihood",
    '{"filtered_resps": [["x", "False"]], "target": 0}': "line 2: a log-probability must be",
    '{"probs": {"A": 0.5, "B": "x"}, "label": 0}': "line 2: probs\\['B'\\] must be a number",
    '{"probs": {"A": 0.5, "B": 0.5}, "label": 0}': "line 2: a line must hold what the first one",
    '{"confidence": 0.5, "correct": true, "source": "logprob"}': "line 2: a line must hold what",
    '{"confidence": 0.5, "source": "logprob"}': "line 2: a confidence needs correct",
    '{"confidence": 0.5, "correct": true}': r"mixes the sources logprob \(1 lines\), confidence "
    r"\(1 lines\)\. .* choose one with --source logprob",
    '{"logprobs": {"A": -0.2, "B": -2}, "source": "judge"}': r"logprob \(1 lines\), judge \(1",
}


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    return path


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_bad_line(line, tmp_path):
    path = write(tmp_path, GOOD, line)
    with pytest.raises(CalibrantError, match=BAD[line]) as caught:
        read_predictions(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 600


def test_any_json_is_read_or_refused(tmp_path_factory):
    names = (
        "logprobs",
        "content",
        "top_logprobs",
        "token",
        "logprob",
        "choices",
        "response",
        "body",
    )
    more = ("outputs", "tokens", "token_logprobs", "token_ids", "resps", "filtered_resps", "label")
    keys = st.sampled_from([*names, *more, "body", "arguments", "probs", "confidence", "id", "A"])
    leaves = st.none() | st.booleans() | st.floats(max_value=0) | st.sampled_from(["A", "-1.5"])
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
    path = tmp_path_factory.mktemp("any") / "log.jsonl"

    @given(st.dictionaries(keys, values, min_size=1, max_size=5), st.booleans())
    def check(line, named):
        path.write_text(json.dumps(line))
        with contextlib.suppress(CalibrantError):
            read_predictions(path, options=["A", "B"] if named else None)

    check()


def test_options_that_are_not_there(tmp_path):
    path = write(tmp_path, json.dumps(WORDS))
    with pytest.raises(CalibrantError, match=r"line 1: none of .* A, B .*; found 'The', ' end'"):
        read_predictions(path, options=["A", "B"])
    one = {"choices": [{"logprobs": {"content": [TOKEN]}}]}
    with pytest.raises(CalibrantError, match=r"line 1: none of .* in its top tokens; found 'The'"):
        read_predictions(write(tmp_path, json.dumps(one)), options=["A", "B"])


@pytest.mark.parametrize(
    ("text", "asked", "message"),
    [
        ("", {}, "is empty"),
        (" \n\n", {}, "has no lines. Write one JSON object per line"),
        (GOOD, {"source": "verbal"}, "has no lines of the source verbal; found logprob"),
        (GOOD, {"label": "meta.key"}, "there is no field meta.key; found logprobs, label"),
    ],
)
def test_a_log_without_samples(text, asked, message, tmp_path):
    with pytest.raises(CalibrantError, match=message):
        read_predictions(write(tmp_path, text), **asked)


@pytest.mark.parametrize("options", ["A", ["A"], ["A", "A"], ["A", ""], ["A", " B"], ["A", 1]])
def test_wrong_options(options, tmp_path):
    with pytest.raises(CalibrantError, match="options must be two or more different texts"):
        read_predictions(write(tmp_path, GOOD), options=options)


def test_names_for_another_kind_of_file(tmp_path):
    (tmp_path / "a.csv").write_text("label,prob_0,prob_1\n0,0.5,0.5\n")
    with pytest.raises(CalibrantError, match=r"options, source and skipped are for \.jsonl files"):
        read_predictions(tmp_path / "a.csv", source="judge")
    with pytest.raises(CalibrantError, match="score and positive are for tables"):
        read_predictions(write(tmp_path, GOOD), positive="A")
    with pytest.raises(CalibrantError, match=r"has no parts. Drop ::val"):
        read_predictions(f"{write(tmp_path, GOOD)}::val")


@pytest.mark.parametrize("bad", [GOOD[:20], '{"choices": [{"logprobs": null}]}', json.dumps(WORDS)])
def test_commands_answer_in_one_line_and_write_nothing(bad, tmp_path):
    log = write(tmp_path, GOOD, bad)
    options = ("--options", "A,B")
    good = tmp_path / "good.jsonl"
    good.write_text("\n".join(GOOD.replace('"A"}', f'"{"AB"[i % 2]}"}}') for i in range(20)))
    calibrator = tmp_path / "cal.json"
    fitted = run_calibrant("fit", good, "--method", "temperature", "-o", calibrator)
    assert fitted.exit_code == 0, fitted.output
    before = sorted(tmp_path.iterdir())
    for command in (
        ("evaluate", log, *options, "--plot", tmp_path / "plot.png"),
        ("fit", log, *options, "-o", tmp_path / "new.json"),
        ("apply", calibrator, log, *options, "-o", tmp_path / "new.jsonl"),
        ("compare", good, log, *options),
        ("report", good, log, *options, "-o", tmp_path / "page.html"),
    ):
        done = run_calibrant(*command)
        assert done.exit_code == 2, command
        lines = done.output.strip().splitlines()
        assert len(lines) == 1
        assert "line 2" in lines[0]
    assert sorted(tmp_path.iterdir()) == before
