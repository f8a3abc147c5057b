"""Arrow tables of predictions, and how they are written as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError
from calibrant.files.columns import arrow
from calibrant.files.layout import BFLOAT16, SCORES
from calibrant.files.parquet.footer import CALIBRATOR, CLASS_NAMES, N_CLASSES

Given: TypeAlias = NDArray[Any] | None

MOST_COLUMNS = 1000
"""Classes up to which each has a column."""
GROUP_ROWS, GROUP_NUMBERS = 1 << 16, 1 << 24
"""Rows of a row group, and numbers in them."""
PAGE_BYTES = 1 << 16
"""Small pages, because a reader holds one page of every column."""


def score_table(
    scores: NDArray[Any],
    labels: Given = None,
    ids: Given = None,
    *,
    kind: str = "probs",
    bfloat16: bool = False,
    class_names: tuple[str, ...] | None = None,
    others: Mapping[str, Any] | None = None,
) -> Any:
    """The columns of a file with the scores of all classes, in order.

    Args:
        scores: (N, K) floats; with ``bfloat16`` float32 numbers that bfloat16 holds exactly.
        labels: (N,) class indices.
        ids: (N,) names of the rows.
        kind: ``"logits"`` or ``"probs"``.
        bfloat16: Whether to write the 16 bits of each number.
        class_names: One name per class.
        others: Other columns, instead of labels and ids.
    """
    if bfloat16:
        bits = (scores.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        columns = {f"{kind}{BFLOAT16}": _lists(bits)}
    elif scores.ndim == 2 and scores.shape[1] > MOST_COLUMNS:
        columns = {kind: _lists(scores)}
    else:
        columns = score_columns(scores, kind)
    others = {"id": ids, "label": labels} if others is None else others
    table = arrow_table(beside(others, columns))
    if class_names is not None:
        table = table.replace_schema_metadata({CLASS_NAMES: json.dumps(class_names)})
    return table


def beside(others: Mapping[str, Any], scores: Mapping[str, Any]) -> dict[str, Any]:
    """All columns of a table; scores that would replace one of the others are refused."""
    lost = next((name for name in scores if name in others), None)
    if lost is not None:
        raise CalibrantError(
            f"the calibrated probabilities are written as {lost}, which the file has already. "
            "Rename or drop that column"
        )
    return {**others, **scores}


def score_columns(
    scores: NDArray[Any], kind: str, class_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """One column per class, named after it, or numbered; one column alone is the positive class."""
    stem = SCORES[kind]
    if scores.ndim == 1:
        return {stem: scores}
    names = range(scores.shape[1]) if class_names is None else class_names
    return {f"{stem}_{name}": np.ascontiguousarray(scores[:, k]) for k, name in enumerate(names)}


def truncated_table(
    kind: str,
    scores: NDArray[Any],
    classes: NDArray[np.int64],
    others: dict[str, Given],
    n_classes: int,
) -> Any:
    """The columns of a file with the largest scores of each row.

    Args:
        kind: ``"top_logits"`` or ``"top_logprobs"``.
        scores: (N, k) floats.
        classes: (N, k) their classes.
        others: Further columns; those that are None are left out.
        n_classes: Number of classes.
    """
    lists = {kind: _lists(scores), "top_classes": _lists(classes.astype(np.int32))}
    return arrow_table(others | lists).replace_schema_metadata({N_CLASSES: str(n_classes)})


def write_tables(target: Path, tables: Iterable[Any], *, calibrator: str | None = None) -> int:
    """Write tables with the same columns as one Parquet file; returns the number of rows.

    ``calibrator`` is the SHA-256 of the calibrator that made them, for the file's metadata.
    """
    remaining: Iterator[Any] = iter(tables)
    first = next(remaining)
    about = {} if calibrator is None else {CALIBRATOR: calibrator}
    schema = first.schema.with_metadata({**(first.schema.metadata or {}), **about} or None)
    rows = 0
    with arrow("writing").parquet.ParquetWriter(
        target,
        schema,
        data_page_size=PAGE_BYTES,
        use_dictionary=False,
        write_page_checksum=True,
    ) as writer:
        for table in chain([first], remaining):
            writer.write_table(table, row_group_size=_group_rows(table))
            rows += table.num_rows
    return rows


def _group_rows(table: Any) -> int:
    """Rows of a row group, by how many numbers they hold."""
    kinds = table.schema.types
    numbers = sum(getattr(kind, "list_size", 1) for kind in kinds)
    return int(max(1, min(GROUP_ROWS, GROUP_NUMBERS // numbers)))


def _lists(array: NDArray[Any]) -> Any:
    flat = arrow("writing").array(np.ascontiguousarray(array).reshape(-1))
    return arrow("writing").FixedSizeListArray.from_arrays(flat, array.shape[1])


def arrow_table(columns: dict[str, Any]) -> Any:
    """A table of the columns that are not None."""
    return arrow("writing").table({n: array for n, array in columns.items() if array is not None})
