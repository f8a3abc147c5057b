"""The colours of all plots: distinguishable with colour blindness, and by shade in grey print."""

from __future__ import annotations

from typing import Any, NamedTuple

INK = "#1f4e79"
"""Lines and points that carry the data."""
OVER = "#c0504d"
"""Over-confident; wrong predictions."""
UNDER = "#4f81bd"
"""Under-confident; correct predictions."""
QUIET = "0.75"
"""Background, such as counts."""
GUIDE: dict[str, Any] = {"color": "0.6", "linewidth": 1.0, "linestyle": "--", "zorder": 1}
"""Reference lines, such as the diagonal."""


class Look(NamedTuple):
    """Colour, dashes and marker of one of several curves; each of them distinguishes it."""

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
"""Curves of one plot, in this order; then the colours repeat with other dashes."""


def look(i: int) -> Look:
    """The look of curve number ``i``."""
    color, shape = SERIES[i % len(SERIES)], SERIES[(i + i // len(SERIES)) % len(SERIES)]
    return Look(color.color, shape.linestyle, shape.marker)
