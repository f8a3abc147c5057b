r"""The class shares of unlabelled samples, with an interval and a test of label shift.

Under label shift the classes have other shares but each class looks as before: the scores of new
samples are a mixture of those of the classes. With the probabilities p and shares :math:`\pi` of
labelled samples, the likelihood of new shares :math:`\pi'` is

.. math:: \sum_t \log \sum_k \pi'_k D_{tk}, \qquad D_{tk} = p_k(x_t) / \pi_k

It is concave; EM multiplies :math:`\pi'_k` by the mean over t of
:math:`R_{tk} = D_{tk} / \sum_j \pi'_j D_{tj}` until these means are 1. EM needs calibrated
probabilities, so a slope and a bias for each class are fitted on the labelled samples first. The
errors of that fit, of :math:`\pi` and of the unlabelled samples all move the estimate. To first
order it is a sum over samples, whose variance gives the interval:

.. math::
    d\pi' = M^{-1} \big( \overline{R} - 1 + C_b (db - d\log\pi) + C_a\, da \big),
    \qquad M = \overline{R R^\top}

The test compares the shares of unlabelled samples in cells (ranges of probability) with those of
the labelled samples, each weighted by :math:`\pi'_y / \pi_y`. The covariance of the differences
follows from the same sums, and gives Hotelling's T^2.

Saerens, Latinne and Decaestecker (2002) for EM; Alexandari, Kundaje and Shrikumar (2020) for the
calibration before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._numerics.logspace import log_softmax, softmax
from calibrant._tables import count_text, text_table
from calibrant._types import Array
from calibrant.calibrators.data import FitData, Floats, given_scores, samples_of, to_logits
from calibrant.calibrators.linear.loss import loss_of_slope
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
from calibrant.calibrators.parts import fit_part
from calibrant.errors import CalibrantError

TOLERANCE = 1e-6
"""EM stops when the log-likelihood of all samples is within this of its maximum."""
MOST_STEPS = 100_000
NO_RIDGE = 1e-8
CELL = 50
"""Labelled samples in a cell of the test."""
MOST_RANGES = 10
"""Most ranges of confidence for one predicted class."""
MOST_CLASSES = 20
"""Most predicted classes with cells of their own; the others share theirs."""
MOST_CELLS = 60
LOWEST = -700.0
"""Log-probability of a class that is absent; its exponential is just above 0."""
ROUNDING = 1e-10
"""Directions with a variance below this share of the largest have none but rounding."""


@dataclass(frozen=True, eq=False)
class PrevalenceEstimate:
    """The result of :func:`estimate_prevalence`: print it, or pass ``shares`` on."""

    shares: Floats
    """Estimated share of each class among the unlabelled samples."""
    low: Floats
    high: Floats
    source: Floats
    """Share of each class among the labelled samples."""
    p_value: float
    """Of the test whether label shift explains the scores; small if it does not."""
    level: float
    n: int
    """Number of unlabelled samples."""
    n_labelled: int
    classes: tuple[Any, ...]

    @property
    def is_label_shift(self) -> bool:
        """Whether the test, at the level of the intervals, leaves label shift possible."""
        return self.p_value >= 1.0 - self.level

    @property
    def verdict(self) -> str:
        """Whether the estimate can be used, in a sentence."""
        found = f"(p = {self.p_value:.2g})"
        if self.is_label_shift:
            return f"Label shift explains the scores {found}."
        return (
            f"Label shift does not explain the scores {found}: the classes themselves look "
            "different, or the probabilities are off. Do not use these shares; label new samples."
        )

    def __str__(self) -> str:
        head = ["class", "labelled", "now", f"{100 * self.level:g}% interval"]
        rows = [
            [str(name), f"{was:.2%}", f"{now:.2%}", f"{low:.2%} to {high:.2%}"]
            for name, was, now, low, high in zip(
                self.classes, self.source, self.shares, self.low, self.high, strict=True
            )
        ]
        about = (
            f"{count_text(self.n)} unlabelled and {count_text(self.n_labelled)} labelled samples"
        )
        return "\n".join([about, *text_table([head, *rows], "<>>>"), self.verdict])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **{name: getattr(self, name) for name in ("n", "n_labelled", "level", "p_value")},
            "is_label_shift": self.is_label_shift,
            "classes": [str(name) for name in self.classes],
            **{name: getattr(self, name).tolist() for name in ("source", "shares", "low", "high")},
        }


def estimate_prevalence(
    probs: Any = None,
    labels: Array = None,
    unlabelled: Any = None,
    *,
    logits: Any = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
) -> PrevalenceEstimate:
    """Estimate the share of each class among unlabelled samples, by EM.

    It holds under label shift: the classes have other shares, and the samples of each class look as
    before. A test of the scores says whether that is possible. The probabilities need not be
    calibrated: a slope and a bias for each class are fitted first.

    Args:
        probs: Probabilities of labelled samples, which the model was not trained on.
        labels: Their labels: class indices, or names.
        unlabelled: Probabilities of the new samples, or logits if ``logits`` is given.
        logits: Logits of the labelled samples instead of ``probs``.
        positive: The positive class, if there is one column and the labels are not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        level: Confidence level of the intervals; the test rejects below 1 - ``level``.

    References:
        Saerens, Latinne and Decaestecker (2002); Alexandari, Kundaje and Shrikumar (2020).

    Examples:
        >>> import numpy as np
        >>> import calibrant
        >>> def sick(rng, n, share):  # log-odds of a test for a disease
        ...     labels = (rng.random(n) < share).astype(int)
        ...     return rng.normal(2.0 * labels - 1.0) * 2.0 + np.log(0.1 / 0.9), labels
        >>> rng = np.random.default_rng(0)
        >>> old, labels = sick(rng, 4000, 0.1)
        >>> new, _ = sick(rng, 4000, 0.3)
        >>> found = calibrant.estimate_prevalence(logits=old, labels=labels, unlabelled=new)
        >>> bool(found.low[1] < 0.3 < found.high[1]), found.is_label_shift
        (True, True)
    """
    level = _inputs.level(level)
    if unlabelled is None:
        raise CalibrantError("unlabelled scores are needed; found none. Pass unlabelled=")
    kind, _ = _inputs.one_of(probs=probs, logits=logits)
    source, names = samples_of(
        given_scores(None, logits, probs), labels, classes=classes, positive=positive
    )
    absent = np.flatnonzero(np.bincount(source.labels, minlength=source.n_classes) == 0)
    if len(absent):
        raise CalibrantError(
            f"every class must have a labelled sample; found none of {names[absent[0]]!r}. "
            "Leave the class out, or add samples"
        )
    given = _inputs.scores(kind, unlabelled, names)
    target = _inputs.as_numpy(to_logits(kind, given.checked()))
    _inputs.same_classes(target, source.n_classes)
    target = target.reshape(-1, source.n_classes)
    _inputs.something_to_measure(len(target))
    labelled = Labelled.of(log_probs(source.logits), source.labels)
    mixture = Mixture.of(log_probs(target), labelled)
    variance = sum(each.var(axis=0) / len(each) for each in mixture.influence)
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * np.sqrt(variance)
    reach = np.where(mixture.undetermined, 1.0, reach)
    return PrevalenceEstimate(
        shares=mixture.shares,
        low=np.maximum(mixture.shares - reach, 0.0),
        high=np.minimum(mixture.shares + reach, 1.0),
        source=labelled.shares,
        p_value=label_shift_p_value(mixture, labelled),
        level=level,
        n=len(target),
        n_labelled=len(source),
        classes=names,
    )


def log_probs(logits: npt.NDArray[Any]) -> Floats:
    """Log-probabilities; those of absent classes are finite too."""
    return np.asarray(np.maximum(log_softmax(logits.astype(np.float64)), LOWEST))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled samples, and the recalibration that they give."""

    z: Floats
    """Log-probabilities, (n, K)."""
    labels: npt.NDArray[np.int64]
    shares: Floats
    """Share of each class, (K,)."""
    inverse_temperature: float
    bias: Floats
    influence: Floats
    """What each sample adds to the fitted biases and, in the last column, the inverse temperature,
    (n, K + 1)."""

    @classmethod
    def of(cls, z: Floats, labels: npt.NDArray[np.int64]) -> Labelled:
        """Fit a slope and a bias for each class."""
        scaling = BiasCorrectedTemperatureScaling(ridge=NO_RIDGE)
        fit_part(scaling, FitData(z, labels, None))
        inverse_temperature = 1.0 / scaling.temperature_
        p = softmax(inverse_temperature * z + scaling.bias_)
        residual = -p
        residual[np.arange(len(p)), labels] += 1.0
        score = np.column_stack([residual, (residual * z).sum(axis=1)])
        loss = loss_of_slope(z, labels, np.full(len(p), 1.0 / len(p)))
        hessian = loss.nll_and_hessian(np.append(inverse_temperature, scaling.bias_))[2]
        information = np.roll(hessian, -1, axis=(0, 1))  # the inverse temperature comes last
        shares = np.bincount(labels, minlength=z.shape[1]) / len(labels)
        influence = score @ np.linalg.pinv(information, hermitian=True)
        return cls(z, labels, shares, inverse_temperature, scaling.bias_, influence)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Unlabelled samples as a mixture of classes."""

    z: Floats
    shares: Floats
    influence: tuple[Floats, Floats]
    """What each unlabelled and each labelled sample adds to the shares, (n, K) each."""
    undetermined: npt.NDArray[np.bool_]
    """(K,): whether the scores cannot tell the class from another."""

    @classmethod
    def of(cls, z: Floats, labelled: Labelled) -> Mixture:
        """Maximise the likelihood of the shares."""
        ratios = softmax(labelled.inverse_temperature * z + labelled.bias) / labelled.shares
        shares = maximise(ratios, labelled.shares)
        relative = ratios / (ratios @ shares)[:, None]
        q = relative * shares
        moments = relative.T @ relative / len(z)
        values, directions = np.linalg.eigh(moments)
        lost = directions[:, values <= ROUNDING * values.max()]
        inverse = np.linalg.pinv(moments, rcond=ROUNDING, hermitian=True)
        by_bias = np.diag(relative.mean(axis=0)) - relative.T @ q / len(z)
        by_scale = (relative * (z - (q * z).sum(axis=1)[:, None])).mean(axis=0)
        class_noise = -np.ones_like(labelled.z)
        rows = np.arange(len(labelled.labels))
        class_noise[rows, labelled.labels] += 1.0 / labelled.shares[labelled.labels]
        of_labelled = (labelled.influence[:, :-1] - class_noise) @ by_bias.T
        of_labelled += labelled.influence[:, -1:] * by_scale
        influence = (relative - 1.0) @ inverse, of_labelled @ inverse
        return cls(z, shares, influence, (lost**2).sum(axis=1) > TOLERANCE)


def maximise(ratios: Floats, start: Floats) -> Floats:
    """The shares of greatest likelihood, by EM.

    The largest gradient bounds how far the log-likelihood is below its maximum, because it is
    concave.
    """
    shares, n = start, len(ratios)
    for _ in range(MOST_STEPS):
        gradient = ratios.T @ (1.0 / (ratios @ shares)) / n
        if n * (gradient.max() - 1.0) <= TOLERANCE:
            break
        shares = shares * gradient
    return np.asarray(shares / shares.sum())


def label_shift_p_value(mixture: Mixture, labelled: Labelled) -> float:
    """The p-value of the hypothesis that the unlabelled scores are a mixture of the labelled."""
    p_values = [
        cells_p_value(mixture, labelled, unlabelled_cells, labelled_cells)
        for unlabelled_cells, labelled_cells in cells_of(mixture.z, labelled.z)
    ]
    return min(1.0, len(p_values) * min(p_values))  # Bonferroni


def cells_p_value(
    mixture: Mixture, labelled: Labelled, unlabelled_cells: Floats, labelled_cells: Floats
) -> float:
    """The p-value of Hotelling's test of the differences between observed and expected shares."""
    classes = np.eye(len(labelled.shares))[labelled.labels]
    rates = labelled_cells.T @ classes / classes.sum(axis=0)  # among the samples of each class
    weights = (mixture.shares / labelled.shares)[labelled.labels]
    from_unlabelled, from_labelled = (each @ rates.T for each in mixture.influence)
    noise = (
        unlabelled_cells - from_unlabelled,
        weights[:, None] * (labelled_cells - rates.T[labelled.labels]) + from_labelled,
    )
    difference = unlabelled_cells.mean(axis=0) - rates @ mixture.shares
    covariance = sum(np.cov(each, rowvar=False, ddof=0) / len(each) for each in noise)
    variances, directions = np.linalg.eigh(np.atleast_2d(covariance))
    kept = variances > ROUNDING * variances.max()
    n, size = min(map(len, noise)), int(kept.sum())
    if not 0 < size < n:
        return 1.0  # all samples are in one cell, or too few to tell
    statistic = ((difference @ directions)[kept] ** 2 / variances[kept]).sum()
    from scipy.special import fdtrc

    return float(fdtrc(size, n - size, statistic * (n - size) / (size * (n - 1))))


