"""``fit`` over a data set: the fits of `calibrators`, on sums over files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibrant import _inputs
from calibrant.calibrators import (
    BiasCorrectedTemperatureScaling,
    Calibrator,
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TailBounds,
    TemperatureScaling,
    TopRestScaling,
    VectorScaling,
)
from calibrant.calibrators.truncated.bounds import check_truncated_fit, tail_bounds
from calibrant.errors import CalibrantError
from calibrant.scale import (  # noqa: F401  (they say how each family is fitted on files)
    regression,
    search,
    top_rest,
)
from calibrant.scale.engine import Progress, engine_for, packages_of
from calibrant.scale.samples import FilesOfSamples
from calibrant.scale.search import SketchBounds
from calibrant.scale.source import Skipped, open_data_set

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
    )
)
"""Methods whose fits ask for nothing but sums over rows."""


@dataclass(frozen=True)
class FitOverFiles:
    """A calibrator fitted over a data set, and what there is to say of the way."""

    calibrator: Calibrator
    passes: int
    """How often the files were read."""
    skipped: Skipped
    bounds: SketchBounds | None
    """Where the criterion is an equal-mass error, how sure it is."""
    tail: TailBounds | None = None
    """Where rows have their largest logits only, what is certain whatever the others are."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the report, and what is said here."""
        return {
            **self.calibrator.report_.to_dict(),
            "passes": self.passes,
            "skipped": asdict(self.skipped),
            "bounds": None if self.bounds is None else asdict(self.bounds),
            "tail": None if self.tail is None else asdict(self.tail),
        }

    def __str__(self) -> str:
        lines = [str(self.calibrator.report_), f"The files were read {self.passes} times."]
        if self.bounds is not None:
            lines.append(
                f"ada_ece is off by at most {self.bounds.off_by:.2g}; no point of the search is "
                f"better by more than {self.bounds.better_by:.2g}."
            )
        if self.tail is not None:
            lines.append(str(self.tail))
        if self.skipped:
            lines.append(f"{self.skipped}.")
        return "\n".join(lines)


def fit(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    skip_bad: bool = False,
    n_classes: int | None = None,
    progress: Progress | None = None,
) -> FitOverFiles:
    """Fit ``calibrator`` on a Parquet data set of any size.

    The steps are those of ``calibrator.fit``; each sum over rows is added up over the files. The
    result is the same but for rounding, and within the stated bound where the criterion is an
    equal-mass calibration error.

    Args:
        calibrator: One of the methods in ``METHODS``; it is fitted in place.
        path: A Parquet file, or a folder of them with any folders inside.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            or the address of a Dask scheduler whose workers can read ``path``, or an open
            ``distributed.Client``.
        skip_bad: Leave out and count what cannot be read or used, in place of refusing it.
        n_classes: How many classes there are, where rows have their largest logits only and the
            files do not say it. Such rows are fitted by an estimate of the other classes, and the
            result has bounds (see :class:`calibrant.calibrators.TruncatedRows`).
        progress: Called with the number of a pass over the files, how many of its tasks are done,
            and how many there are.

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
        >>> apart = fit(TemperatureScaling(), folder).calibrator
        >>> abs(apart.temperature_ - together.temperature_) < 1e-9
        True
    """
    packages_of(scheduler)
    check_scalable_method(calibrator.NAME, METHODS)
    calibrator._check_params()
    if isinstance(calibrator, FocalTemperatureScaling):
        check_search_in_few_passes(calibrator.search)
    data_set = open_data_set(
        _inputs.path(path, "a data set"), skip_bad=skip_bad, n_classes=n_classes
    )
    of_top = data_set.layout.kind == "top_logits"
    if of_top:
        check_truncated_fit(calibrator)
    with engine_for(scheduler) as engine:
        engine.progress = progress
        samples = FilesOfSamples.of(data_set, engine)
        calibrator.fit_samples(samples)
        tail = tail_bounds(samples, calibrator) if of_top else None
    return FitOverFiles(
        calibrator=calibrator,
        passes=len(samples.passes),
        skipped=samples.facts.skipped,
        bounds=samples.bounds_of_search(),
        tail=tail,
    )


def check_scalable_method(name: str, known: Sequence[str]) -> None:
    """A method whose fit is made of sums over rows."""
    if name not in known:
        raise CalibrantError(
            f"over a data set these methods can be fitted: {', '.join(known)}; found {name!r}. "
            "Choose one of them, or fit on a sample that fits into memory"
        )


def check_search_in_few_passes(name: str) -> None:
    """A search that looks at many points in one pass over the data."""
    if name == "refine":
        raise CalibrantError(
            "over a data set the search is 'grid' or 'line', which need few passes; found "
            "'refine'. Leave it out, or fit on a sample that fits into memory"
        )
