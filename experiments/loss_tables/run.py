"""The paper's cells and ours in the same tables, and its claims as counts over our runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from experiments.loss_tables import paper
from experiments.loss_tables.measuring import (
    BY_NLL,
    Measured,
    difference,
    has_learned,
    measure,
    significantly_more_sure,
)
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import Place, finished, missing, title

COLUMNS = (
    *("mmce-published" if loss == "mmce" else loss for loss in paper.LOSSES),
    *("mmce", "adafocal"),
)
PAIRS = (
    ("fl-3", "ce"),
    ("fla-53", "ce"),
    ("fla-53", "fl-3"),
    ("fla-53", "brier"),
    ("fla-53", "mmce"),
    ("fla-53", "mmce-published"),
    ("adafocal", "ce"),
)
"""Pairs whose ECE is compared on the same test samples: the first minus the second."""
TABLES = {
    "ece": "ECE %, before / after temperature scaling (T by ECE): Tables 1, 4 and 7",
    "ada_ece": "AdaECE %, before / after (T by AdaECE): Tables 2, 5 and 8",
    "error": "Test error %: Tables 3 and 9",
    "s99": "Test samples with confidence above 0.99, %, before / after: Table 6",
    "s99_accuracy": "Right among those, %, before / after: Table 6",
    "nll": "NLL %, before / after (T by ECE): Tables 10 and 11",
    "mce": "MCE %, before / after (T by ECE): Tables 12 and 13",
}
NOT_RUN = "not run here"

Runs = Mapping[Place, Mapping[str, Measured]]


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure every finished run as the paper does; tables, differences, counts."""
    found = finished(parameters["grids"], parameters["folder"])
    ours = {
        place: {loss: measure(each, parameters["tenths"]) for loss, each in runs.items()}
        for place, runs in found.items()
    }
    # A network that has learned nothing is calibrated and says nothing about its loss.
    learned = {
        place: {
            loss: each
            for loss, each in of_place.items()
            if has_learned(each.run, parameters["learned_below"])
        }
        for place, of_place in ours.items()
    }
    printed = paper.cells()
    values: dict[str, float] = {"networks trained here": len(ours)}
    rows = []
    for a, b in PAIRS:
        rows += compared(values, learned, printed, a, b)
    for (data, network), of_place in ours.items():
        for loss, each in of_place.items():
            name = f"{data}, {network}, {title(loss)}"
            values[f"{name}: training error %"] = 100.0 * each.run.training_error
            values[f"{name}: ECE % before T"] = each.cells["ece", "before"]
    same_networks(values, ours)
    temperatures(values, learned, printed, parameters["near_one"])
    sure(values, learned)
    head = ["data", "network", "by", *map(title, COLUMNS)]
    tables = {
        quantity: Table(text, head, side_by_side(quantity, printed, ours))
        for quantity, text in TABLES.items()
    }
    tables["differences"] = Table(
        "ECE in percentage points on the same test samples, 95% intervals; bold: not noise",
        ["first minus second", "data", "network", "test n", "before T", "after T", "errors %"],
        rows,
    )
    idle = [
        each.run.recipe.name
        for place, of_place in ours.items()
        for loss, each in of_place.items()
        if loss not in learned[place]
    ]
    values["runs that have learned nothing"] = len(idle)
    notes = [parameters["about"], SIGNIFICANT]
    if idle:
        notes.append(
            f"Learned nothing, and left out of differences and counts: {', '.join(idle)}. Their "
            "test error is about that of always naming the commonest class."
        )
    return Result(values, tables, notes=notes, unfinished=missing(parameters["grids"], found))


def compared(
    values: dict[str, float], ours: Runs, printed: paper.Cells, a: str, b: str
) -> list[list[str]]:
    """One pair of losses on every network: differences, and how many are significant."""
    pair, rows = f"{title(a)} against {title(b)}", []
    verdicts: dict[str, list[str]] = {"before": [], "after": []}
    for (data, network), of_place in ours.items():
        if a not in of_place or b not in of_place:
            continue
        one, other = of_place[a], of_place[b]
        cells = []
        for stage, seen in verdicts.items():
            found = difference(one, other, stage)
            assert found.low is not None
            assert found.high is not None
            seen.append(found.verdict)
            low, high = 100.0 * found.low, 100.0 * found.high
            text = f"{100.0 * found.difference:+.2f} [{low:+.2f}, {high:+.2f}]"
            cells.append(text if found.verdict == "not distinguishable" else f"**{text}**")
            name = f"{data}, {network}: ECE % {stage} T, {title(a)} minus {title(b)}"
            values[name] = 100.0 * found.difference
            values[f"{name}, low"], values[f"{name}, high"] = low, high
        n = str(len(one.run.test.labels))
        errors = " / ".join(f"{each.cells['error', 'before']:.2f}" for each in (one, other))
        rows.append([f"{title(a)} - {title(b)}", data, network, n, *cells, errors])
    for stage, seen in verdicts.items():
        values[f"{pair}, ECE {stage} T: significantly smaller"] = seen.count("better")
        values[f"{pair}, ECE {stage} T: significantly larger"] = seen.count("worse")
        values[f"{pair}, ECE {stage} T: noise"] = seen.count("not distinguishable")
        columns = [paper.PUBLISHED.get(loss, loss) for loss in (a, b)]
        if {*columns} <= {*paper.LOSSES}:
            counted = paper.smaller(printed, stage, *columns)
            values[f"the paper's ten: {pair}, ECE {stage} T: smaller"] = counted
    return rows


