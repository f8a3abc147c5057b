"""The default calibrator: it selects a method by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.calibrators.auto.changing import class_changing, with_floor
from calibrant.calibrators.auto.curves import choose_curve
from calibrant.calibrators.auto.keeping import (
    FEWEST,
    STEPS,
    TEMPERATURE,
    best_of_steps,
    folds_of,
    gains,
    held_out_evidence,
    is_better,
    pieces_of,
)
from calibrant.calibrators.base import Calibrator, Fitted
from calibrant.calibrators.data import FitData, Samples
from calibrant.calibrators.fit_report import Evidence
from calibrant.calibrators.folds import standard_errors
from calibrant.calibrators.parts import InParts, log_probs_after
from calibrant.calibrators.temperature.methods import TemperatureScaling
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.calibrators.top_rest.methods import TopRestScaling
from calibrant.calibrators.top_rest.solver import Problem, TopRest, fit_top_rest, problem_of


class AutoCalibration(InParts):
    """The method that held-out samples support best, from the simplest on.

    Methods are compared on samples that they were not fitted on: five folds, two from 10,000
    samples on. (T, T' without class terms, the variance of the class terms and the floor are those
    of all samples.) The candidates are, in this order:

    - temperature scaling, top-rest scaling without class terms, and with them;
    - the same on floored logits, if some mistakes have gaps far above the typical one;
    - the same after structured scaling (at most 20 classes), or after a bias for each class (more
      classes, if the class frequencies are off), which may change the predicted class.

    A more complex candidate is taken if it

    - lowers the mean log-loss by more than 1 + 100 / n standard errors over the n samples,
    - does not raise the equal-mass calibration error of temperature scaling by more than two
      standard errors, and
    - has no class terms that move the confidence by more than 2 points, on average, to keep the
      predicted class. They do so where the model is wrong about whole classes.

    Otherwise the simpler method is kept. Below 20 samples it is temperature scaling. The selected
    method is fitted on all samples. Over files, methods are compared on a million evenly spread
    samples, and one that needs samples in memory is fitted on these. ``report_.evidence`` lists
    the results on held-out samples: what each candidate gains, how many predictions it changes,
    and what that does to the accuracy.

    Args:
        keep_class: Only consider methods that never change the predicted class.

    Attributes:
        chosen_: Name of the selected method.
        parts_: The fitted calibrators that it is made of.

    Examples:
        >>> import numpy as np
        >>> from calibrant import AutoCalibration
        >>> rng = np.random.default_rng(0)
        >>> truth = 3 * rng.normal(size=(4000, 10))
        >>> labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        >>> AutoCalibration().fit(2 * truth, labels).chosen_
        'temperature'
        >>> shouted = np.where(truth == truth.max(axis=1, keepdims=True), truth + 2, truth)
        >>> auto = AutoCalibration().fit(shouted, labels)
        >>> auto.chosen_
        'top-rest, classes=False'
        >>> print(auto.report_.evidence[1])
        top-rest, classes=False: nll 0.9384, gains 0.0669 +- 0.0054; ada_ece 2.21%; chosen
        >>> auto = AutoCalibration().fit(truth + 3 * (np.arange(10) == 0), labels)
        >>> auto.chosen_
        'structured, then temperature'
    """

    NAME = "auto"
    CHOOSES = True
    PER_CLASS = False

    def __init__(self, *, keep_class: bool = False) -> None:
        self.keep_class = keep_class

    @property
    def chosen_(self) -> str:
        """Name of the selected method."""
        return next(each.method for each in self.report_.evidence if each.chosen)

    def _check_params(self) -> None:
        _inputs.instance(self.keep_class, bool, "keep_class")

    def _fit(self, data: Samples) -> Fitted:
        some = rows_to_compare(data)
        if data.n_classes == 2 and not self.keep_class:
            return _fitted_curve(some, data)
        problem = Problem.of(some)
        folds = folds_of(problem)
        best = simple = best_of_steps(problem, pieces_of(problem, folds), folds)
        evidence = list(simple.steps)
        n = problem.n_counted
        others = () if self.keep_class or round(n) < FEWEST else (with_floor, class_changing)
        for other in others:
            candidate = other(best, folds)
            if candidate is None:
                continue
            step = held_out_evidence(candidate.name, candidate.held_out, best.held_out)
            if is_better(step, evidence[0], standard_errors(n)):
                evidence = [replace(each, chosen=False) for each in evidence]
                best, step = candidate, replace(step, chosen=True)
            evidence.append(step)
        fitted = best.problem.fitted(best.found)
        if len(some) < len(data) and not best.first:
            everything = problem_of(data)
            found = TopRest.unchanged(data.n_classes)
            if best.name != TEMPERATURE:
                found = fit_top_rest(everything, classes=best.classes)
            fitted = everything.fitted(found)
        last = TopRestScaling(classes=best.classes).with_state(fitted.state, data.n_classes)
        fitted = replace(
            fitted,
            state={},
            parts=(*best.first, last),
            warnings=(*fitted.warnings, *_warnings(evidence, standard_errors(n))),
            evidence=tuple(evidence),
        )
        if best.first:
            return replace(fitted, **_measured(fitted.parts, data))
        return replace(fitted, accuracy_after=data.accuracy)


@singledispatch
def rows_to_compare(data: Samples) -> FitData:
    """The samples on which methods are compared: all, if they are in memory."""
    return data.in_memory()


def _fitted_curve(some: FitData, data: Samples) -> Fitted:
    """The choice for two classes."""
    curve, evidence = choose_curve(some)
    return Fitted(
        state={},
        parts=(curve,),
        criterion="nll",
        evaluations=len(evidence),
        n_parameters=2,
        evidence=tuple(evidence),
        **_measured((curve,), data),
    )


def _measured(parts: tuple[Calibrator, ...], data: Samples) -> dict[str, Any]:
    """NLL before and after calibrators in a row, and the accuracy after them."""
    before, after, accuracy = data.means(_measured_rows, parts)
    return {"before": before, "after": after, "accuracy_after": accuracy}


def _measured_rows(data: FitData, parts: tuple[Calibrator, ...]) -> tuple[Any, Any, Any]:
    before = temperature_rows(data, 1.0)[0]
    if len(parts) == 1 and isinstance(parts[0], TemperatureScaling):
        return before, temperature_rows(data, 1.0 / parts[0].temperature_)[0], data.correct
    log_probs = log_probs_after(parts, data.logits)
    after = -log_probs[np.arange(len(data)), data.labels].astype(np.float64)
    return before, after, log_probs.argmax(axis=1) == data.labels


def _warnings(evidence: list[Evidence], errors: float) -> Iterator[str]:
    """Why class terms that lower the log-loss were not selected, if nothing else helps."""
    last = evidence[-1]
    if last.method in STEPS and not last.chosen and gains(last, errors):
        yield (
            f"class terms would lower the nll by {last.gain:.3g} but raise the calibration error, "
            "because the predicted class must not change; use top-rest if the nll matters more, or "
            "keep_class=False."
        )
