"""Fig. 4: the expected loss of every prediction for one truth, and the shape of its isolines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calibrant.focal import proper_focal_loss
from calibrant.focal.simplex import Floats, to_plane, to_simplex
from calibrant.plots.palette import OVER, look
from experiments.results import Result
from experiments.simplex_maps.triangle import draw_triangle, rows_of_probabilities
from experiments.tables import Table

Risk = Callable[[Floats], Floats]


def run(parameters: Mapping[str, Any]) -> Result:
    """Find the smallest risk of each loss, and how oval and how triangular its isolines are."""
    truth = np.array(parameters["truth"])
    rows = rows_of_probabilities(parameters["parts"], inside=True)
    risks: dict[str, Risk] = {
        "Brier score": partial(brier_risk, truth=truth),
        "cross-entropy": partial(proper_focal_risk, truth=truth, gamma=0.0),
    }
    for gamma in parameters["gammas"]:
        name = f"proper part, gamma {gamma:g}"
        risks[name] = partial(proper_focal_risk, truth=truth, gamma=gamma)

    values: dict[str, float] = {}
    cells, drawn = [], {}
    for name, risk in risks.items():
        everywhere = risk(rows)
        values[f"distance of the smallest risk from the truth, {name}"] = float(
            np.abs(rows[everywhere.argmin()] - truth).max()
        )
        drawn[name] = (everywhere, np.percentile(everywhere, parameters["percentiles"]))
        level = float(np.percentile(everywhere, parameters["measured_percentile"]))
        points = isoline(risk, truth, level, parameters["angles"])
        oval, triangular = harmonics(points)
        values[f"oval part of the isoline, percent of its radius, {name}"] = oval
        values[f"triangular part of the isoline, percent of its radius, {name}"] = triangular
        cells.append([name, f"{oval:.2f}", f"{triangular:.2f}"])
    title = f"Shape of the isoline of {parameters['measured_percentile']:g} % of the triangle"
    head = ["loss", "oval, % of the radius", "triangular, % of the radius"]
    pictures = {"risk-isolines": draw(rows, truth, drawn)}
    return Result(values, {"shapes": Table(title, head, cells)}, pictures)


def brier_risk(rows: Floats, *, truth: Floats) -> Floats:
    """Expected squared distance to the label."""
    to_labels = ((rows[:, None, :] - np.eye(3)) ** 2).sum(axis=-1)
    return np.asarray(to_labels @ truth)


def proper_focal_risk(rows: Floats, *, truth: Floats, gamma: float) -> Floats:
    """Expected proper part of the focal loss; cross-entropy for gamma = 0."""
    labels = [np.full(len(rows), label) for label in range(3)]
    losses = [np.asarray(proper_focal_loss(rows, label, gamma=gamma)) for label in labels]
    return np.asarray(np.stack(losses, axis=-1) @ truth)


def isoline(risk: Risk, truth: Floats, level: float, n_angles: int) -> Floats:
    """Points in the picture at which the risk has a level, one in each direction of the truth."""
    angles = 2.0 * np.pi * np.arange(n_angles) / n_angles
    start = to_plane(truth)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    # How each probability changes along a direction: the edge is where the first of them is 0.
    change = to_simplex(directions) - to_simplex(np.zeros(2))
    to_edge = np.where(change < 0.0, -truth / np.minimum(change, -1e-300), np.inf).min(axis=-1)
    low, high = np.zeros(n_angles), to_edge * (1.0 - 1e-9)
    for _ in range(45):
        middle = (low + high) / 2.0
        below = risk(to_simplex(start + middle[:, None] * directions)) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(start + low[:, None] * directions)


def harmonics(points: Floats) -> tuple[float, float]:
    """Waves of two and of three periods in the radius around the centre, in percent of its mean."""
    x, y = points.T
    following_x, following_y = np.roll(points, -1, axis=0).T
    cross = x * following_y - following_x * y
    area = cross.sum() / 2.0
    centre = [
        ((x + following_x) * cross).sum() / (6.0 * area),
        ((y + following_y) * cross).sum() / (6.0 * area),
    ]
    from_centre = points - np.array(centre)
    radius = np.hypot(*from_centre.T)
    angle = np.arctan2(from_centre[:, 1], from_centre[:, 0])
    order = np.argsort(angle)
    even = 2.0 * np.pi * np.arange(len(points)) / len(points) - np.pi
    even_radius = np.interp(even, angle[order], radius[order], period=2.0 * np.pi)
    waves = np.abs(np.fft.rfft(even_radius)) / len(points)
    return 200.0 * float(waves[2] / waves[0]), 200.0 * float(waves[3] / waves[0])


def draw(rows: Floats, truth: Floats, drawn: Mapping[str, tuple[Floats, Floats]]) -> Figure:
    """Fig. 4: the isolines of each loss."""
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    points = to_plane(rows)
    panels = figure.subplots(2, 2).flat
    for i, (ax, (name, (risk, levels))) in enumerate(zip(panels, drawn.items(), strict=True)):
        draw_triangle(ax)
        ax.tricontour(*points.T, risk, levels=levels, colors=look(i).color)
        ax.plot(*to_plane(truth), "+", color=OVER, markersize=8)
        ax.set_title(name, fontsize=10)
    return figure
