"""The scores of vector scaling."""

import numpy as np

from calibrant.calibrators.export.templates.checked import Floats

WEIGHTS = np.ones(3)


def scores(x: Floats) -> Floats:
    """The logits times the weight of their class."""
    return x * WEIGHTS
