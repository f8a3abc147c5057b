"""Results as text: tables for a terminal and a notebook, numbers for people and for JSON."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def text_table(
    rows: Sequence[Sequence[str]], align: str, *, gap: str = "  ", widths: Sequence[int] = ()
) -> list[str]:
    """Lines of aligned columns; ``align`` has ``<`` or ``>`` for each column.

    A row with fewer cells than columns is a remark: its text runs on after the first cell and
    widens no other column.

    Args:
        rows: Cells, row by row; the heads first.
        align: ``<`` for a column that is aligned to the left, ``>`` to the right.
        gap: Text between columns.
        widths: Smallest width of each column.

    Examples:
        >>> for line in text_table([["", "n"], ["rows", "12"], ["classes", "3"]], "<>"):
        ...     print(line)
                  n
        rows     12
        classes   3
    """
    least = [*widths, *[0] * (len(align) - len(widths))]
    for row in rows:
        measured = row if len(row) == len(align) else row[:1]
        for column, cell in enumerate(measured):
            least[column] = max(least[column], len(cell))
    return [
        gap.join(map(_padded, row, align, least)).rstrip()
        if len(row) == len(align)
        else "  ".join([row[0].ljust(least[0]), *row[1:]])
        for row in rows
    ]


def _padded(cell: str, side: str, width: int) -> str:
    return f"{cell:{side}{width}}"


def html_table(
    heads: Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    below: Iterable[str] = (),
    most_rows: int | None = None,
) -> str:
    """An escaped HTML table for ``_repr_html_``, with paragraphs below it.

    Examples:
        >>> print(html_table([["", "n"]], [["rows", "1"], ["<b>", "2"]], most_rows=1))
        <table>
        <tr><th></th><th>n</th></tr>
        <tr><td>rows</td><td>1</td></tr>
        <tr><td colspan="2">and 1 more</td></tr>
        </table>
    """
    shown = rows[:most_rows]
    left_out = len(rows) - len(shown)
    lines = [
        "<table>",
        *([f"<caption>{html.escape(caption)}</caption>"] if caption else []),
        *(_html_row("th", head) for head in heads),
        *(_html_row("td", row) for row in shown),
        *([f'<tr><td colspan="{len(heads[0])}">and {left_out} more</td></tr>'] if left_out else []),
        "</table>",
        *(f"<p>{html.escape(line)}</p>" for line in below),
    ]
    return "\n".join(lines)


def _html_row(tag: str, cells: Iterable[str]) -> str:
    inside = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def score_text(value: float) -> str:
    """A log-loss or a Brier score with four decimals; a huge one with three digits.

    Examples:
        >>> score_text(0.25), score_text(12345.0)
        ('0.2500', '1.23e+04')
    """
    return f"{value:.4f}" if abs(value) < 1000.0 else f"{value:.3g}"


def count_text(count: float) -> str:
    """A number of samples, or a total weight.

    Examples:
        >>> count_text(5000.0), count_text(0.25)
        ('5,000', '0.25')
    """
    return f"{count:,.0f}" if count == round(count) else f"{count:.4g}"


def json_value(value: Any) -> Any:
    """``value`` as JSON can hold it: an array as a list, infinity and NaN as None.

    Examples:
        >>> import numpy as np
        >>> json_value(np.array([1.0, np.nan])), json_value(float("inf")), json_value("text")
        ([1.0, None], None, 'text')
    """
    if isinstance(value, np.ndarray):
        return [json_value(entry) for entry in value.tolist()]
    return None if isinstance(value, float) and not math.isfinite(value) else value
