"""Every calibrator on the same predictions: fitted on one part, measured on another.

A table of many methods invites to pick the smallest number. So every number has its interval, the
noise floor stands beside the calibration error, and a difference to the reference method is only
called one where redrawing the same samples for both can tell them apart.
"""

from __future__ import annotations

import html
import inspect
import json
import math
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import floored_log_of_probs
from calibrant._types import Array, RandomState
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import PROBS_FLOOR, FitData
from calibrant.calibrators.fit_report import CalibrationWarning, FitReport
from calibrant.calibrators.registry import CALIBRATORS
from calibrant.errors import CalibrantError
from calibrant.metrics.comparison import Comparison, paired_difference_of_samples
from calibrant.metrics.evaluation import (
    Evaluation,
    Measured,
    NoiseFloor,
    evaluate_samples,
    finite_or_none,
)
from calibrant.metrics.resampling import Plan, plan
from calibrant.metrics.samples import ScoredSamples, summarise

REFERENCE = "temperature"
"""The method that the others are compared with: one number, hard to beat, and never harmful."""
MEASURED = ("ada_ece", "ece", "nll", "brier", "error_rate")
SORTABLE = ("ada_ece", "ece", "nll", "brier", "accuracy")
PERCENT = ("ada_ece", "ece", "accuracy")
"""Shown in percent; the other two in their own units."""
CANNOT = (ValueError, ArithmeticError, MemoryError)
"""What a method raises that cannot be used on these samples."""
SIGNS = {"better": "+", "worse": "-", "not distinguishable": " "}
WIDTH = 96


class Labelled(NamedTuple):
    """Checked samples."""

    kind: str
    """``"logits"`` or ``"probs"``"""
    scores: npt.NDArray[Any]
    """(n, K)"""
    labels: npt.NDArray[np.int64]

    def logits(self) -> npt.NDArray[Any]:
        """The logits; for probabilities their logarithms, with small probabilities floored."""
        if self.kind == "logits":
            return self.scores
        floored: npt.NDArray[Any] = floored_log_of_probs(self.scores, PROBS_FLOOR)
        return floored


