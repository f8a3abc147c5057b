"""Fig. 3: the data, and the outputs of each network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.plots.palette import look
from experiments.synthetic_posterior.data import Floats, Normals

WORDS = {"raw": "", "temperature": ", temperature", "map": ", map"}
WAYS = tuple(WORDS)


class Panel(NamedTuple):
    """The outputs of one network over the inputs, and their errors."""

    gamma: float
    way: str
    probs: Floats
    error: float
    kl: float
    ece: float

    @property
    def title(self) -> str:
        """Title: the loss and the calibration."""
        loss = rf"focal loss, $\gamma$ = {self.gamma:g}" if self.gamma else "cross-entropy"
        return loss + WORDS[self.way]


def draw(data: Normals, x: Floats, panels: Sequence[Panel]) -> Figure:
    """Densities, posterior, and a panel for each network and calibration."""
    figure = Figure(figsize=(9.6, 8.4), layout="constrained")
    axes = figure.subplots(3, 3, sharex=True).flatten()
    truth = data.posterior(x)
    joint = data.joint(x)
    axes[0].fill_between(x, joint.sum(axis=1), color="0.9", linewidth=0.0)
    axes[0].set_title("$p(x)$ and $p(x, y)$", fontsize="medium")
    _draw_classes(axes[0], x, joint)
    axes[1].set_title("$p(y | x)$", fontsize="medium")
    _draw_classes(axes[1], x, truth)
    ordered = sorted(panels, key=lambda panel: (WAYS.index(panel.way), panel.gamma))
    for ax, panel in zip(axes[2:], ordered, strict=True):
        _draw_classes(ax, x, truth, linewidth=1.0, linestyle="--", alpha=0.6)
        _draw_classes(ax, x, panel.probs)
        numbers = f"ERR {panel.error:.1f}%   KLD {panel.kl:.3f}   ECE {panel.ece:.1f}%"
        ax.text(0.5, 1.04, numbers, ha="center", va="center", fontsize="small")
        ax.set_title(panel.title, fontsize="medium")
    for ax in axes[1:]:
        ax.set_ylim(0.0, 1.12)
    for ax in axes[6:]:
        ax.set_xlabel("$x$")
    axes[0].set(xlim=(x[0], x[-1]), ylim=(0.0, None))
    return figure


def _draw_classes(ax: Axes, x: Floats, curves: Floats, **style: Any) -> None:
    for k, curve in enumerate(curves.T):
        ax.plot(x, curve, **{"color": look(k).color, "linewidth": 1.8, **style})
