"""Focal losses per sample."""

from __future__ import annotations

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import TopSplit, split_probs, split_top
from calibrant._types import Array
from calibrant.focal import of_cross_entropy
from calibrant.focal.inverse import inverse_logits


def focal_of_cross_entropy(cross_entropy: Array, gamma: float) -> Array:
    """f(c), whose derivative is phi(e^-c); the inverse focal loss of -gamma where gamma < 0."""
    return of_cross_entropy.value(cross_entropy, gamma, array_namespace(cross_entropy))


def cross_entropy_of(split: TopSplit, labels: Array) -> Array:
    """-log q of the labelled class, with full relative precision even where q is close to 1."""
    xp = array_namespace(split.z)
    labels = xp.expand_dims(labels, axis=-1)
    return -xp.squeeze(xp.take_along_axis(split.z, labels, axis=-1) + split.log_top, axis=-1)


@np.errstate(over="ignore")
def focal_loss(logits: Array, labels: Array, *, gamma: float) -> Array:
    r"""Focal loss per sample.

    .. math:: \mathrm{FL} = -(1 - p)^\gamma \log p, \qquad p = \mathrm{softmax}(s)_y

    Args:
        logits: Scores before the softmax, classes on the last axis.
        labels: Class indices, one per row.
        gamma: Focusing parameter, at least 0; 0 is cross-entropy.

    Returns:
        One loss per row; infinite where the labelled class is masked by -inf.

    References:
        Lin et al. (2017); Mukhoti et al. (2020), Sec. 4.

    Examples:
        >>> from calibrant.focal import focal_loss
        >>> focal_loss([[2.0, 0.0], [2.0, 0.0]], [0, 1], gamma=2.0).round(4)
        array([0.0018, 1.6501])
    """
    logits = _inputs.logits(logits)
    labels = _inputs.labels(labels, logits)
    gamma = _inputs.gamma(gamma, lowest=0.0, like=logits)
    return focal_of_cross_entropy(cross_entropy_of(split_top(logits), labels), gamma)


@np.errstate(over="ignore")
def inverse_focal_loss(logits: Array, labels: Array, *, gamma: float) -> Array:
    r"""Inverse focal loss per sample: larger gradients for samples that are already correct.

    .. math:: -(1 + p)^\gamma \log p, \qquad p = \mathrm{softmax}(s)_y

    AdaFocal uses it for under-confident bins. ``gamma`` is the absolute value of the negative
    gamma of AdaFocal.

    Args:
        logits: Scores before the softmax, classes on the last axis.
        labels: Class indices, one per row.
        gamma: At least 0; 0 is cross-entropy.

    Returns:
        One loss per row; infinite where the labelled class is masked by -inf.

    References:
        Ghosh et al. (2022), AdaFocal.

    Examples:
        >>> from calibrant.focal import inverse_focal_loss
        >>> inverse_focal_loss([[2.0, 0.0]], [0], gamma=2.0).round(4)
        array([0.449])
    """
    logits = _inputs.logits(logits)
    labels = _inputs.labels(labels, logits)
    gamma = _inputs.gamma(gamma, lowest=0.0, like=logits)
    return focal_of_cross_entropy(cross_entropy_of(split_top(logits), labels), -gamma)


@np.errstate(over="ignore")
def proper_focal_loss(probs: Array, labels: Array, *, gamma: float) -> Array:
    r"""Properised focal loss per sample: the focal loss of the inverse focal map.

    .. math:: L^*(\eta, y) = \mathrm{FL}\big((\Psi^\gamma)^{-1}(\eta), y\big)

    Strictly proper: its expectation is smallest where ``probs`` is the true posterior. Training
    with the focal loss and then applying :func:`focal_map` is the same as training with this loss.

    Args:
        probs: Probabilities, classes on the last axis, rows summing to 1.
        labels: Class indices, one per row.
        gamma: Focusing parameter, at least 0; 0 is the log loss.

    Returns:
        One loss per row; infinite where the labelled class has probability 0.

    References:
        Komisarenko and Kull (2024), Proposition 4.

    Examples:
        >>> from calibrant.focal import proper_focal_loss
        >>> proper_focal_loss([[0.9, 0.1]], [0], gamma=2.0).round(4)
        array([0.0341])
    """
    probs = _inputs.probs(probs)
    labels = _inputs.labels(labels, probs)
    gamma = _inputs.gamma(gamma, lowest=0.0, like=probs)
    output = split_top(inverse_logits(split_probs(probs), gamma))
    return focal_of_cross_entropy(cross_entropy_of(output, labels), gamma)
