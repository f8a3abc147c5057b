"""``evaluate`` over a Parquet folder: one pass; each bundle gives sums, which are merged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant.files import Predictions
from calibrant.files.parquet import ParquetFolder, Ranges, Skipped
from calibrant.metrics import Evaluation, StreamedEvaluation
from calibrant.metrics.samples import ScoredSamples, samples_from_scores, samples_of_confidence
from calibrant.scale.data_set import bundles, check_some_rows_left, open_data_set
from calibrant.scale.engine import Progress, check_installed_for, engine_for
from calibrant.scale.samples import truncated_rows

TRUNCATED_NOTE = (
    "The rows are truncated: brier and classwise_ece need the other classes and are not measured; "
    "the other metrics are exact."
)


def evaluate(
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    by: Sequence[str] = (),
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    where: str | None = None,
    positive: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    random_state: RandomState = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """:func:`calibrant.evaluate` of Parquet files of any size, in one pass.

    Means, equal-width and class-wise errors are exact. The equal-mass error comes from a sketch,
    and the result states its largest possible error.

    Args:
        path: A Parquet file, or a folder of them with any subfolders.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            the address of a Dask scheduler whose workers can read ``path``, or an open
            ``distributed.Client``.
        skip_bad: Skip and count files and rows that cannot be used, instead of refusing them.
        n_classes: Number of classes, for truncated rows whose files do not say it. For truncated
            rows, metrics that need the other classes are not measured.
        by: Columns that divide the samples into groups, which are measured too.
        label: The column of the labels, if it is not called label, target or y_true.
        score: The column of the positive class, or the columns of all classes.
        where: A condition that rows must meet, such as ``month == '2026-10' and age >= 18``, as in
            :func:`calibrant.files.read_predictions`.
        positive: The label of the positive class, if the labels are not 0 and 1.
        n_bins: Bins of the calibration errors.
        level: Confidence level of the intervals.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.
        progress: Called with the number of the pass over the files, the number of its tasks that
            are done, and the number of its tasks.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant.files import write_predictions
        >>> from calibrant.scale import evaluate
        >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
        >>> for number in range(3):
        ...     probs = rng.dirichlet(np.ones(4), size=1000)
        ...     labels = rng.integers(0, 4, 1000)
        ...     write_predictions(f"{folder}/{number}.parquet", probs=probs, labels=labels)
        >>> evaluate(folder).n
        3000
    """
    check_installed_for(scheduler)
    folder = open_data_set(
        _inputs.path(path, "a data set"),
        skip_bad=skip_bad,
        n_classes=n_classes,
        keep=by,
        label=label,
        score=score,
        where=where,
        positive=positive,
    )
    stream, notes = stream_folder(folder, scheduler, by, n_bins=n_bins, progress=progress)
    result = stream.result(level=level, random_state=random_state)
    return replace(result, notes=(*result.notes, *notes))


def stream_folder(
    folder: ParquetFolder,
    scheduler: Any,
    by: Sequence[str],
    *,
    n_bins: int,
    progress: Progress | None = None,
) -> tuple[StreamedEvaluation, tuple[str, ...]]:
    """The sums behind :func:`evaluate`, and notes on them."""
    if folder.layout.kind != "confidence":
        with _inputs.naming(folder.where):
            _inputs.some_labels(folder.layout.roles.get("labels"))
    with engine_for(scheduler) as engine:
        engine.progress = progress
        stream, skipped = engine.reduce(
            _stream_bundle, bundles(folder), folder.without_ranges(), n_bins, tuple(by)
        )
    skipped.merge(folder.skipped)
    check_some_rows_left(folder.where, stream.n, skipped)
    notes = (f"{skipped}.",) if skipped else ()
    return stream, (TRUNCATED_NOTE, *notes) if folder.truncated else notes


def _stream_bundle(
    ranges: Ranges, folder: ParquetFolder, n_bins: int, by: tuple[str, ...]
) -> tuple[StreamedEvaluation, Skipped]:
    stream, skipped = StreamedEvaluation(n_bins=n_bins), Skipped()
    for batch, samples in folder.checked_batches(ranges, scored_samples, skipped):
        stream.count(replace(samples, groups=batch.groups(by)))
    return stream, skipped


def scored_samples(predictions: Predictions) -> ScoredSamples:
    """What the metrics are computed from, checked."""
    if predictions.confidence is not None and predictions.correct is not None:
        return samples_of_confidence(predictions.confidence, predictions.correct)
    if predictions.top_logits is not None:
        rows = truncated_rows(predictions)
        log_probs = rows.logits[np.arange(len(rows)), rows.labels]
        confidence = np.minimum(np.exp(rows.logits.max(axis=1)), 1.0)
        return ScoredSamples(
            confidence, rows.correct, None, label_log_prob=np.minimum(log_probs, 0.0)
        )
    return samples_from_scores(predictions.probs, predictions.labels, logits=predictions.logits)
