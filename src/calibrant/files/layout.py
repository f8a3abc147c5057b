"""What each array or column of a file holds, decided by names alone."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calibrant import _inputs
from calibrant._inputs.skipped import Skipped
from calibrant.errors import CalibrantError
from calibrant.files.condition import Condition

SCORES = {"logits": "logit", "probs": "prob"}
"""The two kinds of score, and the stem of their numbered columns."""

TRUNCATED_SCORES = {"top_logits": "label_logit", "top_logprobs": "label_logprob"}
"""Names of the largest scores of each row, and of the label's own score."""

LABELS = ("label", "labels", "target", "y_true")
ONE_COLUMN = {
    "prob": "probs",
    "probability": "probs",
    "y_prob": "probs",
    "y_proba": "probs",
    "predicted_probability": "probs",
    "logit": "logits",
    "score": "score",
    "y_score": "score",
}
"""Names of a column for the positive class, and its kind. A score is a probability if all of the
file's scores are between 0 and 1, else a logit."""
IDS = ("id", "ids")
OTHER = "other:"
"""Prefix of columns that are passed on as they are."""

STEMS = {"prob": "probs", "logit": "logits"}
"""What is in the name of a column that says its kind."""

BFLOAT16 = "_bfloat16"
"""Suffix of columns that hold the 16 bits of bfloat16 numbers, a type Parquet does not have."""
CHUNK = "_chunk"
"""Precedes the number of a column with the lists of some of the classes."""

_PART = re.compile(
    r"(.+)_(?:(?:logits|probs)(?:_bfloat16)?(?:_chunk_[0-9]{1,9})?|confidence"
    r"|(?:logit|prob)_[0-9]{1,9})"
)


@dataclass(frozen=True)
class Asked:
    """The columns that a user names, instead of those that are found by their names."""

    label: str | None = None
    score: tuple[str, ...] = ()
    """One column of the positive class, or one for each class."""
    positive: str | None = None
    """The label of the positive class."""
    kind: str | None = None
    """What a column called score holds, if that is known."""
    usual_positive: str | None = None
    """The positive class of the calibrator that is applied."""
    keep: bool | tuple[str, ...] = False
    """Whether to read the other columns of a table, to pass them on; or which of them."""
    options: tuple[str, ...] | None = None
    """The possible answers in a language model's log: the classes."""
    source: str | None = None
    """The lines of a log to read."""
    where: Condition | None = None
    """What rows of Parquet files must meet."""
    groups: tuple[str, ...] = ()
    """The columns that the calibrator that is applied was fitted by."""
    skipped: Skipped | None = None
    """Counts the lines of a log that cannot be used; None refuses the first."""

    @property
    def named(self) -> tuple[str, ...]:
        """The further arrays or fields of a file without a table to read."""
        return self.keep if isinstance(self.keep, tuple) else self.groups


def as_options(columns: Mapping[str, Any]) -> str:
    """Arguments of ``read_predictions`` on the command line, each after a space.

    Examples:
        >>> as_options({"label": "key", "score": None, "options": ("A", "B")})
        ' --label key --options A,B'
    """
    given = {name: value for name, value in columns.items() if value is not None}
    texts = {name: v if isinstance(v, str) else ",".join(v) for name, v in given.items()}
    return "".join(f" --{name} {shlex.quote(text)}" for name, text in texts.items())


@dataclass(frozen=True)
class Layout:
    """The names to read: ``scores`` (one array, or columns in order), and the others by role.

    ``kind`` is ``"logits"``, ``"probs"``, ``"score"`` (logits or probs: the numbers decide),
    ``"top_logits"`` (truncated rows, log-probabilities too) or ``"confidence"``, which has no
    ``scores``. Columns are ``numbered`` if each holds one class; otherwise each holds lists, of all
    classes or of a chunk of them. A ``single`` column holds the positive class.
    """

    kind: str
    scores: tuple[str, ...] = ()
    numbered: bool = False
    bfloat16: bool = False
    """Whether the numbers are the bits of bfloat16."""
    roles: dict[str, str] = field(default_factory=dict)
    class_names: str | None = None
    single: bool = False
    column_classes: tuple[str, ...] | None = None
    """The classes that the columns are named after."""
    multilabel: bool = False
    """Whether each column of the scores has labels of its own."""
    label_columns: tuple[str, ...] = ()
    """The columns of a multi-label table that hold them, in the order of the scores."""
    kept: tuple[str, ...] = ()
    """Columns to pass on: all but the scores."""
    compared: tuple[str, ...] = ()
    """Columns of a condition on the rows."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names with one entry per row."""
        others = (*self.roles.values(), *self.kept, *self.compared)
        held = (*self.scores, *self.label_columns, *others)
        return tuple(dict.fromkeys(held))


