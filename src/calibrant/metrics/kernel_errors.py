"""Calibration errors that use a kernel over confidences instead of bins."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from calibrant._types import Array
from calibrant.metrics.registry import metric
from calibrant.metrics.samples import Floats, ScoredSamples

MMCE_WIDTH = 0.4
"""Width of the Laplace kernel exp(-|r - r'| / 0.4) of Kumar et al. (2018)."""
SMOOTH_CELLS = 4096
"""Cells of [0, 1] on which smooth ECE is integrated."""


def laplace_energy(confidence: Array, masses: Array, xp: ModuleType) -> Array:
    """sum_ij a_i a_j exp(-|r_i - r_j| / width) for masses a at *ascending* confidences r.

    The sum over j up to i is e^(-r_i/w) times a running sum of a_j e^(r_j/w): n steps instead of
    n^2. Confidences are in [0, 1], so the exponentials stay below e^2.5. ``xp`` is numpy or torch.
    """
    growth = xp.exp(confidence / MMCE_WIDTH)
    up_to = xp.cumsum(masses * growth, 0) / growth
    # The first sum has each pair once, and the diagonal once.
    return 2.0 * (masses * up_to).sum() - (masses * masses).sum()


def _root_energy(confidence: Floats, masses: Floats) -> float:
    order = np.argsort(confidence)
    energy = float(laplace_energy(confidence[order], masses[order], np))
    return float(np.sqrt(max(0.0, energy)))


@metric(lower_is_better=True)
def mmce(samples: ScoredSamples) -> float:
    r"""Maximum mean calibration error, the kernel measure behind the MMCE loss.

    .. math:: \sqrt{\frac1{n^2} \sum_{ij} (c_i - r_i)(c_j - r_j)\, e^{-|r_i - r_j| / 0.4}}

    with confidence r and correctness c; computed in n log n steps.

    References:
        Kumar, Sarawagi and Jain (2018).

    Examples:
        >>> from calibrant.metrics import mmce
        >>> round(mmce([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.2352
    """
    return _root_energy(samples.confidence, samples.weights * samples.gap) / samples.total


@metric(lower_is_better=True)
def mmce_weighted(samples: ScoredSamples) -> float:
    r"""Weighted MMCE: correct and wrong predictions count as two groups of equal size.

    .. math::
        \Big(\sum_{c_i=c_j=0} \frac{r_i r_j k_{ij}}{(m-n)^2}
        + \sum_{c_i=c_j=1} \frac{(1-r_i)(1-r_j) k_{ij}}{n^2}
        - 2 \sum_{c_i=1, c_j=0} \frac{(1-r_i) r_j k_{ij}}{(m-n)\,n}\Big)^{1/2}

    for m samples, n of them correct. If all are correct, or all wrong, the missing terms are 0.

    References:
        Kumar, Sarawagi and Jain (2018).

    Examples:
        >>> from calibrant.metrics import mmce_weighted
        >>> round(mmce_weighted([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.7758
    """
    weight = samples.weights
    correct = np.where(samples.correct, weight, 0.0)
    wrong = weight - correct
    masses = np.zeros(len(samples))
    if correct.any():
        masses += correct * (1.0 - samples.confidence) / correct.sum()
    if wrong.any():
        masses -= wrong * samples.confidence / wrong.sum()
    return _root_energy(samples.confidence, masses)


@metric(lower_is_better=True)
def smooth_ece(samples: ScoredSamples) -> float:
    r"""Smooth calibration error: without bins, at the kernel width that equals the error.

    .. math::
        \mathrm{smECE}_\sigma = \int_0^1 \Big| \frac1n \sum_i (\mathrm{conf}_i -
        \mathrm{correct}_i)\, \tilde K_\sigma(t, \mathrm{conf}_i) \Big| \, dt

    with a Gaussian reflected at 0 and 1, at the width sigma where smECE equals sigma. Computed on
    4096 cells by the cosine transform, in which the reflected Gaussian is diagonal.

    References:
        Błasiok and Nakkiran (2023).

    Examples:
        >>> from calibrant.metrics import smooth_ece
        >>> round(smooth_ece([[0.9, 0.1]] * 10, [0] * 5 + [1] * 5), 3)
        0.4
    """
    from scipy.fft import dct, idct

    masses = samples.weights * samples.gap / samples.total
    # Each sample is split between the two cells whose centres enclose it.
    place = np.clip(samples.confidence * SMOOTH_CELLS - 0.5, 0.0, SMOOTH_CELLS - 1.0)
    cell = np.minimum(place.astype(np.intp), SMOOTH_CELLS - 2)
    upper = place - cell
    grid = np.bincount(cell, weights=masses * (1.0 - upper), minlength=SMOOTH_CELLS)
    grid += np.bincount(cell + 1, weights=masses * upper, minlength=SMOOTH_CELLS)
    spectrum = dct(grid)
    frequency = np.pi * np.arange(SMOOTH_CELLS)

    def error(sigma: float) -> float:
        return float(np.abs(idct(spectrum * np.exp(-0.5 * (frequency * sigma) ** 2))).sum())

    # The error decreases with sigma: bisect for the width that equals its error.
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return 0.5 * (low + high)
