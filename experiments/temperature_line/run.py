"""The best temperature for each gamma on every public network, and lines through them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure

from calibrant.focal import closest_temperature
from calibrant.plots.palette import GUIDE, look
from experiments.processes import single_threads
from experiments.results import Result
from experiments.scoreboard.networks import Network, all_networks, data_of
from experiments.tables import Table
from experiments.temperature_line.closest import closest_before
from experiments.temperature_line.lines import CALLED, CRITERIA, Floats, Line, best_line

THEORY_CLASSES = (2, 3, 4)
WITH_LINES = {2: "2 classes", 10: "10 classes", 100: "100 classes"}
"""The groups of the picture."""
STRAIGHT = 0.95
"""R² from which T over gamma counts as close to a line."""


@dataclass(frozen=True)
class Measured:
    """One network: its best temperatures, and the T(gamma)/T(0) that undoes the map."""

    name: str
    n_classes: int
    lines: Mapping[str, Line]
    closest: Floats
    """For the gammas from 0 on."""

    @property
    def slope_of_closest(self) -> float:
        """Slope of the line that theory predicts on its own outputs."""
        gammas = self.lines["nll"].gammas
        return float(np.polyfit(gammas[gammas >= 0.0], self.closest, deg=1)[0])


def run(parameters: Mapping[str, Any]) -> Result:
    """Find the temperatures on every network, fit the lines, and compare with theory."""
    gammas = np.array(parameters["gammas"])
    networks = all_networks()
    with single_threads() as pool:
        done = pool.map(measure, networks, [gammas] * len(networks))
        length = len(networks)
        with click.progressbar(done, length, label="measuring", file=sys.stderr) as progress:
            measured = list(progress)
    positive = gammas[gammas >= 0.0]
    theory = {k: closest_on_simplex(positive, k) for k in THEORY_CLASSES}
    slope = {k: float(np.polyfit(positive, line, deg=1)[0]) for k, line in theory.items()}
    return Result(
        values=values(measured, slope),
        tables={"slopes": slopes(measured, slope), "networks": per_network(measured)},
        pictures={"lines": draw(measured, theory)},
        notes=notes(measured),
    )


def measure(network: Network, gammas: Floats) -> Measured:
    """The best temperatures of one network."""
    logits, labels = network.part("val")
    lines = best_line(logits, labels, gammas.tolist())
    plain = lines["nll"].temperatures[gammas == 0.0]
    closest = [closest_before(logits / plain, float(g)) for g in gammas[gammas >= 0.0]]
    return Measured(network.name, network.n_classes, lines, np.array(closest))


def closest_on_simplex(gammas: Floats, n_classes: int) -> Floats:
    """T(gamma)/T(0) if the map were the temperature closest to it on the whole simplex."""
    return np.array([1.0 / closest_temperature(gamma=g, n_classes=n_classes) for g in gammas])


def values(measured: Sequence[Measured], theory: Mapping[int, float]) -> dict[str, float]:
    """Straightness and slope, and the slope if map and temperature were the same."""
    data = np.array([data_of(each.name) for each in measured])
    found: dict[str, float] = {"networks": len(measured), "data sets": len(set(data))}
    for criterion in CRITERIA:
        lines = [each.lines[criterion] for each in measured]
        straight = np.array([line.straightness for line in lines])
        inverse = np.array([line.straightness_of_inverse for line in lines])
        chosen = f"T chosen by {CALLED[criterion]}"
        found |= {
            f"R² of T over gamma, {chosen}: median": float(np.median(straight)),
            # Networks on the same data are no news of each other: one median for each data set.
            f"R² of T over gamma, {chosen}: data sets with a median from {STRAIGHT} on": sum(
                np.median(straight[data == each]) >= STRAIGHT for each in set(data)
            ),
            f"R² of T over gamma, {chosen}: smallest": float(straight.min()),
            f"R² of 1/T over gamma, {chosen}: median": float(np.median(inverse)),
            f"best T at an end of the search, {chosen}": sum(line.at_edge for line in lines),
        }
    for n_classes, members in by_classes(measured).items():
        for criterion in CRITERIA:
            steep = [each.lines[criterion].slope_from_zero for each in members]
            name = f"slope of T(gamma)/T(0) by {CALLED[criterion]}, {n_classes} classes: median"
            found[name] = float(np.median(steep))
        own = float(np.median([each.slope_of_closest for each in members]))
        found[f"slope if the map were a temperature, own outputs, {n_classes} classes"] = own
    found |= {
        f"slope if the map were a temperature, whole simplex, {k} classes": slope
        for k, slope in theory.items()
    }
    return found


def by_classes(measured: Sequence[Measured]) -> dict[int, list[Measured]]:
    """The networks of each number of classes."""
    found: dict[int, list[Measured]] = {}
    for each in sorted(measured, key=lambda each: each.n_classes):
        found.setdefault(each.n_classes, []).append(each)
    return found


def slopes(measured: Sequence[Measured], theory: Mapping[int, float]) -> Table:
    """Slopes of the lines by the number of classes, compared with theory."""
    rows = []
    for n_classes, members in by_classes(measured).items():
        own = [each.slope_of_closest for each in members]
        rows.append(
            [
                str(n_classes),
                str(len(members)),
                *(spread([m.lines[c].slope_from_zero for m in members]) for c in CRITERIA),
                spread(own),
                f"{theory[n_classes]:.3f}" if n_classes in theory else "",
            ]
        )
    head = [
        "classes",
        "networks",
        "slope of T(gamma)/T(0) by ECE",
        "by NLL",
        "closest to no change, own outputs",
        "closest to no change, whole simplex",
    ]
    return Table(
        "Slope of T(gamma)/T(0) from gamma = 0 on: median (smallest to largest)", head, rows
    )


def spread(numbers: Sequence[float]) -> str:
    """The median, and the range where there are several."""
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{np.median(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})"


def per_network(measured: Sequence[Measured]) -> Table:
    """Every line."""
    head = ["network", "classes"]
    for criterion in CRITERIA:
        head += [f"{what} by {CALLED[criterion]}" for what in ("T(0)", "slope", "R²", "R² of 1/T")]
    rows = []
    for each in measured:
        row = [each.name, str(each.n_classes)]
        for criterion in CRITERIA:
            line = each.lines[criterion]
            numbers = (line.slope_from_zero, line.straightness, line.straightness_of_inverse)
            row += [f"{line.at_zero:.2f}", *(f"{number:.3f}" for number in numbers)]
        rows.append(row)
    return Table("T over gamma, line by line", head, rows)


def draw(measured: Sequence[Measured], theory: Mapping[int, Floats]) -> Figure:
    """Every line by ECE, relative to its T at gamma = 0, as in Fig. 8; NLL beside it."""
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, criterion in zip(axes, CRITERIA, strict=True):
        for k, closest in theory.items():
            gammas = measured[0].lines[criterion].gammas
            ax.plot(gammas[gammas >= 0.0], closest, **GUIDE)
            at = (gammas[-1], closest[-1])
            ax.annotate(f"K = {k}", at, (4, 0), textcoords="offset points", color="0.4",
                        va="center", fontsize="small")  # fmt: skip
        for i, (n_classes, label) in enumerate(WITH_LINES.items()):
            members = [each for each in measured if each.n_classes == n_classes]
            for j, each in enumerate(members):
                line = each.lines[criterion]
                color, style, marker = look(i)
                ax.plot(line.gammas, line.relative, color=color, linestyle=style, marker=marker,
                        markersize=2.5, linewidth=0.8, alpha=0.7,
                        label=f"{label} ({len(members)} networks)" if j == 0 else None)  # fmt: skip
        ax.plot([], [], **GUIDE, label="the map as a temperature")
        ax.set(
            xlabel=r"$\gamma$ of the map",
            xlim=(-0.8, 5.9),
            title=f"T chosen by {CALLED[criterion]}",
        )
    axes[0].set_ylabel(r"best T, as a multiple of that for $\gamma$ = 0")
    axes[0].legend(frameon=False, loc="upper left", fontsize="small")
    return figure


def notes(measured: Sequence[Measured]) -> list[str]:
    """Notes on the result."""
    first = measured[0].lines["nll"].gammas
    return [
        f"{len(measured)} public networks trained without a focal loss; the paper's are ResNet-50 "
        "trained with it. Its Fig. 8 is a picture without printed numbers; the text says that the "
        "relation is close to linear.",
        f"Gammas {', '.join(f'{g:g}' for g in first)}; T on the validation set, in steps of 4%, "
        "then of 0.5% around the best.",
        "If the map were a temperature, T(gamma)/T(0) would be 1/T of the temperature closest to "
        "it. That line depends on which outputs count: over the whole simplex it is steeper than "
        "over the outputs of networks with many classes.",
    ]