def find_layout(
    names: Sequence[str],
    *,
    part: str | None,
    where: str,
    table: bool,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    of_path: Sequence[str] = (),
) -> Layout:
    """The layout of a file with arrays (or, in a table, columns) called ``names``.

    ``part`` is the ``val`` of ``FILE.npz::val``: only names that start with ``val_`` count, except
    ``class_names``, which the parts of a file may share. ``of_path`` are columns that folders are
    named after: they can be groups and conditions, but not scores or labels.
    """
    found = _Names(names, part, where, "column" if table else "array")
    layout = _truncated_layout(found) or _usual_layout(found, asked, table)
    if not table:
        kept = {OTHER + name: found.full[found.known(name)] for name in asked.named}
        layout = replace(layout, roles=layout.roles | kept)
        shared = "class_names" if "class_names" in names else None
        named = None if layout.kind == "top_logits" else found.one("class_names") or shared
        return replace(layout, class_names=named)
    own, found = found, _Names([*names, *of_path], part, where, "column")
    if isinstance(asked.keep, tuple):
        columns = tuple(found.full[found.known(name)] for name in asked.keep)
        layout = replace(layout, kept=columns)
    elif asked.keep and layout.kind != "top_logits":
        used = (*layout.scores, layout.roles.get("confidence"))
        layout = replace(layout, kept=tuple(name for name in found.all if name not in used))
    if asked.where is not None:
        there = _Names(found.all, None, where, "column")
        layout = replace(layout, compared=tuple(map(there.known, asked.where.columns)))
    for name in (*layout.kept, *layout.compared):
        own.refuse_twice(name)  # only one of them could be copied
    return layout


def _usual_layout(found: _Names, asked: Asked, table: bool) -> Layout:
    """The layout of a file of all classes, or of confidences."""
    labels = LABELS if asked.label is None else (found.known(asked.label),)
    layout = _asked_scores(found, asked, table) if asked.score else _scores(found, table)
    if layout is None:
        layout = Layout("confidence", roles=_confidence_roles(found, alone=asked.keep is True))
    else:
        layout = replace(layout, roles=found.roles(labels=labels, ids=IDS))
    if table and layout.numbered and not layout.single and "labels" not in layout.roles:
        return _with_label_columns(layout, found)
    return layout


def listed(names: Sequence[str], most: int = 8) -> str:
    """``a, b, c``; only the first of many."""
    if not names:
        return "nothing"
    plain = [name.isprintable() and name == name.strip() for name in names[:most]]
    text = ", ".join(name if p else repr(name) for name, p in zip(names, plain, strict=False))
    return text if len(names) <= most else f"{text}, ... ({len(names)} in all)"


