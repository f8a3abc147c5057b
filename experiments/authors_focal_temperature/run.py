"""Temperature and focal temperature scaling on twelve networks of Mukhoti et al. (2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant import FocalTemperatureScaling, TemperatureScaling
from calibrant.focal import closest_temperature
from calibrant.plots.palette import GUIDE, look
from experiments.authors_focal_temperature.methods import (
    AS_IT_IS,
    CRITERIA,
    FOCAL,
    LINE,
    PLAIN,
    compared,
)
from experiments.authors_networks.measuring import NETWORKS
from experiments.composed_temperature.run import (
    BY_OWN,
    BY_SIMPLEX,
    Pair,
    found_over_composed,
    mean_ratio,
    table as table_of_pairs,
)
from experiments.focal_temperature.comparing import mean_fact
from experiments.focal_temperature.gains import gain
from experiments.loss_tables.paper import cells as cells_of_tables
from experiments.results import Result
from experiments.scoreboard.measuring import Result as Measured
from experiments.scoreboard.methods import AUTO
from experiments.scoreboard.networks import DATA, Network, of_group
from experiments.scoreboard.resampling import Interval
from experiments.scoreboard.run import grouped, measure_all
from experiments.scoreboard.tables import difference_to, shown_difference
from experiments.tables import Table
from experiments.temperature_line.closest import closest_after
from experiments.temperature_line.lines import Line

KEPT = Path("out/authors-focal-temperature/results")
GROUP = "Networks of paper 1"
FAMILIES = {
    "FLSD-53, CIFAR-10": "c10_flsd53",
    "Brier, CIFAR-10": "c10_brier",
    "Brier, CIFAR-100": "c100_brier",
    "all": "c10",
}
"""Start of the names of the files of each family."""
FOCAL_TRAINED = "FLSD-53, CIFAR-10"
GRID = np.arange(1, 101) / 10
"""The temperatures of Mukhoti et al."""
LINE_CRITERIA = ("ada_ece", "nll")

PRINTED_GAMMAS = (1.0, 2.0, 3.0)
PAIRS_TITLE = "T by ECE of focal-trained networks, composed and found"
on_simplex = cache(closest_temperature)

ByMethod = Mapping[str, Sequence[Measured]]


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure every method, then lines of T over gamma, then T as a product."""
    networks, methods = of_group(GROUP, DATA, Path()), compared()
    measured = measure_all(networks, methods, KEPT, source=compared)
    families = {
        title: grouped(measured, methods, [n for n in networks if n.name.startswith(start)])
        for title, start in FAMILIES.items()
    }
    focal_trained = [n for n in networks if n.name.startswith(FAMILIES[FOCAL_TRAINED])]
    lines = {n.name: lines_of(n, parameters["gammas"]) for n in focal_trained}
    pairs = [
        pair_of(network, parameters["trained_gamma"], parameters["n_classes"])
        for network in focal_trained
    ]
    printed = list(printed_pairs(parameters["n_classes"]))
    values: dict[str, float] = {}
    for title, results in families.items():
        values |= {f"{title}: {name}": value for name, value in values_of(results).items()}
    values |= values_of_lines(lines) | values_of_pairs(pairs, printed)
    return Result(
        values=values,
        tables={
            "families": table_of_families(families),
            "networks": table_of_networks(families["all"]),
            "lines": table_of_lines(lines),
            "pairs": replace(table_of_pairs([*pairs, *printed]), title=PAIRS_TITLE),
        },
        pictures={"networks": draw(families, lines)},
        notes=[
            "Intervals: test images are drawn anew, the same for all networks of a data set; fits "
            "are not repeated. ECE has 15 bins of equal width, AdaECE 15 of equal mass; "
            "Komisarenko and Kull use the second and call it ECE.",
            "Their grid: nine gammas without 0, T from 0.01 to 5 by 0.01; T by NLL alone is the "
            "minimum itself.",
            "T as a product: T of cross-entropy is the one that Mukhoti et al. print, by ECE on "
            "0.1 to 10 by 0.1; T found is by the same rule from the networks themselves. FLSD-53 "
            "has gamma 5 for p below 0.2 and 3 above, so 3 for nearly all of a fitted training "
            "set.",
        ],
    )


def differences_of(results: ByMethod) -> dict[str, Interval]:
    """Differences with intervals, by their names, which start with the metric."""
    wanted = {
        f"{called}, focal temperature minus temperature, both by {called}": (
            criterion,
            FOCAL[criterion],
            PLAIN[criterion],
        )
        for criterion, called in CRITERIA.items()
    }
    wanted |= {
        "AdaECE, auto minus focal temperature by AdaECE": ("ada_ece", AUTO, FOCAL["ada_ece"]),
        "NLL, auto minus temperature by NLL": ("nll", AUTO, PLAIN["nll"]),
        "AdaECE, search on a line minus grid": ("ada_ece", LINE, FOCAL["ada_ece"]),
    }
    return {
        name: difference_to(metric, reference, results[mine], results[reference]).interval
        for name, (metric, mine, reference) in wanted.items()
    }


