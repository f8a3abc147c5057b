"""Two classes are one probability: measures of P(positive) over the whole of 0 to 1.

The confidence of the predicted class hides which class it is: a model that says 40% where 8% are
positive can have a small ECE. For two classes, class 1 is the positive one. For samples of which
only ``confidence`` and ``correct`` are known, the confidence is the probability of being correct,
and a correct sample is a positive one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from calibrant._numerics.logspace import sigmoid, softplus
from calibrant._numerics.newton import NewtonStep, damped_newton
from calibrant.errors import CalibrantError
from calibrant.metrics.calibration import error_of_table, mass_table, width_table
from calibrant.metrics.registry import metric
from calibrant.metrics.samples import Floats, ScoredSamples

LARGEST_LOG_ODDS = 36.0
"""Log-odds are clipped here, where a probability is 0 or 1 up to rounding."""
RIDGE = 1e-8
"""Weight of the squared coefficients in the mean loss: without influence, except that it keeps
them finite where the classes are separated."""
LENGTHS = tuple(0.5**k for k in range(40))
MOST_STEPS = 100
NEAR = 1e-14
"""Decrease of the mean loss that a last step of Newton's method may still promise."""


def is_one_column(samples: ScoredSamples) -> bool:
    """Whether the samples have one probability: two classes, or confidence and correctness."""
    return samples.scores is None or samples.n_classes == 2


def positive(samples: ScoredSamples) -> ScoredSamples:
    """P(positive) as the confidence; a positive sample counts as correct."""
    if samples.scores is None:
        return ScoredSamples(samples.confidence, samples.correct, samples.weight)
    if samples.n_classes != 2:
        raise CalibrantError(
            "this metric is about P(class 1) of two classes; found "
            f"{samples.n_classes} classes. Measure classwise_ece instead"
        )
    probability = np.minimum(samples.probs()[:, 1], 1.0)
    return ScoredSamples(probability, samples.need_labels() == 1, samples.weight)


def log_odds(samples: ScoredSamples) -> Floats:
    """log(P(positive) / P(negative)) of each row, clipped."""
    if samples.scores is None:
        return clipped_log_odds(samples.confidence, 1.0 - samples.confidence)
    scores = samples.scores.astype(np.float64)
    if samples.from_logits:
        return _clipped(scores[:, 1] - scores[:, 0])
    return clipped_log_odds(scores[:, 1], scores[:, 0])


def clipped_log_odds(yes: Floats, no: Floats) -> Floats:
    """log(yes / no), clipped."""
    with np.errstate(divide="ignore"):
        return _clipped(np.log(yes) - np.log(no))


def _clipped(odds: Floats) -> Floats:
    return np.asarray(np.clip(odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS))


@dataclass(frozen=True)
class Recalibration:
    """Logistic regression of the labels on columns beside the log-odds of the predictions.

    P(positive) becomes sigmoid(log-odds + columns @ change); a change of 0 is a calibrated model.
    Rows may be groups of samples with the same log-odds.
    """

    log_odds: Floats
    columns: Floats
    """(rows, coefficients)."""
    share: Floats
    """Share of all samples in each row; they sum to 1."""
    positives: Floats
    """Share of all samples that are in the row and positive."""
    change: Floats
    """The coefficients."""

    @property
    def odds(self) -> Floats:
        """Log-odds after the change."""
        return self.log_odds + self.columns @ self.change

    @property
    def value(self) -> float:
        """Mean loss, with the ridge."""
        loss = self.share * softplus(self.odds) - self.positives * self.odds
        return float(loss.sum()) + 0.5 * RIDGE * float(self.change @ self.change)

    def standard_errors(self, square_share: Floats) -> Floats:
        """Large-sample standard errors of the coefficients.

        The larger of those for any true curve (the sandwich) and those for a logistic one, which
        hold better with few positives.

        Args:
            square_share: Squared share of a sample, summed over the samples in each row.
        """
        p = sigmoid(self.odds)
        rate = self.positives / self.share
        of_labels = np.stack([p**2 + (1.0 - 2.0 * p) * rate, p * (1.0 - p)])
        noise = self.columns.T @ (self.columns * (square_share * of_labels)[..., None])
        inverse = np.linalg.inv(self._curvature(p))
        variance = np.diagonal(inverse @ noise @ inverse, axis1=-2, axis2=-1).max(axis=0)
        # Rounding can make it negative where the probabilities are all alike: not identified.
        return np.asarray(np.sqrt(np.where(variance >= 0.0, variance, np.nan)))

    def _curvature(self, p: Floats) -> Floats:
        """Second derivatives of the loss where P(positive) is ``p``."""
        weighted = self.columns * (self.share * p * (1.0 - p))[:, None]
        return np.asarray(self.columns.T @ weighted + RIDGE * np.eye(len(self.change)))

    def fitted(self) -> Recalibration:
        """The change with the smallest loss."""

        def step_from(here: Recalibration) -> NewtonStep[Recalibration] | None:
            p = sigmoid(here.odds)
            gradient = here.columns.T @ (here.share * p - here.positives) + RIDGE * here.change
            step = -np.linalg.solve(here._curvature(p), gradient)
            decrease = -float(step @ gradient)
            if decrease <= NEAR:
                return None
            return NewtonStep(lambda f: replace(here, change=here.change + f * step), decrease)

        return damped_newton(self, step_from, lengths=LENGTHS, most_steps=MOST_STEPS)


