"""The shapes in which servers and lm-evaluation-harness log probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from calibrant._inputs.values import described
from calibrant.errors import CalibrantError
from calibrant.files.jsonl.lines import Line

NOT_LOGGED = -9999.0
"""OpenAI and vLLM write this for a token that is too improbable to have a number."""
TOO_MUCH = 0.01
"""Rounded log-probabilities may be this far above 0, and the probabilities above a sum of 1."""
WRONG_SHAPE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What taking JSON apart raises if it is not what it looked like."""
ASK = (
    "Ask the server for them: logprobs=true and top_logprobs=20 in chat completions, logprobs=20 "
    "in completions and in SamplingParams of vLLM"
)


class Logged(NamedTuple):
    """A token and its log-probability."""

    token: str
    log_prob: float


class Position(NamedTuple):
    """What is logged of one token of an answer."""

    sampled: str | None
    """The token that the model wrote."""
    logged: list[Logged]
    """The most probable tokens, and the sampled one even if it is not among them."""
    smallest: float
    """Smallest log-probability of the most probable tokens: no other token has a larger one."""


def log_prob(value: Any) -> float:
    """A number up to 0, perhaps written as a string, as lm-evaluation-harness does."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number) or number > TOO_MUCH:
        raise CalibrantError(
            f"a log-probability must be a number up to 0; found {described(value)}. "
            "Write log-probabilities, not logits or probabilities"
        )
    return number


def positions_of(line: Line) -> list[Position]:
    """The tokens of the answer: OpenAI's or vLLM's shape, bare or as a ``response`` in the line.

    A plain line, whose ``logprobs`` are those of the options, is one position.
    """
    try:
        body = line.get("response", line)
        body = body.get("body", body)
        choice = (body.get("choices") or body.get("outputs") or [body])[0]
        logprobs = choice.get("logprobs")
        if not logprobs:
            raise CalibrantError(f"there are no logprobs; found {_fields(choice)}. {ASK}")
        if isinstance(logprobs, list):
            return _of_vllm(logprobs, choice.get("token_ids"))
        if isinstance(logprobs.get("content"), list):
            return [
                _position(
                    (entry["token"], entry["logprob"]),
                    ((top["token"], top["logprob"]) for top in entry.get("top_logprobs") or ()),
                )
                for entry in logprobs["content"]
            ]
        if isinstance(logprobs.get("top_logprobs"), list):
            columns = (logprobs[name] for name in ("tokens", "token_logprobs", "top_logprobs"))
            return [
                _position((token, number), top.items())
                for token, number, top in zip(*columns, strict=True)
                if top is not None  # of a prompt that is echoed, the first token has none
            ]
        if {"content", "top_logprobs"} & set(logprobs):
            raise CalibrantError(f"logprobs is empty. {ASK}")
        return [_position(None, logprobs.items())]
    except WRONG_SHAPE as error:
        if isinstance(error, CalibrantError):
            raise
        raise CalibrantError(
            "logprobs must have the shape of chat completions, completions, vLLM's outputs or "
            f'{{"A": -0.1, "B": -2.5}}; found another ({type(error).__name__}: {error}). '
            "Write one of these"
        ) from error


class HarnessSample(NamedTuple):
    """A multiple-choice sample of lm-evaluation-harness."""

    log_probs: list[float]
    """Log-likelihood of each choice."""
    texts: tuple[str, ...]
    """The choices."""


def harness_sample(line: Line) -> HarnessSample:
    """The choices of a line that ``lm_eval --log_samples`` wrote."""
    try:
        pairs = line.get("filtered_resps") or [repeats[0] for repeats in line["resps"]]
        requests = line.get("arguments") or ()
        if isinstance(requests, Mapping):
            requests = [list(request.values()) for request in requests.values()]
        texts = tuple(str(request[1]).strip() for request in requests)
    except WRONG_SHAPE:
        pairs = texts = ()
    if not pairs or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise CalibrantError(
            "resps must hold a log-likelihood and a flag for each choice; found "
            f"{described(line.get('filtered_resps', line.get('resps')))}. "
            "Log the samples of a multiple-choice task"
        )
    numbers = [log_prob(number) for number, _ in pairs]
    if len(texts) != len(numbers) or len(set(texts)) < len(texts):
        texts = tuple(map(str, range(len(numbers))))
    return HarnessSample(numbers, texts)


def _of_vllm(
    logprobs: list[Mapping[str, Mapping[str, Any]]], token_ids: list[int] | None
) -> list[Position]:
    """The objects of vLLM's Python interface: for each token, entries by token id."""
    found = []
    for i, entries in enumerate(filter(None, logprobs)):
        top = {key: (each["decoded_token"], each["logprob"]) for key, each in entries.items()}
        # The sampled token is the first entry.
        sampled = next(iter(top)) if token_ids is None else str(token_ids[i])
        found.append(_position(top[sampled], top.values()))
    return found


def _position(sampled: tuple[str, Any] | None, top: Iterable[tuple[str, Any]]) -> Position:
    others = [Logged(str(token), log_prob(number)) for token, number in top]
    token, first = None, []
    if sampled is not None:
        # Servers log it even outside the top k, so its number says nothing about other tokens.
        token, number = str(sampled[0]), log_prob(sampled[1])
        same = [other for other in others if other.token == token]
        if same:
            others.remove(min(same, key=lambda other: abs(other.log_prob - number)))
        first = [Logged(token, number)]
    logged = [each for each in (*first, *others) if each.log_prob > NOT_LOGGED]
    numbers = [other.log_prob for other in others if other.log_prob > NOT_LOGGED]
    return Position(token, logged, min(numbers, default=0.0))


def _fields(line: Mapping[str, Any]) -> str:
    return f"the fields {', '.join(map(str, line))[:120]}" if line else "no fields"
