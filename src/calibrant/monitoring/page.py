"""The page of a watch: its history as pictures and tables, in one HTML file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from calibrant import _inputs
from calibrant._version import __version__
from calibrant._writing import refuse_unwritable, write_whole
from calibrant.monitoring.diagnosis import LEVEL
from calibrant.monitoring.periods import is_since
from calibrant.monitoring.result import Watch, evidence_text, points
from calibrant.report.render import render_template

LEFT, TOP, WIDTH, HEIGHT = 70.0, 12.0, 560.0, 220.0
"""The plot inside a picture, in its units."""
LINES, TICKS = 6, 6
"""Lines across a picture, and periods that are named below it, at most."""
LN10 = math.log(10.0)


@dataclass(frozen=True)
class Plot:
    """A picture's scales: values over the numbers 0, 1, ..., n - 1."""

    n: int
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], n: int) -> Plot:
        """A plot that shows these values, with some room."""
        low, high = min(values), max(values)
        room = 0.08 * (high - low) or 1.0
        return cls(n, low - room, high + room)

    def x(self, i: float) -> float:
        """The place of a number."""
        return round(LEFT + WIDTH * (i + 0.5) / self.n, 2)

    def y(self, value: float) -> float:
        """The place of a value."""
        return round(TOP + HEIGHT * (self.high - value) / (self.high - self.low), 2)

    @property
    def values(self) -> list[float]:
        """Round values, where lines are drawn across."""
        span = self.high - self.low
        size = 10.0 ** math.floor(math.log10(span / LINES))
        step = next(size * k for k in (1, 2, 5, 10) if span / (size * k) <= LINES)
        return [step * k for k in range(math.ceil(self.low / step), int(self.high // step) + 1)]

    @property
    def named(self) -> range:
        """Numbers that are named."""
        return range(0, self.n, -(-self.n // TICKS))


def check_page(path: str | os.PathLike[str]) -> None:
    """Refuse what :func:`write_page` would refuse after the work."""
    _inputs.installed("jinja2", "markupsafe", extra="report", purpose="writing a page")
    refuse_unwritable(_inputs.page_path(_inputs.path(path, "the output")))


def write_page(watched: Watch, path: str | os.PathLike[str]) -> None:
    """Write the history of a watch as one HTML file, which loads nothing.

    Args:
        watched: The result of :func:`watch`.
        path: The page, a file that ends in ``.html``. Overwritten if it exists.
    """
    check_page(path)
    gaps = [edge for each in watched.periods for edge in (each.gap.low, each.gap.high)]
    since = None if watched.diagnosis is None else watched.diagnosis.since
    changed = [i for i, e in enumerate(watched.periods) if since and is_since(e.name, since)]
    text = render_template(
        "watch.html",
        watched=watched,
        verdict=watched.verdict(),
        gap_plot=Plot.of([0.0, *gaps], max(1, len(watched.periods))),
        evidence_plot=Plot.of(
            [each / LN10 for each in (0.0, watched.log_alarm, *(s.log_e for s in watched.steps))],
            max(1, len(watched.steps)),
        ),
        first_changed=changed[0] if changed else None,
        left=LEFT,
        top=TOP,
        width=WIDTH,
        height=HEIGHT,
        level=f"{100.0 * LEVEL:g}%",
        points=points,
        evidence=evidence_text,
        ln10=LN10,
        version=__version__,
    )
    # File names need not be valid UTF-8.
    write_whole(path, text.encode("utf-8", errors="replace"))
