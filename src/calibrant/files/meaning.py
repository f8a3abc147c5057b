"""What the labels and the scores of a file mean, where only all of its rows together show it.

Labels may be names, of which the order is needed; a column called score holds probabilities if all
of them are between 0 and 1; and the labels of a single column may be any two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.files.layout import OTHER, Layout
from calibrant.files.predictions import MISSING, Block, Predictions

_WHOLE = re.compile(r"-?[0-9]{1,18}(\.0*)?")
_TRUTH = {"false": 0, "true": 1}
_SUMS_ALIKE = 0.03
"""Sums of rounded percentages differ by less, in parts of the largest."""


@dataclass(frozen=True)
class Meaning:
    """How the rows of a file become predictions."""

    layout: Layout
    kind: str
    """``"logits"`` or ``"probs"``, or what the layout says of other files."""
    class_names: tuple[str, ...] | None
    indices: dict[Any, int] | None = None
    """The class of each label; None if labels are class indices."""
    where: str = ""

    def predictions(self, block: Block, n_classes: int | None) -> Predictions:
        """The rows of a block."""
        others = {name: column for name, column in block.items() if name.startswith(OTHER)}
        return Predictions(
            **self.applied({name: a for name, a in block.items() if name not in others}),
            others={name.removeprefix(OTHER): column for name, column in others.items()},
            class_names=self.class_names,
            n_classes=n_classes,
            single=self.layout.single,
        )

    def applied(self, block: Block) -> Block:
        """Labels as class indices, and a single column as two."""
        fields = dict(block)
        scores = fields.pop(self.layout.kind, None)
        if scores is not None:
            if self.layout.single:
                scores = _inputs.scores(self.kind, scores.reshape(-1)).values
            fields[self.kind] = scores
        labels = fields.get("labels")
        if labels is not None and (self.translates_numbers or is_text(labels)):
            known = self.indices or {}
            entries = labels.tolist()
            unknown = next((each for each in entries if each not in known), None)
            if unknown is not None and not known:
                raise CalibrantError(
                    f"{self.where}: labels must be class indices, unless the columns are named "
                    f"after the classes; found {unknown!r}. Of two classes name the positive one: "
                    "--positive LABEL"
                )
            if unknown is not None:
                raise CalibrantError(
                    f"{self.where}: labels must be among the classes {_inputs.shown([*known])}; "
                    f"found {unknown!r}. Correct it, or name the columns after the classes"
                )
            fields["labels"] = np.array([known[each] for each in entries], dtype=np.int64)
        return fields

    @property
    def translates_numbers(self) -> bool:
        """Whether labels are numbers, but not class indices."""
        return self.indices is not None and not any(isinstance(each, str) for each in self.indices)


def is_text(values: NDArray[Any]) -> bool:
    """Whether an array holds text."""
    return values.dtype.kind in "US" or values.dtype == object


def is_number(text: str) -> bool:
    """Whether a text is a number, nan and inf included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_settled(layout: Layout, class_names: tuple[str, ...] | None, first: Block) -> bool:
    """Whether the names and types alone say what the rows mean."""
    labels = first.get("labels")
    return layout.multilabel or (
        layout.kind != "score"
        and _numbers_of(layout.column_classes or class_names) is None
        and not (layout.single and labels is not None)
        and (labels is None or not is_text(labels))
    )


def settled(layout: Layout, class_names: tuple[str, ...] | None, where: str) -> Meaning:
    """The meaning of files that are read in parts, by their names alone."""
    if layout.kind == "score":
        raise CalibrantError(
            f"{where}: files that are read in parts must say what their scores are; found "
            f"{layout.scores[0]}. Name the column prob or logit"
        )
    names = layout.column_classes or class_names
    indices = _numbers_of(names)
    if indices is None and names is not None:
        indices = {name: k for k, name in enumerate(names)}
    return Meaning(layout, layout.kind, names, indices, where)


def _numbers_of(names: tuple[str, ...] | None) -> dict[Any, int] | None:
    """The class of each number or truth value, if classes are named after them out of order."""
    values = [_value(name) for name in names or ()]
    if not values or any(isinstance(each, str) for each in values):
        return None
    return None if values == list(range(len(values))) else {v: k for k, v in enumerate(values)}


