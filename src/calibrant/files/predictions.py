"""What a prediction file of any format holds: rows of scores, labels and ids."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.files.layout import OTHER, Layout

Block: TypeAlias = dict[str, Any]
"""Some rows of a file, by role or by field: arrays; after ``OTHER``, Arrow columns of Parquet."""
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""Text that is a whole number of a file; 01 is text."""
MISSING = _inputs.MISSING_TEXTS
"""Texts of a missing value."""

_EXACT = np.float64(2.0**53)  # floats below it are whole numbers one apart


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """Rows read from a file. What the file does not have is None.

    A file has one of ``logits``, ``probs`` and ``top_logits``, or only ``confidence`` and
    ``correct``. The values are those of the file: NaN, sums and the range of the labels are checked
    by the functions that use them.

    Attributes:
        logits: (N, K) floats, in the file's precision.
        probs: (N, K) floats, in the file's precision.
        labels: (N,) int64 class indices; (N, L) zeros and ones in a multi-label file.
        confidence: (N,) floats, the probability of the predicted class.
        correct: (N,) bool, whether the predicted class was correct.
        ids: (N,) integers or strings that name the rows.
        class_names: one name per class.
        top_logits: (N, k) floats, the largest logits of each row, or log-probabilities.
        top_classes: (N, k) int64, their classes.
        normaliser: (N,) floats, log of the sum of e^logit over all classes; None for
            log-probabilities, which have 0.
        label_logits: (N,) floats, the logit of each label; NaN where it is missing.
        n_classes: number of classes, if ``top_logits`` are given and the file says it.
        upper_logits: (N, K) floats, the largest possible logits where a language model's log leaves
            out options, and ``logits`` elsewhere; None if it leaves out none.
        single: whether the file has one column, of the positive class; ``logits`` or ``probs``
            have two.
        source: where the probabilities of a language model's log come from, such as ``"verbal"``.
        others: if asked for, every column of a table but the scores: text of CSV, Arrow columns of
            Parquet; of ``.npz`` and ``.jsonl`` files, the arrays and fields that were named.
    """

    logits: NDArray[Any] | None = None
    probs: NDArray[Any] | None = None
    labels: NDArray[np.int64] | None = None
    confidence: NDArray[Any] | None = None
    correct: NDArray[np.bool_] | None = None
    ids: NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    top_logits: NDArray[Any] | None = None
    top_classes: NDArray[np.int64] | None = None
    normaliser: NDArray[Any] | None = None
    label_logits: NDArray[Any] | None = None
    n_classes: int | None = None
    upper_logits: NDArray[Any] | None = None
    single: bool = False
    source: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def with_scores(self) -> Predictions:
        """These predictions, with a confidence as probabilities of the classes wrong and correct.

        Examples:
            >>> known = Predictions(confidence=np.array([0.75]), correct=np.array([True]))
            >>> known.with_scores().probs, known.with_scores().labels
            (array([[0.25, 0.75]]), array([1]))
        """
        if self.confidence is None or self.probs is not None:
            return self
        return replace(
            self,
            probs=np.stack([1.0 - self.confidence, self.confidence], axis=-1),
            labels=None if self.correct is None else self.correct.astype(np.int64),
            class_names=_inputs.CORRECTNESS,
            single=True,
        )

    @property
    def multilabel(self) -> bool:
        """Whether there is a label for every sample and column of the scores."""
        return self.labels is not None and self.labels.ndim == 2

    def groups(self, by: Sequence[str]) -> _inputs.Groups | None:
        """The groups that the columns ``by`` of ``others`` say; None if it names none."""
        return _inputs.groups_of_columns(self.others, by, len(self)) if by else None

    def __len__(self) -> int:
        for rows in (self.logits, self.probs, self.confidence, self.top_logits):
            if rows is not None:
                return len(rows)
        return 0


def cleaned(raw: Block, layout: Layout, *, where: str, first_row: int) -> Block:
    """The fields of :class:`Predictions` from the arrays of a file, by role.

    ``first_row`` is the index of the first row in the file, for messages.
    """
    names = {"labels": "labels", **layout.roles}
    fields: Block = {}
    if layout.kind != "confidence":
        fields[layout.kind] = _floats(raw["scores"], layout.kind, where)
    if "classes" in raw:
        flat = _whole_numbers(raw["classes"].reshape(-1), names["classes"], where, first_row)
        fields["top_classes"] = flat.reshape(raw["classes"].shape)
    for role in ("normaliser", "label_logits"):
        if role in raw:
            fields[role] = _floats(raw[role], names[role], where)
    for role in ("labels", "predicted"):
        if role in raw:
            text = raw[role].dtype.kind == "U"
            fields[role] = (
                raw[role] if text else _whole_numbers(raw[role], names[role], where, first_row)
            )
    if "confidence" in raw:
        fields["confidence"] = _floats(raw["confidence"], names["confidence"], where)
    if "correct" in raw:
        fields["correct"] = _truth(raw["correct"], names["correct"], where, first_row)
    if "predicted" in fields:
        true, predicted = fields.pop("labels"), fields.pop("predicted")
        if (true.dtype.kind == "U") != (predicted.dtype.kind == "U"):
            raise CalibrantError(
                f"{where}: {names['labels']} and {names['predicted']} must both be numbers or both "
                f"be names; found the types {true.dtype} and {predicted.dtype}. Write both alike"
            )
        fields["correct"] = true == predicted
    if "ids" in raw:
        fields["ids"] = _native(raw["ids"])
    return fields | {name: column for name, column in raw.items() if name.startswith(OTHER)}


