"""The focal loss of class indices, from logits to the reduced loss.

With class indices the focal loss is f(c) of the cross-entropy c, and its gradient is

    d f / d logits = f'(c) (softmax(logits) - one-hot)

One autograd function covers an ordinary training step. The forward pass computes the gradient in
the memory of the log-probabilities, and the backward pass only scales it: one array of the size of
the logits, where cross-entropy fills three. ``torch.compile``, ``torch.func``, forward mode and
second derivatives use ``F.cross_entropy`` and f instead, which every transform supports.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor

from calibrant.losses.base import (
    LossSettings,
    class_axis,
    cross_entropy,
    is_half,
    labels_and_share,
    reduced,
)
from calibrant.losses.scalar import Gamma, Rule, focal_of, value_and_derivative

SMALL = 2**13
"""Numbers up to which compiled passes are faster than many torch operations."""
AT_ONCE = 2**18
"""Half-precision numbers that are widened together: on a CPU, as many as its cache holds."""
AT_ONCE_ELSEWHERE = 2**24
"""The same on other devices, where few large operations are faster than many small ones."""


def focal_loss_of(
    logits: Tensor, target: Tensor, rule: Rule, signed: bool, settings: LossSettings
) -> Tensor:
    """The reduced loss of logits and class indices; float32 for half-precision logits."""
    loss = applied(_Step, logits, target, rule, signed, settings)
    return _by_parts(logits, target, rule, signed, settings) if loss is None else loss


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Tensor | None:
    """The result of a function with its own gradient; None where a transform cannot use it."""
    if torch.compiler.is_compiling():
        return None
    try:
        result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
        return result
    except NotImplementedError:  # forward mode
        return None
    except RuntimeError as refusal:
        if "functorch" not in str(refusal):  # a transform of torch.func
            raise
        return None


def scaled(gradient: Tensor, scale: Tensor) -> Tensor:
    """``gradient * scale``, in the memory of the gradient if it is a single one."""
    try:
        return gradient.mul_(scale)
    except RuntimeError:  # a batch of gradients (is_grads_batched)
        return gradient * scale


def _by_parts(
    logits: Tensor, target: Tensor, rule: Rule, signed: bool, settings: LossSettings
) -> Tensor:
    c = cross_entropy(logits, target, settings.ignore_index)
    _, share = labels_and_share(target, settings, c.dtype)
    return reduced(focal_of(c, rule, signed=signed), share, settings)


class _Step(torch.autograd.Function):
    """Loss and gradient in one pass, as the form of autograd function that is fastest to call."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, rule: Any, signed: bool, settings: LossSettings
    ) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        value, gamma, ctx.gradient = _evaluated(
            logits, target, rule, signed, settings, wanted=wanted
        )
        ctx.given = gamma if isinstance(gamma, float) else lambda _: gamma, signed, settings
        ctx.save_for_backward(logits, target)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            value = _by_parts(logits, target, *ctx.given)
            (gradient,) = torch.autograd.grad(value, logits, grad, create_graph=True)
            return gradient, None, None, None, None
        # It is changed in place and returned; a second backward pass computes another.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = _evaluated(logits, target, *ctx.given, wanted=True)[-1]
        scale = grad.unsqueeze(class_axis(logits)) if grad.dim() > 0 else grad
        return scaled(gradient, scale), None, None, None, None


def _evaluated(
    logits: Tensor,
    target: Tensor,
    rule: Rule,
    signed: bool,
    settings: LossSettings,
    *,
    wanted: bool,
) -> tuple[Tensor, Gamma, Tensor | None]:
    """(reduced loss, gamma, its gradient with respect to the logits if ``wanted``)."""
    if _is_small(logits, target, settings):
        from calibrant.losses import small_batch  # it imports Numba

        found = small_batch.evaluated(logits, target, rule, settings.reduction)
        if found is not None:
            return found
    log_p, c = _log_probs(logits, target, settings.ignore_index)
    value, derivative, gamma = value_and_derivative(c, rule, signed)
    if _count_alike(target, settings):
        labels = target.long()
        if settings.reduction == "mean":
            derivative.div_(target.numel())
        value = value if settings.reduction == "none" else getattr(value, settings.reduction)()
    else:
        labels, share = labels_and_share(target, settings, c.dtype)
        value = reduced(value, share, settings)
        derivative.mul_(share)  # the loss of an ignored target is 0, but its derivative is not
    return value, gamma, _gradient(logits, log_p, labels, derivative) if wanted else None


def _is_small(logits: Tensor, target: Tensor, settings: LossSettings) -> bool:
    """Whether compiled passes are faster, and can take these tensors."""
    return (
        0 < logits.numel() <= SMALL
        and settings.weight is None
        and settings.ignore_index < 0
        and logits.dim() == 2
        and logits.device.type == target.device.type == "cpu"
        and logits.dtype in (torch.float32, torch.float64)
        and target.dtype == torch.int64
        and logits.is_contiguous()
        and target.is_contiguous()
    )


def _count_alike(target: Tensor, settings: LossSettings) -> bool:
    """Whether no target has a weight or is ignored, if that is quick to tell.

    In a small batch, weights of 1 for all targets would cost as much as the loss.
    """
    plain = settings.weight is None and settings.ignore_index < 0
    if not (plain and target.device.type == "cpu" and target.numel() > 0):
        return False
    return int(target.min()) >= 0  # other negative targets have been refused


def _gradient(logits: Tensor, log_p: Tensor | None, labels: Tensor, derivative: Tensor) -> Tensor:
    """derivative * (softmax(logits) - one-hot), in the memory of the log-probabilities."""
    axis = class_axis(logits)
    derivative, labels = derivative.unsqueeze(axis), labels.unsqueeze(axis)
    if log_p is not None:
        return log_p.exp_().mul_(derivative).scatter_add_(axis, labels, -derivative)
    gradient = torch.empty_like(logits)
    every = (pieces(part, logits) for part in (gradient, logits, labels, derivative))
    for out, piece, label, scale in zip(*every, strict=True):
        probs = F.softmax(piece, axis, dtype=derivative.dtype)
        out.copy_(probs.mul_(scale).scatter_add_(axis, label, -scale))
    return gradient


def _log_probs(logits: Tensor, target: Tensor, ignored: int) -> tuple[Tensor | None, Tensor]:
    """(log-probabilities, cross-entropy of each target).

    Half-precision logits are widened a piece at a time and their log-probabilities are not kept:
    c is exact to float32, and no float32 array has the size of the logits. For wider logits this
    would also save memory, but many small operations wait for each other's threads.
    """
    if not is_half(logits):
        log_p = torch.log_softmax(logits, class_axis(logits))
        return log_p, F.nll_loss(log_p, target, ignore_index=ignored, reduction="none")
    if logits.dim() == 1:
        return None, cross_entropy(logits, target, ignored)
    every = zip(pieces(logits, logits), pieces(target, logits), strict=True)
    return None, torch.cat([cross_entropy(piece, labels, ignored) for piece, labels in every])


def pieces(values: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """``values`` split along the batch, so that a piece of the logits is small enough to widen."""
    if logits.dim() == 1:
        return (values,)
    at_once = AT_ONCE if logits.device.type == "cpu" else AT_ONCE_ELSEWHERE
    rows = max(1, at_once * len(logits) // max(1, logits.numel()))
    parts: tuple[Tensor, ...] = values.split(rows)  # type: ignore[no-untyped-call]
    return parts
