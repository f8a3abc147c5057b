"""The predicted class by its log-odds, the others by a softmax of their own: top-rest, auto."""

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.export.templates.checked import N_CLASSES, Floats, checked

TEMPERATURE = 1.0
SLOPES = np.ones(5)
OFFSET = 0.0
CONTEST = 0.0
CLASS_OFFSETS = np.zeros(3)
REST_TEMPERATURE = 1.0
REST_BIASES = np.zeros(3)


def curve(odds: Floats) -> Floats:
    """A smooth curve whose slope changes from one of SLOPES to the next at 0, 2, 4 and 6."""
    above = [np.logaddexp(0.0, odds - knot) for knot in (0.0, 2.0, 4.0, 6.0)]
    total: Floats = SLOPES[4] * above[3] - SLOPES[0] * np.logaddexp(0.0, -odds)
    for j in (1, 2, 3):
        total = total + SLOPES[j] * (above[j - 1] - above[j])
    return total


def relative(scores: Floats) -> tuple[Floats, Floats, Floats]:
    """The largest score of each row, the scores minus it, and their log-sum-exp."""
    largest = np.maximum(scores.max(axis=-1, keepdims=True), -1e300)  # also where all are -inf
    below = scores - largest
    return largest, below, np.log(np.maximum(np.exp(below).sum(axis=-1, keepdims=True), 1.0))


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """The top class from its log-odds: curve(odds) + OFFSET + CONTEST (odds - lead) + its offset;
    the others share the rest by softmax(s / (TEMPERATURE REST_TEMPERATURE) + REST_BIASES).
    """
    s, dtype = checked(logits)
    top = s.argmax(axis=-1)[..., np.newaxis]
    is_top = np.arange(N_CLASSES) == top
    with np.errstate(over="ignore"):
        z = np.where(is_top, -np.inf, s - np.take_along_axis(s, top, axis=-1)) / TEMPERATURE
        others = z / REST_TEMPERATURE + REST_BIASES
    runner_up, _, log_sum = relative(z)
    lead, odds = np.minimum(-runner_up, 1e30), np.minimum(-runner_up - log_sum, 1e30)
    _, others, log_sum = relative(others)
    x = curve(odds) + OFFSET + CONTEST * (odds - lead) + CLASS_OFFSETS[top]
    # The lead over the next class stays between a quarter and four times what it was.
    x = np.clip(x, lead / 4 - log_sum, lead * 4 - log_sum)
    rest = np.exp(others - log_sum - np.logaddexp(0.0, x))
    p: Floats = np.where(is_top, 1 / (1 + np.exp(-x)), rest)
    return p.astype(dtype)
