"""Cross-entropy and the Brier score."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.losses.base import (
    Loss,
    along_classes,
    check_soft_targets,
    class_axis,
    labels_and_share,
    reduced,
    wide_log_softmax,
)
from calibrant.losses.focal import FocalLoss


class CrossEntropyLoss(FocalLoss):
    """Cross-entropy, optionally with label smoothing: the focal loss at gamma = 0.

    Equal to ``torch.nn.CrossEntropyLoss``, with the methods of every loss in this package.

    Args:
        weight: One weight for each class.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` (by the total weight of the targets), ``"sum"`` or ``"none"``.
        label_smoothing: Fraction of a target's mass that is spread over all classes.

    References:
        Szegedy et al. (2016) for label smoothing.

    Examples:
        >>> import torch
        >>> from calibrant.losses import CrossEntropyLoss
        >>> loss = CrossEntropyLoss(label_smoothing=0.1)
        >>> round(loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item(), 4)
        0.2269
    """

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            gamma=0.0,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )


class BrierLoss(Loss):
    r"""Brier score: the squared distance between probabilities and target.

    .. math:: \sum_k (q_k - v_k)^2, \qquad q = \mathrm{softmax}(s)

    with v one-hot, or the target itself if it is probabilities. The sum is not divided by the
    number of classes. With class weights a row has weight :math:`\sum_k v_k w_k`.

    Args:
        weight: One weight for each class.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` (by the total weight of the targets), ``"sum"`` or ``"none"``.

    References:
        Brier (1950).

    Examples:
        >>> import torch
        >>> from calibrant.losses import BrierLoss
        >>> round(BrierLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item(), 4)
        0.0284
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and of class indices or probabilities."""
        axis = class_axis(logits)
        settings = self._settings_for(logits)
        q = wide_log_softmax(logits).exp()
        if target.is_floating_point():
            check_soft_targets(logits, target, self.ignore_index)
            values = (q - target).square().sum(axis)
            if settings.weight is not None:
                values = values * (target * along_classes(settings.weight, target)).sum(axis)
            return self._reduced_rows(values)
        labels, share = labels_and_share(target, settings, q.dtype)
        places = labels.unsqueeze(axis)
        off = q.scatter_add(axis, places, -torch.ones_like(places, dtype=q.dtype))
        values = torch.where(target != self.ignore_index, off.square().sum(axis), 0.0)
        return reduced(values, share, settings)
