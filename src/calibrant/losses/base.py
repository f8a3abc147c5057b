"""The base of all losses: targets, weights and reductions as in ``torch.nn.CrossEntropyLoss``."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor, nn

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError

REDUCTIONS = ("mean", "sum", "none")
HALF = (torch.float16, torch.bfloat16)


class LossSettings(NamedTuple):
    """What determines the weight of each target."""

    weight: Tensor | None
    ignore_index: int
    reduction: str


class Loss(nn.Module):
    """A loss of logits (N, C), (C,) or (N, C, d1, ...) and of class indices or probabilities.

    A training loop may call :meth:`start_epoch` and :meth:`update` of any loss.

    Args:
        weight: One weight for each class, as in ``torch.nn.CrossEntropyLoss``.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` divides by the total weight of the targets that are not ignored, as
            torch does (by the number of rows, if targets are probabilities); ``"sum"``;
            ``"none"``. The mean of no targets is 0, where torch returns NaN.
    """

    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.register_buffer("weight", check_class_weights(weight))
        self.ignore_index = check_ignored_index(ignore_index)
        self.reduction = _inputs.choice(reduction, "reduction", REDUCTIONS)

    @property
    def needs_validation(self) -> bool:
        """Whether :meth:`update` has an effect."""
        return False

    def start_epoch(self, epoch: int, n_epochs: int | None = None) -> None:
        """Tell the loss which epoch begins, counted from 0. Most losses ignore it."""

    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Show the loss the validation set after an epoch. Most losses ignore it."""

    def extra_repr(self) -> str:
        """The settings that are not the default."""
        shown = []
        if self.weight is not None:
            shown.append(f"weight of shape {tuple(self.weight.shape)}")
        if self.ignore_index != -100:
            shown.append(f"ignore_index={self.ignore_index}")
        return ", ".join([*shown, f"reduction={self.reduction!r}"])

    def _settings_for(self, logits: Tensor) -> LossSettings:
        """The settings, with class weights in the dtype that the loss is computed in."""
        weight = self.weight
        if weight is not None:
            check_one_weight_per_class(weight, logits.shape[class_axis(logits)])
            weight = weight.to(torch.float32 if is_half(logits) else logits.dtype)
        return LossSettings(weight, self.ignore_index, self.reduction)

    def _reduced_rows(self, values: Tensor) -> Tensor:
        """Reduce the losses of targets that are probabilities, which have equal weights."""
        if self.reduction == "none":
            return values
        total = values.sum()
        return total if self.reduction == "sum" else total / max(1, values.numel())


def reduced(values: Tensor, share: Tensor, settings: LossSettings) -> Tensor:
    """Reduce the losses of class indices, which are 0 where the target is ignored."""
    weighed = values * share
    if settings.weight is not None:  # weight 0 gives 0, even if the loss is infinite
        weighed = torch.where(share == 0, 0.0, weighed)
    return weighed if settings.reduction == "none" else weighed.sum()


def labels_and_share(
    target: Tensor, settings: LossSettings, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(class indices, 0 instead of an ignored one; the weight of each in the reduced loss)."""
    counted = target != settings.ignore_index
    labels = (target * counted).long()
    share = counted.to(dtype) if settings.weight is None else settings.weight[labels] * counted
    return labels, share / divisor(share.sum()) if settings.reduction == "mean" else share


def total_weight(target: Tensor, settings: LossSettings, dtype: torch.dtype) -> Tensor:
    """The divisor of a mean over class indices."""
    weights = settings._replace(reduction="none")
    return divisor(labels_and_share(target, weights, dtype)[1].sum())


def divisor(total: Tensor) -> Tensor:
    """A total weight as a divisor: it is above 0, so that the mean of no targets is 0."""
    return total.clamp(min=torch.finfo(total.dtype).tiny)


def class_axis(logits: Tensor) -> int:
    """The class axis, as in torch: 1, or 0 for a single row."""
    return 0 if logits.dim() == 1 else 1


def is_half(logits: Tensor) -> bool:
    """Whether logits are in half precision, too coarse to compute in."""
    return logits.dtype in HALF


def wide_log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities in at least float32."""
    dtype = torch.float32 if is_half(logits) else None
    return F.log_softmax(logits, class_axis(logits), dtype=dtype)


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """-log p of the class indices ``target``, in at least float32; 0 where they are ignored.

    The native function; for half precision outside autocast, the same two steps with the first in
    float32: a cross-entropy rounded to 8 bits would lose the small losses of a mean, and p too.
    """
    if is_half(logits):
        return F.nll_loss(
            wide_log_softmax(logits), target, ignore_index=ignore_index, reduction="none"
        )
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")


def smoothed(target: Tensor, label_smoothing: float, n_classes: int) -> Tensor:
    """Targets with label smoothing: part of their mass is spread over all classes."""
    if label_smoothing == 0.0:
        return target
    return target * (1.0 - label_smoothing) + label_smoothing / n_classes


def expected(values: Tensor, probs: Tensor, axis: int) -> Tensor:
    """Mean of ``values`` under ``probs``; a class of probability 0 adds 0, not NaN."""
    return torch.where(probs == 0, 0.0, values * probs).sum(axis)


def along_classes(weight: Tensor, like: Tensor) -> Tensor:
    """Class weights in a shape that broadcasts with ``like``."""
    shape = [1] * like.dim()
    shape[class_axis(like)] = -1
    return weight.view(shape)


def check_ignored_index(value: Any) -> int:
    """Check the integer that marks ignored targets."""
    return _inputs.whole_number(value, "ignore_index", allowed=range(-(2**62), 2**62))


def check_class_weights(values: Any) -> Array:
    """Check class weights: a tensor of floats, finite and not negative; or None."""
    if values is None:
        return None
    if not (hasattr(values, "is_floating_point") and values.is_floating_point()):
        raise CalibrantError(
            "weight must be a tensor of floats, one for each class; found "
            f"{_inputs.described(values)}. Pass torch.tensor([...])"
        )
    if values.ndim != 1:
        raise CalibrantError(
            f"weight must have one entry for each class; found shape {tuple(values.shape)}. "
            "Pass a tensor with one axis"
        )
    _inputs.refuse(
        ~((values >= 0) & (values < math.inf)),
        "weight must be finite and not negative; found {found} in {where}. Use 0 to leave a class "
        "out",
        found=values,
    )
    return values


def check_one_weight_per_class(weight: Array, n_classes: int) -> None:
    """Refuse class weights that do not match the logits."""
    if len(weight) != n_classes:
        raise CalibrantError(
            f"weight must have one entry for each class; found {len(weight)} for logits of "
            f"{n_classes} classes. Pass a tensor of {n_classes}"
        )


def check_label_smoothing(value: Any) -> float:
    """Check a fraction of a target's mass."""
    number = _inputs.finite_number(value, "label_smoothing")
    if not 0.0 <= number <= 1.0:
        raise CalibrantError(
            f"label_smoothing must lie between 0 and 1; found {number:g}. The papers use 0.1"
        )
    return number


def check_soft_targets(logits: Array, target: Array, ignored: int) -> None:
    """Check targets that are probabilities, which ``ignore_index`` cannot mark."""
    if tuple(logits.shape) != tuple(target.shape):
        raise CalibrantError(
            f"targets that are probabilities must have the shape of the logits, "
            f"{tuple(logits.shape)}; found {tuple(target.shape)}. "
            "Pass class indices as integers: target.long()"
        )
    if ignored >= 0:
        raise CalibrantError(
            "ignore_index cannot be combined with targets that are probabilities; found "
            f"{ignored}. Leave ignore_index out, and give ignored rows no mass"
        )
