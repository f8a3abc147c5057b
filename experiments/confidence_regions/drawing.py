"""Fig. 1: phi and its regions. Fig. 2: the output of an optimum against the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.focal import confidence_thresholds, focal_map, phi
from calibrant.plots.palette import GUIDE, OVER, UNDER, look
from experiments.confidence_regions.outputs import one_above

DASHES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))

Floats = npt.NDArray[np.float64]


def posterior_of(top: Floats, gamma: float, n_classes: int) -> Floats:
    """The true probability behind the largest output, the other classes being equal."""
    return np.asarray(focal_map(one_above(top, n_classes), gamma=gamma))[:, 0]


def draw_factor(gammas: Sequence[float], marked: float) -> Figure:
    """Phi over the largest output, with the regions of one gamma."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    v = np.linspace(0.0, 1.0, 401)
    oc, uc = confidence_thresholds(gamma=marked)
    for low, high, color in ((0.0, oc, OVER), (oc, uc, "0.6"), (uc, 1.0, UNDER)):
        ax.axvspan(low, high, color=color, alpha=0.15, linewidth=0.0)
    words: dict[str, Any] = {"va": "bottom", "fontsize": "small", "color": "0.25"}
    ax.text(oc / 2, 0.03, "over-confident", rotation=90, ha="center", **words)
    ax.text((oc + uc) / 2, 0.03, "either", ha="center", **words)
    ax.text(uc + 0.01, 0.03, "under-confident", ha="left", **words)
    ax.set_title(rf"the regions of $\gamma$ = {marked:g}", fontsize="medium")
    ax.axhline(1.0, **GUIDE)
    for i, gamma in enumerate(gammas):
        ax.plot(v, phi(v, gamma=gamma), **_style(i, gamma))
    ax.set(xlabel="largest output", ylabel=r"$\varphi$", xlim=(0.0, 1.0), ylim=(0.0, 1.6))
    ax.legend(frameon=False, loc="upper right")
    return figure


def draw_relation(gammas: Sequence[float], many: int) -> Figure:
    """The largest output over the true probability: two classes, many, and many from near."""
    figure = Figure(figsize=(10.4, 3.7), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_relation(left, gammas, 2, (0.5, 1.0))
    _draw_relation(middle, gammas, many, (0.0, 1.0))
    _draw_relation(right, gammas, many, (0.0, 0.4))
    left.set(title="2 classes", ylabel="largest output of the optimum")
    middle.set_title(f"{many} classes")
    right.set_title("the same from near")
    left.legend(frameon=False)
    words: dict[str, Any] = {"fontsize": "small", "color": "0.25", "ha": "center"}
    right.text(0.12, 0.25, "over-confident", **words)
    right.text(0.31, 0.12, "under-confident", **words)
    return figure


def _draw_relation(ax: Axes, gammas: Sequence[float], k: int, limits: tuple[float, float]) -> None:
    # By the output: the curves are steep at both ends.
    top = np.linspace(max(1.0 / k, limits[0]), limits[1], 401)[:-1]
    ax.plot(limits, limits, **GUIDE)
    for i, gamma in enumerate(gammas):
        ax.plot(posterior_of(top, gamma, k), top, **_style(i, gamma))
    ax.set(xlabel="true probability of that class", xlim=limits, ylim=limits, box_aspect=1.0)
    ax.title.set_fontsize("medium")


def _style(i: int, gamma: float) -> dict[str, Any]:
    """Style of curve ``i``; dots of the usual width would be faint."""
    label = rf"$\gamma$ = {gamma:g}"
    return {"color": look(i).color, "linestyle": DASHES[i], "linewidth": 1.8, "label": label}
