"""The loss tables of networks that fit their images, without the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.loss_tables import run as loss_tables
from experiments.results import Result
from experiments.tables import Table


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure every run; the losses that were trained, beside each other."""
    found = loss_tables.run(parameters)
    values = {n: value for n, value in found.values.items() if not n.startswith("the paper's ten")}
    tables = {
        name: of_runs(table) if name in loss_tables.TABLES else table
        for name, table in found.tables.items()
    }
    return replace(found, values=values, tables=tables)


def of_runs(table: Table) -> Table:
    """The rows of runs made here, and the columns of losses that they have."""
    rows = [row for row in table.rows if row[2] == "here"]
    columns = [
        i
        for i, name in enumerate(table.head)
        if name != "by" and any(row[i] != loss_tables.NOT_RUN for row in rows)
    ]
    head = [table.head[i] for i in columns]
    return Table(table.title, head, [[row[i] for i in columns] for row in rows])
