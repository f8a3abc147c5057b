"""``watch``: read what is new in Parquet logs, update the evidence, and diagnose an alarm."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant import _inputs, _thresholds
from calibrant._inputs import CORRECTNESS
from calibrant._numerics.logspace import log_softmax
from calibrant._writing import refuse_unwritable
from calibrant.calibrators import Calibrator, MultiLabelCalibration, load
from calibrant.calibrators.data import FitData, labelled_scores
from calibrant.calibrators.saving import digest_of
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.files.columns import arrow
from calibrant.files.layout import Asked, listed
from calibrant.files.parquet import (
    ParquetFolder,
    Ranges,
    Skipped,
    files_at,
    is_empty,
    open_folder,
)
from calibrant.metrics.samples import Floats
from calibrant.monitoring.alternatives import SMALLEST_LOG_PROB
from calibrant.monitoring.diagnosis import Diagnosis, diagnosed
from calibrant.monitoring.periods import (
    EVERY,
    Coded,
    PeriodSums,
    coded_groups,
    is_since,
    periods_of,
)
from calibrant.monitoring.repair import rows_to_fit, smallest_repair
from calibrant.monitoring.result import Watch, result_of
from calibrant.monitoring.state import Settings, Stamp, State
from calibrant.scale.application import check_same_classes
from calibrant.scale.data_set import bundles, check_some_rows_left
from calibrant.scale.engine import Engine, Progress, check_installed_for, engine_for
from calibrant.scale.samples import StridedRows


def watch(
    path: str | os.PathLike[str],
    *,
    time: str,
    every: str = "day",
    since: str | int | None = None,
    by: str | Sequence[str] = (),
    calibrator: Calibrator | str | os.PathLike[str] | None = None,
    level: float = 0.05,
    state: str | os.PathLike[str] | None = None,
    label: str | None = None,
    score: str | Sequence[str] | None = None,
    positive: str | None = None,
    scheduler: Any = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Watch:
    """Watch the calibration of a model in use, and raise an alarm when it is lost.

    The alarm may be looked at after every batch of labels: if the model is calibrated, the
    probability that it is *ever* raised is at most ``level``. Rows whose label is missing are left
    out until a file is written again with it.

    Args:
        path: A Parquet file, or a folder of them with any subfolders.
        time: The column of dates, times or whole numbers; it may be a part of the path, as in
            ``day=2026-10-01/0.parquet``.
        every: Length of a period: day, week, month or year. Whole numbers are their own periods.
        since: The first time that counts, such as the day of a repair; earlier rows are left out.
        by: Columns whose values are groups to watch too; each may be a part of the path.
        calibrator: A fitted calibrator, or its file, to apply to the scores first.
        level: Largest probability of a false alarm, ever.
        state: A file that remembers what was read: the next run reads only files that are new or
            have changed. Made if it does not exist.
        label: The column of the labels, if it is not called label, target or y_true.
        score: The column of the positive class, or the columns of all classes.
        positive: The label of the positive class, if the labels are not 0 and 1.
        scheduler: None for this process, ``"local"`` for a process on each core of this machine,
            the address of a Dask scheduler whose workers can read ``path``, or an open
            ``distributed.Client``.
        skip_bad: Skip and count files and rows that cannot be used, instead of refusing them.
        progress: Called with the number of the pass over the files, the number of its tasks that
            are done, and the number of its tasks.

    Examples:
        >>> import tempfile
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> from calibrant.monitoring import watch
        >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
        >>> prob = rng.beta(2.0, 2.0, size=8000)
        >>> day = np.datetime64("2026-10-01") + np.arange(8000) // 1000
        >>> odds = prob / (1 - prob) * np.where(day < np.datetime64("2026-10-05"), 1.0, 0.5)
        >>> label = (rng.random(8000) < odds / (1 + odds)).astype(int)
        >>> logs = pa.table({"day": day, "prob": prob, "label": label})
        >>> pq.write_table(logs, f"{folder}/october.parquet")
        >>> found = watch(folder, time="day")
        >>> found.alarm.period, found.diagnosis.since, found.diagnosis.repair.name
        ('2026-10-05', '2026-10-05', 'offset')
    """
    source = _inputs.path(path, "a data set")
    check_installed_for(scheduler)
    applied = _calibrator(calibrator)
    every = _inputs.choice(every, "every", tuple(EVERY))
    settings = Settings(
        time=_column(time, "time"),
        every=every,
        since=None if since is None else _first_period(since, every),
        by=tuple(_column(name, "by") for name in ((by,) if isinstance(by, str) else by)),
        label=label,
        score=(score,) if isinstance(score, str) else tuple(score or ()),
        calibrator=None if applied is None else digest_of(applied),
        positive=positive,
    )
    level = _inputs.level(level, "For 5% pass 0.05")
    remembered, target = _remembered(state, settings)
    root = source if source.is_dir() else source.parent
    there = {str(file.relative_to(root)): Stamp.of(file) for file in files_at(source)}
    known = {} if remembered is None else remembered.files
    changed = {file: stamp for file, stamp in there.items() if known.get(file) != stamp}
    if known:  # a day without rows is no mistake
        changed = {file: stamp for file, stamp in changed.items() if not is_empty(root / file)}
    opened = partial(Logs.open, source, root, settings, applied, skip_bad)
    skipped = Skipped()
    with engine_for(scheduler) as engine:
        engine.progress = progress
        if remembered is None or changed:
            logs, folder = opened(sorted(changed))
            if remembered is None:
                remembered = State.new(settings, logs.n_classes, logs.class_names)
            remembered.check_same_classes(logs.n_classes, logs.class_names, target)
            sums, skipped = engine.reduce(_counted, bundles(folder), logs)
            skipped.merge(folder.skipped)
            usable = {str(Path(file).relative_to(root)) for file in folder.files}
            stamps = {file: stamp for file, stamp in changed.items() if file in usable}
            remembered.learn(sums, stamps, set(there))
        if skipped and not remembered.steps:
            check_some_rows_left(str(source), 0, skipped)
        if target is not None:
            remembered.save(target)
        notes = (f"{skipped}.",) if skipped else ()
        result = result_of(remembered, str(source), level, notes)
        if result.alarm is not None:
            found = _with_repair(diagnosed(remembered), remembered, opened, set(there), engine)
            result = replace(result, diagnosis=found)
    return result


class Rows(NamedTuple):
    """Checked samples: what is counted of them."""

    periods: Coded
    groups: tuple[Coded, ...]
    log_probs: Floats
    labels: npt.NDArray[np.int64]

    def since(self, start: str | None) -> Rows:
        """The rows that are not before ``start``."""
        if start is None:
            return self
        late = self.periods.since(start)
        groups = tuple(column.of(late) for column in self.groups)
        return Rows(self.periods.of(late), groups, self.log_probs[late], self.labels[late])


@dataclass(frozen=True)
class Logs:
    """How files are read; what a task needs besides its own rows."""

    folder: ParquetFolder
    """Without its rows."""
    root: str
    settings: Settings
    calibrator: Calibrator | None

    @classmethod
    def open(
        cls,
        source: Path,
        root: Path,
        settings: Settings,
        calibrator: Calibrator | None,
        skip_bad: bool,
        files: Sequence[str],
    ) -> tuple[Logs, ParquetFolder]:
        """Open some files below ``root``."""
        folder = open_folder(
            str(source),
            [root / file for file in files],
            asked=Asked(settings.label, settings.score, keep=True),
            skip_bad=skip_bad,
            most_page_bytes=_thresholds.MOST_PAGE_BYTES,
        )
        layout = folder.layout
        with _inputs.naming(folder.where):
            if folder.truncated:
                _inputs.every_class_known("watching")
            if layout.multilabel:
                raise CalibrantError(
                    "a watch is over classes; found labels of a multi-label model. Watch one label "
                    "at a time: --label and --score name its columns"
                )
            labels = layout.roles.get("labels", layout.roles.get("correct"))
            _inputs.some_labels(labels)
            if calibrator is not None:
                check_same_classes(folder.n_classes or 2, calibrator.n_classes_)
        if labels in (settings.time, *settings.by):
            raise CalibrantError(
                f"times and groups must be known before the label; found {labels}, the column of "
                "labels. Name another column"
            )
        wanted = {settings.time, *settings.by, *(calibrator.group_columns_ if calibrator else ())}
        for name in sorted(wanted):
            if name not in layout.kept:
                raise CalibrantError(
                    f"{folder.where} has no column {name}; found {listed(layout.kept)}. Check the "
                    f"name, or name folders {name}=..."
                )
        if settings.positive is not None:
            folder = folder.with_positive(settings.positive)
        roles = {role: name for role, name in layout.roles.items() if role != "ids"}
        kept = tuple(name for name in layout.kept if name in wanted)
        folder = replace(folder, layout=replace(layout, roles=roles, kept=kept))
        return cls(folder.without_ranges(), str(root), settings, calibrator), folder

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.folder.n_classes or len(CORRECTNESS)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes."""
        confidence = self.folder.layout.kind == "confidence"
        return CORRECTNESS if confidence else self.folder.class_names

    def name(self, file: str) -> str:
        """The path of a file below the folder, by which it is remembered."""
        return str(Path(file).relative_to(self.root))

    def rows(self, predictions: Predictions) -> Rows:
        """What is counted of a batch."""
        given = predictions.with_scores()
        log_probs, labels = self._log_probs(given)
        groups = given.groups(self.settings.by)
        return Rows(
            periods_of(given.others[self.settings.time], self.settings.every),
            () if groups is None else tuple(map(coded_groups, groups.columns)),
            log_probs,
            labels,
        )

    def split(self, file: str, batch: Any) -> tuple[Any, int]:
        """The rows of a batch that have a label, and how many wait for one."""
        roles = self.folder.layout.roles
        column = batch.column(roles.get("labels", roles.get("correct")))
        missing = arrow().compute.is_null(column, nan_is_null=True)
        waiting = batch.filter(missing)
        n = waiting.num_rows
        if n and self.settings.since is not None:
            with _inputs.naming(file):
                periods = periods_of(waiting.column(self.settings.time), self.settings.every)
            n = int(periods.since(self.settings.since).sum())
        return batch.filter(arrow().compute.invert(missing)), n

    def _log_probs(self, predictions: Predictions) -> tuple[Floats, npt.NDArray[np.int64]]:
        given = labelled_scores(
            predictions.labels, logits=predictions.logits, probs=predictions.probs
        )
        if self.calibrator is not None:
            probs = self.calibrator.predict_columns(
                given.kind,
                given.scores,
                predictions.class_names,
                single=predictions.single,
                groups=predictions.groups(self.calibrator.group_columns_),
            )
            given = given._replace(kind="probs", scores=probs)
        scores = given.scores.astype(np.float64)
        if given.kind == "probs":
            with np.errstate(divide="ignore"):
                scores = np.log(scores)
        return np.maximum(log_softmax(scores), SMALLEST_LOG_PROB), given.labels


