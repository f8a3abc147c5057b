"""The temperature closest to the focal map for each gamma, the gamma closest to each temperature.

A straight line goes through 1/T against gamma in both cases. The two are not the same line: equal
steps of T put most points at small gammas, equal steps of gamma do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.focal import closest_temperature
from calibrant.plots.palette import GUIDE, look
from experiments.closest_temperature.distance import (
    Floats,
    best_gamma,
    best_temperature,
    focal,
    scaled,
    two_level_rows,
)
from experiments.results import Result
from experiments.tables import Table

FIGURE_2 = {0.5: 0.76, 3.0: 0.36}
"""The gammas whose maps Fig. 2 shows on the right, and the closest T by its caption."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Fit 1/T = slope * gamma + offset for each number of classes, in both ways."""
    gammas = hundredths(parameters["gammas"])
    values: dict[str, float] = {}
    by_temperature, by_gamma, points, differences = [], [], {}, {}
    for key, gap in parameters["largest_gap"].items():
        n_classes = int(key)
        rows = two_level_rows(n_classes, largest_gap=gap, step=parameters["logit_step"])

        # A point for each temperature: this is how the paper's digits come out.
        temperatures = hundredths(parameters["temperatures"][key])
        highest = float(gammas[-1])
        found = np.array([best_gamma(rows, t, highest=highest) for t in temperatures])
        slope, offset = np.polyfit(found, 1.0 / temperatures, deg=1)
        values[f"slope, {key} classes"] = slope
        values[f"offset, {key} classes"] = offset
        by_temperature.append([key, f"{slope:.4f}", f"{offset:.4f}"])

        # A point for each gamma: what the words of Sec. 3.3 say.
        closest = np.array([best_temperature(rows, gamma) for gamma in gammas])
        inverse, difference = 1.0 / closest[:, 0], closest[:, 1]
        slope_of_gammas, offset_of_gammas = np.polyfit(gammas, inverse, deg=1)
        values[f"slope, {key} classes, a point for each gamma"] = slope_of_gammas
        values[f"offset, {key} classes, a point for each gamma"] = offset_of_gammas
        by_gamma.append([key, f"{slope_of_gammas:.4f}", f"{offset_of_gammas:.4f}"])
        points[n_classes] = (found, 1.0 / temperatures, slope, offset, inverse)
        differences[n_classes] = difference

    values["largest difference, 2 classes, all gammas"] = differences[2].max()
    nine = int(np.flatnonzero(gammas == 9.0)[0])
    for n_classes in (3, 4):
        name = f"largest difference in percent, {n_classes} classes, gamma 9"
        values[name] = 100.0 * differences[n_classes][nine]
    two = two_level_rows(2, largest_gap=20.0, step=parameters["logit_step"])
    for gamma, caption in FIGURE_2.items():
        values[f"closest T, 2 classes, gamma {gamma:g}"] = closest_temperature(
            gamma=gamma, n_classes=2
        )
        name = f"largest difference at T = {caption:g}, 2 classes, gamma {gamma:g}"
        values[name] = float(np.abs(focal(two, gamma) - scaled(two, caption)).max())
    three = two_level_rows(3, largest_gap=10.0, step=parameters["logit_step"])
    for gamma in (1.0, 2.0, 3.0):
        values[f"closest T, 3 classes, gamma {gamma:g}"] = best_temperature(three, gamma)[0]
    rising = [np.diff(np.r_[1.0, inverse]) > 0.0 for *_, inverse in points.values()]
    values["gammas at which T is not below 1, or not below that of the gamma before"] = sum(
        int(np.count_nonzero(~each)) for each in rising
    )
    head = ["classes", "slope", "offset"]
    tables = {
        "fits": Table("1/T = slope * gamma + offset, a point for each T", head, by_temperature),
        "fits-by-gamma": Table("The same, a point for each gamma", head, by_gamma),
    }
    pictures = {
        "fits": draw_fits(points, gammas),
        "two-classes": draw_two_classes(),
        "differences": draw_differences(differences, gammas),
    }
    notes = [
        "The temperatures of the first fits were chosen, of several ranges, because the lines "
        "print as in the paper for 2 and 3 classes: temperature-grids has all that were tried.",
    ]
    return Result(values, tables, pictures, notes)


def hundredths(grid: Mapping[str, int]) -> Floats:
    """A grid in steps of hundredths, without accumulated rounding."""
    return np.arange(grid["first"], grid["last"] + 1, grid["step"]) / 100.0


def draw_fits(points: Mapping[int, Any], gammas: Floats) -> Figure:
    """Figs 2 and 6, left: 1/T against gamma."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    ax = figure.subplots()
    ends = np.array([0.0, gammas[-1]])
    for i, (n_classes, (found, inverse_t, slope, offset, inverse)) in enumerate(points.items()):
        style = look(i)
        ax.plot(ends, slope * ends + offset, color=style.color, linewidth=1.0)
        ax.plot(found, inverse_t, style.marker, markersize=3.5, color=style.color)
        ax.plot(gammas, inverse, ":", color=style.color, linewidth=1.5)
        label = rf"{n_classes} classes: {slope:.2f} $\gamma$ + {offset:.2f}"
        ax.plot([], [], color=style.color, marker=style.marker, markersize=3.5, label=label)
    ax.plot([], [], ":", color="0.3", label=r"closest T for each $\gamma$")
    ax.set(xlabel=r"$\gamma$", ylabel=r"$1/T$", xlim=(0.0, ends[1]), ylim=(0.0, None))
    ax.legend(frameon=False, title=r"points: closest $\gamma$ for each T")
    return figure


def draw_two_classes() -> Figure:
    """Fig. 2, right: the map and the closest temperature over the logit."""
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    ax = figure.subplots()
    logits = np.linspace(-5.0, 5.0, 401)
    rows = np.stack([np.minimum(logits, 0.0), np.minimum(-logits, 0.0)], axis=-1)
    for i, gamma in enumerate(FIGURE_2):
        closest = closest_temperature(gamma=gamma, n_classes=2)
        color = look(i).color
        ax.plot(logits, focal(rows, gamma)[:, 0], color=color, label=rf"map, $\gamma$ = {gamma:g}")
        every = slice(None, None, 20)
        marks = scaled(rows[every], closest)[:, 0]
        label = f"temperature {closest:.3f}"
        ax.plot(logits[every], marks, look(i).marker, color=color, markersize=4, label=label)
    ax.plot(logits, scaled(rows, 1.0)[:, 0], **GUIDE, label="neither")
    ax.set(xlabel="logit", ylabel="probability", xlim=(-5.0, 5.0), ylim=(0.0, 1.0))
    ax.legend(frameon=False)
    return figure


def draw_differences(differences: Mapping[int, Floats], gammas: Floats) -> Figure:
    """Fig. 6, right: the largest difference between the two over gamma."""
    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    ax: Axes = figure.subplots()
    for i, (n_classes, difference) in enumerate(differences.items()):
        style = look(i)
        label = f"{n_classes} classes"
        ax.plot(gammas, difference, style.linestyle, color=style.color, label=label)
    ax.set(xlabel=r"$\gamma$", ylabel="largest difference of a probability")
    ax.set(xlim=(0.0, gammas[-1]), ylim=(0.0, None))
    ax.legend(frameon=False)
    return figure
