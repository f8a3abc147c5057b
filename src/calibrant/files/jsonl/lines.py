"""The lines of a log as plain data, each with its number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from calibrant._inputs.skipped import Skipped
from calibrant.errors import CalibrantError

Line: TypeAlias = dict[str, Any]

LOG_PROB, CONFIDENCE = "logprob", "confidence"
"""Sources of lines that do not name theirs."""


def json_lines(
    path: Path, where: str, skipped: Skipped | None = None
) -> Iterator[tuple[str, Line]]:
    """Every line that is not blank, after ``FILE, line 7`` for messages."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                place = f"{where}, line {number}"
                try:
                    line = _parsed(text, place)
                except CalibrantError as refusal:
                    count_or_raise(refusal, skipped)
                else:
                    yield place, line


def count_or_raise(refusal: Exception, skipped: Skipped | None) -> None:
    """Count a line that cannot be used, or refuse it."""
    if skipped is None:
        raise refusal
    skipped.add(str(refusal), rows=1)


def source_of(line: Line) -> str:
    """Where the probabilities of a line come from: its ``source``, or what it holds."""
    return str(line.get("source", CONFIDENCE if "confidence" in line else LOG_PROB))


def sources_of(path: Path, where: str) -> Counter[str]:
    """The sources of a log, with their numbers of lines that can be read."""
    return Counter(source_of(line) for _, line in json_lines(path, where, Skipped()))


def _parsed(text: bytes, place: str) -> Line:
    try:
        line = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at column {error.colno}"
        raise CalibrantError(
            f"{place}: expected one JSON object; found an error: {reason.rstrip('. ')}. "
            "Correct the line or remove it"
        ) from error
    if not isinstance(line, dict):
        raise CalibrantError(
            f"{place}: expected one JSON object; found a {type(line).__name__}. "
            "Write one object per line"
        )
    return line


def _without_repetition(pairs: list[tuple[str, Any]]) -> Line:
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, count), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {name[:40]!r} occurs {count} times")
    return found
