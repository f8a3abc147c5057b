"""How close the focal map is to temperature scaling."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant.focal.calibration_map import focal_log_probs

LOGIT_GAP_GRIDS = {2: (20.0, 0.01), 3: (10.0, 0.05), 4: (10.0, 0.2)}
"""Largest gap to the top logit and step of the grid, for each number of classes."""


def temperature_bounds(*, gamma: float) -> tuple[float, float]:
    r"""Temperatures that bound the binary focal map, for every logit.

    .. math::
        \gamma + 1 - \tfrac12 \log(\gamma + 1) \;\le\; \frac{1}{T_\mathrm{eff}(s)}
        = \frac{\mathrm{logit}\,\Psi(\sigma(s))}{s} \;\le\; \gamma + 1

    Args:
        gamma: Parameter of the map, at least 0.

    Returns:
        ``(T_low, T_high)``.

    References:
        Komisarenko and Kull (2024), Proposition 3. The exponents and the order of the inequality
        are garbled in print; this is what the proof shows.

    Examples:
        >>> from calibrant.focal import temperature_bounds
        >>> [round(t, 4) for t in temperature_bounds(gamma=4.0)]
        [0.2, 0.2384]
    """
    gamma = _inputs.gamma(gamma, lowest=0.0)
    return 1.0 / (gamma + 1.0), 1.0 / (gamma + 1.0 - 0.5 * math.log1p(gamma))


def closest_temperature(*, gamma: float, n_classes: int) -> float:
    r"""The temperature whose scaling is closest to the focal map, over the whole simplex.

    .. math::
        \arg\min_T \; \max_s \; \lVert \Psi^\gamma(\mathrm{softmax}(s))
        - \mathrm{softmax}(s / T) \rVert_\infty

    The maximum is taken over logits between -10 and 10 for two classes and between -5 and 5 for
    three and four (gaps of up to 20 and 10), on a grid of gaps of step 0.01, 0.05 and 0.2 and
    the same gaps divided by 1 + gamma, where the map of a large gamma has its features.

    Args:
        gamma: Parameter of the map, at least 0.
        n_classes: 2, 3 or 4.

    Returns:
        The temperature, to about three digits for three and four classes.

    References:
        Komisarenko and Kull (2024), Sec. 3, Figs 2 and 6.

    Examples:
        >>> from calibrant.focal import closest_temperature
        >>> round(closest_temperature(gamma=3.0, n_classes=2), 3)
        0.276
    """
    from scipy.optimize import minimize_scalar

    gamma = _inputs.gamma(gamma, lowest=0.0)
    n_classes = _inputs.whole_number(n_classes, "n_classes", allowed=range(2, 5))
    gaps = _ordered_gaps(n_classes, gamma)
    mapped = np.exp(focal_log_probs(gaps, gamma=gamma))

    def distance(inverse_temperature: float) -> float:
        scaled = np.exp(gaps * inverse_temperature)
        scaled /= scaled.sum(axis=-1, keepdims=True)
        return float(np.abs(scaled - mapped).max())

    # On the whole the map sharpens; for two classes by at most gamma + 1.
    found = minimize_scalar(
        distance, bounds=(0.5, gamma + 2.0), method="bounded", options={"xatol": 1e-7}
    )
    return 1.0 / float(found.x)


def _ordered_gaps(n_classes: int, gamma: float) -> npt.NDArray[np.float64]:
    """Logits in descending order from 0: one of each set of permutations."""
    largest, step = LOGIT_GAP_GRIDS[n_classes]
    steps = step * np.arange(round(largest / step) + 1)
    axis = np.unique(np.concatenate([steps, steps / (1.0 + gamma)]))
    grid = np.stack(np.meshgrid(*[axis] * (n_classes - 1), indexing="ij"), axis=-1)
    grid = grid.reshape(-1, n_classes - 1)
    falling = grid[(np.diff(grid, axis=-1) >= 0).all(axis=-1)]
    return np.concatenate([np.zeros((len(falling), 1)), -falling], axis=-1)
