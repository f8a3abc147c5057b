"""The page about a multi-label model: the worst labels first."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from calibrant import _inputs
from calibrant._numerics.logspace import sigmoid
from calibrant._types import Array, RandomState
from calibrant._version import __version__
from calibrant._writing import refuse_unwritable, write_whole
from calibrant.calibrators.fit_report import CalibrationWarning
from calibrant.calibrators.multilabel.method import MultiLabelCalibration
from calibrant.errors import CalibrantError
from calibrant.files import Predictions, read_predictions
from calibrant.metrics.multilabel import MultiLabelEvaluation, evaluate_multilabel, label_columns
from calibrant.metrics.reliability import ReliabilityCurve, reliability_of
from calibrant.report.page import Source
from calibrant.report.render import render_template
from calibrant.report.samples import Floats, shortened

MOST_DRAWN = 6
"""Labels with a picture."""


@dataclass(frozen=True)
class MultiLabelSummary:
    """The content of the page."""

    title: str
    n_fit: int
    before: MultiLabelEvaluation
    """The model as it is."""
    after: MultiLabelEvaluation
    calibration: MultiLabelCalibration
    """What it was calibrated with."""
    curves: dict[int, tuple[ReliabilityCurve, ReliabilityCurve]]
    """Of the worst labels, by column, before and after."""

    def verdict(self) -> str:
        """The verdicts on the model as it is, and after calibration."""
        return f"{self.before.verdict()}\nAfter calibration: {self.after.verdict()}"


def write_multilabel_report(
    val: Source,
    test: Source,
    path: str | os.PathLike[str],
    *,
    calibration: MultiLabelCalibration | None = None,
    title: str | None = None,
    n_bins: int = 15,
    level: float = 0.95,
    random_state: RandomState = 0,
    progress: Callable[[str], None] | None = None,
) -> MultiLabelSummary:
    """Calibrate a multi-label model on ``val``, measure it on ``test``, and write an HTML page.

    Args:
        val: Held-out predictions to fit on: an ``.npz`` file with ``logits`` or ``probs`` (N, L)
            and ``labels`` (N, L), or :class:`calibrant.files.Predictions`.
        test: Other predictions of the same model to measure on.
        path: The page, a file that ends in ``.html``. Overwritten if it exists.
        calibration: An unfitted calibrator; None is ``MultiLabelCalibration()``.
        title: Heading of the page; None is the name of the test file.
        n_bins: Bins of the calibration errors and diagrams.
        level: Confidence level of the intervals and flags.
        random_state: Seed of the simulations: an int, a NumPy Generator or None.
        progress: Called with the name of each step.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant.files import Predictions
        >>> from calibrant.report import write_multilabel_report
        >>> rng = np.random.default_rng(0)
        >>> probs = rng.beta(0.5, 3.0, size=(1000, 4))
        >>> labels = (rng.random(probs.shape) < probs**2).astype(int)
        >>> val = Predictions(probs=probs[:500], labels=labels[:500])
        >>> test = Predictions(probs=probs[500:], labels=labels[500:])
        >>> file = tempfile.mkdtemp() + "/report.html"
        >>> summary = write_multilabel_report(val, test, file)
        >>> len(summary.before.off), summary.after.macro_ece < summary.before.macro_ece
        (4, True)
    """
    _inputs.installed("jinja2", "markupsafe", extra="report", purpose="writing a report")
    target = _inputs.page_path(_inputs.path(path, "the output"))
    refuse_unwritable(target)
    fit_on, measure_on = _read(val, "val"), _read(test, "test")
    _inputs.same_label_names(fit_on.class_names, measure_on.class_names)
    tell = progress or (lambda _: None)
    fitted = MultiLabelCalibration() if calibration is None else calibration
    _inputs.instance(fitted, MultiLabelCalibration, "calibration")
    tell("fit")
    with _inputs.naming(_name(val, "val")), warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the page has them
        fitted.fit(labels=fit_on.labels, logits=fit_on.logits, probs=fit_on.probs)
    names = measure_on.class_names

    def evaluated(probs: Array, logits: Array = None) -> MultiLabelEvaluation:
        found = evaluate_multilabel(
            probs,
            measure_on.labels,
            logits=logits,
            label_names=names,
            n_bins=n_bins,
            level=level,
            random_state=random_state,
        )
        short = (replace(each, name=shortened(each.name)) for each in found.labels)
        return replace(found, labels=tuple(short))

    with _inputs.naming(_name(test, "test")):
        probs = fitted.predict_proba(logits=measure_on.logits, probs=measure_on.probs)
        tell("before")
        before = evaluated(measure_on.probs, logits=measure_on.logits)
    tell("after")
    positives = np.asarray(measure_on.labels) == 1
    given = label_columns(_probs(measure_on), positives)
    calibrated = label_columns(probs, positives)
    curve = partial(reliability_of, n_bins=n_bins, level=level)
    summary = MultiLabelSummary(
        title=title or Path(_name(test, "Multi-label model")).name,
        n_fit=len(fit_on),
        before=before,
        after=evaluated(probs),
        calibration=fitted,
        curves={i: (curve(given[i]), curve(calibrated[i])) for i in before.order[:MOST_DRAWN]},
    )
    shown = f"{100 * before.level:g}%"
    text = render_template("multilabel.html", summary=summary, version=__version__, level=shown)
    # File names need not be valid UTF-8.
    write_whole(target, text.encode("utf-8", errors="replace"))
    return summary


def _read(source: Source, name: str) -> Predictions:
    predictions = source if isinstance(source, Predictions) else read_predictions(source)
    if not predictions.multilabel:
        raise CalibrantError(
            f"{_name(source, name)}: labels must have one column per label; found classes or none. "
            "Pass labels (N, L), or write a page about classes with write_report"
        )
    return predictions


def _name(source: Source, otherwise: str) -> str:
    return otherwise if isinstance(source, Predictions) else os.fsdecode(source)


def _probs(predictions: Predictions) -> Floats:
    _, scores = _inputs.one_of(logits=predictions.logits, probs=predictions.probs)
    wide = scores.astype(np.float64)
    return np.asarray(wide if predictions.logits is None else sigmoid(wide))
