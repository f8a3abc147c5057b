"""The paper's cells of 20 Newsgroups beside runs of its length, on messages divided at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.loss_tables import run as loss_tables
from experiments.loss_tables.paper import SAME_DATA
from experiments.results import Result

HERE = "20newsgroups"


def run(parameters: Mapping[str, Any]) -> Result:
    """The loss tables of the runs, without the paper's other data sets."""
    found = loss_tables.run(parameters)
    values = {n: value for n, value in found.values.items() if not n.startswith("the paper's ten")}
    tables = {
        name: replace(table, rows=[row for row in table.rows if row[0] in (HERE, SAME_DATA[HERE])])
        if name in loss_tables.TABLES
        else table
        for name, table in found.tables.items()
    }
    return replace(found, values=values, tables=tables)
