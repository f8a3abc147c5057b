"""The focal losses as functions of one number, the cross-entropy c = -log p, with their slopes.

    f(c)  = b^|gamma| c                         b = 1 - p  for gamma >= 0: the focal loss
    f'(c) = b^|gamma| (1 + gamma p c / b)       b = 1 + p  for gamma < 0: the inverse focal loss

For gamma >= 0 the slope is phi(p). Nothing cancels: gamma is not below 0 where b = 1 - p, and 1 - p
comes from c and not from p.

gamma is a number, or an array with one for each sample. The namespace is passed on by the caller:
a training step on a small batch would spend more time on finding it than on the arithmetic.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from calibrant._types import Array

Gamma = float | Array

SATURATED = 1e3
"""Cross-entropy beyond which p is 0 in every floating type; infinity times 0 is not to be met."""


class Parts(NamedTuple):
    """What f and its slope are made of."""

    c: Array
    """The cross-entropy, from above 0 to where p is 0."""
    p: Array
    rest: Array
    """1 - p, above 0: for gamma < 1 the derivative of b^gamma is infinite at 0."""


def parts(cross_entropy: Array, xp: ModuleType) -> Parts:
    """c, p and 1 - p from the cross-entropy."""
    smallest = xp.finfo(cross_entropy.dtype).smallest_normal
    c = xp.clip(cross_entropy, min=smallest, max=SATURATED)
    log_p = -c
    return Parts(c, xp.exp(log_p), -xp.expm1(log_p))


def base_and_power(of: Parts, gamma: Gamma, xp: ModuleType, *, signed: bool) -> tuple[Array, Array]:
    """(b, b^|gamma|); ``signed`` says whether an array of gammas may hold any below 0."""
    if isinstance(gamma, float):
        base = 1.0 + of.p if gamma < 0.0 else of.rest
        return base, base ** abs(gamma)
    if not signed:
        return of.rest, of.rest**gamma
    # 1 - p + 0, or 1 - p + 2 p where gamma is negative: cheaper than to choose.
    base = of.rest + (of.p - xp.copysign(of.p, gamma))
    return base, base ** abs(gamma)


def value(cross_entropy: Array, gamma: Gamma, xp: ModuleType, *, signed: bool = False) -> Array:
    """f(c)."""
    if isinstance(gamma, float) and gamma == 0.0:
        return cross_entropy
    return base_and_power(parts(cross_entropy, xp), gamma, xp, signed=signed)[1] * cross_entropy


def slope(of: Parts, base: Array, power: Array, gamma: Gamma, torch: ModuleType) -> Array:
    """f'(c) from what :func:`base_and_power` found, for training: in as few steps as torch has."""
    through = of.p / base * of.c
    if isinstance(gamma, float):
        return torch.addcmul(power, power, through, value=gamma)
    return torch.addcmul(power, power, through * gamma)