class _Names:
    """The names of one part without its prefix, and messages about them."""

    def __init__(self, names: Sequence[str], part: str | None, where: str, thing: str) -> None:
        prefix = "" if part is None else f"{part}_"
        self.all = list(names)
        self.counts = Counter(names)
        self.full = {n.removeprefix(prefix): n for n in names if n.startswith(prefix)}
        self.part = part
        self.where = where
        self.thing = thing
        self.parts = list(dict.fromkeys(m[1] for n in names if (m := _PART.fullmatch(n))))

    def one(self, *aliases: str) -> str | None:
        """The full name of the only one of ``aliases`` that occurs, or None."""
        there = [self.full[alias] for alias in aliases if alias in self.full]
        if len(there) > 1:
            raise CalibrantError(
                f"{self.where}: {' and '.join(there)} mean the same; found both {self.thing}s. "
                "Keep one of them"
            )
        if there:
            self.refuse_twice(there[0])
        return there[0] if there else None

    def known(self, name: str) -> str:
        """A name that a user asks for, without the prefix of the part."""
        if name not in self.full:
            raise CalibrantError(
                f"{self.where} has no {self.thing} {name}; found {listed(list(self.full))}. "
                "Check the name"
            )
        return name

    def roles(self, **aliases: tuple[str, ...]) -> dict[str, str]:
        """Role to full name, for the roles that are there."""
        named = {role: self.one(*names) for role, names in aliases.items()}
        return {role: name for role, name in named.items() if name is not None}

    def refuse_twice(self, name: str) -> None:
        if self.counts[name] > 1:
            raise CalibrantError(
                f"{self.where}: the {self.thing} {name} occurs {self.counts[name]} times. "
                "Keep one of them"
            )

    def numbered(self, stem: str) -> tuple[str, ...]:
        """``stem_0``, ``stem_1``, ... in numerical order; a gap is refused.

        Columns of classes that do not begin with 0 are named after their classes: empty.
        """
        what = "chunks" if stem.endswith(CHUNK) else "classes"
        pattern = re.compile(rf"{stem}_([0-9]{{1,9}})")
        by_number: dict[int, str] = {}
        for short, name in self.full.items():
            if match := pattern.fullmatch(short):
                other = by_number.setdefault(int(match[1]), name)
                if other != name:
                    raise CalibrantError(
                        f"{self.where}: the columns {other} and {name} have the same number. "
                        "Keep one of them"
                    )
                self.refuse_twice(name)
        if stem in STEMS and 0 not in by_number:
            return ()  # columns named after classes that are numbers
        for expected, number in enumerate(sorted(by_number)):
            if number != expected:
                raise CalibrantError(
                    f"{self.where}: the columns {stem}_0, {stem}_1, ... must be numbered without "
                    f"gaps; found {by_number[number]} but no {stem}_{expected}. "
                    f"Count the {what} from 0, one column each"
                )
        return tuple(by_number[number] for number in sorted(by_number))

    def named_columns(self, kind: str, stem: str) -> list[Layout]:
        """The layout of columns named after classes, ``stem_cat``, ``stem_dog``, if there are."""
        columns = {
            short.removeprefix(f"{stem}_"): name
            for short, name in self.full.items()
            if short.startswith(f"{stem}_")
        }
        for name in columns.values():
            self.refuse_twice(name)
        if len(columns) < 2:
            return []
        return [Layout(kind, tuple(columns.values()), True, column_classes=tuple(columns))]

    def nothing_to_read(self) -> CalibrantError:
        """The error for a file with neither scores nor confidence: the likeliest reason."""
        here = f"{self.where} has the {self.thing}s {listed(self.all)}"
        ways = " or ".join(f"::{part}" for part in self.parts[:8] if part.isprintable())
        if self.part is None and self.parts:
            return CalibrantError(f"{self.where} holds the parts {listed(self.parts)}: add {ways}")
        if self.part is not None and self.parts:
            return CalibrantError(
                f"{self.where}: there is no part {self.part}; the file holds the parts "
                f"{listed(self.parts)}. Ask for {ways}"
            )
        if self.part is not None:
            return CalibrantError(f"{here}, none of part {self.part}. Drop ::{self.part}")
        if len(self.all) == 1 and re.search("[;\t|]", self.all[0]):
            return CalibrantError(
                f"{self.where}: the cells must be separated by commas; the first line is "
                f"{self.all[0][:60]!r}. Save it with commas"
            )
        numbered = (
            "one list column, or logit_0, logit_1, ..." if self.thing == "column" else "(N, K)"
        )
        return CalibrantError(
            f"{here}: neither logits nor probs. Name the scores logits or probs ({numbered}), or "
            "score or prob for one column of the positive class, or give confidence and correct; "
            "or say which they are: --label NAME --score NAME"
        )


