"""Fits of 1/T on gamma over many grids that the paper may have used, beside its printed line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from calibrant.plots.palette import look
from experiments.closest_temperature.distance import (
    Floats,
    best_gamma,
    best_temperature,
    two_level_rows,
)
from experiments.results import Result
from experiments.tables import Table
from experiments.top_probability.rows import rising_rows

HIGHEST_GAMMA = 20.0
AS_IN_THE_TEXT = "T to three digits"
"""The paper searched, for each gamma below 10, temperatures in steps of a thousandth."""


@dataclass(frozen=True)
class Fit:
    """One line, and the points it goes through."""

    n_classes: int
    over: str
    points: str
    slope: float
    offset: float

    @property
    def is_fine(self) -> bool:
        """Whether it is over logits rather than coarse probabilities."""
        return "gaps" in self.over

    @property
    def name(self) -> str:
        """The points, and their grid if that is not the fine one of logits."""
        return self.points if self.is_fine else f"{self.points}, {self.over}"

    @property
    def printed(self) -> list[str]:
        """Slope and offset with two digits, as in the paper."""
        return [f"{self.slope:.2f}", f"{self.offset:.2f}"]


def run(parameters: Mapping[str, Any]) -> Result:
    """Fit the line in every way, and count how often it prints as in the paper."""
    paper: Mapping[str, list[str]] = parameters["paper"]
    values: dict[str, float] = {}
    tables, notes, every = {}, [], {}
    for key in paper:
        fits = [*for_each_gamma(int(key), parameters), *for_each_temperature(int(key), parameters)]
        if key == "4":
            coarse, differences = over_probabilities(parameters)
            fits += coarse
            for parts, difference in differences.items():
                name = f"largest difference in percent, 4 classes, gamma 9, steps of 1/{parts}"
                values[name] = 100.0 * difference
        every[key] = fits
        same = [fit.printed == paper[key] for fit in fits]
        # The rest is in the table.
        for fit, yes in zip(fits, same, strict=True):
            if yes or fit.points.endswith(AS_IN_THE_TEXT):
                values[f"slope, {key} classes, {fit.name}"] = fit.slope
                values[f"offset, {key} classes, {fit.name}"] = fit.offset
        fine = [yes for fit, yes in zip(fits, same, strict=True) if fit.is_fine]
        values[f"fits tried, {key} classes"] = len(fits)
        values[f"fits that print the paper's line, {key} classes"] = sum(same)
        values[f"of these over a fine grid of logits, {key} classes"] = sum(fine)
        notes.append(f"{key} classes: {sum(same)} of {len(fits)} fits print as in the paper.")
        line = " gamma + ".join(paper[key])
        title = f"{key} classes; the paper prints {line}"
        head = ["over", "a point for each", "slope", "offset", "prints as the paper"]
        rows = [
            [fit.over, fit.points, f"{fit.slope:.4f}", f"{fit.offset:.4f}", "yes" if yes else ""]
            for fit, yes in zip(fits, same, strict=True)
        ]
        tables[f"classes-{key}"] = Table(title, head, rows)
    notes.append("So many were tried because the paper does not say all of its grids.")
    return Result(values, tables, {"temperature-grids": draw(every, paper)}, notes)


def for_each_gamma(n_classes: int, parameters: Mapping[str, Any]) -> Iterator[Fit]:
    """The closest temperature for each gamma of several ranges and steps."""
    step = parameters["logit_steps"]["gamma"]
    gap = parameters["largest_gap"][str(n_classes)]
    rows = two_level_rows(n_classes, largest_gap=gap, step=step)
    finest, last = parameters["finest_gamma_step"], max(parameters["gamma_lasts"])
    hundredths = np.arange(finest, last + 1, finest)
    closest = np.array([best_temperature(rows, gamma)[0] for gamma in hundredths / 100.0])
    over = f"logit gaps to {gap:g} in steps of {step:g}"

    def fit(used: npt.NDArray[np.bool_], temperatures: Floats, points: str) -> Fit:
        slope, offset = np.polyfit(hundredths[used] / 100.0, 1.0 / temperatures[used], deg=1)
        return Fit(n_classes, over, points, float(slope), float(offset))

    for last in parameters["gamma_lasts"]:
        used = hundredths <= last
        yield fit(used, closest, f"gamma to {last / 100:g} in steps of {finest / 100:g}")
    for coarse in parameters["gamma_steps"][1:]:
        used = hundredths % coarse == 0
        yield fit(used, closest, f"gamma to {hundredths[-1] / 100:g} in steps of {coarse / 100:g}")
    everything = np.ones(len(hundredths), dtype=bool)
    points = f"gamma to {hundredths[-1] / 100:g} in steps of {finest / 100:g}, {AS_IN_THE_TEXT}"
    yield fit(everything, closest.round(3), points)


def for_each_temperature(n_classes: int, parameters: Mapping[str, Any]) -> Iterator[Fit]:
    """The closest gamma for each temperature of several ranges and steps."""
    step = parameters["logit_steps"]["temperature"]
    gap = parameters["largest_gap"][str(n_classes)]
    rows = two_level_rows(n_classes, largest_gap=gap, step=step)
    ranges = parameters["temperatures"][str(n_classes)]
    first, last = np.min(ranges), np.max(ranges)
    hundredths = np.arange(first, last + 1)
    closest = np.array([best_gamma(rows, t, highest=HIGHEST_GAMMA) for t in hundredths / 100.0])
    over = f"logit gaps to {gap:g} in steps of {step:g}"
    for first, last in ranges:
        for coarse in parameters["temperature_steps"]:
            used = np.isin(hundredths, np.arange(first, last + 1, coarse))
            slope, offset = np.polyfit(closest[used], 100.0 / hundredths[used], deg=1)
            reached = hundredths[used][-1] / 100
            points = f"T from {first / 100:g} to {reached:g} in steps of {coarse / 100:g}"
            yield Fit(n_classes, over, points, float(slope), float(offset))


def over_probabilities(parameters: Mapping[str, Any]) -> tuple[list[Fit], dict[int, float]]:
    """Four classes, over coarse grids of probabilities: what a search of all rows can afford.

    The second is the largest difference between map and closest temperature at gamma = 9.
    """
    hundredths = np.arange(10, max(parameters["gamma_lasts"]) + 1, 10)
    fits, differences = [], {}
    for parts in parameters["parts_of_one"]:
        rows = np.log(rising_rows(4, parts))
        rows -= rows.max(axis=-1, keepdims=True)
        found = np.array([best_temperature(rows, gamma) for gamma in hundredths / 100.0])
        differences[parts] = float(found[hundredths == 900, 1][0])
        for first, last in parameters["coarse_gammas"]:
            used = (first <= hundredths) & (hundredths <= last)
            slope, offset = np.polyfit(hundredths[used] / 100.0, 1.0 / found[used, 0], deg=1)
            over = f"probabilities in steps of 1/{parts}"
            points = f"gamma from {first / 100:g} to {last / 100:g} in steps of 0.1"
            fits.append(Fit(4, over, points, float(slope), float(offset)))
    return fits, differences


def draw(every: Mapping[str, list[Fit]], paper: Mapping[str, list[str]]) -> Figure:
    """Slope and offset of every fit, and the square of those that print as the paper's."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    kinds: dict[str, Callable[[Fit], bool]] = {
        r"for each $\gamma$": lambda fit: fit.points.startswith("gamma") and fit.is_fine,
        "for each T": lambda fit: fit.points.startswith("T"),
        "coarse probabilities": lambda fit: not fit.is_fine,
    }
    panels = figure.subplots(1, len(every))
    for ax, (key, fits) in zip(panels, every.items(), strict=True):
        slope, offset = map(float, paper[key])
        square = Rectangle((slope - 0.005, offset - 0.005), 0.01, 0.01, label="prints as the paper")
        square.set(facecolor="0.8", edgecolor="0.3")
        ax.add_patch(square)
        for i, (kind, belongs) in enumerate(kinds.items()):
            points = [(fit.slope, fit.offset) for fit in fits if belongs(fit)]
            style = look(i)
            x, y = np.array(points).reshape(-1, 2).T
            ax.plot(x, y, style.marker, color=style.color, markersize=4, label=kind)
        ax.set(xlabel="slope", ylabel="offset", title=f"{key} classes")
        ax.autoscale_view()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=len(labels))
    return figure
