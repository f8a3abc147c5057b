"""``evaluate`` over a data set: one pass, each bundle counted apart, the counts merged."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant.files import Predictions
from calibrant.metrics import Evaluation, StreamedEvaluation
from calibrant.metrics.samples import ScoredSamples, samples_of_confidence, summarise
from calibrant.scale.engine import Progress, engine_for, packages_of
from calibrant.scale.samples import truncated_rows_of
from calibrant.scale.source import DataSet, Part, Skipped, check_some_rows_left, open_data_set

OF_TOP_ROWS = (
    "Rows have their largest logits only: what is measured does not need the others; brier and "
    "classwise_ece do, and cannot be known."
)


def evaluate(
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    random_state: RandomState = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """:func:`calibrant.evaluate` of a Parquet data set of any size, in one pass.

    Means, equal-width and class-wise errors are those of all rows together. The equal-mass error
    comes from a sketch, and the result states how much it can be off.

    Args:
        path: A Parquet file, or a folder of them with any folders inside.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            or the address of a Dask scheduler whose workers can read ``path``, or an open
            ``distributed.Client``.
        skip_bad: Leave out and count what cannot be read or used, in place of refusing it.
        n_classes: How many classes there are, where rows have their largest logits only and the
            files do not say it. What needs the other classes is not measured then.
        n_bins: Bins of the calibration errors.
        level: Confidence level of the intervals.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.
        progress: Called with the number of a pass over the files, how many of its tasks are done,
            and how many there are.

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
    stream, notes = counted(
        path,
        scheduler=scheduler,
        skip_bad=skip_bad,
        n_classes=n_classes,
        n_bins=n_bins,
        progress=progress,
    )
    result = stream.result(level=level, random_state=random_state)
    return replace(result, notes=(*result.notes, *notes))


def counted(
    path: str | os.PathLike[str],
    *,
    scheduler: Any,
    skip_bad: bool,
    n_classes: int | None,
    n_bins: int,
    progress: Progress | None = None,
) -> tuple[StreamedEvaluation, tuple[str, ...]]:
    """The sums behind :func:`evaluate`, and what else there is to say."""
    packages_of(scheduler)
    data_set = open_data_set(
        _inputs.path(path, "a data set"), skip_bad=skip_bad, n_classes=n_classes
    )
    if data_set.layout.kind != "confidence":
        with _inputs.naming(data_set.where):
            _inputs.some_labels(data_set.layout.roles.get("labels"))
    with engine_for(scheduler) as engine:
        engine.progress = progress
        stream, skipped = engine.reduce(_count, data_set.bundles(), data_set.for_tasks(), n_bins)
    skipped.merge(data_set.skipped)
    check_some_rows_left(data_set.where, stream.n, skipped)
    notes = (f"{skipped}.",) if skipped else ()
    if data_set.layout.kind == "top_logits":
        notes = (OF_TOP_ROWS, *notes)
    return stream, notes


def _count(
    parts: tuple[Part, ...], data_set: DataSet, n_bins: int
) -> tuple[StreamedEvaluation, Skipped]:
    stream, skipped = StreamedEvaluation(n_bins=n_bins), Skipped()
    for _, samples in data_set.checked(parts, samples_of, skipped):
        stream.count(samples)
    return stream, skipped


def samples_of(predictions: Predictions) -> ScoredSamples:
    """What the metrics look at, checked."""
    if predictions.confidence is not None and predictions.correct is not None:
        return samples_of_confidence(predictions.confidence, predictions.correct)
    if predictions.top_logits is not None:
        rows = truncated_rows_of(predictions)
        log_probs = rows.logits[np.arange(len(rows)), rows.labels]
        confidence = np.minimum(np.exp(rows.logits.max(axis=1)), 1.0)
        return ScoredSamples(
            confidence, rows.correct, None, label_log_prob=np.minimum(log_probs, 0.0)
        )
    return summarise(predictions.probs, predictions.labels, logits=predictions.logits)
