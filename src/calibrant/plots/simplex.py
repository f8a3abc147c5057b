"""Maps and losses of three classes, drawn on the triangle of all probability vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.tri import Triangulation
from matplotlib.typing import LineStyleType

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.focal.simplex import CORNERS, Floats, simplex_grid, to_plane
from calibrant.plots.axes import given_or_current
from calibrant.plots.palette import INK, OVER

Map: TypeAlias = Callable[[Any], Array]
"""From (n, 3) probabilities to (n, 3) probabilities."""
Loss: TypeAlias = Callable[[Any, Any], Array]
"""From (n, 3) probabilities and n labels to n losses."""

NAMES = ("class 1", "class 2", "class 3")
DASHES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
FINE = 160
"""Steps per side of the grid for surfaces and isolines."""


def check_three_classes(probs: Any) -> Floats:
    """Check for probabilities of three classes."""
    rows = _inputs.as_numpy(_inputs.probs(probs)).astype(np.float64)
    if rows.shape[-1] != 3:
        raise CalibrantError(
            f"the triangle shows three classes; found {rows.shape[-1]}. Pass (n, 3) probabilities"
        )
    return rows


def plot_map_arrows(
    mapping: Map,
    ax: Axes | None = None,
    *,
    n_steps: int = 16,
    class_names: Sequence[str] = NAMES,
) -> Axes:
    """Draw an arrow from each point q of a grid to ``mapping(q)``.

    As Komisarenko and Kull (2024), Fig. 5.
    """
    ax = given_or_current(ax)
    grid = simplex_grid(n_steps)
    start, end = to_plane(grid), to_plane(check_three_classes(mapping(grid)))
    _triangle(ax, class_names)
    ax.quiver(
        *start.T,
        *(end - start).T,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        width=0.004,
        headwidth=4.0,
        color=INK,
        zorder=3,
    )
    return ax


def plot_map_difference(
    map_a: Map,
    map_b: Map,
    ax: Axes | None = None,
    *,
    limit: float | None = None,
    color_bar: bool = False,
    class_names: Sequence[str] = NAMES,
) -> Axes:
    """Draw the difference of two maps as a surface: the largest difference of any class.

    ``limit`` is the difference with the brightest colour, by default the largest one found.
    ``color_bar`` adds a colour bar. For one that several plots share, set the same ``limit`` and
    pass the surface, ``ax.collections[0]``, to ``figure.colorbar``.

    As Komisarenko and Kull (2024), Fig. 7.
    """
    ax = given_or_current(ax)
    grid = simplex_grid(FINE)
    of_a, of_b = (check_three_classes(mapping(grid)) for mapping in (map_a, map_b))
    difference = np.abs(of_a - of_b).max(axis=-1)
    surface = ax.tripcolor(
        Triangulation(*to_plane(grid).T),
        difference,
        shading="gouraud",
        cmap="cividis",
        vmin=0.0,
        vmax=limit or difference.max() or 1.0,
        rasterized=True,
    )
    _triangle(ax, class_names)
    if color_bar:
        ax.figure.colorbar(surface, ax=ax, shrink=0.8, label="largest difference of any class")
    return ax


def conditional_risk(loss: Loss, posterior: Floats, probs: Floats) -> Floats:
    """Expected loss of each row of ``probs`` if ``posterior`` are the true class probabilities.

    Examples:
        >>> import numpy as np
        >>> def squares(q, labels):
        ...     return ((q - np.eye(3)[labels]) ** 2).sum(axis=-1)
        >>> half = np.array([0.5, 0.5, 0.0])
        >>> conditional_risk(squares, half, half[np.newaxis]).tolist()
        [0.5]
    """
    risk = np.zeros(len(probs))
    for k in np.flatnonzero(posterior):
        risk += posterior[k] * _inputs.as_numpy(loss(probs, np.full(len(probs), k)))
    return risk


def plot_risk_isolines(
    loss: Loss,
    posterior: Array,
    ax: Axes | None = None,
    *,
    percentiles: Sequence[float] = (3, 12, 20),
    class_names: Sequence[str] = NAMES,
) -> Axes:
    """Draw lines around the few percent of all q with the smallest expected loss.

    ``loss`` takes (n, 3) probabilities and n labels, such as ``focal.proper_focal_loss`` with its
    gamma set by ``functools.partial``. The cross marks the posterior, where a proper loss is
    smallest.

    As Komisarenko and Kull (2024), Fig. 4.
    """
    ax = given_or_current(ax)
    truth = check_three_classes(posterior)
    grid = simplex_grid(FINE)
    risk = conditional_risk(loss, truth, grid)
    levels = np.percentile(risk, sorted(percentiles))
    _triangle(ax, class_names)
    ax.plot(*to_plane(truth), marker="x", color=OVER, markersize=8, markeredgewidth=2, zorder=4)
    if not risk.min() < levels[0] or not (np.diff(levels) > 0).all():
        return ax  # a loss that is flat there has no isolines
    dashes = [DASHES[i % len(DASHES)] for i in range(len(levels))]
    ax.tricontour(
        Triangulation(*to_plane(grid).T),
        risk,
        levels=levels,
        colors=INK,
        linestyles=dashes,
        linewidths=1.5,
    )
    names = [f"{percentile:g}%" for percentile in sorted(percentiles)]
    lines = [Line2D([], [], color=INK, linestyle=dash) for dash in dashes]
    ax.legend(lines, names, title="smallest", loc="upper right", frameon=False)
    return ax


def _triangle(ax: Axes, class_names: Sequence[str]) -> None:
    """Draw the outline and the names of the corners."""
    outline = np.concatenate([CORNERS, CORNERS[:1]])
    ax.plot(*outline.T, color="0.3", linewidth=1.0, zorder=2)
    for corner, name, side in zip(CORNERS, class_names, ("left", "right", "top"), strict=True):
        ax.annotate(
            name,
            corner,
            xytext=(0, 4 if side == "top" else -4),
            textcoords="offset points",
            ha="center",
            va="bottom" if side == "top" else "top",
        )
    ax.set(xlim=(-0.06, 1.06), ylim=(-0.08, CORNERS[2, 1] + 0.08), aspect="equal")
    ax.set_axis_off()
