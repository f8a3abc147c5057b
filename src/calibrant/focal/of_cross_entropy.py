"""The focal losses and their gradients as functions of the cross-entropy c = -log p.

    f(c)  = b^|gamma| c                         b = 1 - p  for gamma >= 0: the focal loss
    f'(c) = b^|gamma| (1 + gamma p c / b)       b = 1 + p  for gamma < 0: the inverse focal loss

For gamma >= 0 the gradient is phi(p). Nothing cancels: b = 1 - p occurs only with gamma >= 0, and
1 - p is computed from c, not from p.

gamma is one number, or an array with one entry for each sample. The caller passes the array
namespace: looking it up would take longer than the arithmetic of a small training batch.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from calibrant._types import Array

Gamma = float | Array

SATURATED = 1e3
"""Cross-entropy above which p is 0 in every floating type; clipping there avoids inf * 0."""


class Parts(NamedTuple):
    """The terms of f and its gradient."""

    c: Array
    """The cross-entropy, clipped to be above 0 and at most SATURATED."""
    p: Array
    rest: Array
    """1 - p, above 0: at 0 the derivative of b^gamma is infinite for gamma < 1."""


def parts(cross_entropy: Array, xp: ModuleType) -> Parts:
    """c, p and 1 - p from the cross-entropy."""
    smallest = xp.finfo(cross_entropy.dtype).smallest_normal
    c = xp.clip(cross_entropy, min=smallest, max=SATURATED)
    log_p = -c
    return Parts(c, xp.exp(log_p), -xp.expm1(log_p))


def base_and_power(of: Parts, gamma: Gamma, xp: ModuleType, *, signed: bool) -> tuple[Array, Array]:
    """(b, b^|gamma|); ``signed`` says whether an array of gammas may have negative entries."""
    if isinstance(gamma, float):
        base = 1.0 + of.p if gamma < 0.0 else of.rest
        return base, base ** abs(gamma)
    if not signed:
        return of.rest, of.rest**gamma
    # 1 - p + 0, or 1 - p + 2 p where gamma is negative: cheaper than a where().
    base = of.rest + (of.p - xp.copysign(of.p, gamma))
    return base, base ** abs(gamma)


def value(cross_entropy: Array, gamma: Gamma, xp: ModuleType, *, signed: bool = False) -> Array:
    """f(c)."""
    if isinstance(gamma, float) and gamma == 0.0:
        return cross_entropy
    return base_and_power(parts(cross_entropy, xp), gamma, xp, signed=signed)[1] * cross_entropy


def gradient(of: Parts, base: Array, power: Array, gamma: Gamma, torch: ModuleType) -> Array:
    """f'(c) from the result of :func:`base_and_power`, in as few torch operations as possible."""
    through = of.p / base * of.c
    if isinstance(gamma, float):
        return torch.addcmul(power, power, through, value=gamma)
    return torch.addcmul(power, power, through * gamma)
