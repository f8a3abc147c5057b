"""What all losses share: targets, weights and reductions as in ``torch.nn.CrossEntropyLoss``."""

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


class Settings(NamedTuple):
    """What decides how much each class index counts."""

    weight: Tensor | None
    ignore_index: int
    reduction: str


class Loss(nn.Module):
    """A loss of logits (N, C), (C,) or (N, C, d1, ...) and of class indices or probabilities.

    Whatever the loss, a training loop may call :meth:`start_epoch` and :meth:`update`.

    Args:
        weight: One weight for each class, as in ``torch.nn.CrossEntropyLoss``.
        ignore_index: Class index of targets that do not count.
        reduction: ``"mean"`` divides by the total weight of the targets that count, as torch does
            (by the number of rows, if targets are probabilities); ``"sum"``; ``"none"``. The mean
            of no targets at all is 0, where torch says NaN.
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
        """Whether :meth:`update` wants to be called."""
        return False

    def start_epoch(self, epoch: int, n_epochs: int | None = None) -> None:
        """Tell the loss which epoch begins, counted from 0; nothing changes for most losses."""

    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Show the loss the validation set after an epoch; nothing changes for most losses."""

    def extra_repr(self) -> str:
        """The settings that are not the default."""
        shown = []
        if self.weight is not None:
            shown.append(f"weight of shape {tuple(self.weight.shape)}")
        if self.ignore_index != -100:
            shown.append(f"ignore_index={self.ignore_index}")
        return ", ".join([*shown, f"reduction={self.reduction!r}"])

    def _settings_for(self, logits: Tensor) -> Settings:
        """The settings, with class weights of the type the loss is computed in."""
        weight = self.weight
        if weight is not None:
            check_one_weight_a_class(weight, logits.shape[class_axis(logits)])
            weight = weight.to(torch.float32 if is_half(logits) else logits.dtype)
        return Settings(weight, self.ignore_index, self.reduction)

    def _reduced_rows(self, values: Tensor) -> Tensor:
        """Values of targets that are probabilities, which all count alike."""
        if self.reduction == "none":
            return values
        total = values.sum()
        return total if self.reduction == "sum" else total / max(1, values.numel())


def reduced(values: Tensor, share: Tensor, settings: Settings) -> Tensor:
    """Values of class indices, 0 already where the target is ignored, by what each counts."""
    weighed = values * share
    if settings.weight is not None:  # a class of weight 0 costs nothing, be it impossible
        weighed = torch.where(share == 0, 0.0, weighed)
    return weighed if settings.reduction == "none" else weighed.sum()


def labels_and_share(
    target: Tensor, settings: Settings, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(class indices, 0 in the place of an ignored one; what each counts in the reduced loss)."""
    counted = target != settings.ignore_index
    labels = (target * counted).long()
    share = counted.to(dtype) if settings.weight is None else settings.weight[labels] * counted
    return labels, share / above_zero(share.sum()) if settings.reduction == "mean" else share


def total_weight(target: Tensor, settings: Settings, dtype: torch.dtype) -> Tensor:
    """What a mean over class indices is divided by."""
    weights = settings._replace(reduction="none")
    return above_zero(labels_and_share(target, weights, dtype)[1].sum())


def above_zero(total: Tensor) -> Tensor:
    """A total of weights that what is 0 can be divided by: the mean of nothing is 0."""
    return total.clamp(min=torch.finfo(total.dtype).tiny)


def class_axis(logits: Tensor) -> int:
    """The axis of the classes, as torch has it: 1, or 0 for a single row."""
    return 0 if logits.dim() == 1 else 1


def is_half(logits: Tensor) -> bool:
    """Whether logits are of a type too coarse to compute in."""
    return logits.dtype in HALF


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities, of at least float32."""
    dtype = torch.float32 if is_half(logits) else None
    return F.log_softmax(logits, class_axis(logits), dtype=dtype)


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """-log p of the class indices ``target``, of at least float32; 0 where they are ignored.

    The native function; for half precision that autocast does not widen, the same two steps with
    the first in float32: a c rounded to 8 bits would lose the small losses of a mean, and p with
    them.
    """
    if is_half(logits):
        return F.nll_loss(log_softmax(logits), target, ignore_index=ignore_index, reduction="none")
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")


def smoothed(target: Tensor, label_smoothing: float, n_classes: int) -> Tensor:
    """Targets with a part of their mass spread over all classes."""
    if label_smoothing == 0.0:
        return target
    return target * (1.0 - label_smoothing) + label_smoothing / n_classes


def expected(values: Tensor, probs: Tensor, axis: int) -> Tensor:
    """Sum of ``values`` over the classes under ``probs``; a class without mass adds 0, not NaN."""
    return torch.where(probs == 0, 0.0, values * probs).sum(axis)


def along_classes(weight: Tensor, like: Tensor) -> Tensor:
    """Class weights in a shape that multiplies ``like``."""
    shape = [1] * like.dim()
    shape[class_axis(like)] = -1
    return weight.view(shape)


def check_ignored_index(value: Any) -> int:
    """A whole number that marks targets of a loss which do not count."""
    return _inputs.whole_number(value, "ignore_index", allowed=range(-(2**62), 2**62))


def check_class_weights(values: Any) -> Array:
    """One weight for each class as a torch tensor of floats, finite and not negative; or None."""
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


def check_one_weight_a_class(weight: Array, n_classes: int) -> None:
    """Class weights that fit the logits."""
    if len(weight) != n_classes:
        raise CalibrantError(
            f"weight must have one entry for each class; found {len(weight)} for logits of "
            f"{n_classes} classes. Pass a tensor of {n_classes}"
        )
