"""Calibration during training with Lightning.

This module needs Lightning: ``pip install 'calibrant[lightning]'``. Nothing else imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibrant import _inputs
from calibrant.errors import CalibrantError

_inputs.installed(
    "torch", "lightning", extra="lightning", purpose="calibrant.integrations.lightning"
)

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from calibrant.losses.base import Loss, class_axis
from calibrant.losses.focal import FocalLoss, SigmoidFocalLoss
from calibrant.metrics.evaluation import DEFAULT_METRICS
from calibrant.metrics.resampling import RESAMPLES
from calibrant.metrics.streaming import StreamedEvaluation

TopLabels = tuple[Tensor, Tensor]
"""Confidences, and whether they are correct."""


class CalibrationCallback(Callback):
    """Updates the losses of a module during training, and logs calibration metrics.

    For every loss of :mod:`calibrant.losses` that is an attribute of the module:

    * before each epoch, it calls ``loss.start_epoch(epoch, n_epochs)``, for schedules;
    * after each validation run of a fit, it does what ``loss.update(val_logits, val_labels)`` does,
      for AdaFocal. It keeps two numbers per sample, and no logits. A loss that needs the validation
      set and never sees it is reported by a warning.

    After each validation run the metrics are logged by ``pl_module.log``, so that every logger has
    them and ``ModelCheckpoint(monitor="val_ece")`` can select by them. They need no loss of this
    package. The sanity check before training, ``num_sanity_val_steps``, is ignored.

    ``validation_step`` must return a dictionary with ``"logits"``, of shape (N, C) or
    (N, C, d1, ...), and ``"labels"``, class indices. The module is not run again, and its mode is
    not changed.

    All state is in the buffers of the loss, which Lightning saves with the module. A resumed run
    continues as if it had not stopped.

    Each of several processes sees its part of the validation set, but metrics and AdaFocal are
    those of the whole set. A sampler that repeats samples to give every process equally many
    counts them twice. The equal-mass error is computed on a fine grid, in bounded memory; see
    :class:`calibrant.metrics.StreamedEvaluation`.

    Args:
        metrics: Metrics to log, among the default metrics of :func:`calibrant.evaluate`.
        prefix: Prefix of the logged names.
        n_bins: Number of bins of the calibration errors.
        ignore_label: Label of samples to ignore; by default the ``ignore_index`` of the losses, or
            -100 if there is no loss.
        dataloader_idx: Index of the validation set to use, if there are several.

    Examples:
        >>> from calibrant.integrations.lightning import CalibrationCallback
        >>> CalibrationCallback(metrics=("ece", "brier")).names
        ['val_ece', 'val_brier']
    """

    def __init__(
        self,
        *,
        metrics: Sequence[str] = ("ece", "ada_ece", "nll"),
        prefix: str = "val_",
        n_bins: int = 15,
        ignore_label: int | None = None,
        dataloader_idx: int = 0,
    ) -> None:
        super().__init__()
        self.metrics = check_several_of(metrics, "metrics", DEFAULT_METRICS)
        self.prefix = prefix
        self.n_bins = n_bins
        self.ignore_label = _inputs.ignored_label(ignore_label)
        self.dataloader_idx = dataloader_idx
        self._needs_validation = False
        self._forget()

    @property
    def names(self) -> list[str]:
        """The logged names."""
        return [self.prefix + name for name in self.metrics]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn about losses that the callback cannot update."""
        hidden = _hidden_losses(pl_module)
        if hidden:
            rank_zero_warn(
                f"losses must be submodules; found some in {', '.join(hidden)}, a plain list or "
                "dict. They see neither epochs nor the validation set. Use nn.ModuleList or "
                "nn.ModuleDict"
            )
        self._needs_validation = any(loss.needs_validation for loss in losses_of(pl_module))
        if not trainer.enable_validation:
            self._warn_without_validation()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn about losses that needed a validation set and saw none."""
        self._warn_without_validation()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the losses which epoch begins."""
        for loss in losses_of(pl_module):
            loss.start_epoch(trainer.current_epoch, epochs_of(trainer))

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start a new count, without the rest of an interrupted run."""
        self._forget()
        fitting = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        losses = losses_of(pl_module)
        for loss in losses:
            if fitting and loss.needs_validation:
                # An empty batch, in case other processes have all batches.
                self._kept[loss] = [(torch.empty(0), torch.empty(0))]
        self._ignored = self.ignore_label
        if self._ignored is None:
            self._ignored = check_one_ignored_index({loss.ignore_index for loss in losses})

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add one batch to the count."""
        if trainer.sanity_checking or dataloader_idx != self.dataloader_idx:
            return
        logits, labels = check_validation_output(outputs)
        rows = torch.movedim(logits.detach(), class_axis(logits), -1)
        self._stream.update(logits=rows, labels=labels, ignore_label=self._ignored)
        for loss, kept in self._kept.items():
            kept.append(loss.top_labels(logits, labels))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics, and update the losses."""
        if trainer.sanity_checking:
            return
        everyone = _merged(self._stream, self.n_bins)
        if everyone.n > 0:
            result = everyone.result(n_resamples=RESAMPLES.start)  # the intervals are not used
            for name, metric in zip(self.names, self.metrics, strict=True):
                # All processes have the same number; averaging it avoids a warning of Lightning.
                pl_module.log(name, result[metric].value, sync_dist=True)
            for loss, kept in self._kept.items():
                confidence, correct = zip(*kept, strict=True)
                loss.gamma.update(torch.cat(confidence), torch.cat(correct))
                self._needs_validation = False
        self._forget()

    def _forget(self) -> None:
        self._stream = StreamedEvaluation(n_bins=self.n_bins)
        self._kept: dict[Any, list[TopLabels]] = {}

    def _warn_without_validation(self) -> None:
        if self._needs_validation:
            self._needs_validation = False
            rank_zero_warn(
                "the loss must see a validation set; found none, so its gammas do not change. Pass "
                "val_dataloaders, run validation during the fit, and check whether all labels are "
                "ignored"
            )


def losses_of(pl_module: LightningModule) -> list[Loss]:
    """The losses of this package in a module."""
    return [module for module in pl_module.modules() if isinstance(module, Loss)]


def _hidden_losses(pl_module: LightningModule) -> list[str]:
    """Names of plain lists and dicts that hold losses, which PyTorch does not search."""
    found = set(losses_of(pl_module))
    names = []
    for name, value in vars(pl_module).items():
        held = value.values() if isinstance(value, dict) else value
        if isinstance(value, list | tuple | dict) and any(
            isinstance(item, FocalLoss | SigmoidFocalLoss)
            and item not in found
            and (item.needs_epochs or item.needs_validation)
            for item in held
        ):
            names.append(name)
    return names


def epochs_of(trainer: Trainer) -> int | None:
    """Number of epochs of a run, from max_epochs or max_steps; None if it is unknown."""
    # With manual optimisation the number of steps per batch is unknown.
    if trainer.max_steps >= 0 and not trainer.lightning_module.automatic_optimization:
        return None
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs)
    if trainer.max_steps >= 0 and math.isfinite(trainer.num_training_batches):
        steps = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        limits.append(math.ceil(trainer.max_steps / max(1, steps)))
    # A run that is resumed with other settings may be beyond their limit.
    return max(min(limits), trainer.current_epoch + 1) if limits else None


def _merged(stream: StreamedEvaluation, n_bins: int) -> StreamedEvaluation:
    """The counts of all processes."""
    group = torch.distributed
    if not (group.is_available() and group.is_initialized()):
        return stream
    parts: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(parts, stream)
    everyone = StreamedEvaluation(n_bins=n_bins)
    for part in parts:
        everyone.merge(part)
    return everyone


def check_validation_output(outputs: Any) -> tuple[Any, Any]:
    """Check that ``validation_step`` returned logits and labels."""
    missing = [name for name in ("logits", "labels") if not _inputs.holds(outputs, name)]
    if missing:
        found = f"the keys {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else None
        raise CalibrantError(
            "CalibrationCallback needs the logits and labels of the validation step; found "
            f"{found or _inputs.described(outputs)}. Return {{'logits': logits, 'labels': labels}} "
            "from validation_step"
        )
    return outputs["logits"], outputs["labels"]


def check_one_ignored_index(found: set[int]) -> int:
    """The label that all losses of a module ignore; torch's default without losses."""
    if len(found) > 1:
        raise CalibrantError(
            "the losses of a module must have the same ignore_index; found "
            f"{' and '.join(map(str, sorted(found)))}. Pass ignore_label= to CalibrationCallback"
        )
    return next(iter(found), -100)


def check_several_of(values: Any, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Check a sequence of names."""
    if isinstance(values, str):
        raise CalibrantError(
            f"{name} must be a sequence of names; found the string {values!r}. Pass [{values!r}]"
        )
    return tuple(_inputs.choice(value, name, allowed) for value in values)
