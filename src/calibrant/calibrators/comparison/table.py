"""The table of a comparison, as text and as HTML, with its legend and footnotes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from calibrant._tables import html_table, score_text, text_table
from calibrant.calibrators.comparison.advice import POSITIVE, paired_metrics
from calibrant.calibrators.comparison.duration import LEFT_OUT

if TYPE_CHECKING:
    from calibrant.calibrators.comparison.result import ComparedMethod, MethodComparison
    from calibrant.metrics.evaluation import Evaluation, Measured

SORTABLE = (*("ada_ece", "ece", "nll", "brier", "accuracy"), *POSITIVE)
"""Metrics that a table can be sorted by, the last ones for two classes."""
PERCENT = ("ada_ece", "ece", "accuracy", *POSITIVE)
"""Printed in percent; the others in their own units."""
SIGNS = {"better": "+", "worse": "-", "not distinguishable": " ", None: " "}
WIDTH = 96


def to_text(result: MethodComparison) -> str:
    """The table for a terminal."""
    footnotes = _Footnotes()
    cells = [*_heads(result), *(_cells(result, row, footnotes) for row in result.rows)]
    align = f"<{'>' * (len(cells[0]) - 2)}<"
    return "\n".join(
        [
            f"Fitted on {result.n_fit} samples, measured on {result.n}; {result.n_classes} classes",
            "",
            *text_table(cells, align, gap=" "),
            "",
            *_legend(result),
            *footnotes.lines(),
        ]
    )


def to_html(result: MethodComparison) -> str:
    """The table for a notebook."""
    footnotes = _Footnotes()
    rows = [_cells(result, row, footnotes) for row in result.rows]
    return html_table(_heads(result), rows, below=[*_legend(result), *footnotes.lines()])


def main_error(result: MethodComparison | Evaluation) -> str:
    """The calibration error that has a noise floor in the table."""
    return paired_metrics(result.n_classes or 0)[0]


def columns(result: MethodComparison) -> tuple[str, ...]:
    """The metrics of the table; the main calibration error comes first."""
    names = (*paired_metrics(result.n_classes), *result.metrics)
    return tuple("accuracy" if name == "error_rate" else name for name in names)


def _columns(result: MethodComparison) -> list[str]:
    """The metrics; the one that the rows are sorted by comes first."""
    return sorted(columns(result), key=lambda metric: metric != result.sort)


def _heads(result: MethodComparison) -> list[list[str]]:
    names, units = ["method"], [""]
    for metric in _columns(result):
        short = metric.removeprefix("positive_")
        unit = "%" if metric in PERCENT else ""
        # A short name is above the numbers, not above the signs behind them.
        name = f"{short}  " if len(short) < 8 else short
        names.append(name if short == metric else "positive_")
        units.append(f"{unit}  " if short == metric else f"{short} {unit}")
        if metric == result.sort:
            names.append(f"{100 * result.level:g}% interval")
            units.append("")
        if metric == main_error(result):
            names.append("floor")
            units.append("%")
    return [[*names, "fit", ""], [*units, "s", ""]]


def _cells(result: MethodComparison, row: ComparedMethod, footnotes: _Footnotes) -> list[str]:
    if row.evaluation is None:
        reason = row.failure or ""
        state = "left out" if reason.startswith(LEFT_OUT) else "cannot be used here"
        return [row.name, state, footnotes.mark([reason])]
    cells = [row.name]
    for metric in _columns(result):
        measured = row[metric]
        cells.append(f"{_figure(metric, measured.value)} {SIGNS[row.verdict(metric)]}")
        if metric == result.sort:
            cells.append(_interval(measured))
        if metric == main_error(result):
            floor = row.noise_floor
            cells.append("" if floor is None else _figure(metric, floor.expected))
    doubts = [] if row.report is None else list(row.report.warnings)
    if row.evaluation.n_impossible:
        doubts.append(
            f"{row.evaluation.n_impossible} test samples get probability 0 for their true "
            "class, which makes the NLL infinite."
        )
    return [*cells, f"{row.fit_seconds or 0.0:.2f}", footnotes.mark(doubts)]


def _legend(result: MethodComparison) -> list[str]:
    signs = ""
    if any(row.differences is not None for row in result.rows):
        signs = (
            f"+ better, - worse than {result.against} on the same samples; no sign where "
            f"{100 * result.level:g}% intervals of the difference cannot tell."
        )
    elif len(result.rows) > 1:
        signs = f"No signs: {result.against} cannot be used here, so nothing is compared with it."
    calibrated = ", ".join(result.calibrated())
    of = "P(class 1)" if result.n_classes == 2 else "the confidence or single classes"
    after = f"No miscalibration of {of} after: {calibrated}."
    if not calibrated:
        after = f"Some miscalibration of {of} remains after every method."
    floor = (
        f"floor: the {main_error(result)} that a calibrated model would show with {result.n} "
        f"samples. {after}"
    )
    advice = "" if result.recommendation is None else str(result.recommendation)
    remarks = (signs, floor, *result.notes, *advice.splitlines())
    return [line for remark in remarks for line in _wrapped(remark)]


def _figure(metric: str, value: float) -> str:
    return f"{100 * value:.2f}" if metric in PERCENT else score_text(value)


def _interval(measured: Measured) -> str:
    if measured.low is None or measured.high is None:
        return "none"
    return f"[{_figure(measured.name, measured.low)}, {_figure(measured.name, measured.high)}]"


class _Footnotes:
    """Remarks below a table, each printed once and referred to by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, texts: Iterable[str]) -> str:
        """The numbers of these remarks, as in ``[1,2]``."""
        numbers = []
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
            numbers.append(str(self.texts.index(text) + 1))
        return f"[{','.join(numbers)}]" if numbers else ""

    def lines(self) -> Iterator[str]:
        """The remarks with their numbers, wrapped."""
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
