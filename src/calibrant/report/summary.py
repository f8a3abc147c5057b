"""The content of a report as plain data, independent of HTML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from calibrant._inputs import CORRECTNESS
from calibrant._tables import json_value
from calibrant._version import __version__
from calibrant.calibrators import CALIBRATORS
from calibrant.calibrators.auto.method import AutoCalibration
from calibrant.calibrators.comparison import ComparedMethod, MethodComparison, Recommendation
from calibrant.metrics.calibration_test import NoiseFloor
from calibrant.metrics.decisions import Decisions
from calibrant.metrics.evaluation import Evaluation, Measured
from calibrant.metrics.groups import GroupedEvaluation
from calibrant.metrics.reliability import ConfidenceHistogram, ReliabilityCurve, RiskCoverageCurve
from calibrant.report.explorer import Explorer
from calibrant.report.methods import BEFORE, changed_params
from calibrant.report.samples import Part

ENOUGH = 100
"""Test samples below which the page does not say that a model can be trusted."""
MOST_NAMED = 3
"""Most classes that a sentence names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Method:
    """The figures of one method, and its curves unless it failed."""

    row: ComparedMethod
    curve: ReliabilityCurve | None = None
    histogram: ConfidenceHistogram | None = None
    risk: RiskCoverageCurve | None = None

    @property
    def name(self) -> str:
        """Its name in the comparison."""
        return self.row.name

    @property
    def title(self) -> str:
        """Its name on the page."""
        return "as it is" if self.name == BEFORE else self.name

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        curves = {"curve": self.curve, "histogram": self.histogram, "risk": self.risk}
        drawn = {name: curve.to_dict() for name, curve in curves.items() if curve is not None}
        return {"name": self.name, "failure": self.row.failure, **drawn}


@dataclass(frozen=True, kw_only=True)
class WorstClass:
    """A class whose mean probability is far from its frequency."""

    index: int
    name: str
    off: bool
    """Whether its mean probability is significantly off."""
    count: int
    """Number of test samples with this label."""
    mean_prob: float
    """Mean probability in the model as it is."""
    frequency: float
    """Share of test samples with this label."""
    errors: Mapping[str, float]
    """Calibration error of its probability, by method."""


@dataclass(frozen=True, kw_only=True)
class WrongSample:
    """A test sample that the model got wrong."""

    row: int
    id: str
    label: str
    predicted: str
    confidence: Mapping[str, float]
    """By method."""
    otherwise: Mapping[str, str]
    """The predicted class of methods that predict another class, by method."""
    corrected: tuple[str, ...]
    """Methods that predict the label."""