def values_of(results: ByMethod) -> dict[str, float]:
    """Means by the criterion that each method minimises, T of temperature, and differences."""
    found: dict[str, float] = {
        "networks": len(results[AS_IT_IS]),
        "accuracy %": mean(results[AS_IT_IS], "accuracy"),
    }
    for criterion, called in CRITERIA.items():
        for method in (AS_IT_IS, PLAIN[criterion], FOCAL[criterion], AUTO):
            found[f"{called}{unit(criterion)}, {method}"] = mean(results[method], criterion)
        found[f"T, {PLAIN[criterion]}"] = mean_fact(results[PLAIN[criterion]], "temperature")
    for name, each in differences_of(results).items():
        points = 1.0 if name.startswith("NLL") else 100.0
        found |= {key: points * value for key, value in each.named(name).items()}
    for method, by in {"temperature": PLAIN, "focal temperature": FOCAL}.items():
        chosen = gain(results[by["ada_ece"]], results[by["nll"]], "ada_ece")
        found |= chosen.named(f"gain in AdaECE of choosing by it over NLL, {method}, %")
    versus = difference_to(
        "ada_ece", PLAIN["ada_ece"], results[FOCAL["ada_ece"]], results[PLAIN["ada_ece"]]
    )
    found |= {
        "networks with a smaller AdaECE by focal temperature": versus.wins,
        "networks with a larger AdaECE by focal temperature": versus.losses,
    }
    return found


def mean(results: Sequence[Measured], metric: str) -> float:
    """Mean over networks; errors in percent."""
    scale = 1.0 if metric == "nll" else 100.0
    return scale * float(np.mean([result.values[metric] for result in results]))


def unit(metric: str) -> str:
    """What is written behind the name of a metric."""
    return "" if metric == "nll" else " %"


def lines_of(network: Network, gammas: Sequence[float]) -> dict[str, Line]:
    """The best T for each gamma on the validation part, by each criterion."""
    found = {}
    for criterion in LINE_CRITERIA:
        fits = [
            FocalTemperatureScaling(criterion=criterion, gammas=[gamma]).fit(*network.part("val"))
            for gamma in gammas
        ]
        found[criterion] = Line(
            gammas=np.array(gammas),
            temperatures=np.array([fit.temperature_ for fit in fits]),
            at_edge=sum(fit.report_.at_bound is not None for fit in fits),
        )
    return found


def values_of_lines(lines: Mapping[str, Mapping[str, Line]]) -> dict[str, float]:
    """Straightness and slope of the focal-trained networks."""
    found: dict[str, float] = {}
    for criterion in LINE_CRITERIA:
        chosen = f"T of the map's gamma by {CRITERIA[criterion]}"
        of = [each[criterion] for each in lines.values()]
        found |= {
            f"{chosen}: R² of a line, {architecture(name)}": each[criterion].straightness
            for name, each in lines.items()
        }
        found |= {
            f"{chosen}: smallest R² of a line": min(line.straightness for line in of),
            f"{chosen}: median slope of T(gamma)/T(0)": float(
                np.median([line.slope_from_zero for line in of])
            ),
            f"{chosen}: at an end of the search": sum(line.at_edge for line in of),
        }
    return found


def architecture(name: str) -> str:
    """The architecture of a focal-trained network, by the name of its file."""
    return NETWORKS[name.removeprefix(f"{FAMILIES[FOCAL_TRAINED]}_")]


def pair_of(network: Network, gamma: float, n_classes: int) -> Pair:
    """The printed T of cross-entropy, the map's T, and the T found on the network itself."""
    name = architecture(network.name)
    logits, labels = network.part("val")
    return Pair(
        "CIFAR-10",
        name,
        gamma=gamma,
        plain=float(cells_of_tables()["ece", "T", "CIFAR-10", name]["ce"]),
        focal=TemperatureScaling(criterion="ece", grid=GRID.tolist())
        .fit(logits, labels)
        .temperature_,
        simplex=on_simplex(gamma=gamma, n_classes=n_classes),
        own=closest_after(logits, gamma),
        source="FLSD-53",
    )


def printed_pairs(n_classes: int) -> Iterator[Pair]:
    """T of cross-entropy and of FL-1 to FL-3, both as Mukhoti et al. print them."""
    for (quantity, stage, data, network), row in cells_of_tables().items():
        if (quantity, stage) == ("ece", "T"):
            for gamma in PRINTED_GAMMAS:
                few = 2 if data == "SST Binary" else n_classes
                yield Pair(
                    data,
                    network,
                    gamma=gamma,
                    plain=float(row["ce"]),
                    focal=float(row[f"fl-{gamma:g}"]),
                    simplex=on_simplex(gamma=gamma, n_classes=few),
                    source=f"FL-{gamma:g}, as printed",
                )


