"""The triangle of three classes, and how the focal map after a temperature moves its points."""

from __future__ import annotations

import numpy as np

from calibrant.focal import focal_log_probs
from calibrant.focal.simplex import simplex_grid, to_plane
from calibrant.report.samples import Floats

STEPS = 9
"""Points per side."""


def arrows(gamma: float, temperature: float) -> Floats:
    """Start and end (x, y, x', y') of each point of the grid under the map.

    Examples:
        >>> moved = arrows(0.0, 1.0)
        >>> bool(np.allclose(moved[:, :2], moved[:, 2:]))
        True
    """
    start = simplex_grid(STEPS)
    end = np.exp(focal_log_probs(np.log(start), gamma=gamma, temperature=temperature))
    return np.concatenate([to_plane(start), to_plane(end)], axis=1)
