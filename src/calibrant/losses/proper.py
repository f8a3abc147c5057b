"""The properised focal loss: strictly proper, with logits that need no focal map."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant import _inputs
from calibrant._numerics.logspace import softplus, split_top
from calibrant.focal.inverse import (
    TwoGroups,
    absent,
    from_solution,
    inverse_logits,
    linearised,
    solve,
    start,
    two_groups_of,
)
from calibrant.losses.base import class_axis, is_half, labels_and_share, reduced
from calibrant.losses.focal import FocalLoss
from calibrant.losses.scalar import focal_of
from calibrant.losses.step import applied, pieces, scaled


class ProperFocalLoss(FocalLoss):
    r"""Focal loss of the output whose focal map is the softmax of the logits.

    .. math:: L^*(s, y) = \mathrm{FL}\big((\Psi^\gamma)^{-1}(\mathrm{softmax}(s)), y\big)

    It is strictly proper: its optimum is the posterior, and no map is applied afterwards. Training
    with the focal loss and applying :func:`calibrant.focal.focal_map` has the same optimum, if the
    network can represent any output, but different gradients.

    The inverse map takes one to three steps for the usual gammas. With class indices the gradient
    comes from its closed form. The first two derivatives are those of the implicit function.

    Args:
        gamma: A number of at least 0, where 0 is cross-entropy.
        weight: One weight for each class.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` (by the total weight of the targets), ``"sum"`` or ``"none"``.
        label_smoothing: Fraction of a target's mass that is spread over all classes.

    References:
        Komisarenko and Kull (2024), Proposition 4.

    Examples:
        >>> import torch
        >>> from calibrant.losses import ProperFocalLoss
        >>> logits = torch.tensor([[0.9, 0.1]]).log()
        >>> round(ProperFocalLoss(gamma=2.0)(logits, torch.tensor([0])).item(), 4)
        0.0341
    """

    def __init__(
        self,
        *,
        gamma: float,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            gamma=_inputs.gamma(gamma, lowest=0.0, like=torch.empty(0)),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and of class indices or probabilities."""
        assert isinstance(self.gamma, float)
        axis = class_axis(logits)
        wide = logits.float() if is_half(logits) else logits
        rows = torch.movedim(wide, axis, -1)
        if not target.is_floating_point():
            if self.label_smoothing == 0.0:
                settings = self._settings_for(logits)
                c = applied(_CrossEntropy, rows, target, settings.ignore_index, self.gamma)
                if c is not None:
                    _, share = labels_and_share(target, settings, c.dtype)
                    return reduced(focal_of(c, self.gamma), share, settings)
            rows = _without_ignored(rows, target, self.ignore_index)
        output = _output(rows, self.gamma)
        return super().forward(torch.movedim(output, -1, axis), target)


def _without_ignored(rows: Tensor, target: Tensor, ignored: int) -> Tensor:
    """``rows`` with zeros in ignored ones, which may contain anything."""
    return torch.where((target != ignored).unsqueeze(-1), rows, 0.0)


def _output(rows: Tensor, gamma: float) -> Tensor:
    """Logits whose focal map is the softmax of ``rows``, in operations that every transform has."""
    output: Tensor = from_solution(split_top(rows), split_top(_solved(rows.detach(), gamma)), gamma)
    return output


@torch.library.custom_op("calibrant::focal_output", mutates_args=())
def _solved(rows: Tensor, gamma: float) -> Tensor:
    """The same as one operation: transforms cannot trace a loop that ends on a condition."""
    output: Tensor = inverse_logits(split_top(_inputs.logits(rows)), gamma)
    return output


@_solved.register_fake
def _(rows: Tensor, gamma: float) -> Tensor:
    return torch.empty_like(rows)


@_solved.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], rows: Tensor, gamma: float) -> tuple[Tensor, int]:
    return _solved(torch.movedim(rows, in_dims[0] or 0, 0), gamma), 0  # rows are independent


class _CrossEntropy(torch.autograd.Function):
    """-log q of the labels for the output q, with the gradient of the implicit function."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, target: Tensor, ignored: int, gamma: float) -> Tensor:
        c, ctx.gradient = _with_gradient(rows, target, ignored, gamma)
        ctx.save_for_backward(rows, target)
        ctx.given = ignored, gamma
        return c

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            ignored, gamma = ctx.given
            output = _output(_without_ignored(rows, target, ignored), gamma)
            labels = (target * (target != ignored)).long().unsqueeze(-1)
            c = -torch.log_softmax(output, -1).gather(-1, labels).squeeze(-1)
            (gradient,) = torch.autograd.grad(c, rows, grad, create_graph=True)
            return gradient, None, None, None
        # It is changed in place and returned; a second backward pass computes another.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = _with_gradient(rows, target, *ctx.given)
        return scaled(gradient, grad.unsqueeze(-1)), None, None, None


def _with_gradient(
    rows: Tensor, target: Tensor, ignored: int, gamma: float
) -> tuple[Tensor, Tensor]:
    """(-log q of each label, its gradient with respect to the row), in pieces of the batch."""
    labels = _inputs.labels(target, rows, ignored=ignored).unsqueeze(-1)
    is_ignored = labels == ignored
    if bool(is_ignored.any()):
        labels, rows = labels.masked_fill(is_ignored, 0), rows.masked_fill(is_ignored, 0.0)
    top = torch.argmax(_inputs.logits(rows), -1, keepdim=True)
    lowest = absent(rows, gamma)
    rho = (rows - rows.gather(-1, top)).scatter_(-1, top, lowest).clamp_(min=lowest)
    groups = TwoGroups(*map(torch.cat, zip(*map(two_groups_of, pieces(rho, rows)), strict=True)))
    given = (rho, labels, top, start(groups, gamma), *groups)
    each = zip(*(pieces(values, rows) for values in given), strict=True)
    c = torch.cat([_replace_by_gradient(*piece, gamma=gamma) for piece in each])
    return torch.where(rows.gather(-1, labels) == -math.inf, math.inf, c).squeeze(-1), rho


def _replace_by_gradient(
    rho: Tensor, label: Tensor, top: Tensor, a: Tensor, *groups: Tensor, gamma: float
) -> Tensor:
    """-log q of the labels; ``rho`` becomes its gradient, slope (w - one-hot).

    w sums to 1 and is q times d log q / d log h, up to a factor.
    """
    x, a = solve(rho, TwoGroups(*groups), a, gamma)
    at = linearised(x, a, gamma)
    is_top = label == top
    slope = torch.where(is_top, -at.top.t / at.top.gradient, at.low.gradient.gather(-1, label))
    scale = slope / at.pivot
    torch.mul(at.weights, -at.top.gradient * scale / at.total, out=rho)
    rho.scatter_(-1, top, at.top.q * scale).scatter_add_(-1, label, -slope)
    return torch.where(is_top, softplus(a), -x.gather(-1, label))
