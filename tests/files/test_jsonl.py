"""Logs of language models: every shape gives the same numbers, and bounds hold what is missing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from calibrant.files import iter_predictions, read_predictions
from calibrant.files.jsonl.options import answer_position, option_scores, text_of
from calibrant.files.jsonl.shapes import Logged, Position, positions_of

OPTIONS = ("A", "B", "C", "D")
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(12, 4))
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True)) - 0.1
LABELS = RNG.integers(4, size=12)


def write(tmp_path: Path, lines: list[Any], name: str = "log.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chat(top: dict[str, float], sampled: str | None = None, before: tuple[str, ...] = ()) -> dict:
    """A chat completion whose answer token follows the tokens ``before``."""
    token = max(top, key=top.__getitem__) if sampled is None else sampled
    content = [{"token": word, "logprob": -0.1, "top_logprobs": []} for word in before]
    entries = [{"token": t, "logprob": n, "bytes": list(t.encode())} for t, n in top.items()]
    number = top.get(token, -9999.0)
    content.append({"token": token, "logprob": number, "top_logprobs": entries})
    return {"choices": [{"message": {"content": token}, "logprobs": {"content": content}}]}


def completion(top: dict[str, float]) -> dict:
    token = max(top, key=top.__getitem__)
    columns = {"tokens": ["\n", token], "token_logprobs": [None, top[token]]}
    return {"choices": [{"logprobs": {**columns, "top_logprobs": [None, top]}}]}


def vllm(top: dict[str, float]) -> dict:
    entries = {
        str(100 + i): {"logprob": number, "rank": i + 1, "decoded_token": token}
        for i, (token, number) in enumerate(top.items())
    }
    best = max(entries, key=lambda key: entries[key]["logprob"])
    return {"outputs": [{"token_ids": [int(best)], "logprobs": [entries]}]}


SHAPES = {
    "chat": chat,
    "batch": lambda top: {"custom_id": "x", "response": {"status_code": 200, "body": chat(top)}},
    "wrapped": lambda top: {"response": chat(top)},
    "after other words": lambda top: chat(top, before=("The", " answer", ":")),
    "completions": completion,
    "vllm": vllm,
    "plain": lambda top: {"logprobs": top},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_the_numbers_of_an_npz(shape, tmp_path):
    lines = []
    for row, label in zip(LOG_PROBS, LABELS, strict=True):
        top = dict(zip(OPTIONS, row.tolist(), strict=True))
        lines.append({**SHAPES[shape](top), "label": OPTIONS[label]})
    np.savez(tmp_path / "same.npz", logits=LOG_PROBS, labels=LABELS)
    same = read_predictions(tmp_path / "same.npz")
    found = read_predictions(write(tmp_path, lines), options=OPTIONS)
    np.testing.assert_allclose(found.logits, same.logits, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.labels, same.labels)
    assert found.class_names == OPTIONS
    assert found.upper_logits is None


@pytest.mark.parametrize("stored", ["current", "numbers", "resps"])
@pytest.mark.parametrize("target", [str, int, lambda index: f"text {index}"])
def test_samples_of_the_harness(stored, target, tmp_path):
    lines = []
    for i, (row, label) in enumerate(zip(LOG_PROBS, LABELS, strict=True)):
        pairs: list[list[Any]] = [[str(number), "False"] for number in row]
        line: dict[str, Any] = {"doc_id": i, "doc": {}, "target": target(int(label))}
        arguments = [["question", f" text {k}"] for k in range(4)]
        if stored == "resps":
            line |= {"resps": [[pair] for pair in pairs], "arguments": arguments}
        else:
            if stored == "numbers":
                pairs = [[number, False] for number in row.tolist()]
            named = {
                f"gen_args_{k}": {"arg_0": a, "arg_1": b} for k, (a, b) in enumerate(arguments)
            }
            line |= {"resps": [[pair] for pair in pairs], "filtered_resps": pairs}
            line |= {"arguments": named}
        lines.append(line)
    found = read_predictions(write(tmp_path, lines))
    np.testing.assert_allclose(found.logits, LOG_PROBS, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.labels, LABELS)
    np.testing.assert_array_equal(found.ids, np.arange(12))
    assert found.class_names == tuple(f"text {k}" for k in range(4))


def test_questions_with_fewer_choices_are_padded(tmp_path):
    pairs = [[-1.0, False], [-2.0, False], [-3.0, False]]
    lines = [{"filtered_resps": pairs[:k], "target": 1} for k in (3, 2)]
    found = read_predictions(write(tmp_path, lines))
    np.testing.assert_array_equal(found.logits, [[-1, -2, -3], [-1, -2, -math.inf]])
    assert found.class_names is None


def test_tokens_with_and_without_a_space_are_added(tmp_path):
    top = {"A": -1.0, " A": -2.0, "▁B": -1.5, "ĠB\n": -3.0, "C": -4.0, "D": -5.0}
    path = write(tmp_path, [chat(top)])
    found = read_predictions(path, options=OPTIONS)
    expected = [np.logaddexp(-1, -2), np.logaddexp(-1.5, -3), -4, -5]
    np.testing.assert_allclose(found.logits, [expected], atol=1e-12)


def test_a_missing_option_gets_half_of_the_smallest_logged_value(tmp_path):
    path = write(tmp_path, [chat({"A": -0.5, "B": -1.5, "The": -3.0})])
    found = read_predictions(path, options=OPTIONS)
    np.testing.assert_allclose(found.upper_logits, [[-0.5, -1.5, -3.0, -3.0]])
    np.testing.assert_allclose(found.logits, [[-0.5, -1.5, -3 - math.log(2), -3 - math.log(2)]])


def test_missing_options_share_what_the_logged_tokens_leave(tmp_path):
    top = {"A": math.log(0.6), "B": math.log(0.3)}
    found = read_predictions(write(tmp_path, [chat(top)]), options=OPTIONS)
    np.testing.assert_allclose(np.exp(found.upper_logits), [[0.6, 0.3, 0.05, 0.05]])


def test_a_sampled_token_outside_the_top_k_bounds_nothing(tmp_path):
    line = chat({"B": -0.5, "The": -3.0}, sampled="A")
    line["choices"][0]["logprobs"]["content"][0]["logprob"] = -7.0
    found = read_predictions(write(tmp_path, [line]), options=OPTIONS)
    np.testing.assert_allclose(found.upper_logits, [[-7.0, -0.5, -3.0, -3.0]])


def test_minus_9999_is_no_number(tmp_path):
    line = chat({"A": -0.01, "B": -9999.0, "The": -math.inf, "C": -6.0})
    found = read_predictions(write(tmp_path, [line]), options=OPTIONS)
    rest = math.log((1 - math.exp(-0.01) - math.exp(-6)) / 2)
    np.testing.assert_allclose(found.upper_logits, [[-0.01, min(-6, rest), -6, min(-6, rest)]])


@pytest.mark.parametrize(
    ("options", "label", "index"),
    [
        ("A,B", "B", 1),
        ("A,B", " B", 1),
        ("A,B", 1, 1),
        ("A,B", "0", 0),
        ("1,2", 1, 0),
        ("yes,no", "no", 1),
    ],
)
def test_labels_are_texts_or_indices(options, label, index, tmp_path):
    names = options.split(",")
    line = {"logprobs": dict.fromkeys(names, -1.0), "meta": {"key": label}}
    found = read_predictions(write(tmp_path, [line]), options=names, label="meta.key")
    assert found.labels.tolist() == [index]


def test_plain_lines_name_the_options_in_any_order(tmp_path):
    lines = [
        {"id": 7, "logprobs": {"no": -1.0, "yes": -0.5}, "label": "yes"},
        {"id": 8, "logprobs": {"yes": -0.1, "no": -2.5}, "answer": "no"},
    ]
    found = read_predictions(write(tmp_path, lines))
    assert found.class_names == ("no", "yes")
    np.testing.assert_array_equal(found.logits, [[-1.0, -0.5], [-2.5, -0.1]])
    assert (found.labels.tolist(), found.ids.tolist()) == ([1, 0], [7, 8])


def test_confidences_and_probabilities(tmp_path):
    lines = [{"confidence": 0.9, "correct": True}, {"confidence": 0.4, "correct": 0}]
    stated = read_predictions(write(tmp_path, lines))
    assert (stated.confidence.tolist(), stated.correct.tolist()) == ([0.9, 0.4], [True, False])
    lines = [{"probs": {"A": 0.25, "B": 0.75}, "label": "B", **chat({"C": -0.1})}]
    calibrated = read_predictions(write(tmp_path, lines))
    assert (calibrated.probs.tolist(), calibrated.labels.tolist()) == ([[0.25, 0.75]], [1])


def test_one_source_is_read(tmp_path):
    lines = [
        {"logprobs": {"A": -0.1, "B": -3.0}, "label": "A"},
        {"confidence": 0.9, "correct": True, "source": "verbal"},
        {"logprobs": {"A": -1.0, "B": -1.0}, "label": "B", "source": "logprob"},
    ]
    path = write(tmp_path, lines)
    assert len(read_predictions(path, source="logprob")) == 2
    assert read_predictions(path, source="verbal").confidence.tolist() == [0.9]


def test_batches_and_blank_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    line = json.dumps({"logprobs": {"A": -0.1, "B": -3.0}})
    path.write_bytes(b"\xef\xbb\xbf" + f"{line}\n\n  \r\n{line}\r\n{line}".encode())
    assert [len(batch) for batch in iter_predictions(path, batch_rows=2)] == [2, 1]


@given(
    scores=st.lists(st.floats(-12, 4), min_size=6, max_size=30),
    k=st.integers(1, 8),
    sampled=st.integers(0, 29),
)
def test_the_truth_is_between_the_ends(scores, k, sampled):
    """Tokens 0 to 3 are the options, the sampled token and the top k are logged."""
    exact = np.array(scores) - np.log(np.exp(scores).sum())
    tokens = [*OPTIONS, *(f"word {i}" for i in range(len(scores) - 4))]
    sampled %= len(scores)
    top = np.argsort(-exact)[:k]
    if min(*top, sampled) >= len(OPTIONS):
        return
    others = [Logged(tokens[i], exact[i]) for i in top]
    entries = [{"token": each.token, "logprob": each.log_prob} for each in others]
    content = {"token": tokens[sampled], "logprob": exact[sampled], "top_logprobs": entries}
    (position,) = positions_of({"choices": [{"logprobs": {"content": [content]}}]})
    between, upper = option_scores(position, OPTIONS)
    known = np.isclose(between, exact[:4], atol=1e-12)
    missing = np.array(upper) > np.array(between)
    assert (known | missing).all()
    # The probability of all missing options, and with it that of every other option.
    assert np.exp(exact[:4])[missing].sum() <= np.exp(upper)[missing].sum() + 2e-6
    largest = np.where(missing, 0.0, np.exp(exact[:4]))
    smallest = np.exp(upper)
    truth = np.exp(exact[:4]) / np.exp(exact[:4]).sum()
    assert (truth <= largest / largest.sum() + 1e-9)[~missing].all()
    assert (truth >= smallest / smallest.sum() - 1e-5)[~missing].all()


def test_the_first_option_that_the_model_wrote_is_the_answer():
    words = [Position(word, [Logged(word, -0.1)], 0.0) for word in ("The", " B", ".", " A")]
    assert answer_position(words, OPTIONS).sampled == " B"
    assert answer_position(words[:1], OPTIONS).sampled == "The"
    assert text_of("Ġ B\n") == "B"
