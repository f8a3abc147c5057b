"""Tables 1 to 13 of Mukhoti et al. (2020), and counts over their cells."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

LOSSES = (
    *("ce", "brier", "mmce", "fl-1", "fl-2", "fl-3"),
    *("fls-531", "fls-532", "fla-532", "fla-53"),
)
"""In the order of their Table 10."""
PUBLISHED = {"mmce-published": "mmce", "mmce": ""}
"""Columns of the paper by losses with another name here: its MMCE is that of its authors' code."""
SAME_DATA = {
    "cifar10-jpeg": "CIFAR-10",
    "20newsgroups": "20 Newsgroups",
    "sst-binary": "SST Binary",
}
"""The data sets of the runs made here that the paper has too."""
SAME_NETWORKS = ("text-cnn", "tree-lstm")
"""The networks of those runs that are the paper's."""

QUANTITIES = {
    ("error", "before"): "error %",
    ("ece", "before"): "ECE %",
    ("ece", "after"): "ECE % after T",
    ("nll", "before"): "NLL %",
    ("nll", "after"): "NLL % after T",
    ("ece", "T"): "T by ECE",
    ("ada_ece", "before"): "AdaECE %",
    ("ada_ece", "after"): "AdaECE % after T",
    ("ada_ece", "T"): "T by AdaECE",
    ("mce", "before"): "MCE %",
    ("mce", "after"): "MCE % after T",
}
"""The cells of a network and loss that it prints, apart from Table 6, by quantity and stage."""

Cells = dict[tuple[str, str, str, str], dict[str, str]]


def cells() -> Cells:
    """Cells as printed: by quantity, stage, data set and network, then by loss.

    ``quantity`` is ece (Tables 1, 4, 7), ada_ece (2, 5, 8), error (3, 9), s99 and s99_accuracy (6),
    nll (10, 11) or mce (12, 13), all in percent; ``stage`` is before or after temperature scaling,
    or T. What stands in two tables is the same in both, and stands here once. Table 6 has one
    column for focal loss, without a gamma; here it is fla-53, whose networks do not have these
    cells (``authors_networks``).
    """
    with (Path(__file__).parent / "paper_cells.csv").open(newline="") as file:
        return {
            (row["quantity"], row["stage"], row["data"], row["network"]): {
                loss: row[loss] for loss in LOSSES
            }
            for row in csv.DictReader(file)
        }


def networks(found: Cells) -> Iterator[tuple[str, str]]:
    """The ten data sets with networks, in the order of the tables."""
    for quantity, stage, data, network in found:
        if (quantity, stage) == ("ece", "before"):
            yield data, network


def smaller(found: Cells, stage: str, a: str, b: str) -> int:
    """On how many of the ten networks loss a has a smaller ECE than loss b."""
    rows = [found["ece", stage, *place] for place in networks(found)]
    return sum(float(row[a]) < float(row[b]) for row in rows)


def temperatures_within(found: Cells, loss: str, low: float, high: float) -> int:
    """On how many of the ten networks the best temperature by ECE lies within limits."""
    rows = [found["ece", "T", *place] for place in networks(found)]
    return sum(low <= float(row[loss]) <= high for row in rows)
