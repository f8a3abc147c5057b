"""The samples of a log: one line each, of one source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrant import _inputs
from calibrant._inputs.values import described, finite_number
from calibrant.errors import CalibrantError
from calibrant.files.jsonl.lines import Line, count_or_raise, json_lines, source_of, sources_of
from calibrant.files.jsonl.options import (
    answer_position,
    label_index,
    option_scores,
    text_of,
)
from calibrant.files.jsonl.shapes import harness_sample, positions_of
from calibrant.files.layout import OTHER, Asked, Layout, listed
from calibrant.files.predictions import Block

LABELS = ("label", "answer", "target")
IDS = ("id", "custom_id", "doc_id")
ABSENT = object()
"""What a line has instead of a field that it lacks."""


class Sample(NamedTuple):
    """What one line holds."""

    kind: str
    """``"logits"``, ``"probs"`` or ``"confidence"``."""
    scores: list[float]
    upper: list[float]
    """The largest possible scores, where options are missing."""
    options: tuple[str, ...]
    target: int | None
    """Index of the correct option; of a confidence, whether the answer is correct."""


class JsonlSource:
    """A ``.jsonl`` file. It has no header, so all lines are read before the first block."""

    rows: int | None = None  # known only at the end
    n_classes: int | None = None
    class_names: tuple[str, ...] | None = None
    layout = Layout("logits")
    """Its kind is known once the lines are read, and so are the class names."""

    def __init__(self, path: Path, part: str | None, where: str, asked: Asked) -> None:
        if part is not None:
            raise CalibrantError(f"{where}: a .jsonl file has no parts. Drop ::{part}")
        if asked.score or asked.positive is not None:
            raise CalibrantError(
                f"{where}: score and positive are for tables; found a .jsonl file. Leave them out, "
                "and name the options"
            )
        self.path = path
        self.where = where
        self.asked = asked
        self.options = asked.options
        """Of all lines; None until a plain line names them."""
        self.source = asked.source
        """Of all lines; None until the first is read."""

    def lines(self) -> Iterator[tuple[str, Line]]:
        """The lines of the source that was asked for, or of the only one."""
        for place, line in json_lines(self.path, self.where, self.asked.skipped):
            self.source = source_of(line) if self.source is None else self.source
            if source_of(line) == self.source:
                yield place, line
            elif self.asked.source is None:
                raise self._several_sources()

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """One block with all samples, which are read once."""
        yield self._all

    @cached_property
    def _all(self) -> Block:
        samples: list[Sample] = []
        ids = []
        others: dict[str, list[Any]] = {name: [] for name in self.asked.named}
        for line, sample in self.samples():
            samples.append(sample)
            ids.append(next((line[name] for name in IDS if name in line), None))
            for name, values in others.items():
                values.append(_field(line, name))
        if not samples:
            raise self._no_lines()
        self.layout = Layout(samples[0].kind)
        names = {sample.options for sample in samples}
        self.class_names = self.options or (names.pop() if len(names) == 1 else None)
        columns = {OTHER + name: self._column(name, others[name]) for name in others}
        return _block(samples, ids) | columns

    def samples(self) -> Iterator[tuple[Line, Sample]]:
        """The lines that can be used, and what they hold."""
        first, skipped = None, self.asked.skipped
        for place, line in self.lines():
            options = self.options
            try:
                with _inputs.naming(place):
                    sample = self._sample(line)
                    _check_like(first or sample, sample)
                    if skipped is not None:
                        _check_scores(sample)
            except (ValueError, TypeError) as refusal:
                count_or_raise(refusal, skipped)
                self.options = options
            else:
                first = first or sample
                yield line, sample

    def _column(self, name: str, values: list[Any]) -> Any:
        """The values of a field in every line; None where it is missing, but not everywhere."""
        if all(value is ABSENT for value in values):
            first = next(line for _, line in self.lines())
            raise CalibrantError(
                f"{self.where} has no field {name}; found {listed(list(first))}. Check the name"
            )
        for value in values:
            if isinstance(value, list | dict):
                raise CalibrantError(
                    f"{self.where}: the field {name} must be text or a number; found "
                    f"{described(value)}. Name another, such as {name}.country"
                )
        return np.array([None if each is ABSENT else each for each in values], dtype=object)

    def _sample(self, line: Line) -> Sample:
        if isinstance(line.get("probs"), dict):
            options = self._options_of(line["probs"])
            by_text = {text_of(name): number for name, number in line["probs"].items()}
            absent = [option for option in options if option not in by_text]
            if absent:
                raise CalibrantError(
                    f"probs must have every option; found none for {listed(absent)}. Add it"
                )
            probs = [finite_number(by_text[option], f"probs[{option!r}]") for option in options]
            return Sample("probs", probs, probs, options, self._label(line, options))
        if "resps" in line or "filtered_resps" in line:
            scores, texts = harness_sample(line)
            if self.options is not None and len(self.options) != len(scores):
                raise CalibrantError(
                    f"there must be one choice for each of the options {listed(self.options)}; "
                    f"found {len(scores)}. Leave out --options"
                )
            options = self.options or texts
            label = self._label(line, options, index_first=True)
            return Sample("logits", scores, scores, options, label)
        if "confidence" in line and "logprobs" not in line:
            confidence = finite_number(line["confidence"], "confidence")
            needed = self.asked.keep is not True  # not for ``apply``
            correct = _correct(line) if needed or "correct" in line else None
            scores = [confidence]
            return Sample("confidence", scores, scores, (), correct)
        positions = positions_of(line)
        plain = bool(positions) and positions[0].sampled is None
        options = self._options_of(line.get("logprobs") if plain else None)
        log_probs, upper = option_scores(answer_position(positions, options), options)
        return Sample("logits", log_probs, upper, options, self._label(line, options))

    def _options_of(self, keys: dict[str, Any] | None) -> tuple[str, ...]:
        """The options: those asked for, or the keys of plain lines, which must agree."""
        if self.asked.options is None:
            if keys is None:
                raise CalibrantError(
                    "the options are not known: the line is a completion. Name them, for example "
                    "--options A,B,C,D"
                )
            named = tuple(dict.fromkeys(map(text_of, keys)))
            if len(named) < 2:
                raise CalibrantError(
                    f"a line must have two or more options; found {listed(named)}. Add the others"
                )
            self.options = self.options or named
            if set(self.options) != set(named):
                raise CalibrantError(
                    f"the options must be those of the first line, {listed(self.options)}; found "
                    f"{listed(named)}. If some are missing, name all with --options"
                )
        assert self.options is not None
        return self.options

    def _label(
        self, line: Line, options: Sequence[str], *, index_first: bool = False
    ) -> int | None:
        path = self.asked.label or next((name for name in LABELS if name in line), None)
        if path is None:
            return None
        found = _field(line, path)
        if found is ABSENT:
            raise CalibrantError(
                f"there is no field {path}; found {listed(list(line))}. "
                "Name the field of the correct option with --label"
            )
        return label_index(found, options, index_first=index_first)

    def _several_sources(self) -> CalibrantError:
        found = sources_of(self.path, self.where)
        counts = ", ".join(f"{name} ({count} lines)" for name, count in found.most_common())
        return CalibrantError(
            f"{self.where} mixes the sources {counts}. Each has errors of its own: choose one with "
            f"--source {next(iter(found))}"
        )

    def _no_lines(self) -> CalibrantError:
        found = sources_of(self.path, self.where)
        if self.asked.skipped:
            return CalibrantError(f"{self.where} has no usable row. {self.asked.skipped}")
        if not found:
            return CalibrantError(f"{self.where} has no lines. Write one JSON object per line")
        return CalibrantError(
            f"{self.where} has no lines of the source {self.asked.source}; found "
            f"{listed(list(found))}. Choose one of these with --source"
        )


def _field(line: Line, path: str) -> Any:
    """The field of a line, such as ``meta.key``; ``ABSENT`` if there is none."""
    found: Any = line
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return ABSENT
        found = found[key]
    return found


def _correct(line: Line) -> int:
    if line.get("correct") not in (0, 1):
        raise CalibrantError(
            "a confidence needs correct, true or false; found "
            f"{described(line.get('correct'))}. Add it"
        )
    return int(line["correct"])


def _check_like(first: Sample, sample: Sample) -> None:
    if sample.kind != first.kind:
        raise CalibrantError(
            f"a line must hold what the first one holds, {first.kind}; found {sample.kind}. Give "
            "them different sources and choose one with --source"
        )
    if (sample.target is None) != (first.target is None):
        raise CalibrantError(
            "all lines must have a label or none; found "
            f"{'none here' if sample.target is None else 'one here'}. Add the others"
        )


def _check_scores(sample: Sample) -> None:
    """Refuse what would otherwise be refused once all lines are read."""
    if sample.kind == "logits":
        _inputs.logits(np.array([sample.scores]))
    elif sample.kind == "probs":
        _inputs.probs(np.array([sample.scores]))
    else:
        _inputs.probs(np.array([[1.0 - sample.scores[0], *sample.scores]]))


def _block(samples: list[Sample], ids: list[Any]) -> Block:
    kind, width = samples[0].kind, max(len(sample.scores) for sample in samples)
    padding = {"logits": -np.inf}.get(kind, 0.0)  # a question with fewer choices than others
    scores = _padded([sample.scores for sample in samples], width, padding)
    targets = np.array([-1 if sample.target is None else sample.target for sample in samples])
    block: Block = {kind: scores}
    if kind == "confidence":
        block = {"confidence": scores[:, 0]}
    if samples[0].target is not None:
        is_correct = kind == "confidence"
        block["correct" if is_correct else "labels"] = targets.astype(bool if is_correct else int)
    if any(sample.upper is not sample.scores for sample in samples):
        block["upper_logits"] = _padded([sample.upper for sample in samples], width, padding)
    if None not in ids:
        numbers = all(type(each) is int and abs(each) < 2**63 for each in ids)
        block["ids"] = np.array(ids if numbers else [str(each) for each in ids])
    return block


def _padded(rows: list[list[float]], width: int, padding: float) -> Any:
    array = np.full((len(rows), width), padding)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array
