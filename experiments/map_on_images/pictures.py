"""The pictures of the map on images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.focal import focal_log_probs
from calibrant.metrics.reliability import reliability_curve
from calibrant.plots.palette import GUIDE, look

if TYPE_CHECKING:
    from experiments.map_on_images.run import Floats, Measured

RAW, MAPPED = look(0).color, look(1).color


def draw_errors(groups: Sequence[list[Measured]]) -> Figure:
    """Figs 5 and 6: the errors of each seed over gamma, with and without the map."""
    figure = Figure(figsize=(2.4 * len(groups) + 0.6, 2.9), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for ax, group in zip(axes, groups, strict=True):
        for shift, name, color in ((-0.12, "raw", RAW), (0.12, "mapped", MAPPED)):
            x = [one.gamma + shift for one in group]
            y = [100 * getattr(one, name) for one in group]
            label = "as trained" if name == "raw" else "with the map"
            ax.plot(x, y, "o", markersize=4, color=color, alpha=0.8, label=label)
        panel = group[0].panel
        ax.set_title(f"{panel.model}, {panel.images} images", fontsize=9)
        ax.set_xlabel(r"$\gamma$")
        ax.set_xticks(sorted({one.gamma for one in group}))
    axes[0].set_ylabel("ECE %")
    axes[0].set_ylim(bottom=0.0)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{groups[0][0].panel.data}, {groups[0][0].paradigm}", fontsize=10)
    return figure


def draw_reliability(groups: Sequence[list[Measured]], *, n_bins: int) -> Figure:
    """Fig. 4: reliability with and without the map, the first seed, with the most images."""
    chosen = with_most_images(groups)
    gammas = sorted({one.gamma for group in chosen for one in group if one.gamma > 0})
    figure = Figure(figsize=(2.3 * len(gammas), 2.4 * len(chosen)), layout="constrained")
    axes = figure.subplots(len(chosen), len(gammas), sharex=True, sharey=True, squeeze=False)
    for row, group in zip(axes, chosen, strict=True):
        for ax, gamma in zip(row, gammas, strict=True):
            one = next(each for each in group if each.gamma == gamma)
            _draw_curve(ax, one.logits, one, RAW, "as trained", n_bins)
            after = np.asarray(focal_log_probs(one.logits, gamma=float(gamma)))
            _draw_curve(ax, after, one, MAPPED, "with the map", n_bins)
            ax.plot([0, 1], [0, 1], **GUIDE)
            title = f"{one.panel.title}\n{one.paradigm}, $\\gamma$ = {gamma}"
            ax.set_title(title, fontsize=7)
            ax.set(aspect="equal", xlim=(0, 1), ylim=(0, 1))
    axes[0][0].legend(frameon=False, fontsize=7)
    figure.supxlabel("confidence", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    return figure


def with_most_images(groups: Sequence[list[Measured]]) -> list[list[Measured]]:
    """Of each data set and paradigm the group that was trained on the most images."""
    chosen: dict[tuple[str, str], list[Measured]] = {}
    for group in groups:
        panel = group[0].panel
        key = panel.data, group[0].paradigm
        if key not in chosen or panel.images > chosen[key][0].panel.images:
            chosen[key] = group
    return list(chosen.values())


def _draw_curve(
    ax: Axes, logits: Floats, one: Measured, color: str, label: str, n_bins: int
) -> None:
    curve = reliability_curve(logits=logits, labels=one.labels, n_bins=n_bins)
    ax.plot(curve.confidence, curve.accuracy, "o-", markersize=3, color=color, label=label)
