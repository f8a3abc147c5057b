"""The focal losses as functions of one number, the cross-entropy c = -log p, with their slopes.

    f(c)  = b^|gamma| c                          b = 1 - p  for gamma >= 0: the focal loss
    f'(c) = b^|gamma| (1 + gamma p c / b)        b = 1 + p  for gamma < 0: the inverse focal loss

For gamma >= 0 the slope is phi(p). These are the functions of :mod:`calibrant.focal`, here with a
gamma for every sample and the slope beside the value. Nothing cancels: gamma is not below 0 where
b = 1 - p, and 1 - p comes from c and not from p.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Gamma = float | Tensor
"""One focusing parameter, or one for each sample."""
Rule = float | Callable[[Tensor], Tensor]
"""One focusing parameter, or what makes gamma from p."""

SATURATED = 1e3
"""Cross-entropy beyond which p is 0 in every floating type; infinity times 0 is not to be met."""


def value_and_slope(cross_entropy: Tensor, rule: Rule, signed: bool) -> tuple[Tensor, Tensor]:
    """(f(c), f'(c)) in new tensors, without a gradient and in as few operations as possible."""
    if isinstance(rule, float) and rule == 0.0:
        return cross_entropy.clone(), torch.ones_like(cross_entropy)
    c, p, base = _parts(cross_entropy)
    gamma = rule(p) if callable(rule) else rule
    base, power = _powered(p, base, gamma, signed)
    through = p.div_(base).mul_(c)
    if isinstance(gamma, Tensor):
        slope = torch.addcmul(power, power, through.mul_(gamma))
    else:
        slope = torch.addcmul(power, power, through, value=gamma)
    return power.mul_(cross_entropy), slope


def focal_of(cross_entropy: Tensor, rule: Rule, *, signed: bool = False) -> Tensor:
    """f(c) for each c, differentiable as often as wanted, in either direction.

    Args:
        cross_entropy: -log p, float32 or float64, of any shape.
        rule: gamma, or what makes gamma from p, in which case no gradient passes through it.
        signed: Whether gamma may be below 0.
    """
    if isinstance(rule, float) and rule == 0.0:
        return cross_entropy
    gamma = rule(torch.exp(-cross_entropy.detach())) if callable(rule) else rule
    if torch.compiler.is_compiling():  # which joins the operations, and has no forward mode
        return _value(cross_entropy, gamma, signed)
    value: Tensor = _Focal.apply(cross_entropy, gamma, signed)  # type: ignore[no-untyped-call]
    return value


class _Focal(torch.autograd.Function):
    """f(c) with the slope f'(c), for which only c and gamma are kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(cross_entropy: Tensor, gamma: Gamma, signed: bool) -> Tensor:
        return _value(cross_entropy, gamma, signed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        cross_entropy, gamma, ctx.signed = inputs
        ctx.number = None if isinstance(gamma, Tensor) else gamma
        kept = (cross_entropy, gamma) if ctx.number is None else (cross_entropy,)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * _slope(ctx), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _slope(ctx)


def _value(cross_entropy: Tensor, gamma: Gamma, signed: bool) -> Tensor:
    _, p, base = _parts(cross_entropy)
    return _powered(p, base, gamma, signed)[1] * cross_entropy


def _slope(ctx: Any) -> Tensor:
    """f'(c), from operations that can be differentiated again."""
    cross_entropy, *saved = ctx.saved_tensors
    gamma = saved[0] if saved else ctx.number
    c, p, base = _parts(cross_entropy)
    base, power = _powered(p, base, gamma, ctx.signed)
    slope: Tensor = power + power * c * (p / base) * gamma
    return slope


def _parts(cross_entropy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(c within its range, p, 1 - p), the last not 0."""
    c = cross_entropy.clamp(torch.finfo(cross_entropy.dtype).smallest_normal, SATURATED)
    log_p = -c
    return c, log_p.exp(), -log_p.expm1()


def _powered(p: Tensor, base: Tensor, gamma: Gamma, signed: bool) -> tuple[Tensor, Tensor]:
    """(b, b^|gamma|) from p and 1 - p."""
    if signed and isinstance(gamma, Tensor):
        # 1 - p + 0, or 1 - p + 2 p where gamma is negative: cheaper than to choose.
        base = base + (p - torch.copysign(p, gamma))
        return base, base ** gamma.abs()
    return base, base**gamma
