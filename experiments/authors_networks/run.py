"""Every cell of the paper that twelve of its own networks determine, beside the printed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

import calibrant
from calibrant.metrics.reliability import reliability_curve
from calibrant.plots.palette import GUIDE, look
from experiments.authors_networks.equal_mass import published_ada_ece
from experiments.authors_networks.measuring import (
    NETWORKS,
    Measured,
    measure,
    threshold_for_printed,
)
from experiments.catalogue import Expected
from experiments.loss_tables import paper
from experiments.loss_tables.measuring import BY_NLL
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import title

QUANTITIES = {
    "error": "error %",
    "ece": "ECE %",
    "ada_ece": "AdaECE %",
    "nll": "NLL %",
    "mce": "MCE %",
    "s99": "S99 %",
    "s99_accuracy": "S99 accuracy %",
}
STAGES = ("before", "after")
RULES: dict[str, Callable[..., float]] = {
    "the authors' bins": published_ada_ece,
    "the authors' bins, every sample": partial(published_ada_ece, drop_least=False),
    "calibrant.ada_ece": calibrant.ada_ece,
}
"""Equal-mass bins of which the printed AdaECE is made, or not."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure the networks, and compare every cell."""
    names = [f"{a}_{b}" for a in parameters["sets"] for b in NETWORKS]
    folder, printed = Path(parameters["folder"]), paper.cells()
    found = [measure(folder / f"{name}.npz", printed, parameters["tenths"]) for name in names]
    values = {named(one, *key): one.cells[key] for one in found for key in one.printed}
    same = [as_printed(text, one.cells[key]) for one in found for key, text in one.printed.items()]
    values |= {"networks": len(found), "cells": len(same), "cells as printed": sum(same)}
    ada_eces(values, found)
    choices_of_temperature(values, found)
    tested = [one for one in found if ("s99", "before") in one.printed]
    for one in tested:
        for stage in STAGES:
            name = f"{one.network}, {title(one.loss)}: threshold % for the printed S99 {stage} T"
            values[name], values[f"{name}, accuracy %"] = threshold_for_printed(one, stage)
    return Result(
        values=values,
        tables={"cells": cells_table(found), "s99": s99_table(tested)},
        pictures={"reliability": draw(found)},
        notes=NOTES,
    )


def named(one: Measured, quantity: str, stage: str) -> str:
    """The name of a cell."""
    place, what = f"{one.data}, {one.network}, {title(one.loss)}", QUANTITIES[quantity]
    if stage == "T":
        return f"{place}: T by {what.removesuffix(' %')}"
    return f"{place}: {what}" if quantity == "error" else f"{place}: {what} {stage} T"


def as_printed(text: str, value: float) -> bool:
    """Whether a value rounds to the printed one."""
    return bool(Expected(value, paper=text).same_as_paper(value))


def ada_eces(values: dict[str, float], found: Sequence[Measured]) -> None:
    """The rules of bins: how many printed AdaECEs each gives, and how far it is from the first."""
    scaled = [
        (one.printed["ada_ece", stage], one.logits / t, one.labels)
        for one in found
        for stage, t in (("before", 1.0), ("after", one.cells["ada_ece", "T"]))
    ]
    authors: list[float] = []
    for name, rule in RULES.items():
        errors = [100.0 * rule(logits=logits, labels=labels) for _, logits, labels in scaled]
        authors = authors or errors
        agree = [as_printed(text, error) for (text, *_), error in zip(scaled, errors, strict=True)]
        values[f"AdaECE as printed, of {len(scaled)}: {name}"] = sum(agree)
        away = [abs(a - b) for a, b in zip(errors, authors, strict=True)]
        values[f"AdaECE, largest difference in points: {name}"] = max(away)


def choices_of_temperature(values: dict[str, float], found: Sequence[Measured]) -> None:
    """ECE after T by ECE and by NLL: means of each loss and data set, and which is lower."""
    kinds = dict.fromkeys((title(one.loss), one.data) for one in found)
    for loss, data in kinds:
        some = [one for one in found if (title(one.loss), one.data) == (loss, data)]
        for criterion, stage in (("ECE", "after"), ("NLL", BY_NLL)):
            name = f"{loss}, {data}: mean ECE %, T by {criterion}"
            values[name] = fmean(one.cells["ece", stage] for one in some)
    better = [one.cells["ece", "after"] < one.cells["ece", BY_NLL] for one in found]
    values["T by ECE better than T by NLL"] = sum(better)


