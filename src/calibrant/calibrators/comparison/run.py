"""Fit every method on the same samples and measure each on others.

A table of many methods invites readers to pick the smallest number. So every number has its
interval, the calibration error has its noise floor beside it, and a method differs from the
reference only where a paired bootstrap can tell them apart.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._numerics.blas import blas_threads_for
from calibrant._numerics.first_use import repeated
from calibrant._types import Array, RandomState
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.comparison.advice import paired_metrics, recommend
from calibrant.calibrators.comparison.duration import too_slow
from calibrant.calibrators.comparison.result import ComparedMethod, MethodComparison
from calibrant.calibrators.comparison.table import SORTABLE
from calibrant.calibrators.data import (
    PROBS_FLOOR,
    FitData,
    Floats,
    LabelledScores,
    labelled_scores,
    to_logits,
)
from calibrant.calibrators.fit_report import CalibrationWarning
from calibrant.calibrators.registry import CALIBRATORS, make_calibrators
from calibrant.calibrators.temperature.methods import Identity
from calibrant.metrics.comparison import difference_of_resampled
from calibrant.metrics.evaluation import evaluate_resampled
from calibrant.metrics.registry import METRICS
from calibrant.metrics.resampling import Plan, ResampledMetrics, plan
from calibrant.metrics.samples import ScoredSamples, samples_from_scores

REFERENCE = "temperature"
"""The method that the others are compared with: one number, hard to beat, and never harmful."""
OF_POSITIVE = ("calibration_slope", "calibration_intercept", "prevalence_gap")
"""Measured for two classes, beside the metrics in which methods are compared."""
MAPPED_AT_ONCE = 1 << 21
"""Numbers that are converted to double precision and calibrated at a time."""
REFUSALS = (ValueError, ArithmeticError, MemoryError)
"""What a method raises that cannot be used on these samples."""


def compare(
    val_logits: Array = None,
    val_labels: Array = None,
    test_logits: Array = None,
    test_labels: Array = None,
    *,
    val_probs: Array = None,
    test_probs: Array = None,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    metrics: Iterable[str] = (),
    gamma: float | None = None,
    against: str = REFERENCE,
    sort: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    progress: Callable[[str], None] | None = None,
) -> MethodComparison:
    """Fit every method on validation samples and measure each on test samples.

    Among a dozen methods some look better than the reference by chance: about one sign in twenty
    at a level of 95%. A method selected for the smallest test figure will do worse on new samples;
    measure it again before quoting it.

    Args:
        val_logits: Logits of held-out samples to fit on; or pass ``val_probs``.
        val_labels: Their class indices.
        test_logits: Logits of other samples to measure on; or pass ``test_probs``.
        test_labels: Their class indices.
        val_probs: Probabilities to fit on.
        test_probs: Probabilities to measure on.
        methods: Names in ``CALIBRATORS``, or unfitted calibrators by any name, which are copied.
            None selects every method whose parameters have defaults, or are ``gamma``, and whose
            fit does not take minutes.
        metrics: Names in ``METRICS`` to measure beside the usual ones. Methods are compared by
            those for which lower is better.
        gamma: The gamma that the model was trained with, for methods by name that need one
            (focal). Without it, ``methods=None`` leaves them out.
        against: The method that the others are compared with; added if ``methods`` lacks it.
        sort: ``ada_ece``, ``ece``, ``nll``, ``brier`` or ``accuracy``, for two classes also
            ``positive_ada_ece``, the default, or ``positive_ece``; or one of ``metrics`` for which
            lower is better. The best comes first.
        n_bins: Bins of the calibration errors.
        level: Confidence level of the intervals.
        n_resamples: Number of bootstrap resamples; fewer for many methods on many samples.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.
        progress: Called with the name of each method before it is fitted.

    Returns:
        MethodComparison: one row for each method. The row of a method that cannot be used on these
        samples, or was left out, says why. If ``identity``, the model as it is, is among the
        methods, there is a ``recommendation``.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.comparison import compare
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 2000)
        >>> logits = rng.normal(size=(2000, 3))
        >>> logits[np.arange(2000), labels] += 1.5
        >>> bold = 3.0 * logits  # calibrated ones would be 1.5 * logits
        >>> result = compare(
        ...     bold[:1000], labels[:1000], bold[1000:], labels[1000:], methods=["identity"]
        ... )
        >>> [row.name for row in result.rows]
        ['temperature', 'identity']
        >>> result["identity"].verdict("nll")
        'worse'
    """
    fit_on = labelled_scores(val_labels, logits=val_logits, probs=val_probs, to_fit=True)
    test = labelled_scores(test_labels, logits=test_logits, probs=test_probs)
    return compare_samples(
        fit_on,
        test,
        methods=methods,
        metrics=metrics,
        gamma=gamma,
        against=against,
        sort=sort,
        n_bins=n_bins,
        level=level,
        n_resamples=n_resamples,
        random_state=random_state,
        progress=progress,
    )


def compare_samples(
    fit_on: LabelledScores,
    test: LabelledScores,
    *,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    metrics: Iterable[str] = (),
    gamma: float | None = None,
    against: str = REFERENCE,
    sort: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    progress: Callable[[str], None] | None = None,
    on_measured: Callable[[str, ResampledMetrics], None] | None = None,
) -> MethodComparison:
    """:func:`compare` of samples that were checked before.

    ``on_measured`` is called with the name of each method and the metrics of its calibrated test
    samples, whose scores are dropped before the next method is fitted.
    """
    names = paired_metrics(test.scores.shape[1])
    further = _further(metrics, names)
    sort = names[0] if sort is None else sort
    comparable = [name for name in further if METRICS[name].lower_is_better]
    _inputs.choice(sort, "sort", (*SORTABLE, *comparable))
    _inputs.same_scores(fit_on.kind, fit_on.scores, test.kind, test.scores)
    test = test.in_order_of(fit_on.classes)
    chosen = _with_reference(methods, gamma, against)
    slow = {} if methods is not None else too_slow({*chosen} - {against}, *fit_on.scores.shape)
    # The bound on the work holds for all methods together.
    work = len(test.labels) * (len(chosen) - len(slow))
    todo = plan((*names, *further), n_bins, level, n_resamples, random_state, work)
    fit_data = fit_on.fit_data()
    rows = {
        name: ComparedMethod(name=name, params=chosen[name].get_params(), failure=reason)
        for name, reason in slow.items()
    }
    reference: ResampledMetrics | None = None
    kept: dict[str, ResampledMetrics] = {}
    probs = np.empty(test.scores.shape)
    _refuse_unsuited(further, fit_data, test, probs)
    with blas_threads_for(fit_data.n_classes), repeated():
        for name in sorted(chosen, key=lambda name: name != against):
            if name in slow:
                continue
            if progress is not None:
                progress(name)
            if test.scores.shape[1] == 2:  # of more classes, the probabilities are not kept
                probs = np.empty_like(probs)
            rows[name], measured = _compared(
                name, chosen[name], fit_data, test, probs, reference, todo
            )
            if measured is not None:
                if on_measured is not None:
                    on_measured(name, measured)
                kept[name] = measured.without_many_scores()
                reference = kept.get(against)
    result = MethodComparison(
        n_fit=len(fit_on.labels),
        n=len(test.labels),
        n_classes=test.scores.shape[1],
        n_bins=todo.n_bins,
        level=todo.level,
        n_resamples=todo.n_resamples,
        seed=todo.seed,
        against=against,
        sort=sort,
        metrics=further,
        rows=tuple(rows[name] for name in chosen),
        notes=(*_notes(fit_on, test), *_notes_on_ends(rows.values())),
    ).sorted_by(sort)
    in_order = {name: kept[name] for name in chosen if name in kept}
    return replace(result, recommendation=recommend(result, in_order))


def _further(metrics: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The names of ``metrics`` as registered, without those that are measured anyway."""
    wanted = [metrics] if isinstance(metrics, str) else metrics
    known = dict.fromkeys(METRICS.key(name, "metrics") for name in wanted)
    return tuple(name for name in known if name not in names)


