"""``apply`` over a data set: a new folder with a calibrated file for each file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._writing import folder_written_whole, make_folder, written_whole
from calibrant.calibrators import Calibrator
from calibrant.calibrators.truncated.bounds import check_method_of_truncated_rows
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.files.columns import arrow
from calibrant.files.parquet import CLASS_NAMES
from calibrant.files.top import top_table
from calibrant.files.writing import PARQUET_OPTIONS, table_of
from calibrant.scale.engine import Progress, engine_for, packages_of
from calibrant.scale.samples import truncated_rows_of
from calibrant.scale.source import DataSet, Part, Skipped, check_some_rows_left, open_data_set


@dataclass
class Applied:
    """What was written."""

    files: int = 0
    rows: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    off_by: float | None = None
    """Where rows have their largest logits only: how far the others can put a probability off."""

    def merge(self, other: Applied) -> None:
        """Add what was written elsewhere."""
        self.files += other.files
        self.rows += other.rows
        self.off_by = max(
            (off for off in (self.off_by, other.off_by) if off is not None), default=None
        )
        self.skipped.merge(other.skipped)

    def __str__(self) -> str:
        left_out = f" {self.skipped}." if self.skipped else ""
        off = (
            ""
            if self.off_by is None
            else (
                " The classes that are not known can put a probability off by up to "
                f"{self.off_by:.2g}; the column off_by has the bound of each row."
            )
        )
        return f"{self.rows} rows calibrated, in {self.files} files.{off}{left_out}"


def apply(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Write calibrated probabilities of a Parquet data set to a new folder.

    There is a file for each file, under the same name, with ``prob_0, prob_1, ...`` in place of the
    scores; labels and ids that are there are kept. A file without rows stays one; there is none for
    a file that was left out whole. The folder appears when all of them are written, or not at all.

    Rows of the largest logits become ``top_logprobs`` of the same classes, with the estimate of the
    others in their sum, and ``off_by``: the farthest that one of the row's probabilities can be
    off, whatever the other classes are.

    Args:
        calibrator: Fitted on as many classes.
        path: A Parquet file, or a folder of them with any folders inside.
        output: The folder to make; the workers must be able to write beside it.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            or the address of a Dask scheduler, or an open ``distributed.Client``.
        skip_bad: Leave out and count what cannot be read or used, in place of refusing it.
        n_classes: How many classes there are, where rows have their largest logits only and the
            files do not say it.
        progress: Called with the number of a pass over the files, how many of its tasks are done,
            and how many there are.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant import FocalCalibration
        >>> from calibrant.files import read_predictions, write_predictions
        >>> from calibrant.scale import apply
        >>> folder, probs = tempfile.mkdtemp(), np.array([[0.2, 0.8], [0.6, 0.4]])
        >>> write_predictions(f"{folder}/new.parquet", probs=probs)
        >>> focal = FocalCalibration(gamma=2.0).fit(probs=probs, labels=[1, 0])
        >>> print(apply(focal, f"{folder}/new.parquet", f"{folder}/calibrated"))
        2 rows calibrated, in 1 files.
        >>> read_predictions(f"{folder}/calibrated/new.parquet").probs.shape
        (2, 2)
    """
    calibrator._need_fit()
    packages_of(scheduler)
    source = _inputs.path(path, "a data set")
    target = check_new_folder(_inputs.path(output, "the output"), apart_from=source).resolve()
    make_folder(target.parent)
    data_set = open_data_set(source, skip_bad=skip_bad, n_classes=n_classes)
    with _inputs.naming(data_set.where):
        _inputs.some_scores(data_set.layout.scores or None, None)
        check_count_of_classes(data_set.n_classes, calibrator.n_classes_)
        if data_set.layout.kind == "top_logits":
            check_method_of_truncated_rows(calibrator.NAME)
    root = source if source.is_dir() else source.parent
    with folder_written_whole(target) as folder:
        by_file: dict[str, list[Part]] = {file: [] for file in data_set.files}
        for part in data_set.parts:
            by_file[part.file].append(part)
        tasks = [
            (tuple(parts), str(folder / Path(file).relative_to(root)))
            for file, parts in by_file.items()
        ]
        for _, file in tasks:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        with engine_for(scheduler) as engine:
            engine.progress = progress
            applied: Applied = engine.reduce(_write, tasks, data_set.for_tasks(), calibrator)
        applied.skipped.merge(data_set.skipped)
        check_some_rows_left(data_set.where, applied.rows, applied.skipped)
        for left in list(folder.rglob(".*")):  # of workers that died while they wrote
            shutil.rmtree(left, ignore_errors=True)
    return applied