SHIFT, SCALE, BOTH = "intercept", "slope", "both"


def recalibration(
    odds: Floats, weight: Floats, positives: Floats, *, free: str = BOTH
) -> Recalibration:
    """Fit intercept, slope or both: P(positive) = sigmoid(intercept + slope * log-odds).

    Args:
        odds: Log-odds of each row.
        weight: Number of samples in each row, or their weight.
        positives: Number of those that are positive.
        free: What is fitted; the other stays at its calibrated value.
    """
    ones = np.ones(len(odds))
    columns = {SHIFT: [ones], SCALE: [odds], BOTH: [ones, odds]}[free]
    total = weight.sum()
    start = np.zeros(len(columns))
    return Recalibration(
        odds, np.stack(columns, axis=1), weight / total, positives / total, start
    ).fitted()


def recalibration_of(samples: ScoredSamples, *, free: str = BOTH) -> Recalibration:
    """:func:`recalibration` of samples in memory."""
    weight = samples.weights
    return recalibration(log_odds(samples), weight, weight * positive(samples).correct, free=free)


@metric(lower_is_better=True)
def positive_ece(samples: ScoredSamples, *, n_bins: int = 15) -> float:
    r"""Expected calibration error of P(positive) over equal-width bins of the whole of 0 to 1.

    .. math:: \sum_b \frac{n_b}{n} \, |\overline{p}_b - \overline{y}_b|

    For two classes; class 1 is the positive one.

    Examples:
        >>> from calibrant.metrics import positive_ece
        >>> round(positive_ece([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 4)
        0.4
    """
    return error_of_table(width_table(positive(samples), n_bins), "l1")


@metric(lower_is_better=True)
def positive_ada_ece(samples: ScoredSamples, *, n_bins: int = 15) -> float:
    r"""Calibration error of P(positive) over equal-mass bins: each holds as many samples.

    .. math:: \sum_b \frac{n_b}{n} \, |\overline{p}_b - \overline{y}_b|

    Examples:
        >>> from calibrant.metrics import positive_ada_ece
        >>> probs, labels = [[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]
        >>> round(positive_ada_ece(probs, labels, n_bins=2), 4)
        0.4
    """
    return error_of_table(mass_table(positive(samples), n_bins), "l1")


@metric
def prevalence_gap(samples: ScoredSamples) -> float:
    r"""Mean P(positive) minus the rate of positives.

    .. math:: \frac1n \sum_i (p_i - y_i)

    Examples:
        >>> from calibrant.metrics import prevalence_gap
        >>> round(prevalence_gap([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 0, 1]), 4)
        -0.0667
    """
    return samples.mean(positive(samples).gap)


@metric
def calibration_slope(samples: ScoredSamples) -> float:
    r"""Slope b of the logistic recalibration: 1 if calibrated, below 1 if over-confident.

    .. math:: P(y = 1) = \sigma\Big(a + b \log \frac{p}{1 - p}\Big), \quad a, b \text{ fitted}

    Above 1 is under-confident. The intercept is free. Log-odds are clipped at 36, and a
    tiny ridge keeps the slope finite where the classes are separated.

    References:
        Cox (1958); Van Calster et al. (2019).

    Examples:
        >>> from calibrant.metrics import calibration_slope
        >>> probs = [[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4  # true in 3 of 4
        >>> round(calibration_slope(probs, [0, 0, 0, 1, 1, 1, 1, 0]), 4)
        0.5
    """
    return 1.0 + float(recalibration_of(samples).change[1])


@metric
def calibration_intercept(samples: ScoredSamples) -> float:
    r"""Calibration-in-the-large: intercept of the logistic recalibration with slope 1.

    .. math:: P(y = 1) = \sigma\Big(a + \log \frac{p}{1 - p}\Big), \quad a \text{ fitted}

    0 if calibrated; below 0 if P(positive) is too high on the whole.

    References:
        Cox (1958); Van Calster et al. (2019).

    Examples:
        >>> from calibrant.metrics import calibration_intercept
        >>> round(calibration_intercept([[0.5, 0.5]] * 4, [0, 0, 0, 1]), 4)
        -1.0986
    """
    return float(recalibration_of(samples, free=SHIFT).change[0])


COEFFICIENTS = {
    "calibration_slope": (BOTH, 1, 1.0),
    "calibration_intercept": (SHIFT, 0, 0.0),
}
"""What is fitted, which coefficient it is, and its calibrated value."""


def coefficient(
    name: str, odds: Floats, weight: Floats, positives: Floats, square_share: Floats, level: float
) -> tuple[float, float, float]:
    """A coefficient and the ends of its large-sample interval; for the arguments see above."""
    free, place, calibrated = COEFFICIENTS[name]
    fit = recalibration(odds, weight, positives, free=free)
    value = calibrated + float(fit.change[place])
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    reach = z * float(fit.standard_errors(square_share)[place])
    return value, value - reach, value + reach


def coefficient_of(name: str, samples: ScoredSamples, level: float) -> tuple[float, float, float]:
    """:func:`coefficient` of samples in memory."""
    weight = samples.weights
    square_share = (weight / weight.sum()) ** 2
    positives = weight * positive(samples).correct
    return coefficient(name, log_odds(samples), weight, positives, square_share, level)
