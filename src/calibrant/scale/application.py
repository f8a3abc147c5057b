"""``apply`` over a Parquet folder: a new folder with one calibrated file per file."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._writing import folder_written_whole, make_folder, written_whole
from calibrant.calibrators import Calibrator
from calibrant.calibrators.saving import digest_of
from calibrant.calibrators.truncated.bounds import check_method_of_truncated_rows
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.files.parquet import ParquetFolder, Ranges, RowRange, Skipped
from calibrant.files.parquet.tables import score_table, truncated_table, write_tables
from calibrant.scale.data_set import check_some_rows_left, open_data_set
from calibrant.scale.engine import Progress, check_installed_for, engine_for
from calibrant.scale.samples import truncated_rows


@dataclass
class Applied:
    """What was written."""

    files: int = 0
    rows: int = 0
    skipped: Skipped = field(default_factory=Skipped)
    off_by: float | None = None
    """For truncated rows, a bound on the error of a probability due to the unknown classes."""

    def merge(self, other: Applied) -> None:
        """Add what was written elsewhere."""
        self.files += other.files
        self.rows += other.rows
        bounds = [bound for bound in (self.off_by, other.off_by) if bound is not None]
        self.off_by = max(bounds, default=None)
        self.skipped.merge(other.skipped)

    def __str__(self) -> str:
        parts = [f"{self.rows} rows calibrated, in {self.files} files."]
        if self.off_by is not None:
            parts.append(
                f"The unknown classes change a probability by at most {self.off_by:.2g}; the "
                "column off_by has the bound of each row."
            )
        if self.skipped:
            parts.append(f"{self.skipped}.")
        return " ".join(parts)


def apply(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Write calibrated probabilities of a Parquet folder to a new folder.

    Each file becomes a file of the same name, with ``prob_0, prob_1, ...`` instead of the scores;
    the other columns that all files have are kept, and the metadata has the SHA-256 of the
    calibrator's file. A file without rows stays without rows; a file
    that is skipped whole is not written. The new folder appears when all files are written, or not
    at all.

    Truncated rows become ``top_logprobs`` of the same classes, normalised with the estimate of the
    other classes, and ``off_by``: a bound on the error of the row's probabilities, whatever the
    other classes are.

    Args:
        calibrator: A fitted calibrator for the same number of classes.
        path: A Parquet file, or a folder of them with any subfolders.
        output: The folder to create; the workers must be able to write beside it.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            the address of a Dask scheduler, or an open ``distributed.Client``.
        skip_bad: Skip and count files and rows that cannot be used, instead of refusing them.
        n_classes: Number of classes, for truncated rows whose files do not say it.
        label: The column of the labels, if it is not called label, target or y_true.
        score: The column of the positive class, or the columns of all classes.
        positive: The label of the positive class, if the labels are not 0 and 1.
        progress: Called with the number of the pass over the files, the number of its tasks that
            are done, and the number of its tasks.

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
    check_installed_for(scheduler)
    source = _inputs.path(path, "a data set")
    target = check_new_folder(_inputs.path(output, "the output"), apart_from=source).resolve()
    make_folder(target.parent)
    folder = open_data_set(
        source,
        skip_bad=skip_bad,
        n_classes=n_classes,
        label=label,
        score=score,
        positive=positive,
        keep=True,
    )
    names = calibrator.class_names()
    if positive is None and names and folder.layout.single:
        with contextlib.suppress(CalibrantError):  # labels 0 and 1 need no name
            folder = folder.with_positive(str(names[-1]))
    with _inputs.naming(folder.where):
        _inputs.some_scores(folder.layout.scores or None, None)
        check_same_classes(folder.n_classes, calibrator.n_classes_)
        if folder.truncated:
            check_method_of_truncated_rows(calibrator.NAME)
    digest = digest_of(calibrator)
    root = source if source.is_dir() else source.parent
    by_file: dict[str, list[RowRange]] = {file: [] for file in folder.files}
    for group in folder.ranges:
        by_file[group.file].append(group)
    with folder_written_whole(target) as temporary:
        tasks = [
            (tuple(groups), str(temporary / Path(file).relative_to(root)))
            for file, groups in by_file.items()
        ]
        for _, file in tasks:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        with engine_for(scheduler) as engine:
            engine.progress = progress
            applied: Applied = engine.reduce(
                _write_file, tasks, folder.without_ranges(), calibrator, digest
            )
        applied.skipped.merge(folder.skipped)
        check_some_rows_left(folder.where, applied.rows, applied.skipped)
        for leftover in list(temporary.rglob(".*")):  # of workers that died while writing
            shutil.rmtree(leftover, ignore_errors=True)
    return applied


def _write_file(
    task: tuple[Ranges, str], folder: ParquetFolder, calibrator: Calibrator, digest: str
) -> Applied:
    """Write one file, whole or not at all; none if all of its rows are skipped."""
    ranges, target = task
    applied = Applied()
    calibrated_tables = _truncated_tables if folder.truncated else _score_tables
    tables = calibrated_tables(ranges, folder, calibrator, applied)
    first = next(tables, None)
    if first is None and ranges:
        return applied
    if first is None:
        first = _table_without_rows(calibrator.n_classes_, truncated=folder.truncated)
    with written_whole(target) as temporary:
        applied.rows = write_tables(temporary, chain([first], tables), calibrator=digest)
    applied.files = 1
    return applied


def _table_without_rows(n_classes: int, *, truncated: bool) -> Any:
    """The columns that the other files have, as far as they are known."""
    if not truncated:
        return score_table(np.empty((0, n_classes)))
    none = np.empty((0, 1))
    return truncated_table("top_logprobs", none, none.astype(np.int64), {}, n_classes)


def _score_tables(
    ranges: Ranges, folder: ParquetFolder, calibrator: Calibrator, applied: Applied
) -> Iterator[Any]:
    """Calibrated probabilities, labels and ids, one batch at a time."""

    def calibrated(predictions: Predictions) -> npt.NDArray[Any]:
        kind = "probs" if predictions.logits is None else "logits"
        scores = getattr(predictions, kind)
        probs = calibrator.predict_columns(
            kind,
            scores,
            predictions.class_names,
            single=predictions.single,
            groups=predictions.groups(calibrator.group_columns_),
        )
        if predictions.labels is not None:
            _inputs.labels(predictions.labels, probs)
        return probs[:, 1] if predictions.single else probs

    of_path = dict(ranges[0].of_path) if ranges else {}  # they stay in the path
    for predictions, probs in folder.checked_batches(ranges, calibrated, applied.skipped):
        others = {name: c for name, c in predictions.others.items() if name not in of_path}
        yield score_table(probs, others=others, class_names=folder.class_names)


def _truncated_tables(
    ranges: Ranges, folder: ParquetFolder, calibrator: Calibrator, applied: Applied
) -> Iterator[Any]:
    """The same for truncated rows."""
    assert folder.n_classes is not None
    gamma = float(calibrator.state_.get("gamma", 0.0))
    inverse_temperature = 1.0 / float(calibrator.state_.get("temperature", 1.0))
    dtype = np.float64 if folder.dtype.itemsize > 4 else np.float32
    for predictions, rows in folder.checked_batches(ranges, truncated_rows, applied.skipped):
        log_probs = rows.log_probs(gamma, inverse_temperature).astype(dtype)
        _, _, limits = rows.bounds(gamma, inverse_temperature, of_classes=True)
        probs = np.exp(log_probs.astype(np.float64))
        off_by = np.abs(np.exp(limits) - probs).max(axis=(0, 2))
        applied.off_by = max(applied.off_by or 0.0, float(off_by.max()))
        has_labels = predictions.labels is not None
        label_log_probs = log_probs[np.arange(len(rows)), rows.labels] if has_labels else None
        others = {
            "id": predictions.ids,
            "label": predictions.labels,
            "label_logprob": label_log_probs,
            "off_by": off_by,
        }
        assert predictions.top_classes is not None
        yield truncated_table(
            "top_logprobs", log_probs[:, :-1], predictions.top_classes, others, folder.n_classes
        )


def check_new_folder(path: Path, *, apart_from: Path) -> Path:
    """A folder that does not exist yet, in one that does, outside the one that is read."""
    if os.path.lexists(path):
        raise FileExistsError(
            f"{path} exists already; the output of a folder is a new folder. "
            "Choose another name, or remove it"
        )
    if apart_from.is_dir() and path.resolve().is_relative_to(apart_from.resolve()):
        raise CalibrantError(
            f"{path} is inside {apart_from}, which is read; the next run would read the output "
            "too. Choose a folder beside it"
        )
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write to. Create it first")
    return path


def check_same_classes(found: int | None, expected: int) -> None:
    """Refuse another number of classes than the calibrator was fitted on."""
    if found != expected:
        raise CalibrantError(
            f"the calibrator was fitted on {expected} classes; found {found}. "
            "Use the predictions of the same model"
        )
