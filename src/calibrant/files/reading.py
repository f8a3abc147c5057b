"""Read predictions whole, or in batches for files larger than memory."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from calibrant import _inputs
from calibrant._inputs.skipped import Skipped
from calibrant.errors import CalibrantError
from calibrant.files.condition import Condition
from calibrant.files.csv import CsvSource
from calibrant.files.jsonl import JsonlSource
from calibrant.files.jsonl.options import checked_options
from calibrant.files.layout import Asked, Layout
from calibrant.files.meaning import Meaning, is_settled, meaning_of
from calibrant.files.npz import NpzSource
from calibrant.files.parquet.folder import ParquetSource
from calibrant.files.predictions import Block, Predictions, regrouped


class Source(Protocol):
    """A file, or one part of it, whose names and shapes have been checked."""

    where: str
    rows: int | None
    layout: Layout
    class_names: tuple[str, ...] | None
    n_classes: int | None
    """For truncated rows, if the file says it."""

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order, at most about ``rows`` at a time (None: what suits the format)."""


KINDS: dict[str, Callable[[Path, str | None, str, Asked], Source]] = {
    ".npz": NpzSource,
    ".parquet": ParquetSource,
    ".csv": CsvSource,
    ".csv.gz": CsvSource,
    ".jsonl": JsonlSource,
}
"""What reads a file, by its extension; a folder is read as Parquet."""
_MULTILABEL = (".npz", ".parquet", ".csv", ".gz")
"""Extensions of files that can be multi-label."""


def read_predictions(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    options: Sequence[str] | None = None,
    source: str | None = None,
    skipped: Skipped | None = None,
    keep: Sequence[str] = (),
    where: str | None = None,
) -> Predictions:
    """All rows of a prediction file.

    Args:
        path: an ``.npz`` file with arrays ``logits`` or ``probs`` (N, K), and ``labels``, ``ids``,
            ``class_names`` if it has them; or a Parquet file, a folder of them (in the order of
            their names) or a CSV file (``.csv``, ``.csv.gz``) with a column ``label`` and
            ``logit_0, logit_1, ...`` or ``prob_0, ...``, or one column of lists named ``logits``
            or ``probs``. A file may also have only ``confidence`` and ``correct`` (or
            ``true_label`` and ``pred_label``). ``FILE.npz::val`` reads ``val_logits``,
            ``val_labels`` and so on. Nothing is ever unpickled. An ``.npz`` file whose ``labels``
            are (N, K), 0 or 1, is multi-label, and so is a table with ``label_cat, label_dog``
            beside ``prob_cat, prob_dog``. One column ``score``, ``y_score``,
            ``prob`` or ``logit`` holds the positive class. Columns may be named after classes,
            ``prob_cat``, ``prob_dog``, and labels may be names. A ``.jsonl`` file is the log of a
            language model.
        label: The column of the labels, if it is not called label, target or y_true. In a log, a
            field such as ``meta.key``; by default label, answer or target.
        score: The column of the positive class, or the columns of all classes.
        positive: The label of the positive class, if the labels are not 0 and 1.
        options: The possible answers in a log, such as A, B, C and D: the classes, in this order.
            Plain lines and those of lm-evaluation-harness name them themselves.
        source: The lines of a log to read, by their field ``source``, if there are several.
        skipped: A :class:`calibrant.scale.Skipped` that counts the lines of a log that cannot be
            used; None refuses the first of them.
        keep: Further columns of a table to read, such as groups: ``others`` of the result. Of an
            ``.npz`` file these are arrays with an entry for each row, of a log fields such as
            ``meta.country``; folders named ``column=value`` are columns of Parquet files.
        where: A condition on columns of Parquet files, such as ``month == '2026-10' and age >= 18``
            (==, !=, <, <=, >, >=, ``in (...)``, ``and``): only rows that meet it are read.

    Returns:
        Predictions: the arrays; None for those that the file does not have.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> file = tempfile.mkdtemp() + "/net.npz"
        >>> np.savez(file, val_logits=[[2.0, 1.0]], val_labels=[0], test_logits=[[0.0, 1.0]])
        >>> read_predictions(file + "::val").labels
        array([0])
        >>> read_predictions(file)
        Traceback (most recent call last):
        calibrant.errors.CalibrantError: ...net.npz holds the parts val, test: add ::val or ::test
    """
    asked = asked_for(label, score, positive, options, source, skipped, keep, where)
    return next(_predictions_of(_source(path, asked), None, asked))


