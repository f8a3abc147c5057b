"""The map of one class in isotonic regression: linear interpolation in a table."""

import numpy as np

from calibrant.calibrators.export.templates.checked import Floats

KNOTS = np.zeros((3, 1))
VALUES = np.zeros((3, 1))


def calibrated(x: Floats) -> Floats:
    """Log-odds of one class against the rest; its probability is linear between the knots."""
    y = np.empty_like(x)
    for k, (knots, values) in enumerate(zip(KNOTS, VALUES, strict=True)):
        hit = np.interp(x[..., k], knots, 1 / (1 + np.exp(-values)))
        miss = np.interp(x[..., k], knots, 1 / (1 + np.exp(values)))
        y[..., k] = np.log(hit) - np.log(miss)
    return y
