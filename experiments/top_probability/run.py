"""Prop. 5 says that the focal map never lowers the top probability: rows for which it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrant.focal import confidence_bias, focal_map, phi
from calibrant.plots.palette import GUIDE, look
from experiments.results import Result
from experiments.tables import Table
from experiments.top_probability.rows import Floats, rising_rows, two_level_rows


def run(parameters: Mapping[str, Any]) -> Result:
    """Search the simplex of few classes, and rows of two levels of many."""
    values: dict[str, float] = {}
    rows_of_table, smallest_failing = [], []
    searched = {
        int(key): rising_rows(int(key), parts) for key, parts in parameters["parts"].items()
    }
    for n_classes in parameters["more_classes"]:
        searched[n_classes] = two_level_rows(n_classes, parameters["steps"])
    for n_classes, rows in searched.items():
        # The sign is exact: a fall by rounding is not counted.
        falls = {g: confidence_bias(rows, gamma=g) > 0 for g in parameters["gammas"]}
        n_falls = sum(int(np.count_nonzero(each)) for each in falls.values())
        percent = 100.0 * n_falls / (len(rows) * len(falls))
        values[f"rows whose top probability falls, {n_classes} classes"] = n_falls
        cells = [str(n_classes), str(len(rows)), str(n_falls), f"{percent:.2f}"]
        if n_falls:
            smallest_failing.append(n_classes)
            gamma, before, after = largest_fall(rows, falls)
            values[f"largest share of the top that is lost, {n_classes} classes"] = (
                1.0 - after / before
            )
            cells += [f"{gamma:g}", f"{before:.4f}", f"{after:.4f}"]
        rows_of_table.append(cells + [""] * (7 - len(cells)))
    values["smallest number of classes with a fall"] = min(smallest_failing)
    four = np.array([0.33, 0.33, 0.33, 0.01])
    values["top of (.33, .33, .33, .01) after the map, gamma 0.5"] = top_after(four, 0.5)
    for n_classes, gamma, top in ((10, 0.25, 0.15), (100, 1.0, 0.05), (1000, 1.0, 0.1)):
        row = np.r_[top, np.full(n_classes - 1, (1.0 - top) / (n_classes - 1))]
        name = f"top of {n_classes} classes, {top:g} before the map, gamma {gamma:g}"
        values[name] = top_after(row, gamma)
    values["probability below which 1/L' is not concave, gamma 1"] = inflection(1.0)

    title = f"Top probabilities that fall, {len(parameters['gammas'])} gammas"
    head = ["classes", "rows", "falls", "percent", "largest at gamma", "top before", "after"]
    notes = [
        "The proof takes 1/L'(q) of the focal loss L for concave on (0, 1). It is convex at small "
        "q, where many classes are.",
    ]
    pictures = {"top-probability": draw()}
    return Result(values, {"falls": Table(title, head, rows_of_table)}, pictures, notes)


def largest_fall(
    rows: Floats, falls: Mapping[float, npt.NDArray[np.bool_]]
) -> tuple[float, float, float]:
    """Gamma, top before and top after, where the top loses its largest share."""
    found = []
    for gamma, falling in falls.items():
        if falling.any():
            before = rows[falling].max(axis=-1)
            after = np.asarray(focal_map(rows[falling], gamma=gamma)).max(axis=-1)
            worst = int((after / before).argmin())
            found.append((after[worst] / before[worst], gamma, before[worst], after[worst]))
    _, gamma, before, after = min(found)
    return gamma, float(before), float(after)


def top_after(row: Floats, gamma: float) -> float:
    """The top probability of a row after the map."""
    return float(np.max(focal_map(row, gamma=gamma)))


def inflection(gamma: float) -> float:
    """Where the slope of q / phi(q) = -1/L'(q) is smallest: below it 1/L' is convex."""
    q = np.linspace(1e-4, 0.9, 90_001)
    slope = np.gradient(q / np.asarray(phi(q, gamma=gamma)), q, edge_order=2)
    return float(q[slope.argmin()])


def draw() -> Figure:
    """The top after the map over the top before, the other classes equal."""
    figure = Figure(figsize=(5.0, 3.8), layout="constrained")
    ax = figure.subplots()
    for i, n_classes in enumerate((4, 10, 100, 1000)):
        top = np.linspace(1.0 / n_classes, 0.5, 400)
        low = (1.0 - top) / (n_classes - 1)
        rows = np.concatenate([top[:, None], np.repeat(low[:, None], n_classes - 1, axis=1)], 1)
        change = np.asarray(focal_map(rows, gamma=1.0))[:, 0] / top - 1.0
        style = look(i)
        label = f"{n_classes} classes"
        ax.plot(top, 100.0 * change, style.linestyle, color=style.color, label=label)
    ax.axhline(0.0, **GUIDE)
    ax.set(xlabel="top probability, the other classes equal", xlim=(0.0, 0.5), ylim=(-12.0, 18.0))
    ax.set_ylabel(r"change by the map in percent, $\gamma$ = 1")
    ax.legend(frameon=False, loc="upper left")
    return figure
