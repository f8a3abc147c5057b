"""Plots of the curves of ``metrics.reliability``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from calibrant._tables import count_text
from calibrant.metrics.binning import Floats
from calibrant.metrics.reliability import (
    ConfidenceHistogram,
    ReliabilityCurve,
    RiskCoverageCurve,
)
from calibrant.plots.axes import given_or_current
from calibrant.plots.palette import GUIDE, INK, OVER, QUIET, UNDER, look

TICKS = np.arange(6) / 5
MARGIN = 0.02
"""Margin around 0 and 1, so that points there are not cut off."""
STRIP = (-0.19, -0.03)
"""Bottom and top of the strip of counts, in units of accuracy."""
NARROW = 0.012
"""Smallest width of a bar: equal-mass bins may be as narrow as a single value."""
FEW = 20
"""Largest number of bins whose counts are written out."""
MANY = 30
"""Number of bins above which markers are smaller."""
NOISY = 0.02
"""Coverage below which few samples decide the risk; the axis is not scaled to it."""
LEGEND: dict[str, Any] = {"fontsize": "small", "framealpha": 0.85, "edgecolor": "none"}


def draw_reliability(
    curve: ReliabilityCurve, histogram: ConfidenceHistogram, *, label: str | None = None
) -> Figure:
    """Figure of a reliability diagram above the histogram of correct and wrong predictions."""
    figure = Figure(figsize=(5.6, 7.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1.0))
    plot_reliability(curve, above, label=label, counts=False)
    above.set_xlabel("")
    plot_confidence_histogram(histogram, below)
    return figure


def plot_reliability(
    curve: ReliabilityCurve,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    counts: bool = True,
) -> Axes:
    """Plot the accuracy of each bin with its interval, and its gap to the confidence.

    Red striped gaps are over-confident, or the probability of the class is too high; blue ones are
    under-confident, or it is too low. With ``counts``, a strip below the diagram shows the number
    of samples in each bin, on a logarithmic scale.
    """
    ax = given_or_current(ax)
    full = curve.full
    x, accuracy, gap = curve.confidence[full], curve.accuracy[full], curve.gap[full]
    lower, width = _bars(curve, NARROW)
    _diagonal(ax)
    names = ("over-confident", "under-confident")
    if curve.class_index is not None:
        names = ("probability too high", "probability too low")
    for sign, color, hatch, name in ((1, OVER, "////", names[0]), (-1, UNDER, "", names[1])):
        side = gap * sign > 0
        if side.any():
            ax.bar(
                lower[side],
                gap[side],
                width[side],
                accuracy[side],
                align="edge",
                facecolor=(color, 0.3),
                edgecolor=(color, 0.9),
                hatch=hatch,
                linewidth=0.6,
                zorder=2,
                label=name,
            )
    small = len(x) > MANY
    ax.errorbar(
        x,
        accuracy,
        yerr=_reach(curve),
        fmt="o",
        color=INK,
        markersize=2.5 if small else 4.5,
        elinewidth=0.6 if small else 1.2,
        capsize=0 if small else 2,
        zorder=4,
        label=f"{_seen(curve).split()[0]}, {100 * curve.level:g}% interval",
    )
    _name_axes(ax, curve)
    if counts:
        _strip(ax, curve)
    facts = (
        f"{_error(curve)}, {_seen(curve)} {curve.overall_accuracy:.3f}, n = {count_text(curve.n)}"
    )
    title = facts if label is None else f"{label}\n{facts}"
    ax.set_title(title, fontsize="medium", parse_math=False)
    ax.legend(**_free_corner([curve]), bbox_transform=ax.transData, **LEGEND)
    return ax


def plot_reliability_overlay(
    curves: Mapping[str, ReliabilityCurve], ax: Axes | None = None
) -> Axes:
    """Plot several curves in one diagram, such as before and after calibration."""
    ax = given_or_current(ax)
    _diagonal(ax)
    drawn: list[Any] = []
    for i, (name, curve) in enumerate(curves.items()):
        color, linestyle, marker = look(i)
        bars = ax.errorbar(
            curve.confidence[curve.full],
            curve.accuracy[curve.full],
            yerr=_reach(curve),
            color=color,
            linestyle=linestyle,
            marker=marker,
            markersize=4.5,
            linewidth=1.4,
            elinewidth=0.8,
            capsize=2,
            zorder=3,
            label=f"{name}, {_error(curve)}",
        )
        drawn.append(bars)
        _name_axes(ax, curve)
    _names(ax, drawn, bbox_transform=ax.transData, **_free_corner(list(curves.values())))
    return ax


def plot_confidence_histogram(histogram: ConfidenceHistogram, ax: Axes | None = None) -> Axes:
    """Plot correct and wrong predictions in bins of confidence, on a logarithmic scale.

    For a histogram of one class's probability, samples of that class and of others.
    """
    ax = given_or_current(ax)
    counts = np.concatenate([histogram.correct, histogram.wrong])
    counts = counts[counts > 0]
    floor = 0.5 * 10.0 ** math.floor(math.log10(counts.min()))
    top = float(counts.max())
    correct: dict[str, Any] = {"facecolor": (UNDER, 0.4), "edgecolor": UNDER}
    wrong: dict[str, Any] = {"facecolor": (OVER, 0.1), "edgecolor": OVER, "hatch": "////"}
    for name, values, style in zip(
        histogram.names, (histogram.correct, histogram.wrong), (correct, wrong), strict=True
    ):
        ax.stairs(
            values,
            histogram.edges,
            baseline=floor,
            fill=True,
            linewidth=1.0,
            label=f"{count_text(float(values.sum()))} {name}",
            **style,
        )
    ax.set_yscale("log", nonpositive="clip")
    ax.set(
        xlim=(-MARGIN, 1 + MARGIN),
        ylim=(floor, top * (top / floor) ** 0.3),  # room for the legend
        xticks=TICKS,
        xlabel=_claimed(histogram.class_index),
        ylabel="predictions (log scale)",
    )
    ax.yaxis.set_major_locator(LogLocator(numticks=6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda count, _: count_text(count)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(loc="upper left", ncols=2, **LEGEND)
    return ax


def plot_risk_coverage(curves: Mapping[str, RiskCoverageCurve], ax: Axes | None = None) -> Axes:
    """Plot the error rate among the most confident samples over the share of samples kept.

    The axis is scaled to coverages above 2%; below, a single error makes a spike.
    """
    ax = given_or_current(ax)
    highest = beside_legend = 0.0
    drawn: list[Any] = []
    for i, (name, curve) in enumerate(curves.items()):
        color, linestyle, marker = look(i)
        drawn += ax.plot(
            curve.coverage,
            curve.risk,
            color=color,
            linestyle=linestyle,
            marker=marker,
            markevery=[len(curve.risk) - 1],
            markersize=5,
            label=f"{name}, AURC {curve.aurc:.4f}",
        )
        seen = curve.risk[curve.coverage >= NOISY]
        highest = max(highest, float(seen.max()))
        beside_legend = max(beside_legend, float(seen[: 1 + 6 * len(seen) // 10].max()))
    highest = highest or 1.0
    room = 1.1 if beside_legend < 0.7 * highest else 1.15 + 0.1 * len(curves)
    ax.set(
        xlim=(0, 1 + MARGIN),
        ylim=(-MARGIN * highest, room * highest),
        xticks=TICKS,
        xlabel="coverage (most confident first)",
        ylabel="risk (error rate)",
    )
    _names(ax, drawn, loc="upper left")
    return ax


def _diagonal(ax: Axes) -> None:
    ax.plot([0, 1], [0, 1], **GUIDE)


def _bars(curve: ReliabilityCurve, narrowest: float) -> tuple[Floats, Floats]:
    """Lower ends and widths of the bars of the bins that are not empty."""
    lower, width = curve.lower[curve.full], (curve.upper - curve.lower)[curve.full]
    missing = np.maximum(narrowest - width, 0.0)
    return lower - missing / 2.0, width + missing


def _reach(curve: ReliabilityCurve) -> Floats:
    """Lengths of the intervals below and above the accuracies."""
    ends = np.stack([curve.accuracy - curve.accuracy_low, curve.accuracy_high - curve.accuracy])
    return ends[:, curve.full]


def _error(curve: ReliabilityCurve) -> str:
    return f"{'AdaECE' if curve.binning == 'mass' else 'ECE'} {curve.ece:.4f}"


def _seen(curve: ReliabilityCurve) -> str:
    return "accuracy" if curve.class_index is None else f"share of class {curve.class_index}"


def _claimed(class_index: int | None) -> str:
    return "confidence" if class_index is None else f"probability of class {class_index}"


def _name_axes(ax: Axes, curve: ReliabilityCurve) -> None:
    """Name both axes and limit them to [0, 1]."""
    ax.set(
        xlim=(-MARGIN, 1 + MARGIN),
        ylim=(-MARGIN, 1 + MARGIN),
        xticks=TICKS,
        yticks=TICKS,
        xlabel=_claimed(curve.class_index),
        ylabel=_seen(curve),
    )


def _free_corner(curves: Sequence[ReliabilityCurve]) -> dict[str, Any]:
    """Position of the legend, in data units: the emptier corner, clear of the counts."""
    upper = lower = 0
    for curve in curves:
        top = np.maximum(curve.accuracy_high, curve.confidence)
        bottom = np.minimum(curve.accuracy_low, curve.confidence)
        upper += int(((curve.confidence < 0.6) & (top > 0.7)).sum())
        lower += int(((curve.confidence > 0.4) & (bottom < 0.3)).sum())
    return {
        "loc": "upper left" if upper <= lower else "lower right",
        "bbox_to_anchor": (-MARGIN, 0.0, 1 + 2 * MARGIN, 1 + MARGIN),
    }


def _names(ax: Axes, drawn: Sequence[Any], **options: Any) -> None:
    """Draw a legend of names that users chose: any text, shown literally."""
    if drawn:
        names = [artist.get_label() for artist in drawn]
        for text in ax.legend(drawn, names, **options, **LEGEND).get_texts():
            text.set_parse_math(False)


def _strip(ax: Axes, curve: ReliabilityCurve) -> None:
    """Draw the counts below accuracy 0; ten times the count is one step higher."""
    bottom, top = STRIP
    count = curve.count[curve.full]
    height = 1.0 + np.log10(count / count.min())
    lower, width = _bars(curve, NARROW / 2)
    ax.bar(
        lower,
        (top - bottom) * height / height.max(),
        width,
        bottom,
        align="edge",
        color=QUIET,
        edgecolor="white",
        linewidth=0.0 if len(count) > MANY else 0.5,
        zorder=1,
    )
    small: dict[str, Any] = {"fontsize": "x-small", "ha": "center", "va": "center", "zorder": 5}
    middle = (bottom + top) / 2.0
    if curve.binning == "mass":
        least, most = count_text(count.min()), count_text(count.max())
        each = least if least == most else f"{least} or {most}"
        ax.text(0.5, middle, f"{each} in each bin", **small)
    elif len(curve.count) <= FEW:
        turned = 90 if len(curve.count) > FEW // 4 else 0
        for x, number in zip(lower + width / 2.0, count, strict=True):
            ax.text(x, middle, count_text(number), rotation=turned, **small)
    ax.axhline(-MARGIN / 2, color="0.3", linewidth=0.8, zorder=3)
    ax.set_ylim(bottom, 1 + MARGIN)
    ax.set_yticks([middle, *TICKS], ["count", *(f"{tick:.1f}" for tick in TICKS)])
