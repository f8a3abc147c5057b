"""The colours of all pictures: told apart by colour-blind readers, and by shade in grey print."""

from __future__ import annotations

from typing import Any, NamedTuple

INK = "#1f4e79"
"""Lines and points that carry the data."""
OVER = "#c0504d"
"""Over-confident; wrong answers."""
UNDER = "#4f81bd"
"""Under-confident; right answers."""
QUIET = "0.75"
"""What stands in the background, such as counts."""
GUIDE: dict[str, Any] = {"color": "0.6", "linewidth": 1.0, "linestyle": "--", "zorder": 1}
"""Lines to compare with, such as the diagonal."""


class Look(NamedTuple):
    """How one of several curves looks: colour, dashes and marker each tell it from the others."""

    color: str
    linestyle: str
    marker: str


SERIES = (
    Look(INK, "-", "o"),
    Look("#d55e00", "--", "s"),
    Look("#009e73", "-.", "^"),
    Look("#cc79a7", ":", "D"),
    Look("#e69f00", "-", "v"),
    Look("#56b4e9", "--", "P"),
)
"""Curves in one picture, in this order; then the colours come again with other dashes."""


def look(i: int) -> Look:
    """The look of curve number ``i``."""
    color, shape = SERIES[i % len(SERIES)], SERIES[(i + i // len(SERIES)) % len(SERIES)]
    return Look(color.color, shape.linestyle, shape.marker)