@dataclass(frozen=True, kw_only=True)
class ComparedMethod:
    """One method of a comparison. Either ``failure`` says why there are no numbers, or they are."""

    name: str
    params: Mapping[str, Any]
    """What its constructor was given."""
    fit_seconds: float | None = None
    """Wall-clock time of the fit; what it loads, or compiles, on its first use is included."""
    calibrator: Calibrator | None = None
    """Fitted on the validation samples."""
    evaluation: Evaluation | None = None
    """What was measured on the test samples."""
    differences: Comparison | None = None
    """This method (a) and the reference (b) on the same test samples; None for the reference."""
    failure: str | None = None

    @property
    def report(self) -> FitReport | None:
        """How the fit went; its ``warnings`` say what speaks against the method here."""
        return None if self.calibrator is None else self.calibrator.report_

    def __getitem__(self, metric: str) -> Measured:
        if self.evaluation is None:
            raise KeyError(f"{self.name} has no {metric}: {self.failure}")
        if metric != "accuracy":
            return self.evaluation[metric]
        wrong = self.evaluation["error_rate"]
        ends = (None if end is None else 1.0 - end for end in (wrong.high, wrong.low))
        return Measured("accuracy", 1.0 - wrong.value, *ends)

    @property
    def noise_floor(self) -> NoiseFloor | None:
        """The equal-mass ECE of a calibrated model with the same confidences."""
        floors = () if self.evaluation is None else self.evaluation.noise_floors
        return next((floor for floor in floors if floor.name == "ada_ece"), None)

    def verdict(self, metric: str) -> str | None:
        """``better`` or ``worse`` than the reference, or ``not distinguishable``."""
        if self.differences is None:
            return None
        return self.differences["error_rate" if metric == "accuracy" else metric].verdict

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is infinite or not a number is None."""
        measured = None if self.evaluation is None else self.evaluation.to_dict()
        compared = None if self.differences is None else self.differences.to_dict()
        report = {} if self.report is None else self.report.to_dict()
        return {
            "params": dict(self.params),
            "fit_seconds": self.fit_seconds,
            "fit": {name: _plain(value) for name, value in report.items()} or None,
            "metrics": measured and {**measured["metrics"], "accuracy": _figures(self["accuracy"])},
            "noise_floor": measured and measured["noise_floor"],
            "n_impossible": measured and measured["n_impossible"],
            "differences": compared and compared["differences"],
            "failure": self.failure,
        }


@dataclass(frozen=True, kw_only=True)
class MethodComparison:
    """The result of :func:`compare`: print it, index it by method, or take ``to_dict``."""

    n_fit: int
    """Samples fitted on."""
    n: int
    """Samples measured on."""
    n_classes: int
    n_bins: int
    level: float
    n_resamples: int
    seed: int
    against: str
    """The method that the others are compared with."""
    sort: str
    """The metric that the rows are sorted by."""
    rows: tuple[ComparedMethod, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know of how the figures came about."""

    def __getitem__(self, name: str) -> ComparedMethod:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name} was not compared; there are {', '.join(r.name for r in self.rows)}")

    def sorted_by(self, metric: str) -> MethodComparison:
        """The same with the best of ``metric`` first, and what failed last."""
        _inputs.choice(metric, "sort", SORTABLE)
        rows = sorted(self.rows, key=lambda row: _rank(row, metric))
        return replace(self, sort=metric, rows=tuple(rows))

    def calibrated(self) -> tuple[str, ...]:
        """Methods after which these samples show no miscalibration."""
        floors = {row.name: row.noise_floor for row in self.rows}
        usual = 1.0 - self.level
        return tuple(name for name, floor in floors.items() if floor and floor.p_value >= usual)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what is infinite or not a number is None."""
        return {
            "n_fit": self.n_fit,
            "n": self.n,
            "n_classes": self.n_classes,
            "n_bins": self.n_bins,
            "level": self.level,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "against": self.against,
            "sort": self.sort,
            "notes": list(self.notes),
            "methods": {row.name: row.to_dict() for row in self.rows},
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        footnotes = _Footnotes()
        table = _aligned([*self._head(), *(self._cells(row, footnotes) for row in self.rows)])
        lines = [f"Fitted on {self.n_fit} samples, measured on {self.n}; {self.n_classes} classes"]
        return "\n".join([*lines, "", *table, "", *self._legend(), *footnotes.lines()])

    def _repr_html_(self) -> str:
        footnotes = _Footnotes()
        cells = [*self._head(), *(self._cells(row, footnotes) for row in self.rows)]
        table = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in cells
        )
        below = [*self._legend(), *footnotes.lines()]
        return f"<table>{table}</table>" + "".join(f"<p>{html.escape(line)}</p>" for line in below)

    def _columns(self) -> list[str]:
        """The metrics, that which is sorted by first."""
        return sorted(SORTABLE, key=lambda metric: metric != self.sort)

    def _head(self) -> Iterator[list[str]]:
        names, units = ["method"], [""]
        for metric in self._columns():
            # Above the numbers, not above the signs behind them, where the name is not longer.
            names.append(f"{metric}  " if len(metric) < 8 else metric)
            units.append("%  " if metric in PERCENT else "")
            if metric == self.sort:
                names.append(f"{100 * self.level:g}% interval")
                units.append("")
            if metric == "ada_ece":
                names.append("floor")
                units.append("%")
        yield [*names, "fit", ""]
        yield [*units, "s", ""]

    def _cells(self, row: ComparedMethod, footnotes: _Footnotes) -> list[str]:
        if row.evaluation is None:
            return [row.name, "cannot be used here", footnotes.mark([row.failure or ""])]
        cells = [row.name]
        for metric in self._columns():
            measured, verdict = row[metric], row.verdict(metric)
            cells.append(f"{_shown(metric, measured.value)} {SIGNS[verdict] if verdict else ' '}")
            if metric == self.sort:
                cells.append(_interval(measured))
            if metric == "ada_ece":
                floor = row.noise_floor
                cells.append("" if floor is None else _shown(metric, floor.expected))
        doubts = [] if row.report is None else list(row.report.warnings)
        if row.evaluation.n_impossible:
            doubts.append(
                f"{row.evaluation.n_impossible} test samples get probability 0 for their true "
                "class, which makes the NLL infinite."
            )
        return [*cells, f"{row.fit_seconds or 0.0:.2f}", footnotes.mark(doubts)]

    def _legend(self) -> list[str]:
        signs = ""
        if any(row.differences is not None for row in self.rows):
            signs = (
                f"+ better, - worse than {self.against} on the same samples; no sign where "
                f"{100 * self.level:g}% intervals of the difference cannot tell."
            )
        elif len(self.rows) > 1:
            signs = f"No signs: {self.against} cannot be used here, so nothing is compared with it."
        calibrated = ", ".join(self.calibrated())
        return [
            *_wrapped(signs),
            *_wrapped(
                f"floor: the ada_ece that a calibrated model would show with {self.n} samples. "
                f"No miscalibration beyond it: {calibrated or 'none of these'}."
            ),
            *(line for note in self.notes for line in _wrapped(note)),
        ]


def compare(
    val_logits: Array = None,
    val_labels: Array = None,
    test_logits: Array = None,
    test_labels: Array = None,
    *,
    val_probs: Array = None,
    test_probs: Array = None,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    gamma: float | None = None,
    against: str = REFERENCE,
    sort: str = "ada_ece",
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    progress: Callable[[str], None] | None = None,
) -> MethodComparison:
    """Fit every method on validation samples and measure each on test samples.

    Of a dozen methods some will look better than the reference by chance: about one sign in twenty
    at a level of 95%. And the one picked because its test figure is the smallest will do worse on
    the next samples; measure it anew before quoting it.

    Args:
        val_logits: Held-out samples to fit on; ``val_probs`` in their place for probabilities.
        val_labels: Their class indices.
        test_logits: Other samples to measure on; ``test_probs`` likewise.
        test_labels: Their class indices.
        val_probs: Probabilities to fit on.
        test_probs: Probabilities to measure on.
        methods: Names out of ``CALIBRATORS``, or unfitted calibrators by a name of your own, which
            are left as they are. None is every method that can be made without being told more.
        gamma: For methods by name that need one (focal): what the model was trained with. Without
            it, None leaves them out.
        against: The method that the others are compared with; added where ``methods`` lacks it.
        sort: ``ada_ece``, ``ece``, ``nll``, ``brier`` or ``accuracy``: the best comes first.
        n_bins: Bins of the calibration errors.
        level: Confidence level of the intervals.
        n_resamples: How often the samples are redrawn; fewer for many methods on many samples.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.
        progress: Called with the name of each method before it is fitted.

    Returns:
        MethodComparison: a row for each method. One that cannot be used on these samples has a row
        that says why.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.comparison import compare
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 2000)
        >>> logits = rng.normal(size=(2000, 3))
        >>> logits[np.arange(2000), labels] += 1.5
        >>> bold = 3.0 * logits  # the honest ones would be 1.5 * logits
        >>> result = compare(
        ...     bold[:1000], labels[:1000], bold[1000:], labels[1000:], methods=["identity"]
        ... )
        >>> [row.name for row in result.rows]
        ['temperature', 'identity']
        >>> result["identity"].verdict("nll")
        'worse'
    """
    return compare_labelled(
        labelled(val_labels, to_fit=True, logits=val_logits, probs=val_probs),
        labelled(test_labels, logits=test_logits, probs=test_probs),
        methods=methods,
        gamma=gamma,
        against=against,
        sort=sort,
        n_bins=n_bins,
        level=level,
        n_resamples=n_resamples,
        random_state=random_state,
        progress=progress,
    )


def compare_labelled(
    fit_on: Labelled,
    test: Labelled,
    *,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    gamma: float | None = None,
    against: str = REFERENCE,
    sort: str = "ada_ece",
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    progress: Callable[[str], None] | None = None,
    on_calibrated: Callable[[str, ScoredSamples], None] | None = None,
) -> MethodComparison:
    """:func:`compare` for samples that were checked before.

    ``on_calibrated`` is called with the name of each method and its calibrated test samples, which
    are dropped before the next method is fitted.
    """
    _inputs.choice(sort, "sort", SORTABLE)
    chosen = _made(methods, gamma, against)
    _inputs.same_scores(fit_on.kind, fit_on.scores, test.kind, test.scores)
    # The work of all methods together is what has to end.
    work = len(test.labels) * len(chosen)
    todo = plan(MEASURED, n_bins, level, n_resamples, random_state, work)
    data = FitData(np.ascontiguousarray(fit_on.logits()), fit_on.labels, None)
    wide = test._replace(scores=test.scores.astype(np.float64))
    measured_on = Labelled("logits", wide.logits(), test.labels)
    rows: dict[str, ComparedMethod] = {}
    reference: ScoredSamples | None = None
    for name in sorted(chosen, key=lambda name: name != against):
        if progress is not None:
            progress(name)
        rows[name], calibrated = _compared(name, chosen[name], data, measured_on, reference, todo)
        if on_calibrated is not None and calibrated is not None:
            on_calibrated(name, calibrated)
        reference = calibrated if name == against else reference
        del calibrated  # the next method has to find room
    return MethodComparison(
        n_fit=len(fit_on.labels),
        n=len(test.labels),
        n_classes=test.scores.shape[1],
        n_bins=todo.n_bins,
        level=todo.level,
        n_resamples=todo.n_resamples,
        seed=todo.seed,
        against=against,
        sort=sort,
        rows=tuple(rows[name] for name in chosen),
        notes=tuple(_notes(fit_on, test)),
    ).sorted_by(sort)


def chosen_methods(
    names: Iterable[str] | None = None, *, gamma: float | None = None
) -> dict[str, Calibrator]:
    """Unfitted calibrators by name; None is every one that ``gamma`` is enough to make.

    Examples:
        >>> from calibrant.calibrators.comparison import chosen_methods
        >>> "focal" in chosen_methods(), "focal" in chosen_methods(gamma=3.0)
        (False, True)
    """
    known = {} if gamma is None else {"gamma": gamma}
    if names is None:
        names = [n for n, cls in CALIBRATORS.items() if known.keys() >= set(required(cls))]
    chosen = {}
    for name in names:
        name = CALIBRATORS.key(name, "methods")
        cls = CALIBRATORS[name]
        missing = [needed for needed in required(cls) if needed not in known]
        if missing:
            raise CalibrantError(
                f"{name} needs {' and '.join(missing)}; found none. "
                f"Pass {missing[0]}= (--{missing[0]} on the command line)"
            )
        chosen[name] = cls(**{needed: known[needed] for needed in required(cls)})
    return chosen


def required(method: type[Calibrator]) -> list[str]:
    """Parameters of the constructor that have no default."""
    parameters = inspect.signature(method).parameters.values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]


def _made(
    methods: Iterable[str] | Mapping[str, Calibrator] | None, gamma: float | None, against: str
) -> dict[str, Calibrator]:
    """The methods with the reference among them, every parameter checked."""
    if isinstance(methods, Mapping):
        chosen = dict(methods)
    else:
        names = [methods] if isinstance(methods, str) else methods
        chosen = chosen_methods(names, gamma=gamma)
    if against not in chosen:
        _inputs.choice(against, "against", [*chosen, *CALIBRATORS])
        chosen |= chosen_methods([against], gamma=gamma)
    for name, calibrator in chosen.items():
        _inputs.instance(calibrator, Calibrator, f"methods[{name!r}]")
        calibrator._check_params()
    return chosen


def labelled(labels: Array, *, to_fit: bool = False, **scores: Array) -> Labelled:
    """Checked samples from ``logits`` or ``probs``, whichever is given."""
    kind, values = _inputs.one_of(**scores)
    checked = getattr(_inputs, kind)(values)
    labels = _inputs.as_numpy(_inputs.labels(labels, checked)).reshape(-1)
    _inputs.something_to_measure(len(labels))
    flat = _inputs.as_numpy(checked).reshape(-1, checked.shape[-1])
    if flat.dtype.itemsize > 8:
        flat = flat.astype(np.float64)  # compiled passes know no longer floats
    if kind == "probs" and checked.dtype != _inputs.as_array(values, "probs").dtype:
        # Widened from half precision, whose sums are further from 1 than those of wider types may.
        flat = flat / flat.sum(axis=1, keepdims=True)
    if to_fit:
        _inputs.possible_labels(flat, labels, np.full(len(labels), True))
    return Labelled(kind, flat, labels)


def _compared(
    name: str,
    method: Calibrator,
    data: FitData,
    test: Labelled,
    reference: ScoredSamples | None,
    todo: Plan,
) -> tuple[ComparedMethod, ScoredSamples | None]:
    """The row of one method, and its calibrated test samples, which the next are compared with."""
    row = ComparedMethod(name=name, params=method.get_params())
    options: dict[str, Any] = {
        "metrics": todo.names,
        "n_bins": todo.n_bins,
        "level": todo.level,
        "n_resamples": todo.n_resamples,
        "random_state": todo.seed,
    }
    try:
        fitted, seconds = _fitted(method, data)
        calibrated = _calibrated(fitted, test)
        evaluation = evaluate_samples(calibrated, **options)
        differences = None
        if reference is not None:
            differences = paired_difference_of_samples(calibrated, reference, **options)
    except CANNOT as refusal:
        reason = " ".join(str(refusal).split()) or type(refusal).__name__
        return replace(row, failure=reason), None
    row = replace(
        row,
        fit_seconds=seconds,
        calibrator=fitted,
        evaluation=evaluation,
        differences=differences,
    )
    return row, calibrated


def _fitted(method: Calibrator, data: FitData) -> tuple[Calibrator, float]:
    """A fitted copy, and how long it took. What the fit warns of stands in its report."""
    copy = type(method)(**method.get_params())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        start = time.perf_counter()
        copy.fit_samples(data)
        return copy, time.perf_counter() - start


def _calibrated(calibrator: Calibrator, test: Labelled) -> ScoredSamples:
    """Calibrated probabilities; their logarithms where that of a true class would round to 0."""
    probs = calibrator._apply(calibrator._probs, test.scores)
    if probs[np.arange(len(probs)), test.labels].all():
        return summarise(probs, test.labels)
    log_probs = calibrator._apply(calibrator._log_probs, test.scores)
    return summarise(logits=log_probs, labels=test.labels)


def _notes(fit_on: Labelled, test: Labelled) -> Iterator[str]:
    if np.array_equal(fit_on.scores, test.scores):
        yield (
            "The methods were measured on the very samples they were fitted on: all of this is "
            "too good to be true. Measure on others."
        )
    if test.kind == "probs":
        small = int((test.scores < PROBS_FLOOR).sum())
        if small:
            yield (
                f"{small} probabilities below {PROBS_FLOOR:.0e} count as that, also for identity: "
                "no method could move the logarithm of 0."
            )


def _rank(row: ComparedMethod, metric: str) -> tuple[float, ...]:
    """Smaller comes first. Maps that keep the accuracy are equal in it: then the equal-mass ECE."""
    if row.evaluation is None:
        return (1.0,)
    value = row[metric].value
    return 0.0, -value if metric == "accuracy" else value, row["ada_ece"].value


def _shown(metric: str, value: float) -> str:
    if metric in PERCENT:
        return f"{100 * value:.2f}"
    return f"{value:.4f}" if abs(value) < 1000.0 else f"{value:.3g}"


def _interval(measured: Measured) -> str:
    if measured.low is None or measured.high is None:
        return "none"
    low, high = (_shown(measured.name, end) for end in (measured.low, measured.high))
    return f"[{low}, {high}]"


def _figures(measured: Measured) -> dict[str, float | None]:
    return {key: finite_or_none(getattr(measured, key)) for key in ("value", "low", "high")}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Footnotes:
    """What is said below a table, once, whichever rows refer to it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, texts: Iterable[str]) -> str:
        """``[1,2]``: the numbers of these texts."""
        numbers = []
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
            numbers.append(str(self.texts.index(text) + 1))
        return f"[{','.join(numbers)}]" if numbers else ""

    def lines(self) -> Iterator[str]:
        """The texts with their numbers."""
        for number, text in enumerate(self.texts, start=1):
            yield from _wrapped(text, f"[{number}] ")


def _wrapped(text: str, start: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    """Names to the left, numbers to the right; short rows (failures) do not widen the columns."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        name, *cells = row
        if len(row) < len(rows[0]):
            yield "  ".join([name.ljust(widths[0]), *cells])
            continue
        *numbers, marks = cells
        placed = [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
        yield " ".join([name.ljust(widths[0]), *placed, marks]).rstrip()
