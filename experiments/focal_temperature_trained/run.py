"""Table 1 and Fig. 8 on the networks trained here: the finished runs of four grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calibrant.plots.palette import look
from experiments.focal_temperature.comparing import (
    HEAD,
    ByMethod,
    cells,
    changed_predictions,
    said,
    values_of,
)
from experiments.focal_temperature.methods import compared
from experiments.focal_temperature.paper import table_1
from experiments.focal_temperature_trained.networks import (
    ByLoss,
    complete,
    said_of,
    trained_networks,
)
from experiments.results import Result
from experiments.scoreboard.networks import Network
from experiments.scoreboard.run import grouped, measure_all
from experiments.tables import Table
from experiments.temperature_line.lines import CALLED, CRITERIA, Line, best_line
from experiments.trained.runs import Place, missing

KEPT = Path("out/focal-temperature-trained/results")
IN_TABLE_1 = {
    ("cifar10-jpeg", "ce"): ("CIFAR-10", "ce"),
    ("cifar10-jpeg", "fl-3"): ("CIFAR-10", "fl-3"),
    ("cifar10-jpeg", "fl-7"): ("CIFAR-10", "fl-7"),
    ("cifar10-jpeg", "flsd-53"): ("CIFAR-10", "flsd-53"),
    ("cifar10-jpeg", "adafocal"): ("CIFAR-10", "adafocal"),
}
"""Rows of the paper that come closest to one of ours, by data and loss."""
BY_GAMMA = ("ce", "fl-3", "fl-5", "fl-7")
"""Losses with one gamma that every setting has, in its order."""
OF_ALL = (
    "networks",
    "ECE %, as it is",
    "ECE %, temperature",
    "ECE %, focal temperature",
    "networks with a smaller ECE by focal temperature",
    "networks with a larger ECE by focal temperature",
)
"""Values reported for each setting; for all of them together, every value is."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure the finished runs; values are for the settings in which no loss is missing."""
    every = trained_networks(parameters["grids"], parameters["folder"])
    found = {
        place: {loss: by_loss[loss] for loss in parameters["losses"] if loss in by_loss}
        for place, by_loss in every.items()
    }
    whole = complete(found, parameters["losses"])
    networks = [each for by_loss in found.values() for each in by_loss.values()]
    methods = compared()
    measured = measure_all(networks, methods, KEPT, source=compared)
    results = grouped(measured, methods, networks)

    values: dict[str, float] = {}
    data = {n.name: place[0] for place, by_loss in whole.items() for n in by_loss.values()}
    for place, by_loss in whole.items():
        of_place = values_of(only(results, list(by_loss.values())), data.__getitem__)
        values |= {f"{said_of(place)}: {name}": of_place[name] for name in OF_ALL}
    of_whole = only(results, [each for by_loss in whole.values() for each in by_loss.values()])
    if whole:
        of_all = values_of(of_whole, data.__getitem__)
        values |= {f"all: {name}": value for name, value in of_all.items()}
    values["predictions changed by any method"] = changed_predictions(results)

    lines = {
        said_of(place): {
            loss: best_line(*network.part("val"), parameters["gammas"])
            for loss, network in by_loss.items()
        }
        for place, by_loss in whole.items()
    }
    values |= of_lines(lines)
    return Result(
        values=values,
        tables={"table-1": table(found, results), "lines": table_of_lines(lines)},
        pictures={"lines": draw(lines)} if lines else {},
        notes=notes(found, whole, of_whole),
        unfinished=missing(parameters["grids"], every),
    )


def only(results: ByMethod, networks: Sequence[Network]) -> ByMethod:
    """The results of some networks."""
    names = {each.name for each in networks}
    return {
        title: [result for result in each if result.network in names]
        for title, each in results.items()
    }


