"""Write predictions as ``.npz``, Parquet or CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant._types import Array
from calibrant._writing import written_whole
from calibrant.errors import CalibrantError
from calibrant.files.csv import write_csv
from calibrant.files.parquet.tables import (
    Given,
    arrow_table,
    score_columns,
    score_table,
    write_tables,
)


def write_predictions(
    path: str | os.PathLike[str],
    *,
    probs: Array | None = None,
    logits: Array | None = None,
    labels: Array | None = None,
    ids: Array | None = None,
    class_names: Sequence[str] | None = None,
    multilabel: bool = False,
    calibrator: str | None = None,
) -> None:
    """Write probabilities or logits so that :func:`read_predictions` gives the same arrays back.

    Args:
        path: ends in ``.npz``, ``.parquet`` or ``.csv``; overwritten if it exists.
        probs: (N, K) probabilities, or (N,) of the positive class; half precision is written as
            float32.
        logits: (N, K) logits, instead of ``probs``. In Parquet, float16 and bfloat16 keep their
            type, and are read as float16 and float32.
        labels: (N,) class indices.
        ids: (N,) integers or strings that name the rows.
        class_names: one name per class. In CSV they are the names of the columns.
        multilabel: whether the columns are labels instead of classes, each with a probability of
            its own; ``labels`` are then (N, L) zeros and ones. In tables, each column ``prob_cat``
            gets a column ``label_cat``.
        calibrator: SHA-256 of the calibrator file that made ``probs``, as an array of that name in
            ``.npz``, as ``calibrant.calibrator`` in the metadata of Parquet, as a column of CSV.

    Parquet files have one column per class, or, for more than 1000 classes, one column of lists.
    CSV has no types: floats are read back as float64 with exactly the same value, and ids that all
    look like integers are read back as integers.

    Examples:
        >>> import tempfile
        >>> from calibrant.files import read_predictions
        >>> file = tempfile.mkdtemp() + "/calibrated.npz"
        >>> write_predictions(file, probs=[[0.25, 0.75]], labels=[1], class_names=["cat", "dog"])
        >>> read_predictions(file).class_names
        ('cat', 'dog')
    """
    target = _inputs.path(path, "the output")
    writer = _WRITERS.get(target.suffix.lower())
    if writer is None:
        raise CalibrantError(
            f"cannot write {target}: the name must end in {', '.join(_WRITERS)}; found "
            f"{target.suffix or 'no extension'!r}. Choose one of these"
        )
    kind, given = _inputs.one_of(probs=probs, logits=logits)
    one_column = False
    if multilabel:
        found = _inputs.label_scores(logits, probs)
        checked = found.values
    else:
        found = _inputs.scores(kind, given)
        checked, one_column = found.checked(), found.one_column
    scores = _inputs.as_numpy(checked)
    if scores.ndim != 2 or len(scores) == 0:
        raise CalibrantError(
            f"{kind} must have the shape (rows, classes) with at least one row; found "
            f"{scores.shape}. Pass one row per sample"
        )
    to_write = _Rows(
        scores[:, 1] if one_column else scores,
        kind,
        str(getattr(given, "dtype", "")).rpartition(".")[2],
        None if labels is None else _checked_labels(labels, found, checked, multilabel=multilabel),
        None if ids is None else checked_ids(ids, len(scores)),
        None if class_names is None else _checked_names(class_names, scores.shape[1]),
        calibrator,
    )
    with written_whole(target) as temporary:
        writer(temporary, to_write)


def _checked_labels(
    labels: Array, of: _inputs.Scores, scores: Array, *, multilabel: bool
) -> NDArray[Any]:
    _inputs.same_rows(of, labels=labels)
    if multilabel:
        return _inputs.label_matrix(labels, of)[0].astype(np.int8)
    return _inputs.as_numpy(_inputs.labels(labels, scores))


@dataclass(frozen=True)
class _Rows:
    """What is written, checked."""

    scores: NDArray[Any]
    kind: str
    given: str
    """The type in which the scores were given."""
    labels: Given
    ids: Given
    names: tuple[str, ...] | None
    calibrator: str | None

    @property
    def narrow(self) -> NDArray[Any]:
        """The scores, in half precision if they were given so."""
        as_given = self.kind == "logits" and self.given == "float16"
        return self.scores.astype(np.float16) if as_given else self.scores

    def columns(self, scores: NDArray[Any]) -> dict[str, Given]:
        """The ids, labels and scores, a column for each class."""
        labels: dict[str, Given] = {"label": self.labels}
        if self.labels is not None and self.labels.ndim == 2:
            names = range(self.labels.shape[1]) if self.names is None else self.names
            labels = {f"label_{name}": self.labels[:, k] for k, name in enumerate(names)}
        return {"id": self.ids, **labels, **score_columns(scores, self.kind, self.names)}


def checked_ids(ids: Array, rows: int) -> NDArray[Any]:
    """Integers or strings, one per row."""
    array = _inputs.as_numpy(ids)
    if array.dtype == object and all(isinstance(name, str) for name in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "iuU":
        raise CalibrantError(
            f"ids must be whole numbers or strings; found the type {array.dtype}. "
            "Convert them to strings"
        )
    if array.shape != (rows,):
        raise CalibrantError(
            f"ids must have one entry per row, shape {(rows,)}; found shape {array.shape}. "
            "Pass one id for each row of probs"
        )
    return array


def _checked_names(names: Sequence[str], n_classes: int) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise CalibrantError("class_names must be a sequence of strings. Pass ['cat', 'dog', ...]")
    if len(names) != n_classes:
        raise CalibrantError(
            f"class_names must have one name per class, {n_classes} in all; found {len(names)}. "
            "Name every column of probs"
        )
    return tuple(str(name) for name in names)


def _write_npz(target: Path, rows: _Rows) -> None:
    # In C order, so that the rows can be read in batches.
    arrays = {rows.kind: np.ascontiguousarray(rows.narrow), "labels": rows.labels, "ids": rows.ids}
    arrays["calibrator"] = None if rows.calibrator is None else np.array(rows.calibrator)
    given = {name: array for name, array in arrays.items() if array is not None}
    if rows.names is not None:
        given["class_names"] = np.array(rows.names, dtype=str)
    with target.open("wb") as file:
        np.savez(file, allow_pickle=False, **given)


def _write_parquet(target: Path, rows: _Rows) -> None:
    if rows.scores.ndim == 1 or (rows.labels is not None and rows.labels.ndim == 2):
        table = arrow_table(rows.columns(rows.narrow))
    else:
        bfloat16 = rows.kind == "logits" and rows.given == "bfloat16"
        table = score_table(
            rows.narrow,
            rows.labels,
            rows.ids,
            kind=rows.kind,
            bfloat16=bfloat16,
            class_names=rows.names,
        )
    write_tables(target, [table], calibrator=rows.calibrator)


def _write_csv(target: Path, rows: _Rows) -> None:
    write_csv(target, [rows.columns(rows.scores)], calibrator=rows.calibrator)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}