def _counted(ranges: Ranges, logs: Logs) -> tuple[PeriodSums, Skipped]:
    """The sums of some row groups."""
    sums, skipped = PeriodSums(logs.n_classes), Skipped()
    for file, batches in _read(ranges, logs, skipped, sums.waiting):
        for rows in batches:
            with _inputs.naming(file):
                sums.count(logs.name(file), *rows.since(logs.settings.since))
    return sums, skipped


def _read(
    ranges: Ranges, logs: Logs, skipped: Skipped, waiting: Counter[str]
) -> Iterator[tuple[str, Iterator[Rows]]]:
    """The files of some row groups, each with its labelled rows; the others are counted."""
    for file, of_file in groupby(ranges, key=lambda each: each.file):

        def labelled(batch: Any, file: str = file) -> Any:
            chosen, n = logs.split(file, batch)
            waiting[logs.name(file)] += n
            return chosen

        batches = logs.folder.checked_batches(tuple(of_file), logs.rows, skipped, labelled)
        yield file, (rows for _, rows in batches)


def _with_repair(
    found: Diagnosis,
    state: State,
    opened: Callable[[Sequence[str]], tuple[Logs, ParquetFolder]],
    there: set[str],
    engine: Engine,
) -> Diagnosis:
    """The diagnosis with the smallest repair, from rows since the change that are still there."""
    since = found.since
    files = {key.file for key in state.sums.vectors if is_since(key.period, since)} & there
    if not files:
        return found
    logs, folder = opened(sorted(files))
    stride = math.ceil(found.n / rows_to_fit(state.n_classes))
    strided = engine.reduce(_strided, bundles(folder), logs, since, stride)
    return replace(found, repair=smallest_repair(strided.in_order()))


