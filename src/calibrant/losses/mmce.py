"""Cross-entropy plus the maximum mean calibration error of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor

from calibrant import _inputs
from calibrant._numerics.precision import WITHOUT_FLOAT64
from calibrant.losses.base import (
    Loss,
    LossSettings,
    along_classes,
    check_label_smoothing,
    check_soft_targets,
    class_axis,
    expected,
    smoothed,
    total_weight,
    wide_log_softmax,
)
from calibrant.metrics.kernel_errors import laplace_energy


class MMCELoss(Loss):
    r"""Cross-entropy + strength times the maximum mean calibration error (MMCE) of the batch.

    .. math:: \mathrm{MMCE}^2 = \frac1{m^2} \sum_{ij} (c_i - r_i)(c_j - r_j)\, k_{ij}, \qquad
              k_{ij} = e^{-|r_i - r_j| / 0.4}

    with r the confidence of a row and c whether it is correct. The weighted form gives the n
    correct and the m - n wrong predictions equal weight:

    .. math::
        \mathrm{MMCE}_w^2 = \sum_{c_i=c_j=0} \frac{r_i r_j k_{ij}}{(m-n)^2}
        + \sum_{c_i=c_j=1} \frac{(1-r_i)(1-r_j) k_{ij}}{n^2}
        - 2 \sum_{c_i=1, c_j=0} \frac{(1-r_i) r_j k_{ij}}{(m-n)\,n}

    The published form is that of the code with which Mukhoti et al. (2020) trained: it takes means
    over pairs and then divides by the numbers of pairs once more, so

    .. math::
        \mathrm{MMCE}_p^2 = \sum_{c_i=c_j=0} \frac{r_i r_j k_{ij}}{(m-n)^4}
        + \sum_{c_i=c_j=1} \frac{(1-r_i)(1-r_j) k_{ij}}{n^4}
        - 2 \sum_{c_i=1, c_j=0} \frac{(1-r_i) r_j k_{ij}}{(m-n)^2\,n^2}

    and 0 if all predictions are correct or all are wrong. Its gradient is smaller than that of
    MMCE_w by about the size of the smaller group. In batches of 128 it is about 32
    times smaller than that of MMCE if half of the predictions are wrong, 10 to 19 times if a
    quarter are, and 2 to 4 times if 8 % are. (Their code adds 1e-5 to the divisors and 1e-10 under
    the root.)

    The loss has the square roots, as in the paper; terms of an empty group are 0. The double sum
    is computed from sorted confidences in m log m steps. MMCE is a property of the batch:
    ``"sum"`` counts it once for every row that is not ignored, and ``"none"`` adds it to every
    row. Each of several processes computes it from its own part of the batch. Where it is 0, its
    gradient is defined as 0.

    Args:
        weighted: Use MMCE_w instead of MMCE.
        published: Use MMCE_p instead of either.
        strength: Factor of the MMCE; the papers use 2 for images and 8 for documents.
        weight: One weight for each class, in the cross-entropy only: calibration concerns the
            samples as they are distributed.
        ignore_index: Class index of targets to ignore.
        reduction: ``"mean"`` (by the total weight of the targets), ``"sum"`` or ``"none"``.
        label_smoothing: Fraction of a target's mass that is spread over all classes, in the
            cross-entropy only.

    References:
        Kumar, Sarawagi and Jain (2018); the published form is ``MMCE_weighted`` of
        https://github.com/torrvision/focal_calibration.

    Examples:
        >>> import torch
        >>> from calibrant.losses import MMCELoss
        >>> logits, labels = torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss = MMCELoss(strength=2.0)
        >>> round(loss(logits, labels).item(), 4), round(loss.mmce(logits, labels).item(), 4)
        (1.3749, 0.3274)
    """

    def __init__(
        self,
        *,
        weighted: bool = False,
        published: bool = False,
        strength: float = 2.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.weighted = weighted
        self.published = published
        self.strength = _inputs.not_negative(strength, "strength")
        self.label_smoothing = check_label_smoothing(label_smoothing)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and of class indices or probabilities."""
        settings = self._settings_for(logits)
        log_p = wide_log_softmax(logits)
        mmce = self.strength * self._mmce(log_p, target)
        if target.is_floating_point():
            check_soft_targets(logits, target, self.ignore_index)
            axis = class_axis(logits)
            c = -log_p
            if settings.weight is not None:
                c = c * along_classes(settings.weight, c)
            smooth = smoothed(target, self.label_smoothing, logits.shape[axis])
            return self._reduced_rows(expected(c, smooth, axis) + mmce)
        counted = target != self.ignore_index
        if self.reduction == "none":
            return self._cross_entropy(log_p, target, settings) + torch.where(counted, mmce, 0.0)
        total = self._cross_entropy(log_p, target, settings._replace(reduction="sum"))
        if self.reduction == "sum":
            return total + counted.sum() * mmce
        return total / total_weight(target, settings, total.dtype) + mmce

    def mmce(self, logits: Tensor, target: Tensor) -> Tensor:
        """The calibration error alone, without ``strength``."""
        return self._mmce(wide_log_softmax(logits), target)

    def extra_repr(self) -> str:
        """The settings that are not the default."""
        form = "published=True" if self.published else f"weighted={self.weighted}"
        own = f"{form}, strength={self.strength:g}"
        if self.label_smoothing:
            own += f", label_smoothing={self.label_smoothing:g}"
        return f"{own}, {super().extra_repr()}"

    def _cross_entropy(self, log_p: Tensor, target: Tensor, settings: LossSettings) -> Tensor:
        # Log-probabilities are their own log-softmax, so nll_loss suffices without smoothing.
        weight, ignored, reduction = settings
        if self.label_smoothing > 0.0:
            return F.cross_entropy(
                log_p,
                target,
                weight,
                ignore_index=ignored,
                reduction=reduction,
                label_smoothing=self.label_smoothing,
            )
        return F.nll_loss(log_p, target, weight, ignore_index=ignored, reduction=reduction)

    def _mmce(self, log_p: Tensor, target: Tensor) -> Tensor:
        axis = class_axis(log_p)
        log_r, top = log_p.max(axis)
        if target.is_floating_point():
            correct = target.gather(axis, top.unsqueeze(axis)).squeeze(axis)
            counted = torch.ones_like(correct)
        else:
            correct = (top == target).to(log_p.dtype)
            counts = target != self.ignore_index
            log_r = torch.where(counts, log_r, 0.0)  # an ignored row may contain anything
            counted = counts.to(log_p.dtype)
        # The sums nearly cancel, so they are computed in double precision.
        wide = torch.float32 if log_p.device.type in WITHOUT_FLOAT64 else torch.float64
        r, correct, counted = (v.reshape(-1).to(wide) for v in (log_r.exp(), correct, counted))
        correct = correct * counted
        wrong = counted - correct
        if self.published:
            n_correct, n_wrong = _count(correct), _count(wrong)
            masses = _mean_part(correct, 1.0 - r) / n_correct - _mean_part(wrong, r) / n_wrong
            masses = masses * (correct.sum() > 0) * (wrong.sum() > 0)
        elif self.weighted:
            masses = _mean_part(correct, 1.0 - r) - _mean_part(wrong, r)
        else:
            masses = _mean_part(counted, correct - r)
        return _root(_energy(r, masses), masses).to(log_p.dtype)


