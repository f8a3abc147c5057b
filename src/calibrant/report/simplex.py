"""The triangle of three classes, and how the focal map after a temperature moves its points."""

from __future__ import annotations

import numpy as np

from calibrant.focal import focal_log_probs
from calibrant.report.samples import Floats

STEPS = 9
"""Points per side."""


def corners() -> Floats:
    """The points of certainty for class 1, 2 and 3: left, right and top."""
    return np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


def grid() -> Floats:
    """An even grid of probability vectors without zeros.

    Examples:
        >>> grid().shape, grid()[0].round(3).tolist()
        ((45, 3), [0.037, 0.037, 0.926])
    """
    first, second = np.indices((STEPS, STEPS)).reshape(2, -1)
    inside = first + second < STEPS
    first, second = first[inside], second[inside]
    cells = np.stack([first, second, STEPS - 1 - first - second], axis=-1)
    return (cells + 1.0 / 3.0) / STEPS


def arrows(gamma: float, temperature: float) -> Floats:
    """Start and end (x, y, x', y') of each point of the grid under the map.

    Examples:
        >>> moved = arrows(0.0, 1.0)
        >>> bool(np.allclose(moved[:, :2], moved[:, 2:]))
        True
    """
    start = grid()
    end = np.exp(focal_log_probs(np.log(start), gamma=gamma, temperature=temperature))
    return np.concatenate([start @ corners(), end @ corners()], axis=1)
