"""The pictures of the linear model: norms by iteration, and the confidence of mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, NullLocator

from calibrant.plots.palette import INK, look
from experiments.linear_model.clusters import Run

N_SHOWN = 120
"""Number of points in the pictures, to keep the files small."""

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Probabilities between which the bands of the pictures lie."""
EXTENT = 2.6


def draw_norms(runs: Mapping[str, Run]) -> Figure:
    """Fig. 5: norms of logits and weights by iteration."""
    figure = Figure(figsize=(7.6, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, (name, run) in enumerate(runs.items()):
        color, linestyle, _ = look(i)
        style: dict[str, Any] = {"color": color, "linestyle": linestyle, "label": name}
        logits = run.points @ run.weights.T
        left.plot(run.iterations, np.sqrt((logits**2).mean(axis=0)), **style)
        right.plot(run.iterations, np.linalg.norm(run.weights, axis=1), **style)
        last = int(run.iterations[-1])
    for ax, what in ((left, "logits, root mean square"), (right, "norm of the weights")):
        ax.set_title(what, fontsize="medium")
        ax.set(xlabel="iteration", xscale="log", xlim=(1, last), ylim=(0.0, None))
        ticks = [1, 10, 100, 1000, last]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(MultipleLocator(0.5))
    left.legend(frameon=False)
    return figure


def draw_mistakes(runs: Mapping[str, Run]) -> Figure:
    """Fig. 6: the confidence of mistakes, and where each model decides."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(runs))
    bins = np.linspace(0.5, 1.0, 11)
    for i, (name, run) in enumerate(runs.items()):
        color, linestyle, _ = look(i)
        mistakes = run.confidence[run.wrong]
        style: dict[str, Any] = {"color": color, "linestyle": linestyle, "label": name}
        first.hist(mistakes, bins=bins, histtype="step", linewidth=1.8, **style)
    first.set_title("mistakes on the test set", fontsize="medium")
    first.set(xlabel="confidence", ylabel="samples", xlim=(0.5, 1.0), box_aspect=1.0)
    figure.legend(frameon=False, loc="outside lower left", ncols=2)
    for ax, (name, run) in zip(others, runs.items(), strict=True):
        bands = _draw_decisions(ax, run)
        ax.set_title(name, fontsize="medium")
    others[0].set_ylabel("$x_2$")
    others[1].tick_params(labelleft=False)
    where: dict[str, Any] = {"ax": others, "spacing": "uniform", "shrink": 0.82}
    key = figure.colorbar(bands, label="probability of label 1", **where)
    key.set_ticks(list(key.get_ticks()), labels=[f"{level:g}" for level in LEVELS])
    handles, labels = others[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower right", ncols=2)
    return figure


def _draw_decisions(ax: Axes, run: Run) -> Any:
    """Draw a model's probabilities in the plane and the test samples; return the bands."""
    corners = np.array([-EXTENT, EXTENT])
    x, y = np.meshgrid(corners, corners)
    # Lines of equal logit are straight, so that four corners give them exactly.
    logits = run.weights[-1][0] * x + run.weights[-1][1] * y
    inner = np.log(LEVELS[1:-1]) - np.log1p(-np.array(LEVELS[1:-1]))
    levels = [-1e3, *inner, 1e3]
    shades = colormaps["RdBu"](np.linspace(0.3, 0.7, len(levels) - 1))
    bands = ax.contourf(x, y, logits, levels=levels, colors=shades)
    ax.contour(x, y, logits, levels=[0.0], colors=INK, linestyles="--", linewidths=1.0)
    for label, color, marker in ((0, "#7f1d1d", "o"), (1, INK, "^")):
        shown = run.points[:N_SHOWN][run.labels[:N_SHOWN] == label]
        style: dict[str, Any] = {"color": color, "markersize": 3.5, "markeredgewidth": 0.0}
        ax.plot(*shown.T, marker, label=f"label {label}", **style)
    ax.set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), xlabel="$x_1$", box_aspect=1.0)
    return bands
