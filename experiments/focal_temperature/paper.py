"""Table 1 of Komisarenko and Kull (2024), as printed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One loss on one data set: a ResNet-50, mean of 5 seeds, ECE in percent.

    ``nll`` and ``ece`` are of temperature scaling, with the temperatures ``nll_t`` and ``ece_t``;
    those that begin with ``focal_`` are of focal temperature scaling with ``gamma``.
    """

    data: str
    loss: str
    accuracy: str
    nll: str
    nll_t: str
    ece: str
    ece_sd: str
    ece_t: str
    gamma: str
    focal_nll: str
    focal_nll_t: str
    focal_ece: str
    focal_ece_sd: str
    focal_ece_t: str

    @property
    def cells(self) -> list[str]:
        """The cells in our tables, with "the paper" in front; it has none before scaling."""
        return [
            self.accuracy,
            f"{self.nll} ({self.nll_t})",
            f"{self.focal_nll} ({self.gamma}, {self.focal_nll_t})",
            "",
            f"{self.ece} ± {self.ece_sd} ({self.ece_t})",
            f"{self.focal_ece} ± {self.focal_ece_sd} ({self.gamma}, {self.focal_ece_t})",
        ]


def table_1() -> dict[tuple[str, str], Row]:
    """Every row by data set and loss."""
    with (Path(__file__).parent / "table1.csv").open(newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    return {(row.data, row.loss): row for row in rows}
