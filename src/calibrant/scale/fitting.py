"""``fit`` over a Parquet folder: the fits of `calibrators`, on sums over files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from calibrant import _inputs
from calibrant.calibrators import (
    AutoCalibration,
    BiasCorrectedTemperatureScaling,
    Calibrator,
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
    TopRestScaling,
    VectorScaling,
)
from calibrant.calibrators.auto.method import rows_to_compare
from calibrant.calibrators.truncated.bounds import check_truncated_fit, tail_bounds
from calibrant.errors import CalibrantError
from calibrant.scale import regression, search, top_rest  # noqa: F401  (they register fits)
from calibrant.scale.data_set import open_data_set
from calibrant.scale.engine import Progress, check_installed_for, engine_for
from calibrant.scale.samples import SamplesInFiles

METHODS = tuple(
    method.NAME
    for method in (
        Identity,
        TemperatureScaling,
        FocalCalibration,
        FocalTemperatureScaling,
        TopRestScaling,
        VectorScaling,
        BiasCorrectedTemperatureScaling,
        AutoCalibration,
    )
)
"""Methods whose fits need only sums over rows; ``auto`` also some rows, to compare methods on."""


AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)


def fit(
    calibrator: AnyCalibrator,
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    where: str | None = None,
    positive: str | None = None,
    progress: Progress | None = None,
) -> AnyCalibrator:
    """Fit ``calibrator`` on Parquet files of any size.

    The steps are those of ``calibrator.fit``; each sum over rows is added up over the files. The
    result is the same except for rounding, and, if the criterion is an equal-mass calibration
    error, within the bounds that the report states.

    Args:
        calibrator: One of the methods in ``METHODS``; it is fitted in place.
        path: A Parquet file, or a folder of them with any subfolders.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            the address of a Dask scheduler whose workers can read ``path``, or an open
            ``distributed.Client``.
        skip_bad: Skip and count files and rows that cannot be used, instead of refusing them.
        n_classes: Number of classes, for truncated rows whose files do not say it. Truncated rows
            are fitted with an estimate of the other classes, and the report has bounds (see
            :class:`calibrant.calibrators.TruncatedRows`).
        label: The column of the labels, if it is not called label, target or y_true.
        score: The column of the positive class, or the columns of all classes.
        where: A condition that rows must meet, such as ``month == '2026-10' and age >= 18``, as in
            :func:`calibrant.files.read_predictions`.
        positive: The label of the positive class, if the labels are not 0 and 1.
        progress: Called with the number of the pass over the files, the number of its tasks that
            are done, and the number of its tasks.

    Returns:
        The calibrator. Its ``report_`` also has ``passes``, ``skipped``, ``search_bounds`` and
        ``tail_bounds``.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant import TemperatureScaling
        >>> from calibrant.files import write_predictions
        >>> from calibrant.scale import fit
        >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
        >>> probs = rng.dirichlet(np.ones(4), size=3000)
        >>> labels = (np.log(probs) + rng.gumbel(size=probs.shape)).argmax(axis=1)
        >>> for part in range(3):
        ...     rows = slice(1000 * part, 1000 * part + 1000)
        ...     file = f"{folder}/{part}.parquet"
        ...     write_predictions(file, probs=probs[rows], labels=labels[rows])
        >>> together = TemperatureScaling().fit(probs=probs, labels=labels)
        >>> apart = fit(TemperatureScaling(), folder)
        >>> abs(apart.temperature_ - together.temperature_) < 1e-9
        True
    """
    check_installed_for(scheduler)
    check_scalable(calibrator)
    folder = open_data_set(
        _inputs.path(path, "a data set"),
        skip_bad=skip_bad,
        n_classes=n_classes,
        label=label,
        score=score,
        where=where,
        positive=positive,
    )
    if folder.truncated:
        check_truncated_fit(calibrator)
    with engine_for(scheduler) as engine:
        engine.progress = progress
        chooses = isinstance(calibrator, AutoCalibration)
        samples = SamplesInFiles.of(folder, engine, to_compare=chooses)
        calibrator.fit_samples(samples)
        tail = tail_bounds(samples, calibrator) if folder.truncated else None
    calibrator.classes_ = folder.class_names or calibrator.classes_
    kind = "probs" if folder.layout.kind == "probs" else "logits"
    calibrator.origin_ = replace(calibrator.origin_, input=kind)
    if len(samples.facts.hashed):  # if nearly all rows were skipped, perhaps none is left
        hashed = samples.facts.hashed.in_order()
        shape = (len(samples), hashed.logits.shape[1])
        calibrator.origin_ = calibrator.origin_.with_hashed(
            kind, shape, hashed.logits, hashed.labels
        )
    calibrator.report_ = replace(
        calibrator.report_,
        passes=len(samples.passes),
        skipped=samples.facts.skipped,
        search_bounds=samples.search_bounds[-1] if samples.search_bounds else None,
        tail_bounds=tail,
        compared_on=_compared_on(calibrator, samples),
    )
    return calibrator


def _compared_on(calibrator: Calibrator, samples: SamplesInFiles) -> str | None:
    """What ``auto`` did on some of the rows."""
    if not isinstance(calibrator, AutoCalibration):
        return None
    some = len(rows_to_compare(samples))
    if some == len(samples):
        return None
    text = f"Methods were compared on {some:,} evenly spread rows"
    if len(calibrator.parts_) == 1 and isinstance(calibrator.parts_[0], TopRestScaling):
        return f"{text}; {calibrator.chosen_} was fitted on all."
    return f"{text}; {calibrator.chosen_}, which needs rows in memory, was fitted on these."


def check_scalable(calibrator: Calibrator) -> None:
    """Refuse a method, or a search, that is not made of a few sums over rows."""
    if calibrator.NAME not in METHODS:
        raise CalibrantError(
            f"expected a method that can be fitted over files ({', '.join(METHODS)}), got "
            f"{calibrator.NAME!r}. Choose one of them, or fit on samples that fit into memory"
        )
    calibrator._check_params()
    if isinstance(calibrator, FocalTemperatureScaling) and calibrator.search == "refine":
        raise CalibrantError(
            "over files the search is 'grid' or 'line', which need few passes; got 'refine'. "
            "Leave it out, or fit on samples that fit into memory"
        )
