"""The properised focal loss: strictly proper, with logits that need no focal map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import _inputs
from calibrant._numerics.logspace import split_top
from calibrant.focal.inverse import from_solution, inverse_logits
from calibrant.losses.base import class_axis, is_half
from calibrant.losses.focal import FocalLoss


class ProperFocalLoss(FocalLoss):
    r"""Focal loss of the output whose focal map is the softmax of the logits.

    .. math:: L^*(s, y) = \mathrm{FL}\big((\Psi^\gamma)^{-1}(\mathrm{softmax}(s)), y\big)

    It is strictly proper: its optimum is the posterior, and no map is applied afterwards. Training
    with the focal loss and applying :func:`calibrant.focal.focal_map` has the same optimum, if the
    network can represent any output, but different gradients.

    The inverse map is computed by Newton's method, in 3 to 30 steps that cost about a softmax each.
    Its first two derivatives are those of the implicit function.

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
        wide = logits.float() if is_half(logits) else logits
        rows = torch.movedim(wide, class_axis(logits), -1)
        if not target.is_floating_point():  # an ignored row may contain anything
            counted = (target != self.ignore_index).unsqueeze(-1)
            rows = torch.where(counted, rows, 0.0)
        output = _output(rows, self.gamma)
        return super().forward(torch.movedim(output, -1, class_axis(logits)), target)


def _output(rows: Tensor, gamma: float) -> Tensor:
    """Logits whose focal map is the softmax of ``rows``."""
    if not torch.compiler.is_compiling():
        try:
            direct: Tensor = inverse_logits(split_top(_inputs.logits(rows)), gamma)
            return direct
        except RuntimeError:  # torch.func.vmap cannot trace a loop that ends on a condition
            pass
    # The loop is one operation that is opaque to transforms.
    output: Tensor = from_solution(split_top(rows), split_top(_solved(rows.detach(), gamma)), gamma)
    return output


@torch.library.custom_op("calibrant::focal_output", mutates_args=())
def _solved(rows: Tensor, gamma: float) -> Tensor:
    output: Tensor = inverse_logits(split_top(_inputs.logits(rows)), gamma)
    return output


@_solved.register_fake
def _(rows: Tensor, gamma: float) -> Tensor:
    return torch.empty_like(rows)


@_solved.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], rows: Tensor, gamma: float) -> tuple[Tensor, int]:
    return _solved(torch.movedim(rows, in_dims[0] or 0, 0), gamma), 0  # rows are independent
