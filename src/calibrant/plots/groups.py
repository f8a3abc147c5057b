"""Plot of an evaluation by group."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.metrics.groups import GAPS, GroupedEvaluation
from calibrant.plots.axes import given_or_current
from calibrant.plots.palette import GUIDE, INK, OVER, QUIET, UNDER

ROW_HEIGHT = 0.24
"""Inches for each group."""
TITLES = {
    "prevalence_gap": "mean P(class 1) minus its rate",
    "confidence_gap": "mean confidence minus accuracy",
}


def draw_groups(result: GroupedEvaluation, *, label: str | None = None) -> Figure:
    """Figure of the gap of every group, as high as they need."""
    height = 1.4 + ROW_HEIGHT * len(result.groups)
    figure = Figure(figsize=(6.4, height), layout="constrained")
    ax = plot_groups(result, figure.subplots())
    if label is not None:
        ax.set_title(label, fontsize="medium", parse_math=False)
    return figure


def plot_groups(result: GroupedEvaluation, ax: Axes | None = None) -> Axes:
    """Plot the gap of every group with its interval.

    Groups that are significantly off, given their number, are red (probabilities too high) or blue
    (too low); the others are grey if only chance may have moved them from 0.
    """
    ax = given_or_current(ax)
    ax.axvline(0.0, **GUIDE)
    name = None
    for place, group in enumerate(result.groups):
        gap = group.first(GAPS)
        if gap is None:
            continue
        name = gap.name
        color = (OVER if gap.value > 0.0 else UNDER) if group.off else QUIET
        if gap.low is not None and gap.high is not None:
            ax.plot([100 * gap.low, 100 * gap.high], [place, place], color=color, zorder=2)
        marker = "o" if group.off else "."
        ax.plot(100 * gap.value, place, marker, color=color if group.off else INK, zorder=3)
    ax.set_yticks(range(len(result.groups)), labels=result.names, fontsize="small")
    ax.set_ylim(len(result.groups) - 0.5, -0.5)
    if name is not None:
        ax.set_xlabel(f"{TITLES[name]}, in points ({100 * result.level:g}% intervals)")
    return ax
