"""Proper scores, error rates, and statistics of correct and of wrong predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._types import Array
from calibrant.focal import loss as focal_losses
from calibrant.metrics.binning import are_tied, width_index
from calibrant.metrics.calibration import MOST_BINS
from calibrant.metrics.registry import metric
from calibrant.metrics.samples import Floats, ScoredSamples, samples_from_scores

SURE = 0.99
"""Confidence above which a prediction counts as sure (Mukhoti et al. 2020)."""


@metric(lower_is_better=True)
def nll(samples: ScoredSamples) -> float:
    r"""Negative log-likelihood: mean of -log p of the true class, in nats.

    .. math:: -\frac1n \sum_i \log p_{i, y_i}

    Infinite if any true class has probability 0; :func:`n_impossible` counts those rows.

    Examples:
        >>> from calibrant import nll
        >>> round(nll([[0.9, 0.1], [0.4, 0.6]], [0, 1]), 4)
        0.3081
    """
    return samples.mean_of_present(-samples.true_log_prob)


@metric
def n_impossible(samples: ScoredSamples) -> float:
    """Number of rows whose true class has probability 0, which makes the NLL infinite.

    Examples:
        >>> from calibrant.metrics import n_impossible
        >>> n_impossible([[1.0, 0.0], [0.4, 0.6]], [1, 1])
        1.0
    """
    return float((samples.true_log_prob == -np.inf).sum())


@metric(lower_is_better=True)
def brier(samples: ScoredSamples) -> float:
    r"""Brier score, summed over the classes.

    .. math:: \frac1n \sum_i \sum_k (p_{ik} - [y_i = k])^2

    It is not divided by the number of classes: for two classes it is twice the binary form.

    Examples:
        >>> from calibrant import brier
        >>> round(brier([[0.9, 0.1], [0.4, 0.6]], [0, 1]), 4)
        0.17
    """
    return samples.mean(brier_rows(samples))


def brier_rows(samples: ScoredSamples) -> Floats:
    """Squared distance of each row to its one-hot label."""
    return samples.squares - 2.0 * np.exp(samples.true_log_prob) + 1.0


@metric(lower_is_better=True)
def focal_loss(samples: ScoredSamples, *, gamma: float = 3.0) -> float:
    r"""Mean focal loss.

    .. math:: -\frac1n \sum_i (1 - p_{i, y_i})^\gamma \log p_{i, y_i}

    Examples:
        >>> from calibrant import METRICS
        >>> round(METRICS["focal_loss"]([[0.9, 0.1], [0.4, 0.6]], [0, 1], gamma=2.0), 4)
        0.0414
    """
    gamma = _inputs.gamma(gamma, lowest=0.0)
    cross_entropy = -samples.true_log_prob
    return samples.mean_of_present(focal_losses.focal_of_cross_entropy(cross_entropy, gamma))


@metric(lower_is_better=True)
def error_rate(samples: ScoredSamples) -> float:
    """Share of rows whose largest probability is not at the label; ties go to the first class.

    Examples:
        >>> from calibrant import error_rate
        >>> error_rate([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    return 1.0 - samples.mean(samples.correct)


@metric(lower_is_better=True)
def top_k_error(samples: ScoredSamples, *, k: int = 5) -> float:
    """Share of rows whose label is not among the k largest; ties go to the earlier class.

    Examples:
        >>> from calibrant.metrics import top_k_error
        >>> top_k_error([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], [1, 2], k=2)
        0.5
    """
    scores = samples.need_scores()
    k = _inputs.whole_number(k, "k", allowed=range(1, 1_000_001))
    labels = samples.need_labels()[:, None]
    own = np.take_along_axis(scores, labels, axis=1)
    earlier = np.arange(scores.shape[1]) < labels
    ahead = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    return samples.mean(ahead >= k)


@metric
def s99(samples: ScoredSamples) -> float:
    """Share of predictions made with a confidence above 0.99.

    References:
        Mukhoti et al. (2020), the size of S99.

    Examples:
        >>> from calibrant.metrics import s99
        >>> s99([[0.999, 0.001], [0.4, 0.6]], [0, 0])
        0.5
    """
    return samples.mean(samples.confidence > SURE)


@metric
def s99_accuracy(samples: ScoredSamples) -> float:
    """Accuracy of the predictions made with a confidence above 0.99; NaN if there are none.

    Examples:
        >>> from calibrant.metrics import s99_accuracy
        >>> s99_accuracy([[0.999, 0.001], [0.4, 0.6]], [0, 0])
        1.0
    """
    return samples.mean(samples.correct, where=samples.confidence > SURE)


@metric
def entropy(samples: ScoredSamples) -> float:
    """Mean entropy of the predictions, in nats.

    Examples:
        >>> from calibrant.metrics import entropy
        >>> round(entropy([[0.5, 0.5], [1.0, 0.0]], [0, 0]), 4)
        0.3466
    """
    return samples.mean(samples.entropy)


@metric
def entropy_correct(samples: ScoredSamples) -> float:
    """Mean entropy of the correct predictions; NaN if there are none."""
    return samples.mean(samples.entropy, where=samples.correct)


@metric
def entropy_wrong(samples: ScoredSamples) -> float:
    """Mean entropy of the wrong predictions; NaN if there are none."""
    return samples.mean(samples.entropy, where=~samples.correct)


@metric
def nll_correct(samples: ScoredSamples) -> float:
    """Mean -log p of the true class over the correct predictions; NaN if there are none."""
    return samples.mean_of_present(-samples.true_log_prob, where=samples.correct)


@metric
def nll_wrong(samples: ScoredSamples) -> float:
    """Mean -log p of the true class over the wrong predictions; NaN if there are none."""
    return samples.mean_of_present(-samples.true_log_prob, where=~samples.correct)


@metric
def true_prob_correct(samples: ScoredSamples) -> float:
    """Mean probability of the true class over the correct predictions; NaN if there are none."""
    return samples.mean(np.exp(samples.true_log_prob), where=samples.correct)


@metric
def true_prob_wrong(samples: ScoredSamples) -> float:
    """Mean probability of the true class over the wrong predictions; NaN if there are none."""
    return samples.mean(np.exp(samples.true_log_prob), where=~samples.correct)


@metric(lower_is_better=True)
def aurc(samples: ScoredSamples) -> float:
    r"""Area under the risk-coverage curve: the mean selective error rate over all coverages.

    .. math:: \frac1n \sum_{k=1}^n \frac{\text{errors among the k most confident}}{k}

    Within a group of equal confidence, errors are spread evenly. With weights, coverage is the
    share of weight.

    References:
        Geifman and El-Yaniv (2017).

    Examples:
        >>> from calibrant.metrics import aurc
        >>> round(aurc([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 4)
        0.25
    """
    return risk_by_coverage(samples).mean_risk()


@dataclass(frozen=True)
class RiskSteps:
    """Risk among the most confident samples, from the most confident sample to all of them."""

    confidence: Floats
    """Confidence of each sample with positive weight, in descending order."""
    covered: Floats
    """Number of samples up to and including this one, or their weight."""
    risk: Floats
    """Error rate among them."""

    def mean_risk(self) -> float:
        """Weighted mean over all steps."""
        return float(np.average(self.risk, weights=np.diff(self.covered, prepend=0.0)))


def risk_by_coverage(samples: ScoredSamples) -> RiskSteps:
    """The risk-coverage curve, one step per sample with positive weight; ties are pooled."""
    weight = samples.weights
    order = np.argsort(-samples.confidence)
    order = order[weight[order] > 0]
    confidence, weight = samples.confidence[order], weight[order]
    starts = np.flatnonzero(np.append(True, ~are_tied(confidence[1:], confidence[:-1])))
    wrong = np.add.reduceat(weight * ~samples.correct[order], starts)
    rate = np.repeat(
        wrong / np.add.reduceat(weight, starts), np.diff(np.append(starts, len(confidence)))
    )
    covered = np.cumsum(weight)
    return RiskSteps(confidence, covered, np.cumsum(weight * rate) / covered)


@dataclass(frozen=True)
class BrierParts:
    """Brier = reliability - resolution + uncertainty + within_bins."""

    reliability: float
    """Squared gap between probabilities and observed frequencies: 0 for a calibrated model."""
    resolution: float
    """Variance of the observed frequencies around the base rates: more is better."""
    uncertainty: float
    """Score of a model that always predicts the base rates."""
    within_bins: float
    """Effect of probabilities that differ within one bin."""


def brier_decomposition(
    probs: Array = None,
    labels: Array = None,
    *,
    logits: Array = None,
    n_bins: int = 15,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
) -> BrierParts:
    r"""Murphy's parts of the Brier score, over equal-width bins of each class's probability.

    .. math::
        \mathrm{REL} = \sum_{kb} \tfrac{n_{kb}}{n} (\overline p_{kb} - \overline y_{kb})^2, \quad
        \mathrm{RES} = \sum_{kb} \tfrac{n_{kb}}{n} (\overline y_{kb} - \overline y_k)^2, \quad
        \mathrm{UNC} = \sum_k \overline y_k (1 - \overline y_k)

    References:
        Murphy (1973).

    Examples:
        >>> from calibrant.metrics import brier_decomposition
        >>> parts = brier_decomposition([[0.5, 0.5]] * 4, [0, 0, 0, 1])
        >>> parts.reliability, parts.resolution, parts.uncertainty
        (0.125, 0.0, 0.375)
    """
    n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
    )
    weight = samples.weights / samples.total
    reliability = resolution = uncertainty = 0.0
    for k, p in enumerate(samples.probs().T):
        is_class = samples.labels == k
        index = width_index(p, n_bins)
        share, predicted, observed = (
            np.bincount(index, weights=weight * values, minlength=n_bins)
            for values in (np.ones(len(p)), p, is_class)
        )
        full = share > 0
        share, predicted, observed = share[full], predicted[full], observed[full]
        base = observed.sum()
        reliability += float(((predicted - observed) ** 2 / share).sum())
        resolution += float((share * (observed / share - base) ** 2).sum())
        uncertainty += float(base * (1.0 - base))
    whole = brier.of(samples)
    return BrierParts(
        reliability, resolution, uncertainty, whole - (reliability - resolution + uncertainty)
    )


def kl_to_posterior(probs: Array, posterior: Array, *, sample_weight: Array = None) -> float:
    r"""Mean Kullback-Leibler divergence from a known posterior, in nats.

    .. math:: \frac1n \sum_i \sum_k \eta_{ik} \log \frac{\eta_{ik}}{p_{ik}}

    For simulated problems with known class probabilities.

    Examples:
        >>> from calibrant.metrics import kl_to_posterior
        >>> round(kl_to_posterior([[0.5, 0.5]], [[0.9, 0.1]]), 4)
        0.3681
    """
    from scipy.special import rel_entr

    _inputs.same_rows(None, probs=probs, posterior=posterior, sample_weight=sample_weight)
    predicted = _inputs.as_numpy(_inputs.probs(probs)).astype(np.float64)
    truth = _inputs.as_numpy(_inputs.probs(posterior)).astype(np.float64)
    _inputs.same_shape(probs=predicted, posterior=truth)
    weight = _inputs.sample_weight(sample_weight, predicted)
    divergence = rel_entr(truth, predicted).sum(axis=-1)
    if weight is not None:
        divergence, weight = divergence[weight > 0], weight[weight > 0]
    _inputs.something_to_measure(divergence.size)
    return max(0.0, float(np.average(divergence, weights=weight)))