def iter_predictions(
    path: str | os.PathLike[str],
    *,
    batch_rows: int = 65536,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    options: Sequence[str] | None = None,
    source: str | None = None,
    skipped: Skipped | None = None,
    keep: Sequence[str] = (),
    where: str | None = None,
) -> Iterator[Predictions]:
    """The rows of :func:`read_predictions` in batches, without holding the whole file.

    Every batch has ``batch_rows`` rows, the last one the remainder. Names and shapes are checked
    before this returns; damaged rows are found when they are reached. Only an array stored in
    Fortran order and the numbers of a ``.jsonl`` file are held whole.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> file = tempfile.mkdtemp() + "/net.npz"
        >>> np.savez(file, logits=np.zeros((5, 3)), labels=np.arange(5) % 3)
        >>> [batch.labels.tolist() for batch in iter_predictions(file, batch_rows=2)]
        [[0, 1], [2, 0], [1]]
    """
    rows = _inputs.whole_number(batch_rows, "batch_rows", allowed=range(1, 1 << 31))
    asked = asked_for(label, score, positive, options, source, skipped, keep, where)
    return _predictions_of(_source(path, asked), rows, asked)


def iter_to_calibrate(
    path: str | os.PathLike[str],
    *,
    batch_rows: int,
    kind: str | None,
    classes: Sequence[Any] | None,
    columns: Mapping[str, Any],
    groups: Sequence[str],
) -> Iterator[Predictions]:
    """Batches to which a fitted calibrator is applied, with the other columns of a table.

    ``kind`` is what the calibrator was fitted on: a column called score holds that. The last of
    its two ``classes`` is the positive one, unless ``columns`` names another. Confidences need not
    say which are correct. The calibrator was fitted by the columns ``groups``.
    """
    asked = replace(
        asked_for(**columns, keep=True),
        groups=tuple(groups),
        kind=kind,
        usual_positive=str(classes[-1]) if classes else None,
    )
    return _predictions_of(_source(path, asked), batch_rows, asked)


def read_to_calibrate(path: str | os.PathLike[str]) -> Predictions:
    """All rows of a multi-label file, with the other columns of a table."""
    asked = Asked(keep=True)
    return next(_predictions_of(_source(path, asked), None, asked))


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """The number of rows of a file, from its headers alone; None for CSV and JSONL.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> file = tempfile.mkdtemp() + "/net.npz"
        >>> np.savez(file, probs=np.full((5, 2), 0.5))
        >>> count_rows(file)
        5
    """
    return _source(path, Asked()).rows


def is_multilabel(path: str | os.PathLike[str]) -> bool:
    """Whether a file has labels for every column of its scores, from its headers alone.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> file = tempfile.mkdtemp() + "/net.npz"
        >>> np.savez(file, probs=np.full((5, 2), 0.5), labels=np.ones((5, 2)))
        >>> is_multilabel(file)
        True
    """
    file, _ = _split(os.fsdecode(path))
    if file.suffix.lower() not in _MULTILABEL or not file.is_file():
        return False
    try:
        return _source(path, Asked()).layout.multilabel
    except CalibrantError:  # it takes the names of the columns to read it, or it cannot be read
        return False


def asked_for(
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    options: Sequence[str] | None = None,
    source: str | None = None,
    skipped: Skipped | None = None,
    keep: bool | Sequence[str] = (),
    where: str | None = None,
) -> Asked:
    """The arguments of :func:`read_predictions`, checked; ``keep`` may be True for all columns."""
    return Asked(
        label,
        (score,) if isinstance(score, str) else tuple(score or ()),
        positive,
        options=None if options is None else checked_options(options),
        source=source,
        skipped=skipped,
        keep=keep if isinstance(keep, bool) else tuple(keep) or False,
        where=None if where is None else Condition.parsed(where),
    )