def table(found: Mapping[Place, ByLoss], results: ByMethod) -> Table:
    """Every run, with the paper's values below those that it also has."""
    rows, paper = [], table_1()
    for place, by_loss in found.items():
        for loss, network in by_loss.items():
            rows.append([said_of(place), loss, *cells(network, results)])
            if like := IN_TABLE_1.get((place[0], loss)):
                rows.append([f"the paper's ResNet-50 on {like[0]}", like[1], *paper[like].cells])
    return Table("Test part; parameters in brackets", ["network", "loss", *HEAD], rows)


Lines = Mapping[str, Mapping[str, Mapping[str, Line]]]
"""By setting, loss and criterion."""


def of_lines(lines: Lines) -> dict[str, float]:
    """Straightness of the lines, and whether a larger gamma of training lowers them."""
    found: dict[str, float] = {}
    for criterion in CRITERIA:
        each = [by[criterion] for of_setting in lines.values() for by in of_setting.values()]
        if each:
            straight = float(np.median([line.straightness for line in each]))
            found[f"R² of T over gamma, T chosen by {CALLED[criterion]}: median"] = straight
    for setting, of_setting in lines.items():
        temperatures = [of_setting[loss]["nll"].at_zero for loss in BY_GAMMA]
        rises = [later >= earlier for earlier, later in pairwise(temperatures)]
        found[f"{setting}: steps from {', '.join(BY_GAMMA)} at which T does not fall"] = sum(rises)
        for loss, temperature in zip(BY_GAMMA, temperatures, strict=True):
            found[f"{setting}, {loss}: T by NLL"] = temperature
    found["settings in which every loss is finished"] = len(lines)
    return found


def table_of_lines(lines: Lines) -> Table:
    """T at gamma = 0, slope and straightness of every line."""
    head = ["network", "loss"]
    head += [
        f"{what} by {CALLED[c]}" for c in CRITERIA for what in ("T(0)", "slope of T/T(0)", "R²")
    ]
    rows = []
    for setting, of_setting in lines.items():
        for loss, by_criterion in of_setting.items():
            row = [setting, loss]
            for criterion in CRITERIA:
                line = by_criterion[criterion]
                numbers = (line.at_zero, line.slope_from_zero, line.straightness)
                row += [f"{number:.3f}" for number in numbers]
            rows.append(row)
    return Table("T over gamma, line by line", head, rows)


def draw(lines: Lines) -> Figure:
    """Fig. 8: best T by ECE over gamma, a panel for each setting and a line for each loss."""
    across = min(3, len(lines))
    down = -(-len(lines) // across)
    figure = Figure(figsize=(3.1 * across + 0.4, 2.9 * down + 0.5), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (setting, of_setting) in zip(axes, lines.items(), strict=False):
        for i, (loss, by_criterion) in enumerate(of_setting.items()):
            line, (color, style, marker) = by_criterion["ada_ece"], look(i)
            drawn = {"color": color, "linestyle": style, "marker": marker, "label": loss}
            ax.plot(line.gammas, line.temperatures, **drawn, markersize=3, linewidth=1.1)
        ax.set_title(setting, fontsize="medium")
        ax.set(xlabel=r"$\gamma$ of the map", ylim=(0.0, None))
    for ax in axes[len(lines) :]:
        ax.remove()
    for ax in axes[: len(lines) : across]:
        ax.set_ylabel("best T by ECE")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def notes(
    found: Mapping[Place, ByLoss], whole: Mapping[Place, ByLoss], of_whole: ByMethod
) -> list[str]:
    """Notes on the runs found, the missing ones, and the paper's settings."""
    lines = [said("Settings in which every loss is finished", of_whole)] if whole else []
    partial = [
        f"{said_of(place)} ({', '.join(by_loss)} finished)"
        for place, by_loss in found.items()
        if place not in whole
    ]
    if partial:
        lines.append(f"Not finished, so only in the table: {'; '.join(partial)}.")
    lines.append(
        "Short runs of small networks (experiments/trained): none is a network of the paper. Where "
        "a data set is close to one of its own, its cells stand below ours."
    )
    return lines
