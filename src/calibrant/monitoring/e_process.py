r"""Evidence against calibration that may be looked at after every period.

The evidence after period b is a mixture over alternatives j and over the period s in which the
change may have begun,

.. math:: E_b = \sum_j w_j \Big(\sum_{s \le b} \pi_s \prod_{t=s}^{b} L_{tj} + \sum_{s>b} \pi_s\Big),
   \qquad \pi_s = \frac{1}{s(s+1)},

where :math:`L_{tj}` is the likelihood ratio of the labels of period t. Each product has mean 1 if
the model is calibrated, so E is a martingale that starts at 1, and the probability that it *ever*
reaches :math:`1/\alpha` is at most :math:`\alpha` (Ville's inequality), however often it is
looked at. The alternatives are those of all samples and, with a prior of their own, those of each
group.

References:
    Ville (1939); Robbins (1970), mixtures of likelihood ratios; Ramdas, Grünwald, Vovk and Shafer
    (2023), e-processes; Shin, Ramdas and Rinaldo (2023), changes at an unknown time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from calibrant.metrics.samples import Floats

ALL = ""
"""The key of all samples, beside the names of groups."""
SHARE_OF_GROUPS = 0.5
"""Prior weight of all groups together, if there are any."""


@dataclass
class EProcess:
    """The evidence after some periods.

    Examples:
        >>> import numpy as np
        >>> watched = EProcess(np.log([0.5, 0.5]), n_of_group=0)
        >>> watched.update({ALL: np.log([2.0, 0.5])})  # as if the first alternative were true
        >>> round(float(np.exp(watched.log_e)), 3)
        1.125
    """

    log_weights: Floats
    """Of the alternatives of all samples."""
    n_of_group: int
    """How many alternatives each group has."""
    grouped: bool = False
    """Whether groups are watched too."""
    periods: int = 0
    """The periods so far."""
    wealth: dict[str, Floats] = field(default_factory=dict)
    """The logarithm of each alternative's sum over starting periods, by group."""

    def update(self, log_ratios: Mapping[str, Floats]) -> None:
        """Add a period: the log likelihood ratios of all samples and of each group in it."""
        for name in log_ratios:
            if name not in self.wealth:  # before, its likelihood ratios were 1
                done = math.log(self.periods / (self.periods + 1)) if self.periods else -math.inf
                self.wealth[name] = self.prior(name) + done
        self.periods += 1
        start = -math.log(self.periods * (self.periods + 1))
        for name, wealth in self.wealth.items():
            begun = np.logaddexp(wealth, self.prior(name) + start)
            self.wealth[name] = begun + log_ratios.get(name, 0.0)

    @property
    def log_e(self) -> float:
        """The logarithm of the evidence."""
        seen = sum(float(np.exp(self.prior(name)).sum()) for name in self.wealth)
        unused = 1.0 - seen * self.periods / (self.periods + 1)
        parts = [*self.wealth.values(), np.array([math.log(max(unused, 1e-300))])]
        return float(np.logaddexp.reduce(np.concatenate(parts)))

    def prior(self, name: str) -> Floats:
        """The logarithm of the weight of each alternative of a group."""
        if name == ALL:
            return self.log_weights + (math.log1p(-SHARE_OF_GROUPS) if self.grouped else 0.0)
        order = [group for group in self.wealth if group != ALL]
        place = order.index(name) + 1 if name in order else len(order) + 1
        share = SHARE_OF_GROUPS / (place * (place + 1) * self.n_of_group)
        return np.full(self.n_of_group, math.log(share))


@dataclass(frozen=True)
class Onset:
    """When a change began, as indices of periods."""

    likeliest: int
    earliest: int
    latest: int


def onset(log_ratios: Floats, log_weights: Floats, level: float = 0.95) -> Onset:
    """The period in which the change began, with an interval.

    Args:
        log_ratios: (periods, alternatives) log likelihood ratios.
        log_weights: Of the alternatives.
        level: Probability of the interval, if all periods are equally likely beforehand.

    Examples:
        >>> import numpy as np
        >>> onset(np.array([[-5.0], [-5.0], [6.0], [7.0]]), np.zeros(1))
        Onset(likeliest=2, earliest=2, latest=2)
    """
    since = np.cumsum(log_ratios[::-1], axis=0)[::-1]
    evidence = np.logaddexp.reduce(since + log_weights, axis=1)
    chance = np.exp(evidence - evidence.max())
    below = np.cumsum(chance) / chance.sum()
    tail = (1.0 - level) / 2.0
    earliest, latest = (int(np.searchsorted(below, at)) for at in (tail, 1.0 - tail))
    return Onset(int(evidence.argmax()), earliest, min(latest, len(chance) - 1))