def values_of_pairs(pairs: Sequence[Pair], printed: Sequence[Pair]) -> dict[str, float]:
    """How far the product is from the temperature found."""
    found = {f"T by ECE, {pair.where}": pair.focal for pair in pairs}
    found |= found_over_composed("FLSD-53, map's T on own outputs", pairs, BY_OWN)
    found |= found_over_composed("FLSD-53, map's T on the simplex", pairs, BY_SIMPLEX)
    found |= found_over_composed(
        "FL-1 to FL-3 as printed, map's T on the simplex", printed, BY_SIMPLEX
    )
    of_plain = mean_ratio([pair.focal / pair.plain for pair in pairs])
    return found | of_plain.named("found / T of cross-entropy, FLSD-53")


def table_of_families(families: Mapping[str, ByMethod]) -> Table:
    """Means of every method on every family, and what the map adds to a temperature."""
    rows = []
    for title, results in families.items():
        added = {
            FOCAL[criterion]: shown_difference(
                difference_to(
                    criterion, PLAIN[criterion], results[focal], results[PLAIN[criterion]]
                )
            )[0]
            for criterion, focal in FOCAL.items()
        }
        for method, of in results.items():
            rows.append(
                [
                    f"{title} ({len(of)})",
                    method,
                    *(f"{mean(of, metric):.{4 if metric == 'nll' else 2}f}" for metric in CRITERIA),
                    f"{100.0 - mean(of, 'accuracy'):.2f}",
                    added.get(method, ""),
                ]
            )
    head = [
        *("networks", "method", "ECE %", "AdaECE %", "NLL", "error %"),
        "its criterion minus that of temperature [95%]",
    ]
    return Table("Means over networks, test images", head, rows)


def table_of_networks(results: ByMethod) -> Table:
    """AdaECE of each network, with what was fitted in brackets."""
    shown = (AS_IT_IS, PLAIN["ada_ece"], FOCAL["ada_ece"], LINE, AUTO)
    rows = []
    for i, first in enumerate(results[AS_IT_IS]):
        row = [first.network]
        for method in shown:
            each = results[method][i]
            fitted = [
                f"{each.facts[name]:.3g}" for name in ("gamma", "temperature") if name in each.facts
            ]
            row.append(
                f"{100 * each.values['ada_ece']:.2f}"
                + (f" ({', '.join(fitted)})" if fitted else "")
            )
        rows.append(row)
    return Table("AdaECE %, test images; (gamma, T) in brackets", ["network", *shown], rows)


def table_of_lines(lines: Mapping[str, Mapping[str, Line]]) -> Table:
    """The best T for each gamma."""
    gammas = next(iter(lines.values()))["nll"].gammas
    rows = [
        [
            name,
            CRITERIA[criterion],
            *(f"{t:.2f}" for t in line.temperatures),
            f"{line.straightness:.4f}",
        ]
        for name, of in lines.items()
        for criterion, line in of.items()
    ]
    head = ["network", "T by", *(f"gamma {gamma:g}" for gamma in gammas), "R²"]
    return Table("The best T for each gamma of the map, validation images", head, rows)


def draw(families: Mapping[str, ByMethod], lines: Mapping[str, Mapping[str, Line]]) -> Figure:
    """AdaECE of every network by method, and T over gamma of the focal-trained ones."""
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_errors(left, families)
    for i, (name, of) in enumerate(lines.items()):
        for criterion, style in zip(LINE_CRITERIA, ("-", ":"), strict=True):
            right.plot(of[criterion].gammas, of[criterion].temperatures, style, color=look(i).color,
                       marker=look(i).marker, markersize=3,
                       label=architecture(name) if criterion == "ada_ece" else None)  # fmt: skip
    right.plot([], [], "k:", label="by NLL")
    right.set(xlabel=r"$\gamma$ of the map", ylabel="best T", title="FLSD-53, T by AdaECE")
    right.legend(frameon=False, fontsize="small")
    return figure


def draw_errors(ax: Axes, families: Mapping[str, ByMethod]) -> None:
    """AdaECE by temperature against that by focal temperature and by auto."""
    ends = (0.3, 9.0)
    ax.plot(ends, ends, **GUIDE)
    for i, (title, results) in enumerate(families.items()):
        if title == "all":
            continue
        plain = [100 * each.values["ada_ece"] for each in results[PLAIN["ada_ece"]]]
        for method, fill in {FOCAL["ada_ece"]: "full", AUTO: "none"}.items():
            other = [100 * each.values["ada_ece"] for each in results[method]]
            ax.plot(plain, other, look(i).marker, color=look(i).color, fillstyle=fill, markersize=5,
                    label=title if fill == "full" else None)  # fmt: skip
    ax.plot([], [], "o", color="0.4", fillstyle="none", markersize=5, label="auto")
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = (0.5, 1, 2, 4)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="AdaECE %, temperature", ylabel="AdaECE %, focal temperature (filled), auto")
    ax.legend(frameon=False, loc="upper left", fontsize="small")
