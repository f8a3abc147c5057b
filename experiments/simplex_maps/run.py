"""Figs 5 and 7: how the focal map and the closest temperature move rows of three classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.focal import closest_temperature, confidence_bias, focal_map
from calibrant.focal.simplex import Floats, to_plane
from calibrant.plots.palette import INK
from experiments.results import Result
from experiments.simplex_maps.triangle import draw_triangle, rows_of_probabilities
from experiments.tables import Table


def run(parameters: Mapping[str, Any]) -> Result:
    """Check the text's statements about the arrows, and find the largest difference."""
    rows = rows_of_probabilities(parameters["parts"], inside=False)
    of_arrows = rows_of_probabilities(parameters["parts_of_arrows"], inside=True)
    top = rows.max(axis=-1)
    gammas = sorted({*parameters["arrows"], *parameters["heatmaps"]})
    values: dict[str, float] = {}
    cells, differences, tops = [], {}, [top]
    temperatures = {gamma: closest_temperature(gamma=gamma, n_classes=3) for gamma in gammas}
    for gamma, temperature in temperatures.items():
        values[f"closest T, gamma {gamma:g}"] = temperature
        mapped = np.asarray(focal_map(rows, gamma=gamma))
        tops.append(mapped.max(axis=-1))
        difference = np.abs(mapped - scaled(rows, temperature)).max(axis=-1)
        differences[gamma] = difference
        falls = int(np.count_nonzero(confidence_bias(rows, gamma=gamma) > 0))
        values[f"rows whose top probability falls, gamma {gamma:g}"] = falls
        also = percent_with_second_rise(rows, mapped)
        values[f"percent of rows in which a second class rises too, gamma {gamma:g}"] = also
        values[f"percent of arrows on which a second class rises too, gamma {gamma:g}"] = (
            percent_with_second_rise(of_arrows, np.asarray(focal_map(of_arrows, gamma=gamma)))
        )
        worst = int(difference.argmax())
        in_corners = difference[top > parameters["corner"]].max()
        in_centre = difference[np.abs(rows - 1 / 3).max(axis=-1) < parameters["centre"]].max()
        values[f"largest difference, gamma {gamma:g}"] = difference[worst]
        values[f"largest difference in the corners, gamma {gamma:g}"] = in_corners
        values[f"largest difference around the centre, gamma {gamma:g}"] = in_centre
        where = ", ".join(f"{q:.3f}" for q in np.sort(rows[worst])[::-1])
        numbers = [f"{number:.4f}" for number in (difference[worst], in_corners, in_centre)]
        cells.append([f"{gamma:g}", f"{temperature:.4f}", *numbers, f"({where})", f"{also:.1f}"])
    edges = rows.min(axis=-1) == 0.0
    for gamma, printed in zip(parameters["heatmaps"], parameters["captions"], strict=True):
        for name, t in (("closest T", temperatures[gamma]), (f"T = {printed:g}", printed)):
            difference = np.abs(focal_map(rows, gamma=gamma) - scaled(rows, t)).max(axis=-1)
            for where, part in (("on the edges", edges), ("inside", ~edges)):
                name_of = f"{name}, gamma {gamma:g}: largest difference {where}"
                values[name_of] = difference[part].max()
    not_sharper = np.diff(tops, axis=0) < -1e-12
    values["rows whose top probability is lower for a larger gamma"] = int(
        np.count_nonzero(not_sharper)
    )

    head = [
        "gamma",
        "closest T",
        "largest difference",
        "corners",
        "centre",
        "where",
        "also rise, %",
    ]
    title = "The map beside the closest temperature, three classes"
    pictures = {
        "arrows": draw_arrows(parameters["arrows"], temperatures, parameters["parts_of_arrows"]),
        "heatmaps": draw_differences(rows, parameters["heatmaps"], temperatures, differences),
    }
    return Result(values, {"differences": Table(title, head, cells)}, pictures)


def percent_with_second_rise(rows: Floats, mapped: Floats) -> float:
    """The share of rows in which a class below the top one rises, among those without a tie."""
    # Rows with a tie on top have two that rise together: not counted.
    alone = np.sort(rows, axis=-1)[:, -2] < rows.max(axis=-1)
    rises = (mapped > rows * (1.0 + 1e-12)).sum(axis=-1)
    return 100.0 * np.count_nonzero(alone & (rises > 1)) / np.count_nonzero(alone)


def scaled(rows: Floats, temperature: float) -> Floats:
    """Temperature scaling of probabilities: powers of them, with sum 1."""
    powers = rows ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def draw_arrows(gammas: Sequence[float], temperatures: Mapping[float, float], parts: int) -> Figure:
    """Fig. 5: arrows from each row to its image under the map and the temperature."""
    rows = rows_of_probabilities(parts, inside=True)
    figure = Figure(figsize=(7.0, 6.6), layout="constrained")
    panels = figure.subplots(2, len(gammas))
    for i, gamma in enumerate(gammas):
        arrows(panels[0, i], rows, np.asarray(focal_map(rows, gamma=gamma)))
        panels[0, i].set_title(rf"map, $\gamma$ = {gamma:g}", fontsize=10)
        arrows(panels[1, i], rows, scaled(rows, temperatures[gamma]))
        panels[1, i].set_title(f"temperature {temperatures[gamma]:.3f}", fontsize=10)
    return figure


def arrows(ax: Axes, rows: Floats, moved: Floats) -> None:
    """One triangle of arrows."""
    draw_triangle(ax)
    start, step = to_plane(rows), to_plane(moved) - to_plane(rows)
    same_units: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.0}
    ax.quiver(*start.T, *step.T, color=INK, width=0.005, **same_units)


def draw_differences(
    rows: Floats,
    gammas: Sequence[float],
    temperatures: Mapping[float, float],
    differences: Mapping[float, Floats],
) -> Figure:
    """Fig. 7: the largest difference of a probability at every row."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    points = to_plane(rows)
    for ax, gamma in zip(figure.subplots(1, len(gammas)), gammas, strict=True):
        shades = ax.tricontourf(*points.T, differences[gamma], levels=12, cmap="cividis")
        draw_triangle(ax)
        ax.set_title(rf"$\gamma$ = {gamma:g}, T = {temperatures[gamma]:.3f}", fontsize=10)
        figure.colorbar(shades, ax=ax, shrink=0.8, label="largest difference")
    return figure
