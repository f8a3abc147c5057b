"""Conditions on the columns of Parquet files, such as ``month == '2026-10' and age >= 18``.

The text is parsed as a Python expression of which only comparisons are accepted; it is never run.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from calibrant.errors import CalibrantError

Value = str | int | float

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.In: "equal",
}
"""Arrow's function for each comparison; of several values, one must be equal."""


class Clause(NamedTuple):
    """A column compared with one value or several."""

    column: str
    function: str
    values: tuple[Value, ...]

    def over(self, column: Any, kind: Any) -> Any:
        """Where Arrow's ``column``, of the type ``kind``, meets it."""
        from pyarrow import compute

        compare = getattr(compute, self.function)
        found = (compare(column, self._as_type(value, kind)) for value in self.values)
        return functools.reduce(compute.or_kleene, found)

    def _as_type(self, value: Value, kind: Any) -> Any:
        """The value as a scalar of the column's type, so that text may be a date."""
        import pyarrow

        types = pyarrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        number = not isinstance(value, str)
        numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        try:
            if number and not numbers and not types.is_boolean(kind):
                raise pyarrow.ArrowInvalid
            if types.is_timestamp(kind) and kind.tz is not None:  # times are in UTC
                return pyarrow.scalar(value).cast(pyarrow.timestamp(kind.unit)).cast(kind)
            return pyarrow.scalar(value).cast(kind)
        except (pyarrow.ArrowException, OverflowError):
            if number and numbers:  # such as 17.5 for a column of whole numbers
                return pyarrow.scalar(float(value))
            fix = f"Write {str(value)!r}" if number else "Write a value of this type"
            raise CalibrantError(
                f"the column {self.column} holds values of the type {kind}; found {value!r} in "
                f"the condition. {fix}"
            ) from None


@dataclass(frozen=True)
class Condition:
    """Comparisons that rows must all meet; a missing value meets none.

    Examples:
        >>> condition = Condition.parsed("month == '2026-10' and country in ('FR', 'DE')")
        >>> condition.columns
        ('month', 'country')
        >>> Condition.parsed("month = 10")
        Traceback (most recent call last):
        calibrant.errors.CalibrantError: expected a condition such as month == '2026-10' and age ...
    """

    text: str
    comparisons: tuple[Clause, ...]

    @classmethod
    def parsed(cls, text: str) -> Condition:
        """The condition that a text says."""
        try:
            with warnings.catch_warnings():  # of odd backslashes, which are taken as they are
                warnings.simplefilter("ignore")
                node = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _refusal(text) from None
        return cls(text.strip(), tuple(_comparisons(node)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return tuple(dict.fromkeys(each.column for each in self.comparisons))

    def over(self, column: Callable[[str], Any], schema: Any) -> Any:
        """A mask of Arrow columns, or an Arrow expression of fields, given each by its name."""
        from pyarrow import compute

        return functools.reduce(
            compute.and_kleene,
            (
                each.over(column(each.column), schema.field(each.column).type)
                for each in self.comparisons
            ),
        )


def _comparisons(node: ast.expr) -> Iterator[Clause]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from _comparisons(part)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        (operator,), (compared,) = node.ops, node.comparators
        values = _values(compared, several=isinstance(operator, ast.In))
        yield Clause(_column(node.left), COMPARISONS[type(operator)], values)
    else:
        raise _refusal(ast.unparse(node))


def _column(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _refusal(ast.unparse(node))


def _values(node: ast.expr, *, several: bool) -> tuple[Value, ...]:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        raise _refusal(ast.unparse(node)) from None
    values = tuple(found) if several and isinstance(found, tuple | list) else (found,)
    if not values or not all(isinstance(value, Value) for value in values):
        raise _refusal(ast.unparse(node))
    return values


def _refusal(found: str) -> CalibrantError:
    return CalibrantError(
        "expected a condition such as month == '2026-10' and age >= 18 and country in ('FR', 'DE');"
        f" found {found[:80]!r}. Write COLUMN, then ==, !=, <, <=, >, >= or in, then a number or "
        "text in quotes, and join comparisons with and; a column that is no plain word is quoted "
        "too"
    )
