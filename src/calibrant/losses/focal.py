"""The focal loss with a fixed gamma or a gamma policy."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.focal import focal_log_probs
from calibrant.losses.base import (
    Loss,
    LossSettings,
    along_classes,
    check_label_smoothing,
    check_soft_targets,
    class_axis,
    expected,
    is_half,
    smoothed,
    total_weight,
    wide_log_softmax,
)
from calibrant.losses.policies import GammaPolicy
from calibrant.losses.scalar import focal_of
from calibrant.losses.step import focal_loss_of


class _WithGamma(Loss):
    """A loss whose gamma is a number or a policy that follows epochs and validation sets."""

    gamma: float | GammaPolicy

    def __init__(self, gamma: float | GammaPolicy, **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(gamma, GammaPolicy):
            gamma = _inputs.gamma(gamma, lowest=0.0, like=torch.empty(0))
        self.gamma = gamma

    @property
    def needs_validation(self) -> bool:
        """Whether the policy needs the validation set."""
        return isinstance(self.gamma, GammaPolicy) and self.gamma.needs_validation

    @property
    def needs_epochs(self) -> bool:
        """Whether the policy uses :meth:`start_epoch`."""
        policy = type(self.gamma)
        return issubclass(policy, GammaPolicy) and policy.start_epoch != GammaPolicy.start_epoch

    def start_epoch(self, epoch: int, n_epochs: int | None = None) -> None:
        """Tell a policy which epoch begins, counted from 0, and the number of epochs."""
        if isinstance(self.gamma, GammaPolicy):
            self.gamma.start_epoch(epoch, n_epochs)

    @torch.no_grad()
    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Show a policy the whole validation set, once after an epoch.

        Under ``torch.distributed`` every process must call it with its own part.
        """
        if isinstance(self.gamma, GammaPolicy) and self.needs_validation:
            self.gamma.update(*self.top_labels(val_logits, val_labels))

    @torch.no_grad()
    def top_labels(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Confidence of each row that is not ignored, and whether it is correct.

        A policy needs only these two numbers per row, so for a large validation set they can be
        gathered batch by batch and passed to ``loss.gamma.update``.
        """
        rows = torch.movedim(logits, class_axis(logits), -1)
        labels = _inputs.labels(labels, rows, ignored=self.ignore_index)
        counted = labels != self.ignore_index
        return _top_labels(rows[counted], labels[counted])

    def _focal_of_rows(self, c: Tensor, p: Tensor, axis: int) -> Tensor:
        """The focal loss of each class, with one gamma per row, selected by its ``p``."""
        if not isinstance(self.gamma, GammaPolicy):
            return focal_of(c, self.gamma)
        gamma = self._gamma_of(p.detach()).to(p.dtype).expand(p.shape).unsqueeze(axis)
        return focal_of(c, lambda _: gamma, signed=self.gamma.signed)

    def _gamma_of(self, p: Tensor) -> Tensor:
        assert isinstance(self.gamma, GammaPolicy)
        gamma: Tensor = self.gamma(p)
        if self.gamma.checked:
            return gamma
        finite = not torch.compiler.is_compiling()
        owner = type(self.gamma).__name__
        checked: Tensor = check_gammas_of_policy(gamma, p, owner, finite=finite)
        return checked

    def extra_repr(self) -> str:
        """Gamma, if it is a number, and the settings that are not the default."""
        rest = super().extra_repr()
        return rest if isinstance(self.gamma, GammaPolicy) else f"gamma={self.gamma:g}, {rest}"


class FocalLoss(_WithGamma):
    r"""Focal loss, a drop-in replacement for ``torch.nn.CrossEntropyLoss``.

    .. math:: \mathrm{FL} = -(1 - p)^\gamma \log p, \qquad p = \mathrm{softmax}(s)_y

    It is computed from the cross-entropy, with the exact derivative. With class indices it takes
    about the time of ``torch.nn.CrossEntropyLoss`` (one and a half times in small batches, which
    are all overhead) and no more memory. Gradients are finite for every gamma and all finite
    logits.

    Targets that are probabilities v, and label smoothing, cost
    :math:`\sum_k v_k \cdot -(1 - q_k)^\gamma \log q_k`, with one gamma for a row: a policy gets the
    probability of the label, or of the class drawn from v, :math:`\sum_k v_k q_k`.

    float16 and bfloat16 logits give a float32 loss. With class indices they are widened a few
    samples of the batch at a time (at least one, even a large image); with probabilities as
    targets, and in a compiled loss, all at once.

    Args:
        gamma: A number of at least 0, where 0 is cross-entropy; or a policy:
            :class:`ScheduledGamma`, :class:`SampleGamma`, :class:`AdaFocal` or your own
            :class:`GammaPolicy`.
        weight: One weight for each class.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` (by the total weight of the targets), ``"sum"`` or ``"none"``.
        label_smoothing: Fraction of a target's mass that is spread over all classes.

    References:
        Lin et al. (2017); Mukhoti et al. (2020), Proposition 1.

    Examples:
        >>> import torch
        >>> from calibrant.losses import FocalLoss
        >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]], requires_grad=True)
        >>> loss = FocalLoss(gamma=2.0)(logits, torch.tensor([0, 1]))
        >>> loss.backward()
        >>> round(loss.item(), 4)
        0.8259
    """

    def __init__(
        self,
        *,
        gamma: float | GammaPolicy,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(gamma, weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = check_label_smoothing(label_smoothing)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and of class indices or probabilities."""
        settings = self._settings_for(logits)
        if target.is_floating_point():
            return self._of_probabilities(logits, target, settings)
        if self.label_smoothing > 0.0:
            return self._of_smoothed_labels(logits, target, settings)
        gamma = self.gamma
        if not isinstance(gamma, GammaPolicy):
            return focal_loss_of(logits, target, gamma, False, settings)
        rule = gamma.forward if gamma.checked else self._gamma_of
        return focal_loss_of(logits, target, rule, gamma.signed, settings)

    def _of_probabilities(self, logits: Tensor, target: Tensor, settings: LossSettings) -> Tensor:
        check_soft_targets(logits, target, self.ignore_index)
        axis = class_axis(logits)
        c = -wide_log_softmax(logits)
        p = (target * torch.exp(-c.detach())).sum(axis)
        values = self._focal_of_rows(c, p, axis)
        if settings.weight is not None:
            values = values * along_classes(settings.weight, values)
        target = smoothed(target, self.label_smoothing, logits.shape[axis])
        return self._reduced_rows(expected(values, target, axis))

    def _of_smoothed_labels(self, logits: Tensor, target: Tensor, settings: LossSettings) -> Tensor:
        axis = class_axis(logits)
        log_p = wide_log_softmax(logits)
        kept = target != self.ignore_index
        labels = torch.where(kept, target, 0).long().unsqueeze(axis)
        p = torch.exp(log_p.detach().gather(axis, labels).squeeze(axis))
        values = self._focal_of_rows(-log_p, p, axis)
        if settings.weight is not None:
            values = values * along_classes(settings.weight, values)
        true = values.gather(axis, labels).squeeze(axis)
        share = self.label_smoothing / logits.shape[axis]
        losses = (1.0 - self.label_smoothing) * true + share * values.sum(axis)
        losses = torch.where(kept, losses, 0.0)
        # The terms include class weights; the divisor of a mean has to include them too.
        if self.reduction == "none":
            return losses
        total = losses.sum()
        mean = self.reduction == "mean"
        return total / total_weight(target, settings, total.dtype) if mean else total

    def extra_repr(self) -> str:
        """The settings that are not the default."""
        rest = super().extra_repr()
        smoothing = f", label_smoothing={self.label_smoothing:g}" if self.label_smoothing else ""
        return rest + smoothing


class SigmoidFocalLoss(_WithGamma):
    r"""Binary focal loss of one logit, a replacement for ``torch.nn.BCEWithLogitsLoss``.

    .. math:: -v (1 - q)^\gamma \log q - (1 - v) q^\gamma \log(1 - q), \qquad q = \sigma(s)

    Equal to :class:`FocalLoss` of the two logits (0, s), for logits and targets of any shape.

    Args:
        gamma: A number of at least 0, where 0 is binary cross-entropy; or a policy, which gets the
            probability v q + (1 - v)(1 - q) of the target.
        weight: A factor for each element, broadcast to the shape of the logits.
        pos_weight: A factor for the first term, broadcast likewise.
        reduction: ``"mean"`` over all elements, ``"sum"`` or ``"none"``.

    References:
        Lin et al. (2017).

    Examples:
        >>> import torch
        >>> from calibrant.losses import SigmoidFocalLoss
        >>> loss = SigmoidFocalLoss(gamma=2.0)
        >>> round(loss(torch.tensor([-2.0, -2.0]), torch.tensor([0, 1])).item(), 4)
        0.8259
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        *,
        gamma: float | GammaPolicy,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(gamma, reduction=reduction)
        self.weight = weight
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and of targets 0, 1 or probabilities between, of the same shape."""
        check_same_shape_targets(logits, target)
        if is_half(logits):
            logits = logits.float()
        v = target.to(logits.dtype)
        with torch.no_grad():
            p = v * torch.sigmoid(logits) + (1.0 - v) * torch.sigmoid(-logits)
        # Not softplus, which torch makes linear above 20.
        both = -torch.stack([F.logsigmoid(logits), F.logsigmoid(-logits)])
        first, second = self._focal_of_rows(both, p, 0)
        if self.pos_weight is not None:
            first = first * self.pos_weight
        values = v * first + (1.0 - v) * second
        return self._reduced_rows(values if self.weight is None else values * self.weight)

    def probs(self, logits: Tensor) -> Tensor:
        """Probability of class 1 of an optimal network: the binary focal map of its logits.

        It requires a gamma that is a number: for a policy the map is unknown.
        """
        gamma = check_fixed_gamma(self.gamma)
        two = torch.stack([torch.zeros_like(logits), logits], dim=-1)
        mapped: Tensor = focal_log_probs(two, gamma=gamma)[..., 1].exp()
        return mapped

    @torch.no_grad()
    def top_labels(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Confidence of each element, and whether it is correct."""
        two = torch.stack([torch.zeros_like(logits), logits], dim=-1)
        indices = torch.from_numpy(_inputs.booleans(labels, "val_labels")).long().to(logits.device)
        return _top_labels(two.reshape(-1, 2), _inputs.labels(indices, two).reshape(-1))


def _top_labels(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence of each row, and whether it is correct, in double precision on the CPU."""
    if len(rows) == 0:
        return torch.empty(0), torch.empty(0)
    log_p, top = wide_log_softmax(_inputs.logits(rows)).max(dim=1)
    return log_p.exp().double().cpu(), (top == labels).double().cpu()


def check_same_shape_targets(logits: Array, target: Array) -> None:
    """Refuse targets whose shape is not that of the binary logits."""
    if tuple(logits.shape) != tuple(target.shape):
        raise CalibrantError(
            f"targets must have the shape of the logits, {tuple(logits.shape)}; found "
            f"{tuple(target.shape)}. Pass one target, 0 to 1, for each logit"
        )


def check_gammas_of_policy(gammas: Any, p: Array, owner: str, *, finite: bool) -> Array:
    """Check what a user's policy returns for p: finite gammas, one for each p or one for all."""
    xp = array_namespace(p)
    if isinstance(gammas, (int, float)):
        gammas = xp.full_like(p, gammas)
    shape = getattr(gammas, "shape", None)
    if shape is None or shape not in ((), p.shape):
        found = type(gammas).__name__ if shape is None else f"shape {tuple(shape)}"
        raise CalibrantError(
            f"a policy must return a tensor with one gamma for each p, or one number for all; "
            f"found {found} from {owner} for p of shape {tuple(p.shape)}"
        )
    if finite and not bool(xp.all(xp.isfinite(gammas))):
        raise CalibrantError(
            f"a policy must return finite gammas; found NaN or infinity from {owner}. "
            "Check its forward(p) for p of 0 and 1"
        )
    return xp.astype(gammas, p.dtype)


def check_fixed_gamma(value: Any) -> float:
    """Refuse a policy where a number is needed."""
    if not isinstance(value, float):
        raise CalibrantError(
            "the focal map needs a gamma that is a number; found a policy, for which the map is "
            "unknown. Fit a calibrator on validation data"
        )
    return value
