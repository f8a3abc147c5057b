"""The paper's cells of 20 Newsgroups beside runs of its length, on messages divided at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import calibrant
from experiments.loss_tables import paper, run as loss_tables
from experiments.loss_tables.measuring import Measured, measure
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import finished, title

HERE = ("20newsgroups", "text-cnn")
THERE = ("20 Newsgroups", "Global Pooling CNN")
METRICS = {"error": "error_rate", "ece": "ece", "ada_ece": "ada_ece", "nll": "nll", "mce": "mce"}

Range = tuple[float, float]


def run(parameters: Mapping[str, Any]) -> Result:
    """The loss tables of the runs, and every printed cell with what other messages could show."""
    found = loss_tables.run(parameters)
    values = {n: value for n, value in found.values.items() if not n.startswith("the paper's ten")}
    tables = {
        name: replace(table, rows=[row for row in table.rows if row[0] in (HERE[0], THERE[0])])
        if name in loss_tables.TABLES
        else table
        for name, table in found.tables.items()
    }
    printed, rows, within = paper.cells(), [], 0
    for loss, each in finished(parameters["grids"], parameters["folder"]).get(HERE, {}).items():
        one = measure(each, parameters["tenths"])
        ranges = {**of_test_messages(one, parameters), **of_temperatures(one, parameters)}
        for (quantity, stage), name in paper.QUANTITIES.items():
            cell = float(printed[quantity, stage, *THERE][paper.PUBLISHED.get(loss, loss)])
            seen = one.temperature[quantity] if stage == "T" else one.cells[quantity, stage]
            low, high = ranges[quantity, stage]
            inside = bool(low <= cell <= high)
            within += inside
            values[f"{title(loss)}: {name}"] = seen
            spans = f"{low:.2f} to {high:.2f}"
            row = [title(loss), name, f"{cell:g}", f"{seen:.2f}", spans]
            rows.append([*row, "yes" if inside else "**no**"])
    values["printed cells"] = len(rows)
    values["printed cells within the range of a further run"] = within
    tables["cells"] = Table(
        "Printed cells, and the 95% range of the same networks on other messages",
        ["loss", "quantity", "paper", "here", "range", "within"],
        rows,
    )
    return replace(found, values=values, tables=tables, notes=[*found.notes, NOTE])


def of_test_messages(one: Measured, parameters: Mapping[str, Any]) -> dict[tuple[str, str], Range]:
    """The range of every test metric for as many other messages as the paper has."""
    logits, labels = one.run.test.logits, one.run.test.labels
    factor = wider(len(labels), parameters["test_messages"])
    found = {}
    for stage, t, quantities in (
        ("before", 1.0, (*METRICS,)),
        ("after", one.temperature["ece"], ("ece", "nll", "mce")),
        ("after", one.temperature["ada_ece"], ("ada_ece",)),
    ):
        metrics = [METRICS[quantity] for quantity in quantities]
        evaluation = calibrant.evaluate(logits=logits / t, labels=labels, metrics=metrics)
        for quantity in quantities:
            seen = evaluation[METRICS[quantity]]
            assert seen.low is not None
            assert seen.high is not None
            low = seen.value - factor * (seen.value - seen.low)
            high = seen.value + factor * (seen.high - seen.value)
            found[quantity, stage] = (max(0.0, 100.0 * low), 100.0 * high)
    return found


def of_temperatures(one: Measured, parameters: Mapping[str, Any]) -> dict[tuple[str, str], Range]:
    """The range of T for as many other validation messages as the paper has."""
    logits, labels = one.run.val.logits, one.run.val.labels
    factor = wider(len(labels), parameters["val_messages"])
    rng = np.random.default_rng(parameters["seed"])
    draws = [rng.integers(len(labels), size=len(labels)) for _ in range(parameters["draws"])]
    found = {}
    first, last = parameters["tenths"]
    grid = [tenth / 10.0 for tenth in range(first, last + 1)]
    for quantity in ("ece", "ada_ece"):
        scaling = calibrant.TemperatureScaling(criterion=quantity, grid=grid)
        best = [scaling.fit(logits[rows], labels[rows]).temperature_ for rows in draws]
        seen = one.temperature[quantity]
        low, high = np.quantile(best, [0.025, 0.975])
        found[quantity, "T"] = (seen - factor * (seen - low), seen + factor * (high - seen))
    return found


def wider(ours: int, theirs: int) -> float:
    """How much wider than our interval a range is if their messages are drawn too."""
    return float((1.0 + ours / theirs) ** 0.5)


NOTE = (
    "The range of a further run is that of the same networks on other messages, of which the paper "
    "has 3999 to test and 900 to choose T. Another training would make it wider: a cell within "
    "does not differ, one outside may differ by the seed."
)