def cells_of(unlabelled: Floats, labelled: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Which cell each unlabelled, and each labelled, sample is in: 0 or 1 for each cell.

    First the cells are ranges of confidence of each predicted class, then, if there are more than
    two classes, ranges of the probability of one class after the other. Ranges hold the same number
    of labelled samples.
    """
    counts = np.bincount(labelled.argmax(axis=1), minlength=labelled.shape[1])
    own = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    own = own[counts[own] >= CELL]
    place = np.full(labelled.shape[1], len(own))  # the last is that of all other classes
    place[own] = np.arange(len(own))
    known = place[labelled.argmax(axis=1)]
    most = min(MOST_RANGES, MOST_CELLS // (len(own) + 1))
    edges = [ranges_of(labelled.max(axis=1)[known == k], most) for k in range(len(own) + 1)]

    def by_prediction(z: Floats) -> Floats:
        predicted, confidence = place[z.argmax(axis=1)], z.max(axis=1)
        return np.hstack(
            [(predicted == k)[:, None] * inside(confidence, each) for k, each in enumerate(edges)]
        )

    yield by_prediction(unlabelled), by_prediction(labelled)
    for k in own if labelled.shape[1] > 2 else ():
        of_class = ranges_of(labelled[:, k], MOST_RANGES)
        yield inside(unlabelled[:, k], of_class), inside(labelled[:, k], of_class)


def ranges_of(values: Floats, most: int) -> Floats:
    """The inner edges of at most so many ranges, with the same number of values in each."""
    n_ranges = min(len(values) // CELL, most)
    if n_ranges < 2:
        return values[:0]
    return np.unique(np.quantile(values, np.arange(1, n_ranges) / n_ranges))


def inside(values: Floats, edges: Floats) -> Floats:
    """1 in the column of the range that a value is in."""
    return np.eye(len(edges) + 1)[np.searchsorted(edges, values, side="right")]
