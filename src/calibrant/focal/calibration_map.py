"""The focal calibration map Psi: from the output of a focal-trained model to the posterior.

h(q) = q / phi(q),      Psi_i(q) = h(q_i) / sum_k h(q_k)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import (
    TopSplit,
    keep_argmax,
    normalise_log_ratios,
    split_probs,
    split_top,
)
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.focal.scalar import log_phi_low, log_phi_top


def map_log_probs(split: TopSplit, gamma: float) -> Array:
    """log Psi of the probabilities in ``split``, from ratios to the top class m:

    log h_i/h_m = z_i - log phi(q_i) + log phi(q_m),   z_i = log q_i/q_m
    """
    top = log_phi_top(split.log_rest, -split.log_top, gamma)
    ratios = split.z + (top - log_phi_low(split.log_q, split.q, gamma))
    return normalise_log_ratios(ratios, split)


@np.errstate(over="ignore")
def focal_log_probs(logits: Array, *, gamma: float, temperature: float = 1.0) -> Array:
    r"""Log-probabilities of the focal calibration map after a temperature, from logits.

    .. math::
        \log \Psi^\gamma(\mathrm{softmax}(s / T)), \qquad
        \Psi_i(q) = \frac{h(q_i)}{\sum_k h(q_k)}, \quad h(q) = \frac{q}{\varphi(q)}

    Exact to a few roundings for finite logits of any size whose differences the type can represent;
    -inf is an absent class. The predicted class never changes. Whether the confidence rises or
    falls depends on gamma, the number of classes and the row (see :func:`confidence_bias`).

    Args:
        logits: Scores before the softmax, classes on the last axis.
        gamma: Parameter of the map, at least -1; for a model trained with focal loss, its gamma.
        temperature: Positive; the logits are divided by it before the map.

    Returns:
        An array of the shape of ``logits``; float16 and bfloat16 give float32.

    References:
        Charoenphakdee et al. (2021), Theorem 11; Komisarenko and Kull (2024), Sec. 4.2.

    Examples:
        >>> import numpy as np
        >>> from calibrant.focal import focal_log_probs
        >>> np.exp(focal_log_probs([2.0, 1.0, -1.0], gamma=2.0)).round(4)
        array([0.9175, 0.0734, 0.0091])
        >>> focal_log_probs([1000.0, 0.0], gamma=2.0).round(6).tolist()
        [0.0, -2998.901388]
    """
    logits = _inputs.logits(logits)
    gamma = _inputs.gamma(gamma, lowest=-1.0, like=logits)
    temperature = check_temperature(temperature, like=logits)
    split = split_top(logits, temperature)
    return keep_argmax(map_log_probs(split, gamma), split)


@np.errstate(over="ignore")
def focal_map(probs: Array, *, gamma: float) -> Array:
    r"""Focal calibration map: from the output of a focal optimum to the true probabilities.

    .. math:: \Psi_i(q) = \frac{h(q_i)}{\sum_k h(q_k)}, \qquad h(q) = \frac{q}{\varphi(q)}

    One-hot rows, uniform rows, and rows uniform over some classes and 0 elsewhere do not change;
    gamma = 0 is the identity. If you have logits, use :func:`focal_log_probs`, which is more
    precise: a probability of 1 - 1e-20 has been rounded to 1 before it gets here.

    Args:
        probs: Probabilities, classes on the last axis, rows summing to 1.
        gamma: Parameter of the map, at least -1.

    Returns:
        Probabilities of the shape of ``probs``. Entries of 0 stay 0 and get no gradient.

    References:
        Charoenphakdee et al. (2021), Eq. 12; Komisarenko and Kull (2024), Eq. 1.

    Examples:
        >>> from calibrant.focal import focal_map
        >>> focal_map([0.6942, 0.3058], gamma=2.0).round(3)
        array([0.9, 0.1])
    """
    probs = _inputs.probs(probs)
    gamma = _inputs.gamma(gamma, lowest=-1.0, like=probs)
    split = split_probs(probs)
    xp = array_namespace(probs)
    return keep_argmax(xp.exp(map_log_probs(split, gamma)), split)


def check_temperature(value: Any, *, like: Array) -> float:
    """Check for a finite temperature above 0, in the range of the type of ``like``."""
    number = _inputs.finite_number(value, "temperature")
    if number <= 0.0:
        raise CalibrantError(
            f"temperature must be above 0; found {number:g}. "
            "Above 1 it softens the probabilities, below 1 it sharpens them"
        )
    smallest = float(array_namespace(like).finfo(like.dtype).smallest_normal)
    _inputs.within_type(number, "temperature", like, smallest=smallest)
    return number
