"""Calibration errors that smooth over neighbouring confidences in place of bins."""

from __future__ import annotations

import numpy as np

from calibrant.metrics.calibration import total
from calibrant.metrics.registry import metric
from calibrant.metrics.samples import Floats, ScoredSamples

MMCE_WIDTH = 0.4
"""Width of the Laplace kernel exp(-|r - r'| / 0.4) of Kumar et al. (2018)."""
SMOOTH_CELLS = 4096
"""Cells of [0, 1] on which smooth ECE is integrated."""


def laplace_energy(confidence: Floats, masses: Floats) -> Floats:
    """sum_ij a_i b_j exp(-|r_i - r_j| / width) for every pair of columns a, b of ``masses``.

    Sorted, the sum over j below i is e^(-r_i/w) times a running sum of b_j e^(r_j/w): n log n in
    place of n^2. Confidences lie in [0, 1], so the exponentials stay below e^2.5.
    """
    order = np.argsort(confidence)
    r, a = confidence[order], masses[order]
    running = np.cumsum(a * np.exp(r / MMCE_WIDTH)[:, None], axis=0)
    below = running * np.exp(-r / MMCE_WIDTH)[:, None]  # the sample itself is in it, with weight 1
    # Each unordered pair stands once in a^T below, and the diagonal once.
    once = a.T @ below
    return np.asarray(once + once.T - a.T @ a)


@metric
def mmce(samples: ScoredSamples) -> float:
    r"""Maximum mean calibration error, the kernel measure behind the MMCE loss.

    .. math:: \sqrt{\frac1{n^2} \sum_{ij} (c_i - r_i)(c_j - r_j)\, e^{-|r_i - r_j| / 0.4}}

    with confidence r and correctness c; in n log n steps.

    References:
        Kumar, Sarawagi and Jain (2018).

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import mmce
        >>> probs = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
        >>> round(mmce(probs, np.array([0, 1, 1])), 4)
        0.2352
    """
    weight = samples.weights
    energy = laplace_energy(samples.confidence, (weight * samples.gap)[:, None])[0, 0]
    return float(np.sqrt(max(0.0, float(energy)))) / total(samples)


@metric
def mmce_weighted(samples: ScoredSamples) -> float:
    r"""Weighted MMCE: right and wrong answers count as two groups of the same size.

    .. math::
        \Big(\sum_{c_i=c_j=0} \frac{r_i r_j k_{ij}}{(m-n)^2}
        + \sum_{c_i=c_j=1} \frac{(1-r_i)(1-r_j) k_{ij}}{n^2}
        - 2 \sum_{c_i=1, c_j=0} \frac{(1-r_i) r_j k_{ij}}{(m-n)\,n}\Big)^{1/2}

    for m samples, n of them correct. Where all are correct, or all wrong, the missing terms are 0.

    References:
        Kumar, Sarawagi and Jain (2018).

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import mmce_weighted
        >>> probs = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
        >>> round(mmce_weighted(probs, np.array([0, 1, 1])), 4)
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
    energy = laplace_energy(samples.confidence, masses[:, None])[0, 0]
    return float(np.sqrt(max(0.0, float(energy))))


@metric
def smooth_ece(samples: ScoredSamples) -> float:
    r"""Smooth calibration error: no bins, and the one width that fits its own answer.

    .. math::
        \mathrm{smECE}_\sigma = \int_0^1 \Big| \frac1n \sum_i (\mathrm{conf}_i -
        \mathrm{correct}_i)\, \tilde K_\sigma(t, \mathrm{conf}_i) \Big| \, dt

    with a Gaussian reflected at 0 and 1, at the width sigma where smECE equals sigma. Computed on
    4096 cells by the cosine transform, in which the reflected Gaussian is diagonal.

    References:
        Błasiok and Nakkiran (2023).

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import smooth_ece
        >>> probs = np.array([[0.9, 0.1]] * 10)
        >>> round(smooth_ece(probs, np.array([0] * 5 + [1] * 5)), 3)
        0.4
    """
    from scipy.fft import dct, idct

    weight = samples.weights
    masses = weight * samples.gap / total(samples)
    # Each sample is shared between the two cells whose centres enclose it.
    place = np.clip(samples.confidence * SMOOTH_CELLS - 0.5, 0.0, SMOOTH_CELLS - 1.0)
    cell = np.minimum(place.astype(np.intp), SMOOTH_CELLS - 2)
    upper = place - cell
    grid = np.bincount(cell, weights=masses * (1.0 - upper), minlength=SMOOTH_CELLS)
    grid += np.bincount(cell + 1, weights=masses * upper, minlength=SMOOTH_CELLS)
    spectrum = dct(grid)
    frequency = np.pi * np.arange(SMOOTH_CELLS)

    def error(sigma: float) -> float:
        return float(np.abs(idct(spectrum * np.exp(-0.5 * (frequency * sigma) ** 2))).sum())

    # The error falls as sigma rises: bisect for the width that equals its error.
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return 0.5 * (low + high)
