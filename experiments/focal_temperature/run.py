"""Table 1 on every public network: temperature and focal temperature scaling, by ECE and by NLL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calibrant.plots.palette import GUIDE, look
from experiments.focal_temperature.comparing import (
    HEAD,
    ByMethod,
    accuracy,
    cells,
    changed_predictions,
    said,
    values_of,
)
from experiments.focal_temperature.methods import FOCAL, PLAIN, compared
from experiments.focal_temperature.paper import Row, table_1
from experiments.results import Result
from experiments.scoreboard.networks import Network, all_networks, families
from experiments.scoreboard.run import grouped, measure_all
from experiments.tables import Table

KEPT = Path("out/focal-temperature/results")
TRAINED_WITH = "ce"
"""Rows of Table 1 to compare with: the public networks were not trained with a focal loss."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure what is missing, then the means and gains of each family."""
    networks, methods = all_networks(), compared()
    measured = measure_all(networks, methods, KEPT, source=compared)
    groups = {
        title: (members, grouped(measured, methods, members))
        for title, members in families(networks).items()
        if title in parameters["families"]
    }
    values: dict[str, float] = {}
    for title, (_, results) in groups.items():
        values |= {f"{title}: {name}": value for name, value in values_of(results).items()}
    # The networks that come closest to the paper's, of which 95.0% of answers are right.
    good = [n for n in networks if n.name.startswith("c10_") and accuracy(n) >= parameters["good"]]
    like_the_paper = values_of(grouped(measured, methods, good))
    title = f"CIFAR-10, accuracy from {parameters['good']:.0%}"
    values |= {f"{title}: {name}": like_the_paper[name] for name in like_the_paper}
    everything = grouped(measured, methods, networks)
    changed, predictions = changed_predictions(everything), sum(n.n_test for n in networks)
    values["predictions changed by any method"] = changed
    paper = table_1()
    return Result(
        values=values,
        tables={"table-1": table(networks, everything, paper)},
        pictures={"ece": draw(groups, list(paper.values()))},
        notes=[
            *(said(title, results) for title, (_, results) in groups.items()),
            said_of_the_paper(list(paper.values())),
            "The networks differ from the paper's (ResNet-50, 5 seeds): these are public ones of "
            "many kinds, trained without a focal loss as far as their sources tell, most with 5000 "
            "test images. ECE is of equal-mass bins, 15 as in the paper.",
            f"Predictions that any method changed: {changed} of {predictions}.",
            "The grid is the paper's with gamma = 0 added; T by NLL alone is the minimum itself.",
        ],
    )


def table(
    networks: Sequence[Network], results: ByMethod, paper: Mapping[tuple[str, str], Row]
) -> Table:
    """Every network, with the paper's values below the CIFAR families."""
    rows: list[list[str]] = []
    for data, prefix in {"CIFAR-10": "c10_", "CIFAR-100": "c100_", "": ""}.items():
        left = [n for n in networks if n.name not in {row[0] for row in rows}]
        members = [network for network in left if network.name.startswith(prefix)]
        rows += [[network.name, *cells(network, results)] for network in members]
        if data:
            printed = paper[data, TRAINED_WITH]
            rows.append([f"the paper's ResNet-50 on {data}, cross-entropy", *printed.cells])
    return Table("Test part; parameters in brackets", ["network", *HEAD], rows)


def said_of_the_paper(rows: Sequence[Row]) -> str:
    """The gains in Table 1 itself."""
    ratios = [float(row.focal_ece) / float(row.ece) for row in rows]
    smaller = sum(ratio < 1.0 for ratio in ratios)
    worse = sum(float(row.focal_nll) > float(row.nll) for row in rows)
    return (
        f"Of the {len(rows)} rows that the paper prints, focal temperature scaling has the smaller "
        f"ECE in {smaller}, by {100 * (1 - np.mean(ratios)):.0f}% on average, and the larger "
        f"log-loss in {worse}."
    )


def draw(groups: Mapping[str, tuple[Sequence[Network], ByMethod]], paper: Sequence[Row]) -> Figure:
    """ECE by temperature against ECE by focal temperature, a point for each network."""
    figure = Figure(figsize=(5.0, 4.4), layout="constrained")
    ax = figure.subplots()
    ends = (0.25, 25.0)
    ax.plot(ends, ends, **GUIDE)
    drawn: set[str] = set()
    for i, (title, (members, results)) in enumerate(groups.items()):
        new = {network.name for network in members} - drawn
        drawn |= new
        points = [
            [100.0 * r.values["ada_ece"] for r in results[method["ada_ece"]] if r.network in new]
            for method in (PLAIN, FOCAL)
        ]
        label = "other networks" if title == "All" else f"{title} networks"
        ax.plot(*points, look(i).marker, color=look(i).color, markersize=4.5, label=label)
    printed = [float(row.ece) for row in paper], [float(row.focal_ece) for row in paper]
    ax.plot(*printed, "x", color="0.3", markersize=5, label="rows of the paper's Table 1")
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = (0.3, 1, 3, 10)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="ECE %, temperature scaling", ylabel="ECE %, focal temperature scaling")
    ax.legend(frameon=False, loc="upper left")
    return figure
