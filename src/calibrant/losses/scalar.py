"""f(c) of :mod:`calibrant.focal.of_cross_entropy` as a differentiable function in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.focal.of_cross_entropy import base_and_power, gradient, parts, value

Gamma = float | Tensor
"""One focusing parameter, or one for each sample."""
Rule = float | Callable[[Tensor], Tensor]
"""One focusing parameter, or a function from p to gamma."""


class Evaluated(NamedTuple):
    """f(c), f'(c) and their gamma, detached."""

    value: Tensor
    derivative: Tensor
    gamma: Gamma


def value_and_derivative(cross_entropy: Tensor, rule: Rule, signed: bool) -> Evaluated:
    """Everything that a training step needs, in new tensors."""
    if isinstance(rule, float) and rule == 0.0:
        return Evaluated(cross_entropy, torch.ones_like(cross_entropy), rule)
    of = parts(cross_entropy, torch)
    gamma = rule(of.p) if callable(rule) else rule
    base, power = base_and_power(of, gamma, torch, signed=signed)
    return Evaluated(power * cross_entropy, gradient(of, base, power, gamma, torch), gamma)


def focal_of(cross_entropy: Tensor, rule: Rule, *, signed: bool = False) -> Tensor:
    """f(c) for each c, differentiable any number of times, in forward and reverse mode.

    Args:
        cross_entropy: -log p, float32 or float64, of any shape.
        rule: gamma, or a function from p to gamma, through which no gradient passes.
        signed: Whether gamma may be below 0.
    """
    if isinstance(rule, float) and rule == 0.0:
        return cross_entropy
    gamma = rule(torch.exp(-cross_entropy.detach())) if callable(rule) else rule
    if torch.compiler.is_compiling():  # it fuses the operations, and has no forward mode
        direct: Tensor = value(cross_entropy, gamma, torch, signed=signed)
        return direct
    focal: Tensor = _Focal.apply(cross_entropy, gamma, signed)  # type: ignore[no-untyped-call]
    return focal


class _Focal(torch.autograd.Function):
    """f(c) with the derivative f'(c), for which only c and gamma are kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(cross_entropy: Tensor, gamma: Gamma, signed: bool) -> Tensor:
        focal: Tensor = value(cross_entropy, gamma, torch, signed=signed)
        return focal

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        cross_entropy, gamma, ctx.signed = inputs
        ctx.number = None if isinstance(gamma, Tensor) else gamma
        kept = (cross_entropy, gamma) if ctx.number is None else (cross_entropy,)
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * _derivative(ctx), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _derivative(ctx)


def _derivative(ctx: Any) -> Tensor:
    """f'(c), from operations that can be differentiated again."""
    cross_entropy, *saved = ctx.saved_tensors
    gamma = saved[0] if saved else ctx.number
    of = parts(cross_entropy, torch)
    base, power = base_and_power(of, gamma, torch, signed=ctx.signed)
    result: Tensor = gradient(of, base, power, gamma, torch)
    return result