def same_networks(values: dict[str, float], ours: Runs) -> None:
    """Our cells where data set and network are the paper's, by the names of its tables."""
    names = {"error": "error", "ece": "ECE", "ada_ece": "AdaECE", "nll": "NLL", "mce": "MCE"}
    for (data, network), of_place in ours.items():
        if network not in paper.SAME_NETWORKS:
            continue
        for loss, each in of_place.items():
            for (quantity, stage), cell in each.cells.items():
                if quantity in names:
                    ending = "" if quantity == "error" else f" {stage} T"
                    name = f"{data}, {network}, {title(loss)}: {names[quantity]} %{ending}"
                    values[name] = cell


def temperatures(
    values: dict[str, float], ours: Runs, printed: paper.Cells, near_one: list[float]
) -> None:
    """Whether the best temperature is near 1 for focal losses, and not for others."""
    low, high = near_one
    for loss in ("ce", "mmce-published", "fl-3", "fla-53"):
        found = [of[loss].temperature["ece"] for of in ours.values() if loss in of]
        name = f"{title(loss)}: T by ECE from {low:g} to {high:g}"
        values[name] = sum(low <= t <= high for t in found)
        values[f"{title(loss)}: T by ECE below {low:g}"] = sum(t < low for t in found)
        column = paper.PUBLISHED.get(loss, loss)
        within = paper.temperatures_within(printed, column, low, high)
        values[f"the paper's ten: {name}"] = within
    both = [of for of in ours.values() if "ce" in of and "fla-53" in of]
    values["FLA-53: T nearer to 1 than that of cross-entropy"] = sum(
        away_from_one(of["fla-53"]) < away_from_one(of["ce"]) for of in both
    )
    for (data, network), of_place in ours.items():
        for loss, each in of_place.items():
            values[f"{data}, {network}, {title(loss)}: T by ECE"] = each.temperature["ece"]


def away_from_one(one: Measured) -> float:
    """How far T is from 1, as a factor: 2 and 1/2 are equally far."""
    return abs(math.log(one.temperature["ece"]))


def sure(values: dict[str, float], ours: Runs) -> None:
    """Predictions above 0.99, and whether a focal loss keeps them after scaling."""
    stages = {"before T": "before", "after T by ECE": "after", "after T by NLL": BY_NLL}
    for (data, network), of_place in ours.items():
        for loss, each in of_place.items():
            for words, stage in stages.items():
                values[f"{data}, {network}, {title(loss)}: S99 %, {words}"] = each.cells[
                    "s99", stage
                ]
    for loss in ("ce", "mmce-published"):
        both = [of for of in ours.values() if loss in of and "fla-53" in of]
        for words, stage in stages.items():
            fewer = [of["fla-53"].cells["s99", stage] < of[loss].cells["s99", stage] for of in both]
            more = [of["fla-53"].cells["s99", stage] > of[loss].cells["s99", stage] for of in both]
            name = f"S99 {words}: FLA-53 has {{}} than {title(loss)}"
            values[name.format("fewer")], values[name.format("more")] = sum(fewer), sum(more)
            sided = [significantly_more_sure(of["fla-53"], of[loss], stage) for of in both]
            values[name.format("significantly fewer")] = sided.count(-1)
            values[name.format("significantly more")] = sided.count(1)


def side_by_side(quantity: str, printed: paper.Cells, ours: Runs) -> list[list[str]]:
    """The rows of a table: every network of the paper, each followed by ours on the same data."""
    rows, shown = [], set()
    of_paper = [key[2:] for key in printed if key[:2] == (quantity, "before")]
    for i, (data, network) in enumerate(of_paper):
        rows.append([data, network, "paper", *printed_cells(printed, quantity, data, network)])
        last = i + 1 == len(of_paper) or of_paper[i + 1][0] != data
        for place in ours:
            if last and paper.SAME_DATA.get(place[0]) == data:
                rows.append([*place, "here", *our_cells(ours[place], quantity)])
                shown.add(place)
    for place in ours:
        if place not in shown:
            rows.append([*place, "here", *our_cells(ours[place], quantity)])
    return rows


def printed_cells(printed: paper.Cells, quantity: str, data: str, network: str) -> list[str]:
    """One row of the paper."""
    cells = []
    for loss in COLUMNS:
        column = paper.PUBLISHED.get(loss, loss)
        before, after, temperature = (
            printed.get((quantity, stage, data, network), {}).get(column, "")
            for stage in ("before", "after", "T")
        )
        after = f" / {after}" if after else ""
        scaled = f" ({temperature})" if temperature else ""
        cells.append(f"{before}{after}{scaled}" if before else "not printed")
    return cells


def our_cells(runs: Mapping[str, Measured], quantity: str) -> list[str]:
    """The same row from runs made here."""
    cells = []
    for loss in COLUMNS:
        if loss not in runs:
            cells.append(NOT_RUN)
            continue
        one = runs[loss]
        keys = [
            (quantity, stage) for stage in ("before", "after") if (quantity, stage) in one.cells
        ]
        shown = [one.cells[key] for key in keys]
        text = " / ".join("none" if math.isnan(cell) else f"{cell:.2f}" for cell in shown)
        scaled = one.temperature[quantity] if quantity in ("ece", "ada_ece") else None
        cells.append(text if scaled is None else f"{text} ({scaled:.1f})")
    return cells


SIGNIFICANT = (
    "Significant means that the 95% interval of the paired difference on the same test samples "
    "leaves out 0; one seed, so the interval is about other test samples, not about other "
    "trainings."
)
