"""The focal loss of class indices, from logits to the reduced loss.

With class indices the focal loss is f(c) of the cross-entropy c, and its gradient is

    d f / d logits = f'(c) (softmax(logits) - one-hot)

One autograd function does it all for an ordinary training step. The gradient is made in the place
of the log-probabilities as soon as the loss is known, and only scaled by the backward pass: one
array of the size of the logits, where cross-entropy fills three. ``torch.compile``,
``torch.func``, forward mode and second derivatives take the way over ``F.cross_entropy`` and f,
which every transform can follow.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor

from calibrant.losses.base import (
    Settings,
    class_axis,
    cross_entropy,
    is_half,
    labels_and_share,
    reduced,
)
from calibrant.losses.scalar import Gamma, Rule, evaluate, focal_of

AT_ONCE = 2**18
"""Numbers of half precision that are widened together: on a CPU as many as its cache holds."""
AT_ONCE_ELSEWHERE = 2**24
"""The same on other devices, where few large operations are better than many small ones."""


def focal_loss_of(
    logits: Tensor, target: Tensor, rule: Rule, signed: bool, settings: Settings
) -> Tensor:
    """The reduced loss of logits and class indices; float32 where logits are of half precision."""
    if not torch.compiler.is_compiling():
        try:
            loss: Tensor = _Step.apply(  # type: ignore[no-untyped-call]
                logits, target, rule, signed, settings
            )
            return loss
        except NotImplementedError:  # in forward mode
            pass
        except RuntimeError as refusal:
            if "functorch" not in str(refusal):  # a transform of torch.func
                raise
    return _by_parts(logits, target, rule, signed, settings)


def _by_parts(
    logits: Tensor, target: Tensor, rule: Rule, signed: bool, settings: Settings
) -> Tensor:
    c = cross_entropy(logits, target, settings.ignore_index)
    _, share = labels_and_share(target, settings, c.dtype)
    return reduced(focal_of(c, rule, signed=signed), share, settings)


class _Step(torch.autograd.Function):
    """Loss and gradient in one go, in the form of an autograd function that is quickest to call."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, rule: Any, signed: bool, settings: Settings
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
        if torch.is_grad_enabled():  # a second derivative will be asked for
            value = _by_parts(logits, target, *ctx.given)
            (gradient,) = torch.autograd.grad(value, logits, grad, create_graph=True)
            return gradient, None, None, None, None
        # It is given away and changed in place; whoever comes a second time waits for another.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = _evaluated(logits, target, *ctx.given, wanted=True)[-1]
        scale = grad.unsqueeze(class_axis(logits)) if grad.dim() > 0 else grad
        try:
            gradient = gradient.mul_(scale)
        except RuntimeError:  # a whole batch of gradients at once (is_grads_batched)
            gradient = gradient * scale
        return gradient, None, None, None, None


def _evaluated(
    logits: Tensor, target: Tensor, rule: Rule, signed: bool, settings: Settings, *, wanted: bool
) -> tuple[Tensor, Gamma, Tensor | None]:
    """(reduced loss, gamma, its gradient by the logits if that is wanted)."""
    log_p, c = _log_probs(logits, target, settings.ignore_index)
    value, slope, gamma = evaluate(c, rule, signed)
    if _count_alike(target, settings):
        labels = target.long()
        if settings.reduction == "mean":
            slope.div_(target.numel())
        value = value if settings.reduction == "none" else getattr(value, settings.reduction)()
    else:
        labels, share = labels_and_share(target, settings, c.dtype)
        value = reduced(value, share, settings)
        slope.mul_(share)  # what an ignored target costs is 0 already; its slope is not
    return value, gamma, _gradient(logits, log_p, labels, slope) if wanted else None


def _count_alike(target: Tensor, settings: Settings) -> bool:
    """Whether no target has a weight or is ignored, where it takes no time to see that.

    In a small batch, weights of 1 for all would cost as much as the loss.
    """
    plain = settings.weight is None and settings.ignore_index < 0
    if not (plain and target.device.type == "cpu" and target.numel() > 0):
        return False
    return int(target.min()) >= 0  # others that are negative have been refused


def _gradient(logits: Tensor, log_p: Tensor | None, labels: Tensor, slope: Tensor) -> Tensor:
    """slope * (softmax(logits) - one-hot), in the place of the log-probabilities."""
    axis = class_axis(logits)
    slope, labels = slope.unsqueeze(axis), labels.unsqueeze(axis)
    if log_p is not None:
        return log_p.exp_().mul_(slope).scatter_add_(axis, labels, -slope)
    gradient = torch.empty_like(logits)
    every = (_pieces(part, logits) for part in (gradient, logits, labels, slope))
    for out, piece, label, scale in zip(*every, strict=True):
        probs = F.softmax(piece, axis, dtype=slope.dtype)
        out.copy_(probs.mul_(scale).scatter_add_(axis, label, -scale))
    return gradient


def _log_probs(logits: Tensor, target: Tensor, ignored: int) -> tuple[Tensor | None, Tensor]:
    """(log-probabilities, cross-entropy of each target).

    Logits of half precision are widened a piece at a time, and their log-probabilities not kept:
    c is exact to float32, and nothing of the size of the logits is made in float32. Others could
    be taken so too, for less memory, but many small operations wait for each other's threads.
    """
    if not is_half(logits):
        log_p = torch.log_softmax(logits, class_axis(logits))
        return log_p, F.nll_loss(log_p, target, ignore_index=ignored, reduction="none")
    if logits.dim() == 1:
        return None, cross_entropy(logits, target, ignored)
    pieces = zip(_pieces(logits, logits), _pieces(target, logits), strict=True)
    return None, torch.cat([cross_entropy(piece, labels, ignored) for piece, labels in pieces])


def _pieces(values: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """``values`` cut along the batch so that a piece of the logits is not too large to widen."""
    if logits.dim() == 1:
        return (values,)
    at_once = AT_ONCE if logits.device.type == "cpu" else AT_ONCE_ELSEWHERE
    rows = max(1, at_once * len(logits) // max(1, logits.numel()))
    pieces: tuple[Tensor, ...] = values.split(rows)  # type: ignore[no-untyped-call]
    return pieces
