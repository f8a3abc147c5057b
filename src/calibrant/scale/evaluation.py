"""``evaluate`` over a data set: one pass, each bundle counted apart, the counts merged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrant import _checks
from calibrant.files import Predictions
from calibrant.metrics import Evaluation, StreamedEvaluation
from calibrant.metrics.samples import Samples, samples_of_confidence, summarise
from calibrant.scale.engine import engine_for
from calibrant.scale.source import DataSet, Part, Skipped, open_data_set


def evaluate(
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """:func:`calibrant.evaluate` of a Parquet data set of any size, in one pass.

    Means, equal-width and class-wise errors are those of all rows together. The equal-mass error
    comes from a sketch, and the result states how much it can be off.

    Args:
        path: A Parquet file, or a folder of them with any folders inside.
        scheduler: None for this process, ``"local"`` for a cluster on this machine, or the address
            of a Dask scheduler whose workers can read ``path``.
        skip_bad: Leave out and count what cannot be read or used, in place of refusing it.
        n_bins: Bins of the calibration errors.
        level: Confidence level of the intervals.
        seed: Seed of the redraws.

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
    stream, skipped = counted(path, scheduler=scheduler, skip_bad=skip_bad, n_bins=n_bins)
    result = stream.result(level=level, seed=seed)
    return replace(result, notes=(*result.notes, f"{skipped}.")) if skipped else result


def counted(
    path: str | os.PathLike[str], *, scheduler: Any, skip_bad: bool, n_bins: int
) -> tuple[StreamedEvaluation, Skipped]:
    """The sums behind :func:`evaluate`, and what was left out."""
    data_set = open_data_set(Path(path), skip_bad=skip_bad)
    if data_set.layout.kind != "confidence":
        with _checks.naming(data_set.where):
            _checks.some_labels(data_set.layout.roles.get("labels"))
    with engine_for(scheduler) as engine:
        stream, skipped = engine.reduce(_count, data_set.bundles(), data_set.for_tasks(), n_bins)
    skipped.merge(data_set.skipped)
    _checks.some_rows_left(data_set.where, stream.n, skipped)
    return stream, skipped


def _count(
    parts: tuple[Part, ...], data_set: DataSet, n_bins: int
) -> tuple[StreamedEvaluation, Skipped]:
    stream, skipped = StreamedEvaluation(n_bins=n_bins), Skipped()
    for _, _, samples in data_set.checked(parts, samples_of, skipped):
        stream.count(samples)
    return stream, skipped


def samples_of(predictions: Predictions) -> Samples:
    """What the metrics look at, checked."""
    if predictions.confidence is not None and predictions.correct is not None:
        return samples_of_confidence(predictions.confidence, predictions.correct)
    return summarise(predictions.probs, predictions.labels, logits=predictions.logits)
