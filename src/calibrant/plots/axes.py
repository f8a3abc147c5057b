"""Where a plot is drawn."""

from __future__ import annotations

from matplotlib.axes import Axes


def given_or_current(ax: Axes | None) -> Axes:
    """``ax``, or pyplot's current axes; only then is pyplot imported."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.gca()