def _predictions_of(source: Source, rows: int | None, asked: Asked) -> Iterator[Predictions]:
    blocks = regrouped(_without_one_hot(source, rows), rows)
    first = next(blocks)
    meaning = Meaning(source.layout, source.layout.kind, _names(source), where=source.where)
    if asked.positive is not None or not is_settled(source.layout, source.class_names, first):
        # If all rows are one block, they need not be read a second time.
        all_rows = [first] if rows is None else source.blocks(rows)
        meaning = meaning_of(
            all_rows,
            source.layout,
            class_names=source.class_names,
            positive=asked.positive or (asked.usual_positive if source.layout.single else None),
            where=source.where,
            asked_kind=asked.kind,
        )
    for block in itertools.chain([first], blocks):
        predictions = meaning.predictions(block, source.n_classes)
        if isinstance(source, JsonlSource):
            predictions = replace(predictions, source=source.source)
        yield predictions


def _without_one_hot(source: Source, rows: int | None) -> Iterator[Block]:
    """The rows of a file; one-hot labels of exclusive classes are refused at the end."""
    one_hot, total = source.layout.multilabel, 0
    for block in source.blocks(rows):
        if one_hot:
            total += len(block["labels"])
            one_hot = bool((block["labels"].sum(axis=1) == 1).all())
        yield block
    if one_hot and total > 1:
        raise CalibrantError(
            f"{source.where}: labels of several columns are for samples with any number of labels; "
            "found exactly one in every row. For classes, take argmax over one-hot labels"
        )


def _names(source: Source) -> tuple[str, ...] | None:
    return source.layout.column_classes or source.class_names


def _source(path: Any, asked: Asked) -> Source:
    _inputs.path(path, "a prediction file")
    where = os.fsdecode(path)
    file, part = _split(where)
    if not file.exists():
        raise FileNotFoundError(_missing(file))
    for_logs = (asked.options, asked.source, asked.skipped)
    if any(each is not None for each in for_logs) and file.suffix.lower() != ".jsonl":
        raise CalibrantError(
            "options, source and skipped are for .jsonl files, the logs of language models; found "
            f"{file}. Leave them out"
        )
    if asked.where is not None and not file.is_dir() and file.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"a condition on rows is for Parquet files and folders of them; found {file}. Leave it "
            "out, or write the file as Parquet"
        )
    if file.is_dir():
        return ParquetSource(file, part, where, asked)
    for ending, open_source in KINDS.items():
        if file.name.lower().endswith(ending):
            if file.stat().st_size == 0:
                raise CalibrantError(f"{file} is empty (0 bytes). Write it again")
            return open_source(file, part, where, asked)
    raise CalibrantError(
        f"{file} must end in one of {', '.join(KINDS)} (or be a folder of .parquet files); found "
        f"{file.suffix or 'no extension'!r}. Save it as one of these"
    )


def _split(where: str) -> tuple[Path, str | None]:
    """``FILE::part`` split in two, unless a file of that name exists."""
    name, mark, part = where.rpartition("::")
    if not mark or Path(where).exists():
        return Path(where), None
    if not part:
        raise CalibrantError(f"{where} names no part after '::'. Write {name} or {name}::val")
    if not name:
        raise CalibrantError(
            f"{where} names no file before '::'. Write for example predictions.npz{where}"
        )
    return Path(name), part


def _missing(file: Path) -> str:
    if not file.parent.is_dir():
        return f"there is no file {file}: its folder {file.parent} does not exist. Check the path"
    try:
        others = sorted(other.name for other in file.parent.iterdir())
    except OSError:
        others = []
    close = difflib.get_close_matches(file.name, others, n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(close)}?" if close else "Check the name and the folder"
    return f"there is no file {file}. {hint}"