@dataclass(frozen=True, kw_only=True)
class MostConfident:
    """Predictions of the model as it is above some confidence."""

    above: float
    count: int
    accuracy: float


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodCosts:
    """The actions of least expected cost by the probabilities of one method."""

    decisions: Decisions
    saved: Measured
    """Realised cost of the actions of the model as it is, minus that of these, per sample."""

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``not distinguishable`` from the model as it is."""
        low, high = self.saved.low or 0.0, self.saved.high or 0.0
        return "better" if low > 0.0 else "worse" if high < 0.0 else "not distinguishable"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.decisions.to_dict(), "saved": vars(self.saved)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """The content of a report. ``to_dict`` gives plain data for JSON.

    Returned by :func:`calibrant.report.write_report`.
    """

    title: str
    notes: tuple[str, ...]
    val: Part
    test: Part
    comparison: MethodComparison
    """Every method that was fitted, compared with the model as it is."""
    methods: tuple[Method, ...]
    """All methods; those that failed or were left out come last."""
    best: Mapping[str, tuple[str, ...]]
    """By metric, the best methods, if they are significantly better than the others."""
    worst_classes: tuple[WorstClass, ...]
    wrong_samples: tuple[WrongSample, ...]
    n_wrong: int
    most_confident: MostConfident | None
    """Predictions with the highest confidence, if there are enough of them."""
    explorer: Explorer
    groups: Mapping[str, GroupedEvaluation] | None = None
    """The groups of the test samples in the model as it is and in ``after``, if any are named."""
    costs: Mapping[str, MethodCosts] | None = None
    """By method, if costs of actions were given."""
    version: str = __version__

    @property
    def before(self) -> str:
        """The name of the model as it is."""
        return BEFORE

    @property
    def recommendation(self) -> Recommendation | None:
        """What to do; None if no method could be fitted."""
        return self.comparison.recommendation

    @property
    def after(self) -> str:
        """The method that the page recommends or warns of."""
        return self.before if self.recommendation is None else self.recommendation.after.name

    @property
    def side(self) -> str:
        """What is off in the model as it is, in a word; see ``Evaluation.side``."""
        return self.evaluation(self.before).side

    @property
    def axes(self) -> tuple[str, str]:
        """What the page calls a probability and the rate it should have."""
        if self.comparison.n_classes != 2:
            return "confidence", "accuracy"
        name = self.test.class_name(1)
        called = f"class {name}" if self.test.class_names is None else name
        return f"P({called})", f"rate of {called}"

    @property
    def drawn(self) -> tuple[Method, ...]:
        """The methods that have curves."""
        return tuple(method for method in self.methods if method.curve is not None)

    @property
    def pair_first(self) -> tuple[Method, ...]:
        """The methods that have curves, the model as it is and ``after`` first."""
        places = {self.before: 0, self.after: 1}
        return tuple(sorted(self.drawn, key=lambda method: places.get(method.name, 2)))

    def __getitem__(self, name: str) -> Method:
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(f"{name} is not in the report")

    def curve(self, name: str) -> ReliabilityCurve:
        """The reliability curve of a method that did not fail."""
        curve = self[name].curve
        if curve is None:
            raise KeyError(f"{name} has no curve: {self[name].row.failure}")
        return curve

    def evaluation(self, name: str) -> Evaluation:
        """The evaluation of a method that did not fail."""
        evaluation = self[name].row.evaluation
        assert evaluation is not None
        return evaluation

    @property
    def metric(self) -> str:
        """The calibration error of the page: of P(class 1) for two classes."""
        return "positive_ece" if self.comparison.n_classes == 2 else "ece"

    def error(self, name: str) -> Measured:
        """The calibration error of one method, with its interval."""
        return self[name].row[self.metric]

    def floor(self, name: str) -> NoiseFloor:
        """The calibration error that a calibrated model would show."""
        floor = self[name].row.floor(self.metric)
        assert floor is not None
        return floor

    def verdict(self) -> str:
        """Whether the model is calibrated, and what to do."""
        return str(self.recommendation or self.evaluation(self.before).verdict())

    @property
    def _by_mean(self) -> bool:
        """Whether over- and under-confident are said of the mean, not of the slope."""
        return self.comparison.n_classes > 2 or self.test.class_names == CORRECTNESS

    @property
    def headline(self) -> str:
        """What was found, in a sentence; see ``side``."""
        curve, (probability, rate) = self.curve(self.before), self.axes
        if self.side == "classes off":
            off = len(self.evaluation(self.before).classes_off)
            which = f"{off} of {self.comparison.n_classes} classes" if off else "single classes"
            return f"right on the whole, but wrong about {which}"
        if self.side == "undecided":
            return "the verdict depends on options that the log leaves out"
        if not self._by_mean and self.side in ("over-confident", "under-confident"):
            slope = self[self.before].row["calibration_slope"].value
            return f"its probabilities have a slope of {slope:.2f}, where 1 is calibrated"
        return (
            f"mean {probability} {curve.overall_confidence:.1%}, {rate} "
            f"{curve.overall_accuracy:.1%}"
        )

    @property
    def trust(self) -> str:
        """Whether the model can be trusted as it is."""
        n = f"{self.comparison.n:,} sample{'' if self.comparison.n == 1 else 's'}"
        found = self.recommendation
        if self.side == "calibrated":
            if found is not None and not found.trusted:
                what = "log-loss" if found.gain("nll") == "better" else "calibration error"
                return f"Not fully: {n} show no miscalibration, but {self.after} lowers the {what}."
            if self.comparison.n < ENOUGH:
                return f"{n} cannot tell: only gross errors would show."
            return f"Yes, as far as {n} can tell."
        if self.side == "undecided":
            return self.evaluation(self.before).verdict()
        curve, (probability, rate) = self.curve(self.before), self.axes
        points = 100.0 * (curve.overall_confidence - curve.overall_accuracy)
        direction = "above" if points > 0.0 else "below"
        words = {
            "over-confident": "too close to 0 and 1",
            "under-confident": "too far from 0 and 1",
            "classes off": "right about the confidence, but not about single classes",
            "miscalibrated": "too high in some ranges and too low in others",
        }
        if self.side == "prevalence off" or (
            self._by_mean and self.side == ("over-confident" if points > 0.0 else "under-confident")
        ):
            size = f"{abs(points):.1f} points {direction} the {rate}"
            return f"Not as it is: on average its {probability} is {size}."
        return f"Not as it is: its probabilities are {words[self.side]}."

    def wrong_about(self, name: str) -> str:
        """The classes that are significantly off after a method, with sizes; empty if none."""
        off = self.evaluation(name).classes_off
        named = [
            f"{'class ' if self.test.class_names is None else ''}"
            f"{self.test.class_name(each.class_index)} (mean probability {each.predicted:.1%}, "
            f"rate {each.observed:.1%})"
            for each in off[:MOST_NAMED]
        ]
        more = [f"{len(off) - MOST_NAMED} more"] if len(off) > MOST_NAMED else []
        *first, last = [*named, *more] or [""]
        return f"{', '.join(first)} and {last}" if first else last

    def lines_to_fit(self, name: str) -> tuple[str, ...]:
        """Commands, or Python code if there is no file, that fit and apply a method.

        Empty for a user-defined calibrator.
        """
        calibrator = self[name].row.calibrator
        if calibrator is None or CALIBRATORS.get(calibrator.NAME) is not type(calibrator):
            return ()
        settings = changed_params(calibrator)
        if self.val.quoted is None:
            given = ", ".join(f"{each}={value!r}" for each, value in settings.items())
            kind = self.val.samples.kind
            return (
                f'cal = calibrant.CALIBRATORS["{calibrator.NAME}"]({given})',
                f"cal.fit({kind}={kind}, labels=labels)",
                f"cal.predict_proba({kind}=new)",
            )
        words = ["calibrant fit", self.val.quoted + self.val.columns]
        if calibrator.NAME != AutoCalibration.NAME:
            words += ["--method", calibrator.NAME]
        for each, value in settings.items():
            text = value if isinstance(value, str) else json.dumps(json_value(value))
            words.append(f"--set {shlex.quote(f'{each}={text}')}")
        return (
            " ".join([*words, "-o cal.json"]),
            f"calibrant apply cal.json FILE{self.val.columns} -o calibrated.npz",
        )

    @property
    def line_to_keep_class(self) -> str:
        """The command, or Python code, that fits ``auto`` without changing a predicted class."""
        if self.val.quoted is None:
            return "cal = calibrant.AutoCalibration(keep_class=True)"
        return f"calibrant fit {self.val.quoted}{self.val.columns} --keep-class -o cal.json"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as embedded in the page for its script and for other programs."""
        return {
            "title": self.title,
            "notes": list(self.notes),
            "val": self.val.file,
            "test": self.test.file,
            "version": self.version,
            "before": self.before,
            "after": self.after,
            "axes": list(self.axes),
            "side": self.side,
            "comparison": self.comparison.to_dict(),
            "best": {metric: list(names) for metric, names in self.best.items()},
            "methods": [method.to_dict() for method in self.methods],
            "worst_classes": [
                {**vars(each), "errors": dict(each.errors)} for each in self.worst_classes
            ],
            "wrong_samples": [
                {
                    **vars(each),
                    "confidence": dict(each.confidence),
                    "otherwise": dict(each.otherwise),
                    "corrected": list(each.corrected),
                }
                for each in self.wrong_samples
            ],
            "n_wrong": self.n_wrong,
            "most_confident": self.most_confident and vars(self.most_confident),
            "normal_quantile": NormalDist().inv_cdf((1.0 + self.comparison.level) / 2.0),
            "explorer": self.explorer.to_dict(),
            "groups": self.groups and {name: g.to_dict() for name, g in self.groups.items()},
            "costs": self.costs and {name: each.to_dict() for name, each in self.costs.items()},
        }
