"""Compute the content of a report from checked predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.comparison import (
    ComparedMethod,
    MethodComparison,
    columns,
    compare_samples,
)
from calibrant.metrics.comparison import difference_of_resampled
from calibrant.metrics.costs import CostMatrix, cost_matrix
from calibrant.metrics.decisions import Decisions, decisions_of, mean_cost
from calibrant.metrics.evaluation import evaluate_samples
from calibrant.metrics.reliability import (
    RiskCoverageCurve,
    histogram_of,
    reliability_of,
    risk_coverage_of,
)
from calibrant.metrics.resampling import RESAMPLES, ResampledMetrics
from calibrant.report.explorer import explore
from calibrant.report.methods import BEFORE
from calibrant.report.samples import Outcome, Part, outcome_of
from calibrant.report.summary import (
    Method,
    MethodCosts,
    MostConfident,
    Summary,
    WorstClass,
    WrongSample,
)

MOST_BINS = range(1, 101)
"""The page holds the bins of every point of the explorer."""
WORST_CLASSES = 12
WRONG_SAMPLES = 40
RISK_POINTS = 120
"""Points of a risk-coverage curve to draw."""
RESAMPLED_ROWS = 10_000_000
"""Rows to resample for one method: more samples get fewer resamples."""
FEWEST_RESAMPLES = 200
HIGH_CONFIDENCES = (0.99, 0.9, 0.75)
ENOUGH = 50


def summarise(
    val: Part,
    test: Part,
    *,
    title: str | None = None,
    notes: Iterable[str] = (),
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    metrics: Iterable[str] = (),
    gamma: float | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    costs: Any = None,
    progress: Callable[[str], None] | None = None,
) -> Summary:
    """Compute what :func:`calibrant.report.write_report` writes, from the same arguments."""
    n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
    n_resamples = _inputs.whole_number(n_resamples, "n_resamples", allowed=RESAMPLES)
    most = max(FEWEST_RESAMPLES, RESAMPLED_ROWS // len(test))
    options: dict[str, Any] = {
        "n_bins": n_bins,
        "level": level,
        "n_resamples": min(n_resamples, most),
        "random_state": random_state,
    }
    outcomes: dict[str, Outcome] = {}
    decisions: dict[str, Decisions] = {}
    matrix = None
    if costs is not None:
        matrix = cost_matrix(costs).in_order_of(test.class_names or range(test.n_classes))

    def keep(name: str, measured: ResampledMetrics) -> None:
        outcomes[name] = outcome_of(measured)
        samples = measured.samples
        if matrix is not None:
            probs = samples.probs() if samples.from_logits else samples.need_scores()
            decisions[name] = decisions_of(probs, samples.need_labels(), matrix, None, level)

    comparison = compare_samples(
        val.samples,
        test.samples,
        methods=methods,
        metrics=metrics,
        gamma=gamma,
        against=BEFORE,
        sort="nll",  # a method that gives up accuracy can have a small calibration error
        progress=progress,
        on_measured=keep,
        **options,
    )
    fitted = {row.name: row.calibrator for row in comparison.rows if row.calibrator is not None}
    summary = Summary(
        title=title or (Path(test.file).name if test.file else "Predictions of a model"),
        notes=(*((notes,) if isinstance(notes, str) else notes), *comparison.notes),
        val=val,
        test=test,
        comparison=comparison,
        methods=tuple(
            _with_curves(row, outcomes.get(row.name), n_bins, level) for row in comparison.rows
        ),
        best=_best(comparison, outcomes),
        worst_classes=_worst_classes(test, outcomes, comparison[BEFORE]),
        wrong_samples=_wrong_samples(test, outcomes),
        n_wrong=int((~outcomes[BEFORE].samples.correct).sum()),
        most_confident=_most_confident(outcomes[BEFORE]),
        explorer=explore(test.samples, fitted, n_bins),
        costs=None if matrix is None else _costs(decisions, matrix, test.samples.labels),
    )
    return summary if test.groups is None else _with_groups(summary, outcomes, options)


def _with_groups(
    summary: Summary, outcomes: Mapping[str, Outcome], options: Mapping[str, Any]
) -> Summary:
    """The summary with every group of the model as it is and of the recommended method."""
    gap = "prevalence_gap" if summary.comparison.n_classes == 2 else "confidence_gap"
    groups = {}
    for name in dict.fromkeys((summary.before, summary.after)):
        samples = replace(outcomes[name].samples, groups=summary.test.groups)
        found = evaluate_samples(samples, metrics=(gap, summary.metric), **options).by_group
        assert found is not None
        groups[name] = found
    return replace(summary, groups=groups)


def _costs(
    decisions: Mapping[str, Decisions], matrix: CostMatrix, labels: npt.NDArray[np.int64]
) -> dict[str, MethodCosts]:
    before = matrix.values[labels, decisions[BEFORE].actions]
    return {
        name: MethodCosts(
            decisions=each,
            saved=mean_cost("saved", before - matrix.values[labels, each.actions], each.level),
        )
        for name, each in decisions.items()
    }


def _with_curves(row: ComparedMethod, outcome: Outcome | None, n_bins: int, level: float) -> Method:
    if outcome is None:
        return Method(row=row)
    return Method(
        row=row,
        curve=reliability_of(outcome.samples, n_bins=n_bins, level=level),
        histogram=histogram_of(outcome.samples, n_bins=n_bins),
        risk=_thinned(risk_coverage_of(outcome.samples)),
    )


def _thinned(curve: RiskCoverageCurve) -> RiskCoverageCurve:
    """Fewer points of the same curve, including the last."""
    n = len(curve.coverage)
    kept = np.unique(np.linspace(0, n - 1, min(n, RISK_POINTS)).round().astype(np.intp))
    return replace(
        curve,
        coverage=curve.coverage[kept],
        risk=curve.risk[kept],
        confidence=curve.confidence[kept],
    )


def _best(
    comparison: MethodComparison, outcomes: Mapping[str, Outcome]
) -> dict[str, tuple[str, ...]]:
    """By metric, the methods with the best value, if the next best is significantly worse."""
    pairs: dict[tuple[str, str], list[str]] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for metric in columns(replace(comparison, metrics=())):  # others may need all scores
        group, others = comparison.best_and_others(metric)
        groups[metric] = group
        if others:
            pairs.setdefault((group[0], others[0]), []).append(metric)
    marked: dict[str, tuple[str, ...]] = dict.fromkeys(columns(comparison), ())
    for pair, metrics in pairs.items():
        names = {"error_rate" if metric == "accuracy" else metric: metric for metric in metrics}
        first, second = (outcomes[name].measured for name in pair)
        for each in difference_of_resampled(first, second, list(names)).differences:
            if each.verdict == "better":
                marked[names[each.name]] = groups[names[each.name]]
    return marked


def _most_confident(outcome: Outcome) -> MostConfident | None:
    """The predictions above the highest threshold that enough of them exceed."""
    for above in HIGH_CONFIDENCES:
        inside = outcome.samples.confidence > above
        if inside.sum() >= ENOUGH:
            accuracy = float(outcome.samples.correct[inside].mean())
            return MostConfident(above=above, count=int(inside.sum()), accuracy=accuracy)
    return None


def _worst_classes(
    test: Part, outcomes: Mapping[str, Outcome], as_it_is: ComparedMethod
) -> tuple[WorstClass, ...]:
    """Classes that are significantly off, then those with the largest calibration error."""
    assert as_it_is.evaluation is not None
    before, count = outcomes[BEFORE], np.bincount(test.samples.labels, minlength=test.n_classes)
    off = [each.class_index for each in as_it_is.evaluation.classes_off]
    worst = np.argsort(-before.class_errors, kind="stable").tolist()
    return tuple(
        WorstClass(
            index=k,
            name=test.class_name(k),
            off=k in off,
            count=int(count[k]),
            mean_prob=float(before.class_confidence[k]),
            frequency=float(count[k] / len(test)),
            errors={name: float(each.class_errors[k]) for name, each in outcomes.items()},
        )
        for k in [*off, *(k for k in worst if k not in off)][:WORST_CLASSES]
    )


def _wrong_samples(test: Part, outcomes: Mapping[str, Outcome]) -> tuple[WrongSample, ...]:
    """The errors of the model as it is with the highest confidence."""
    before = outcomes[BEFORE]
    wrong = np.flatnonzero(~before.samples.correct)
    order = np.argsort(-before.samples.confidence[wrong], kind="stable")
    found = []
    for i in wrong[order][:WRONG_SAMPLES]:
        label, predicted = int(test.samples.labels[i]), int(before.predicted[i])
        others = {name: int(outcome.predicted[i]) for name, outcome in outcomes.items()}
        found.append(
            WrongSample(
                row=int(i),
                id=test.row_name(int(i)),
                label=test.class_name(label),
                predicted=test.class_name(predicted),
                confidence={
                    name: float(outcome.samples.confidence[i]) for name, outcome in outcomes.items()
                },
                otherwise={
                    name: test.class_name(k) for name, k in others.items() if k != predicted
                },
                corrected=tuple(name for name, k in others.items() if k == label),
            )
        )
    return tuple(found)