def _strided(ranges: Ranges, logs: Logs, since: str, stride: int) -> StridedRows:
    """Every ``stride``-th row of the periods from ``since`` on."""
    strided, n = StridedRows(stride), ranges[0].first_in_folder
    for _, batches in _read(ranges, logs, Skipped(), Counter()):
        for rows in batches:
            late = rows.since(since)
            strided.pick(n, FitData(late.log_probs, late.labels, None))
            n += len(late.labels)
    return strided


def _first_period(since: str | int, every: str) -> str:
    with _inputs.naming("since"):
        return str(periods_of(arrow().array([str(since)]), every).values[0])


def _calibrator(given: Calibrator | str | os.PathLike[str] | None) -> Calibrator | None:
    found = load(given) if isinstance(given, str | os.PathLike) else given
    if isinstance(found, MultiLabelCalibration):
        raise CalibrantError(
            "a watch is over classes; found a multi-label calibrator. Apply it first, and watch "
            "one label at a time"
        )
    if found is not None:
        _inputs.instance(found, Calibrator, "calibrator")
        found._need_fit()
    return found


def _column(name: Any, argument: str) -> str:
    _inputs.text(name, argument)
    return str(name)


def _remembered(
    state: str | os.PathLike[str] | None, settings: Settings
) -> tuple[State | None, Path | None]:
    """The state of the last run, if there was one, and its file."""
    if state is None:
        return None, None
    target = _inputs.path(state, "the state")
    refuse_unwritable(target)
    if not target.exists():
        return None, target
    remembered = State.load(target)
    remembered.check_same(settings, target)
    return remembered, target
