"""How far a temperature is from the focal map, over all of the simplex.

The largest difference over the simplex is found on rows of two levels: some classes share the top
logit, some share a lower one, the others are as low as the grid goes. On full grids no other row
ever had a larger one (``tests/experiments/test_theory2.py``), so that a fine step costs little.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from calibrant.focal import focal_log_probs

Floats = npt.NDArray[np.float64]


def two_level_rows(n_classes: int, *, largest_gap: float, step: float) -> Floats:
    """Logits of three levels: one or more largest classes, a second level, and the rest."""
    gaps = step * np.arange(round(largest_gap / step) + 1)
    blocks = []
    for n_top in range(1, n_classes):
        for n_second in range(1, n_classes - n_top + 1):
            rows = np.full((len(gaps), n_classes), -largest_gap)
            rows[:, :n_top] = 0.0
            rows[:, n_top : n_top + n_second] = -gaps[:, None]
            blocks.append(rows)
    return np.concatenate(blocks)


def focal(rows: Floats, gamma: float) -> Floats:
    """The focal map of the softmax of each row."""
    return np.asarray(np.exp(np.asarray(focal_log_probs(rows, gamma=gamma))))


def scaled(rows: Floats, temperature: float) -> Floats:
    """The softmax of each row divided by a temperature; the top of a row is 0."""
    powers = np.exp(rows / temperature)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def best_temperature(rows: Floats, gamma: float) -> tuple[float, float]:
    """The temperature with the smallest largest difference to the map, and that difference."""
    mapped = focal(rows, gamma)
    found = minimize_scalar(
        lambda inverse: np.abs(scaled(rows, 1.0 / inverse) - mapped).max(),
        bounds=(0.5, gamma + 2.0),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return 1.0 / float(found.x), float(found.fun)


def best_gamma(rows: Floats, temperature: float, *, highest: float) -> float:
    """The gamma whose map has the smallest largest difference to a temperature."""
    wanted = scaled(rows, temperature)
    found = minimize_scalar(
        lambda gamma: np.abs(focal(rows, gamma) - wanted).max(),
        bounds=(0.0, highest),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(found.x)