def _refuse_unsuited(
    metrics: Iterable[str], fit_data: FitData, test: LabelledScores, probs: Floats
) -> None:
    """Refuse a metric that these samples cannot have, before all methods fail on it one by one."""
    if metrics:
        samples = _calibrated(_fitted(Identity(), fit_data)[0], test, probs)
        for name in metrics:
            METRICS[name].of(samples)


def _with_reference(
    methods: Iterable[str] | Mapping[str, Calibrator] | None, gamma: float | None, against: str
) -> dict[str, Calibrator]:
    """The methods and the reference, with every parameter checked."""
    if isinstance(methods, Mapping):
        chosen = dict(methods)
    else:
        names = [methods] if isinstance(methods, str) else methods
        chosen = make_calibrators(names, gamma=gamma)
    if against not in chosen:
        _inputs.choice(against, "against", [*chosen, *CALIBRATORS])
        chosen |= make_calibrators([against], gamma=gamma)
    for name, calibrator in chosen.items():
        _inputs.instance(calibrator, Calibrator, f"methods[{name!r}]")
        calibrator._check_params()
    return chosen


def _compared(
    name: str,
    method: Calibrator,
    fit_data: FitData,
    test: LabelledScores,
    probs: Floats,
    reference: ResampledMetrics | None,
    todo: Plan,
) -> tuple[ComparedMethod, ResampledMetrics | None]:
    """The row of one method, and the metrics of its test samples, calibrated in ``probs``."""
    row = ComparedMethod(name=name, params=method.get_params())
    try:
        fitted, seconds = _fitted(method, fit_data)
        samples = _calibrated(fitted, test, probs)
        more = OF_POSITIVE if samples.n_classes == 2 else ()
        names = tuple(dict.fromkeys((*todo.names, *more)))
        measured = ResampledMetrics(samples, replace(todo, names=names))
        evaluation = evaluate_resampled(measured)
        differences = None
        if reference is not None:
            paired = [name for name in todo.names if METRICS[name].lower_is_better]
            differences = difference_of_resampled(measured, reference, paired)
    except REFUSALS as refusal:
        reason = " ".join(str(refusal).split()) or type(refusal).__name__
        return replace(row, failure=reason), None
    row = replace(
        row,
        fit_seconds=seconds,
        calibrator=fitted,
        evaluation=evaluation,
        changed=int((samples.need_scores().argmax(axis=1) != test.scores.argmax(axis=1)).sum()),
        differences=differences,
    )
    return row, measured


