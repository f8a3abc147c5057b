"""Focal temperature scaling by line, by grid and refined, on every network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from calibrant import FocalTemperatureScaling, TemperatureScaling
from experiments.focal_temperature.gains import gain, over_data_sets
from experiments.results import Result as Outcome
from experiments.scoreboard import tables
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.methods import Method, calibrant_method
from experiments.scoreboard.networks import all_networks, data_of, families
from experiments.scoreboard.run import grouped, measure_all
from experiments.scoreboard.tables import PERCENT, Family, difference_to, shown_difference
from experiments.tables import Table

KEPT = Path("out/line-search/results")
CRITERIA = ("ada_ece", "nll")
SEARCHES = ("grid", "line", "refine")
CALLED = {"ada_ece": "ECE", "nll": "NLL"}
TEMPERATURE = "temperature alone"
HALFWAY = "halfway from temperature to the grid"
VALIDATION_TIE = 1e-9

ByMethod = Mapping[str, Sequence[Result]]


def title_of(search: str, criterion: str) -> str:
    """The name of a method."""
    return f"{search} by {criterion}"


def searches() -> list[Method]:
    """The three searches by both criteria, and temperature scaling, which has no gamma."""

    def scaling(search: str, criterion: str) -> Method:
        return calibrant_method(
            title_of(search, criterion),
            lambda: FocalTemperatureScaling(criterion=criterion, search=search),
        )

    def temperature(criterion: str) -> Method:
        return calibrant_method(
            title_of(TEMPERATURE, criterion), lambda: TemperatureScaling(criterion=criterion)
        )

    return [
        method
        for criterion in CRITERIA
        for method in (*(scaling(s, criterion) for s in SEARCHES), temperature(criterion))
    ]


def run(parameters: Mapping[str, Any]) -> Outcome:
    """Measure the missing results, then the loss of each search."""
    networks, methods = all_networks(), searches()
    measured = measure_all(networks, methods, KEPT, source=searches)
    values: dict[str, float] = {"networks": len(networks)}
    shown: dict[str, Table] = {}
    values |= gains_of_line(grouped(measured, methods, networks))
    for criterion in parameters["criteria"]:
        for search in parameters["searches"][1:]:
            for name, value in lost(search, criterion, grouped(measured, methods, networks)):
                values[f"{search} against grid by {CALLED[criterion]}: {name}"] = value
        for title, members in families(networks).items():
            if title in parameters["families"]:
                results = grouped(measured, methods, members)
                name = f"{title.lower()}-by-{CALLED[criterion].lower()}"
                shown[name] = table(f"{title}, {len(members)} networks", criterion, results)
    return Outcome(
        values=values,
        tables=shown,
        notes=[
            "The paper proposes the line and leaves open what it loses: there is no number of the "
            "paper's to compare with. Losses are in percent of what the grid reaches, means over "
            "networks; below 0 is better than the grid, which both searches can be, since they try "
            "other points.",
            "95% intervals of the test set are in the tables; they come from resampled images, "
            "drawn once for all networks that saw the same.",
        ],
    )


def gains_of_line(results: ByMethod) -> dict[str, float]:
    """What the line gains in test ECE over temperature scaling and over the grid, all by ECE.

    Gains are in percent, with intervals of images and of data sets; differences are in points, with
    intervals of images. A line that gains over the errors halfway between those two loses less than
    half of what the grid gains.
    """
    line, grid, alone = (
        results[title_of(search, "ada_ece")] for search in ("line", "grid", TEMPERATURE)
    )
    data = [data_of(each.network) for each in line]
    found: dict[str, float] = {}
    compared = {"temperature": alone, "the grid": grid, HALFWAY: halfway(alone, grid)}
    for against, others in compared.items():
        name = f"gain in ECE of the line over {against}, %"
        low, high = over_data_sets(line, others, "ada_ece", data)
        found |= gain(line, others, "ada_ece").named(name)
        found |= {
            f"{name}: data sets resampled, from": low,
            f"{name}: data sets resampled, to": high,
        }
    pairs = {"line minus grid": (line, grid), "grid minus temperature": (grid, alone)}
    for name, (mine, reference) in pairs.items():
        points = difference_to("ada_ece", name, mine, reference).interval
        named = points.named(f"points of test ECE, {name}")
        found |= {key: 100.0 * value for key, value in named.items()}
    return found


def halfway(one: Sequence[Result], other: Sequence[Result]) -> list[Result]:
    """Results whose metrics, and those of every resample, are the means of two."""
    return [
        replace(
            a,
            method=HALFWAY,
            values={name: (a.values[name] + b.values[name]) / 2.0 for name in a.values},
            resampled={name: (a.resampled[name] + b.resampled[name]) / 2.0 for name in a.resampled},
        )
        for a, b in zip(one, other, strict=True)
    ]


def lost(search: str, criterion: str, results: ByMethod) -> Iterator[tuple[str, float]]:
    """Loss of a search against the grid, on validation and test data, and its trials."""
    mine, grid = results[title_of(search, criterion)], results[title_of("grid", criterion)]
    reached = np.array([[r.facts["after"] for r in each] for each in (mine, grid)])
    yield "loss on validation, %", 100.0 * float(reached[0].mean() / reached[1].mean() - 1.0)
    more = reached[0] - reached[1]
    yield "networks better on validation", int((more < -VALIDATION_TIE).sum())
    yield "networks worse on validation", int((more > VALIDATION_TIE).sum())
    on_test = np.array([[r.values[criterion] for r in each] for each in (mine, grid)])
    yield "loss on test, %", 100.0 * float(on_test[0].mean() / on_test[1].mean() - 1.0)


def table(title: str, criterion: str, results: ByMethod) -> Table:
    """The parameters that each search finds on validation data, and their test metrics."""
    grid = title_of("grid", criterion)
    compared = [(metric, grid) for metric in CRITERIA]
    chosen = {
        method: results[method]
        for method in (title_of(name, criterion) for name in (*SEARCHES, TEMPERATURE))
    }
    family = tables.summarise(criterion, chosen, compared)
    unit = " %" if criterion in PERCENT else ""
    head = [
        "search",
        "evaluations",
        "s",
        f"validation {criterion}{unit}",
        "minus grid: mean",
        "worst",
        "w-l-t",
        "test ada_ece %",
        "minus grid",
        "w-l-t",
        "test nll",
        "minus grid",
        "w-l-t",
    ]
    cells = [list(_cells(method, criterion, chosen, family, compared)) for method in chosen]
    return Table(f"By {CALLED[criterion]}, {title}", head, cells)


def _cells(
    title: str,
    criterion: str,
    results: ByMethod,
    family: Family,
    compared: Sequence[tuple[str, str]],
) -> Iterator[str]:
    mine, grid = results[title], results[compared[0][1]]
    scale, digits = (100.0, 3) if criterion in PERCENT else (1.0, 5)
    after = [scale * result.facts["after"] for result in mine]
    more = [a - scale * result.facts["after"] for a, result in zip(after, grid, strict=True)]
    worst = max(range(len(more)), key=lambda i: more[i])
    yield title.removesuffix(f" by {criterion}")
    yield f"{mean(result.facts['evaluations'] for result in mine):.0f}"
    yield f"{median(result.seconds for result in mine):.2f}"
    yield f"{mean(after):.{digits}f}"
    if mine is grid:
        yield from ("", "", "")
    else:
        wins = sum(one < -VALIDATION_TIE for one in more)
        losses = sum(one > VALIDATION_TIE for one in more)
        yield f"{mean(more):+.{digits}f}"
        yield f"{more[worst]:+.{digits}f} ({mine[worst].network})"
        yield f"{wins}-{losses}-{len(more) - wins - losses}"
    row = next(row for row in family.rows if row.method == title)
    for pair in compared:
        yield tables.shown(pair[0], row.means[pair[0]])
        yield from shown_difference(row.difference(*pair))
