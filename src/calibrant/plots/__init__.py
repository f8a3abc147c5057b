"""Plots, drawn with matplotlib on the given or the current axes; no global setting changes."""

from calibrant.errors import MissingExtraError

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtraError("drawing needs matplotlib: pip install 'calibrant[plots]'") from missing

from calibrant.plots.groups import draw_groups, plot_groups
from calibrant.plots.reliability import (
    draw_reliability,
    plot_confidence_histogram,
    plot_reliability,
    plot_reliability_overlay,
    plot_risk_coverage,
)
from calibrant.plots.simplex import plot_map_arrows, plot_map_difference, plot_risk_isolines
from calibrant.plots.theory import (
    draw_theory,
    plot_binary_map,
    plot_confidence_relation,
    plot_phi,
)

__all__ = [
    "draw_groups",
    "draw_reliability",
    "draw_theory",
    "plot_binary_map",
    "plot_confidence_histogram",
    "plot_confidence_relation",
    "plot_groups",
    "plot_map_arrows",
    "plot_map_difference",
    "plot_phi",
    "plot_reliability",
    "plot_reliability_overlay",
    "plot_risk_coverage",
    "plot_risk_isolines",
]
