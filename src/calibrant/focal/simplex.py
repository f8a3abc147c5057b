"""The simplex of three classes as an equilateral triangle.

A point of the triangle is a vector of three probabilities: corner k is certainty of class k, and
the distance from the opposite side is proportional to the probability of class k.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CORNERS: Floats = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
"""Points of certainty of class 1, 2 and 3: left, right and top."""


def to_plane(probs: npt.ArrayLike) -> Floats:
    """The points (..., 2) of probabilities (..., 3).

    Examples:
        >>> to_plane([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]).tolist()
        [[1.0, 0.0], [0.5, 0.0]]
    """
    return np.asarray(probs, dtype=np.float64) @ CORNERS


def to_simplex(points: npt.ArrayLike) -> Floats:
    """The probabilities (..., 3) of points (..., 2); outside the triangle some are negative.

    Examples:
        >>> to_simplex([[0.5, 0.0]]).tolist()
        [[0.5, 0.5, 0.0]]
    """
    points = np.asarray(points, dtype=np.float64)
    third = points[..., 1] / CORNERS[2, 1]
    second = points[..., 0] - 0.5 * third
    return np.stack([1.0 - second - third, second, third], axis=-1)


def simplex_grid(n: int) -> Floats:
    """An even grid of n (n + 1) / 2 probability vectors without zeros.

    They are the centres of the upright triangles among the n^2 that the simplex is cut into.

    Examples:
        >>> simplex_grid(1).round(3).tolist(), len(simplex_grid(10))
        ([[0.333, 0.333, 0.333]], 55)
    """
    first, second = np.indices((n, n)).reshape(2, -1)
    inside = first + second < n
    first, second = first[inside], second[inside]
    cells = np.stack([first, second, n - 1 - first - second], axis=-1)
    return (cells + 1.0 / 3.0) / n