def _scores(found: _Names, table: bool) -> Layout | None:
    """The layout of the scores, without other roles; None if there are none."""
    there: list[Layout] = []
    for kind, stem in SCORES.items():
        for name, bits in ((kind, False), (kind + BFLOAT16, True)):
            whole = found.one(name) if table or not bits else None
            if whole is not None:
                there.append(Layout(kind, (whole,), bfloat16=bits))
            chunks = found.numbered(name + CHUNK) if table else ()
            if chunks:
                there.append(Layout(kind, chunks, bfloat16=bits))
        columns = found.numbered(stem) if table else ()
        if columns:
            there.append(Layout(kind, columns, numbered=True))
        elif table:
            there += found.named_columns(kind, stem)
    if len(there) > 1:
        first, second = there[0].scores[0], there[1].scores[0]
        raise CalibrantError(
            f"{found.where}: a file holds one kind of score; found both {first} and {second}. "
            "Keep one of them, or give them parts (a_logits, b_probs) and ask for ::a"
        )
    if there and there[0].numbered and len(there[0].scores) == 1:
        stem = SCORES[there[0].kind]
        raise CalibrantError(
            f"{found.where}: the columns {stem}_0, {stem}_1, ... hold one class each; found "
            f"{there[0].scores[0]} alone. Add the others, or call that of the positive class {stem}"
        )
    if there:
        return there[0]
    column = found.one(*ONE_COLUMN)
    if column is None:
        return None
    kind = next(kind for name, kind in ONE_COLUMN.items() if found.full.get(name) == column)
    return Layout(kind, (column,), numbered=table, single=True)


def _asked_scores(found: _Names, asked: Asked, table: bool) -> Layout:
    """The layout of the columns that a user names."""
    names = tuple(found.full[found.known(name)] for name in asked.score)
    kinds = {kind for stem, kind in STEMS.items() if all(stem in name for name in asked.score)}
    kind = kinds.pop() if len(kinds) == 1 else "score"
    if len(names) == 1:
        return Layout(kind, names, numbered=table, single=True)
    if not table:
        raise CalibrantError(
            f"{found.where}: an .npz file holds one array of scores; found {len(names)} names. "
            "Name one array"
        )
    classes = tuple(map(str, _inputs.class_names(asked.score) or ())) or None
    return Layout(kind, names, numbered=True, column_classes=classes)


def _with_label_columns(layout: Layout, found: _Names) -> Layout:
    """The layout with ``label_cat`` for each ``prob_cat``, if the table is multi-label."""
    stem = SCORES.get(layout.kind, layout.kind)
    names = [f"label_{name.removeprefix(f'{stem}_')}" for name in layout.scores]
    there = [name for name in names if name in found.full]
    if not there:
        return layout
    missing = [name for name in names if name not in there]
    if missing:
        raise CalibrantError(
            f"{found.where}: a multi-label table has a column of labels for each column of "
            f"scores; found {there[0]} but no {missing[0]}. Add it, or name the classes in label"
        )
    columns = tuple(found.one(name) or name for name in names)
    return replace(layout, multilabel=True, label_columns=columns)


def _truncated_layout(found: _Names) -> Layout | None:
    """The layout of a file of truncated rows; None for other files."""
    scores = found.one(*TRUNCATED_SCORES)
    if scores is None:
        return None
    kind = next(kind for kind in TRUNCATED_SCORES if found.full.get(kind) == scores)
    roles = found.roles(
        classes=("top_classes",),
        normaliser=("normaliser",),
        label_logits=(TRUNCATED_SCORES[kind],),
        labels=LABELS,
        ids=IDS,
    )
    needed = {"top_classes": "classes"}
    if kind == "top_logits":
        needed["normaliser"] = "normaliser"
    missing = [name for name, role in needed.items() if role not in roles]
    if missing:
        raise CalibrantError(
            f"{found.where} holds {scores} without {' and '.join(missing)}; found the "
            f"{found.thing}s {listed(found.all)}. Add the classes of the scores, and the log of "
            "the sum of e^logit over all classes, or write top_logprobs"
        )
    return Layout(kind="top_logits", scores=(scores,), roles=roles)


def _confidence_roles(found: _Names, *, alone: bool) -> dict[str, str]:
    """The roles of a file with only the predicted class: its confidence, and if it is correct."""
    if "confidence" not in found.full:
        raise found.nothing_to_read()
    roles = found.roles(confidence=("confidence",), correct=("correct",), ids=IDS)
    if "correct" in roles:
        return roles
    pair = found.roles(labels=("true_label",), predicted=("pred_label",))
    if len(pair) < 2 and alone:
        return roles
    if len(pair) < 2:
        raise CalibrantError(
            f"{found.where} holds confidence but not whether predictions are correct; found "
            f"the {found.thing}s {listed(found.all)}. Add correct (true or false per row), or "
            "true_label and pred_label"
        )
    return roles | pair
