"""The temperature closest to the focal map for each gamma, and a line through their inverses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calibrant.focal import closest_temperature
from calibrant.plots.palette import look
from experiments.results import Result
from experiments.tables import Table


def run(parameters: Mapping[str, Any]) -> Result:
    """Fit 1/T = slope * gamma + offset for each number of classes."""
    gammas = np.array(parameters["gammas"])
    values, rows = {}, []
    figure = Figure(figsize=(5.0, 3.6), layout="constrained")
    ax = figure.subplots()
    for i, n_classes in enumerate(parameters["n_classes"]):
        inverse = [1.0 / closest_temperature(gamma=g, n_classes=n_classes) for g in gammas]
        slope, offset = np.polyfit(gammas, inverse, deg=1)
        values[f"slope, {n_classes} classes"] = slope
        values[f"offset, {n_classes} classes"] = offset
        rows.append([str(n_classes), f"{slope:.4f}", f"{offset:.4f}"])
        ax.plot(gammas, inverse, "o", markersize=4, color=look(i).color)
        ax.plot(gammas, slope * gammas + offset, color=look(i).color, label=f"{n_classes} classes")
    ax.set(xlabel=r"$\gamma$", ylabel="1 / temperature closest to the map")
    ax.legend(frameon=False)
    table = Table("1/T = slope * gamma + offset", ["classes", "slope", "offset"], rows)
    return Result(values, {"fits": table}, {"fits": figure})
