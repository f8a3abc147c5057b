"""Tables of numbers and words with a class in each row, as ``.npz`` or CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training.datasets.base import DataSet, Split
from calibrant.training.datasets.sources import Files, damaged, npz_arrays, opened, reading
from calibrant.training.datasets.splitting import Rows, stratified_split

LABEL_COLUMNS = ("label", "class", "target", "y")
MISSING = ("", "?", "NA", "nan", "NaN")
MOST_WORDS = 1000
"""Limit for the distinct words of one column; each becomes a column."""


class FeatureSplit(Split):
    """Rows of a standardised table."""

    def __init__(self, features: Tensor, labels: NDArray[np.int64], rows: Rows) -> None:
        self.features = features
        self.labels = torch.from_numpy(labels[rows])
        self.ids = np.array([f"row/{row}" for row in rows], dtype=np.str_)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """(m, columns) float32 and (m,) int64."""
        return self.features[indices], self.labels[indices]


def read_tabular(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_share: float = 0.2,
    test_share: float = 0.2,
    label: str | None = None,
) -> DataSet:
    """A table from one file, in stratified random splits.

    ``.npz``: arrays ``X`` (rows, columns), ``y`` (rows,) integers or strings, and optionally
    ``classes``, their names. ``.csv`` or ``.csv.gz``: a header line; the class is in the column
    ``label`` (default: the one named label, class, target or y). A column with anything that is not
    a number is read as words, one column of 0 and 1 for each word of the training split.

    Every column is standardised by the mean and standard deviation of the training split; a column
    that is constant there is centred and divided by its size. A missing number becomes that mean,
    and values are clipped to a million standard deviations from it.
    """
    files = Files.of("tabular", folder, "archive.ics.uci.edu, for example,")
    path = files.folder
    if not path.is_file():
        raise FileNotFoundError(f"tabular needs a .npz, .csv or .csv.gz file; found none at {path}")
    name = path.name.lower()
    if name.endswith(".npz"):
        columns, labels, classes = _from_npz(path)
    elif name.endswith((".csv", ".csv.gz")):
        columns, labels, classes = _from_csv(path, label)
    else:
        raise CalibrantError(
            f"{path} must end in .npz, .csv or .csv.gz. Save the table as one of them"
        )
    files.note(path)
    n_found = len(np.unique(labels))
    _inputs.two_or_more_classes(n_found)
    for column_name, column in columns:
        if column.dtype.kind == "f" and np.isinf(column).any():
            raise damaged(path, f"has an infinite number in {column_name}")
    if not columns:
        raise damaged(path, "has no columns to learn from")
    train, val, test = stratified_split(labels, val_share, test_share, seed)
    if 2 * n_found > len(labels):  # measurements rather than classes
        raise CalibrantError(
            f"there must be two or more rows per class on average; found {n_found} classes in "
            f"{len(labels)} rows. Choose the column of the class, or group its values"
        )
    train = train[:limit]
    features, normalisation = _standardised(columns, train)
    tensor = torch.from_numpy(features)
    splits: dict[str, Any] = {
        name: FeatureSplit(tensor[torch.from_numpy(rows)], labels, rows)
        for name, rows in (("train", train), ("val", val), ("test", test))
    }
    return DataSet(
        name="tabular",
        kind="features",
        input_shape=(features.shape[1],),
        class_names=classes,
        **splits,
        record={
            "files": files.read,
            "split": f"stratified, drawn by the seed: test {test_share:g}, val {val_share:g}",
            "notes": [],
            "normalisation": normalisation,
            "augmentation": "none",
        },
    )


Column = tuple[str, NDArray[Any]]
"""Name, and float64 numbers (NaN: missing) or strings."""


def _from_npz(path: Path) -> tuple[list[Column], NDArray[np.int64], tuple[str, ...]]:
    stored = npz_arrays(path)
    if "X" not in stored or "y" not in stored:
        raise damaged(path, f"must hold X and y; it holds {', '.join(stored) or 'nothing'}")
    values, labels, names = stored["X"], stored["y"], stored.get("classes")
    if values.ndim != 2 or values.dtype.kind not in "biuf" or labels.shape != values.shape[:1]:
        raise damaged(
            path,
            f"must have X of numbers (rows, columns) and y (rows,); found X {values.dtype} "
            f"{values.shape} and y {labels.shape}",
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise damaged(path, "has a label y that is not finite")
    numbers = values.astype(np.float64)
    columns: list[Column] = [(f"column {i}", column) for i, column in enumerate(numbers.T)]
    if names is None or labels.dtype.kind not in "iu":
        found, places = np.unique(labels, return_inverse=True)
        return columns, places.astype(np.int64), tuple(str(name) for name in found)
    if labels.size and not 0 <= labels.min() <= labels.max() < len(names):
        raise damaged(path, f"has labels outside 0 to {len(names) - 1}, the range of classes")
    return columns, labels.astype(np.int64), tuple(str(name) for name in names)


def _from_csv(
    path: Path, label: str | None
) -> tuple[list[Column], NDArray[np.int64], tuple[str, ...]]:
    with reading(path, "CSV in UTF-8"), opened(path) as file:
        lines = list(csv.reader(io.StringIO(file.read().decode("utf-8-sig"), newline="")))
    rows = [line for line in lines if line]
    if len(rows) < 2:
        raise damaged(path, f"must have a header line and rows; it has {len(rows)} lines")
    header = [name.strip() for name in rows[0]]
    if label is None:
        named = [name for name in header if name.lower() in LABEL_COLUMNS]
        if len(named) != 1:
            raise CalibrantError(
                f"{path}: one column must be named {', '.join(LABEL_COLUMNS)}; found "
                f"{len(named)} among {', '.join(header[:20])}. Pass label='its name'"
            )
        label = named[0]
    column = header.index(_inputs.choice(label, "label", header))
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise damaged(path, f"has {len(row)} fields in row {i}, not {len(header)}")
    cells = np.array([[cell.strip() for cell in row] for row in rows[1:]], dtype=np.str_)
    if missing := int(np.isin(cells[:, column], MISSING).sum()):
        raise CalibrantError(
            f"every row must have a class in the column {label!r}; found none in {missing} of "
            f"{len(cells)} rows. Leave these rows out"
        )
    found, labels = np.unique(cells[:, column], return_inverse=True)
    table = zip(header, cells.T, strict=True)
    columns = [(name, _numbers_or_words(cells_)) for name, cells_ in table]
    del columns[column]
    return columns, labels.astype(np.int64), tuple(str(name) for name in found)


def _numbers_or_words(cells: NDArray[np.str_]) -> NDArray[Any]:
    missing = np.isin(cells, MISSING)
    try:
        return np.where(missing, "nan", cells).astype(np.float64)
    except ValueError:
        return cells


def _standardised(
    columns: Sequence[Column], train: Rows
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """The standardised table, and how it was standardised."""
    numbers: list[NDArray[np.float64]] = []
    means, sds, words = [], [], {}
    filled = 0
    for name, column in columns:
        if column.dtype.kind == "U":
            known = np.unique(column[train])
            if len(known) > MOST_WORDS:  # names or dates
                raise CalibrantError(
                    f"a column of words may have {MOST_WORDS} different ones; found {len(known)} "
                    f"in {name!r}. Leave the column out, or group its words"
                )
            words[name] = [str(word) for word in known]
            numbers.extend((column == word).astype(np.float64) for word in known)
        else:
            numbers.append(column)
    table = np.empty((len(numbers[0]) if numbers else 0, len(numbers)), dtype=np.float32)
    for i, column in enumerate(numbers):
        missing = np.isnan(column)
        present = column[train][~missing[train]]
        # Scaling keeps the squares of numbers near 1e300 finite.
        scale = float(np.abs(present).max(initial=0.0)) or 1.0
        mean = float((present / scale).mean()) if len(present) else 0.0
        sd = float((present / scale).std()) if len(present) else 0.0
        sd = sd if sd > 1e-12 else 1.0
        filled += int(missing.sum())
        table[:, i] = np.clip(np.where(missing, 0.0, (column / scale - mean) / sd), -1e6, 1e6)
        means.append(mean * scale)
        sds.append(sd * scale)
    normalisation = {
        "formula": "(value - mean) / sd clipped to 1e6, from the training split only",
        "mean": means,
        "sd": sds,
        "words": words,
        "missing_numbers_set_to_the_mean": filled,
    }
    return table, normalisation
