"""Write a report: from predictions to an HTML file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from calibrant import _inputs
from calibrant._types import RandomState
from calibrant._writing import refuse_unwritable, write_whole
from calibrant.calibrators.base import Calibrator
from calibrant.files import Predictions, read_predictions
from calibrant.files.layout import as_options
from calibrant.metrics.costs import cost_matrix
from calibrant.report.render import render
from calibrant.report.samples import Part, checked_part
from calibrant.report.summarise import summarise
from calibrant.report.summary import Summary

Source: TypeAlias = str | os.PathLike[str] | Predictions
"""A prediction file, or its content."""
COLUMNS = ("label", "score", "positive", "options", "source", "where")
"""What may be said of the files' columns."""


def write_report(
    val: Source,
    test: Source,
    path: str | os.PathLike[str],
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
    columns: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Summary:
    """Fit every method on ``val``, measure each on ``test``, and write an HTML page.

    Args:
        val: Held-out predictions to fit on: a file for :func:`calibrant.files.read_predictions`,
            or :class:`calibrant.files.Predictions`.
        test: Other predictions of the same model to measure on. The page shows their class names
            and ids.
        path: The page, a file that ends in ``.html``. Overwritten if it exists.
        title: Heading of the page; None is the name of the test file.
        notes: Sentences about the data, shown below the heading.
        methods: Names out of ``CALIBRATORS``, or unfitted calibrators by names of your own. None
            is all methods that need no parameter and whose fit does not take minutes; the page
            lists those left out.
        metrics: Names in ``METRICS`` to measure beside the usual ones, as columns of the table.
        gamma: Gamma that the model was trained with, for named methods that need it (focal).
        n_bins: Bins of the calibration errors and diagrams.
        level: Confidence level of the intervals.
        n_resamples: Number of bootstrap resamples; fewer for many samples.
        random_state: Seed of the bootstrap: an int, a NumPy Generator or None.
        costs: Costs of actions by true class, as :func:`calibrant.decide` takes them, such as a CSV
            file: adds a section on what the decisions of each method cost.
        columns: ``label``, ``score``, ``positive``, ``options``, ``source`` and ``where``, as
            ``read_predictions`` takes them.
        by: Columns of ``test`` whose values divide the samples into groups: each is measured too.
        progress: Called with the name of each step: the methods, then ``"page"``.

    Returns:
        Summary: the content of the page as plain data.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant.files import Predictions
        >>> from calibrant.report import write_report
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 1000)
        >>> bold = 3.0 * (rng.normal(size=(1000, 3)) + 1.5 * np.eye(3)[labels])
        >>> val = Predictions(logits=bold[:500], labels=labels[:500])
        >>> test = Predictions(logits=bold[500:], labels=labels[500:])
        >>> file = tempfile.mkdtemp() + "/report.html"
        >>> summary = write_report(val, test, file, methods=["temperature"])
        >>> summary.side
        'over-confident'
    """
    _inputs.installed("jinja2", "markupsafe", extra="report", purpose="writing a report")
    target = _inputs.page_path(_inputs.path(path, "the output"))
    refuse_unwritable(target)
    matrix = None if costs is None else cost_matrix(costs)  # before long fits
    named = columns or {}
    for name in named:
        _inputs.choice(name, "columns", COLUMNS)
    by = (by,) if isinstance(by, str) else by
    fit_on, measure_on = (
        _read(val, "val", named, to_fit=True),
        _read(test, "test", named, to_fit=False, by=by),
    )
    summary = summarise(
        fit_on,
        measure_on.in_order_of(fit_on),
        title=title,
        notes=notes,
        methods=methods,
        metrics=metrics,
        gamma=gamma,
        n_bins=n_bins,
        level=level,
        n_resamples=n_resamples,
        random_state=random_state,
        costs=matrix,
        progress=progress,
    )
    if progress is not None:
        progress("page")
    text = render(summary)
    # File names need not be valid UTF-8.
    write_whole(target, text.encode("utf-8", errors="replace"))
    return summary


def _read(
    source: Source, name: str, columns: Mapping[str, Any], *, to_fit: bool, by: Sequence[str] = ()
) -> Part:
    if isinstance(source, Predictions):
        with _inputs.naming(name):
            return replace(checked_part(source, to_fit=to_fit), groups=source.groups(by))
    _inputs.path(source, "a prediction file")
    file = os.fsdecode(source)
    predictions = read_predictions(file, keep=by, **columns)
    with _inputs.naming(file):
        part = replace(checked_part(predictions, to_fit=to_fit), groups=predictions.groups(by))
    chosen = as_options({"where": columns.get("where")})
    named = as_options({**columns, "where": None})
    return replace(part, file=file, quoted=shlex.quote(file) + chosen, columns=named)