def meaning_of(
    blocks: Iterable[Block],
    layout: Layout,
    *,
    class_names: tuple[str, ...] | None,
    positive: str | None,
    where: str,
    asked_kind: str | None = None,
) -> Meaning:
    """The meaning of a file, from all of its rows."""
    found: set[Any] = set()
    probable, n_classes = True, 0
    lowest, highest = np.inf, -np.inf
    least, most = np.inf, -np.inf  # sums of rows
    for block in blocks:
        if "labels" in block:
            found |= set(np.unique(block["labels"]).tolist())
        if layout.kind == "score":
            probable = probable and _inputs.look_like_probs(
                block["score"], one_column=layout.single
            )
            lowest = np.min(block["score"], initial=lowest)
            highest = np.max(block["score"], initial=highest)
            if not layout.single:
                sums = block["score"].sum(axis=1, dtype=np.float64)
                least, most = np.min(sums, initial=least), np.max(sums, initial=most)
        scores = block.get(layout.kind)
        n_classes = 0 if scores is None else (2 if layout.single else scores.shape[1])
    kind = layout.kind
    if kind == "score":
        kind = asked_kind or ("probs" if probable else "logits")
        if layout.single and asked_kind is None and kind == "logits" and lowest >= 0.0:
            raise CalibrantError(
                f"{where}: {layout.scores[0]} must hold probabilities from 0 to 1, or log-odds of "
                f"both signs; found {lowest:g} to {highest:g}. Divide percentages by 100, or name "
                "the column logit"
            )
        shares = lowest >= 0.0 and most - least <= _SUMS_ALIKE * most
        if not layout.single and asked_kind is None and kind == "logits" and shares:
            raise CalibrantError(
                f"{where}: scores must be probabilities, whose rows sum to 1, or logits; found "
                f"rows without negative numbers that sum to {most:g}. Divide percentages by 100 "
                "and counts by their sum, or name the columns logit_..."
            )
    labels: list[Any] = sorted(found)
    missing = [
        each
        for each in labels
        if isinstance(each, str) and each.strip() in (*MISSING, "nan", "NaN")
    ]
    if missing:
        raise CalibrantError(
            f"{where}: labels must not be missing; found {missing[0]!r} as a label. Drop the rows "
            "without one"
        )
    numbers = {each: _value(each) for each in labels}
    if any(isinstance(value, str) for value in numbers.values()):
        numbers = {each: each for each in labels}
    names = layout.column_classes or class_names
    by_name = None if layout.single else _by_name(numbers, names)
    if by_name is not None and positive is None:
        return Meaning(layout, kind, names, by_name, where)
    with _inputs.naming(where):
        columns = None if layout.single else layout.column_classes
        numbered = _numbers_of(columns)
        if columns is not None and numbered is not None:  # so labels are no positions
            _refuse_unknown(labels, [*columns, *numbered], columns)
        distinct = sorted(set(numbers.values()))
        classes = _classes(layout, distinct, n_classes, class_names, positive)
    if classes is None:
        if all(numbers[each] == each for each in labels):
            return Meaning(layout, kind, names, None, where)
        return Meaning(layout, kind, names, numbers, where)
    indices = {each: classes.index(numbers[each]) for each in labels}
    return Meaning(layout, kind, tuple(str(each) for each in classes), indices, where)


def _value(label: Any) -> Any:
    """The number that a label is written as, or the truth value as 0 or 1, or the label."""
    if isinstance(label, str) and _WHOLE.fullmatch(label):
        return int(label.partition(".")[0])
    return _TRUTH.get(label.lower(), label) if isinstance(label, str) else label


def _by_name(numbers: dict[Any, Any], names: tuple[str, ...] | None) -> dict[Any, int] | None:
    """The class of each label, if all of them are names of classes; 0 is false, 1 is true."""
    if names is None or not numbers:
        return None
    place: dict[Any, int] = {name: k for k, name in enumerate(names)}
    place |= _numbers_of(names) or {}
    found = {each: place.get(str(each), place.get(value)) for each, value in numbers.items()}
    return None if None in found.values() else {each: int(k or 0) for each, k in found.items()}


def _classes(
    layout: Layout,
    labels: list[Any],
    n_classes: int,
    class_names: tuple[str, ...] | None,
    positive: str | None,
) -> list[Any] | None:
    """The label of each class in order; None if labels are class indices."""
    if layout.single:
        if not labels:
            return None
        if class_names is not None and class_names[-1] == positive and set(labels) <= {0, 1}:
            return None  # the file says so already
        named = next((each for each in labels if str(each) == positive), positive)
        named = _value(named) if _value(named) in (0, 1) and set(labels) <= {0, 1} else named
        two = _inputs.two_classes(labels, named)
        return None if two is None else list(two)
    if positive is not None:
        raise CalibrantError(
            f"--positive is for one column of scores; found {n_classes}. Leave it out"
        )
    if not labels or not isinstance(labels[0], str):
        return None
    names = layout.column_classes or class_names
    if names is None:
        numbers = [each for each in labels if is_number(each) and not _WHOLE.fullmatch(each)]
        if numbers:
            raise CalibrantError(
                f"labels must be whole numbers or names; found {numbers[0]!r}. Number the classes "
                "0, 1, ..., or name the columns after them"
            )
        return list(_inputs.sorted_classes(labels, n_classes))
    _refuse_unknown(labels, names, names)
    return list(names)


def _refuse_unknown(labels: Iterable[Any], known: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse labels that are not classes."""
    for label in labels:
        if label not in known:
            raise CalibrantError(
                f"labels must be among the classes {_inputs.shown(names)}; found {label!r}. "
                "Correct it, or add a column for the class"
            )