def cells_table(found: Sequence[Measured]) -> Table:
    """One row for each network."""
    rows = []
    for one in found:
        row = [one.data, one.network, title(one.loss)]
        for quantity in QUANTITIES:
            keys = [(quantity, stage) for stage in STAGES if (quantity, stage) in one.printed]
            text = " / ".join(compared(one.printed[key], one.cells[key]) for key in keys)
            scaled = (quantity, "T") in one.printed
            row.append(f"{text} ({one.cells[quantity, 'T']:.1f})" if scaled else text)
        rows.append(row)
    return Table(
        "Every cell that these networks determine, from their logits, before / after temperature "
        "scaling (T). Where it is not the printed one, that follows in brackets",
        ["data", "network", "loss", *QUANTITIES.values()],
        rows,
    )


def compared(text: str, value: float) -> str:
    """A value, with the printed one if it is another."""
    return f"{value:.2f}" if as_printed(text, value) else f"**{value:.2f}** [{text}]"


def s99_table(found: Sequence[Measured]) -> Table:
    """Table 6: what is above 0.99, and the threshold that would give the printed share."""
    rows = []
    for one in found:
        for stage in STAGES:
            both = [("s99", stage), ("s99_accuracy", stage)]
            here = [compared(one.printed[key], one.cells[key]) for key in both]
            threshold, accuracy = threshold_for_printed(one, stage)
            rows.append([one.network, stage, *here, f"{threshold:.3f}", f"{accuracy:.2f}"])
    return Table(
        "Table 6, with the FLA-53 networks: here [printed], and the threshold in percent that "
        "would give the printed share, with the accuracy above it",
        ["network", "stage", "S99 %", "accuracy %", "threshold", "accuracy there"],
        rows,
    )


def draw(found: Sequence[Measured]) -> Figure:
    """Reliability of each network before and after scaling, in the 15 bins of the paper's ECE."""
    figure = Figure(figsize=(9.2, 7.2), layout="constrained")
    axes = figure.subplots(len(found) // len(NETWORKS), len(NETWORKS), sharex=True, sharey=True)
    for ax, one in zip(axes.flat, found, strict=True):
        for i, stage in enumerate(STAGES):
            curve = reliability_curve(logits=one.scaled(stage), labels=one.labels, n_bins=15)
            label = f"{stage} T, ECE {one.cells['ece', stage]:.2f}%"
            x, y, color = curve.confidence, curve.accuracy, look(i).color
            ax.plot(x, y, "o-", markersize=3, color=color, label=label)
        ax.plot([0, 1], [0, 1], **GUIDE)
        ax.set_title(f"{one.network}, {title(one.loss)}\n{one.data}", fontsize=8)
        ax.set(aspect="equal", xlim=(0, 1), ylim=(0, 1))
        ax.legend(frameon=False, fontsize=6, loc="lower right")
    figure.supxlabel("confidence", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    return figure


NOTES = (
    "The authors trained these networks for 350 epochs; only their logits are at hand. Files of "
    "FLSD-53 are the paper's FLA-53: all their cells outside of Table 6 agree. T is the first of "
    "0.1, 0.2, ..., 10 with the smallest ECE (for AdaECE, AdaECE) on the 5000 validation images.",
    "AdaECE: the printed digits come from the bins of the authors' code. These end at the ranks "
    "floor(i n/15) of the sorted confidences, counted from 0, and leave out the least confident "
    "sample. calibrant.ada_ece counts every sample, in bins whose sizes differ by at most one: up "
    "to .02 points away, and another printed digit in half of the cells.",
    "Table 6 says Focal Loss, without a gamma; the text on it speaks of the sample-based one. Its "
    "cells do not come from the FLA-53 networks of the other tables, at T by ECE or AdaECE (1.1 "
    "both): a threshold that gives the printed share before scaling does not give it after, and "
    "the accuracy above it is not the printed one.",
    "The paper prints no classwise ECE in this version.",
)
