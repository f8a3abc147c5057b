"""Maps and losses of three classes, drawn on the triangle of all probability vectors.

A point of the triangle is a vector of three probabilities: corner k is certainty of class k, and
the distance from the opposite side is the probability of class k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.tri import Triangulation
from matplotlib.typing import LineStyleType

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.plots.axes import given_or_current
from calibrant.plots.palette import INK, OVER

Floats: TypeAlias = npt.NDArray[np.float64]
Map: TypeAlias = Callable[[Any], Array]
"""From (n, 3) probabilities to (n, 3) probabilities."""
Loss: TypeAlias = Callable[[Any, Any], Array]
"""From (n, 3) probabilities and n labels to n losses."""

CORNERS: Floats = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""Where certainty of class 1, 2 and 3 lies: left, right and top."""
NAMES = ("class 1", "class 2", "class 3")
DASHES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")
FINE = 160
"""Steps a side of the grid for surfaces and isolines."""


def to_plane(probs: Array) -> Floats:
    """The points (n, 2) of the triangle for probabilities (n, 3).

    Examples:
        >>> to_plane([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]).tolist()
        [[1.0, 0.0], [0.5, 0.0]]
    """
    rows = _inputs.as_numpy(_inputs.probs(probs)).astype(np.float64)
    if rows.shape[-1] != 3:
        raise CalibrantError(
            f"the triangle shows three classes; found {rows.shape[-1]}. Pass (n, 3) probabilities"
        )
    return rows @ CORNERS


def to_simplex(points: npt.ArrayLike) -> Floats:
    """The probabilities (n, 3) of points (n, 2), outside the triangle with negative ones.

    Examples:
        >>> to_simplex([[0.5, 0.0]]).tolist()
        [[0.5, 0.5, 0.0]]
    """
    x, y = np.asarray(points, dtype=np.float64).T
    third = y / CORNERS[2, 1]
    second = x - 0.5 * third
    return np.stack([1.0 - second - third, second, third], axis=-1)


def simplex_grid(n: int) -> Floats:
    """An even grid of n (n + 1) / 2 probability vectors, none of which holds a zero.

    They are the middles of the upright ones of the n^2 equal triangles the simplex is cut into.

    Examples:
        >>> simplex_grid(1).round(3).tolist(), len(simplex_grid(10))
        ([[0.333, 0.333, 0.333]], 55)
    """
    first, second = np.indices((n, n)).reshape(2, -1)
    inside = first + second < n
    first, second = first[inside], second[inside]
    cells = np.stack([first, second, n - 1 - first - second], axis=-1)
    return (cells + 1.0 / 3.0) / n


def plot_map_arrows(
    mapping: Map,
    ax: Axes | None = None,
    *,
    n_steps: int = 16,
    class_names: Sequence[str] = NAMES,
) -> Axes:
    """An arrow from each point q of a grid to ``mapping(q)``.

    As Komisarenko and Kull (2024), Fig. 5.
    """
    ax = given_or_current(ax)
    grid = simplex_grid(n_steps)
    start, end = to_plane(grid), to_plane(mapping(grid))
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
    """How far two maps are apart: the largest difference of any class, as a surface.

    ``limit`` is the difference with the brightest colour, by default the largest one found.
    ``color_bar`` adds a colour bar. For one that several plots share, set the same ``limit`` and
    pass the surface, ``ax.collections[0]``, to ``figure.colorbar``.

    As Komisarenko and Kull (2024), Fig. 7.
    """
    ax = given_or_current(ax)
    grid = simplex_grid(FINE)
    both = [_inputs.as_numpy(_inputs.probs(mapping(grid))) for mapping in (map_a, map_b)]
    difference = np.abs(both[0] - both[1]).max(axis=-1)
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


def conditional_risk(loss: Loss, posterior: Array, probs: Floats) -> Floats:
    """Expected loss of each row of ``probs`` where the classes have the probabilities posterior.

    Examples:
        >>> import numpy as np
        >>> def squares(q, labels):
        ...     return ((q - np.eye(3)[labels]) ** 2).sum(axis=-1)
        >>> conditional_risk(squares, [0.5, 0.5, 0.0], np.array([[0.5, 0.5, 0.0]])).tolist()
        [0.5]
    """
    truth = _inputs.as_numpy(_inputs.probs(posterior)).astype(np.float64)
    risk = np.zeros(len(probs))
    for k in np.flatnonzero(truth):
        risk += truth[k] * _inputs.as_numpy(loss(probs, np.full(len(probs), k)))
    return risk


def plot_risk_isolines(
    loss: Loss,
    posterior: Array,
    ax: Axes | None = None,
    *,
    percentiles: Sequence[float] = (3, 12, 20),
    class_names: Sequence[str] = NAMES,
) -> Axes:
    """Lines around the q whose expected loss is among the smallest few percent of all q.

    ``loss`` takes (n, 3) probabilities and n labels, such as ``focal.proper_focal_loss`` with its
    gamma set by ``functools.partial``. The cross marks the posterior, where a proper loss is
    smallest.

    As Komisarenko and Kull (2024), Fig. 4.
    """
    ax = given_or_current(ax)
    truth = to_plane(posterior)
    grid = simplex_grid(FINE)
    risk = conditional_risk(loss, posterior, grid)
    levels = np.percentile(risk, sorted(percentiles))
    _triangle(ax, class_names)
    ax.plot(*truth, marker="x", color=OVER, markersize=8, markeredgewidth=2, zorder=4)
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
    """The outline, the corners' names, and nothing else."""
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