def _write(
    task: tuple[tuple[Part, ...], str], data_set: DataSet, calibrator: Calibrator
) -> Applied:
    """One file, whole or not at all; none where all of its rows are left out."""
    parts, target = task
    applied = Applied()
    top = data_set.layout.kind == "top_logits"
    tables = (_top_tables if top else _tables)(parts, data_set, calibrator, applied)
    first = next(tables, None)
    if first is None and parts:
        return applied
    if first is None:
        first = _table_without_rows(calibrator.n_classes_, top=top)
    with (
        written_whole(target) as temporary,
        arrow("writing").parquet.ParquetWriter(
            temporary, first.schema, **PARQUET_OPTIONS
        ) as writer,
    ):
        for table in chain([first], tables):
            writer.write_table(table)
            applied.rows += table.num_rows
    applied.files = 1
    return applied


def _table_without_rows(n_classes: int, *, top: bool) -> Any:
    """As those of its neighbours are, as far as is known."""
    if not top:
        return table_of(np.empty((0, n_classes)), None, None)
    none = np.empty((0, 1))
    return top_table("top_logprobs", none, none.astype(np.int64), {}, n_classes)


def _tables(
    parts: tuple[Part, ...], data_set: DataSet, calibrator: Calibrator, applied: Applied
) -> Iterator[Any]:
    """Calibrated probabilities, labels and ids, a batch at a time."""
    kept = [name for name in ("ids", "labels") if name in data_set.layout.roles]

    def probs_of(predictions: Predictions) -> npt.NDArray[Any]:
        probs = calibrator.predict_proba(predictions.logits, probs=predictions.probs)
        if predictions.labels is not None:
            _inputs.labels(predictions.labels, probs)
        return np.asarray(probs)

    for predictions, probs in data_set.checked(parts, probs_of, applied.skipped):
        given = {name: getattr(predictions, name) for name in kept}
        table = table_of(probs, given.get("labels"), given.get("ids"))
        if data_set.class_names is not None:
            names = json.dumps(data_set.class_names)
            table = table.replace_schema_metadata({CLASS_NAMES: names})
        yield table


def _top_tables(
    parts: tuple[Part, ...], data_set: DataSet, calibrator: Calibrator, applied: Applied
) -> Iterator[Any]:
    """The same for rows of the largest logits."""
    assert data_set.n_classes is not None
    gamma = float(calibrator.state_.get("gamma", 0.0))
    beta = 1.0 / float(calibrator.state_.get("temperature", 1.0))
    kind = np.float64 if data_set.dtype.itemsize > 4 else np.float32
    has_labels = "labels" in data_set.layout.roles
    for predictions, rows in data_set.checked(parts, truncated_rows_of, applied.skipped):
        log_probs = rows.log_probs(gamma, beta).astype(kind)
        _, _, limits = rows.bounds(gamma, beta, of_classes=True)
        probs = np.exp(log_probs.astype(np.float64))
        off_by = np.abs(np.exp(limits) - probs).max(axis=(0, 2))
        of_label = log_probs[np.arange(len(rows)), rows.labels] if has_labels else None
        others = {
            "id": predictions.ids,
            "label": predictions.labels,
            "label_logprob": of_label,
            "off_by": off_by,
        }
        applied.off_by = max(applied.off_by or 0.0, float(off_by.max()))
        assert predictions.top_classes is not None
        yield top_table(
            "top_logprobs", log_probs[:, :-1], predictions.top_classes, others, data_set.n_classes
        )


def check_new_folder(path: Path, *, apart_from: Path) -> Path:
    """A folder that is not there yet, in one that is; not inside the one that is read."""
    if os.path.lexists(path):
        raise FileExistsError(
            f"{path} is there already, and a data set is written as a new folder. "
            "Name another, or remove it"
        )
    if apart_from.is_dir() and path.resolve().is_relative_to(apart_from.resolve()):
        raise CalibrantError(
            f"{path} lies in {apart_from}, which is read, and would be read with it the next "
            "time. Name a folder beside it"
        )
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write to. Make it first")
    return path


def check_count_of_classes(found: int | None, expected: int) -> None:
    """A data set of as many classes as a calibrator was fitted on."""
    if found != expected:
        raise CalibrantError(
            f"this calibrator was fitted on {expected} classes; found {found}. "
            "Use the predictions of the same model"
        )
