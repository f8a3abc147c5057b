"""The simplex of three classes as a triangle."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from calibrant.focal.simplex import CORNERS, Floats

NAMES = {"class 1": (-0.02, -0.06), "class 2": (1.02, -0.06), "class 3": (0.5, 0.9)}


def rows_of_probabilities(parts: int, *, inside: bool) -> Floats:
    """All rows of multiples of 1/parts, with those on the edges or without."""
    first, second = np.meshgrid(np.arange(parts + 1), np.arange(parts + 1), indexing="ij")
    counts = np.stack([first, second, parts - first - second], axis=-1).reshape(-1, 3)
    return np.asarray(counts[counts.min(axis=-1) >= (1 if inside else 0)] / parts)


def draw_triangle(ax: Axes) -> None:
    """The edges and the names of the corners, without axes."""
    outline = np.concatenate([CORNERS, CORNERS[:1]])
    ax.plot(*outline.T, color="0.4", linewidth=0.8)
    for name, (x, y) in NAMES.items():
        ax.text(x, y, name, ha="center", va="center", fontsize=8, color="0.3")
    ax.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.12, 0.96))
    ax.set_axis_off()
