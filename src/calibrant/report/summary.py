"""The content of a report as plain data, independent of HTML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from calibrant._version import __version__
from calibrant.calibrators import CALIBRATORS
from calibrant.calibrators.comparison import ComparedMethod, MethodComparison
from calibrant.metrics.calibration_test import NoiseFloor
from calibrant.metrics.evaluation import Evaluation, Measured
from calibrant.metrics.reliability import ConfidenceHistogram, ReliabilityCurve, RiskCoverageCurve
from calibrant.report.explorer import Explorer
from calibrant.report.methods import AFTER, BEFORE, changed_params
from calibrant.report.samples import Part


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
    after: str
    """The method that the page recommends or warns of."""
    evaluations: Mapping[str, Evaluation]
    """Evaluations of the model as it is and of ``after``."""
    best: Mapping[str, tuple[str, ...]]
    """By metric, the best methods, if they are significantly better than the others."""
    n_judged: int
    """Number of test samples that ``best`` and ``rival`` were tested on."""
    rival: str | None
    """The method with the smallest log-loss, if ``after`` is significantly worse."""
    worst_classes: tuple[WorstClass, ...]
    wrong_samples: tuple[WrongSample, ...]
    n_wrong: int
    most_confident: MostConfident | None
    """Predictions with the highest confidence, if there are enough of them."""
    explorer: Explorer
    version: str = __version__

    @property
    def before(self) -> str:
        """The name of the model as it is."""
        return BEFORE

    @property
    def side(self) -> str:
        """``calibrated``, ``over-confident``, ``under-confident`` or ``miscalibrated``."""
        return self.evaluations[self.before].side

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

    def error(self, name: str) -> Measured:
        """The calibration error of one method, with its interval."""
        return self[name].row["ece"]

    def floor(self, name: str) -> NoiseFloor:
        """The calibration error that a calibrated model would show."""
        evaluation = self[name].row.evaluation
        floors = () if evaluation is None else evaluation.noise_floors
        return next(floor for floor in floors if floor.name == "ece")

    def gain(self, metric: str) -> str:
        """``better``, ``worse`` or ``not distinguishable``: ``after`` against the model itself."""
        return self[self.after].row.verdict(metric) or "not distinguishable"

    def verdict(self) -> str:
        """Two sentences: whether the model is calibrated, and the effect of ``after``."""
        first = self.evaluations[self.before].verdict()
        if self.after == self.before:
            return first
        after, words = self.error(self.after).value, self.gain("ece")
        return f"{first} After {self.after}: {100 * after:.2f}% ({words})."

    @property
    def advice(self) -> str:
        """``calibrate``, ``leave``, ``avoid`` or ``look`` (the metrics disagree)."""
        gains = {self.gain("ece"), self.gain("nll")}
        if "worse" in gains:
            return "look" if "better" in gains else "avoid"
        return "calibrate" if "better" in gains else "leave"

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
        words = ["calibrant fit", self.val.quoted]
        if calibrator.NAME != AFTER:
            words += ["--method", calibrator.NAME]
        words += [f"--set {shlex.quote(f'{each}={value}')}" for each, value in settings.items()]
        return (
            " ".join([*words, "-o cal.json"]),
            "calibrant apply cal.json FILE -o calibrated.npz",
        )

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
            "side": self.side,
            "advice": self.advice,
            "comparison": self.comparison.to_dict(),
            "n_judged": self.n_judged,
            "rival": self.rival,
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
        }
