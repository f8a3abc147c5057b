"""What each action costs if a class is the true one."""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.metrics.samples import Floats

REJECT = "reject"


@dataclass(frozen=True, eq=False)
class CostMatrix:
    """Costs of actions; negative ones are gains."""

    values: Floats
    """(classes, actions): the cost of an action if a class is the true one."""
    actions: tuple[str, ...] | None = None
    """None if they are not named."""
    classes: tuple[str, ...] | None = None
    """The class of each row; None if the rows are in the order of the classes."""

    def __post_init__(self) -> None:
        for what, names in (("action", self.actions), ("class", self.classes)):
            for name, count in Counter(names or ()).items():
                if count > 1:
                    raise CalibrantError(
                        f"costs must name each {what} once; found {name!r} {count} times. Rename "
                        "or leave out the others"
                    )

    def in_order_of(self, classes: Sequence[Any]) -> CostMatrix:
        """The same with rows in the order of ``classes``, matched by name, and named actions."""
        if len(self.values) != len(classes):
            raise CalibrantError(
                f"costs must have a row for each of the {len(classes)} classes; found "
                f"{len(self.values)} rows. Rows are true classes, columns actions"
            )
        values, actions = self.values, self.actions
        if self.classes is not None:
            for name in classes:
                if str(name) not in self.classes:
                    raise CalibrantError(
                        f"costs must have a row for each class; found none for {name!r}, only "
                        f"{_inputs.shown(self.classes)}. Name the rows after the classes"
                    )
            values = values[[self.classes.index(str(name)) for name in classes]]
        if actions is None:
            square = values.shape[0] == values.shape[1]
            actions = tuple(map(str, classes if square else range(values.shape[1])))
        return CostMatrix(values, actions, tuple(map(str, classes)))

    def with_rejection(self, cost: float | None) -> CostMatrix:
        """The same with a last action that costs the same whatever is true."""
        if cost is None:
            return self
        column = np.full((len(self.values), 1), _inputs.finite_number(cost, REJECT))
        actions = None if self.actions is None else (*self.actions, REJECT)
        return replace(self, values=np.hstack([self.values, column]), actions=actions)


def cost_matrix(costs: Any) -> CostMatrix:
    """Costs from an array, from a dict of actions, from a frame or from a CSV file."""
    if isinstance(costs, CostMatrix):
        return costs
    if isinstance(costs, str | os.PathLike):
        return read_costs(costs)
    actions = classes = None
    if isinstance(costs, Mapping) or _inputs.is_of_frames(costs):
        actions = tuple(map(str, getattr(costs, "columns", costs)))
        index = list(getattr(costs, "index", ()))
        named = not all(isinstance(each, int) for each in index)
        classes = tuple(map(str, index)) if named else None
        CostMatrix(np.empty((0, len(actions))), actions)  # a frame may have a column twice
        columns = [_column(name, costs[name]) for name in getattr(costs, "columns", costs)]
        costs = np.column_stack(columns) if len({len(each) for each in columns}) == 1 else columns
    values = _inputs.as_numpy(_inputs.floating(costs, "costs")).astype(np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise CalibrantError(
            f"costs must be a matrix; found shape {values.shape}. Rows are true classes, columns "
            "actions"
        )
    _inputs.refuse(
        ~np.isfinite(values),
        "costs must be finite; found NaN or infinity in {where}. Fill in the cost",
    )
    return CostMatrix(values, actions, classes)


def _column(action: Any, costs: Any) -> Any:
    """The costs of one action."""
    column = _inputs.as_numpy(costs)
    if column.ndim != 1:
        raise CalibrantError(
            f"costs of each action must be a list with a number for each class; found "
            f"{_inputs.described(costs)} for {action!r}. Write {{{action!r}: [10, 0], ...}}, or "
            "pass a frame with the classes as its index"
        )
    return column


def read_costs(path: str | os.PathLike[str]) -> CostMatrix:
    """Read a CSV file: a row for each true class, a column for each action, and their names.

    The first line names the actions, the first column the classes::

        true,treat,wait
        sick,0,500
        healthy,10,0
    """
    file = _inputs.path(path, "costs")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file} of costs. Check the path")
    with file.open(newline="", encoding="utf-8-sig") as lines, _inputs.naming(str(file)):
        try:
            head, *rows = [row for row in csv.reader(lines) if row]
        except UnicodeDecodeError:
            raise CalibrantError(
                "costs must be UTF-8 text; found other bytes. Save the file as UTF-8"
            ) from None
        except (ValueError, csv.Error):
            raise CalibrantError(
                "costs need a first line of action names; found none. Name the actions in the "
                "first line and the classes in the first column"
            ) from None
        if len(head) < 2 or not rows or any(len(row) != len(head) for row in rows):
            raise CalibrantError(
                "every line of costs must have a class and a number for each action; found lines "
                f"of {sorted({len(row) for row in (head, *rows)})} cells. Name the actions in the "
                "first line and the classes in the first column"
            )
        return CostMatrix(
            np.array([[_number(cell) for cell in row[1:]] for row in rows]),
            tuple(name.strip() for name in head[1:]),
            tuple(row[0].strip() for row in rows),
        )


def _number(cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CalibrantError(f"costs must be finite numbers; found {cell[:40]!r}. Write a number")
    return value
