"""The pictures: mean ranks, and the effect of the map by the size of the data set."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.plots.palette import GUIDE, INK, OVER, look
from experiments.many_data_sets.ranking import Ranking

Floats = npt.NDArray[np.float64]


def draw_ranks(rankings: Mapping[str, Ranking]) -> Figure:
    """Demsar's diagram of each setting; bars join methods that do not differ significantly."""
    n_methods = max(len(each.methods) for each in rankings.values())
    height = 0.95 + 0.2 * ((n_methods + 1) // 2)
    figure = Figure(figsize=(7.2, height * len(rankings)), layout="constrained")
    axes = figure.subplots(len(rankings), 1, squeeze=False)[:, 0]
    for ax, (title, each) in zip(axes, rankings.items(), strict=True):
        _draw_ranking(ax, each)
        ax.set_title(title, loc="left", fontsize=10)
    return figure


def _draw_ranking(ax: Axes, ranking: Ranking) -> None:
    k = len(ranking.methods)
    half = (k + 1) // 2
    ranks = ranking.average[ranking.order()]
    names = [ranking.methods[place] for place in ranking.order()]
    runs = ranking.alike()
    bars = 0.32 * len(runs)
    ax.plot([1, k], [0, 0], color="black", linewidth=1.0)
    for tick in range(1, k + 1):
        ax.plot([tick, tick], [0, 0.25], color="black", linewidth=1.0)
        ax.text(tick, 0.35, str(tick), ha="center", va="bottom", fontsize=8)
    for i, (rank, name) in enumerate(zip(ranks, names, strict=True)):
        left = i < half
        level = -(bars + 0.7 + 0.85 * (i if left else k - 1 - i))
        end = 0.6 if left else k + 0.4
        ax.plot([rank, rank, end], [0, level, level], color="0.5", linewidth=0.8)
        label = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        side = "right" if left else "left"
        at = end + (-0.08 if left else 0.08)
        ax.text(at, level, label, ha=side, va="center", fontsize=8)
    for i, (first, last) in enumerate(runs):
        level = -0.3 - 0.32 * i
        ends = [ranks[first] - 0.05, ranks[last] + 0.05]
        ax.plot(ends, [level, level], color=INK, linewidth=3.0, solid_capstyle="butt")
    width = ranking.critical_difference
    ax.plot([1, 1 + width], [1.75, 1.75], color=OVER, linewidth=2.0)
    said = f"critical difference {width:.2f}"
    ax.text(1 + width + 0.1, 1.75, said, va="center", fontsize=8, color=OVER)
    ax.set(xlim=(-1.1, k + 2.1), ylim=(-(bars + 0.7 + 0.85 * half), 2.2))
    ax.axis("off")


def draw_changes(rows: Floats, changes: Mapping[str, Floats], *, gamma: float) -> Figure:
    """Effect of the map on the calibration error of each data set, over its training rows."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    axes = figure.subplots(1, len(changes), sharex=True, sharey=True, squeeze=False)[0]
    for i, (ax, (title, of)) in enumerate(zip(axes, changes.items(), strict=True)):
        ax.axhline(0.0, **GUIDE)
        ax.plot(rows, of, look(i).marker, color=look(i).color, markersize=4, alpha=0.8)
        ax.set(xscale="log", xlabel="training rows")
        ax.set_title(f"{title}: better on {np.count_nonzero(of < 0)} of {len(of)}", fontsize=9)
    axes[0].set_ylabel(rf"ECE, $\gamma$ = {gamma:g}: with map - without, %")
    return figure