def _fitted(method: Calibrator, fit_data: FitData) -> tuple[Calibrator, float]:
    """A fitted copy and the seconds it took. The warnings of the fit are in its report."""
    copy = type(method)(**method.get_params())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        start = time.perf_counter()
        copy.fit_samples(fit_data)
        return copy, time.perf_counter() - start


def _calibrated(calibrator: Calibrator, test: LabelledScores, out: Floats) -> ScoredSamples:
    """Calibrated probabilities in ``out``; their logarithms if that of a true class rounds to 0."""
    if isinstance(calibrator, Identity) and test.upper_logits is not None:
        logits = to_logits(test.kind, test.scores.astype(np.float64))
        samples = samples_from_scores(
            logits=logits, labels=test.labels, upper_logits=test.upper_logits
        )
        return replace(samples, classes=test.classes)
    _write(calibrator, calibrator._probs, test, out)
    if out[np.arange(len(out)), test.labels].all():
        samples = samples_from_scores(out, test.labels)
    else:
        _write(calibrator, calibrator._log_probs, test, out)
        samples = samples_from_scores(logits=out, labels=test.labels)
    return replace(samples, classes=test.classes)


def _write(calibrator: Calibrator, transform: Any, test: LabelledScores, out: Floats) -> None:
    """Write the samples after ``transform`` to ``out``, in blocks of about equal size."""
    edges = np.linspace(0, len(out), -(-out.size // MAPPED_AT_ONCE) + 1).astype(int)
    for start, stop in pairwise(edges):
        logits = to_logits(test.kind, test.scores[start:stop].astype(np.float64))
        out[start:stop] = calibrator._apply(transform, logits)


def _notes_on_ends(rows: Iterable[ComparedMethod]) -> Iterator[str]:
    for row in rows:
        if row.evaluation is not None and row.evaluation.ends is not None:
            yield " ".join(str(row.evaluation.ends).splitlines())


def _notes(fit_on: LabelledScores, test: LabelledScores) -> Iterator[str]:
    if np.array_equal(fit_on.scores, test.scores):
        yield (
            "The methods were measured on the very samples they were fitted on, so all figures are "
            "too good. Measure on other samples."
        )
    if test.kind == "probs":
        small = int((test.scores < PROBS_FLOOR).sum())
        if small:
            yield (
                f"{small} probabilities below {PROBS_FLOOR:.0e} were raised to it, also for "
                "identity: no method could move the logarithm of 0."
            )