def regrouped(blocks: Iterable[Block], rows: int | None) -> Iterator[Block]:
    """The same rows in blocks of ``rows``, the last with the remainder; None: one block."""
    rows = sys.maxsize if rows is None else rows
    held: list[Block] = []
    count = 0
    for block in blocks:
        length = len(next(iter(block.values())))
        start = 0
        while count + length - start >= rows:
            end = start + rows - count
            yield _concatenated([*held, _sliced(block, start, end)])
            held, count, start = [], 0, end
        if start < length:
            held.append(_sliced(block, start, length))
            count += length - start
    if held:
        yield _concatenated(held)


NO_THREAD = "Failed to launch worker thread"
"""PyArrow's error if there is no memory for another thread."""


@contextlib.contextmanager
def decoding(where: str, what: str) -> Iterator[None]:
    """Turn anything that the decoder of a format raises into one line that names the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # decoders of damaged bytes raise anything
        if isinstance(error, MemoryError) or NO_THREAD in str(error):
            raise CalibrantError(
                f"{where} does not fit into memory. Read it in batches with iter_predictions"
            ) from error
        reason = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
        raise CalibrantError(
            f"{where} cannot be read as {what}: {reason}. It is damaged, incomplete or in "
            "another format: write or copy it again"
        ) from error


def refuse_rows(
    bad: NDArray[np.bool_],
    values: Sequence[Any] | NDArray[Any],
    what: str,
    fix: str,
    first_row: int,
) -> None:
    """Raise CalibrantError with the value and index of the first bad row, if there is one."""
    if bad.any():
        place = tuple(np.argwhere(bad)[0])
        value = values[place[0]] if len(place) == 1 else np.asarray(values)[place]
        raise CalibrantError(f"{what}; found {value} in row {first_row + int(place[0])}. {fix}")


def _floats(array: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    if array.dtype.kind in "iu" or array.dtype.itemsize > 8:
        _refuse_type(array, "iuf", name, where, "numbers", "Save them as float32 or float64")
        return array.astype(np.float64)
    _refuse_type(array, "f", name, where, "numbers", "Save them as float32 or float64")
    return _native(array)


def _whole_numbers(array: NDArray[Any], name: str, where: str, first_row: int) -> NDArray[Any]:
    fix = "Number the classes 0, 1, ... and store these numbers"
    _refuse_type(array, "biuf", name, where, "whole numbers", fix)
    if array.dtype.kind == "f":
        bad = ~((np.floor(array) == array) & (np.abs(array) < _EXACT))  # NaN is bad
    elif array.dtype.kind == "u":
        bad = array > np.uint64(np.iinfo(np.int64).max)
    else:
        return array.astype(np.int64, copy=False)
    refuse_rows(bad, array, f"{where}: {name} must be whole numbers", fix, first_row)
    return array.astype(np.int64)


def _truth(array: NDArray[Any], name: str, where: str, first_row: int) -> NDArray[Any]:
    fix = "Store 1 where the prediction was correct and 0 where it was wrong"
    _refuse_type(array, "biuf", name, where, "true or false", fix)
    if array.dtype.kind == "b":
        return array
    correct: NDArray[np.bool_] = array == 1
    bad = ~(correct | (array == 0))
    refuse_rows(bad, array, f"{where}: {name} must be 0 or 1", fix, first_row)
    return correct


def _refuse_type(
    array: NDArray[Any], kinds: str, name: str, where: str, what: str, fix: str
) -> None:
    if array.dtype.kind not in kinds:
        raise CalibrantError(f"{where}: {name} must be {what}; found the type {array.dtype}. {fix}")


def _native(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _sliced(block: Block, start: int, end: int) -> Block:
    return {name: array[start:end] for name, array in block.items()}


def _concatenated(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return {name: _joined([block[name] for block in blocks]) for name in blocks[0]}


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import pyarrow as pa

    return pa.chunked_array(parts).combine_chunks()
