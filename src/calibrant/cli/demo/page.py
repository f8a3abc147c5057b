"""The page that compares the losses of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant import __version__
from calibrant.calibrators.comparison import ComparedMethod
from calibrant.report import Summary
from calibrant.report.render import METRICS, four_round_steps, render_template

TITLE = "calibrant demo"
SHOWN = {"identity": "as trained", "temperature": "temperature", "auto": "auto"}
"""Methods to compare, and their names on the page."""
COLUMNS = ("confidence", "accuracy", *(f"error {name}" for name in SHOWN.values()))
"""What is measured of each network."""
COUNTS = {2: "Two", 3: "Three", 4: "Four"}


@dataclass(frozen=True)
class Trained:
    """One network of the demo."""

    title: str
    report: str
    """File name of its report, in the same folder."""
    summary: Summary

    @property
    def mean_confidence(self) -> float:
        """As trained, on the test part."""
        return self.summary.curve("identity").overall_confidence

    @property
    def accuracy(self) -> float:
        """As trained, on the test part."""
        return self.summary.curve("identity").overall_accuracy

    def error(self, method: str) -> float:
        """The calibration error after ``method``, on the test part."""
        return self.summary.error(method).value

    @property
    def floor(self) -> float:
        """The error that a calibrated model with the confidences after ``auto`` would show."""
        return self.summary.floor("auto").expected

    @property
    def methods(self) -> dict[str, ComparedMethod]:
        """The methods by name."""
        return {row.name: row for row in self.summary.comparison.rows}


def index_page(
    trained: Sequence[Trained],
    seeds: Sequence[tuple[str, Sequence[str]]],
    n_seeds: int,
    binary: Summary,
    binary_page: str,
    notes: Sequence[str],
    next_lines: Sequence[str],
) -> str:
    """The whole page, which loads nothing; ``seeds`` are the means over seeds of each loss."""
    comparison = trained[0].summary.comparison
    drawn = [value for each in trained for value in (*map(each.error, SHOWN), each.floor)]
    return render_template(
        "demo.html",
        title=TITLE,
        version=__version__,
        count=COUNTS.get(len(trained), str(len(trained))),
        trained=trained,
        seeds=seeds,
        seed_heads=("loss", *COLUMNS),
        n_seeds=n_seeds,
        binary=binary,
        binary_page=binary_page,
        shown=SHOWN,
        end=four_round_steps(max(drawn)),
        names=list(dict.fromkeys(name for each in trained for name in each.methods)),
        sorted_by=METRICS[comparison.sort],
        against="the network as trained",
        level=f"{100 * comparison.level:g}%",
        n_bins=comparison.n_bins,
        notes=notes,
        next_lines=next_lines,
    )