def _mean_part(group: Tensor, values: Tensor) -> Tensor:
    """The term of each sample in the mean of ``values`` over ``group``; 0 if it is empty."""
    return group * values / _count(group)


def _count(group: Tensor) -> Tensor:
    """Size of a group; 1 if it is empty, to divide by."""
    total = group.sum()
    return torch.where(total > 0, total, 1.0)


def _energy(r: Tensor, masses: Tensor) -> Tensor:
    """sum_ij a_i a_j exp(-|r_i - r_j| / 0.4) in n log n steps.

    Tied samples are taken once in either order, so that the derivative between them is 0, as that
    of |r_i - r_j| is by symmetry.
    """
    up = torch.argsort(r, stable=True)
    down = torch.argsort(r, descending=True, stable=True).flip(0)
    energies: list[Tensor] = [laplace_energy(r[i], masses[i], torch) for i in (up, down)]
    return 0.5 * (energies[0] + energies[1])


def _root(energy: Tensor, masses: Tensor) -> Tensor:
    """The square root; 0 with a gradient of 0 where ``energy`` is only rounding error."""
    noise = torch.finfo(energy.dtype).eps * masses.detach().abs().sum().square()
    positive = ~(energy <= noise)  # also for NaN
    return torch.where(positive, torch.where(positive, energy, 1.0).sqrt(), 0.0)
