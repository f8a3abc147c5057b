"""The result of a comparison: one row for each method, with numbers, verdicts and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calibrant import _inputs
from calibrant._tables import json_value
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.comparison.advice import Recommendation
from calibrant.calibrators.comparison.table import columns, main_error, to_html, to_text
from calibrant.calibrators.fit_report import FitReport
from calibrant.metrics.calibration_test import NoiseFloor
from calibrant.metrics.comparison import Comparison
from calibrant.metrics.evaluation import Evaluation, Measured

OF_EVALUATION = ("n_impossible", "side", "p_value", "classes_off", "verdict")
SAME = 1e-9
"""Metrics closer than this are those of the same probabilities."""


@dataclass(frozen=True, kw_only=True)
class ComparedMethod:
    """One method of a comparison: its results, or a ``failure`` that says why there are none."""

    name: str
    params: Mapping[str, Any]
    """Arguments of its constructor."""
    fit_seconds: float | None = None
    """Wall-clock time of the fit, including what it loads or compiles on first use."""
    calibrator: Calibrator | None = None
    """Fitted on the validation samples."""
    evaluation: Evaluation | None = None
    """Metrics on the test samples, and the verdict on them."""
    changed: int | None = None
    """Number of test samples whose predicted class is not that of the model as it is."""
    differences: Comparison | None = None
    """Differences between this method (a) and the reference (b); None for the reference."""
    failure: str | None = None

    @property
    def report(self) -> FitReport | None:
        """The fit report, whose ``warnings`` are reasons not to use the method here."""
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
        """The main calibration error of a calibrated model with the same confidences."""
        return None if self.evaluation is None else self.floor(main_error(self.evaluation))

    def floor(self, metric: str) -> NoiseFloor | None:
        """The value of a calibration error that a calibrated model would show."""
        floors = () if self.evaluation is None else self.evaluation.noise_floors
        return next((floor for floor in floors if floor.name == metric), None)

    def verdict(self, metric: str) -> str | None:
        """``better`` or ``worse`` than the reference, or ``not distinguishable``.

        None for the reference, and for a metric that does not say what is better.
        """
        if self.differences is None:
            return None
        name = "error_rate" if metric == "accuracy" else metric
        found = [each for each in self.differences.differences if each.name == name]
        return found[0].verdict if found else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity and NaN become None."""
        measured = None if self.evaluation is None else self.evaluation.to_dict()
        compared = None if self.differences is None else self.differences.to_dict()
        report = {} if self.report is None else self.report.to_dict()
        return {
            "params": dict(self.params),
            "fit_seconds": self.fit_seconds,
            "fit": {name: json_value(value) for name, value in report.items()} or None,
            "metrics": measured and {**measured["metrics"], "accuracy": _figures(self["accuracy"])},
            "noise_floor": measured and measured["noise_floor"],
            **{key: measured and measured[key] for key in OF_EVALUATION},
            "changed": self.changed,
            "differences": compared and compared["differences"],
            "failure": self.failure,
        }


@dataclass(frozen=True, kw_only=True)
class MethodComparison:
    """The result of :func:`compare`: print it, index it by method, or use :meth:`to_dict`."""

    n_fit: int
    """Number of samples fitted on."""
    n: int
    """Number of samples measured on."""
    n_classes: int
    n_bins: int
    level: float
    n_resamples: int
    seed: int
    against: str
    """The method that the others are compared with."""
    sort: str
    """The metric that the rows are sorted by."""
    metrics: tuple[str, ...] = ()
    """Metrics that were measured beside the usual ones."""
    rows: tuple[ComparedMethod, ...]
    notes: tuple[str, ...] = ()
    """Caveats about the figures."""
    recommendation: Recommendation | None = None
    """What to do; None unless ``identity``, the model as it is, and another method are compared."""

    def __getitem__(self, name: str) -> ComparedMethod:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"{name} was not compared; there are {', '.join(r.name for r in self.rows)}")

    def sorted_by(self, metric: str) -> MethodComparison:
        """The same rows, those with the best ``metric`` first and failures last."""
        _inputs.choice(metric, "sort", columns(self))
        rows = sorted(self.rows, key=lambda row: _rank(row, metric))
        return replace(self, sort=metric, rows=tuple(rows))

    def calibrated(self) -> tuple[str, ...]:
        """Names of the methods after which these samples show no miscalibration."""
        return tuple(
            row.name
            for row in self.rows
            if row.evaluation is not None and row.evaluation.side == "calibrated"
        )

    def best_and_others(self, metric: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The methods that share the best value, and the others, the best first."""
        ranked = [row for row in self.sorted_by(metric).rows if row.failure is None]
        values = {row.name: row[metric].value for row in ranked}
        best = ranked[0][metric].value
        group = tuple(n for n in values if math.isclose(values[n], best, rel_tol=0.0, abs_tol=SAME))
        return group, tuple(name for name in values if name not in group)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity and NaN become None."""
        values = dict(vars(self))
        rows = values.pop("rows")
        return {
            **values,
            "metrics": list(self.metrics),
            "notes": list(self.notes),
            "recommendation": self.recommendation and self.recommendation.to_dict(),
            "methods": {row.name: row.to_dict() for row in rows},
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self)


def _rank(row: ComparedMethod, metric: str) -> tuple[float, ...]:
    """Sort key, smallest first; ties, as in accuracy, are broken by the main error."""
    if row.evaluation is None:
        return (1.0,)
    value = row[metric].value
    first = main_error(row.evaluation)
    return 0.0, -value if metric == "accuracy" else value, row[first].value


def _figures(measured: Measured) -> dict[str, float | None]:
    return {key: json_value(getattr(measured, key)) for key in ("value", "low", "high")}
