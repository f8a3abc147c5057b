"""The focal loss of a small batch on a CPU, in two compiled passes.

On 128 x 10 logits the twenty operations of :mod:`calibrant.losses.step` take longer to call than to
compute, twice the time of ``F.cross_entropy``. Two compiled passes take 1.0 to 1.7 times
its time. Larger batches are faster in torch, whose operations are vectorised.

The passes restate f and f' of :mod:`calibrant.focal.of_cross_entropy`; a test compares the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant._numerics.compiled import kernel
from calibrant.focal.of_cross_entropy import SATURATED
from calibrant.losses.scalar import Gamma, Rule


def evaluated(
    logits: Tensor, target: Tensor, rule: Rule, reduction: str
) -> tuple[Tensor, Gamma, Tensor] | None:
    """(reduced loss, gamma, its gradient by the logits); None if a target is no class."""
    n, smallest = len(logits), torch.finfo(logits.dtype).tiny
    gradient, p = torch.empty_like(logits), logits.new_empty(n)
    cross_entropy, labels = np.empty(n), target.numpy()
    probs = gradient.numpy()
    if not softmax_and_cross_entropy(
        logits.detach().numpy(), labels, probs, cross_entropy, p.numpy(), smallest
    ):
        return None
    gamma = rule(p) if callable(rule) else rule
    if isinstance(gamma, float):
        gammas = np.array([gamma])
    else:  # of all rows, or of each
        gammas = gamma.double().reshape(-1).contiguous().numpy()
    values = logits.new_empty(n)
    scale = 1.0 / n if reduction == "mean" else 1.0
    total = focal_loss_and_gradient(
        cross_entropy, gammas, labels, scale, smallest, values.numpy(), probs
    )
    return values if reduction == "none" else values.new_tensor(total), gamma, gradient


@kernel(nogil=True, error_model="numpy")
def softmax_and_cross_entropy(
    logits: Any, labels: Any, probs: Any, cross_entropy: Any, p_of_label: Any, smallest: float
) -> bool:
    """Softmax, -log p and p of the label of each row; False if a label is no class."""
    n_classes = logits.shape[1]
    for i in range(len(logits)):
        label = labels[i]
        if label < 0 or label >= n_classes:
            return False
        highest = logits[i, 0]
        for k in range(1, n_classes):
            if logits[i, k] > highest:  # never, if the first is NaN
                highest = logits[i, k]
        total = 0.0
        for k in range(n_classes):
            probs[i, k] = math.exp(np.float64(logits[i, k]) - highest)
            total += probs[i, k]
        for k in range(n_classes):
            probs[i, k] /= total
        c = math.log(total) - (np.float64(logits[i, label]) - highest)
        cross_entropy[i] = c
        p_of_label[i] = math.exp(-clipped(c, smallest))
    return True


@kernel(nogil=True, error_model="numpy")
def focal_loss_and_gradient(
    cross_entropy: Any,
    gammas: Any,
    labels: Any,
    scale: float,
    smallest: float,
    values: Any,
    probs: Any,
) -> float:
    """The scaled sum of f(c), which is written to ``values``; ``probs`` become its gradient.

    ``gammas`` has one entry, or one for each row.
    """
    total = 0.0
    for i in range(len(cross_entropy)):
        gamma = gammas[i % len(gammas)]
        c = clipped(cross_entropy[i], smallest)
        p = math.exp(-c)
        base = 1.0 + p if gamma < 0.0 else -math.expm1(-c)
        power = base ** abs(gamma)
        value = power * cross_entropy[i]
        values[i] = value
        total += value
        derivative = scale * power * (1.0 + gamma * (p / base * c))
        for k in range(probs.shape[1]):
            probs[i, k] *= derivative
        probs[i, labels[i]] -= derivative
    return scale * total


@kernel(error_model="numpy")
def clipped(c: float, smallest: float) -> Any:
    """c, at least the smallest normal number and at most SATURATED; NaN stays NaN."""
    if c < smallest:
        return smallest
    return SATURATED if c > SATURATED else c
